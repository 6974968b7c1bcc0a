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

Proof: all goals follow from ``u_i``, ``n_i`` as proposed (Z3, in QF_BV; these are all given, so one counterexample has
every goal that is false), and the goals of ``interference`` and ``fixed`` imply their statements for *all* pairs by the
lemma in ``occupancy``, whose premise (nothing was left out of the files) is counted here.
"""

from __future__ import annotations

from smt_verifier.outcome import Outcome
from smt_verifier.prove.case import MAX_VIOLATIONS, Case, ProofResult, Violation, build_case
from smt_verifier.prove.constraints import RULES, Goal, word
from smt_verifier.prove.occupancy import BANKS
from smt_verifier.smt import Obligation, Solver, default_solver
from verilocc_mlir.errors import InputError, VeriloccError
from verilocc_mlir.problem.model import PROBLEM_VERSION, AllocationProblem, LiveRange, Proposal, Segment
from verilocc_mlir.target.classes import register_class
from verilocc_mlir.target.registers import physical_register


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
    verdict = (solver or default_solver()).check(obligation, timeout_s)
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


# Whether problem and proposal have the shape that the theorem assumes.


MAX_SLOT = 2**31
"""Slots are 32-bit unsigned numbers in the obligations."""


def input_fault(problem: AllocationProblem, proposal: Proposal) -> str:
    """Why this is not a problem with an answer; empty where it is. Every register class must be a known one."""
    if problem.version != PROBLEM_VERSION or proposal.version != PROBLEM_VERSION:
        return f"version {problem.version} problem with version {proposal.version} proposal; this is {PROBLEM_VERSION}"
    if len(proposal.registers) != len(problem.ranges):
        return f"the proposal has {len(proposal.registers)} registers, the problem {len(problem.ranges)} live ranges"
    if not 0 <= problem.slots < MAX_SLOT:
        return f"{problem.slots} slots"
    return _budget_fault(problem) or _fixed_fault(problem) or _range_fault(problem)


def unknown_class(problem: AllocationProblem) -> str:
    """A register class that this version cannot read, in one sentence; empty where it knows them all."""
    for name in dict.fromkeys(live.register_class for live in problem.ranges):
        try:
            register_class(name)
        except VeriloccError as error:
            return error.what
    return ""


def _budget_fault(problem: AllocationProblem) -> str:
    banks = [budget.bank for budget in problem.budgets]
    if len(set(banks)) != len(banks) or not set(banks) <= set(BANKS):
        return f"budgets for the banks {', '.join(banks)}"
    for budget in problem.budgets:
        if any(not 0 <= number < 1024 for number in budget.registers):
            return f"a register number in the budget of {budget.bank} is out of range"
    for name in problem.special:
        try:
            physical_register(name)
        except VeriloccError as error:
            return error.what
    return ""


def _fixed_fault(problem: AllocationProblem) -> str:
    for occupation in problem.fixed:
        if fault := _segments_fault(occupation.segments, problem.slots):
            return f"fixed occupation ({occupation.reason}): {fault}"
    return ""


def _range_fault(problem: AllocationProblem) -> str:
    for position, live in enumerate(problem.ranges):
        if live.id != position:
            return f"live range {live.name} has id {live.id} at position {position}"
        if fault := _shape_fault(live) or _groups_fault(live, problem.slots):
            return f"live range {live.name}: {fault}"
    return ""


def _shape_fault(live: LiveRange) -> str:
    cls = register_class(live.register_class)
    if (live.width, live.lanes) != (cls.width, cls.lanes):
        return f"{live.width} registers, {live.lanes} lanes, but its class {cls.name} has {cls.width} and {cls.lanes}"
    if live.align not in (1, 2, 4, 8, 16):
        return f"alignment {live.align}"
    if live.limit < 0 or not set(live.banks) <= {*BANKS, "special"}:
        return f"limit {live.limit}, banks {', '.join(live.banks)}"
    return ""


def _groups_fault(live: LiveRange, slots: int) -> str:
    grouped = 0
    for group in live.groups:
        if group.lanes <= 0 or group.lanes >> live.lanes:
            return f"lane mask {group.lanes:#x} of {live.lanes} lanes"
        if group.lanes & grouped:
            return f"lanes {group.lanes & grouped:#x} are in two groups"
        grouped |= group.lanes
        if fault := _segments_fault(group.segments, slots):
            return fault
    return ""


def _segments_fault(segments: tuple[Segment, ...], slots: int) -> str:
    last = 0
    for start, end in segments:
        if not last <= start < end <= slots:
            return f"segment [{start}, {end}) is empty, out of order or outside the function's {slots} slots"
        last = end
    return ""
