"""Bring a function's register pressure down to what there is, before registers are assigned.

Spill first, then assign: every allocator, a learned one included, then works on a problem that fits. The audit proves
the result against the text without any spill code, so nothing here is trusted.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from contextlib import suppress

from msgspec import Struct
from msgspec.structs import replace

from verilocc_mlir.analysis.waiting import Waiting
from verilocc_mlir.budget import OutOfSecondsError
from verilocc_mlir.mir.header import header_field
from verilocc_mlir.mir.model import MachineFunction
from verilocc_mlir.problem.model import AllocationProblem, LiveRange, united
from verilocc_mlir.spilling import SpillAction
from verilocc_mlir.spilling.choose import Candidates, Excess, PackedExcess, Span, choose, load_ahead
from verilocc_mlir.spilling.computed import Base, bases
from verilocc_mlir.spilling.gaps import Gap
from verilocc_mlir.spilling.ground import ground
from verilocc_mlir.spilling.insert import Inserted, Makers, SpillTarget, insert_spills
from verilocc_mlir.spilling.plan import Costs, Places, SpillMove, SpillPlan, held_in_accumulators, in_accumulators
from verilocc_mlir.target.registers import BANK_BASE, Bank, physical_register
from verilocc_mlir.target.targets import Target

ROUNDS = 2
"""How often the choice is made again with values made from bases."""

MORE_ROOM = (2, 4)
"""Registers left over with which the choice is made again, where none is asked for."""

_EVERY_OTHER = int("01" * 16, 2)
"""Mask of the parts of a register that are in even registers, where it starts at one."""
_HALF_LANES = int("0011" * 16, 2)
"""The lanes of these parts."""

Tight = tuple[tuple[int, int, int], ...]
"""Instructions at which more registers are to be left over: the first, one past the last, and how many more."""


class Relieved(Struct, frozen=True):
    """A function that needs no more registers than it may have, and what was done to it.

    Attributes:
        text: the function with spill code.
        excesses: what is left at each point of the function before, for each set of files.
    """

    text: Inserted
    actions: tuple[SpillAction, ...]
    excesses: tuple[Excess, ...]

    @property
    def function(self) -> MachineFunction:
        """The function with spill code."""
        return self.text.function

    @property
    def cost(self) -> float:
        """Stores and loads of 32-bit registers, weighted by estimated executions."""
        return sum(action.cost for action in self.actions)

    def least_free(self, first: int, stop: int) -> int:
        """The fewest registers that are free at an instruction of the function before; 0 where some are missing."""
        return max(min((excess.least_free(first, stop) for excess in self.excesses), default=0), 0)

    def of_before(self, actions: Iterable[SpillAction]) -> tuple[SpillAction, ...]:
        """What was done to the text with spill code after that, in the terms of the text before it."""
        return tuple(map(self._of_before, actions))

    def _of_before(self, action: SpillAction) -> SpillAction:
        vreg = int(action.register[1:])
        origins = self.text.origins
        last = len(origins) - 1
        places = (f"before instruction {origins[min(int(p.split()[-1]), last)]}" for p in action.reloads)
        return replace(
            action,
            register=f"%{self.text.names.get(vreg, vreg)}",
            reloads=tuple(places),
            point=4 * origins[min(action.point // 4, last)],
        )


class _Remade(Struct, frozen=True):
    """What is made again where it is used, in place of a load.

    Attributes:
        makers: of registers and parts, constants among them.
        held: the bases, which stay in their registers, with a mask of the points (``choose.Excess``) at which they
            would not.
        costs: what plans cost with that.
        candidates: of all registers that may be spilled at these costs, the bases left out.
    """

    makers: Makers
    held: Mapping[int, int]
    costs: Costs
    candidates: Mapping[int, Candidates]


class _Chosen(Struct, frozen=True):
    """What is spilled: a plan for each register, why, and the registers too many in each set of files after it: of all,
    and of every other one (``Spiller._halves``).
    """

    plans: dict[int, SpillPlan]
    reasons: dict[int, str]
    excesses: list[tuple[frozenset[str], Excess]]
    halves: list[tuple[frozenset[str], Excess]]
    remade: _Remade

    @property
    def cost(self) -> float:
        """Stores and loads of 32-bit registers, weighted by estimated executions."""
        return sum(plan.cost for plan in self.plans.values())


class Spiller:
    """Spills one phase's registers of one function. ``relieve`` can be called again with more or less room to spare.

    Args:
        function: the function that ``problem`` was built from.
        problem: the phase's allocation problem.
        waits: as for ``ground``.
    """

    def __init__(
        self, function: MachineFunction, problem: AllocationProblem, target: Target, waits: Waiting | None = None
    ) -> None:
        known = ground(function, problem, target, waits)
        self._function = function
        self._problem = known.problem
        self._members = known.members
        self._cfg = known.cfg
        self._costs = known.costs
        self._classes = known.classes
        self._target = SpillTarget(
            known.classes,
            known.costs.places,
            (header_field(function, "stackPtrOffsetReg") or "$sgpr32").removeprefix("$"),
            offsets=not target.unified_vgpr,
            even=target.align2,
        )
        self._writers = known.writers
        self._constants = _Remade(
            {part: (maker,) for part, maker in known.constants.items()},
            {},
            known.costs,
            {v: Candidates(g, known.costs) for v, g in known.gaps.items()},
        )
        self._remade: _Remade | None = None
        self._chosen: dict[tuple[int, bool, Tight], _Chosen | None] = {}
        self._choices: dict[tuple[int, bool, Tight], _Chosen | None] = {}
        """What one greedy choice came to: one that is asked for with more room is another's first."""
        self._held: dict[tuple[int, frozenset[Gap], int], list[Span] | None] = {}
        """By register, gaps and parts that are made again, where its parts would wait in AGPRs."""

    def relieve(
        self, spare: int = 0, *, ahead: bool = True, accumulators: bool = True, tight: Tight = (), leave: int = 0
    ) -> Relieved | None:
        """The function with spill code, so that ``spare`` registers of each file are left over at every point.

        Args:
            spare: 32-bit registers.
            ahead: put a load some instructions before its use where registers are free.
            accumulators: copy values to free AGPRs before memory is used, and let LLVM do the same with the rest.
            tight: where more of them are left over.
            leave: registers that loads ahead of their use leave free.

        Returns:
            None where the registers that may be spilled do not suffice; the function itself where nothing needs to be
            spilled.
        """
        chosen = self._least(spare, accumulators, tight)
        if chosen is None:
            return None
        if not chosen.plans:
            unchanged = Inserted(self._function, tuple(range(self._problem.slots // 4)), {})
            return Relieved(unchanged, (), tuple(excess for _, excess in chosen.excesses))
        plans, excesses = self._ahead(chosen, leave) if ahead else (chosen.plans, chosen.excesses)
        remade = chosen.remade
        inserted = insert_spills(
            self._function, self._cfg, plans, self._target, remade.makers, accumulators=accumulators
        )
        actions = (
            _action(p, self._costs.places, chosen.reasons[v], remade.costs.constant(v)) for v, p in plans.items()
        )
        return Relieved(inserted, tuple(actions), tuple(excess for _, excess in excesses))

    def cost(self, spare: int, *, accumulators: bool = True) -> float:
        """What ``relieve`` would store and load with so much room: 32-bit registers, weighted by estimated executions;
        infinite where the registers that may be spilled do not suffice.
        """
        chosen = self._least(spare, accumulators, ())
        return math.inf if chosen is None else chosen.cost

    def _least(self, spare: int, accumulators: bool, tight: Tight) -> _Chosen | None:
        key = spare, accumulators, tight
        if key not in self._chosen:
            # The choice is greedy: with more room asked for, it may come to less. Of 296 choices for kernels of the
            # corpus five did, by 22 % at most, and with no room to spare but for one of 0.3 %.
            choices = [self._choice(spare, accumulators, tight)]
            if choices[0] and not spare and not tight and not self._problem.is_large:
                with suppress(OutOfSecondsError):
                    choices.extend(self._choice(more, accumulators, tight) for more in MORE_ROOM)
            self._chosen[key] = min(filter(None, choices), key=lambda c: c.cost, default=None)
        return self._chosen[key]

    def estimate(self) -> float:
        """What it costs to have no register too many, before anything is allocated: stores and loads of 32-bit
        registers, weighted by estimated executions; infinite where the registers that may be spilled do not suffice.
        """
        # Which of a function's texts needs least shows with one round (48 kernels of the corpus with several texts).
        chosen, _ = self._first_choice(0, accumulators=True, tight=(), rounds=1)
        return math.inf if chosen is None else chosen.cost

    def _choice(self, spare: int, accumulators: bool, tight: Tight) -> _Chosen | None:
        key = spare, accumulators, tight
        if key not in self._choices:
            if self._remade is None:
                self._choices[key], self._remade = self._first_choice(*key)
            else:
                chosen = self._choose(*key, self._remade)
                self._choices[key] = chosen or self._choose(*key, self._constants)
        return self._choices[key]

    def _first_choice(
        self, spare: int, accumulators: bool, tight: Tight, rounds: int = ROUNDS
    ) -> tuple[_Chosen | None, _Remade | None]:
        """What is spilled, and what is made again in this choice and all that follow; None: nothing is spilled."""
        best, remade = self._choose(spare, accumulators, tight, self._constants), self._constants
        if best is not None and not best.plans:
            return best, None
        if self._problem.phase != "vgpr":
            return best, remade
        # All bases take part at first, then those of which enough is made to be worth their own registers.
        from_bases = bases(self._writers, self._classes, self._members)
        for _ in range(rounds if from_bases else 0):
            attempt = self._made_from(from_bases)
            chosen = self._choose(spare, accumulators, tight, attempt)
            if chosen is None:
                break
            if best is None or chosen.cost < best.cost:
                best, remade = chosen, attempt
            used = [made for base in from_bases if len((made := base.of(chosen.plans)).users) > 1]
            if not used or used == from_bases:
                break
            from_bases = used
        return best, remade

    def _made_from(self, from_bases: Iterable[Base]) -> _Remade:
        """Constants, and what the bases make."""
        makers = dict(self._constants.makers)
        made: dict[int, int] = {}
        held: dict[int, int] = {}
        for base in from_bases:
            points = 0
            for (vreg, part), maker in base.values.items():
                if (vreg, part) not in self._constants.makers:
                    makers[vreg, part] = maker
                    made[vreg] = made.get(vreg, self._costs.constant(vreg)) | 1 << part
                    points |= _points(self._members[vreg])
            held[base.vreg] = points & ~_points(self._members[base.vreg])

        def parts_made(vreg: int) -> int:
            return made.get(vreg, self._costs.constant(vreg))

        costs = replace(self._costs, constant=parts_made)
        candidates = {
            v: c.at(costs) if v in made else c for v, c in self._constants.candidates.items() if v not in held
        }
        return _Remade(makers, held, costs, candidates)

    def _choose(self, spare: int, accumulators: bool, tight: Tight, remade: _Remade) -> _Chosen | None:
        """What is spilled, with each load beside its use."""
        plans: dict[int, SpillPlan] = {}
        reasons: dict[int, str] = {}
        members = self._members
        excesses: list[tuple[frozenset[str], Excess]] = []
        all_halves: list[tuple[frozenset[str], Excess]] = []
        for banks in sorted({r.banks for r in self._problem.ranges if r.groups}, key=lambda b: (len(b), b)):
            excess = Excess(_excess(self._problem, banks, spare))
            for first, stop, amount in tight:
                excess.hold(first, min(stop, self._problem.slots // 4), amount)
            for base, points in remade.held.items():
                if set(members[base].banks) <= set(banks):
                    excess.add(points)
            halves = self._halves(banks, spare)
            gone = [
                plan
                for plan in plans.values()
                if set(members[plan.register.vreg].banks) <= set(banks) and not (plan.accumulators and "agpr" in banks)
            ]
            for of in (excess, *halves):
                _without(of, gone)
            excesses.append((frozenset(banks), excess))
            all_halves += [(frozenset(banks), half) for half in halves]
            reason = _reason(excess, banks)
            open_to = {
                v: c for v, c in remade.candidates.items() if v not in plans and set(members[v].banks) <= set(banks)
            }
            chosen = choose(open_to, [excess]) if excess.worst > 0 else {}
            if chosen is None:
                return None
            for half in halves:
                _without(half, chosen.values())
            if any(half.worst > 0 for half in halves):
                if excess.worst <= 0 and not chosen:
                    reason = _reason(max(halves, key=lambda half: half.worst), banks)
                chosen = choose(open_to, [excess, *halves], chosen)
                if chosen is None:
                    return None
            if accumulators and banks == ("vgpr",):
                chosen = self._in_accumulators(chosen, spare, remade.costs)
            plans |= chosen
            reasons |= dict.fromkeys(chosen, reason)
        return _Chosen(plans, reasons, excesses, all_halves, remade)

    def _halves(self, banks: tuple[str, ...], spare: int) -> list[Excess]:
        """What tuples that start at even registers take of the even ones, and of the odd ones: where half of a pair is
        live, nothing but the register of the other half is left for other halves of its kind.
        """
        aligned = frozenset(v for v, r in self._members.items() if r.align > 1 and set(r.banks) <= set(banks))
        # Small functions find room with more to spare, or are split where halves stand in the way: of three kernels
        # that came out otherwise with this, two took more modelled cycles.
        if not aligned or not self._problem.is_large:
            return []
        return [
            Excess(_excess(self._problem, banks, spare // 2, half), _EVERY_OTHER << half, aligned) for half in (0, 1)
        ]

    def _ahead(self, chosen: _Chosen, leave: int) -> tuple[dict[int, SpillPlan], list[tuple[frozenset[str], Excess]]]:
        """The same plans with each load ahead of its use, where registers are free, and what that leaves."""
        plans = dict(chosen.plans)
        excesses = [(banks, Excess([*excess.over])) for banks, excess in chosen.excesses]
        halves = [(banks, replace(half, over=[*half.over])) for banks, half in chosen.halves]
        for vreg, plan in plans.items():
            if plan.accumulators:
                continue
            own = self._members[vreg].banks
            taking_part = [e for banks, e in (*excesses, *halves) if banks.issuperset(own) and e.counts(vreg)]
            plans[vreg] = load_ahead(plan, taking_part, self._costs, leave)
        return plans, excesses

    def _in_accumulators(self, plans: dict[int, SpillPlan], spare: int, costs: Costs) -> dict[int, SpillPlan]:
        """The plans, with AGPRs instead of memory as far as AGPRs are free, the most expensive plans first."""
        if not any(b.bank == "agpr" and b.registers for b in self._problem.budgets):
            return plans
        excess = PackedExcess(_excess(self._problem, ("agpr",), spare))
        result = dict(plans)
        for vreg, plan in sorted(plans.items(), key=lambda p: (-p[1].cost, p[0])):
            constant = costs.constant(vreg)
            key = vreg, plan.gaps, constant
            if key not in self._held:
                self._held[key] = held_in_accumulators(plan, constant, self._cfg.predecessors)
            held = self._held[key]
            if held and excess.room(held):
                excess.change(held, 1)
                result[vreg] = in_accumulators(plan, costs)
        return result


def most_too_many(problem: AllocationProblem) -> int:
    """Registers that a problem needs beyond its files where it needs most; 0 where there are enough at every point."""
    return max((0, *pressures(problem)))


def pressures(problem: AllocationProblem) -> list[int]:
    """Registers that a problem needs beyond its files at each point, negative where some are free: the most of any set
    of files that a range may be in. Two points an instruction, reads then writes; empty for a problem without ranges.
    """
    files = {live_range.banks for live_range in problem.ranges if live_range.groups}
    return [max(of_point) for of_point in zip(*(_excess(problem, banks, 0) for banks in files), strict=True)]


def _excess(problem: AllocationProblem, banks: tuple[str, ...], spare: int, half: int | None = None) -> list[int]:
    """Registers too many in a set of files at each point (``choose.Excess``).

    Args:
        half: 0 or 1: count even or odd registers alone, and what is in them of ranges that start at even ones.
    """
    points = problem.slots // 2
    change = [0] * (points + 1)
    lanes = -1 if half is None else _HALF_LANES << 2 * half

    def add(segments: Iterable[tuple[int, int]], amount: int) -> None:
        for start, stop in segments:
            # Point p is slot 2p + 1 for reads (p even), 2p for writes (p odd): slots 4i + 1 and 4i + 2.
            low, high = _point(start), _point(stop)
            change[low] += amount
            change[high] -= amount

    for live_range in problem.ranges:
        if set(live_range.banks) <= set(banks) and (half is None or live_range.align > 1):
            for group in live_range.groups:
                add(group.segments, (group.lanes & lanes).bit_count())
    usable: set[int] = set()
    for budget in problem.budgets:
        if budget.bank in banks:
            base = BANK_BASE[Bank(budget.bank)]
            usable.update(u for n in budget.registers for u in (base + 2 * n, base + 2 * n + 1))
    if "special" in banks:
        usable.update(u for name in problem.special for u in physical_register(name).units)
    if half is not None:
        usable = {unit for unit in usable if unit >> 1 & 1 == half}
    occupied: dict[int, list[tuple[int, int]]] = {}
    for fixed in problem.fixed:
        for unit in usable.intersection(fixed.units):
            occupied.setdefault(unit, []).extend(fixed.segments)
    for segments in occupied.values():
        # A call may both take a register as an argument and clobber it: that counts once.
        add(united(segments), 1)
    total = len(usable) - 2 * spare
    excesses: list[int] = []
    live = 0
    for point in range(points):
        live += change[point]
        # Two lanes are a register.
        excesses.append(-(-(live - total) // 2))
    return excesses


def _without(excess: Excess, plans: Iterable[SpillPlan]) -> None:
    """Take away what plans free."""
    excess.change((gap for plan in plans if excess.counts(plan.register.vreg) for gap in plan.gaps), -1)


def _points(live_range: LiveRange) -> int:
    """The points at which a range is live, as a mask."""
    mask = 0
    for group in live_range.groups:
        for start, stop in group.segments:
            mask |= (1 << _point(stop)) - (1 << _point(start))
    return mask


def _point(slot: int) -> int:
    """First point at or after a slot."""
    index, at = divmod(slot, 4)
    return 2 * index + (0 if at <= 1 else 1 if at == 2 else 2)


def _reason(excess: Excess, banks: tuple[str, ...]) -> str:
    worst = excess.worst
    at = excess.over.index(worst) // 2
    return f"{worst} {' or '.join(b.upper() + 's' for b in banks)} too many at instruction {at}"


def _action(plan: SpillPlan, places: Places, reason: str, constant: int) -> SpillAction:
    moves = (*plan.saves, *plan.reloads)
    parts_moved = 0
    for move in moves:
        parts_moved |= move.parts
    return SpillAction(
        f"%{plan.register.vreg}",
        ("accumulate" if plan.accumulators else "spill") if parts_moved & ~constant else "rematerialise",
        parts_moved.bit_count(),
        tuple(map(_words, plan.saves)),
        tuple(map(_words, plan.reloads)),
        4 * min((places.index(m) for m in moves), default=0),
        plan.cost,
        reason,
    )


def _words(move: SpillMove) -> str:
    if move.where in ("start", "end"):
        return f"at the {move.where} of block {move.at}"
    return f"{move.where} instruction {move.at}"
