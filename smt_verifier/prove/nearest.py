"""The nearest valid assignment to a refuted proposal: what the next attempt starts from.

The live ranges of the conflict are free, every other one stays where it was proposed. Of the assignments that this
leaves, one that moves the fewest ranges is taken. Where there is none, those that hold what a free range without a
place could have are free too, once.

Z3 finds it. Its limit is one of resources, not of time, so the answer is the same on every machine. What it is told is
stated here a second time, from the problem: the places that each free range could have beside those that stay, and
which free ranges must be apart. Nothing rests on that: ``prove`` checks the assignment as any proposal, and only one
that is proved is told.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import combinations, islice

from msgspec import Struct
from msgspec.structs import replace

from smt_verifier.outcome import Outcome
from smt_verifier.prove.case import Case, ProofResult, build_case, without
from smt_verifier.prove.constraints import places
from smt_verifier.prove.occupancy import lane_runs, meets, unit_mask
from smt_verifier.prove.prover import prove
from smt_verifier.smt import Obligation, Solver, default_solver
from verilocc_mlir.problem.model import AllocationProblem, LiveRange, Proposal

MOST_FREE = 32
"""Live ranges that are free together, at most."""

RLIMIT = 10_000_000
"""Z3's resources for one question: about three seconds."""

_SECONDS = 60.0


class Move(Struct, frozen=True):
    """A live range that has another register than was proposed; ``name``: in the MIR."""

    id: int
    name: str
    register: str


class Nearest(Struct, frozen=True):
    """A proved assignment near a refuted proposal.

    Attributes:
        moves: what differs from the proposal, by id; empty where none is known.
        fewest: none of those with the same ranges free moves fewer.
        reason: why none is known, ``""`` where one is.
    """

    moves: tuple[Move, ...]
    fewest: bool = False
    reason: str = ""

    def applied(self, proposal: Proposal) -> Proposal:
        """The proposal with these moves."""
        registers = list(proposal.registers)
        for move in self.moves:
            registers[move.id] = move.register
        return replace(proposal, registers=tuple(registers))

    def __str__(self) -> str:
        if not self.moves:
            return f"no valid assignment is near: {self.reason}"
        moves = ", ".join(f"{move.name} to ${move.register}" for move in self.moves[:_SHOWN])
        more = f" and {len(self.moves) - _SHOWN} more" if len(self.moves) > _SHOWN else ""
        return f"the nearest valid assignment moves {moves}{more}"


_SHOWN = 12


def nearest(
    problem: AllocationProblem, proposal: Proposal, result: ProofResult, *, solver: Solver | None = None
) -> Nearest:
    """The nearest valid assignment to ``proposal``, which ``prove`` refuted with ``result``.

    Args:
        solver: another back end than Z3.

    Returns:
        Its ``moves`` are empty, with a reason, where none is near, more than ``MOST_FREE`` ranges are in conflict, or
        the solver's limit is reached.
    """
    if result.truncated:
        return Nearest((), reason="more is wrong than the violations that are listed")
    case, solver = build_case(problem, proposal), solver or default_solver()
    free = {range_id for violation in result.violations for range_id in violation.ranges}
    pairs = [violation.ranges for violation in result.violations if len(violation.ranges) == 2]
    reason = "no violation names a live range"
    for _ in range(2 if free else 0):
        if len(free) > MOST_FREE:
            return Nearest((), reason=f"{len(free)} live ranges are in conflict, and {MOST_FREE} are freed at most")
        question = _Question(case, sorted(free), pairs, solver)
        answer = question.fewest()
        if answer is not None:
            return _proved(problem, proposal, answer, solver)
        if not question.is_decided:
            return Nearest((), reason="none is found within the solver's limit")
        reason = "none with the others where they are"
        if not (more := _in_the_way(question.staying, question.homeless, MOST_FREE - len(free))):
            break
        free |= more
    return Nearest((), reason=reason)


def _proved(problem: AllocationProblem, proposal: Proposal, answer: Nearest, solver: Solver) -> Nearest:
    proof = prove(problem, answer.applied(proposal), solver=solver)
    return answer if proof.outcome is Outcome.PROVED else Nearest((), reason=f"what was found is {proof.outcome}")


def _in_the_way(staying: Case, homeless: Collection[int], room: int) -> set[int]:
    """The ranges that hold what one of ``homeless`` could have, where nothing fixed is in the way too: at most ``room``
    of them, those first that hold a place together with the fewest others, and cheapest.
    """
    held: list[tuple[int, float, int, frozenset[int]]] = []
    for range_id in homeless:
        for unit, _ in places(staying, range_id):
            owners, is_fixed = staying.occupancy.holders(range_id, unit)
            if owners and not is_fixed:
                held.append((len(owners), sum(staying.problem.ranges[i].weight for i in owners), unit, owners))
    chosen: set[int] = set()
    for *_, owners in sorted(held, key=lambda place: place[:3]):
        if len(chosen | owners) <= room:
            chosen |= owners
    return chosen


_Lanes = tuple[int, int]
"""Lanes ``[low, high)``."""


class _Question:
    """Where some live ranges of a case can go while the others stay.

    Args:
        free: their ids, ascending.
        pairs: ranges of which one must move at least.

    Attributes:
        staying: the case without the free ranges.
        is_decided: no limit was reached.
    """

    def __init__(self, case: Case, free: Sequence[int], pairs: Iterable[tuple[int, ...]], solver: Solver) -> None:
        self.staying = without(case, free)
        self.is_decided = True
        self._case, self._solver = case, solver
        ranges = case.problem.ranges
        self._meetings = [
            (a, b, lanes) for a, b in combinations(free, 2) if (lanes := _meeting_lanes(ranges[a], ranges[b]))
        ]
        """Pairs that are live at once, with the lanes that are."""
        self._places: dict[int, dict[int, str]] = {}
        """Names by first unit, by range."""
        self._now: dict[int, int] = {}
        """The first unit of those that may stay where they are proposed."""
        for i in free:
            self._add_places(i)
        self._least = self._fewest_that_must(pairs)
        self._rules = ""
        """What every question says; made for the first one."""

    def _add_places(self, range_id: int) -> None:
        """Where a free range can be: where it is proposed, and so many other places that the free ranges it meets
        cannot take all of them.
        """
        ranges = self._case.problem.ranges
        met = [a + b - range_id for a, b, _ in self._meetings if range_id in (a, b)]
        step = unit_mask(ranges[range_id]) + 1
        enough = 1 + sum(-(-(ranges[range_id].lanes + ranges[other].lanes - 1) // step) for other in met)
        open_places = {u: n for u, n in places(self._case, range_id) if self.staying.occupancy.is_free(range_id, u)}
        kept = self._places[range_id] = dict(islice(open_places.items(), enough))
        now = self._case.first_unit(range_id)
        if range_id in self._case.located and now in open_places:
            kept[now], self._now[range_id] = open_places[now], now

    def _fewest_that_must(self, pairs: Iterable[tuple[int, ...]]) -> int:
        """Those that cannot stay, and one of each pair, without pairs that share a range with an earlier one."""
        moved = self._places.keys() - self._now.keys()
        counted, least = set(moved), len(moved)
        for pair in pairs:
            if counted.isdisjoint(pair):
                counted.update(pair)
                least += 1
        return max(1, least)

    @property
    def homeless(self) -> list[int]:
        """The free ranges that have no place beside those that stay; all of them, where each has one."""
        return [i for i, names in self._places.items() if not names] or list(self._places)

    def fewest(self) -> Nearest | None:
        """The assignment that moves fewest of them; None where there is none, or none is found."""
        if not all(self._places.values()):
            return None
        outcome, moves = self._ask(self._least)
        if outcome is Outcome.REFUTED:
            return Nearest(moves, fewest=True)
        with_all, moves = self._ask(len(self._places))
        if with_all is not Outcome.REFUTED:
            self.is_decided = with_all is Outcome.PROVED
            return None
        for most in range(self._least + 1, len(moves)):
            if outcome is not Outcome.PROVED:
                break
            outcome, fewer = self._ask(most)
            if outcome is Outcome.REFUTED:
                return Nearest(fewer, fewest=True)
        return Nearest(moves, fewest=outcome is Outcome.PROVED)

    def _ask(self, most: int) -> tuple[Outcome, tuple[Move, ...]]:
        """Whether none is possible with at most so many moves; REFUTED: one is, and its moves.

        The goals say that no range is anywhere: those that a model violates say where each can be.
        """
        problem = self._case.problem
        goals = {f"{i}/{name}": (i, unit) for i, names in self._places.items() for unit, name in names.items()}
        self._rules = self._rules or "".join((*self._somewhere(), *self._apart()))
        obligation = Obligation(
            name=f"nearest/{problem.function}/{problem.phase}",
            logic="QF_BV",
            script=self._rules + self._at_most(most),
            goals=tuple((name, f"(not {_at(i, unit)})") for name, (i, unit) in goals.items()),
            rlimit=RLIMIT,
        )
        verdict = self._solver.check(obligation, _SECONDS)
        if verdict.outcome is Outcome.REFUTED and not verdict.violated:
            return Outcome.UNKNOWN, ()
        chosen: dict[int, int] = {}
        for i, unit in (goals[name] for name in verdict.violated):
            if unit == self._now.get(i):
                chosen[i] = unit
            chosen.setdefault(i, unit)
        return verdict.outcome, tuple(
            Move(i, problem.ranges[i].name, self._places[i][unit])
            for i, unit in sorted(chosen.items())
            if self._now.get(i) != unit
        )

    def _somewhere(self) -> Iterator[str]:
        for i, names in self._places.items():
            for unit in names:
                yield f"(declare-const {_at(i, unit)} Bool)\n"
            yield f"(assert (or false {' '.join(_at(i, unit) for unit in names)}))\n"

    def _apart(self) -> Iterator[str]:
        """Free ranges are in different units wherever both are live."""
        for a, b, lanes in self._meetings:
            rank = {other: n for n, other in enumerate(self._places[b])}
            distances = _overlapping(lanes)
            for unit in self._places[a]:
                if taken := sorted((unit + d for d in distances if unit + d in rank), key=rank.__getitem__):
                    yield f"(assert (not (and {_at(a, unit)} (or false {' '.join(_at(b, u) for u in taken)}))))\n"

    def _at_most(self, most: int) -> str:
        total = _number(len(self._places) - len(self._now))
        for i, unit in self._now.items():
            total = f"(bvadd {total} (ite {_at(i, unit)} {_number(0)} {_number(1)}))"
        return f"(assert (bvule {total} {_number(most)}))\n"


def _overlapping(lanes: Iterable[tuple[_Lanes, _Lanes]]) -> set[int]:
    """How far the second range's first unit may lie from the first one's so that these lanes share a unit."""
    return {d for (low, high), (start, stop) in lanes for d in range(low - stop + 1, high - start)}


def _at(range_id: int, unit: int) -> str:
    return f"at-{range_id}-{unit}"


def _number(value: int) -> str:
    return f"#x{value:02x}"


def _meeting_lanes(a: LiveRange, b: LiveRange) -> dict[tuple[_Lanes, _Lanes], None]:
    """Runs of lanes of both that are live at once at some slot."""
    return {
        (run, other): None
        for group in a.groups
        for other_group in b.groups
        if any(meets(group.segments, segment) for segment in other_group.segments)
        for run in lane_runs(group.lanes)
        for other in lane_runs(other_group.lanes)
    }
