"""The check: goals of each block, from the claims at its entry to its operands and to the claims at its exits.

A goal that is ``t = t``, or a hypothesis of its block word for word, is discharged here; every other goal goes to the
solver. First all blocks are asked about in one question. Where that is not proved, each block has a question of its
own, so that what fails can be said.

Nothing here trusts inference. Claims that are wrong make a goal fail; claims that are missing make one unprovable.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from smt_verifier.audit.core.lanes import key_name
from smt_verifier.audit.core.machine import Goal
from smt_verifier.audit.core.product import Product
from smt_verifier.audit.core.question import Form, Question
from smt_verifier.audit.core.relation import Claims, Relation, pre_term, projection
from smt_verifier.audit.core.report import Finding, GoalCounts
from smt_verifier.audit.core.state import UNDEFINED, Atom, Expression, State, Terms
from smt_verifier.audit.core.steps import Step
from smt_verifier.outcome import Outcome
from smt_verifier.smt import Solver, Verdict

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
