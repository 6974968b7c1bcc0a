"""How often a loop runs: constants in the IR, constant counters in the code, the default for all else."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from support import cpu_of, few, kernel_paths, llc, run_llc

from verilocc_mlir.cost.counting import DEFAULT_TRIPS
from verilocc_mlir.cost.model import LoopTrips, cost_of_assembly
from verilocc_mlir.cost.trips import IrLoop, parse_loops
from verilocc_mlir.target.targets import TARGETS, target

TRIPLE = 'target triple = "amdgcn-amd-amdhsa"\n'


def scalar_evolution(ir: str) -> dict[str, tuple[IrLoop, ...]]:
    tool = Path(llc()).with_name(Path(llc()).name.replace("llc", "opt"))
    command = [str(tool), "-passes=function(print<loops>,print<scalar-evolution>)"]
    command += ["-scalar-evolution-classify-expressions=0", "-disable-output", "-"]
    return parse_loops(subprocess.run(command, input=ir, capture_output=True, text=True, check=True).stderr)


def loop(start: int, step: int, condition: str, bound: str, width: int = 32, name: str = "body") -> str:
    """A loop that a counter ends; it is stepped before it is compared."""
    return f"""{TRIPLE}define amdgpu_kernel void @k(ptr addrspace(1) %p, i{width} %n) {{
entry:
  br label %{name}
{name}:
  %i = phi i{width} [ {start}, %entry ], [ %j, %{name} ]
  store volatile i{width} %i, ptr addrspace(1) %p
  %j = add i{width} %i, {step}
  %more = icmp {condition} i{width} %j, {bound}
  br i1 %more, label %{name}, label %exit
exit:
  ret void
}}
"""


def loops_of(ir: str, cpu: str, known: bool = False) -> tuple[LoopTrips, ...]:
    counts = scalar_evolution(ir) if known else None
    (cost,) = cost_of_assembly(run_llc(ir, cpu, mir=False), target(cpu), counts).values()
    return cost.loops


COUNTERS = [
    (0, 1, "ult", "7", 32),
    (0, 4, "ne", "64", 32),
    (-32, 32, "ult", "4064", 32),
    (100, -3, "sgt", "10", 32),
    (0, 1, "ult", "9", 64),
    (-64, 64, "slt", "1000", 64),
]


@pytest.mark.parametrize("row", COUNTERS, ids=str)
@pytest.mark.parametrize("cpu", few(("gfx942", "gfx1201"), TARGETS))
def test_a_counter_in_the_code_is_read_as_scalar_evolution_reads_the_ir(
    cpu: str, row: tuple[int, int, str, str, int]
) -> None:
    ir = loop(*row)
    (from_code,) = loops_of(ir, cpu)
    (from_ir,) = loops_of(ir, cpu, known=True)
    assert from_ir.source == "ir"
    assert from_ir.ir_name == "body"
    assert from_code.source in ("code", "default")
    if from_code.source == "code":
        assert from_code.trips == from_ir.trips
    # The plain 32-bit forms must be recognised; others may be compiled to something else.
    assert from_code.source == "code" or row[4] == 64 or row[0] == -32


@pytest.mark.parametrize("cpu", TARGETS)
def test_a_bound_that_is_not_constant_is_not_guessed(cpu: str) -> None:
    for known in (False, True):
        (found,) = loops_of(loop(0, 1, "ult", "%n"), cpu, known=known)
        assert (found.source, found.trips) == ("default", DEFAULT_TRIPS)


@pytest.mark.long
def test_the_kernels_at_hand_agree_with_scalar_evolution() -> None:
    seen = 0
    for path in kernel_paths():
        if ".opt." not in path.name:
            continue
        ir, cpu = path.read_text(), cpu_of(path)
        known = [row.trips for rows in scalar_evolution(ir).values() for row in rows]
        for cost in cost_of_assembly(run_llc(ir, cpu, mir=False), target(cpu)).values():
            for row in cost.loops:
                if row.source == "code":
                    assert row.trips in known, path.name
                    seen += 1
    assert seen >= 5


def nested(inner: int, outer: int) -> str:
    return f"""{TRIPLE}define amdgpu_kernel void @k(ptr addrspace(1) %p) {{
entry:
  br label %outer
outer:
  %i = phi i32 [ 0, %entry ], [ %i1, %latch ]
  br label %inner
inner:
  %j = phi i32 [ 0, %outer ], [ %j1, %inner ]
  store volatile i32 %j, ptr addrspace(1) %p
  %j1 = add i32 %j, 1
  %c = icmp ult i32 %j1, {inner}
  br i1 %c, label %inner, label %latch
latch:
  store volatile i32 %i, ptr addrspace(1) %p
  %i1 = add i32 %i, 1
  %d = icmp ult i32 %i1, {outer}
  br i1 %d, label %outer, label %exit
exit:
  ret void
}}
"""


def test_nested_loops_multiply() -> None:
    ir = nested(30, 50)
    counts = scalar_evolution(ir)
    assert counts["k"] == (IrLoop("outer", 1, 50), IrLoop("inner", 2, 30))
    (cost,) = cost_of_assembly(run_llc(ir, "gfx942", mir=False), target("gfx942"), counts).values()
    assert [(row.depth, row.trips, row.source) for row in cost.loops] == [(1, 50, "ir"), (2, 30, "ir")]
    # Two stores: one in each loop; each moves 256 bytes at 16 bytes a cycle.
    assert cost.memory == 16 * (50 * 30 + 50)


def test_blocks_without_names_are_matched_by_their_nest() -> None:
    ir = nested(30, 50).replace("%inner", "%1").replace("\ninner:", "\n1:").replace("%outer", "%0")
    ir = ir.replace("\nouter:", "\n0:").replace("%latch", "%2").replace("\nlatch:", "\n2:")
    ir = ir.replace("%exit", "%3").replace("\nexit:", "\n3:").replace("entry:\n", "entry:\n")
    (cost,) = cost_of_assembly(run_llc(ir, "gfx1100", mir=False), target("gfx1100"), scalar_evolution(ir)).values()
    assert [(row.ir_name, row.trips, row.source) for row in cost.loops] == [("", 50, "ir"), ("", 30, "ir")]
    other = {"k": (IrLoop("0", 1, 50),)}
    (unmatched,) = cost_of_assembly(run_llc(ir, "gfx1100", mir=False), target("gfx1100"), other).values()
    assert all(row.source != "ir" for row in unmatched.loops)
