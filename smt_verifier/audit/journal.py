"""One path of blocks, executed from the function's entry with the audit's own transfer functions, and remembered.

On a path nothing is assumed: every term has one origin, and two terms are equal exactly if they are the same or results
of the same pure operation on equal terms. So a goal that fails here fails, and who wrote what and when is known.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from smt_verifier.audit.core.lanes import CELL, STACK
from smt_verifier.audit.core.machine import Goal
from smt_verifier.audit.core.pairs import Step
from smt_verifier.audit.core.product import Product
from smt_verifier.audit.core.state import UNDEFINED, Atom, State

FORGOTTEN = -1
"""In a journal, the term of a lane that no longer holds anything known; no term equals it."""


@dataclass(slots=True)
class Clock:
    """Number of the event under way: one event is one step of the path; -1 is the function's entry."""

    now: int = -1


class LaneHistory(dict[int, int]):
    """A table of lanes that remembers when each was written; ``parent`` is the class of threads it split from."""

    def __init__(self, table: Mapping[int, int], clock: Clock, parent: LaneHistory | None = None) -> None:
        super().__init__(table)
        self._clock = clock
        self._parent = parent
        self._since = clock.now
        self._start: dict[int, int] = {} if parent is not None else dict(table)
        self._log: dict[int, list[tuple[int, int]]] = {}

    def __setitem__(self, key: int, term: int) -> None:
        self._log.setdefault(key, []).append((self._clock.now, term))
        super().__setitem__(key, term)

    def update(self, rows: Iterable[tuple[int, int]]) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """As ``dict.update`` of pairs, each write remembered."""
        for key, term in rows:
            self[key] = term

    def pop(self, key: int, default: int | None = None) -> int | None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """As ``dict.pop`` with a default: the lane holds nothing known from now on."""
        self._log.setdefault(key, []).append((self._clock.now, FORGOTTEN))
        return super().pop(key, default)

    def writes(self, key: int, before: int) -> list[tuple[int, int]]:
        """``(event, term)`` of every write of a lane before an event, oldest first; event -1: its value at entry."""
        own = [row for row in self._log.get(key, ()) if row[0] < before]
        if self._parent is not None:
            return self._parent.writes(key, min(before, self._since)) + own
        return ([(-1, self._start[key])] if key in self._start else []) + own


@dataclass(frozen=True, slots=True)
class Failure:
    """A goal that fails on the path, in the event it arose, with the tables it was read from, by side."""

    event: int
    block: int
    goal: Goal
    vector: dict[str, LaneHistory]


class PathRun:
    """The execution of one path.

    Args:
        path: layout positions of the blocks, from the entry on.

    Attributes:
        events: for each event, the number of the block on the path and the step.

    Raises:
        UnsupportedError: as inference would.
    """

    def __init__(self, product: Product, path: tuple[int, ...]) -> None:
        self.product = product
        self.path = path
        self.events: list[tuple[int, Step]] = []
        self._clock = Clock()
        self._first_terms: list[int] = []
        self._goals: list[Failure] = []
        executor = product.executor
        executor.reset()
        executor.goals = self._record_goal
        executor.findings = None
        reads, executor.real_reads = executor.real_reads, {}
        try:
            self._state = product.entry_state(0, None, lambda _a, _b: None)
            self.scalar = {"pre": self._journal(self._state.pre), "post": self._journal(self._state.post)}
            self._state.pre, self._state.post = self.scalar["pre"], self.scalar["post"]
            self._run(path)
        finally:
            executor.goals = None
            executor.real_reads = reads
        self.terms = executor.terms
        self._equal = self._congruence()
        self.failures = [f for f in self._goals if self._fails(f.goal)]

    def _run(self, path: tuple[int, ...]) -> None:
        executor = self.product.executor
        for visit, block in enumerate(path):
            for step in self.product.steps[block]:
                self._clock.now += 1
                self.events.append((visit, step))
                self._first_terms.append(len(executor.terms.origin))
                self._wrap_new_tables(self._state.atoms)
                executor.run([step], self._state)
            if visit + 1 < len(path):
                leaving = self.product.leave(block, path[visit + 1], self._state)
                self._state = State(
                    self._state.pre, self._state.post, leaving.atoms, leaving.masks, leaving.bounded, bits=leaving.bits
                )
        self._wrap_new_tables(self._state.atoms)

    def _journal(self, table: dict[int, int], parent: LaneHistory | None = None) -> LaneHistory:
        return LaneHistory(table, self._clock, parent)

    def _wrap_new_tables(self, atoms: list[Atom]) -> None:
        """Tables of classes of threads that are new since the last event become journals."""
        for atom in atoms:
            if isinstance(atom.pre, LaneHistory):
                continue
            parent = next(
                (a for a in atoms if isinstance(a.pre, LaneHistory) and a.pre == atom.pre and a.post == atom.post), None
            )
            sides = (atom.pre, parent.pre if parent else None), (atom.post, parent.post if parent else None)
            atom.keep_in(*(self._journal(table, p if isinstance(p, LaneHistory) else None) for table, p in sides))

    def _record_goal(self, goal: Goal) -> None:
        vector: dict[str, LaneHistory] = {}
        for atom in self._state.atoms:
            pre_term, post_term = atom.pre.get(goal.pre_key, goal.pre), atom.post.get(goal.post_key, goal.post)
            if pre_term == goal.pre and (goal.post < 0 or post_term == goal.post):
                vector = {s: t for s, t in (("pre", atom.pre), ("post", atom.post)) if isinstance(t, LaneHistory)}
                break
        self._goals.append(Failure(self._clock.now, self.path[self.events[-1][0]], goal, vector))

    def _congruence(self) -> dict[int, int]:
        """For each term that is the result of a pure operation, the first equal one."""
        equal: dict[int, int] = {}
        first: dict[tuple[object, ...], int] = {}
        for e in self.product.executor.expressions:
            shape = (e.operation, e.index, *(equal.get(a, a) for a in e.arguments))
            equal[e.term] = first.setdefault(shape, equal.get(e.term, e.term))
        return equal

    def same(self, a: int, b: int) -> bool:
        """Whether two terms are equal on this path."""
        if FORGOTTEN in (a, b):
            return False
        return self._equal.get(a, a) == self._equal.get(b, b)

    def _fails(self, goal: Goal) -> bool:
        return goal.pre != UNDEFINED and (goal.post < 0 or not self.same(goal.pre, goal.post))

    def event_of(self, term: int) -> int:
        """The event in which a term was made, -1 for the function's entry."""
        return bisect_right(self._first_terms, term) - 1

    def table(self, side: str, key: int, failure: Failure) -> LaneHistory:
        """The table that holds a lane, for the threads of a failure."""
        scalar = self.scalar[side]
        vector = failure.vector.get(side, scalar)
        if STACK <= key < CELL:
            return vector if vector.writes(key, failure.event + 1) else scalar
        lanes = self.product.pre_lanes if side == "pre" else self.product.post_lanes
        return vector if lanes.is_vector(key) else scalar
