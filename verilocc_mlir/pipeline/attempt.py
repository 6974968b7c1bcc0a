"""Attempts at one function in one phase: build, allocate, prove, rewrite. The audit comes after, on the text.

Where the registers do not suffice, or no place is found for a tuple, the function gets spill code and is tried again,
with a little more room each time.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from msgspec import Struct, field
from msgspec.structs import replace

from smt_verifier.audit import FunctionAudit
from smt_verifier.audit.wording import render
from smt_verifier.outcome import Outcome
from smt_verifier.prove import ProofResult, prove
from smt_verifier.smt import Solver
from verilocc_mlir.allocators import Allocator, Patient
from verilocc_mlir.analysis.lanes import virtual_classes
from verilocc_mlir.banks import in_vgprs
from verilocc_mlir.budget import OutOfSecondsError
from verilocc_mlir.errors import UnsupportedError
from verilocc_mlir.mir.model import MachineFunction, MirFile
from verilocc_mlir.mir.printer import print_mir, with_register_rows
from verilocc_mlir.pipeline.events import Events
from verilocc_mlir.problem.build import build_problem
from verilocc_mlir.problem.model import AllocationProblem, Phase, Proposal
from verilocc_mlir.results.compile import Attempt, CheckFinding, CheckResult
from verilocc_mlir.rewrite import arguments_in_place, rewrite_function
from verilocc_mlir.spilling import SpillAction
from verilocc_mlir.target.targets import Target

if TYPE_CHECKING:
    from smt_verifier.prove import Nearest
    from verilocc_mlir.spilling.relieve import Relieved, Spiller, Tight
    from verilocc_mlir.splitting.search import Stuck
import logging
import math
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

from verilocc_mlir.allocators import (
    AllocationFailure,
    Counterexample,
    ModelProposal,
    ModelUse,
    Partial,
    Reading,
    Refutation,
    Regenerating,
    Remote,
    ServedProposal,
    ServerAttempt,
)
from verilocc_mlir.crew.abandon import interruptible
from verilocc_mlir.errors import VeriloccError, is_out_of_memory

# The regeneration loop on one problem: propose, prove, feed counterexamples back, at most N times; then the next
# allocator.
#
# An allocator may come from another package. An exception that it raises, or an answer of the wrong form, ends its
# attempt with the reason. Lack of memory, interrupts and the end of the process are passed on.


DEFAULT_ATTEMPTS = 4
"""Proposals of one allocator, if it can try again."""

DEFECTS = logging.getLogger("verilocc.allocators")
"""Has the traceback of each exception that an allocator must not raise."""

_DEFECT = "defect"


class Proposed(Struct, frozen=True):
    """One attempt.

    Attributes:
        proposal: what it proposed; None if it did not.
        proof: the proof's answer; None if there was nothing to prove.
        reason: why there is no proposal, or ``""``.
        cause: ``AllocationFailure.reason`` of it, or ``""``.
        server: the address of the server that was asked, ``""`` for an allocator of this process.
        partial: ``AllocationFailure.partial`` of it.
        use: what a model of this process did for it; None without one.
        tries: of the server that was asked.
        nearest: a proved assignment near it, where it was refuted.
    """

    allocator: str
    version: str
    proposal: Proposal | None
    proof: ProofResult | None
    reason: str = ""
    cause: str = ""
    server: str = ""
    partial: Partial | None = None
    use: ModelUse | None = None
    tries: tuple[ServerAttempt, ...] = ()
    nearest: Nearest | None = None

    @property
    def proved(self) -> bool:
        return self.proof is not None and self.proof.outcome is Outcome.PROVED


def proposals(
    allocators: Sequence[Allocator],
    problem: AllocationProblem,
    prove: Callable[[Proposal], ProofResult],
    events: Events,
    *,
    attempts: int = DEFAULT_ATTEMPTS,
    text: Callable[[], str] | None = None,
) -> Iterator[Proposed]:
    """Attempts in order, made when they are asked for: the caller stops at the first that satisfies it.

    Args:
        allocators: the one wanted first, then what to fall back to.
        events: takes the CPU time, as ``allocate`` and ``prove``.
        attempts: proposals of each allocator that can try again; others are asked once, they would answer the same.
        text: gives the machine IR of which ``problem`` is the problem, for allocators that read it; None: there is
            none.
    """
    for allocator in allocators:
        refuted: tuple[Refutation, ...] = ()
        server = allocator.address if isinstance(allocator, Remote) else ""
        for _ in range(attempts if isinstance(allocator, Regenerating) else 1):
            try:
                with events.measure("allocate"), interruptible():
                    proposal = _propose(allocator, problem, refuted, text)
            except Exception as error:
                if is_out_of_memory(error):
                    raise
                reason, cause = _failure(allocator, error)
                failure = error if isinstance(error, AllocationFailure) else AllocationFailure("", reason="")
                yield Proposed(
                    allocator.name, allocator.version, None, None, reason, cause, server, failure.partial, failure.use,
                    failure.tries,
                )  # fmt: skip
                break
            with events.measure("prove"):
                proof = prove(proposal)
                refutation, nearest = _refuted(problem, proposal, proof)
            use = proposal.use if isinstance(proposal, ModelProposal) else None
            tries = proposal.tries if isinstance(proposal, ServedProposal) else ()
            yield Proposed(
                allocator.name, allocator.version, proposal, proof, server=server, use=use, tries=tries, nearest=nearest
            )
            refuted = (*refuted, refutation)


def _propose(
    allocator: Allocator,
    problem: AllocationProblem,
    refuted: tuple[Refutation, ...],
    text: Callable[[], str] | None,
) -> Proposal:
    if refuted and isinstance(allocator, Regenerating):
        return _checked(allocator.regenerate(problem, refuted))
    if text is not None and isinstance(allocator, Reading):
        return _checked(allocator.allocate_text(text(), problem))
    return _checked(allocator.allocate(problem))


def _checked(proposal: object) -> Proposal:
    """The proposal, if its fields are what they are said to be; how many registers there are, and which, is proved.

    Raises:
        AllocationFailure: they are not.
    """
    if not isinstance(proposal, Proposal):
        raise AllocationFailure(f"it gave no Proposal: {type(proposal).__name__}", reason=_DEFECT)
    if type(proposal.registers) is not tuple:
        raise AllocationFailure(f"its registers are no tuple: {type(proposal.registers).__name__}", reason=_DEFECT)
    kinds = {type(name).__name__ for name in proposal.registers} - {"str"}
    if kinds:
        raise AllocationFailure(f"its registers are no names: {', '.join(sorted(kinds))}", reason=_DEFECT)
    return proposal


def _failure(allocator: Allocator, error: Exception) -> tuple[str, str]:
    """The reason and the cause of an attempt that an exception ended."""
    if isinstance(error, AllocationFailure):
        return error.what, error.reason
    if isinstance(error, VeriloccError):
        return error.what, ""
    DEFECTS.error("allocator %s", allocator.name, exc_info=error)
    place = traceback.extract_tb(error.__traceback__)[-1]
    # Not in the exception's own words, which may be anything: they are in the log.
    return f"a defect of the allocator: {type(error).__name__} at {Path(place.filename).name}:{place.lineno}", _DEFECT


def refutation_of(problem: AllocationProblem, proposal: Proposal, proof: ProofResult) -> Refutation:
    """What an allocator is told of a proposal that is not proved: the verifier's violations, without those that others
    imply, which live ranges must move, and a proved assignment that is near.
    """
    return _refuted(problem, proposal, proof)[0]


def _refuted(problem: AllocationProblem, proposal: Proposal, proof: ProofResult) -> tuple[Refutation, Nearest | None]:
    if proof.outcome is not Outcome.REFUTED:
        return Refutation(proposal, ()), None
    counterexamples = tuple(
        Counterexample(v.rule, v.ranges, v.slot, v.lanes, v.registers, v.free) for v in proof.core or proof.violations
    )
    from smt_verifier.prove import diagnose

    diagnosis = diagnose(problem, proposal, proof)
    moves = tuple(move.range_id for move in diagnosis.moves)
    near = diagnosis.nearest.moves if diagnosis.nearest is not None else ()
    told = tuple((move.id, move.register) for move in near)
    return Refutation(proposal, counterexamples, moves, told), diagnosis.nearest


_FINDINGS_KEPT = 20
_FOR_LACK_OF_ROOM = ("pressure", "fragmentation", "infeasible")

SPARE_REGISTERS = (0, 2, 4, 8, 16, 24, 32, 64)
"""Registers left free at every point when spilling, tried in this order: tuples need room to be placed. Of large
functions every other one is tried, from the third on."""

STEPS = 8
"""How often a little more is spilled where a range finds no room, before more is spilled everywhere."""

ALIKE = 1.02
"""Where a little more room costs at most so many times as much, less room is not tried: each try takes as long as an
allocation."""

COPIED = 0.2
"""Cost of a copy from register to register, against 1 for storing or loading one."""

LEAVE = 4
"""Registers that loads ahead of their use leave free then."""

ENOUGH = 8
"""Registers left free everywhere with which most functions find room."""

WORTH_STEPS = 0.08
"""What more room everywhere must cost, of all that is stored and reloaded, for steps to be tried: each takes as long as
an allocation."""


class Attempted(Struct, frozen=True):
    """What became of one function: all attempts in order, and the last one's result where it got that far.

    Attributes:
        attempts: as they are reported.
        proposed: the same as they were made; one fewer if the problem could not be built.
        problem: the question of the last attempt, None if none could be built.
        function: the function with its registers, None if no attempt was proved and rewritten.
        spills: what was spilled for the last attempt.
        is_too_dear: more would have to be spilled than ``AttemptLimits.most_spilled``.
    """

    attempts: tuple[Attempt, ...]
    proposed: tuple[Proposed, ...] = ()
    problem: AllocationProblem | None = None
    function: MachineFunction | None = None
    spills: tuple[SpillAction, ...] = ()
    is_too_dear: bool = False

    @property
    def lacks_room(self) -> bool:
        """Whether the last attempt ended because there were not enough registers, or none together for a tuple."""
        return self.function is None and bool(self.proposed) and self.proposed[-1].cause in _FOR_LACK_OF_ROOM


class SpillLimits(Struct, frozen=True):
    """How registers are spilled.

    Attributes:
        spare: registers left free at every point, each tried in turn; none: nothing is spilled.
        load_ahead: load what was spilled before it is used, where registers are free.
        accumulators: copy to free AGPRs before memory is used.
        steps: how often a little more is spilled just where a range that is split finds no room.
    """

    spare: tuple[int, ...] = SPARE_REGISTERS
    load_ahead: bool = True
    accumulators: bool = True
    steps: int = STEPS

    def is_due(self, attempted: Attempted, tries: int) -> bool:
        """Whether so much is spilled, after ``tries`` with less: where there is no room."""
        return attempted.lacks_room


class SpillForWaves(SpillLimits, frozen=True):
    """Spilled at once, also where everything fits: with fewer registers there are more waves."""

    steps: int = 0

    def is_due(self, attempted: Attempted, tries: int) -> bool:
        """As for ``SpillLimits``, and in any case once."""
        return attempted.lacks_room or not tries


class AttemptLimits(Struct, frozen=True):
    """``solver_seconds`` for one question to ``solver`` (None: the default one); ``attempts`` of an allocator that can
    try again; ``spills``: what is done where registers do not suffice, ``most_spilled``: as long as no more registers
    are stored and reloaded, by estimated executions; ``same_text``: nothing is spilled, and no instruction changed, so
    that the assignment is one of the text as it is.
    """

    solver_seconds: float
    attempts: int = DEFAULT_ATTEMPTS
    solver: Solver | None = None
    spills: SpillLimits = field(default_factory=SpillLimits)
    most_spilled: float = math.inf
    same_text: bool = False


class Start(Struct):
    """Attempts at a function as it is, which come before any spill code, and what spills it.

    Those who spill in different ways share it: these attempts end for all of them alike.

    Attributes:
        stuck: where the last of them found no room for a range, split or whole; None: it was not tried so.
    """

    attempted: Attempted
    source: MachineFunction
    problem: AllocationProblem | None = None
    spiller: Spiller | None = None
    stuck: Stuck | None = None


def try_allocators(
    allocators: Sequence[Allocator],
    file: MirFile,
    function: MachineFunction,
    target: Target,
    phase: Phase,
    events: Events,
    limits: AttemptLimits,
    start: Start | None = None,
) -> Attempted:
    """Let the allocators place the phase's registers of ``function``, until a proposal is proved and rewritten.

    Errors that mean "not by this allocator" end an attempt with their reason; all others are raised.

    Args:
        start: of the same function, with the same allocators; None: it is made here.
    """
    start = start or begin(allocators, file, function, target, phase, events, limits)
    attempted, source = start.attempted, start.source
    problem = start.problem
    if limits.same_text or problem is None or not limits.spills.spare or not limits.spills.is_due(attempted, 0):
        return attempted
    with events.measure("spill"):
        spiller = start.spiller = start.spiller or _spiller(source, problem, target)
    held: Attempted | None = None
    spares = limits.spills.spare
    if problem.is_large:
        spares = spares[2::2] or spares[-1:]
    tries = 0
    try:
        for spare, next_spare in zip(spares, (*spares[1:], None), strict=True):
            if events.budget.is_over or not limits.spills.is_due(attempted, tries):
                break
            if held is not None and problem.is_large:
                break
            if next_spare is not None and not problem.is_large:
                with events.measure("spill"):
                    cost = spiller.cost(spare, accumulators=limits.spills.accumulators)
                    more = spiller.cost(next_spare, accumulators=limits.spills.accumulators)
                if 0 < more <= ALIKE * cost < math.inf:
                    continue
            with events.measure("spill"):
                relieved = spiller.relieve(
                    spare, ahead=limits.spills.load_ahead, accumulators=limits.spills.accumulators
                )
            if relieved is None or (held is not None and relieved.cost >= _burden(held)):
                break
            if sum(action.cost for action in relieved.actions if action.kind == "spill") > limits.most_spilled:
                attempted = replace(attempted, is_too_dear=True)
                break
            tries += 1
            if not relieved.actions and (tries > 1 or attempted.proposed[-1].partial is None):
                continue
            if relieved.actions:
                with events.measure("build"):
                    smaller = build_problem(file, relieved.function, target, phase)
                last = spare == spares[-1]
                chosen = allocators if last else [a.hurried() if isinstance(a, Patient) else a for a in allocators]
                whole = again = _try(chosen, file, relieved.function, smaller, target, events, limits)
            else:
                # That function was tried, and split.
                whole = again = replace(attempted, attempts=(), proposed=attempted.proposed[-1:])
            if held is None:
                splits = _Splits(file, target, phase, events, limits, start.stuck)
                if relieved.actions:
                    again = splits.after(whole, relieved.function)
                if again.lacks_room and tries == 1 and limits.spills.steps and not problem.is_large:
                    again, relieved = splits.with_room(again, spiller, relieved, spare)
            if again is whole and not relieved.actions:
                continue
            result = replace(_after(attempted, again), spills=(*relieved.actions, *relieved.of_before(again.spills)))
            if again.spills and relieved.actions:
                # A little more spilled may cost less than many copies.
                held, attempted = result, _after(attempted, whole)
            else:
                attempted = result
    except OutOfSecondsError:
        if held is None and attempted.function is None:
            raise
    if held is not None and (attempted.function is None or _burden(attempted) >= _burden(held)):
        return held
    return attempted


def _burden(attempted: Attempted) -> float:
    """Stores and loads of 32-bit registers by estimated executions; a copy counts a fifth of one."""
    return sum(COPIED * a.cost if a.kind == "split" else a.cost for a in attempted.spills)


class _Splits(Struct):
    """Attempts in which ranges without a place are split.

    Attributes:
        stuck: where the last of them found no room.
    """

    file: MirFile
    target: Target
    phase: Phase
    events: Events
    limits: AttemptLimits
    stuck: Stuck | None = None

    def after(self, attempted: Attempted, source: MachineFunction) -> Attempted:
        """The attempts at ``source`` with a further one, where there was not room for all."""
        last = attempted.proposed[-1] if attempted.lacks_room else None
        self.stuck = None
        if last is None or last.partial is None or attempted.problem is None:
            return attempted
        from verilocc_mlir.spilling.ground import ground
        from verilocc_mlir.splitting.search import Laid, Stuck, split

        with self.events.measure("spill"):
            result = split(ground(source, attempted.problem, self.target), last.partial)
        if isinstance(result, Stuck):
            self.stuck = result
            return attempted
        with self.events.measure("build"):
            problem = build_problem(self.file, result.function, self.target, self.phase)
        laid = Laid(last.allocator, last.version, result.registers)
        again = _try((laid,), self.file, result.function, problem, self.target, self.events, self.limits)
        return attempted if again.function is None else replace(_after(attempted, again), spills=result.actions)

    def with_room(
        self, attempted: Attempted, spiller: Spiller, relieved: Relieved, spare: int
    ) -> tuple[Attempted, Relieved]:
        """The same, with a little more spilled just where a range finds no room, as long as that is less than what more
        room at every point costs.
        """
        last, spills, first = attempted.proposed[-1], self.limits.spills, relieved
        tight: Tight = ()
        try:
            everywhere = spiller.relieve(min((s for s in spills.spare if s >= spare + ENOUGH), default=spare))
            if everywhere is None or everywhere.cost <= (1 + WORTH_STEPS) * relieved.cost:
                return attempted, first
            for _ in range(spills.steps):
                if self.stuck is None or last.partial is None or self.events.budget.is_over:
                    break
                at = relieved.text.origins[self.stuck.index]
                around = max(at - 3, 0), at + 1
                tight = (*tight, (*around, relieved.least_free(*around) + 2))
                with self.events.measure("spill"):
                    more = spiller.relieve(
                        spare, ahead=spills.load_ahead, accumulators=spills.accumulators, tight=tight, leave=LEAVE
                    )
                if more is None or more.cost > everywhere.cost:
                    break
                relieved = more
                with self.events.measure("build"):
                    problem = build_problem(self.file, relieved.function, self.target, self.phase)
                # Nothing has a place yet: what the allocator found is of another text.
                nowhere = replace(last.partial, registers=("",) * len(problem.ranges))
                without_places = replace(attempted, proposed=(replace(last, partial=nowhere),), problem=problem)
                again = self.after(without_places, relieved.function)
                if again.function is not None:
                    return again, relieved
        except OutOfSecondsError:
            pass  # What was placed with less room stands.
        return attempted, first


def begin(
    allocators: Sequence[Allocator],
    file: MirFile,
    function: MachineFunction,
    target: Target,
    phase: Phase,
    events: Events,
    limits: AttemptLimits,
) -> Start:
    """The attempts at a function as it is."""
    source = function if limits.same_text else _banked(function, target, phase)
    try:
        with events.measure("build"):
            problem = build_problem(file, source, target, phase)
    except UnsupportedError as error:
        return Start(Attempted((Attempt(allocators[0].name, "build", error.what),)), source)
    source, problem = (source, problem) if limits.same_text else _in_place(file, source, problem, target, phase, events)
    attempted = _try(allocators, file, source, problem, target, events, limits)
    if attempted.lacks_room and source is not function:
        # Both files together have more room, and so has a function whose arguments may move.
        source = function
        with events.measure("build"):
            problem = build_problem(file, source, target, phase)
        attempted = _after(attempted, _try(allocators, file, source, problem, target, events, limits))
    splits = _Splits(file, target, phase, events, limits)
    if limits.spills.spare and not limits.same_text:
        attempted = splits.after(attempted, source)
    return Start(attempted, source, problem, stuck=splits.stuck)


def _in_place(
    file: MirFile, source: MachineFunction, problem: AllocationProblem, target: Target, phase: Phase, events: Events
) -> tuple[MachineFunction, AllocationProblem]:
    """The function with arguments of calls that stay where they are, and its problem."""
    with events.measure("build"):
        changed = arguments_in_place(file, source, problem, target)
        return (source, problem) if changed is None else (changed, build_problem(file, changed, target, phase))


def _spiller(source: MachineFunction, problem: AllocationProblem, target: Target) -> Spiller:
    # Most functions need no spill code.
    from verilocc_mlir.spilling.relieve import Spiller

    return Spiller(source, problem, target)


def _banked(function: MachineFunction, target: Target, phase: Phase) -> MachineFunction:
    """The function with a file chosen for each value that may live in either."""
    if phase != "vgpr" or not target.unified_vgpr:
        return function
    return in_vgprs(function, virtual_classes(function)) or function


def _after(earlier: Attempted, later: Attempted) -> Attempted:
    return replace(
        later,
        attempts=(*earlier.attempts, *later.attempts),
        proposed=(*earlier.proposed, *later.proposed),
    )


def _try(
    allocators: Sequence[Allocator],
    file: MirFile,
    function: MachineFunction,
    problem: AllocationProblem,
    target: Target,
    events: Events,
    limits: AttemptLimits,
) -> Attempted:
    """Each allocator on ``problem``, which is that of ``function``."""

    def check(proposal: Proposal) -> ProofResult:
        return prove(problem, proposal, timeout_s=limits.solver_seconds, solver=limits.solver)

    attempts: list[Attempt] = []
    proposed_so_far: list[Proposed] = []
    text = partial(text_of, file, function)
    for proposed in proposals(allocators, problem, check, events, attempts=limits.attempts, text=text):
        proposed_so_far.append(proposed)
        whose = Attempt(
            proposed.allocator, "", server=proposed.server, version=proposed.version, model=proposed.use,
            tries=proposed.tries, nearest=proposed.nearest,
        )  # fmt: skip
        proof = proof_verdict(proposed.proof) if proposed.proof is not None else None
        if proposed.proposal is None or proof is None:
            attempts.append(replace(whose, ended="allocate", reason=proposed.reason, cause=proposed.cause))
            continue
        if not proposed.proved:
            attempts.append(replace(whose, ended="prove", reason=_first(proof), proof=proof))
            continue
        try:
            with events.measure("rewrite"):
                rewritten = rewrite_function(file, function, problem, proposed.proposal, target)
        except UnsupportedError as error:
            attempts.append(replace(whose, ended="rewrite", reason=error.what, proof=proof))
            continue
        attempts.append(replace(whose, ended="audit", proof=proof))
        return Attempted(tuple(attempts), tuple(proposed_so_far), problem, rewritten)
    return Attempted(tuple(attempts), tuple(proposed_so_far), problem)


def text_of(file: MirFile, function: MachineFunction) -> str:
    """Machine IR of the phase with ``function`` as it stands now in it; its problem is made of nothing else. The other
    functions' calls say what it must leave alone.
    """
    given = with_register_rows(function)
    return print_mir(replace(file, functions=tuple(given if f.name == given.name else f for f in file.functions)))


def proof_verdict(result: ProofResult) -> CheckResult:
    """``prove``'s answer in the report's form."""
    findings = [CheckFinding(v.rule, Outcome.REFUTED, v.message) for v in result.violations[:_FINDINGS_KEPT]]
    if result.reason:
        findings.append(CheckFinding("prove", result.outcome, result.reason))
    return CheckResult(result.outcome, result.obligations, tuple(findings))


def audit_verdict(result: FunctionAudit) -> CheckResult:
    """``audit``'s answer in the report's form."""
    findings = tuple(
        CheckFinding(f.rule, f.outcome, render(f).partition(": ")[2], str(f.fault))
        for f in result.findings[:_FINDINGS_KEPT]
    )
    return CheckResult(result.outcome, result.obligations, findings)


def audited(attempt: Attempt, verdict: CheckResult) -> Attempt:
    reason = "" if verdict.outcome is Outcome.PROVED else _first(verdict)
    return replace(attempt, ended="audit", reason=reason, audit=verdict)


def _first(verdict: CheckResult) -> str:
    """Why a verdict is not PROVED, in a line."""
    if not verdict.findings:
        return f"{verdict.outcome}, without a finding"
    first = verdict.findings[0]
    line = first.message.splitlines()[0] if first.message else ""
    return f"{first.outcome} by {first.rule}: {line}"
