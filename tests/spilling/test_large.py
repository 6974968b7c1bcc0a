"""What spilling counts: points packed together, halves of pairs, and accumulators that values wait in."""

from __future__ import annotations

import random

import pytest
from builders import machine_code, reads, uses
from spilling_support import allocate, proved

from verilocc_mlir.mir.parser import parse_mir
from verilocc_mlir.problem.build import build_problem
from verilocc_mlir.spilling.choose import PackedExcess
from verilocc_mlir.spilling.relieve import Spiller, most_too_many, pressures
from verilocc_mlir.target.targets import target

CPU = "gfx90a"


@pytest.mark.parametrize("points", [2, 255, 256, 257, 512, 1200])
def test_packed_points_count_like_a_list(points: int) -> None:
    made = random.Random(points)
    over = [made.randint(-9, 9) for _ in range(points)]
    packed = PackedExcess(over)
    for _ in range(200):
        first = made.randint(0, points // 2)
        stop = made.randint(first, points // 2)
        amount = made.randint(1, 3)
        span = (2 * first, 2 * stop - (stop > first and made.random() < 0.5), amount)
        inside = slice(span[0], span[1])
        assert packed.relief([span]) == amount * sum(value > 0 for value in over[inside])
        assert packed.room([span]) == all(value + amount <= 0 for value in over[inside])
        sign = made.choice((1, -1))
        packed.change([span], sign)
        over[inside] = [value + sign * amount for value in over[inside]]
        assert packed.over == over
        assert packed.anywhere == any(value > 0 for value in over)


HALVES = "\n".join(
    [
        "  bb.0:",
        "    liveins: $vgpr0",
        "    %0:vgpr_32 = COPY $vgpr0",
        *(
            f"    undef %{k}.sub1:vreg_64_align2 = DS_READ_B32_gfx9 %0, {4 * k}, 0, implicit $exec"
            " :: (load (s32), addrspace 3)"
            for k in range(1, 7)
        ),
        *(
            f"    %{k}.sub0:vreg_64_align2 = DS_READ_B32_gfx9 %0, {8 * k}, 0, implicit $exec"
            " :: (load (s32), addrspace 3)\n"
            f"    DS_WRITE_B64_gfx9 %0, %{k}, 0, 0, implicit $exec :: (store (s64), addrspace 3)"
            for k in range(1, 7)
        ),
        "    S_ENDPGM 0",
    ]
)
"""Six values in the upper halves of pairs, where there are five odd registers: there are enough in all."""


def test_halves_of_pairs_are_counted_in_large_functions(monkeypatch: pytest.MonkeyPatch) -> None:
    file = parse_mir(machine_code(HALVES, 10))
    (function,) = file.functions
    problem = build_problem(file, function, target(CPU), "vgpr")
    assert most_too_many(problem) == 0
    small = Spiller(function, problem, target(CPU)).relieve()
    assert small is not None
    assert not small.actions
    monkeypatch.setattr("verilocc_mlir.problem.model.LARGE", 5)
    large = Spiller(function, problem, target(CPU)).relieve(accumulators=False)
    assert large is not None
    assert [action.reason for action in large.actions] == ["1 VGPRs too many at instruction 6"]


AROUND = f"""
  bb.0:
    successors: %bb.1(0x80000000)
    liveins: $vgpr0
    %0:vgpr_32 = COPY $vgpr0

  bb.1:
    successors: %bb.2(0x40000000), %bb.3(0x40000000)
    S_CBRANCH_SCC0 %bb.3, implicit undef $scc

  bb.2:
    successors: %bb.4(0x80000000)
{reads([1])}
    S_BRANCH %bb.4

  bb.3:
    successors: %bb.4(0x80000000)
    %1:vgpr_32 = IMPLICIT_DEF

  bb.4:
    successors: %bb.1(0x7c000000), %bb.5(0x04000000)
{reads(range(2, 9))}
{uses(range(2, 9))}
{uses([1])}
    S_CBRANCH_SCC0 %bb.1, implicit undef $scc
    S_BRANCH %bb.5

  bb.5:
    S_ENDPGM 0
"""
"""%1 is made on one of two ways through a loop."""


def test_accumulators_are_counted_for_as_long_as_values_wait_in_them() -> None:
    """What an IMPLICIT_DEF makes on another way through a loop would keep its accumulator all around the loop."""
    file = parse_mir(machine_code(AROUND, 8))
    (function,) = file.functions
    problem = build_problem(file, function, target(CPU), "vgpr")
    relieved = Spiller(function, problem, target(CPU)).relieve()
    assert relieved is not None
    kinds = {action.register: action.kind for action in relieved.actions}
    assert kinds.get("%1", "spill") == "spill"
    after = build_problem(file, relieved.function, target(CPU), "vgpr")
    assert max(pressures(after)) <= 0
    # On gfx90a a text with slots has to say where its scratch is.
    proved(allocate(machine_code(AROUND, 8), "gfx942"))
