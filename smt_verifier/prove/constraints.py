"""What a rule is, and the rules in the order in which they are asked and reported (``RULES``).

An obligation speaks of four constants for each live range *i*, defined by the proposal: ``named_i`` (Bool: a name
was proposed), ``known_i`` (Bool: it denotes a register), ``n_i`` (16-bit number of units of that register) and ``u_i``
(16-bit number of its lowest unit). Sums stay far below 2**16: unit numbers below 2**14, at most 64 lanes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple, Protocol

from smt_verifier.prove.case import Case, Violation
from smt_verifier.prove.occupancy import (
    BANKS,
    Interval,
    Overlap,
    Rectangle,
    alignment,
    bank_top,
    class_places,
    unit_mask,
)
from smt_verifier.smt import conjunction
from verilocc_mlir.problem.model import LiveRange, Segment
from verilocc_mlir.target.registers import SPECIAL_BASE, Bank, physical_register, tuple_name, unit_bank

# SMT-LIB terms that the rules share.


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


# ``complete``: every live range is given a register, also one that is never live (its operands need some register).


class Complete:
    """No live range is left without a name."""

    rule = "complete"

    def definitions(self, case: Case) -> str:
        return ""

    def goals(self, case: Case) -> list[Goal]:
        """One for each live range."""
        return [Goal(f"complete/{live.id}", f"named{live.id}", live.id) for live in case.problem.ranges]

    def explain(self, case: Case, violated: Sequence[Goal], most: int) -> list[Violation]:
        """One for each live range without a register."""
        ranges = case.problem.ranges
        return [
            place_violation(self.rule, case, goal.subject, f"{ranges[goal.subject].name} is given no register")
            for goal in violated[:most]
        ]


# ``well-formed``: each name proposed denotes a register that exists.
#
# (A proposal with the wrong *number* of names answers another problem: that is INVALID, not a violated rule.)


class WellFormed:
    """Names are names of registers."""

    rule = "well-formed"

    def definitions(self, case: Case) -> str:
        return ""

    def goals(self, case: Case) -> list[Goal]:
        """One for each live range that is given a name."""
        names = case.proposal.registers
        return [Goal(f"well-formed/{i}", f"known{i}", i) for i in range(len(names)) if names[i]]

    def explain(self, case: Case, violated: Sequence[Goal], most: int) -> list[Violation]:
        """One for each name that is not a register's."""
        result: list[Violation] = []
        for goal in violated[:most]:
            live, name = case.problem.ranges[goal.subject], case.proposal.registers[goal.subject]
            message = f"{live.name} is given {name!r}, which is not a register"
            result.append(place_violation(self.rule, case, goal.subject, message))
        return result


# ``width``: a register has exactly as many 16-bit units as its live range has lanes.


class Width:
    """Sizes match; registers without storage (``sgpr_null``) match nothing."""

    rule = "width"

    def definitions(self, case: Case) -> str:
        return ""

    def goals(self, case: Case) -> list[Goal]:
        """One for each live range that is given a register."""
        return [
            Goal(f"width/{live.id}", f"(= n{live.id} {word(live.lanes)})", live.id)
            for live in case.problem.ranges
            if case.registers[live.id] is not None
        ]

    def explain(self, case: Case, violated: Sequence[Goal], most: int) -> list[Violation]:
        """One for each register of the wrong size."""
        result: list[Violation] = []
        for goal in violated[:most]:
            live, register = case.problem.ranges[goal.subject], case.registers[goal.subject]
            bits = 16 * len(register.units) if register else 0
            message = (
                f"{live.name} has {16 * live.lanes} bits, its register ${case.proposal.registers[live.id]} has {bits}"
            )
            result.append(place_violation(self.rule, case, live.id, message))
        return result


# ``class-membership``: the register is a member of the class written in the MIR, in a bank the problem allows.
#
# Classes are SIRegisterInfo.td's, read by ``verilocc_mlir.target.classes``. Alignment is a rule of its own.


class ClassMembership:
    """Bank, class limit (``_lo128``, ``_lo256``) and the special registers of a class."""

    rule = "class-membership"

    def definitions(self, case: Case) -> str:
        """A predicate for each class, set of banks and limit."""
        kinds = dict.fromkeys(_class_kind(live) for live in case.located_ranges())
        return "".join(predicate(_class_name(*kind), within(class_places(*kind).intervals)) for kind in kinds)

    def goals(self, case: Case) -> list[Goal]:
        """One for each placed live range."""
        return [
            Goal(f"class-membership/{i}", f"({_class_name(*_class_kind(live))} u{i} n{i})", i)
            for live in case.located_ranges()
            if (i := live.id) >= 0
        ]

    def explain(self, case: Case, violated: Sequence[Goal], most: int) -> list[Violation]:
        """One for each register outside its class."""
        return [
            place_violation(self.rule, case, goal.subject, _class_message(case, case.problem.ranges[goal.subject]))
            for goal in violated[:most]
        ]


def _class_kind(live: LiveRange) -> tuple[str, tuple[str, ...], int]:
    return live.register_class, live.banks, live.limit


def _class_name(register_class: str, banks: tuple[str, ...], limit: int) -> str:
    return f"member-{register_class}-in-{'-'.join(banks)}-below-{limit}"


def _class_message(case: Case, live: LiveRange) -> str:
    below = f" below {live.limit}" if live.limit else ""
    return (
        f"{live.name} is of class {live.register_class} and may be in {' or '.join(live.banks)}{below}; "
        f"${case.proposal.registers[live.id]} is not a member"
    )


# ``alignment``: a tuple starts at a register number that its class allows.
#
# ``_align2`` vector classes start at even registers, SGPR pairs too, wider SGPR tuples at multiples of four
# (SIRegisterInfo.td; GCNSubtarget::needsAlignedVGPRs for which targets have ``_align2``). Special registers are aligned
# as they are.


class Alignment:
    """The first unit's low bits are zero."""

    rule = "alignment"

    def definitions(self, case: Case) -> str:
        return ""

    def goals(self, case: Case) -> list[Goal]:
        """One for each placed live range of 32 bits or more."""
        special, zero = word(SPECIAL_BASE), word(0)
        return [
            Goal(
                f"alignment/{live.id}",
                f"(or (bvule {special} u{live.id}) (= (bvand u{live.id} {word(mask)}) {zero}))",
                live.id,
            )
            for live in case.located_ranges()
            if (mask := unit_mask(live))
        ]

    def explain(self, case: Case, violated: Sequence[Goal], most: int) -> list[Violation]:
        """One for each register that starts at a wrong number."""
        result: list[Violation] = []
        for goal in violated[:most]:
            live = case.problem.ranges[goal.subject]
            message = (
                f"{live.name} of class {live.register_class} must start at a multiple of {alignment(live)}, "
                f"${case.proposal.registers[live.id]} does not"
            )
            result.append(place_violation(self.rule, case, live.id, message))
        return result


# ``reserved``: only registers that LLVM hands out in this function: the budgets' and the special ones allowed.
#
# A register above the highest of its bank's is over budget, which is the rule ``budget``; this one is about the holes
# below (stack pointer, frame pointer, scratch descriptor: SIRegisterInfo::getReservedRegs) and the special registers.


class Reserved:
    """The register lies among the allocatable ones."""

    rule = "reserved"

    def definitions(self, case: Case) -> str:
        over = [
            f"(and (bvule {word(BANKS[b.bank][0])} u) (bvult u {word(BANKS[b.bank][1])})"
            f" (bvult {word(bank_top(b))} (bvadd u n)))"
            for b in case.problem.budgets
        ]
        return predicate("handed-out", f"(or false {' '.join(over)} {within(case.allocatable)})")

    def goals(self, case: Case) -> list[Goal]:
        """One for each placed live range."""
        return [Goal(f"reserved/{i}", f"(handed-out u{i} n{i})", i) for i in case.located]

    def explain(self, case: Case, violated: Sequence[Goal], most: int) -> list[Violation]:
        """One for each register that is not handed out here."""
        result: list[Violation] = []
        for goal in violated[:most]:
            name, register = case.problem.ranges[goal.subject].name, case.proposal.registers[goal.subject]
            message = f"{name} is given ${register}, part of which is reserved in this function"
            result.append(place_violation(self.rule, case, goal.subject, message))
        return result


# ``budget``: no register above what the function's attributes leave (``amdgpu-waves-per-eu``, ``amdgpu-num-vgpr``,
# ``amdgpu-agpr-alloc`` …).


class Budget:
    """A register of a bank ends below the top of the bank."""

    rule = "budget"

    def definitions(self, case: Case) -> str:
        return predicate("affordable", _affordable(case))

    def goals(self, case: Case) -> list[Goal]:
        """One for each placed live range."""
        return [Goal(f"budget/{i}", f"(affordable u{i} n{i})", i) for i in case.located]

    def explain(self, case: Case, violated: Sequence[Goal], most: int) -> list[Violation]:
        """One for each register over budget."""
        result: list[Violation] = []
        for goal in violated[:most]:
            live, register = case.problem.ranges[goal.subject], case.proposal.registers[goal.subject]
            tops = ", ".join(f"{b.bank}: {max(b.registers, default=-1) + 1}" for b in case.problem.budgets)
            message = f"{live.name} is given ${register}; registers this function may use: {tops}"
            result.append(place_violation(self.rule, case, live.id, message))
        return result


def _affordable(case: Case) -> str:
    terms: list[str] = []
    tops = {budget.bank: bank_top(budget) for budget in case.problem.budgets}
    for bank, (first, end) in BANKS.items():
        # A bank without a budget is not handed out at all: the rule `reserved`.
        top = tops.get(bank, end)
        terms.append(f"(or (bvult u {word(first)}) (bvule {word(end)} u) (bvule (bvadd u n) {word(top)}))")
    return all_of(terms)


# ``interference``: no two live ranges hold the same 16-bit unit at the same slot.
#
# Early-clobber definitions are covered: they start at slot ``4*i+1``, before the operands of instruction *i* are
# released at ``4*i+2``. So are tied operands: both ends are one live range. One goal for each pair of neighbours in the
# file of a unit; that these suffice is the lemma of ``occupancy``.


class Interference:
    """Two rectangles are apart in units or in slots."""

    rule = "interference"

    def definitions(self, case: Case) -> str:
        """Two rectangles, by first unit, end unit, start slot, end slot."""
        unit, slot = "(_ BitVec 16)", "(_ BitVec 32)"
        arguments = " ".join(f"(f{k} {unit}) (l{k} {unit}) (s{k} {slot}) (e{k} {slot})" for k in (1, 2))
        return f"(define-fun apart ({arguments}) Bool (or (bvule l1 f2) (bvule l2 f1) (bvule e1 s2) (bvule e2 s1)))\n"

    def goals(self, case: Case) -> list[Goal]:
        """One for each pair of neighbours."""
        rectangles = case.occupancy.rectangles
        terms = [term(rectangle) for rectangle in rectangles]
        titles = [title(rectangle) for rectangle in rectangles]
        return [
            Goal(f"interference/{titles[a]}/{titles[b]}", f"(apart {terms[a]} {terms[b]})", rectangles[a].owner)
            for a, b in case.occupancy.neighbours[0]
        ]

    def explain(self, case: Case, violated: Sequence[Goal], most: int) -> list[Violation]:
        """One for each pair of live ranges in each other's way, neighbours or not."""
        return [_overlap_violation(case, overlap) for overlap in case.occupancy.overlaps(most)]


def term(r: Rectangle) -> str:
    """The four numbers of a rectangle, its units from the proposal."""
    first = f"u{r.owner}" if r.low == 0 else f"(bvadd u{r.owner} {word(r.low)})"
    return f"{first} (bvadd u{r.owner} {word(r.high)}) #x{r.start:08x} #x{r.end:08x}"


def title(r: Rectangle) -> str:
    """A rectangle's stable name: ``12[0:4]@40`` is lanes 0-3 of live range 12 from slot 40."""
    return f"{r.owner}[{r.low}:{r.high}]@{r.start}"


def _overlap_violation(case: Case, overlap: Overlap) -> Violation:
    both = [(overlap.first, overlap.first_lanes), (overlap.second, overlap.second_lanes)]
    both.sort(key=lambda end: (case.problem.ranges[end[0]].weight, end[0]))
    ranges = [case.problem.ranges[range_id] for range_id, _ in both]
    registers = [case.proposal.registers[range_id] for range_id, _ in both]
    return Violation(
        rule=Interference.rule,
        ranges=tuple(live.id for live in ranges),
        names=tuple(live.name for live in ranges),
        slot=overlap.slot,
        lanes=tuple(lanes for _, lanes in both),
        registers=tuple(registers),
        segments=tuple(segments_of(live, lanes) for live, (_, lanes) in zip(ranges, both, strict=True)),
        message=(
            f"{ranges[0].name} in ${registers[0]} (lanes {both[0][1]:#x}) and {ranges[1].name} in ${registers[1]} "
            f"(lanes {both[1][1]:#x}) are both live at slot {overlap.slot}"
        ),
        free=free_registers(case, ranges[0].id),
    )


# ``fixed``: no live range holds a unit while something fixed does: arguments, call clobbers, return values, VCC …


class Fixed:
    """A rectangle is apart from the fixed occupations of its units (``apart`` is defined by ``interference``)."""

    rule = "fixed"

    def definitions(self, case: Case) -> str:
        return ""

    def goals(self, case: Case) -> list[Goal]:
        """One for each neighbourhood of a live range with a fixed occupation."""
        rectangles = case.occupancy.rectangles
        return [
            Goal(
                f"fixed/{title(rectangles[index])}/{first}:{last}@{start}",
                f"(apart {term(rectangles[index])} {word(first)} {word(last)} #x{start:08x} #x{end:08x})",
                rectangles[index].owner,
            )
            for index, start, end, first, last in case.occupancy.neighbours[1]
        ]

    def explain(self, case: Case, violated: Sequence[Goal], most: int) -> list[Violation]:
        """One for each live range that sits in a fixed occupation."""
        overlaps = list(case.occupancy.fixed_overlaps())[:most]
        return [_fixed_violation(case, range_id, lanes, slot) for range_id, lanes, slot in overlaps]


def _fixed_violation(case: Case, range_id: int, lanes: int, slot: int) -> Violation:
    live, register = case.problem.ranges[range_id], case.proposal.registers[range_id]
    unit = case.first_unit(range_id)
    units = {unit + lane for lane in range(live.lanes) if lanes >> lane & 1}
    reasons = [
        occupation.reason
        for occupation in case.problem.fixed
        if not units.isdisjoint(occupation.units) and any(start <= slot < end for start, end in occupation.segments)
    ]
    return Violation(
        rule=Fixed.rule,
        ranges=(range_id,),
        names=(live.name,),
        slot=slot,
        lanes=(lanes,),
        registers=(register,),
        segments=(segments_of(live, lanes),),
        message=f"{live.name} in ${register} (lanes {lanes:#x}) meets {', '.join(reasons)} at slot {slot}",
        free=free_registers(case, range_id),
    )


RULES: tuple[Constraint, ...] = (
    Complete(),
    WellFormed(),
    Width(),
    ClassMembership(),
    Alignment(),
    Reserved(),
    Budget(),
    Interference(),
    Fixed(),
)
