"""From failed goals to findings: one for each cause, with the path that shows it.

The solver says which goals of a block do not follow from what is claimed at its start. Here a path of blocks is looked
for on which the goal fails without any claim (``effects.py`` proposes, ``journal.py`` executes). The first goal that
fails on such a path is nearest to the cause; those that fail for the same cause are counted. Where no path is found in
reasonable time, the finding says what the block alone shows. None of this decides a verdict.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice

from msgspec.structs import replace

from smt_verifier.audit.core.check import FailedGoal
from smt_verifier.audit.core.lanes import STACK, key_name
from smt_verifier.audit.core.machine import UNDECIDED, Goal
from smt_verifier.audit.core.product import Product
from smt_verifier.audit.core.report import Finding, OperandPair
from smt_verifier.audit.core.state import Terms
from smt_verifier.audit.effects import Effects, PathSearch
from smt_verifier.audit.journal import Failure, PathRun
from smt_verifier.audit.origins import Cause, Origins, Tracer
from smt_verifier.outcome import Outcome
from verilocc_mlir.errors import UnsupportedError, VeriloccError

_MAX_FINDINGS = 20
_MAX_CANDIDATES = 12
_OF_GOALS = frozenset({"value", "undef-flag", "early-clobber", "callee-saved", "inactive-lanes", "relation"})
_MAX_STEPS = 300_000
"""Steps of paths executed for one function; explanations stop being traced beyond that."""


Identity = tuple[str, int, int, int]


def _identity(goal: Goal) -> Identity:
    return goal.rule, id(goal.step), goal.pre_key, goal.post_key


def local_finding(product: Product, goal: Goal, terms: Terms) -> Finding:
    """What one block shows of a failed goal: what was expected, and what the register holds."""
    grain = product.pre_lanes.grain
    name = key_name(goal.pre_key, grain)
    start = _start(goal.pre, terms)
    place = key_name(goal.post_key, grain)
    expected = f"{name} ({terms.describe(goal.pre)})"
    if start == name == place:
        expected = f"what {name} of the text before allocation held at the block's start"
    elif start == name:
        expected = f"{name} as it was at the block's start"
    held = _held_text(goal, start or name, place, terms)
    if goal.rule == "relation":
        message = f"{place} was believed to hold {expected} at the block's end, but holds {held}"
    else:
        message = _message(goal, grain, expected, f"holds {held}")
    return _finding(product, goal, message)


def _start(term: int, terms: Terms) -> str:
    """The lane whose value at the block's start a term is, or ``""``."""
    origin = terms.origin[term]
    if isinstance(origin, tuple) and origin[0].endswith("at the block's start"):
        return key_name(origin[1], terms.grain)
    return ""


def _held_text(goal: Goal, expected_name: str, place: str, terms: Terms) -> str:
    """What the register holds. For a value from the block's start: that it is not known to equal the expected one."""
    if goal.post < 0:
        return ""
    start = _start(goal.post, terms)
    if not start:
        return terms.describe(goal.post)
    unproved = "that" if goal.rule == "callee-saved" or start == expected_name else expected_name
    return f"what {'it' if start == place else start} held at the block's start, which is not known to equal {unproved}"


def _message(goal: Goal, grain: int, expected: str, actual: str) -> str:
    place = key_name(goal.post_key, grain)
    if goal.rule == "early-clobber":
        return f"{place} is overwritten by an early-clobber result before it is read as {expected}"
    if goal.rule == "undef-flag":
        return f"{place} is marked undef, but must hold {expected}"
    if goal.rule == "inactive-lanes":
        return f"in threads that are not active here, {place} should hold {expected}, but {actual}"
    if goal.rule == "callee-saved":
        return f"{place} must hold again what it held at function entry, but {actual}"
    return f"{place} must hold {expected}, but {actual}"


def _finding(product: Product, goal: Goal, message: str) -> Finding:
    post = goal.step.post
    return Finding(
        goal.rule,
        Outcome.UNKNOWN if goal.rule in UNDECIDED else Outcome.REFUTED,
        message,
        pre_line=goal.step.pre.line if goal.step.pre else 0,
        post_line=post.line if post else 0,
        instruction=str(post) if post else "",
        operand=_operand(product, goal),
    )


def _operand(product: Product, goal: Goal) -> OperandPair | None:
    """The operand in which a goal's lanes meet."""
    pre, post = goal.step.pre, goal.step.post
    if pre is None or post is None:
        return None
    for number, (a, b) in enumerate(zip(pre.all_operands, post.all_operands, strict=False)):
        if a.is_use and b.is_reg:
            lanes = zip(product.pre_lanes.keys(a), product.post_lanes.keys(b), strict=False)
            if (goal.pre_key, goal.post_key) in lanes:
                return OperandPair(number, a.text, b.text)
    return None


@dataclass(slots=True)
class _Use:
    """Lanes of one operand that fail in one event for causes of one kind."""

    failures: list[Failure]
    origins: list[Origins]
    operand: OperandPair | None


@dataclass
class _Explainer:
    product: Product
    effects: Effects
    search: PathSearch
    findings: list[Finding] = field(default_factory=list[Finding])
    owner: dict[Cause, int] = field(default_factory=dict[Cause, int])
    explained: set[Identity] = field(default_factory=set[Identity])
    steps_left: int = _MAX_STEPS

    def explain(self, failed: FailedGoal) -> bool:
        """Add findings for everything that fails on a path on which this goal fails; False if there is no such path."""
        for run in self._runs(failed):
            if run.failures:
                self._add_uses(run)
                if _identity(failed.goal) in self.explained:
                    return True
        return False

    def _runs(self, failed: FailedGoal) -> Iterator[PathRun]:
        steps = self.product.steps[failed.block]
        index = next((n for n, s in enumerate(steps) if s is failed.goal.step), None)
        if index is None:
            return
        post = failed.goal.post_key if failed.goal.post >= 0 else None
        paths = self.search.candidates(failed.block, index, failed.goal.pre_key, post)
        for path in islice(paths, _MAX_CANDIDATES):
            self.steps_left -= sum(len(self.product.steps[b]) for b in path)
            if self.steps_left < 0:
                return
            try:
                yield PathRun(self.product, path)
            except UnsupportedError:
                continue

    def _add_uses(self, run: PathRun) -> None:
        tracer = Tracer(run, self.effects)
        for use in self._uses(run, tracer):
            new = [n for n, o in enumerate(use.origins) if o.cause not in self.owner]
            if new:
                self._add(run, tracer, use, new)
            else:
                number = self.owner[use.origins[0].cause]
                self.findings[number] = replace(self.findings[number], more=self.findings[number].more + 1)

    def _uses(self, run: PathRun, tracer: Tracer) -> Iterable[_Use]:
        """Failures not seen yet, by operand, in the order of the path."""
        uses: dict[tuple[int, int, str], _Use] = {}
        for failure in run.failures:
            identity = _identity(failure.goal)
            if identity in self.explained:
                continue
            self.explained.add(identity)
            operand = _operand(self.product, failure.goal)
            origins = tracer.origins(failure)
            key = (failure.event, -1 if operand is None else operand.number, origins.cause[0])
            use = uses.setdefault(key, _Use([], [], operand))
            use.failures.append(failure)
            use.origins.append(origins)
        return uses.values()

    def _add(self, run: PathRun, tracer: Tracer, use: _Use, new: list[int]) -> None:
        failure, origins = use.failures[new[0]], use.origins[new[0]]
        for number in new:
            self.owner[use.origins[number].cause] = len(self.findings)
        goal = failure.goal
        grain = tracer.grain(failure)
        place, name = key_name(goal.post_key, grain), key_name(goal.pre_key, grain)
        expected = origins.brief_expected if place == name else f"{name}, {origins.brief_expected}"
        finding = _finding(self.product, goal, _message(goal, grain, expected, origins.brief_found))
        visits = (run.events[e][0] if e >= 0 else 0 for e in (origins.first, failure.event))
        first, last = visits
        blocks = self.product.post.blocks
        self.findings.append(
            replace(
                finding,
                block=failure.block,
                operand=use.operand,
                lane=_lanes(use.failures[n].goal.pre_key for n in new) if 0 <= goal.pre_key < STACK else "",
                expected=origins.expected,
                found=origins.found,
                lost=origins.lost,
                elsewhere=tracer.holders(failure) if goal.post >= 0 else (),
                path=tuple(f"bb.{blocks[b].number}" for b in run.path[first : last + 1]),
            )
        )


def _lanes(keys: Iterable[int]) -> str:
    """``lane sub1``, ``lanes sub0, sub1`` of a virtual register."""
    names = sorted({key_name(k, 2).partition(".")[2] for k in keys}, key=lambda n: int(n.removeprefix("sub")))
    return f"lane{'s' if len(names) > 1 else ''} {', '.join(names)}"


_OF_LIVENESS = frozenset({"kill-flag", "dead-flag", "live-in"})


def by_cause(explained: list[Finding], others: list[Finding]) -> list[Finding]:
    """Findings with causes before their consequences, otherwise in the order given.

    A missing instruction makes values wrong. A wrong value is seen on a path. A register that is read where nobody
    wrote it makes flags and live-ins wrong. Where the code itself is wrong, findings about values without a path are
    left out: an execution of both sides behind the wrong code shows little.

    Args:
        explained: findings about values, from ``explain_failures``.
        others: all others.
    """

    def rank(finding: Finding) -> int:
        if finding.outcome is not Outcome.REFUTED:
            return 4
        if finding.rule in _OF_LIVENESS:
            return 3
        if finding.rule not in _OF_GOALS:
            return 0
        return 1 if finding.path else 2

    code_is_wrong = any(rank(f) == 0 for f in others)
    return sorted([*(f for f in explained if f.path or not code_is_wrong), *others], key=rank)


def explain_failures(product: Product, failed: list[FailedGoal]) -> list[Finding]:
    """Findings for failed goals: one for each cause, the one that comes first on its path first.

    Must not run while the product is being checked: it uses the product's executor.
    """
    if not failed:
        return []
    gravest_first = sorted(failed, key=lambda f: f.local.outcome is not Outcome.REFUTED)
    try:
        return _explain_by_path(product, gravest_first)
    except VeriloccError:
        # The verdict stands, whatever an explanation meets in code that was not executed for it.
        return [replace(failure.local, block=failure.block) for failure in gravest_first[:_MAX_FINDINGS]]


def _explain_by_path(product: Product, failed: list[FailedGoal]) -> list[Finding]:
    effects = Effects(product)
    explainer = _Explainer(product, effects, PathSearch(product, effects))
    unexplained: list[Finding] = []
    dropped = 0
    for failure in failed:
        if len(explainer.findings) + len(unexplained) >= _MAX_FINDINGS:
            dropped += _identity(failure.goal) not in explainer.explained
            continue
        if _identity(failure.goal) in explainer.explained:
            continue
        if failure.goal.step.post is None or not explainer.explain(failure):
            unexplained.append(replace(failure.local, block=failure.block))
    findings = (explainer.findings + unexplained)[:_MAX_FINDINGS]
    if dropped or len(explainer.findings) + len(unexplained) > _MAX_FINDINGS:
        findings.append(
            Finding(findings[0].rule, findings[0].outcome, "there are more findings; fix the ones listed here first")
        )
    return findings
