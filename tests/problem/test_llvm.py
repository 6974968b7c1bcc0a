"""LLVM's own allocations are answers to our problems: no constraint that LLVM breaks, no register it may use left out.

One exception: LLVM lets a register stay in the physical register it was copied from although that one is read again
later (LiveRange::overlaps with a CoalescerPair), because both hold the same value. Our problems keep them apart.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from analysis_support import BASIC, NotComparable, align
from builders import problem_of_text
from support import cpu_of, few, kernel_paths, pre_ra, readable, run_llc

from verilocc_mlir.analysis.lanes import virtual_classes
from verilocc_mlir.mir.parser import parse_mir
from verilocc_mlir.problem.build import Phase, build_problem
from verilocc_mlir.problem.model import AllocationProblem, Segment
from verilocc_mlir.target.registers import BANK_BASE, Bank, lane_list, physical_register, unit_name
from verilocc_mlir.target.targets import target


def violations(problem: AllocationProblem, placed: dict[str, tuple[int, ...]]) -> list[str]:
    """What an assignment of units to ranges, by name, breaks."""
    allowed = {BANK_BASE[Bank(b.bank)] + 2 * n + h for b in problem.budgets for n in b.registers for h in (0, 1)}
    allowed.update(u for s in problem.special for u in physical_register(s).units)
    copied = {(problem.ranges[a.a].name, f"fixed ${a.fixed}", a.slot + 2) for a in problem.affinities if a.fixed}
    found: list[str] = []
    held: dict[int, list[tuple[Segment, str]]] = {}
    for fixed in problem.fixed:
        for unit in fixed.units:
            held.setdefault(unit, []).extend((s, fixed.reason) for s in fixed.segments)
    for live_range in problem.ranges:
        units = placed.get(live_range.name)
        if units is None:
            continue
        if not allowed.issuperset(units):
            found.append(f"{live_range.name} in {unit_name(units[0])}, which is not to be handed out")
        for group in live_range.groups:
            for lane in lane_list(group.lanes):
                held.setdefault(units[lane], []).extend((s, live_range.name) for s in group.segments)
    for unit, segments in held.items():
        segments.sort()
        ends = 0
        owner = ""
        for (start, stop), name in segments:
            placeable = name.startswith("%") or owner.startswith("%")  # a call's result overlaps its clobbers
            if start < ends and name != owner and placeable and (name, owner, start) not in copied:
                found.append(f"{owner} and {name} share {unit_name(unit)} at slot {start}")
            if stop > ends:
                ends, owner = stop, name
    return found


def check(path: Path) -> tuple[int, list[str]]:
    """Phases compared and violations in LLVM's basic allocation of one kernel."""
    text = pre_ra(path)
    found: list[str] = []
    compared = 0
    stages: list[tuple[str, str, Phase]] = [
        ("-start-before=regallocbasic,0", "-stop-after=virtregrewriter,0", "sgpr"),
        ("-start-after=virtregrewriter,0", "-stop-after=virtregrewriter,2", "vgpr"),
    ]
    for start, stop, phase in stages:
        post = run_llc(readable(text), cpu_of(path), *BASIC, start, stop)
        pre = parse_mir(text)
        for a, b in zip(pre.functions, parse_mir(post).functions, strict=True):
            try:
                placed = align(a, b, virtual_classes(a), phase == "sgpr")
            except NotComparable:
                continue
            compared += 1
            problem = build_problem(pre, a, target(cpu_of(path)), phase)
            found += violations(problem, {f"%{v}": units for v, units in placed.items()})
        text = post
    return compared, found


@pytest.mark.parametrize(
    "path", few([p for p in kernel_paths()[::5] if "lds" in p.name], kernel_paths()[::5]), ids=lambda p: p.name
)
def test_llvm_solves_our_problems(path: Path) -> None:
    compared, found = check(path)
    assert compared >= 1
    assert not found


@pytest.mark.long
def test_llvm_solves_every_problem() -> None:
    for path in kernel_paths():
        assert not check(path)[1], path.name


def test_a_conflict_is_seen() -> None:
    path = next(p for p in kernel_paths() if "gfx942" in p.name)
    problem = problem_of_text(pre_ra(path))
    crowded = {r.name: tuple(range(r.lanes)) for r in problem.ranges}
    assert violations(problem, crowded)
