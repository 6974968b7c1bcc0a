"""What a rule is, and the few SMT-LIB terms the rules share.

An obligation speaks of four constants for each live range *i*, defined by the proposal: ``named_i`` (Bool: a name
was proposed), ``known_i`` (Bool: it denotes a register), ``n_i`` (16-bit number of units of that register) and ``u_i``
(16-bit number of its lowest unit). Sums stay far below 2**16: unit numbers below 2**14, at most 64 lanes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple, Protocol

from smt_verifier.prove.case import Case
from smt_verifier.prove.facts import Interval
from smt_verifier.prove.result import Violation
from smt_verifier.smt import conjunction
from verilocc_mlir.problem.model import LiveRange, Segment
from verilocc_mlir.target.registers import Bank, physical_register, tuple_name, unit_bank

MAX_FREE = 16
"""How many free registers a violation lists at most."""


class Goal(NamedTuple):
    """``term`` must hold; ``subject`` is the live range it is about. ``name`` is unique: ``rule/what``."""

    name: str
    term: str
    subject: int


class Constraint(Protocol):
    """One rule."""

    @property
    def rule(self) -> str: ...

    def definitions(self, case: Case) -> str:
        """SMT-LIB text that the goals use, given before them."""
        ...

    def goals(self, case: Case) -> list[Goal]:
        """What must hold, derived from the problem."""
        ...

    def explain(self, case: Case, violated: Sequence[Goal], most: int) -> list[Violation]:
        """At most ``most`` violations, once the proposal is refuted.

        ``violated`` are the goals of this rule that are false. The rules about neighbours look further: two ranges that
        overlap need not be neighbours, and then have no goal.
        """
        ...


def word(value: int) -> str:
    """A 16-bit constant: units."""
    return f"#x{value:04x}"


def within(intervals: Iterable[Interval], unit: str = "u", count: str = "n") -> str:
    """The ``count`` units from ``unit`` lie in one of the intervals."""
    terms = [
        f"(and (bvule {word(first)} {unit}) (bvule (bvadd {unit} {count}) {word(end)}))" for first, end in intervals
    ]
    if not terms:
        return "false"
    return terms[0] if len(terms) == 1 else f"(or {' '.join(terms)})"


def predicate(name: str, body: str) -> str:
    """A predicate over a first unit and a number of units."""
    return f"(define-fun {name} ((u (_ BitVec 16)) (n (_ BitVec 16))) Bool {body})\n"


def all_of(terms: Sequence[str]) -> str:
    return conjunction(terms).replace("\n", "")


def segments_of(live: LiveRange, lanes: int) -> tuple[Segment, ...]:
    segments = {segment for group in live.groups if group.lanes & lanes for segment in group.segments}
    return tuple(sorted(segments))


def place_violation(rule: str, case: Case, range_id: int, message: str) -> Violation:
    """A violation that concerns the place of a whole live range."""
    live = case.problem.ranges[range_id]
    lanes = (1 << live.lanes) - 1
    segments = segments_of(live, lanes)
    return Violation(
        rule=rule,
        ranges=(range_id,),
        names=(live.name,),
        slot=segments[0][0] if segments else -1,
        lanes=(lanes,),
        registers=(case.proposal.registers[range_id],),
        segments=(segments,),
        message=message,
        free=free_registers(case, range_id),
    )


def places(case: Case, range_id: int) -> Iterator[tuple[int, str]]:
    """First unit and name of each register the live range could have, were nothing else there."""
    live = case.problem.ranges[range_id]
    step = 1 if live.lanes == 1 else 2
    starts = [
        physical_register(f"{budget.bank}0").units[0] + 2 * number + half
        for budget in case.problem.budgets
        for number in budget.registers
        for half in range(0, 2, step)
    ]
    starts += [unit for name in case.problem.special for unit in physical_register(name).units[::step]]
    for unit in dict.fromkeys(starts):
        if case.is_legal(live, unit) and (name := _register_name(unit, live)):
            yield unit, name


def free_registers(case: Case, range_id: int) -> tuple[str, ...]:
    """Registers the live range could have for its whole life, everything else staying where it was proposed."""
    free = (name for unit, name in places(case, range_id) if case.occupancy.is_free(range_id, unit))
    return tuple(islice(free, MAX_FREE))


def _register_name(unit: int, live: LiveRange) -> str:
    bank = unit_bank(unit)
    if bank is Bank.SPECIAL:
        units = tuple(range(unit, unit + live.lanes))
        names = ("vcc", "vcc_lo", "vcc_hi")
        return next((name for name in names if physical_register(name).units == units), "")
    number, half = divmod(unit - physical_register(f"{bank.value}0").units[0], 2)
    if live.lanes == 1:
        return f"{bank.value}{number}_{'hi16' if half else 'lo16'}"
    return tuple_name(bank, number, live.width)
