"""The goals of each block, from the claims at its entry to its operands and to the claims at its exits, and how they
are asked.

A goal that is ``t = t``, or a hypothesis of its block word for word, is discharged here; every other goal goes to the
solver. First all blocks are asked about in one question. Where that is not proved, each block has a question of its
own, so that what fails can be said.

Nothing here trusts inference. Claims that are wrong make a goal fail; claims that are missing make one unprovable.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field

from msgspec.structs import replace

from smt_verifier.audit.core.lanes import key_name
from smt_verifier.audit.core.machine import UNDECIDED, Goal
from smt_verifier.audit.core.pairs import Step
from smt_verifier.audit.core.product import Product
from smt_verifier.audit.core.relation import Claims, Relation, pre_term, projection
from smt_verifier.audit.core.report import Finding, GoalCounts
from smt_verifier.audit.core.state import UNDEFINED, Atom, Expression, State, Terms
from smt_verifier.outcome import Outcome
from smt_verifier.smt import Obligation, Solver, Verdict

# The goals of blocks as a question to the solver.
#
# A goal is asked with those hypotheses and expressions that a chain of shared terms connects it to. That is sound:
# fewer hypotheses prove nothing that all of them do not. It is also complete: an equality follows only from hypotheses,
# from one operation on equal arguments, or from an operation without arguments, and all of these connect their terms.
# Parts that differ only in the names of their terms are asked once: classes of threads are many, and mostly alike.


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


_MAX_FINDINGS = 20
_MOST_TERMS = 30_000
"""Of one question for several blocks, about: the solver's time grows faster than its text."""


@dataclass(frozen=True, slots=True)
class FailedGoal:
    """A goal with a counterexample, in the block at layout position ``block``; ``local`` is what that block shows."""

    block: int
    goal: Goal
    local: Finding


@dataclass(frozen=True, slots=True)
class BlockCheck:
    """What checking one block gave.

    Attributes:
        goals: how many goals it had, of either kind.
        findings: what could not be shown, but for goals.
        failed: goals with a counterexample, for ``explain``.
    """

    goals: GoalCounts
    findings: tuple[Finding, ...]
    failed: tuple[FailedGoal, ...]


Describe = Callable[[Product, Goal, Terms], Finding]
"""What one block shows of a failed goal, in words: of these the verdict takes nothing."""


class _Edge:
    """Goals of the edges out of a block."""

    def __init__(self, product: Product, state: State, goals: list[Goal], unmet: list[str]) -> None:
        self.product = product
        self.executor = product.executor
        self.state = state
        self.goals = goals
        self.unmet = unmet

    def require(self, claims: Claims) -> None:
        """What a successor assumes must hold now."""
        names = claims.names(claims.masks, self.executor, self.state.pre)
        renamed = projection(names, self.executor, self.state)
        if not claims.masks_hold(names, renamed, self.executor, self.state):
            self.unmet.append("a thread mask the successor knows is not known here")
        self.relation(claims.scalar, None)
        for atom in self.state.atoms:
            relations = [claims.classes.get(renamed.only(signature)) for signature in atom.signatures]
            if None in relations:
                self.unmet.append("a class of threads the successor does not know")
            # Classes of which the same is claimed share the object.
            for relation in {id(r): r for r in relations if r is not None}.values():
                self.relation(relation, atom)

    def relation(self, relation: Relation, atom: Atom | None) -> None:
        if atom is not None and atom.untouched is not None and atom.untouched.claimed is relation:
            # What was assumed of lanes that nothing touched since is the same claim: its goals are hypotheses.
            self.executor.literal += relation.goals
            return
        terms = self.executor.terms
        pre = self.state.pre if atom is None else atom.pre
        post = self.state.post if atom is None else atom.post
        step = Step(None, None)
        for key in relation.undefined:
            if pre.get(key) != UNDEFINED:
                self.unmet.append(f"{key_name(key, self.product.pre_lanes.grain)} is not undefined here")
        assumed = self.executor.assumed
        compared: set[tuple[int, int]] = set()
        for key, places in relation.places.items():
            term = pre.get(key)
            if term is None:
                term = self.executor.read(key, pre)
            if key not in relation.maybe and (term == UNDEFINED or term in terms.maybe_undefined):
                self.unmet.append(f"{key_name(key, self.product.pre_lanes.grain)} may be undefined here")
            elif term != UNDEFINED and (term, id(places)) not in compared:
                compared.add((term, id(places)))
                for place in places:
                    now = post.get(place)
                    if now is None:
                        now = self.executor.read(place, post)
                    if term == now or (term, now) in assumed:
                        self.executor.literal += 1
                    else:
                        self.goals.append(Goal("relation", term, now, step, key, place))
        for operation, index, key, keys in sorted(relation.facts):
            held = [pre_term(self.executor, self.state, atom, k) for k in (key, *keys)]
            if UNDEFINED in held or terms.maybe_undefined.intersection(held):
                self.unmet.append(f"an operand of {operation} may be undefined here")
                continue
            result = terms.fresh(f"{operation} on what its operands hold now")
            self.executor.note(Expression(operation, index, tuple(held[1:]), result))
            self.goals.append(Goal("relation", held[0], result, step, key, key))


@dataclass(frozen=True, slots=True)
class BlockRun:
    """What executing one block on both sides gave; terms and expressions are those that the executor holds now.

    Attributes:
        counts: how many goals it had, of either kind.
        findings: what could not be shown, but for goals.
        hypotheses: pairs of terms that the claims at its entry make equal.
        open_goals: the goals that are neither ``t = t`` nor a hypothesis word for word.
    """

    counts: GoalCounts
    findings: tuple[Finding, ...]
    hypotheses: list[tuple[int, int]]
    open_goals: list[Goal]


def run_block(product: Product, block: int, entries: list[Claims | None]) -> BlockRun:
    """Execute one reached block under the claims at its entry, up to the claims of its successors.

    Raises:
        UnsupportedError: as inference would.
    """
    executor = product.executor
    executor.reset()
    goals: list[Goal] = []
    findings: list[Finding] = []
    hypotheses: list[tuple[int, int]] = []
    executor.goals = goals.append
    executor.findings = findings.append

    def assume(pre: int, post: int) -> None:
        hypotheses.append((pre, post))
        executor.assumed.add((pre, post))

    state = product.entry_state(block, entries[block], assume)
    executor.run(product.steps[block], state)
    goals += product.callee_saved_goals(block, state)
    unmet: list[str] = []
    for successor in dict.fromkeys(product.successors[block]):
        claims = entries[successor]
        if claims is None:
            unmet.append("a successor without claims")
        else:
            leaving = product.leave(block, successor, state)
            _Edge(product, leaving, goals, unmet).require(claims)
    findings += [Finding("relation", Outcome.UNKNOWN, text) for text in unmet]
    open_goals = [g for g in goals if g.pre != g.post and (g.pre, g.post) not in executor.assumed]
    counts = GoalCounts(executor.literal + len(goals) - len(open_goals), len(open_goals))
    return BlockRun(counts, tuple(replace(f, block=block) for f in findings), hypotheses, open_goals)


def check_together(
    product: Product, entries: list[Claims | None], solver: Solver, timeout_s: float, name: str
) -> tuple[GoalCounts, Verdict] | None:
    """Ask one question for all reached blocks, or a few where it would be large; how many goals they have, and the
    answer: the first that is not PROVED, if there is one.

    None where something that is no goal is not shown: then not all is asked.

    Raises:
        UnsupportedError: as inference would.
    """
    question = Question()
    proved: set[Form] = set()
    counts = GoalCounts()
    number = 0
    for block in product.order:
        run = run_block(product, block, entries)
        if run.findings:
            return None
        counts += run.counts
        executor = product.executor
        question.add(run.hypotheses, executor.expressions, run.open_goals, executor.terms.maybe_undefined)
        if question.size > _MOST_TERMS and block != product.order[-1]:
            verdict = solver.check(question.obligation(f"{name}-{number}"), timeout_s)
            if verdict.outcome is not Outcome.PROVED:
                return counts, verdict
            proved.update(question.forms)
            question = Question(proved)
            number += 1
    return counts, solver.check(question.obligation(f"{name}-{number}" if number else name), timeout_s)


def check_block(
    product: Product,
    block: int,
    entries: list[Claims | None],
    solver: Solver,
    timeout_s: float,
    name: str,
    describe: Describe,
) -> BlockCheck:
    """Check one reached block by a question of its own, and describe what fails; ``name`` is that of its obligation.

    Raises:
        UnsupportedError: as inference would.
    """
    run = run_block(product, block, entries)
    findings = list(run.findings)
    executor = product.executor
    question = Question()
    question.add(run.hypotheses, executor.expressions, run.open_goals, executor.terms.maybe_undefined)
    failed: list[FailedGoal] = []
    verdict = solver.check(question.obligation(name), timeout_s)
    if verdict.outcome is Outcome.REFUTED:
        numbers = [int(n.removeprefix("g")) for n in verdict.violated]
        failing = {id(goal) for n in numbers for goal in question.groups[n]}
        failed = [
            FailedGoal(block, g, describe(product, g, executor.terms)) for g in run.open_goals if id(g) in failing
        ]
        if not failed:
            # The solver has a counterexample and could not say to what.
            findings.append(Finding("solver", Outcome.UNKNOWN, f"{name}: {verdict.reason}", block=block))
    elif verdict.outcome is not Outcome.PROVED:
        findings.append(Finding("solver", verdict.outcome, f"{name}: {verdict.reason}", block=block))
    return BlockCheck(run.counts, tuple(findings[:_MAX_FINDINGS]), tuple(failed))
