"""Generated functions before and after allocation by LLVM, a function of a seed and a number."""

from __future__ import annotations

import random
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import random_ir
from allocation import PASSES
from random_mir import TARGETS, Features, random_mir, switches
from support import cpu_of, llc, readable, run_opt

from verilocc_mlir.mir.model import MirFile
from verilocc_mlir.mir.parser import parse_mir

LARGEST = 120
"""Instructions of a function; larger ones are left out, to keep one audit in the tens of milliseconds."""
ALLOCATORS = tuple(PASSES)
_RARE = frozenset({"vector_pressure", "scalar_pressure", "inactive", "irreducible", "calls", "device"})


class NoFunction(Exception):
    """The number gives no function: it is too large, or LLVM refuses it (out of registers)."""


@dataclass(frozen=True)
class Phase:
    """One phase of one function: both texts parsed."""

    name: str
    cpu: str
    allocator: str
    number: int
    pre: MirFile
    post: MirFile


def tool(text: str, cpu: str, *arguments: str, mir: bool = True) -> str:
    """Output of llc, not kept on disk.

    Raises:
        NoFunction: llc fails.
    """
    command = [llc(), "-mtriple=amdgcn-amd-amdhsa", f"-mcpu={cpu}", "-O3", *(["-x", "mir"] if mir else []), *arguments]
    done = subprocess.run(
        [*command, "-o", "-", "-"], input=text, capture_output=True, text=True, timeout=120, check=False
    )
    if done.returncode:
        raise NoFunction(f"llc: {done.stderr.strip()[:200]}")
    return done.stdout


def pre_ra(seed: int, number: int) -> tuple[str, str, str]:
    """Name, target and text of a function as it enters the first phase; every second is compiled from IR.

    Raises:
        NoFunction: it is too large.
    """
    rng = random.Random(f"{seed}/{number}")
    cpu = TARGETS[number % len(TARGETS)]
    if number // len(TARGETS) % 2 == 0:
        chosen = random_ir.Features(
            calls=rng.random() < 0.3, device_function=rng.random() < 0.3, special=cpu if rng.random() < 0.7 else ""
        )
        text = random_ir.random_ir(rng.randrange(1 << 30), chosen)
        if text.count("\n") > 170:
            raise NoFunction("too large")
        if rng.random() < 0.4:
            text = text.replace("i32 %m) {", f'i32 %m) "amdgpu-num-vgpr"="{rng.choice((6, 8, 10, 12))}" {{')
        try:
            # Without mem2reg the variables stay stack objects.
            text = run_opt(text, cpu, "-O2" if rng.random() < 0.85 else "-passes=instcombine")
        except AssertionError as error:
            raise NoFunction(str(error)) from error
        return f"ir {number}", cpu, readable(tool(text, cpu, "-stop-before=greedy,0", mir=False))
    on = {name: rng.random() < (0.15 if name in _RARE else 0.55) for name in switches()}
    features = Features(size=rng.choice((5, 8, 12)), **on)
    return f"mir {number}", cpu, readable(random_mir(rng.randrange(1 << 30), cpu, features))


def phases(seed: int, number: int, allocator: str | None = None) -> Iterator[Phase]:
    """The scalar and the vector phase of one function.

    Raises:
        NoFunction: it is too large, or LLVM refuses it.
    """
    name, cpu, pre = pre_ra(seed, number)
    chosen = allocator or ALLOCATORS[number // len(TARGETS) % len(ALLOCATORS)]
    return _phases(name, cpu, pre, chosen, LARGEST)


def kernel_phases(path: Path, allocator: str = "greedy") -> Iterator[Phase]:
    """The scalar and the vector phase of a kernel file.

    Raises:
        NoFunction: LLVM refuses it.
    """
    cpu = cpu_of(path)
    pre = readable(tool(path.read_text(), cpu, "-stop-before=greedy,0", mir=False))
    return _phases(path.stem, cpu, pre, allocator, 1 << 30)


def _phases(name: str, cpu: str, pre: str, allocator: str, largest: int) -> Iterator[Phase]:
    pass_name = PASSES[allocator]
    options = (*(f"-{kind}-regalloc={allocator}" for kind in ("sgpr", "wwm", "vgpr")), "-enable-ipra=0")
    for phase in (0, 2):
        before = pre
        if phase:
            stages = (f"-start-before={pass_name},0", f"-stop-before={pass_name},{phase}")
            before = readable(tool(pre, cpu, *options, *stages))
        first = parse_mir(before, "pre.mir")
        if first.functions[-1].instruction_count > largest:
            raise NoFunction("too large")
        stages = (f"-start-before={pass_name},{phase}", f"-stop-after=virtregrewriter,{phase}")
        after = tool(before, cpu, *options, *stages)
        yield Phase(name, cpu, allocator, phase, first, parse_mir(after, "post.mir"))
