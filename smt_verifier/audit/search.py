"""The search for a proof of one function: pairings and claims are proposed here, ``core`` judges them. Untrusted.

Any pairing and any claims under which ``core`` proves everything are a proof. Where the first ones fail, others are
tried: equal instructions paired in another order, classes of threads told apart less finely, threads that were not
active at function entry followed too.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from msgspec.structs import replace

from smt_verifier.audit.align import align, anchor_key
from smt_verifier.audit.core.judge import Sides, judge_liveness, judge_module, judge_structure, judge_values, sides_of
from smt_verifier.audit.core.masks import OutsideError, Precision, TooManyClassesError
from smt_verifier.audit.core.pairs import Step, operation_name
from smt_verifier.audit.core.product import Product, instructions_of
from smt_verifier.audit.core.report import Finding, FunctionAudit, GoalCounts, MoveCounts, moves_between
from smt_verifier.audit.core.rules import MachineRules
from smt_verifier.audit.core.semantics import acts_alone, is_pure
from smt_verifier.audit.core.undefined_inputs import rests_on_values, undecided, with_equal_undefined_inputs
from smt_verifier.audit.explain import by_cause, explain_failures, local_finding
from smt_verifier.audit.infer import infer
from smt_verifier.audit.reads import explain_faults
from smt_verifier.outcome import Outcome, combine
from smt_verifier.smt import Solver
from verilocc_mlir.mir.model import MachineFunction, MirFile
from verilocc_mlir.target.targets import Target


def search_proof(
    file: MirFile,
    pre: MachineFunction,
    post: MachineFunction,
    target: Target,
    timeout_s: float,
    solver: Solver,
    *,
    saved_later: bool = False,
) -> FunctionAudit:
    """The verdict on one function, by the first proposal that is proved, else by the first one of all.

    Raises:
        UnsupportedError: the code does something the audit does not follow.
        VeriloccError: a text is not what it claims to be.
    """
    function_audit = _try_pairings(sides_of(file, pre, post, target, saved_later=saved_later), timeout_s, solver)
    if rests_on_values(function_audit, post):
        before, after = with_equal_undefined_inputs(pre), with_equal_undefined_inputs(post)
        if before is not None and after is not None:
            sides = sides_of(file, before, after, target, saved_later=saved_later)
            assumed = _try_pairings(sides, timeout_s, solver)
            return undecided(function_audit, assumed)
    return function_audit


@dataclass(frozen=True, slots=True)
class _Plan:
    """What an attempt takes otherwise than the first one does.

    Attributes:
        unpaired: lines of pure pre-RA instructions that have no partner.
        later: for such lines, how many instructions like the first partner are passed over (``align``).
        outside: threads that were not active at function entry are a class of their own.
    """

    unpaired: frozenset[int] = frozenset()
    later: Mapping[int, int] = field(default_factory=dict[int, int])
    outside: bool = False


_MOST_MOVES = 3
"""How often the partner of a pure instruction is looked for further down."""


def _try_pairings(sides: Sides, timeout_s: float, solver: Solver) -> FunctionAudit:
    pre, post = sides.pre, sides.post
    if sides.findings:
        outcome = combine(f.outcome for f in sides.findings)
        return FunctionAudit(pre.name, outcome, len(sides.findings), sides.findings, MoveCounts())
    function_audit, missed_outside = _try_precisions(sides, timeout_s, solver, _Plan())
    plan = _Plan(outside=missed_outside)
    if missed_outside and (function_audit.outcome is Outcome.UNKNOWN or rests_on_values(function_audit)):
        again, _ = _try_precisions(sides, timeout_s, solver, plan)
        if _right_for_threads(again):
            return again
    # Any pairing will do if it is proved; equal instructions in a row may have been paired the wrong way.
    wrong = _maybe_mispaired(pre, post, function_audit) if rests_on_values(function_audit) else Mispaired()
    if wrong.alike:
        again, _ = _try_precisions(sides, timeout_s, solver, dataclasses.replace(plan, unpaired=wrong.alike))
        if _right_for_threads(again):
            return again
    moves = Counter[int]()
    while wrong.lines and max(moves.values(), default=0) < _MOST_MOVES:
        moves.update(wrong.lines)
        again, _ = _try_precisions(sides, timeout_s, solver, dataclasses.replace(plan, later=dict(moves)))
        if _right_for_threads(again):
            return again
        wrong = _maybe_mispaired(pre, post, again)
    return function_audit


def _try_precisions(sides: Sides, timeout_s: float, solver: Solver, plan: _Plan) -> tuple[FunctionAudit, bool]:
    """Try each precision: all comparisons of masks where that is little work; else a few comparisons, which prove most
    functions with many classes; else all comparisons again. What fails with a few comparisons only is undecided.

    Returns:
        The verdict, and whether another one may come of it if threads from outside are a class of their own.
    """
    coarse: tuple[FunctionAudit, bool] | None = None
    for precision in Precision:
        while True:
            try:
                attempt = _attempt(sides, timeout_s, solver, plan, precision=precision)
            except OutsideError:
                plan = dataclasses.replace(plan, outside=True)
                continue
            except TooManyClassesError:
                if precision is Precision.FINE and coarse is None:
                    raise
                break
            if precision is not Precision.COARSE or _right_for_threads(attempt[0]):
                return attempt
            coarse = attempt
            break
    assert coarse is not None
    return coarse


def _right_for_threads(function_audit: FunctionAudit) -> bool:
    """Whether all is proved, or all but the reading path by path, which no other attempt changes."""
    return all(f.rule == "path-by-path" for f in function_audit.findings)


class Mispaired(NamedTuple):
    """Lines of pure pre-RA instructions that may be paired with the wrong one, and of those like them beside them."""

    lines: frozenset[int] = frozenset()
    alike: frozenset[int] = frozenset()


def _maybe_mispaired(pre: MachineFunction, post: MachineFunction, function_audit: FunctionAudit) -> Mispaired:
    """Lines of pure pre-RA instructions that may be paired with the wrong one.

    Such an instruction reads a wrong value, and one side of its block has the same operation more than once. Without a
    partner, a result is identified by what it is computed from. Where that may be undefined, it needs the right one.
    """
    wrong = {f.pre_line: f.block for f in function_audit.findings if f.rule == "value" and f.pre_line and f.block >= 0}
    lines: set[int] = set()
    every: set[int] = set()
    for line, block in wrong.items():
        before, after = (
            [(i.line, anchor_key(i)) for i in side.blocks[block].instructions if is_pure(i)] for side in (pre, post)
        )
        name = next((key for at, key in before if at == line), None)
        if name is not None:
            alike = [at for at, key in before if key == name]
            if len(alike) > 1 or sum(key == name for _, key in after) > 1:
                lines.add(line)
                every.update(alike)
    return Mispaired(frozenset(lines), frozenset(every))


def _attempt(
    sides: Sides,
    timeout_s: float,
    solver: Solver,
    plan: _Plan,
    *,
    precision: Precision,
) -> tuple[FunctionAudit, bool]:
    unpaired = frozenset(id(i) for b in sides.pre.blocks for i in b.instructions if i.line in plan.unpaired)
    product = sides.product(_paired(sides, unpaired, plan.later), precision=precision, outside=plan.outside)
    rules = sides.rules(product)
    misfits = _wrongly_paired(sides.pre, product, rules)
    if misfits:
        steps = _paired(sides, unpaired | misfits, plan.later)
        product = sides.product(steps, precision=precision, outside=plan.outside)
        rules = sides.rules(product)
    obligations, findings = judge_structure(sides, product, rules)
    goals = GoalCounts()
    if not findings:
        # Most functions with many classes of threads can be proved without telling them apart.
        entries, united = infer(product, unite=True)
        suffix = "/united" * united
        checked = judge_values(product, entries, solver, timeout_s, local_finding, suffix=suffix, to_the_end=not united)
        if united and not checked.holds:
            product.executor.real_reads.clear()
            entries, _ = infer(product)
            checked = judge_values(product, entries, solver, timeout_s, local_finding)
        goals = checked.goals
        if checked.holds and product.knows_exec:
            of_paths, on_paths = _by_path(sides, product, solver, timeout_s)
            goals += of_paths
            findings += on_paths
        flagged = judge_liveness(sides, product)
        obligations += goals.total + flagged.checked
        findings += [*checked.findings, *explain_faults(product, flagged.faults)]
        explained = explain_failures(product, list(checked.failed))
        findings = by_cause(
            [_as_unknown(f) for f in explained] if precision is Precision.COARSE else explained, findings
        )
    outcome = combine(f.outcome for f in findings)
    function_audit = FunctionAudit(sides.pre.name, outcome, obligations, tuple(findings), _moves(product), goals)
    return function_audit, product.masks.missed_outside and not plan.outside


def _by_path(sides: Sides, product: Product, solver: Solver, timeout_s: float) -> tuple[GoalCounts, list[Finding]]:
    """How many goals there are where the same pairing is read path by path, as LLVM's passes behind allocation read it,
    and what is not proved then.
    """
    paths = sides.product(product.steps, by_path=True)
    entries, _ = infer(paths)
    checked = judge_values(paths, entries, solver, timeout_s, local_finding, suffix="/paths")
    failed = by_cause(explain_failures(paths, list(checked.failed)), list(checked.findings))
    return checked.goals, [f if f.outcome is Outcome.INVALID else _wrong_on_a_path(f) for f in failed]


def _wrong_on_a_path(finding: Finding) -> Finding:
    message = f"right thread by thread, but: {finding.message}"
    return replace(finding, rule="path-by-path", outcome=Outcome.UNKNOWN, message=message)


def _as_unknown(finding: Finding) -> Finding:
    """A goal that fails where threads are told apart less finely than the masks do decides nothing."""
    message = f"there are too many classes of threads to tell them all apart, and without that: {finding.message}"
    return replace(finding, outcome=Outcome.UNKNOWN, message=message)


def _paired(sides: Sides, unpaired: frozenset[int], later: Mapping[int, int]) -> list[list[Step]]:
    """A pairing of each block; pre-RA instructions of ``apart``, by ``id``, stand alone."""
    return [
        [part for step in align(a.instructions, b.instructions, later) for part in _split(step, unpaired)]
        for a, b in zip(sides.pre.blocks, sides.post.blocks, strict=True)
    ]


def _split(step: Step, unpaired: frozenset[int]) -> list[Step]:
    return [Step(step.pre, None), Step(None, step.post)] if id(step.pre) in unpaired and step.post else [step]


def _wrongly_paired(pre: MachineFunction, product: Product, rules: MachineRules) -> frozenset[int]:
    """Pre-RA instructions, by ``id``, whose partner repeats another instruction of the same operation.

    Equal instructions in a row (constants for the lanes of a tuple) pair in order; that may be the wrong order.
    """
    misfits = [s for steps in product.steps for s in steps if rules.misfits(s)]
    names = {id(s.post): operation_name(s.post, product.post_lanes) for s in misfits if s.post}
    originals = instructions_of(pre, product.pre_lanes, set(names.values()))
    return frozenset(
        id(s.pre)
        for s in misfits
        if s.post and rules.repeats(s.post, [i for i in originals.get(names[id(s.post)], ()) if i is not s.pre])
    )


def _moves(product: Product) -> MoveCounts:
    rematerialised = [
        s for steps in product.steps for s in steps if s.pre is None and s.post is not None and not acts_alone(s.post)
    ]
    return moves_between(product.pre, product.post, len(rematerialised))


def with_module(function_audit: FunctionAudit, pre: MirFile, post: MirFile, target: Target) -> FunctionAudit:
    """Add what the module's own text shows about the function."""
    findings = judge_module(function_audit.function, pre, post, target)
    outcome = combine((function_audit.outcome, *(f.outcome for f in findings)))
    return replace(function_audit, outcome=outcome, findings=(*function_audit.findings, *findings))
