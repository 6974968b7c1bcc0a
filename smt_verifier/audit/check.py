"""The check: one obligation a block, from the claims at its entry to its operands and to the claims at its exits.

Nothing here trusts inference. Claims that are wrong make a goal fail; claims that are missing make one unprovable.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from smt_verifier.audit.align import Step
from smt_verifier.audit.explain import FailedGoal, local_finding
from smt_verifier.audit.lanes import key_name
from smt_verifier.audit.machine import UNDECIDED, Goal
from smt_verifier.audit.product import Product
from smt_verifier.audit.relation import Claims, Relation, pre_term
from smt_verifier.audit.report import Finding
from smt_verifier.audit.state import UNDEFINED, Atom, Expression, State
from smt_verifier.outcome import Outcome
from smt_verifier.smt import Obligation, Solver

_MAX_FINDINGS = 20


@dataclass(frozen=True, slots=True)
class BlockCheck:
    """What checking one block gave.

    Attributes:
        goals: how many goals it had.
        findings: what could not be shown, but for goals.
        failed: goals with a counterexample, for ``explain``.
        obligation: the question the solver was asked.
    """

    goals: int
    findings: tuple[Finding, ...]
    failed: tuple[FailedGoal, ...]
    obligation: Obligation


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
        if not claims.masks_hold(self.executor, self.state):
            self.unmet.append("a thread mask the successor knows is not known here")
        self.relation(claims.scalar, None)
        for atom in self.state.atoms:
            wanted = claims.atoms.get(claims.signature(self.executor, self.state, atom))
            if wanted is None:
                self.unmet.append("a class of threads the successor does not know")
            else:
                self.relation(wanted, atom)

    def relation(self, relation: Relation, atom: Atom | None) -> None:
        terms = self.executor.terms
        pre = self.state.pre if atom is None else atom.pre
        post = self.state.post if atom is None else atom.post
        step = Step(None, None)
        for key in relation.undefined:
            if pre.get(key) != UNDEFINED:
                self.unmet.append(f"{key_name(key, self.product.pre_lanes.grain)} is not undefined here")
        for key, places in relation.places.items():
            term = self.executor.read(key, pre)
            if key not in relation.maybe and (term == UNDEFINED or term in terms.maybe_undefined):
                self.unmet.append(f"{key_name(key, self.product.pre_lanes.grain)} may be undefined here")
            elif term != UNDEFINED:
                for place in places:
                    self.goals.append(Goal("relation", term, self.executor.read(place, post), step, key, place))
        for operation, index, key, keys in relation.facts:
            now = [pre_term(self.executor, self.state, atom, k) for k in (key, *keys)]
            if UNDEFINED in now or terms.maybe_undefined.intersection(now):
                self.unmet.append(f"an operand of {operation} may be undefined here")
                continue
            result = terms.fresh(f"{operation} on what its operands hold now")
            self.executor.note(Expression(operation, index, tuple(now[1:]), result))
            self.goals.append(Goal("relation", now[0], result, step, key, key))


def check_block(
    product: Product, block: int, entries: list[Claims | None], solver: Solver, timeout_s: float
) -> BlockCheck:
    """Check one reached block.

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
    state = product.entry_state(block, entries[block], lambda a, b: hypotheses.append((a, b)))
    executor.run(product.steps[block], state)
    goals += product.callee_saved_goals(block, state)
    unmet: list[str] = []
    for successor in dict.fromkeys(product.successors[block]):
        claims = entries[successor]
        if claims is None:
            unmet.append("a successor without claims")
        else:
            left = product.leave(block, successor, state)
            _Edge(product, left, goals, unmet).require(claims)
    findings += [Finding("relation", Outcome.UNKNOWN, text) for text in unmet]
    name = f"{product.pre.name}/block-{block}"
    obligation, merged = _obligation(name, product, hypotheses, goals)
    failed: list[FailedGoal] = []
    verdict = solver.check(obligation, timeout_s)
    if verdict.outcome is Outcome.REFUTED:
        numbers = [int(n.removeprefix("g")) for n in verdict.violated]
        failed = [FailedGoal(block, merged[n], local_finding(product, merged[n], executor.terms)) for n in numbers]
        if not failed:
            # The solver has a counterexample and could not say to what.
            findings.append(Finding("solver", Outcome.UNKNOWN, f"{name}: {verdict.reason}"))
    elif verdict.outcome is not Outcome.PROVED:
        findings.append(Finding("solver", verdict.outcome, f"{name}: {verdict.reason}"))
    located = tuple(replace(f, block=block) for f in findings[:_MAX_FINDINGS])
    return BlockCheck(len(goals), located, tuple(failed), obligation)


def _obligation(
    name: str, product: Product, hypotheses: list[tuple[int, int]], goals: list[Goal]
) -> tuple[Obligation, list[Goal]]:
    """The block's question as SMT-LIB text; goals that ask the same come once, under the first one's place."""
    terms = product.executor.terms
    used: set[int] = set()
    functions: dict[tuple[str, int, int], str] = {}
    lines: list[str] = []
    maybe: set[int] = set()
    for pre, post in hypotheses:
        used.update((pre, post))
        if pre in terms.maybe_undefined:
            maybe.add(pre)
            lines.append(f"(assert (or u{pre} (= t{pre} t{post})))")
        else:
            lines.append(f"(assert (= t{pre} t{post}))")
    for e in product.executor.expressions:
        shape = (e.operation, e.index, len(e.arguments))
        symbol = functions.setdefault(shape, f"f{len(functions)}")
        used.update((e.term, *e.arguments))
        arguments = " ".join(f"t{a}" for a in e.arguments)
        lines.append(
            f"(assert (= t{e.term} ({symbol} {arguments})))" if arguments else f"(assert (= t{e.term} {symbol}))"
        )
    merged: list[Goal] = []
    named: list[tuple[str, str]] = []
    seen: set[tuple[int, int, str]] = set()
    for goal in goals:
        identity = (goal.pre, goal.post, goal.rule if goal.rule in UNDECIDED else "")
        if identity in seen:
            continue
        seen.add(identity)
        undefined = goal.pre in terms.maybe_undefined
        if undefined:
            maybe.add(goal.pre)
        if goal.post < 0:
            text = f"u{goal.pre}" if undefined else "false"
        else:
            used.update((goal.pre, goal.post))
            equal = f"(= t{goal.pre} t{goal.post})"
            text = f"(or u{goal.pre} {equal})" if undefined else equal
        named.append((f"g{len(merged)}", text))
        merged.append(goal)
    declarations = ["(declare-sort Value 0)"]
    declarations += [f"(declare-fun {s} ({' '.join(['Value'] * n)}) Value)" for (_, _, n), s in functions.items()]
    declarations += [f"(declare-const t{t} Value)" for t in sorted(used)]
    declarations += [f"(declare-const u{t} Bool)" for t in sorted(maybe)]
    return Obligation(name, "QF_UF", "\n".join(declarations + lines) + "\n", tuple(named)), merged
