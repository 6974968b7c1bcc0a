"""Small allocation problems by hand, and an independent checker that looks at every unit at every slot."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path

from builders import live_of, problem_of
from hypothesis import strategies as st
from msgspec.structs import replace
from support import cpu_of, kernel_paths, pre_ra

from smt_verifier.outcome import Outcome
from smt_verifier.prove import ProofResult, prove
from verilocc_mlir.allocators import AllocationFailure, allocator
from verilocc_mlir.errors import VeriloccError
from verilocc_mlir.mir.parser import parse_mir
from verilocc_mlir.problem.build import build_problem
from verilocc_mlir.problem.model import (
    PHASES,
    AllocationProblem,
    FixedOccupation,
    LiveRange,
    Proposal,
    Segment,
)
from verilocc_mlir.target.classes import contains, register_class
from verilocc_mlir.target.registers import Bank, PhysicalRegister, physical_register, tuple_name
from verilocc_mlir.target.targets import target


def proposal(*registers: str) -> Proposal:
    """An answer."""
    return Proposal(1, "by hand", registers)


def restricted(asked: AllocationProblem, answer: Proposal, keep: Iterable[int]) -> tuple[AllocationProblem, Proposal]:
    """Problem and proposal of some of the live_of ranges, numbered anew."""
    ids = sorted(keep)
    ranges = tuple(replace(asked.ranges[i], id=k) for k, i in enumerate(ids))
    smaller = replace(asked, ranges=ranges, affinities=())
    return smaller, replace(answer, registers=tuple(answer.registers[i] for i in ids))


def rules(result: ProofResult) -> set[str]:
    """Names of the violated rules; the outcome must fit them."""
    assert (result.outcome is Outcome.REFUTED) == bool(result.violations), result
    assert (result.outcome is Outcome.PROVED) != bool(result.violations), result
    return {violation.rule for violation in result.violations}


def violated(asked: AllocationProblem, *registers: str) -> set[str]:
    """Rules that a proposal violates."""
    return rules(prove(asked, proposal(*registers)))


def brute_force(asked: AllocationProblem, answer: Proposal) -> set[tuple[str, tuple[int, ...]]]:
    """Violated rules with the live_of ranges, straight from the definitions: one entry for each unit and slot held."""
    found: set[tuple[str, tuple[int, ...]]] = set()
    holders: dict[tuple[int, int], set[int]] = {}
    fixed = {(u, t) for o in asked.fixed for u in o.units for start, end in o.segments for t in range(start, end)}
    for r, name in zip(asked.ranges, answer.registers, strict=True):
        register = _register(name)
        if register is None:
            found.add(("well-formed" if name else "complete", (r.id,)))
            continue
        if len(register.units) != r.lanes:
            found.add(("width", (r.id,)))
            continue
        found |= {(rule, (r.id,)) for rule in _place(asked, r, register)}
        for group in r.groups:
            for start, end in group.segments:
                for k in range(r.lanes):
                    if group.lanes >> k & 1:
                        for slot in range(start, end):
                            holders.setdefault((register.units[k], slot), set()).add(r.id)
    for cell, ids in holders.items():
        found |= {("interference", (a, b)) for a in ids for b in ids if a < b}
        if cell in fixed:
            found |= {("fixed", (a,)) for a in ids}
    return found


def _register(name: str) -> PhysicalRegister | None:
    try:
        return physical_register(name) if name else None
    except VeriloccError:
        return None


def _place(asked: AllocationProblem, r: LiveRange, register: PhysicalRegister) -> set[str]:
    found: set[str] = set()
    cls = register_class(r.register_class)
    aligned = register.bank is Bank.SPECIAL or r.lanes == 1 or register.first % r.align == 0
    if not aligned:
        found.add("alignment")
    allowed_here = register.bank.value in r.banks and (not r.limit or register.first + r.width <= r.limit)
    # An unaligned register is no member of its class: whether bank and number fit shows on the aligned one below it.
    below = register.first - register.first % r.align
    seat = register if aligned else physical_register(_name(register.bank, below, r.width))
    if not allowed_here or not contains(cls, seat):
        found.add("class-membership")
    if register.bank is Bank.SPECIAL:
        given = {unit for name in asked.special for unit in physical_register(name).units}
        return found if given.issuperset(register.units) else found | {"reserved"}
    budget = next((b.registers for b in asked.budgets if b.bank == register.bank.value), None)
    covered = set(range(register.first, register.first + r.width))
    if budget is not None and max(covered) > max(budget, default=-1):
        found.add("budget")
    elif budget is None or not covered.issubset(budget):
        found.add("reserved")
    return found


def _name(bank: Bank, first: int, width: int) -> str:
    return "_".join(f"{bank.value}{n}" for n in range(first, first + width))


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


def path_names(paths: list[Path]) -> list[str]:
    return [path.name for path in paths]


SMALL = smallest_for_each_target()


def moved(answer: Proposal, live_range: LiveRange, register: str) -> Proposal:
    """The answer with another register for one live_of range."""
    registers = list(answer.registers)
    registers[live_range.id] = register
    return replace(answer, registers=tuple(registers))


CLASSES = (
    "vgpr_32", "vgpr_16", "vreg_64", "vreg_64_align2", "vreg_96", "areg_64_align2", "av_32", "av_64", "sreg_32",
    "sreg_64", "sgpr_128", "sreg_64_xexec",
)  # fmt: skip


SLOTS = 24


OTHERS = ("", "nonsense", "vcc", "vcc_lo", "vcc_hi", "m0", "exec", "sgpr_null", "ttmp0", "vgpr1_hi16", "vgpr4")


@st.composite
def segments(draw: st.DrawFn) -> tuple[Segment, ...]:
    cuts = sorted(draw(st.sets(st.integers(0, SLOTS), min_size=2, max_size=6)))
    return tuple(zip(cuts[0::2], cuts[1::2], strict=False))


@st.composite
def live_ranges(draw: st.DrawFn) -> LiveRange:
    name = draw(st.sampled_from(CLASSES))
    whole = (1 << register_class(name).lanes) - 1
    split = draw(st.integers(0, whole))
    groups = [(lanes, list(draw(segments()))) for lanes in (split, whole ^ split) if lanes and draw(st.booleans())]
    return live_of(name, *groups, weight=float(draw(st.integers(1, 3))))


@st.composite
def registers_for(draw: st.DrawFn, live_range: LiveRange) -> str:
    if draw(st.integers(0, 9)) == 0:
        return draw(st.sampled_from(OTHERS))
    cls = register_class(live_range.register_class)
    bank = draw(st.sampled_from([Bank(b) for b in live_range.banks if b != "special"]))
    align = 1 if draw(st.integers(0, 7)) == 0 else cls.alignment(bank)
    first = align * draw(st.integers(0, 9 // align))
    if cls.bits == 16:
        return f"{bank.value}{first}_{draw(st.sampled_from(['lo16', 'hi16']))}"
    return tuple_name(bank, first, cls.width)


@st.composite
def cases(draw: st.DrawFn, budgets: tuple[int, ...] = (6, 10, 14)) -> tuple[AllocationProblem, Proposal]:
    ranges = draw(st.lists(live_ranges(), min_size=0, max_size=6))
    holes = draw(st.sets(st.integers(0, 11), max_size=2))
    budget = tuple(n for n in range(draw(st.sampled_from(budgets))) if n not in holes)
    names = draw(st.lists(st.sampled_from(["vgpr0", "vgpr1_vgpr2", "sgpr0", "vcc_lo", "agpr3"]), max_size=3))
    fixed = tuple(FixedOccupation(physical_register(n).units, draw(segments()), f"fixed ${n}") for n in names)
    special = draw(st.sampled_from([(), ("vcc",), ("vcc_lo",)]))
    asked = problem_of(*ranges, fixed=fixed, vgprs=budget, agprs=budget, sgprs=budget, special=special, slots=SLOTS)
    return asked, Proposal(1, "random", tuple(draw(registers_for(r)) for r in asked.ranges))
