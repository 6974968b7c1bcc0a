"""Shared by the tests of batches: small kernels, an llc that misbehaves, and the command line in a process."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from support import HEARING, REPOSITORY, llc

from verilocc_mlir.allocators import Allocator, allocator
from verilocc_mlir.pipeline.batch.jobs import Job
from verilocc_mlir.pipeline.settings import Settings
from verilocc_mlir.problem.model import AllocationProblem, Proposal

VERILOCC = [sys.executable, "-m", "verilocc_mlir.cli.main"]
CPU = "gfx942"
SETTINGS = Settings(cpu=CPU)


def kernel(factor: int) -> str:
    """LLVM IR of a kernel of a few instructions; another one for each factor, with the factor in its name."""
    return f"""
target triple = "amdgcn-amd-amdhsa"
declare i32 @llvm.amdgcn.workitem.id.x()
define amdgpu_kernel void @times{factor}(ptr addrspace(1) %p) {{
  %id = call i32 @llvm.amdgcn.workitem.id.x()
  %q = getelementptr i32, ptr addrspace(1) %p, i32 %id
  %v = load i32, ptr addrspace(1) %q
  %w = mul i32 %v, {factor}
  store i32 %w, ptr addrspace(1) %q
  ret void
}}
"""


def job(number: int, factor: int, settings: Settings = SETTINGS) -> Job:
    """To compile such a kernel."""
    return Job(number, f"k{factor}.ll", kernel(factor).encode(), settings)


class Eats:
    """Takes memory without end for ``times4``; all others as "deterministic"."""

    name = "eats"
    version = "1"

    def allocate(self, problem: AllocationProblem) -> Proposal:
        kept: list[bytearray] = []
        while problem.function == "times4":
            kept.append(bytearray(64 << 20))
        return allocator("deterministic").allocate(problem)


def hungry(_settings: Settings) -> Sequence[Allocator]:
    """A ``worker.Factory``."""
    return (Eats(),)


def kernels(directory: Path, count: int) -> list[Path]:
    """That many in ``directory``, from times3 on: k3.ll, k4.ll …"""
    directory.mkdir(parents=True, exist_ok=True)
    paths = [directory / f"k{number}.ll" for number in range(3, 3 + count)]
    for number, path in enumerate(paths, 3):
        path.write_text(kernel(number))
    return paths


def faulty_llc(path: Path, function: str, action: str) -> Path:
    """An llc at ``path`` that runs a line of shell first where its input has ``function``; it reads its input once.

    ``$PPID`` is the process that started it; ``$0.log`` is a file of its own.
    """
    path.write_text(
        "#!/bin/sh\n"
        f'case "$*" in *-o*) ;; *) exec {llc()} "$@";; esac\n'
        f'input="$0.$$"\ntrap \'rm -f "$input"\' EXIT\ncat > "$input"\n'
        f'if grep -q "@{function}(" "$input"; then {action}; fi\n'
        f'{llc()} "$@" < "$input"\n'
    )
    path.chmod(0o755)
    return path


def start(*arguments: str | Path, cache: Path, **environment: str) -> subprocess.Popen[str]:
    """``verilocc compile-many`` in a process of its own; it hears interrupts."""
    command = [*HEARING, *VERILOCC, "compile-many", *map(str, arguments), f"-mcpu={CPU}", f"--cache={cache}"]
    return subprocess.Popen(
        command,
        cwd=REPOSITORY,
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
