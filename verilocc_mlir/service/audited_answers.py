"""What a server answers for machine IR, judged here: its text is taken only where this machine's audit proves it."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from smt_verifier.audit import FunctionAudit, audit
from smt_verifier.audit.wording import render
from smt_verifier.outcome import Outcome, combine
from verilocc.v1 import allocation_service_pb2 as allocation
from verilocc_mlir.analysis.lanes import virtual_classes
from verilocc_mlir.errors import ExitCode, InputError, VeriloccError
from verilocc_mlir.mir.model import STOP_BEFORE_ALL_PHASES, MachineFunction, MirFile
from verilocc_mlir.mir.parser import parse_mir
from verilocc_mlir.pipeline.audit import virtual_registers
from verilocc_mlir.pipeline.settings import DEFAULT_SOLVER_SECONDS
from verilocc_mlir.problem.build import phase_of
from verilocc_mlir.problem.model import Phase
from verilocc_mlir.remote import wire
from verilocc_mlir.remote.client import RemoteError
from verilocc_mlir.remote.wire import printable, tries_of
from verilocc_mlir.results.allocate import AllocatedFile, AllocatedFunction
from verilocc_mlir.target.registers import physical_register
from verilocc_mlir.target.targets import Target, target
from verilocc_mlir.toolchain.inputs import load_input
from verilocc_mlir.toolchain.long_branches import near_branches_on
from verilocc_mlir.toolchain.staged import LlvmPhase

_OUTCOMES = {number: outcome for outcome, number in wire.OUTCOMES.items()}


@dataclass(frozen=True)
class Question:
    """A text to be allocated.

    Attributes:
        phase: which registers are to be allocated.
    """

    path: str
    data: bytes
    file: MirFile
    machine: Target
    phase: Phase

    def request(self, allocator: str, attempts: int) -> allocation.AllocateRequest:
        """The request for it; ``""`` and 0 for the server's defaults."""
        mir = allocation.MachineIr(
            text=self.data, target=self.machine.name, phase=wire.PHASES[self.phase], name=self.path
        )
        return allocation.AllocateRequest(mir=mir, allocator=allocator, max_attempts=attempts, return_mir=True)


@dataclass(frozen=True)
class Judged:
    """The verdict, and the text after allocation where all of it is proved."""

    report: AllocatedFile
    text: bytes | None = None


def question(data: bytes, path: str, cpu: str, phase: Phase) -> Question:
    """Read a text before allocation.

    Raises:
        InputError: it is not machine IR, or for another processor. UnsupportedError: the processor is not known.
    """
    source = load_input(data, path=path, cpu=cpu or None)
    if source.kind != "mir":
        hint = f"llc {STOP_BEFORE_ALL_PHASES}; or compile it: verilocc compile --server=ADDR"
        raise InputError("this is LLVM IR, not machine IR", where=path, hint=hint)
    return Question(path, source.text.encode(), parse_mir(source.text, path), target(source.cpu), phase)


def judge(question: Question, answer: allocation.AllocateResponse | RemoteError) -> Judged:
    if isinstance(answer, RemoteError):
        outcome = Outcome.INVALID if answer.exit_code == ExitCode.BAD_INPUT else Outcome.UNKNOWN
        return _without(question, outcome, f"{answer.where}: {answer.what}")
    names = [f.name for f in question.file.functions]
    if [f.function for f in answer.functions] != names:
        return _without(question, Outcome.UNKNOWN, "the server answered for other functions than those of the text")
    try:
        text = answer.mir.decode()
        after = parse_mir(text, f"{question.path} after {question.phase}")
    except (UnicodeDecodeError, VeriloccError) as error:
        reason = error.render() if isinstance(error, VeriloccError) else str(error)
        return _without(question, Outcome.UNKNOWN, f"the server's text is no machine IR: {printable(reason)}")
    if after.preamble != question.file.preamble or [f.name for f in after.functions] != names:
        return _without(question, Outcome.REFUTED, "the server changed the IR module, or which functions there are")
    is_near = near_branches_on(text, question.machine.name, done=LlvmPhase[question.phase.upper()])
    report = audit(question.file, after, question.machine, timeout_s=DEFAULT_SOLVER_SECONDS, near_branches=is_near)
    functions = tuple(
        _function(question, *each)
        for each in zip(question.file.functions, after.functions, answer.functions, report.functions, strict=True)
    )
    outcomes = [f.outcome for f in functions]
    outcome = Outcome.REFUTED if Outcome.REFUTED in outcomes else combine(outcomes)
    judged = AllocatedFile(question.path, _digest(question), functions, outcome)
    return Judged(judged, answer.mir if outcome is Outcome.PROVED else None)


def _function(
    question: Question,
    before: MachineFunction,
    after: MachineFunction,
    claim: allocation.FunctionAllocation,
    audited: FunctionAudit,
) -> AllocatedFunction:
    attempts = tries_of(claim.attempts)
    claimed = _OUTCOMES.get(claim.outcome, Outcome.UNKNOWN)
    if claimed is not Outcome.PROVED:
        reason = printable(claim.reason) or "the server does not say why"
        return AllocatedFunction(before.name, claimed, attempts=attempts, reason=reason)
    proved = audited.outcome is Outcome.PROVED
    highest = {bank: _highest(after, bank) if proved else 0 for bank in ("sgpr", "vgpr", "agpr")}
    findings = tuple(" ".join(render(f).splitlines()[0].split()) for f in audited.findings)
    outcome, reason = audited.outcome, findings[0] if findings else ""
    leftover = _left(before, after, question.phase)
    if leftover and proved:
        outcome, reason = Outcome.REFUTED, f"{leftover} is still, or newly, a virtual register after the phase"
    return AllocatedFunction(
        before.name,
        outcome,
        audited.obligations,
        printable(claim.allocator),
        highest["sgpr"],
        highest["vgpr"],
        highest["agpr"],
        attempts,
        reason,
        findings,
    )


def _left(before: MachineFunction, after: MachineFunction, phase: Phase) -> str:
    """A virtual register that the phase was to place, or that ``before`` does not have; ``""`` for none."""
    classes = virtual_classes(before)
    for number in sorted(virtual_registers(after)):
        cls = classes.get(number)
        if cls is None:
            return f"%{number}"
        flags = before.registers[number].flags if number in before.registers else ()
        if phase_of(cls, flags) == phase:
            return f"%{number}"
    return ""


def _highest(function: MachineFunction, bank: str) -> int:
    names = {op.phys for b in function.blocks for i in b.instructions for op in i.all_operands if op.phys}
    registers = [physical_register(name) for name in names if name.startswith(bank)]
    return max((r.first + -(-len(r.units) // 2) for r in registers if r.first >= 0), default=0)


def _without(question: Question, outcome: Outcome, reason: str) -> Judged:
    return Judged(AllocatedFile(question.path, _digest(question), (), outcome, reason))


def _digest(question: Question) -> str:
    return hashlib.sha256(question.data).hexdigest()


def server_version(answers: Sequence[allocation.AllocateResponse | RemoteError]) -> str:
    """What the servers of the answers say of themselves; ``""`` where none came."""
    versions = [a.versions for a in answers if not isinstance(a, RemoteError)]
    return printable(f"verilocc {versions[0].verilocc}, {versions[0].allocator}") if versions else ""
