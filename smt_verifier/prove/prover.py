"""The constraint check, with its theorem.

Theorem
-------
*Assume* the problem's facts: its live ranges (lanes and segments), fixed occupations, budgets, special registers and
register classes describe the function, which ``audit`` does not assume and checks by other means; and its shape is what
``wellformed`` checks. *If* ``prove`` answers PROVED, *then* the proposal is an allocation for it:

* ``complete``, ``well-formed``, ``width``: every live range *i* has one register of exactly its size, so lane *k* of it
  is in unit ``u_i + k``;
* ``class-membership``, ``alignment``, ``reserved``, ``budget``: that register is one that LLVM may hand out for the
  operands of *i* in this function;
* ``interference``: for all live ranges *i* ≠ *j*, lanes *k*, *m* and slots *t*: if lane *k* of *i* and lane *m* of *j*
  are live at *t*, then ``u_i + k ≠ u_j + m``;
* ``fixed``: if lane *k* of *i* is live at *t*, then no fixed occupation has ``u_i + k`` at *t*.

Early-clobber is part of ``interference`` by the numbering of slots, tied operands are one live range, a call's
clobbers are fixed occupations.

Proof: all goals follow from ``u_i``, ``n_i`` as proposed (Z3, in QF_BV), and the goals of ``interference`` and
``fixed`` imply their statements for *all* pairs by the lemma in ``occupancy``, whose premise (nothing was left out of
the files) is counted here.
"""

from __future__ import annotations

from smt_verifier.outcome import Outcome
from smt_verifier.prove.case import Case, build_case
from smt_verifier.prove.constraints import RULES, Goal
from smt_verifier.prove.constraints.base import word
from smt_verifier.prove.result import MAX_VIOLATIONS, ProofResult, Violation
from smt_verifier.prove.wellformed import input_fault, unknown_class
from smt_verifier.smt import Obligation, Solver, default_solver
from verilocc_mlir.errors import InputError
from verilocc_mlir.problem.model import AllocationProblem, Proposal


def prove(
    problem: AllocationProblem, proposal: Proposal, *, timeout_s: float = 30.0, solver: Solver | None = None
) -> ProofResult:
    """Check a proposal against every constraint of its problem.

    Args:
        proposal: the register of each live range, by id.
        timeout_s: seconds for each question to the solver; UNKNOWN after that.
        solver: another back end than Z3.

    Returns:
        The outcome, and for REFUTED each violated constraint by name. Nothing the inputs say raises.
    """
    if reason := unknown_class(problem):
        return ProofResult(Outcome.UNKNOWN, 0, reason=reason)
    if fault := input_fault(problem, proposal):
        return ProofResult(Outcome.INVALID, 0, reason=fault)
    case = build_case(problem, proposal)
    if reason := _unfiled_lanes(case):
        return ProofResult(Outcome.UNKNOWN, 0, reason=reason)
    goals = [rule.goals(case) for rule in RULES]
    obligation = _obligation(case, goals)
    verdict = (solver or default_solver()).check(obligation, timeout_s, exhaustive=True)
    if verdict.outcome is not Outcome.REFUTED:
        return ProofResult(verdict.outcome, len(obligation.goals), reason=verdict.reason)
    violations, truncated = _explain(case, goals, frozenset(verdict.violated))
    reason = verdict.reason if violations else f"false, and not explained: {', '.join(verdict.violated)}"
    return ProofResult(Outcome.REFUTED, len(obligation.goals), violations, truncated, reason)


def obligation_for(problem: AllocationProblem, proposal: Proposal) -> Obligation:
    """The obligation that ``prove`` discharges, to write out or to give to another solver.

    Raises:
        InputError: the problem is not one, has a class that is not known, or the proposal does not answer it.
    """
    if fault := unknown_class(problem) or input_fault(problem, proposal):
        raise InputError(fault, where=f"{problem.function}, phase {problem.phase}")
    case = build_case(problem, proposal)
    return _obligation(case, [rule.goals(case) for rule in RULES])


def _obligation(case: Case, goals: list[list[Goal]]) -> Obligation:
    definitions = "".join(rule.definitions(case) for rule in RULES)
    return Obligation(
        name=f"prove/{case.problem.function}/{case.problem.phase}",
        logic="QF_BV",
        script=_proposal_definitions(case) + definitions,
        goals=tuple((goal.name, goal.term) for of_rule in goals for goal in of_rule),
    )


def _proposal_definitions(case: Case) -> str:
    """What the proposal says. Defined, not declared and asserted: Z3 then decides ten times as fast."""
    lines: list[str] = []
    for i, (name, register) in enumerate(zip(case.proposal.registers, case.registers, strict=True)):
        lines.append(
            f"(define-fun named{i} () Bool {_truth(name != '')})"
            f"(define-fun known{i} () Bool {_truth(register is not None)})"
            f"(define-fun u{i} () (_ BitVec 16) {word(case.first_unit(i))})"
            f"(define-fun n{i} () (_ BitVec 16) {word(len(register.units) if register else 0)})\n"
        )
    return "".join(lines)


def _truth(holds: bool) -> str:
    return "true" if holds else "false"


def _unfiled_lanes(case: Case) -> str:
    """The premise of the lemma: as many entries in the files as there are (lane, segment) pairs to place."""
    expected = sum(
        group.lanes.bit_count() * len(group.segments) for live in case.located_ranges() for group in live.groups
    )
    filed = case.occupancy.filed
    return "" if filed == expected else f"defect: {filed} of {expected} lane segments were laid out"


def _explain(case: Case, goals: list[list[Goal]], violated: frozenset[str]) -> tuple[tuple[Violation, ...], bool]:
    result: list[Violation] = []
    for rule, of_rule in zip(RULES, goals, strict=True):
        false = [goal for goal in of_rule if goal.name in violated]
        violations = rule.explain(case, false, MAX_VIOLATIONS + 1 - len(result))
        result += sorted(violations, key=lambda v: (v.slot, v.ranges))
    return tuple(result[:MAX_VIOLATIONS]), len(result) > MAX_VIOLATIONS
