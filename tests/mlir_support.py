"""Shared by the tests of the MLIR hook: which bindings are installed, and small modules."""

from __future__ import annotations

import importlib.util
import struct
from typing import Any

import pytest

from examples.mlir_kernels import Config, Gemm
from verilocc_mlir.hooks.mlir_pipeline import Bindings

PACKAGES = ("torch_mlir", "mlir", "iree.compiler")

STORING_KERNEL = """
module attributes {gpu.container_module} {
  gpu.module @m [#rocdl.target<chip = "gfx942">] {
    llvm.func @k(%p: !llvm.ptr<1>, %x: i32) attributes {gpu.kernel, rocdl.kernel} {
      llvm.store %x, %p : i32, !llvm.ptr<1>
      llvm.return
    }
  }
}
"""

LOWERED = """
module attributes {gpu.container_module} {
  gpu.module @kernels [#rocdl.target<TARGET>] {
    llvm.func @scale(%arg0: !llvm.ptr<1>, %arg1: !llvm.ptr<1>) attributes {gpu.kernel, rocdl.kernel} {
      %id = rocdl.workitem.id.x : i32
      %index = llvm.sext %id : i32 to i64
      %from = llvm.getelementptr %arg0[%index] : (!llvm.ptr<1>, i64) -> !llvm.ptr<1>, f32
      %value = llvm.load %from : !llvm.ptr<1> -> f32
      %result = llvm.fmul %value, %value : f32
      %to = llvm.getelementptr %arg1[%index] : (!llvm.ptr<1>, i64) -> !llvm.ptr<1>, f32
      llvm.store %result, %to : f32, !llvm.ptr<1>
      llvm.return
    } loc("kernel.py":7:3)
  } loc("kernel.py":5:1)
}
"""
"""A kernel in the LLVM and ROCDL dialects; ``TARGET`` is to be replaced."""


def installed() -> list[str]:
    """The bindings at hand."""

    def here(package: str) -> bool:
        try:
            return importlib.util.find_spec(f"{package}.ir") is not None
        except ImportError:
            return False

    return [package for package in PACKAGES if here(package)]


def all_bindings() -> list[Any]:
    """For ``parametrize``: every bindings package at hand; one skipped entry where there is none."""
    return _parameters(installed())


def lowering_bindings() -> list[Any]:
    """Those that have MLIR's own lowering passes and translation (IREE registers passes of its own)."""
    return _parameters([package for package in installed() if Bindings(package).translates])


def _parameters(found: list[str]) -> list[Any]:
    missing = pytest.param("", marks=pytest.mark.skip(reason="no MLIR Python bindings are installed"))
    return list[Any](found) or [missing]


class Session:
    """A context of one bindings package that keeps the diagnostics it is given, as (severity, message, location)."""

    def __init__(self, package: str) -> None:
        self.bindings = Bindings(package)
        self.context = self.bindings.ir.Context()
        self.diagnostics: list[tuple[str, str, str]] = []
        self.context.attach_diagnostic_handler(self._keep)

    def _keep(self, diagnostic: Any) -> bool:
        severity = str(diagnostic.severity).rpartition(".")[2].lower()
        self.diagnostics.append((severity, diagnostic.message, str(diagnostic.location)))
        return True

    def parse(self, text: str) -> Any:
        with self.context:
            return self.bindings.ir.Module.parse(text)


def lowered(target: str) -> str:
    """The kernel for a target attribute's body: ``lowered('chip = "gfx942"')``."""
    return LOWERED.replace("TARGET", target)


def elf_header(data: bytes) -> tuple[int, int, int]:
    """(EI_OSABI, EI_ABIVERSION, e_flags & EF_AMDGPU_MACH) of an ELF file."""
    assert data[:4] == b"\x7fELF"
    return data[7], data[8], struct.unpack_from("<I", data, 48)[0] & 0xFF


def small(config: Config) -> bool:
    """Whether a generated kernel is quick to run and to prove."""
    if isinstance(config, Gemm):
        return config.accumulators <= 32 and config.threads <= 256
    return config.queries <= 64 and config.head_dim <= 96 and config.block <= 64
