"""Shared by the tool-chain tests: the tools, and compilers over the inputs in data/toolchain."""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path

import pytest
from support import LLVM_DIRECTORIES, TEST_DATA, llc

from verilocc_mlir.errors import ToolchainError
from verilocc_mlir.toolchain.drivers import triton_probe
from verilocc_mlir.toolchain.drivers.job import CompileOptions
from verilocc_mlir.toolchain.drivers.triton import TritonTools
from verilocc_mlir.toolchain.find import Toolchain, find_toolchain
from verilocc_mlir.toolchain.staged import StagedCompiler

DATA = TEST_DATA / "toolchain"
TARGETS = ("gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1201", "gfx1250")


@lru_cache(maxsize=1)
def tools() -> Toolchain:
    """The tool chain that this machine has."""
    llc()
    return find_toolchain()


def compiler(cpu: str, name: str = "") -> StagedCompiler:
    """A fresh compiler, the verifier on."""
    return StagedCompiler(tools(), CompileOptions(cpu, tool_seconds=120.0, input_name=name))


def source(name: str) -> str:
    """An input of data/toolchain."""
    return (DATA / name).read_text()


def llvm_directory() -> Path:
    """A directory with unversioned tools."""
    directories = [Path(directory) for directory in LLVM_DIRECTORIES if (Path(directory) / "llc").exists()]
    if not directories:
        pytest.skip("no llc 22 at hand: 'make llvm' installs it")
    return directories[0]


def tritons() -> TritonTools:
    """The LLVM of Triton; skips where there is none."""
    try:
        return triton_probe.find_triton()
    except ToolchainError as error:
        pytest.skip(error.what)


def by_triton(cpu: str, name: str = "") -> StagedCompiler:
    """A fresh compiler over Triton's LLVM."""
    return StagedCompiler(tritons(), CompileOptions(cpu, tool_seconds=120.0, input_name=name))


def instructions(assembly: bytes) -> list[str]:
    """The instructions of assembly, without comments."""
    return [line.partition(";")[0].strip() for line in re.findall(r"^\t[a-z]\w+.*", assembly.decode(), re.MULTILINE)]
