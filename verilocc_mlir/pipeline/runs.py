"""One variant of a compilation at a time: its phases, each proved, from pre-RA text to text with registers."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from smt_verifier.audit import FunctionAudit
from smt_verifier.outcome import Outcome
from verilocc_mlir.allocators import Allocator, allocator
from verilocc_mlir.allocators.deterministic import DeterministicAllocator
from verilocc_mlir.allocators.registry import MODEL
from verilocc_mlir.errors import ToolchainError
from verilocc_mlir.mir.parser import parse_mir
from verilocc_mlir.mir.printer import print_mir
from verilocc_mlir.pipeline.attempt import SpillLimits
from verilocc_mlir.pipeline.audit import plain_phases
from verilocc_mlir.pipeline.clock import Clock
from verilocc_mlir.pipeline.effort import FAST_STEPS, LLVM, OURS, Variant
from verilocc_mlir.pipeline.phase import Draft, NoAllocation, PhaseRunner, Shared, in_shared_slots
from verilocc_mlir.pipeline.settings import Settings
from verilocc_mlir.problem.model import Phase
from verilocc_mlir.results.compile import LAST_PHASE, PhaseReport, Resources
from verilocc_mlir.target.targets import Target
from verilocc_mlir.toolchain.checked import CheckedObject
from verilocc_mlir.toolchain.staged import LlvmPhase, StagedCompiler, has_wwm_registers

if TYPE_CHECKING:
    from verilocc_mlir.pipeline.recording import Recording
from collections import Counter

from verilocc_mlir.allocators.registry import LLVM_ALLOCATOR
from verilocc_mlir.mir.model import MachineFunction, MirFile
from verilocc_mlir.pipeline.attempt import audit_verdict, audited
from verilocc_mlir.pipeline.phase import audit_within, moves_of
from verilocc_mlir.results.compile import Attempt, CheckResult, Moves

# All phases of a file in one audit of each function: the text before the first against the text after the last.
#
# That costs less than an audit a phase, and includes what LLVM does between the phases. Where it proves a function,
# that is its proof. Else each phase is audited alone (``phase.py``). That stands where the audit of all is undecided,
# or LLVM changed nothing in between, so that the proofs of the phases compose. Where LLVM did, and all at once is
# refuted, the function is refuted.


Reports = dict[str, list[PhaseReport]]
"""The phases of each function, by name."""

WWM_REASON = "MIR does not say which registers whole-wave values may take"

Audits = dict[str, tuple[FunctionAudit, float]]
"""The audit of each function, and its CPU seconds."""

_ELSEWHERE = CheckResult(Outcome.PROVED, 0)
"""The verdict of a phase whose obligations are counted in the last one."""


@dataclass
class WholeAudit:
    """The audits of one file.

    Attributes:
        allocators: ours, in the order they are tried.
        known: audits and their CPU seconds by the texts before and after and by function; it grows.
        known_after: the text after the last phase that was parsed last.
    """

    allocators: tuple[Allocator, ...]
    target: Target
    solver_seconds: float
    clock: Clock
    shared: Shared
    known: dict[tuple[str, str, str], tuple[FunctionAudit, float]]
    known_after: tuple[str, MirFile] | None = None

    def of_ours(self, scalar: Draft, vector: Draft, *, whole_wave: bool) -> Reports | None:
        """Our allocation of the scalar and of the vector phase; None where not every function is proved.

        Args:
            whole_wave: LLVM's whole-wave phase is between them.
        """
        audits = self.audits(scalar.before, vector.after, scalar.path)
        if not _all_proved(audits):
            return None
        reports: Reports = {}
        for first, last in zip(scalar.functions, vector.functions, strict=True):
            name = first.before.name
            verdict, seconds = audits[name]
            middle = [_by_llvm("wwm", _ELSEWHERE, self._attempts(WWM_REASON), WWM_REASON)] if whole_wave else []
            clock = last.clock.since({})
            clock.add("audit", seconds)
            all_again = verdict.moves.rematerialised
            again = sum(len(spill.reloads) for spill in first.spills if spill.kind == "rematerialise")
            scalars_again = min(again, all_again)  # What was planned; the audit may pair some of it.
            moves = _moves(first.before, first.chosen or first.before, scalars_again)
            reports[name] = [
                PhaseReport(
                    scalar.phase, _with(first.attempts, _ELSEWHERE), fallback=False, fallback_reason="", moves=moves,
                    seconds=dict(first.clock.seconds), spills=first.spills, audited_with=LAST_PHASE,
                ),
                *middle,
                PhaseReport(
                    vector.phase, _with(last.attempts, audit_verdict(verdict)), fallback=False, fallback_reason="",
                    moves=_moves(last.before, last.chosen or last.before, all_again - scalars_again),
                    seconds=clock.seconds, spills=last.spills,
                ),
            ]  # fmt: skip
        return reports

    def of_llvm(
        self, before: str, after: str, path: str, phases: Sequence[Phase], names: Collection[str] | None
    ) -> Reports | None:
        """LLVM's allocation in ``phases``, of the functions named; None where not each of them is proved."""
        audits = self.audits(before, after, path, names)
        if not _all_proved(audits):
            return None
        scalar, *middle, last = phases
        lanes = {function.name: _in_lanes(function) for function in self._parsed_after(after, path).functions}
        return {
            name: [
                replace(_by_llvm(scalar, _ELSEWHERE), moves=lanes[name]),
                *(_by_llvm(phase, _ELSEWHERE) for phase in middle),
                replace(_by_llvm(last, audit_verdict(a)), moves=moves_of(a), seconds={"audit": seconds}),
            ]
            for name, (a, seconds) in audits.items()
        }

    def judged(self, before: str, after: str, path: str, reports: Reports) -> Reports:
        """The reports of phases audited alone; functions that they prove and that are refuted at once are refuted."""
        proved = [name for name, of in reports.items() if all(r.outcome is Outcome.PROVED for r in of)]
        audits = self.audits(before, after, path, proved) if proved else {}
        refuted = {name: a for name, (a, _) in audits.items() if a.outcome is Outcome.REFUTED}
        return {
            name: [*of[:-1], _refuted(of[-1], refuted[name])] if name in refuted else of for name, of in reports.items()
        }

    def audits(self, before: str, after: str, path: str, names: Collection[str] | None = None) -> Audits:
        """The audit of each function named and its CPU seconds, by name; up to the first that is not proved where none
        is named.
        """
        with self.clock.measure("parse"):
            file = self.shared.parsed(before, path)
            allocated = self._parsed_after(after, path)
        partners = {function.name: function for function in allocated.functions}
        audits: Audits = {}
        for function in file.functions:
            if names is not None and function.name not in names:
                continue
            key = before, after, function.name
            if key not in self.known:
                clock = Clock()
                partner = partners[function.name]
                audit = audit_within(self.solver_seconds, file, function, partner, self.target, clock)
                self.clock.absorb(clock)
                self.known[key] = audit, clock.seconds["audit"]
            audits[function.name] = self.known[key]
            if names is None and audits[function.name][0].outcome is not Outcome.PROVED:
                break
        return audits

    def _parsed_after(self, after: str, path: str) -> MirFile:
        if self.known_after is None or self.known_after[0] != after:
            self.known_after = after, self.shared.files.get(after) or parse_mir(after, f"{path} after {LAST_PHASE}")
        return self.known_after[1]

    def _attempts(self, reason: str) -> tuple[Attempt, ...]:
        return tuple(Attempt(allocator.name, "build", reason) for allocator in self.allocators[:1])


def _moves(before: MachineFunction, after: MachineFunction, rematerialised: int) -> Moves:
    """Copies and spill code of one phase."""
    opcodes = Counter(i.opcode for b in after.blocks for i in b.instructions)
    spills = [(opcode, count) for opcode, count in opcodes.items() if opcode.startswith("SI_SPILL_")]
    return Moves(
        sum(1 for b in before.blocks for i in b.instructions if i.opcode == "COPY"),
        opcodes["COPY"],
        sum(count for opcode, count in spills if opcode.endswith("_SAVE")),
        sum(count for opcode, count in spills if opcode.endswith("_RESTORE")),
        rematerialised,
    )


def _in_lanes(function: MachineFunction) -> Moves:
    """Scalars saved to lanes of vector registers: what is left of the scalar phase's spill code after the last one."""
    opcodes = Counter(i.opcode for b in function.blocks for i in b.instructions)
    return Moves(saves=opcodes["SI_SPILL_S32_TO_VGPR"], reloads=opcodes["SI_RESTORE_S32_FROM_VGPR"])


def _all_proved(audits: Audits) -> bool:
    return all(audit.outcome is Outcome.PROVED for audit, _ in audits.values())


def _refuted(report: PhaseReport, audit: FunctionAudit) -> PhaseReport:
    """The report of the last phase, where each phase is proved and all together are not."""
    last = audited(report.attempts[-1], audit_verdict(audit))
    reason = f"each phase is proved, but with what LLVM does between them: {last.reason}"
    return replace(report, attempts=(*report.attempts[:-1], replace(last, reason=reason)))


def _with(attempts: Sequence[Attempt], verdict: CheckResult) -> tuple[Attempt, ...]:
    return (*attempts[:-1], audited(attempts[-1], verdict))


def _by_llvm(phase: Phase, verdict: CheckResult, earlier: tuple[Attempt, ...] = (), reason: str = "") -> PhaseReport:
    attempts = (*earlier, audited(Attempt(LLVM_ALLOCATOR, "llvm"), verdict))
    with_last = None if phase == LAST_PHASE else LAST_PHASE
    return PhaseReport(phase, attempts, bool(earlier), reason, Moves(), audited_with=with_last)


_SPILLED = re.compile(r"\bSI_SPILL_(?:V|A|AV)\d+_SAVE\b")
_PHASES: dict[Phase, LlvmPhase] = {"sgpr": LlvmPhase.SGPR, "wwm": LlvmPhase.WWM, "vgpr": LlvmPhase.VGPR}


@dataclass
class Result:
    """What one variant came to.

    Attributes:
        text: machine IR after the last phase; None where the run ended before.
        recording: what the phases were decided on, where that is kept.
        checked: the object of the text, once it is made.
        ours, greedy: what each function takes in it and in LLVM's own object, by name.
    """

    variant: Variant
    text: str | None = None
    phases: dict[str, list[PhaseReport]] = field(default_factory=dict[str, list[PhaseReport]])
    recording: Recording | None = None
    checked: CheckedObject | None = None
    ours: dict[str, Resources] = field(default_factory=dict[str, Resources])
    greedy: dict[str, Resources] = field(default_factory=dict[str, Resources])

    @property
    def proved(self) -> bool:
        """Whether there is a text, and every phase of it is proved."""
        return self.text is not None and all(
            r.outcome is Outcome.PROVED for reports in self.phases.values() for r in reports
        )

    def is_proved(self, function: str) -> bool:
        """Whether every phase of the function is proved, up to the last one."""
        reports = self.phases.get(function, [])
        return bool(reports) and reports[-1].phase == LAST_PHASE and self._proved_so_far(reports)

    def has_refused(self, function: str) -> bool:
        """Whether some phase of the function is not proved."""
        return not self._proved_so_far(self.phases.get(function, ()))

    @property
    def has_a_proved_function(self) -> bool:
        """Whether there is a function of which every phase so far is proved."""
        return any(self._proved_so_far(reports) for reports in self.phases.values())

    @staticmethod
    def _proved_so_far(reports: Sequence[PhaseReport]) -> bool:
        return all(report.outcome is Outcome.PROVED for report in reports)


@dataclass
class Runs:
    """The variants of one compilation; what they have in common is done once.

    Attributes:
        pre: machine IR as it enters the first phase.
        path: its name, for messages.
        ir: the IR as llc takes it, ``""`` where machine IR was given.
        allocators: ours, in the order they are tried.
        allow_unproved: go on after a phase that is not proved.
        recorded: keep what every phase was decided on.
    """

    pre: str
    path: str
    ir: str
    compiler: StagedCompiler
    target: Target
    settings: Settings
    allocators: tuple[Allocator, ...]
    clock: Clock
    allow_unproved: bool = False
    recorded: bool = False
    shared: Shared = field(default_factory=Shared)
    _scalar: dict[bool, Result] = field(default_factory=dict[bool, Result])
    _drafts: dict[tuple[Variant, str, Phase], tuple[PhaseRunner, Draft]] = field(
        default_factory=dict[tuple[Variant, str, Phase], tuple[PhaseRunner, Draft]]
    )
    _resumed: dict[str, str] = field(default_factory=dict[str, str])
    _lowered: set[str] = field(default_factory=set[str])
    """Texts before the vector phase that LLVM's passes between the phases changed."""
    _plain: list[tuple[Phase, str, str]] | None = None
    _plain_text: str | None = None
    _known: dict[tuple[str, str, str], tuple[FunctionAudit, float]] = field(
        default_factory=dict[tuple[str, str, str], tuple[FunctionAudit, float]]
    )

    def plain(self, names: Collection[str] | None = None) -> Result:
        """LLVM's allocation of a plain compile of the IR, proved or not; audited for the functions named alone."""
        whole = None if self.recorded else self._plain_at_once(names)
        if whole is not None:
            return whole
        recording = self._new_recording()
        result = Result(LLVM, recording=recording)
        runner = self._runner((), LLVM.spills, recording)
        phases = self._direct_phases()
        for phase, before, after in phases:
            _keep(result, runner.audit_llvm(before, after, self.path, phase, "", names).reports)
        result.text = phases[-1][2]
        return self._judged(result)

    def _plain_at_once(self, names: Collection[str] | None) -> Result | None:
        """The same in one audit a function; None where that proves not all of them."""
        text = self.plain_text()
        between: list[Phase] = ["wwm"] if has_wwm_registers(text) else []
        reports = self._whole(()).of_llvm(self.pre, text, self.path, ["sgpr", *between, "vgpr"], names)
        return None if reports is None else Result(LLVM, text, reports)

    def llvms(self) -> list[tuple[str, Callable[[Collection[str]], Result]]]:
        """LLVM's allocations, the better one first, each with a name for it; the functions asked for are audited."""
        from_text: tuple[str, Callable[[Collection[str]], Result]] = ("from our text", lambda _: self.run(LLVM))
        return [("of a plain compile", self.plain), from_text] if self.ir else [from_text]

    def plain_text(self) -> str:
        """What a plain compile of the IR has after its last phase; values share slots, as they do in its end."""
        if self._plain_text is None:
            self._plain_text = _with_shared_slots(self.compiler.direct_after(self.ir, LlvmPhase.VGPR), self.path)
        return self._plain_text

    def _direct_phases(self) -> list[tuple[Phase, str, str]]:
        """Name, text before and text after each phase of a plain compile."""
        if self._plain is None:
            self._plain = [*plain_phases(self.compiler, self.ir, self.pre, self.plain_text())]
        return self._plain

    def draft(self, variant: Variant) -> str | None:
        """The text that ``run`` will have for one of our variants if every audit proves it; None where our allocators
        have nothing for some function.

        Raises:
            ToolchainError: a tool failed. InputError: a text cannot be read.
        """
        _, scalar = self._drafted(OURS, self.pre, "sgpr")
        if not scalar.is_ours:
            return None
        _, vector = self._drafted(variant, self._resume(scalar.after), "vgpr")
        return vector.after if vector.is_ours else None

    def saves(self, variant: Variant) -> bool:
        """Whether anything is saved, to memory or to lanes, in what ``draft`` gave."""
        _, scalar = self._drafted(OURS, self.pre, "sgpr")
        return scalar.saves or self._drafted(variant, self._resume(scalar.after), "vgpr")[1].saves

    def is_fragmented(self, variant: Variant) -> bool:
        """Whether something was spilled for lack of a place, not of registers, in what ``draft`` gave."""
        _, scalar = self._drafted(OURS, self.pre, "sgpr")
        drafts = scalar, self._drafted(variant, self._resume(scalar.after), "vgpr")[1]
        return self.saves(variant) and any(draft.is_fragmented for draft in drafts)

    def _drafted(
        self, variant: Variant, text: str, phase: Phase, recording: Recording | None = None
    ) -> tuple[PhaseRunner, Draft]:
        """A phase that is not audited yet, and what audits it; made once, unless it is recorded."""
        # The phase too: without scalars to allocate, one text enters both.
        key = variant, text, phase
        if recording is not None or key not in self._drafts:
            runner = self._runner(self._allocators(variant), variant.spills, recording)
            self._drafts[key] = runner, runner.draft(text, self.path, phase)
        return self._drafts[key]

    def _resume(self, scalar: str) -> str:
        """From scalar registers rewritten to before the vector phase."""
        if scalar not in self._resumed:
            text = self._resumed[scalar] = self.compiler.resume(scalar, done=LlvmPhase.SGPR, until=LlvmPhase.VGPR)
            if text != scalar:
                self._lowered.add(text)
        return self._resumed[scalar]

    def run(self, variant: Variant) -> Result:
        """All phases in one way; no text if what is not proved ends the run (``_goes_on``).

        Where ours has registers for every function, all phases are audited at once. Where that proves not all, and for
        LLVM's allocation of our text, each phase is audited alone; what is before the vector phase is then done once
        for all of ours: variants differ in vector registers alone.

        Raises:
            ToolchainError: a tool failed. InputError: a text cannot be read.
        """
        whole = None if variant.llvm or self.recorded else self._at_once(variant)
        if whole is not None:
            return whole
        if variant.llvm not in self._scalar:
            self._scalar[variant.llvm] = self._before_vectors(LLVM if variant.llvm else OURS)
        first = self._scalar[variant.llvm]
        recording = replace(first.recording, phases=[*first.recording.phases]) if first.recording else None
        phases = {name: [*reports] for name, reports in first.phases.items()}
        result = Result(variant, phases=phases, recording=recording)
        if first.text is None or not (first.proved or self.allow_unproved or variant in (OURS, LLVM)):
            return result
        try:
            runner, draft = self._drafted(variant, first.text, "vgpr", recording)
            vector = runner.settle(draft)
            if self._goes_on(result, vector.reports):
                result.text = vector.text
            if first.text in self._lowered:
                result = self._judged(result)
        except NoAllocation as stopped:
            _keep(result, stopped.reports)
        except ToolchainError:
            self._must_be_for_lack_of_proof(result)
        return result

    def _at_once(self, variant: Variant) -> Result | None:
        """All phases in one audit a function; None where that is no way, is no gain, or proves not all of them."""
        try:
            text = self.draft(variant)
        except ToolchainError:
            return None  # The first of the phases that LLVM cannot go on from says so.
        _, scalar = self._drafted(OURS, self.pre, "sgpr")
        if text is None or scalar.result is not None:
            return None
        entering = self._resume(scalar.after)
        _, vector = self._drafted(variant, entering, "vgpr")
        whole = self._whole(self._allocators(variant))
        reports = whole.of_ours(scalar, vector, whole_wave=has_wwm_registers(entering))
        return None if reports is None else Result(variant, vector.after, reports)

    def _whole(self, allocators: tuple[Allocator, ...]) -> WholeAudit:
        seconds = self.settings.solver_seconds
        return WholeAudit(allocators, self.target, seconds, self.clock, self.shared, self._known)

    def _judged(self, result: Result) -> Result:
        """Phases audited alone, with LLVM between them: what all phases at once refute is refuted."""
        if result.text is None:
            return result
        return replace(result, phases=self._whole(()).judged(self.pre, result.text, self.path, result.phases))

    def _before_vectors(self, variant: Variant) -> Result:
        """The phases before that of the vector registers; the text as it enters that one."""
        recording = self._new_recording()
        result = Result(variant, recording=recording)
        try:
            runner, draft = self._drafted(variant, self.pre, "sgpr", recording)
            scalar = runner.settle(draft)
            if not self._goes_on(result, scalar.reports):
                return result
            text = self._resume(scalar.text)
            if has_wwm_registers(text):
                whole_wave = self.compiler.wwm_phase(scalar.text)
                audited_phase = runner.audit_llvm(whole_wave.before, whole_wave.after, self.path, "wwm", WWM_REASON)
                if not self._goes_on(result, audited_phase.reports):
                    return result
            result.text = text
        except NoAllocation as stopped:
            _keep(result, stopped.reports)
        except ToolchainError:
            self._must_be_for_lack_of_proof(result)
        return result

    def _new_recording(self) -> Recording | None:
        if not self.recorded:
            return None
        from verilocc_mlir.pipeline.recording import Recording

        return Recording()

    def _runner(
        self, allocators: tuple[Allocator, ...], spills: SpillLimits, recording: Recording | None
    ) -> PhaseRunner:
        return PhaseRunner(
            allocators,
            self.target,
            lambda text, phase: self.compiler.llvm_allocate(text, _PHASES[phase]),
            fallback=self.settings.fallback,
            spills=self._limited(spills),
            solver_seconds=self.settings.solver_seconds,
            clock=self.clock,
            recording=recording,
            shared=self.shared,
        )

    def _limited(self, spills: SpillLimits) -> SpillLimits:
        if not self.settings.spill:
            return SpillLimits(spare=())
        # A step costs as much as an allocation, and seldom helps where much is spilled.
        return replace(spills, steps=FAST_STEPS) if self.settings.effort.is_quick else spills

    def _allocators(self, variant: Variant) -> tuple[Allocator, ...]:
        if variant.llvm:
            return ()
        if variant.packed:
            return (allocator("exact", seconds=self.settings.allocator_seconds),)
        if variant.model:
            settings = self.settings
            model = allocator(MODEL, seconds=settings.allocator_seconds, samples=settings.model_samples)
            return (model, *self.allocators)
        if variant.improved:
            from verilocc_mlir.allocators.improve import Improving

            return tuple(Improving(a, self.settings.allocator_seconds) for a in self.allocators)
        if not variant.spread:
            return tuple(a.packing() if isinstance(a, DeterministicAllocator) else a for a in self.allocators)
        return self.allocators

    def _goes_on(self, result: Result, reports: Mapping[str, PhaseReport]) -> bool:
        """Keep the reports; False where what is not proved ends the run.

        One function does not end that of the others: where it may be replaced by LLVM's, they go on as long as one of
        them is proved.
        """
        _keep(result, reports)
        if self.allow_unproved or all(r.outcome is Outcome.PROVED for r in reports.values()):
            return True
        return self.settings.fallback and result.has_a_proved_function

    def _must_be_for_lack_of_proof(self, result: Result) -> None:
        """Raise the failure of a tool again, unless the text had what is not proved: then the verdict says enough."""
        reports = [report for of_function in result.phases.values() for report in of_function]
        if self.allow_unproved or all(report.outcome is Outcome.PROVED for report in reports):
            raise


def _with_shared_slots(text: str, path: str) -> str:
    if not _SPILLED.search(text):
        return text
    file = parse_mir(text, path)
    functions = tuple(map(in_shared_slots, file.functions))
    if all(one is other for one, other in zip(functions, file.functions, strict=True)):
        return text
    return print_mir(replace(file, functions=functions))


def _keep(result: Result, reports: Mapping[str, PhaseReport]) -> None:
    for name, report in reports.items():
        result.phases.setdefault(name, []).append(report)
