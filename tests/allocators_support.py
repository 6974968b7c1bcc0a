"""Shared by the allocator and rewriter tests: a checker that knows nothing of the allocator, and random problems."""

from __future__ import annotations

import random
import re
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from msgspec.structs import replace
from support import cpu_of, pre_ra, readable, run_llc

from verilocc_mlir.allocators import AllocationFailure, allocator
from verilocc_mlir.mir.parser import parse_mir
from verilocc_mlir.mir.printer import print_mir
from verilocc_mlir.problem.build import Phase, build_problem
from verilocc_mlir.problem.model import (
    Affinity,
    AllocationProblem,
    BankBudget,
    FixedOccupation,
    LaneGroup,
    LiveRange,
    Occupancy,
    Proposal,
    Segment,
)
from verilocc_mlir.rewrite import rewrite_function
from verilocc_mlir.target.registers import BANK_BASE, Bank, physical_register
from verilocc_mlir.target.targets import target

GREEDY = {"sgpr": 0, "wwm": 1, "vgpr": 2}


def violations(problem: AllocationProblem, proposal: Proposal) -> list[str]:
    """What is wrong with a proposal, slot by slot and unit by unit, the slow and obvious way."""
    found: list[str] = []
    holders: dict[tuple[int, int], str] = {}
    for fixed in problem.fixed:
        for unit in fixed.units:
            for slot in _slots(fixed.segments):
                holders[unit, slot] = fixed.reason
    budgets = {b.bank: set(b.registers) for b in problem.budgets}
    assert len(proposal.registers) == len(problem.ranges)
    for live_range, name in zip(problem.ranges, proposal.registers, strict=True):
        register = physical_register(name)
        if len(register.units) != live_range.lanes:
            found.append(f"{live_range.name}: ${name} has {len(register.units)} lanes")
            continue
        if register.bank.value not in live_range.banks:
            found.append(f"{live_range.name}: ${name} is in the wrong file")
        if register.bank is Bank.SPECIAL:
            if name not in problem.special:
                found.append(f"{live_range.name}: ${name} may not be used")
        else:
            numbers = [(u - BANK_BASE[register.bank]) // 2 for u in register.units]
            if not budgets[register.bank.value].issuperset(numbers):
                found.append(f"{live_range.name}: ${name} is over budget")
            if numbers[0] % live_range.align:
                found.append(f"{live_range.name}: ${name} is not aligned")
            if live_range.limit and numbers[-1] >= live_range.limit:
                found.append(f"{live_range.name}: ${name} is over the limit of its class")
        for group in live_range.groups:
            for lane, unit in enumerate(register.units):
                if group.lanes >> lane & 1:
                    for slot in _slots(group.segments):
                        other = holders.setdefault((unit, slot), live_range.name)
                        if other != live_range.name:
                            found.append(f"{live_range.name} and {other} share unit {unit} at slot {slot}")
    return found


def _slots(segments: tuple[Segment, ...]) -> list[int]:
    return [slot for start, stop in segments for slot in range(start, stop)]


def random_problem(
    seed: int, *, phase: str = "vgpr", halves: bool = False, specials: bool = True, tight: bool = False
) -> AllocationProblem:
    """A random problem: holes, partly live tuples, alignment, limits, several files, fixed ranges, copies, hints."""
    rng = random.Random(seed)
    slots = 4 * rng.randrange(4, 40)
    scalar = phase == "sgpr"
    registers = 12 if tight else 40
    banks = [("sgpr",), ("sgpr", "special")] if scalar else [("vgpr",), ("agpr",), ("agpr", "vgpr")]
    ranges: list[LiveRange] = []
    for number in range(rng.randrange(1, 8 if tight else 24)):
        bank = rng.choice(banks)
        half = halves and bank == ("vgpr",) and rng.random() < 0.4
        width = 1 if half else rng.choice((1, 1, 1, 2, 2, 4))
        lanes = 1 if half else 2 * width
        align = min(width, 4) if scalar else rng.choice((1, 1, min(width, 2)))
        limit = 16 if half and rng.random() < 0.5 else 0
        ranges.append(
            LiveRange(
                id=number, name=f"%{number}", banks=bank, width=width, lanes=lanes, align=align, limit=limit,
                register_class="test", groups=_random_groups(rng, lanes, slots, halves), points=(), weight=1.0,
                hint=rng.choice(("", "", "vcc" if scalar else "vgpr3")),
            )
        )  # fmt: skip
    names = [b for b in ("sgpr", "vgpr", "agpr") if (b == "sgpr") == scalar]
    return AllocationProblem(
        version=1,
        target="gfx90a",
        function="f",
        phase=phase,
        slots=slots,
        block_starts=(0,),
        block_depths=(0,),
        ranges=tuple(ranges),
        affinities=tuple(_random_affinities(rng, ranges, names[0], slots)),
        fixed=tuple(_random_fixed(rng, names, slots)),
        budgets=tuple(
            BankBudget(b, tuple(n for n in range(registers) if n % 11 != 7), tuple(range(20, 24))) for b in names
        ),
        occupancy=Occupancy(granule=8, file=64, max_waves=8, unified=not scalar),
        special=("vcc", "vcc_lo", "vcc_hi") if scalar and specials else (),
    )


def _random_groups(rng: random.Random, lanes: int, slots: int, halves: bool) -> tuple[LaneGroup, ...]:
    step = 1 if halves or lanes == 1 else 2
    groups: dict[tuple[Segment, ...], int] = {}
    choices = [_random_segments(rng, slots) for _ in range(2)]
    for at in range(0, lanes, step):
        if rng.random() < 0.1:
            continue  # a lane that is never live
        segments = rng.choice(choices)
        groups[segments] = groups.get(segments, 0) | (((1 << step) - 1) << at)
    return tuple(LaneGroup(mask, segments) for segments, mask in groups.items())


def _random_segments(rng: random.Random, slots: int) -> tuple[Segment, ...]:
    cuts = sorted(rng.sample(range(slots + 1), 2 * rng.choice((1, 1, 2, 3))))
    return tuple((cuts[k], cuts[k + 1]) for k in range(0, len(cuts), 2))


def _random_affinities(rng: random.Random, ranges: list[LiveRange], bank: str, slots: int) -> list[Affinity]:
    found: list[Affinity] = []
    for _ in range(rng.randrange(6)):
        a, b = rng.choice(ranges), rng.choice(ranges)
        weight = float(10 ** rng.randrange(3))
        if rng.random() < 0.3:
            found.append(Affinity(a.id, 0, -1, 0, a.lanes, weight, rng.randrange(slots), f"{bank}{rng.randrange(30)}"))
        elif a.id != b.id and a.lanes > 1 and b.lanes > 1:
            a_lane, b_lane = 2 * rng.randrange(a.width), 2 * rng.randrange(b.width)
            found.append(Affinity(a.id, a_lane, b.id, b_lane, 2, weight, rng.randrange(slots)))
    return found


def _random_fixed(rng: random.Random, banks: list[str], slots: int) -> list[FixedOccupation]:
    found: list[FixedOccupation] = []
    for _ in range(rng.randrange(4)):
        base = BANK_BASE[Bank(rng.choice(banks))] + 2 * rng.randrange(12)
        found.append(FixedOccupation((base, base + 1), _random_segments(rng, slots), "something fixed"))
    return found


def as_read(text: str, cpu: str) -> str:
    """``readable``, where it applies: on wave64 targets ``$vcc_lo`` is a register of its own."""
    return readable(text) if target(cpu).wave_size == 32 else text


@dataclass(frozen=True)
class PhaseRun:
    """One function's problem and answer, or the reason for having none."""

    problem: AllocationProblem
    proposal: Proposal | None
    failure: AllocationFailure | None


def run_phase(text: str, cpu: str, phase: Phase) -> tuple[str, tuple[PhaseRun, ...]]:
    """Allocate a phase of MIR with our allocator; the text after it ("" where a function failed), and what was done."""
    file = parse_mir(as_read(text, cpu))
    runs: list[PhaseRun] = []
    rewritten = []
    for function in file.functions:
        problem = build_problem(file, function, target(cpu), phase)
        try:
            proposal = allocator("deterministic").allocate(problem)
        except AllocationFailure as failure:
            runs.append(PhaseRun(problem, None, failure))
            continue
        runs.append(PhaseRun(problem, proposal, None))
        rewritten.append(rewrite_function(file, function, problem, proposal, target(cpu)))
    failed = any(r.failure for r in runs)
    return "" if failed else print_mir(replace(file, functions=tuple(rewritten))), tuple(runs)


@dataclass(frozen=True)
class Compiled:
    """A file through all phases: texts before and after each, and what the allocator did.

    ``before``/``after`` go by phase; ``after["vgpr"]`` is ``""`` where a function could not be allocated.
    """

    cpu: str
    before: dict[str, str]
    after: dict[str, str]
    runs: dict[str, tuple[PhaseRun, ...]]


def compile_phases(pre: str, cpu: str, phases: tuple[Phase, ...]) -> Compiled:
    """Run ``phases`` with our allocator, the real llc in between with its machine verifier on."""
    before: dict[str, str] = {}
    after: dict[str, str] = {}
    runs: dict[str, tuple[PhaseRun, ...]] = {}
    text = pre
    for k, phase in enumerate(phases):
        before[phase] = text
        after[phase], runs[phase] = run_phase(text, cpu, phase)
        if not after[phase]:
            break
        if k + 1 < len(phases):
            text = run_llc(
                as_read(after[phase], cpu), cpu, "-verify-machineinstrs",
                f"-start-after=virtregrewriter,{GREEDY[phase]}", f"-stop-before=greedy,{GREEDY[phases[k + 1]]}",
            )  # fmt: skip
    return Compiled(cpu, before, after, runs)


@lru_cache(maxsize=None)
def compiled_kernel(path: Path) -> Compiled:
    """A kernel of the shared set; it has no whole-wave registers."""
    return compile_phases(pre_ra(path), cpu_of(path), ("sgpr", "vgpr"))


def finish(compiled: Compiled) -> str:
    """Assembly of a file whose last phase is done, the machine verifier on."""
    text = as_read(compiled.after["vgpr"], compiled.cpu)
    return run_llc(text, compiled.cpu, "-verify-machineinstrs", "-start-after=virtregrewriter,2")


def vector_registers(mir: str) -> tuple[int, int]:
    """One past the highest VGPR and AGPR that the allocated body of a file with one function names."""
    body = mir[mir.index("body:") :]
    counts = [1 + max((int(n) for n in re.findall(rf"{bank}(\d+)", body)), default=-1) for bank in ("vgpr", "agpr")]
    return counts[0], counts[1]
