"""The goals of blocks as a question to the solver.

A goal is asked with those hypotheses and expressions that a chain of shared terms connects it to. That is sound: fewer
hypotheses prove nothing that all of them do not. It is also complete: an equality follows only from hypotheses, from
one operation on equal arguments, or from an operation without arguments, and all of these connect their terms. Parts
that differ only in the names of their terms are asked once: classes of threads are many, and mostly alike.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from smt_verifier.audit.core.machine import UNDECIDED, Goal
from smt_verifier.audit.core.state import Expression
from smt_verifier.smt import Obligation

Equality = tuple[int, int, bool]
"""Two terms, numbered within their part, and whether the first may be undefined instead; the second -1: it must be."""
Application = tuple[str, int, tuple[int, ...]]
"""Operation, lane of its result, and the terms of result and arguments, numbered within their part."""


@dataclass(frozen=True, slots=True)
class Form:
    """A part with terms numbered as they occur: equal forms are the same question."""

    terms: int
    hypotheses: tuple[Equality, ...]
    expressions: tuple[Application, ...]
    goals: tuple[Equality, ...]


@dataclass(slots=True)
class Part:
    """What is joined by chains of terms."""

    hypotheses: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    expressions: list[Expression] = field(default_factory=list[Expression])
    goals: list[Goal] = field(default_factory=list[Goal])

    def form(self, maybe_undefined: Collection[int]) -> Form:
        """The part without the names of its terms."""
        numbers: dict[int, int] = {}

        def number(term: int) -> int:
            return numbers.setdefault(term, len(numbers)) if term >= 0 else -1

        def equality(pre: int, post: int) -> Equality:
            return number(pre), number(post), pre in maybe_undefined

        hypotheses = tuple(equality(*pair) for pair in self.hypotheses)
        expressions = tuple(
            (e.operation, e.index, tuple(map(number, (e.term, *e.arguments)))) for e in self.expressions
        )
        goals = tuple(equality(g.pre, g.post) for g in self.goals)
        return Form(len(numbers), hypotheses, expressions, goals)


class Question:
    """One question for the goals of several blocks, each of which has terms of its own.

    Attributes:
        groups: for each goal of the obligation, ``g0`` on, the goals of the blocks that it stands for.
    """

    def __init__(self, proved: Collection[Form] = ()) -> None:
        """``proved``: forms that need not be asked, because they were proved before."""
        self.groups: list[list[Goal]] = []
        self._proved = proved
        self._text = _Text()
        self._first_goal: dict[Form, int] = {}

    @property
    def forms(self) -> Collection[Form]:
        """The parts that it asks, without the names of their terms."""
        return self._first_goal.keys()

    @property
    def size(self) -> int:
        """How many terms it has."""
        return self._text.terms

    def add(
        self,
        hypotheses: list[tuple[int, int]],
        expressions: list[Expression],
        goals: list[Goal],
        maybe_undefined: Collection[int],
    ) -> None:
        """Ask the goals of one more block.

        Args:
            hypotheses: pairs of a pre-RA and a post-RA term that are equal, unless the first is undefined.
            expressions: terms that are results of operations.
            maybe_undefined: pre-RA terms of lanes that are undefined on some paths.
        """
        for part in parts(hypotheses, expressions, _distinct(goals)) if goals else ():
            form = part.form(maybe_undefined)
            if form in self._proved:
                continue
            if form not in self._first_goal:
                self._first_goal[form] = len(self.groups)
                self.groups += [[] for _ in part.goals]
                self._text.add(form)
            for number, goal in enumerate(part.goals, self._first_goal[form]):
                self.groups[number].append(goal)

    def obligation(self, name: str) -> Obligation:
        return Obligation(name, "QF_UF", self._text.render(), tuple(self._text.goals))


def _distinct(goals: Iterable[Goal]) -> list[Goal]:
    """Goals that ask the same come once, under the first one's place."""
    distinct: dict[tuple[int, int, str], Goal] = {}
    for goal in goals:
        distinct.setdefault((goal.pre, goal.post, goal.rule if goal.rule in UNDECIDED else ""), goal)
    return list(distinct.values())


def parts(
    hypotheses: Iterable[tuple[int, int]], expressions: Iterable[Expression], goals: Iterable[Goal]
) -> list[Part]:
    """The parts that have goals."""
    hypotheses, expressions, goals = list(hypotheses), list(expressions), list(goals)
    joined = _Joined()
    constants: dict[tuple[str, int], int] = {}
    for pair in hypotheses:
        joined.join(*pair)
    for e in expressions:
        for argument in e.arguments:
            joined.join(e.term, argument)
        if not e.arguments:
            joined.join(e.term, constants.setdefault((e.operation, e.index), e.term))
    for goal in goals:
        if goal.post >= 0:
            joined.join(goal.pre, goal.post)
    by_root: dict[int, Part] = {}
    for goal in goals:
        by_root.setdefault(joined.root(goal.pre), Part()).goals.append(goal)
    for pair in hypotheses:
        if (part := by_root.get(joined.root(pair[0]))) is not None:
            part.hypotheses.append(pair)
    for e in expressions:
        if (part := by_root.get(joined.root(e.term))) is not None:
            part.expressions.append(e)
    return list(by_root.values())


class _Joined:
    """Sets of terms that are joined (union-find)."""

    def __init__(self) -> None:
        self._above: dict[int, int] = {}

    def root(self, term: int) -> int:
        above = self._above
        at = term
        while (up := above.get(at, at)) != at:
            # Halve the way for those who come after.
            above[at] = at = above.get(up, up)
        return at

    def join(self, one: int, other: int) -> None:
        one, other = self.root(one), self.root(other)
        if one != other:
            self._above[max(one, other)] = min(one, other)


class _Text:
    """SMT-LIB text of several parts, whose terms are told apart by numbers that go on."""

    def __init__(self) -> None:
        self.goals: list[tuple[str, str]] = []
        self.terms = 0
        self._maybe: set[int] = set()
        self._functions: dict[tuple[str, int, int], str] = {}
        self._lines: list[str] = []

    def add(self, form: Form) -> None:
        self._lines += [f"(assert {self._equal(*pair)})" for pair in form.hypotheses]
        for operation, index, (term, *arguments) in form.expressions:
            shape = (operation, index, len(arguments))
            symbol = self._functions.setdefault(shape, f"f{len(self._functions)}")
            applied = f"({symbol} {' '.join(map(self._term, arguments))})" if arguments else symbol
            self._lines.append(f"(assert (= {self._term(term)} {applied}))")
        self.goals += [(f"g{n}", self._equal(*pair)) for n, pair in enumerate(form.goals, len(self.goals))]
        self.terms += form.terms

    def render(self) -> str:
        """Declarations, then assertions."""
        lines = ["(declare-sort Value 0)"]
        lines += [f"(declare-fun {s} ({' '.join(['Value'] * n)}) Value)" for (_, _, n), s in self._functions.items()]
        lines += [f"(declare-const t{n} Value)" for n in range(self.terms)]
        lines += [f"(declare-const u{n} Bool)" for n in sorted(self._maybe)]
        return "\n".join(lines + self._lines) + "\n"

    def _term(self, number: int) -> str:
        return f"t{self.terms + number}"

    def _equal(self, pre: int, post: int, undefined: bool) -> str:
        equal = "false" if post < 0 else f"(= {self._term(pre)} {self._term(post)})"
        if not undefined:
            return equal
        self._maybe.add(self.terms + pre)
        return f"u{self.terms + pre}" if post < 0 else f"(or u{self.terms + pre} {equal})"
