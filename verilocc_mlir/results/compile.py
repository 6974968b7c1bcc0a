"""The result of one ``verilocc compile`` as frozen data: the one source of the table, the JSON file and the exit code.

Seconds are CPU seconds, children included, unless a name says wall. Registers are 32-bit registers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field
from msgspec.structs import replace

from smt_verifier.outcome import Outcome
from verilocc_mlir.allocators.protocol import ModelUse, ServerAttempt
from verilocc_mlir.errors import ExitCode
from verilocc_mlir.spilling import SpillAction

if TYPE_CHECKING:
    from smt_verifier.prove import Nearest

REPORT_VERSION = 9
"""Version of the JSON form; raised whenever ``schema.json`` changes."""

LAST_PHASE = "vgpr"
"""A function that did not come through this phase has no code to speak of."""

EXIT_CODES = {
    Outcome.PROVED: ExitCode.PROVED,
    Outcome.REFUTED: ExitCode.REFUTED,
    Outcome.INVALID: ExitCode.BAD_INPUT,
    Outcome.UNKNOWN: ExitCode.UNKNOWN,
}
"""Exit code of each outcome of a run that came to an end."""


class ModelPart(Struct, frozen=True):
    """One model, with one adapter or none, here or behind a server.

    Attributes:
        adapter: that was applied; ``""`` for none.
        server: its address; ``""`` for a model of this process.
        tries: answers that it was asked for.
        refuted: those of them that the proof refuted.
        tokens: that it read.
        seconds: wall time of its answers.
        note: see ``ModelUse``.
    """

    model: str
    adapter: str
    server: str
    tries: int
    refuted: int
    tokens: int
    seconds: float
    note: str

    def line(self) -> str:
        """For people."""
        adapter = f"adapter {self.adapter}" if self.adapter else "no adapter"
        where = f" of {self.server}" if self.server else ""
        count = f"{self.tries} {'try' if self.tries == 1 else 'tries'}, {self.refuted} refuted"
        note = f"; {self.note}" if self.note else ""
        return f"{self.model}, {adapter}{where}: {count}, {self.tokens} tokens, {self.seconds:.2f} s{note}"


class CheckFinding(Struct, frozen=True):
    """One violated constraint or failed obligation: the rule's stable name and the message with its place; of an
    audit's also the kind of fault (``smt_verifier.audit.Fault``), else ``""``.
    """

    rule: str
    outcome: Outcome
    message: str
    fault: str = ""


class CheckResult(Struct, frozen=True):
    """What ``prove`` or ``audit`` answered, on how many named obligations; at most a few findings are kept."""

    outcome: Outcome
    obligations: int
    findings: tuple[CheckFinding, ...] = ()


class Attempt(Struct, frozen=True):
    """One allocation of one function in one phase.

    Attributes:
        allocator: its name; ``llvm`` for LLVM's own.
        ended: the step that decided: ``build``, ``allocate``, ``prove``, ``rewrite``, ``llvm`` or ``audit``.
        reason: why it is not proved, or ``""``.
        proof: verdict on the proposal; None where there was none to prove (LLVM proposes text, not an assignment).
        audit: verdict on the text; None where it was not reached.
        server: address of the server that was asked; ``""`` for an allocator of this process.
        version: the allocator's, as it was then; ``""`` where none proposed.
        cause: why the allocator gave no assignment, in a word (``AllocationFailure.reason``), or ``""``.
        model: what a model of this process did for it; None without one.
        tries: of the server, in its words; the last one is what it answered with.
        nearest: a proved assignment near the proposal, or why none is known; None for what is not refuted.
    """

    allocator: str
    ended: str
    reason: str = ""
    proof: CheckResult | None = None
    audit: CheckResult | None = None
    server: str = ""
    cause: str = ""
    version: str = ""
    model: ModelUse | None = None
    tries: tuple[ServerAttempt, ...] = ()
    nearest: Nearest | None = None

    @property
    def outcome(self) -> Outcome:
        """The audit's; without one nothing is proved: REFUTED if the proof was, else UNKNOWN."""
        if self.audit is not None:
            return self.audit.outcome
        if self.proof is not None and self.proof.outcome is not Outcome.PROVED:
            return self.proof.outcome
        return Outcome.UNKNOWN


class Moves(Struct, frozen=True):
    """Copies and spill code of one phase, counted in the text before and after it."""

    copies_before: int = 0
    copies_left: int = 0
    saves: int = 0
    reloads: int = 0
    rematerialised: int = 0

    @property
    def copies_removed(self) -> int:
        """Copies that the allocation made unnecessary (never negative: one that adds copies removes none)."""
        return max(0, self.copies_before - self.copies_left)


class PhaseReport(Struct, frozen=True):
    """One phase (``sgpr``, ``wwm``, ``vgpr``) of one function. The last attempt is the one whose text was used;
    ``spills`` is what it took to make room for it. ``audited_with``: the later phase with which it was audited at once,
    where the obligations of the audit are counted; None where it was audited alone.
    """

    phase: str
    attempts: tuple[Attempt, ...]
    fallback: bool
    fallback_reason: str
    moves: Moves
    seconds: dict[str, float] = field(default_factory=dict[str, float])
    spills: tuple[SpillAction, ...] = ()
    audited_with: str | None = None

    @property
    def allocator(self) -> str:
        return self.attempts[-1].allocator

    @property
    def outcome(self) -> Outcome:
        return self.attempts[-1].outcome

    @property
    def forsaken(self) -> bool:
        """Whether a server was asked and another allocator stepped in, though the server did not decline."""
        return any(a.server and a.cause != "declined" for a in self.attempts[:-1])

    @property
    def obligations(self) -> int:
        """Obligations checked for the text that was used, proof and audit together."""
        last = self.attempts[-1]
        return sum(v.obligations for v in (last.proof, last.audit) if v is not None)


class Resources(Struct, frozen=True):
    """What a function takes at run time.

    Attributes:
        sgprs: scalar registers, VCC and the like included.
        vgprs: vector registers in all; accumulators included where the file is unified.
        agprs: accumulators among them.
        sgpr_spills: SGPRs spilled (LLVM's count); None where LLVM does not say (device functions).
        vgpr_spills: VGPRs spilled, likewise.
        scratch_bytes: private memory a lane needs.
        waves: waves per SIMD at most.
    """

    sgprs: int
    vgprs: int
    agprs: int
    sgpr_spills: int | None
    vgpr_spills: int | None
    scratch_bytes: int
    waves: int


class FunctionReport(Struct, frozen=True):
    """One function: its phases and its resources beside those of LLVM's greedy (a direct compile).

    Attributes:
        plan: under which LLVM made the text that was allocated (``pipeline/plans.py``).
        variant: how that text was allocated (``pipeline/effort.py``); ``""`` where nothing was chosen.
    """

    name: str
    is_kernel: bool
    instructions: int
    phases: tuple[PhaseReport, ...]
    resources: Resources | None
    greedy: Resources | None
    plan: str = "default"
    variant: str = ""

    @property
    def is_proved(self) -> bool:
        """Whether every phase is, up to the last one."""
        finished = bool(self.phases) and self.phases[-1].phase == LAST_PHASE
        return finished and all(phase.outcome is Outcome.PROVED for phase in self.phases)


class TimedStep(Struct, frozen=True):
    """CPU seconds of one step of the run: ours (``audit``) or a tool's (``llc pre-RA``)."""

    name: str
    seconds: float


class Report(Struct, frozen=True):
    """One run.

    Attributes:
        llvm: version line of the LLVM used.
        input: path as given, ``-`` for standard input.
        input_sha256: of the bytes read.
        allocator: the one asked for.
        emit: ``mir``, ``asm``, ``obj`` or ``hsaco``.
        functions: in the file's order.
        mended: fields of the kernel descriptor set to what a direct compile has.
        notes: anything else a person should know (IR brought down to this LLVM, whole-file fallback …).
        output: where the result was written, or ``""``.
        left_out: functions that nobody proves; the result has the others.
        server: why a server that was named had not its part, in a line; ``""`` where it had, or none was named.
    """

    version: str
    llvm: str
    input: str
    input_sha256: str
    target: str
    features: str
    allocator: str
    emit: str
    functions: tuple[FunctionReport, ...]
    mended: tuple[str, ...]
    notes: tuple[str, ...]
    steps: tuple[TimedStep, ...]
    wall_seconds: float
    output: str = ""
    left_out: tuple[str, ...] = ()
    server: str = ""

    @property
    def outcome(self) -> Outcome:
        """PROVED only if every phase of every function is, up to the last one; else the gravest of the others."""
        outcomes = {p.outcome for f in self.functions for p in f.phases}
        for outcome in (Outcome.REFUTED, Outcome.INVALID, Outcome.UNKNOWN):
            if outcome in outcomes:
                return outcome
        return Outcome.PROVED if self.functions and all(f.is_proved for f in self.functions) else Outcome.UNKNOWN

    @property
    def models(self) -> tuple[ModelPart, ...]:
        """The models that were asked, here and behind a server."""
        return _models_of(self.functions)

    @property
    def exit_code(self) -> ExitCode:
        return EXIT_CODES[self.outcome]

    @property
    def cpu_seconds(self) -> float:
        return sum(step.seconds for step in self.steps)


def _models_of(functions: Iterable[FunctionReport]) -> tuple[ModelPart, ...]:
    """Of all functions together, in the order in which they were first asked."""
    attempts = (attempt for function in functions for phase in function.phases for attempt in phase.attempts)
    return _together(part for attempt in attempts for part in _parts(attempt))


def models_in_documents(reports: Iterable[Mapping[str, Any]]) -> tuple[ModelPart, ...]:
    """Of several compilations, from their JSON documents."""
    rows: Iterable[Mapping[str, Any]] = (row for report in reports for row in report.get("models", ()))
    return _together(
        ModelPart(
            row["model"], row["adapter"] or "", row["server"] or "", row["tries"], row["refuted"], row["tokens"],
            row["seconds"], row["note"] or "",
        )
        for row in rows
    )  # fmt: skip


def _together(parts: Iterable[ModelPart]) -> tuple[ModelPart, ...]:
    """Added up by model, adapter and server."""
    sums: dict[tuple[str, ...], ModelPart] = {}
    for part in parts:
        key = part.model, part.adapter, part.server, part.note
        if known := sums.get(key):
            part = replace(
                part,
                tries=known.tries + part.tries,
                refuted=known.refuted + part.refuted,
                tokens=known.tokens + part.tokens,
                seconds=known.seconds + part.seconds,
            )
        sums[key] = part
    return tuple(sums.values())


def _parts(attempt: Attempt) -> Iterable[ModelPart]:
    if attempt.model is not None:
        yield _part(attempt.model, "", attempt.outcome is Outcome.REFUTED)
    for one in attempt.tries:
        if one.model is not None:
            yield _part(one.model, attempt.server, one.outcome == str(Outcome.REFUTED))


def _part(use: ModelUse, server: str, refuted: bool) -> ModelPart:
    return ModelPart(use.model, use.adapter, server, 1, int(refuted), use.tokens, use.seconds, use.note)
