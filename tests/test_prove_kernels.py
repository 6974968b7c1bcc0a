"""``prove`` on the problems of real kernels: the deterministic allocator's answers hold, and damaged ones are refuted
for exactly the rule they break."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import pytest
from prove_support import rules
from support import cpu_of, kernel_paths, pre_ra, run_llc

from smt_verifier.outcome import Outcome
from smt_verifier.prove import prove
from verilocc_mlir.allocators import AllocationFailure, allocator
from verilocc_mlir.mir.parser import parse_mir
from verilocc_mlir.problem.build import build_problem
from verilocc_mlir.problem.model import PHASES, AllocationProblem, LiveRange, Proposal
from verilocc_mlir.target.registers import physical_register
from verilocc_mlir.target.targets import target

Answered = tuple[AllocationProblem, Proposal]


@lru_cache(maxsize=None)
def answered(path: Path) -> tuple[Answered, ...]:
    """Problems of a kernel's functions and phases, with the allocator's answer where it has one."""
    file = parse_mir(pre_ra(path), path.name)
    found: list[Answered] = []
    for function in file.functions:
        for phase in PHASES:
            asked = build_problem(file, function, target(cpu_of(path)), phase)
            try:
                found.append((asked, allocator("deterministic").allocate(asked)))
            except AllocationFailure:
                continue
    return tuple(found)


def smallest_for_each_target() -> list[Path]:
    """One kernel a target, the smallest."""
    by_cpu: dict[str, list[Path]] = {}
    for path in kernel_paths():
        by_cpu.setdefault(cpu_of(path), []).append(path)
    return sorted(min(paths, key=lambda path: path.stat().st_size) for paths in by_cpu.values())


def names(paths: list[Path]) -> list[str]:
    return [path.name for path in paths]


SMALL = smallest_for_each_target()


@pytest.mark.parametrize("path", SMALL, ids=names(SMALL))
def test_the_allocator_is_proved(path: Path) -> None:
    for asked, answer in answered(path):
        result = prove(asked, answer)
        assert result.outcome is Outcome.PROVED, (asked.function, asked.phase, result)
        assert result.obligations >= 7 * len(asked.ranges) - sum(r.lanes == 1 for r in asked.ranges)


@pytest.mark.long
@pytest.mark.parametrize("path", kernel_paths(), ids=names(kernel_paths()))
def test_the_allocator_is_proved_on_every_kernel(path: Path) -> None:
    test_the_allocator_is_proved(path)


def moved(answer: Proposal, live_range: LiveRange, register: str) -> Proposal:
    """The answer with another register for one live range."""
    registers = list(answer.registers)
    registers[live_range.id] = register
    return replace(answer, registers=tuple(registers))


def cells(live_range: LiveRange, register: str) -> Iterator[tuple[int, tuple[int, int]]]:
    """Units held, with the segments."""
    units = physical_register(register).units
    for group in live_range.groups:
        for lane in range(live_range.lanes):
            if group.lanes >> lane & 1:
                yield from ((units[lane], segment) for segment in group.segments)


def meet(a: LiveRange, a_register: str, b: LiveRange, b_register: str) -> bool:
    """Two live ranges hold one unit at one slot, by looking at all of their cells."""
    held = list(cells(b, b_register))
    return any(u == v and s[0] < t[1] and t[0] < s[1] for u, s in cells(a, a_register) for v, t in held)


@pytest.mark.parametrize("path", SMALL, ids=names(SMALL))
def test_two_live_ranges_in_one_place_are_refuted(path: Path) -> None:
    chance = random.Random(path.name)
    for asked, answer in answered(path):
        pairs = [(a, b) for a in asked.ranges for b in asked.ranges if a.register_class == b.register_class and a != b]
        for a, b in chance.sample(pairs, min(6, len(pairs))):
            damaged = moved(answer, a, answer.registers[b.id])
            expected = {
                tuple(sorted((a.id, c.id)))
                for c in asked.ranges
                if c != a and meet(a, damaged.registers[a.id], c, damaged.registers[c.id])
            }
            found = prove(asked, damaged).violations
            assert {tuple(sorted(v.ranges)) for v in found if v.rule == "interference"} == expected
            assert {v.rule for v in found} <= {"interference", "fixed"}


@pytest.mark.parametrize("path", SMALL, ids=names(SMALL))
def test_a_live_range_on_a_live_argument_is_refuted(path: Path) -> None:
    """The first argument register, while the argument is in it."""
    for asked, answer in answered(path):
        for occupation in asked.fixed:
            for live_range in asked.ranges:
                arguments = ("sgpr0", "sgpr4", "vgpr0")
                register = next((n for n in arguments if physical_register(n).units == occupation.units), "")
                if register and live_range.lanes == 2 and register[:4] in live_range.banks:
                    inside = any(
                        s[0] < t[1] and t[0] < s[1] for _, s in cells(live_range, register) for t in occupation.segments
                    )
                    damaged = moved(answer, live_range, register)
                    assert ("fixed" in {v.rule for v in prove(asked, damaged).violations}) == inside
                    if inside:
                        return


CALL = """
declare hidden void @other()
define hidden i32 @caller(i32 %x) {
  call void @other()
  %y = add i32 %x, 7
  ret i32 %y
}
"""


def test_a_value_live_across_a_call() -> None:
    """The C calling convention preserves v40 and not v0; the argument itself leaves v0 before the call."""
    file = parse_mir(run_llc(CALL, "gfx942", "-stop-before=greedy,0", mir=False), "call.mir")
    asked = build_problem(file, file.functions[0], target("gfx942"), "vgpr")
    answer = allocator("deterministic").allocate(asked)
    assert prove(asked, answer).outcome is Outcome.PROVED
    clobbers = [o for o in asked.fixed if "clobbered" in o.reason]
    assert clobbers
    slot = clobbers[0].segments[0][0]
    across = next(r for r in asked.ranges for g in r.groups for s, e in g.segments if s < slot < e)
    assert rules(prove(asked, moved(answer, across, "vgpr40"))) == set()
    (violation,) = prove(asked, moved(answer, across, "vgpr1")).violations
    assert (violation.rule, violation.slot) == ("fixed", slot)
    assert "call" in violation.message
    assert "vgpr40" in violation.free


def test_rules_on_a_real_problem() -> None:
    path = next((path for path in SMALL if cpu_of(path) == "gfx942"), None)
    if path is None:
        pytest.skip("no gfx942 kernel at hand: set VERILOCC_KERNELS")
    asked, answer = next((a, p) for a, p in answered(path) if a.phase == "sgpr")
    pair = next(r for r in asked.ranges if r.width == 2 and "special" in r.banks)
    assert rules(prove(asked, moved(answer, pair, ""))) == {"complete"}
    assert rules(prove(asked, moved(answer, pair, "s[0:1]"))) == {"well-formed"}
    assert rules(prove(asked, moved(answer, pair, "sgpr0"))) == {"width"}
    # No vector register is handed out in the phase of the SGPRs.
    assert rules(prove(asked, moved(answer, pair, "vgpr0_vgpr1"))) == {"class-membership", "reserved"}
    assert rules(prove(asked, moved(answer, pair, "sgpr91_sgpr92"))) == {"alignment"}
    assert rules(prove(asked, moved(answer, pair, "flat_scr"))) == {"reserved"}
    assert rules(prove(asked, moved(answer, pair, "sgpr104_sgpr105"))) == {"budget"}
