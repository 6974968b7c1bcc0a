"""One variant of a compilation at a time: its phases, each proved, from pre-RA text to text with registers."""

from __future__ import annotations

import re
import signal
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
from verilocc_mlir.pipeline.clock import Clock
from verilocc_mlir.pipeline.effort import FAST_STEPS, LLVM, OURS, Variant
from verilocc_mlir.pipeline.phase import Draft, PhaseRunner, Shared, in_shared_slots, with_functions
from verilocc_mlir.pipeline.settings import Settings
from verilocc_mlir.pipeline.whole import WWM_REASON, WholeAudit
from verilocc_mlir.problem.model import Phase
from verilocc_mlir.results.compile import LAST_PHASE, PhaseReport
from verilocc_mlir.target.targets import Target
from verilocc_mlir.toolchain.run import ToolFailure
from verilocc_mlir.toolchain.staged import LlvmPhase, StagedCompiler, has_wwm_registers

if TYPE_CHECKING:
    from verilocc_mlir.pipeline.recording import Recording

_SPILLED = re.compile(r"\bSI_SPILL_(?:V|A|AV)\d+_SAVE\b")
_PHASES: dict[Phase, LlvmPhase] = {"sgpr": LlvmPhase.SGPR, "wwm": LlvmPhase.WWM, "vgpr": LlvmPhase.VGPR}


@dataclass(frozen=True)
class Result:
    """What one variant came to; ``phases`` grows while it is made.

    Attributes:
        text: machine IR after the last phase; None where the run ended before.
        recording: what the phases were decided on, where that is kept.
    """

    variant: Variant
    text: str | None = None
    phases: dict[str, list[PhaseReport]] = field(default_factory=dict[str, list[PhaseReport]])
    recording: Recording | None = None

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
        return self._judged(replace(result, text=phases[-1][2]))

    def _plain_at_once(self, names: Collection[str] | None) -> Result | None:
        """The same in one audit a function; None where that proves not all of them."""
        text = self.plain_text()
        between: list[Phase] = ["wwm"] if has_wwm_registers(text) else []
        reports = self._whole(()).of_llvm(self.pre, text, self.path, ["sgpr", *between, "vgpr"], names)
        return None if reports is None else Result(LLVM, text, reports)

    def plain_text(self) -> str:
        """What a plain compile of the IR has after its last phase; values share slots, as they do in its end."""
        if self._plain_text is None:
            self._plain_text = _with_shared_slots(self.compiler.direct_after(self.ir, LlvmPhase.VGPR), self.path)
        return self._plain_text

    def _direct_phases(self) -> list[tuple[Phase, str, str]]:
        """Name, text before and text after each phase of a plain compile."""
        if self._plain is None:
            self._plain = [*self.compiler.direct_phases(self.ir, self.pre, self.plain_text())]
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
                result = replace(result, text=vector.text)
            if first.text in self._lowered:
                result = self._judged(result)
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
            if not self._goes_on(result, scalar.reports) or scalar.text is None:
                return result
            text = self._resume(scalar.text)
            if has_wwm_registers(text):
                whole_wave = self.compiler.wwm_phase(scalar.text)
                audited_phase = runner.audit_llvm(whole_wave.before, whole_wave.after, self.path, "wwm", WWM_REASON)
                if not self._goes_on(result, audited_phase.reports):
                    return result
            return replace(result, text=text)
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

    # Where nothing is proved throughout: ours, with what the audit says of it, or LLVM's, function by function.

    def by_verdict(self, notes: list[str]) -> Result:
        """Ours where it is proved; of a function that is not, LLVM's where that is: a plain compile's, else one of our
        text. Without a text where some function has neither, unless what is unproved is wanted.

        Args:
            notes: is told what was left out, and whose is taken.

        Raises:
            ToolchainError: a tool failed, and nothing can be taken in its place.
        """
        result = self._ours(notes)
        if self.allocators and self.settings.fallback and not self._all_proved(result):
            result = self._with_llvms(result, notes)
        # Functions that are not proved cost the result, not the verdict on the others.
        return result if self.allow_unproved or self._all_proved(result) else replace(result, text=None)

    @property
    def _names(self) -> list[str]:
        return [function.name for function in self.shared.parsed(self.pre, self.path).functions]

    def _all_proved(self, result: Result) -> bool:
        return result.proved and all(map(result.is_proved, self._names))

    def _ours(self, notes: list[str]) -> Result:
        """Ours; where a tool fails on its way, LLVM's allocation of a plain compile, audited, with the reason."""
        try:
            return self.run(OURS)
        except ToolchainError as error:
            given_up = isinstance(error, ToolFailure) and error.status == -signal.SIGKILL
            if given_up or not (self.ir and self.allocators and self.settings.fallback):
                raise
            try:
                plain = self.plain()
            except ToolchainError:
                raise error from None
            notes.append(f"LLVM's allocation is that of a plain compile: ours was left out: {error.what}")
            phases = {
                name: [replace(report, fallback=True, fallback_reason=error.what) for report in reports]
                for name, reports in plain.phases.items()
            }
            return replace(plain, phases=phases)

    def _with_llvms(self, ours: Result, notes: list[str]) -> Result:
        best = ours
        for whose, allocate in self._llvms():
            missing = [name for name in self._names if not best.is_proved(name)]
            if not missing:
                break
            try:
                llvms = allocate(missing)
                proved_names = [name for name in missing if llvms.is_proved(name)]
                mixed = self._mixed(best, llvms, proved_names) if proved_names else None
            except ToolchainError as error:
                notes.append(f"LLVM's allocation was left out: {error.what}")
                continue
            if mixed is not None:
                best = mixed
                of = "" if len(proved_names) == len(self._names) else f" of {', '.join(proved_names)}"
                notes.append(f"LLVM's allocation{of} is that {whose}: of the text that was resumed none is proved")
        return best

    def _llvms(self) -> list[tuple[str, Callable[[Collection[str]], Result]]]:
        """LLVM's allocations, the better one first, each with a name for it; the functions asked for are audited."""
        from_text: tuple[str, Callable[[Collection[str]], Result]] = ("from our text", lambda _: self.run(LLVM))
        return [("of a plain compile", self.plain), from_text] if self.ir else [from_text]

    def _mixed(self, ours: Result, llvms: Result, taken: Sequence[str]) -> Result | None:
        """Ours with some functions of LLVM's; None where ours has no text for the rest."""
        text = llvms.text
        if len(taken) < len(self._names):
            if ours.text is None or llvms.text is None:
                return None
            text = with_functions(ours.text, llvms.text, taken, self.path)
        phases = {
            name: [_with_reason(report, ours.phases.get(name, ())) for report in llvms.phases[name]]
            if name in taken
            else ours.phases[name]
            for name in self._names
        }
        recording = ours.recording
        if recording is not None and llvms.recording is not None:
            records = [r for r in recording.phases if r.function not in taken]
            records += [r for r in llvms.recording.phases if r.function in taken]
            recording = replace(recording, phases=records, target=recording.target or llvms.recording.target)
        return Result(ours.variant, text, phases, recording)


def _with_reason(report: PhaseReport, before: Sequence[PhaseReport]) -> PhaseReport:
    """The report of a phase, with why ours failed in it, where it did."""
    for failed in before:
        if failed.phase == report.phase and failed.fallback:
            attempts = (*failed.attempts[:-1], *report.attempts)
            return replace(report, attempts=attempts, fallback=True, fallback_reason=failed.fallback_reason)
    return report


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
