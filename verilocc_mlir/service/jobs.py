"""What a request asks for, done: from the bytes of a request message to those of its answer.

Runs in a worker process, or in this one for the in-process server. Whatever a request holds, the result is an answer or
a ``ServiceError``.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version

from grpc import StatusCode
from msgspec.structs import replace

from smt_verifier.artefacts import RecordingSolver
from smt_verifier.audit import FunctionAudit, audit, audit_function
from smt_verifier.audit.wording import render
from smt_verifier.outcome import Outcome
from smt_verifier.prove import ProofResult, prove
from smt_verifier.smt import Obligation, Verdict, default_solver, to_smtlib
from verilocc.v1 import allocation_service_pb2 as allocation
from verilocc.v1 import audit_service_pb2 as auditing
from verilocc.v1 import problem_pb2, verdict_pb2
from verilocc_mlir.allocators import Allocator, allocator
from verilocc_mlir.allocators.cost import measure
from verilocc_mlir.allocators.protocol import model_behind
from verilocc_mlir.allocators.registry import MODEL
from verilocc_mlir.analysis.lanes import virtual_classes
from verilocc_mlir.crew.abandon import check as check_wanted
from verilocc_mlir.errors import InputError, UnsupportedError, VeriloccError, is_out_of_memory
from verilocc_mlir.mir.model import STOP_BEFORE_ALL_PHASES, MachineFunction, MirFile
from verilocc_mlir.mir.parser import parse_mir
from verilocc_mlir.mir.printer import print_mir
from verilocc_mlir.pipeline.attempt import (
    DEFAULT_ATTEMPTS,
    AttemptLimits,
    Proposed,
    audit_verdict,
    audited,
    proof_verdict,
    proposals,
    try_allocators,
)
from verilocc_mlir.pipeline.audit import unfinished, virtual_registers
from verilocc_mlir.pipeline.events import Events
from verilocc_mlir.pipeline.settings import DEFAULT_ALLOCATOR, DEFAULT_SOLVER_SECONDS
from verilocc_mlir.problem.build import phase_of
from verilocc_mlir.problem.model import AllocationProblem, Phase, Proposal
from verilocc_mlir.remote import wire
from verilocc_mlir.results.compile import Attempt
from verilocc_mlir.service.status import JSON, ServiceError, duration, malformed, out_of_time, read_json, read_message
from verilocc_mlir.spilling import SpillAction
from verilocc_mlir.target.targets import TARGETS, Target, target
from verilocc_mlir.toolchain.inputs import load_input, named_processors
from verilocc_mlir.toolchain.long_branches import near_branches_on
from verilocc_mlir.toolchain.staged import LlvmPhase
from verilocc_mlir.version import __version__

MAX_ATTEMPTS = 32
"""What a request may ask for."""

_SHOWN = 60
"""Characters of a name in a message."""

Factory = Callable[[str], Allocator]


@dataclass(frozen=True)
class Terms:
    """What a server offers: its allocators, the default one first, and how many attempts it makes by default.

    ``factory`` gives an allocator by its name.
    """

    allocators: tuple[str, ...] = (DEFAULT_ALLOCATOR,)
    attempts: int = DEFAULT_ATTEMPTS
    factory: Factory = allocator


WITH_MODEL = Terms((MODEL, DEFAULT_ALLOCATOR))
"""With the language model that ``$VERILOCC_MODEL`` names; the pool's processes inherit it."""


class Deadline:
    """When the work must be done."""

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds

    @property
    def remaining(self) -> float:
        """Seconds that are left.

        Raises:
            ServiceError: none are. Abandoned: nobody waits for the answer.
        """
        check_wanted()
        remaining = self._end - time.monotonic()
        if remaining <= 0:
            raise out_of_time()
        return remaining


@dataclass
class PatientSolver:
    """The usual solver with no more time for a question than the request has left; it records what it was asked."""

    deadline: Deadline
    inner: RecordingSolver

    def check(self, obligation: Obligation, timeout_s: float = 30.0, *, consistent: bool = False) -> Verdict:
        seconds = min(timeout_s, self.deadline.remaining)
        verdict = self.inner.check(obligation, seconds, consistent=consistent)
        # What could not be decided because the request's time ran out is no finding about the code.
        if verdict.outcome is Outcome.UNKNOWN and seconds < timeout_s:
            _ = self.deadline.remaining
        return verdict

    def take(self, most: int | None = None) -> list[tuple[Obligation, Verdict]]:
        """What was asked since the last call; the first ``most`` of it."""
        answers = self.inner.answers[:most]
        del self.inner.answers[: len(answers)]
        return answers


def run(kind: str, payload: bytes, seconds: float, terms: Terms | None = None) -> bytes:
    """Do one request.

    Args:
        kind: "Allocate" or "Audit", with ``status.JSON`` after it if the payload is JSON. The answer never is.
        seconds: how long it may take; the solver is given no more.

    Returns:
        The serialised answer, without ``queue_time``.

    Raises:
        ServiceError: what the client is to be told instead.
    """
    deadline = Deadline(seconds)
    start = time.monotonic()
    read = read_json if kind.endswith(JSON) else read_message
    try:
        if kind.removesuffix(JSON) == "Audit":
            audited_texts = _audit(read(auditing.AuditRequest, payload), deadline)
            audited_texts.wall_time.CopyFrom(duration(time.monotonic() - start))
            return audited_texts.SerializeToString()
        allocated = _Allocation(read(allocation.AllocateRequest, payload), deadline, terms or Terms()).run()
        allocated.wall_time.CopyFrom(duration(time.monotonic() - start))
        return allocated.SerializeToString()
    except UnsupportedError as error:
        raise ServiceError(StatusCode.FAILED_PRECONDITION, "NOT_SUPPORTED", error.render()) from error
    except VeriloccError as error:
        raise malformed(error.render()) from error
    except (MemoryError, RecursionError, OSError) as error:
        if not (isinstance(error, RecursionError) or is_out_of_memory(error)):
            raise
        raise ServiceError(
            StatusCode.RESOURCE_EXHAUSTED, "MEMORY_LIMIT", "the request needs more memory than a worker has"
        ) from error


def solver_version() -> str:
    try:
        return f"z3 {version('z3-solver')}"
    except PackageNotFoundError:
        return "z3"


class _Allocation:
    """One Allocate request."""

    def __init__(self, request: allocation.AllocateRequest, deadline: Deadline, terms: Terms) -> None:
        self.request = request
        self.deadline = deadline
        self.events = Events()
        self.solver = PatientSolver(deadline, RecordingSolver(default_solver()))
        if not 0 <= request.max_attempts <= MAX_ATTEMPTS:
            raise malformed(f"max_attempts is {request.max_attempts}, not between 0 and {MAX_ATTEMPTS}", request=True)
        if request.assignment_only and request.return_mir:
            raise malformed("assignment_only and return_mir exclude each other", request=True)
        self.attempts = request.max_attempts or terms.attempts
        name = request.allocator or terms.allocators[0]
        if name not in terms.allocators:
            raise ServiceError(
                StatusCode.NOT_FOUND,
                "UNKNOWN_ALLOCATOR",
                f"there is no allocator called {name!r} here; there are: {', '.join(terms.allocators)}",
            )
        first = terms.factory(name)
        last = allocator(DEFAULT_ALLOCATOR)
        self.allocators: tuple[Allocator, ...] = (first,) if first.name == last.name else (first, last)

    def run(self) -> allocation.AllocateResponse:
        input_kind = self.request.WhichOneof("input")
        if input_kind is None:
            raise malformed("the request has neither machine IR nor a problem", request=True)
        if input_kind == "mir":
            functions, mir, for_target = self._text(self.request.mir)
        else:
            functions, mir, for_target = [self._problem()], b"", self.request.problem.target
        first = self.allocators[0]
        return allocation.AllocateResponse(
            functions=functions,
            mir=mir if self.request.return_mir else b"",
            versions=allocation.Versions(
                verilocc=__version__,
                allocator=f"{first.name} {first.version}",
                model=model_behind(first, for_target),
                solver=solver_version(),
            ),
            steps=[
                allocation.Step(name=name, cpu_time=duration(seconds)) for name, seconds in self.events.seconds.items()
            ],
        )

    def _problem(self) -> allocation.FunctionAllocation:
        with self.events.measure("parse"):
            problem = wire.problem_of(self.request.problem)
        _known_target(problem.target)
        _known_phase(self.request.problem.phase)
        attempts: list[allocation.Attempt] = []

        def check(proposal: Proposal) -> ProofResult:
            return prove(problem, proposal, timeout_s=DEFAULT_SOLVER_SECONDS, solver=self.solver)

        for proposed in proposals(self.allocators, problem, check, self.events, attempts=self.attempts):
            _ = self.deadline.remaining
            ended = "prove" if proposed.proof is not None else "allocate"
            reason = "" if proposed.proved else proposed.reason or _why(proposed)
            attempts.append(self._attempt(Attempt(proposed.allocator, ended, reason), proposed))
            if proposed.proved:
                return _allocated(problem.function, problem, proposed, attempts)
        return _not_allocated(problem.function, attempts)

    def _text(self, given: allocation.MachineIr) -> tuple[list[allocation.FunctionAllocation], bytes, str]:
        """The functions, the text with their registers in it, and the processor."""
        name = given.name or "<request>"
        with self.events.measure("parse"):
            file, machine = _machine_ir(given.text, name, given.target)
        _known_phase(given.phase)
        phase: Phase = wire.PHASE_NAMES[given.phase]
        _of_phase(file, phase, name)
        wanted = [f for f in file.functions if given.function in ("", f.name)]
        if not wanted:
            raise malformed(f"{name}: there is no function {given.function[:_SHOWN]!r} in it", request=True)
        states = {f.name: self._function(file, f, machine, phase) for f in wanted}
        if self.request.assignment_only:
            for state in states.values():
                if state.rewritten is not None:
                    state.attempts[-1].ended = "prove"
            return [state.message() for state in states.values()], b"", machine.name
        text = ""
        # A function whose audit fails goes back to what it was, and the text is made without it.
        while any(state.rewritten is not None and state.audit is None for state in states.values()):
            with self.events.measure("print"):
                now = {n: state.rewritten or state.before for n, state in states.items()}
                text = print_mir(replace(file, functions=tuple(now.get(f.name, f) for f in file.functions)))
            with self.events.measure("parse"):
                again = parse_mir(text, f"{name} after {phase}")
            refuted = False
            is_near = near_branches_on(text, machine.name, self.deadline.remaining, done=LlvmPhase[phase.upper()])
            for after in again.functions:
                state = states.get(after.name)
                if state is not None and state.rewritten is not None and state.audit is None:
                    refuted |= not self._audit(state, file, after, machine, is_near)
            if refuted:
                text = ""
                for state in states.values():
                    state.audit = None
        if not text:
            text = print_mir(file)
        return [state.message() for state in states.values()], text.encode(), machine.name

    def _function(self, file: MirFile, function: MachineFunction, machine: Target, phase: Phase) -> _Function:
        # A client that does not want a text back gets an assignment for the text that it sent.
        limits = AttemptLimits(
            DEFAULT_SOLVER_SECONDS, self.attempts, self.solver, same_text=not self.request.return_mir
        )
        _ = self.deadline.remaining
        attempted = try_allocators(self.allocators, file, function, machine, phase, self.events, limits)
        proposed = attempted.proposed
        attempts = [
            self._attempt(attempt, proposed[n] if n < len(proposed) else None)
            for n, attempt in enumerate(attempted.attempts)
        ]
        last = proposed[-1] if proposed else None
        return _Function(function, attempts, attempted.problem, last, attempted.function, attempted.spills)

    def _audit(
        self,
        one: _Function,
        file: MirFile,
        after: MachineFunction,
        machine: Target,
        is_near: Callable[[str], bool],
    ) -> bool:
        with self.events.measure("audit"):
            one.audit = audit_function(
                file,
                one.before,
                after,
                machine,
                timeout_s=DEFAULT_SOLVER_SECONDS,
                solver=self.solver,
                near_branches=is_near,
            )
        last = one.attempts[-1]
        last.audit.CopyFrom(_verdict_of_audit(one.audit, self._asked()))
        if one.audit.outcome is Outcome.PROVED:
            return True
        verdict = audited(Attempt(last.allocator, "audit"), audit_verdict(one.audit))
        last.reason = verdict.reason
        one.rewritten = None
        return False

    def _attempt(self, attempt: Attempt, proposed: Proposed | None) -> allocation.Attempt:
        message = allocation.Attempt(
            allocator=attempt.allocator,
            version=proposed.version if proposed else "",
            ended=attempt.ended,
            reason=attempt.reason,
        )
        if proposed is not None and (use := proposed.use) is not None:
            message.model.CopyFrom(
                allocation.ModelUse(
                    model=use.model,
                    adapter=use.adapter,
                    tokens=use.tokens,
                    wall_time=duration(use.seconds),
                    note=use.note,
                )
            )
        if proposed is not None and (near := proposed.nearest) is not None:
            moves = [
                allocation.Assignment(range=m.id, virtual_register=m.name, physical_register=m.register)
                for m in near.moves
            ]
            message.nearest.CopyFrom(allocation.Nearest(moves=moves, fewest=near.fewest, reason=near.reason))
        if proposed is not None and proposed.proof is not None:
            proof = proposed.proof
            # A proof asks one question, or none where the proposal is no answer. All attempts were made before this.
            was_asked = proof.obligations > 0 or proof.outcome is Outcome.PROVED
            message.proof.CopyFrom(_verdict_of_proof(proof, self._asked(int(was_asked))))
        return message

    def _asked(self, most: int | None = None) -> list[verdict_pb2.Obligation]:
        """Digests of what the solver was asked since the last call, where they are wanted."""
        answers = self.solver.take(most)
        return _obligation_messages(answers) if self.request.return_obligations else []


@dataclass
class _Function:
    """One function on its way through a request."""

    before: MachineFunction
    attempts: list[allocation.Attempt]
    problem: AllocationProblem | None
    proposed: Proposed | None
    rewritten: MachineFunction | None
    spills: tuple[SpillAction, ...] = ()
    audit: FunctionAudit | None = None

    def message(self) -> allocation.FunctionAllocation:
        if self.rewritten is None or self.problem is None or self.proposed is None:
            return _not_allocated(self.before.name, self.attempts)
        message = _allocated(self.before.name, self.problem, self.proposed, self.attempts)
        message.spills.extend(
            allocation.Spill(virtual_register=s.register, kind=s.kind, registers=s.parts, cost=s.cost, reason=s.reason)
            for s in self.spills
        )
        return message


def _allocated(
    name: str, problem: AllocationProblem, proposed: Proposed, attempts: Sequence[allocation.Attempt]
) -> allocation.FunctionAllocation:
    proposal = proposed.proposal
    assert proposal is not None
    measured = measure(problem, proposal)
    return allocation.FunctionAllocation(
        function=name,
        outcome=verdict_pb2.OUTCOME_PROVED,
        allocator=proposed.allocator,
        assignments=[
            allocation.Assignment(range=live.id, virtual_register=live.name, physical_register=register)
            for live, register in zip(problem.ranges, proposal.registers, strict=True)
        ],
        attempts=attempts,
        cost=allocation.Cost(
            sgprs=measured.sgprs,
            vgprs=measured.vgprs,
            agprs=measured.agprs,
            waves=measured.waves,
            copies=measured.copies,
        ),
    )


def _not_allocated(name: str, attempts: Sequence[allocation.Attempt]) -> allocation.FunctionAllocation:
    """The gravest verdict of any attempt: a refuted audit is not to be hidden behind a lack of registers."""
    outcomes = {v.outcome for a in attempts for v in (a.audit, a.proof) if v.outcome != verdict_pb2.OUTCOME_UNSPECIFIED}
    grave = (verdict_pb2.OUTCOME_REFUTED, verdict_pb2.OUTCOME_INVALID)
    outcome = next((o for o in grave if o in outcomes), verdict_pb2.OUTCOME_UNKNOWN)
    reason = attempts[-1].reason if attempts else "no attempt was made"
    return allocation.FunctionAllocation(function=name, outcome=outcome, attempts=attempts, reason=reason)


def _audit(request: auditing.AuditRequest, deadline: Deadline) -> auditing.AuditResponse:
    names = request.before_name or "<before>", request.after_name or "<after>"
    before, machine = _machine_ir(request.before, names[0], request.target)
    after_text = _decoded(request.after, names[1])
    other_processors = [n for n in named_processors(after_text) if n != machine.name]
    if other_processors:
        raise malformed(f"{names[1]} is for {', '.join(other_processors)}, {names[0]} for {machine.name}")
    after = parse_mir(after_text, names[1])
    solver = PatientSolver(deadline, RecordingSolver(default_solver()))
    is_near = near_branches_on(after_text, machine.name, deadline.remaining)
    report = audit(before, after, machine, timeout_s=DEFAULT_SOLVER_SECONDS, solver=solver, near_branches=is_near)
    answers = solver.take() if request.return_obligations else []
    return auditing.AuditResponse(
        outcome=wire.OUTCOMES[report.outcome],
        functions=[
            auditing.FunctionAudit(
                function=f.function,
                verdict=_verdict_of_audit(
                    f,
                    _obligation_messages(a for a in answers if a[0].name.rpartition("/values")[0] == f.function),
                ),
            )
            for f in report.functions
        ],
        versions=allocation.Versions(verilocc=__version__, solver=solver_version()),
        notes=unfinished(after, names[1]),
    )


def _machine_ir(data: bytes, name: str, cpu: str) -> tuple[MirFile, Target]:
    """The text of a request, parsed, and what it is for."""
    text = _decoded(data, name)
    if cpu:
        _known_target(cpu)
    source = load_input(text.encode(), path=name, cpu=cpu or None)
    if source.kind != "mir":
        raise InputError("this is LLVM IR, not machine IR", where=name, hint=f"llc {STOP_BEFORE_ALL_PHASES}")
    return parse_mir(source.text, name), _known_target(source.cpu)


def _decoded(data: bytes, name: str) -> str:
    if not data:
        raise malformed(f"{name}: the text is empty")
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise malformed(f"{name}: not UTF-8 at byte {error.start}") from error


def _known_target(name: str) -> Target:
    try:
        return target(name)
    except VeriloccError as error:
        raise ServiceError(
            StatusCode.FAILED_PRECONDITION,
            "TARGET_NOT_SUPPORTED",
            f"{name!r} is not supported; GetCapabilities lists what is: {', '.join(TARGETS)}",
        ) from error


def _known_phase(phase: int) -> None:
    if phase == problem_pb2.PHASE_WWM:
        raise ServiceError(
            StatusCode.FAILED_PRECONDITION,
            "PHASE_NOT_SUPPORTED",
            "machine IR does not say which registers whole-wave values may take; take LLVM's allocation and audit it",
        )
    if phase == problem_pb2.PHASE_UNSPECIFIED:
        raise malformed("phase is not set", request=True)
    if phase not in wire.PHASE_NAMES:
        known = ", ".join(
            f"{problem_pb2.Phase.Name(problem_pb2.Phase.ValueType(number))} = {number}" for number in wire.PHASE_NAMES
        )
        raise malformed(f"phase is {phase}, and there is none of that number; there are {known}", request=True)


def _of_phase(file: MirFile, phase: Phase, name: str) -> None:
    """Refuse a text from before the scalar phase as one for the vector phase: LLVM allocates scalars first."""
    if phase != "vgpr":
        return
    for function in file.functions:
        classes = virtual_classes(function)
        scalar = next((n for n in sorted(virtual_registers(function)) if phase_of(classes[n], ()) == "sgpr"), None)
        if scalar is not None:
            raise malformed(
                f"{name}: {function.name}: %{scalar} is a scalar register that has no place yet: this is a text from"
                " before the scalar phase (PHASE_SGPR), not from before the vector phase"
            )


def _why(proposed: Proposed) -> str:
    assert proposed.proof is not None
    verdict = proof_verdict(proposed.proof)
    return f"{verdict.findings[0].rule}: {verdict.findings[0].message}" if verdict.findings else str(verdict.outcome)


# Verdicts and obligations as messages of proto/verilocc/v1.


_MAX_FINDINGS = 64
_STATUS = {Outcome.PROVED: "unsat", Outcome.REFUTED: "sat"}


def _verdict_of_proof(proof: ProofResult, obligations: Iterable[verdict_pb2.Obligation]) -> verdict_pb2.Verdict:
    findings = [
        verdict_pb2.Finding(
            rule=v.rule, outcome=verdict_pb2.OUTCOME_REFUTED, message=v.message, registers=v.names, free=v.free
        )
        for v in proof.violations[:_MAX_FINDINGS]
    ]
    outcome = wire.OUTCOMES[proof.outcome]
    if proof.reason:
        findings.append(verdict_pb2.Finding(rule="prove", outcome=outcome, message=proof.reason))
    return verdict_pb2.Verdict(outcome=outcome, checked=proof.obligations, findings=findings, obligations=obligations)


def _verdict_of_audit(audit: FunctionAudit, obligations: Iterable[verdict_pb2.Obligation]) -> verdict_pb2.Verdict:
    messages = [
        verdict_pb2.Finding(
            rule=f.rule,
            outcome=wire.OUTCOMES[f.outcome],
            message=render(f).partition(": ")[2],
            line_before=f.pre_line,
            line_after=f.post_line,
            fault=str(f.fault),
        )
        for f in audit.findings[:_MAX_FINDINGS]
    ]
    return verdict_pb2.Verdict(
        outcome=wire.OUTCOMES[audit.outcome],
        checked=audit.obligations,
        findings=messages,
        obligations=obligations,
        literal_goals=audit.goals.literal,
        decided_goals=audit.goals.decided,
        premises=audit.premises,
    )


def _obligation_messages(asked: Iterable[tuple[Obligation, Verdict]]) -> list[verdict_pb2.Obligation]:
    """Digests of what a solver was asked; the text hashed is the one that ``verilocc audit --smt-dir`` writes."""
    return [
        verdict_pb2.Obligation(
            name=obligation.name,
            sha256=hashlib.sha256(to_smtlib(obligation, _STATUS.get(verdict.outcome, "unknown")).encode()).digest(),
            logic=obligation.logic,
            goals=len(obligation.goals),
            outcome=wire.OUTCOMES[verdict.outcome],
        )
        for obligation, verdict in asked
    ]
