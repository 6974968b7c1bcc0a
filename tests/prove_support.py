"""Small allocation problems by hand, and an independent checker that looks at every unit at every slot."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from smt_verifier.outcome import Outcome
from smt_verifier.prove import ProofResult, prove
from verilocc_mlir.errors import VeriloccError
from verilocc_mlir.problem.model import (
    AllocationProblem,
    BankBudget,
    FixedOccupation,
    LaneGroup,
    LiveRange,
    Occupancy,
    Proposal,
    Segment,
)
from verilocc_mlir.target.classes import contains, register_class
from verilocc_mlir.target.registers import Bank, PhysicalRegister, physical_register


def live(register_class_name: str, *groups: tuple[int, list[Segment]], weight: float = 1.0) -> LiveRange:
    """A live range of a class; its id is set by ``problem``. No groups given: all lanes during [2, 10)."""
    cls = register_class(register_class_name)
    banks = {bank.value for bank in cls.banks} & {"vgpr", "agpr", "sgpr"}
    if "vcc" in cls.specials or "vcc_lo" in cls.specials:
        banks.add("special")
    return LiveRange(
        id=-1,
        name="",
        banks=tuple(sorted(banks)),
        width=cls.width,
        lanes=cls.lanes,
        align=max(cls.alignment(bank) for bank in cls.banks),
        limit=cls.limit,
        register_class=register_class_name,
        groups=tuple(LaneGroup(lanes, tuple(s)) for lanes, s in groups or [((1 << cls.lanes) - 1, [(2, 10)])]),
        points=(),
        weight=weight,
    )


def problem(
    *ranges: LiveRange,
    fixed: tuple[FixedOccupation, ...] = (),
    vgprs: tuple[int, ...] = tuple(range(16)),
    agprs: tuple[int, ...] = tuple(range(16)),
    sgprs: tuple[int, ...] = tuple(range(16)),
    special: tuple[str, ...] = ("vcc", "vcc_lo", "vcc_hi"),
    slots: int = 40,
) -> AllocationProblem:
    """A function of one block on gfx942."""
    return AllocationProblem(
        version=1,
        target="gfx942",
        function="f",
        phase="vgpr",
        slots=slots,
        block_starts=(0,),
        block_depths=(0,),
        ranges=tuple(replace(r, id=k, name=f"%{k}") for k, r in enumerate(ranges)),
        affinities=(),
        fixed=fixed,
        budgets=(BankBudget("agpr", agprs), BankBudget("sgpr", sgprs), BankBudget("vgpr", vgprs)),
        occupancy=Occupancy(8, 512, 8, True),
        special=special,
    )


def proposal(*registers: str) -> Proposal:
    """An answer."""
    return Proposal(1, "by hand", registers)


def restricted(asked: AllocationProblem, answer: Proposal, keep: Iterable[int]) -> tuple[AllocationProblem, Proposal]:
    """Problem and proposal of some of the live ranges, numbered anew."""
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
    """Violated rules with the live ranges, straight from the definitions: one entry for each unit and slot held."""
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
