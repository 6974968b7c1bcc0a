"""One variant of a compilation at a time: its phases, each proved, from pre-RA text to text with registers."""

from __future__ import annotations

import re
import signal
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct, field
from msgspec.structs import replace

from smt_verifier.audit import FunctionAudit
from smt_verifier.outcome import Outcome
from verilocc_mlir.allocators import Allocator
from verilocc_mlir.errors import ToolchainError
from verilocc_mlir.mir.parser import parse_mir
from verilocc_mlir.mir.printer import print_mir
from verilocc_mlir.pipeline.attempt import SpillLimits
from verilocc_mlir.pipeline.opened import Work
from verilocc_mlir.pipeline.phase import Draft, PhaseResult, PhaseRunner, Shared, in_shared_slots, with_functions
from verilocc_mlir.pipeline.settings import Settings
from verilocc_mlir.pipeline.whole import WWM_REASON, Reports, WholeAudit, without_seconds
from verilocc_mlir.problem.model import Phase
from verilocc_mlir.results.compile import LAST_PHASE, PhaseReport
from verilocc_mlir.toolchain.run import ToolFailure
from verilocc_mlir.toolchain.staged import LlvmPhase, has_wwm_registers

if TYPE_CHECKING:
    from verilocc_mlir.results.page import PhaseRecord

_SPILLED = re.compile(r"\bSI_SPILL_(?:V|A|AV)\d+_SAVE\b")
FAST_STEPS = 2
"""``SpillLimits.steps`` with ``fast``."""


class Result(Struct, frozen=True):
    """What one variant came to.

    Attributes:
        text: machine IR after the last phase; None where the run ended before.
        records: what the phases were decided on, where that is kept.
    """

    text: str | None = None
    phases: Mapping[str, Sequence[PhaseReport]] = field(default_factory=dict[str, Sequence[PhaseReport]])
    records: tuple[PhaseRecord, ...] = ()

    def with_phase(self, phase: PhaseResult) -> Result:
        """The same after one phase more."""
        phases = {**self.phases, **{n: [*self.phases.get(n, ()), report] for n, report in phase.reports.items()}}
        return replace(self, phases=phases, records=(*self.records, *phase.records))

    @property
    def reports(self) -> list[PhaseReport]:
        """Of all functions."""
        return [report for of_function in self.phases.values() for report in of_function]

    @property
    def proved(self) -> bool:
        """Whether there is a text, and every phase of it is proved."""
        return self.text is not None and only_proved(self.reports)

    def is_proved(self, function: str) -> bool:
        """Whether every phase of the function is proved, up to the last one."""
        reports = self.phases.get(function, [])
        return bool(reports) and reports[-1].phase == LAST_PHASE and only_proved(reports)

    def has_refused(self, function: str) -> bool:
        """Whether some phase of the function is not proved."""
        return not only_proved(self.phases.get(function, ()))

    @property
    def has_a_proved_function(self) -> bool:
        """Whether there is a function of which every phase so far is proved."""
        return any(map(only_proved, self.phases.values()))


Choice = Callable[[tuple[Allocator, ...], Settings], tuple[Allocator, ...]]
"""From the allocators that settings name to those that a variant asks, in their order."""


def as_given(ours: tuple[Allocator, ...], _settings: Settings) -> tuple[Allocator, ...]:
    return ours


def nobody(_ours: tuple[Allocator, ...], _settings: Settings) -> tuple[Allocator, ...]:
    return ()


class Variant(Struct, frozen=True):
    """One way of allocating a file: with allocators of ours."""

    name: str
    allocators: Choice = as_given
    spills: SpillLimits = field(default_factory=SpillLimits)

    @property
    def is_ours(self) -> bool:
        return self.allocators is not nobody

    def run(self, runs: Runs, names: Collection[str]) -> Result:
        """It with its audit, at least of the functions named."""
        return runs.run(self, names)


class LlvmVariant(Variant, frozen=True):
    """LLVM's allocation of a plain compile; for an input of machine IR, of its text."""

    allocators: Choice = nobody

    def text(self, runs: Runs) -> str:
        """What it is, before anything is audited."""
        return runs.plain_text() if runs.ir else runs.resumed_text()

    def run(self, runs: Runs, names: Collection[str]) -> Result:
        return runs.plain(names) if runs.ir else runs.resumed(names)


class ResumedVariant(LlvmVariant, frozen=True):
    """LLVM's allocation of the text that we allocate, phase by phase."""

    def text(self, runs: Runs) -> str:
        return runs.resumed_text()

    def run(self, runs: Runs, names: Collection[str]) -> Result:
        return runs.resumed(names)


OURS = Variant("as it comes")
LLVM = LlvmVariant("LLVM's")
RESUMED = ResumedVariant("LLVM's of our text")
"""It spills more than in a plain compile, so it comes last."""

Accepts = Callable[[Iterable[PhaseReport]], bool]
"""Whether a run may go on with these reports, and its text be taken."""


def only_proved(reports: Iterable[PhaseReport]) -> bool:
    return all(report.outcome is Outcome.PROVED for report in reports)


def whatever_it_is(_: Iterable[PhaseReport]) -> bool:
    return True


class Runs(Struct):
    """The variants of one compilation; what they have in common is done once.

    Attributes:
        work: with the options of the plan.
        pre: machine IR as it enters the first phase.
        ir: the IR as llc takes it, ``""`` where machine IR was given.
        accepts: what may be unproved.
        most_spilled: by function, what our allocators may store and reload at most; see ``AttemptLimits``.
    """

    work: Work
    pre: str
    ir: str
    shared: Shared
    accepts: Accepts = only_proved
    most_spilled: Mapping[str, float] = field(default_factory=dict[str, float])
    _before: Result | None = None
    """After the phases before that of the vector registers, of all ours."""
    _drafts: dict[tuple[Variant, str, Phase], tuple[PhaseRunner, Draft]] = field(
        default_factory=dict[tuple[Variant, str, Phase], tuple[PhaseRunner, Draft]]
    )
    _resumed: dict[str, str] = field(default_factory=dict[str, str])
    _of_llvm: dict[tuple[str, tuple[str, ...]], Result] = field(
        default_factory=dict[tuple[str, "tuple[str, ...]"], Result]
    )
    """LLVM's allocations with their audits, by text and the functions that are audited."""
    _resumed_phases: list[tuple[Phase, str, str]] = field(default_factory=list[tuple[Phase, str, str]])
    """What ``_phases_resumed`` gave."""
    _lowered: set[str] = field(default_factory=set[str])
    """Texts before the vector phase that LLVM's passes between the phases changed."""
    _plain: list[tuple[Phase, str, str]] | None = None
    _plain_text: str | None = None
    _known: dict[tuple[str, str, str], tuple[FunctionAudit, float]] = field(
        default_factory=dict[tuple[str, str, str], tuple[FunctionAudit, float]]
    )

    def plain(self, names: Collection[str] | None = None) -> Result:
        """LLVM's allocation of a plain compile of the IR, proved or not; audited for the functions named alone.

        When the seconds are over, no phase is audited alone, and nothing behind a function that is not proved at once:
        LLVM's of our text is still to come.
        """
        is_over = self.work.events.budget.is_over
        return self._llvms(self.plain_text(), None if is_over else self._direct_phases, names)

    def resumed(self, names: Collection[str] | None = None) -> Result:
        """The same with LLVM's allocation of our text."""
        phases = self._phases_resumed()
        return self._llvms(phases[-1][2], lambda: phases, names)

    def _llvms(
        self, text: str, phases: Callable[[], Sequence[tuple[Phase, str, str]]] | None, names: Collection[str] | None
    ) -> Result:
        """An allocation of LLVM's with its audit: all phases of a function at once, and each alone where that neither
        proves nor refutes it. Phases that are each proved do not save what is refuted at once (``_judged``).

        Args:
            phases: makes name, text before and text after each phase; None: there are no seconds for them.
            names: the functions to audit; None: all of them.
        """
        wanted = [name for name in self._names if names is None or name in names]
        key = text, tuple(wanted)
        if key not in self._of_llvm:
            reports = self._llvms_at_once(text, wanted, to_the_end=phases is not None)
            left = [name for name in wanted if name not in reports]
            if phases is None:
                rest = Result(text, without_seconds(left))
            else:
                rest = self._llvms_one_by_one(text, phases(), left) if left else Result(text)
            kept = text if any(map(only_proved, reports.values())) else rest.text
            self._of_llvm[key] = replace(rest, text=kept, phases={**reports, **rest.phases})
        return self._of_llvm[key]

    def _llvms_one_by_one(self, text: str, phases: Iterable[tuple[Phase, str, str]], names: Collection[str]) -> Result:
        """The same with each phase audited alone."""
        result, runner = Result(), self._runner(LLVM)
        for phase, before, after in phases:
            audited = runner.audit_llvm(before, after, phase, "", names)
            result = result.with_phase(audited)
            if not self._goes_on(result, audited):
                return result
        return self._judged(replace(result, text=text))

    def _llvms_at_once(self, text: str, names: Collection[str], *, to_the_end: bool) -> Reports:
        """The functions that one audit proves or refutes."""
        between: list[Phase] = ["wwm"] if has_wwm_registers(text) else []
        return self._whole(LLVM).of_llvm(self.pre, text, ["sgpr", *between, "vgpr"], names, to_the_end=to_the_end)

    def resumed_text(self) -> str:
        """Our text with LLVM's allocation, after the last phase."""
        return self._phases_resumed()[-1][2]

    def _phases_resumed(self) -> Sequence[tuple[Phase, str, str]]:
        """Name, text before and text after each phase of LLVM's allocation of our text."""
        if not self._resumed_phases:
            runner = self._runner(LLVM)
            scalar = runner.of_llvm(self.pre, "sgpr")
            entering = self._resume(scalar)
            phases: list[tuple[Phase, str, str]] = [("sgpr", self.pre, scalar)]
            if has_wwm_registers(entering):
                whole_wave = self.work.compiler.wwm_phase(scalar)
                phases.append(("wwm", whole_wave.before, whole_wave.after))
            self._resumed_phases = [*phases, ("vgpr", entering, runner.of_llvm(entering, "vgpr"))]
        return self._resumed_phases

    def plain_text(self) -> str:
        """What a plain compile of the IR has after its last phase; values share slots, as they do in its end."""
        if self._plain_text is None:
            self._plain_text = _with_shared_slots(
                self.work.compiler.direct_after(self.ir, LlvmPhase.VGPR), self.work.path
            )
        return self._plain_text

    def _direct_phases(self) -> list[tuple[Phase, str, str]]:
        """Name, text before and text after each phase of a plain compile."""
        if self._plain is None:
            self._plain = [*self.work.compiler.direct_phases(self.ir, self.pre, self.plain_text())]
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

    def is_too_dear(self, variant: Variant) -> bool:
        """Whether ``draft`` gave nothing because more would have to be spilled than is allowed."""
        if self.draft(variant) is not None:
            return False
        _, scalar = self._drafted(OURS, self.pre, "sgpr")
        if not scalar.is_ours:
            return scalar.is_too_dear
        return self._drafted(variant, self._resume(scalar.after), "vgpr")[1].is_too_dear

    def is_fragmented(self, variant: Variant) -> bool:
        """Whether something was spilled for lack of a place, not of registers, in what ``draft`` gave."""
        _, scalar = self._drafted(OURS, self.pre, "sgpr")
        drafts = scalar, self._drafted(variant, self._resume(scalar.after), "vgpr")[1]
        return self.saves(variant) and any(draft.is_fragmented for draft in drafts)

    def _drafted(self, variant: Variant, text: str, phase: Phase) -> tuple[PhaseRunner, Draft]:
        """A phase that is not audited yet, and what audits it; made once."""
        # The phase too: without scalars to allocate, one text enters both.
        key = variant, text, phase
        if key not in self._drafts:
            runner = self._runner(variant)
            self._drafts[key] = runner, runner.draft(text, phase)
        return self._drafts[key]

    def _settled(self, variant: Variant, text: str, phase: Phase) -> tuple[PhaseRunner, PhaseResult]:
        """A phase audited, and what audited it."""
        runner, draft = self._drafted(variant, text, phase)
        return runner, runner.settle(draft)

    def _resume(self, scalar: str) -> str:
        """From scalar registers rewritten to before the vector phase."""
        if scalar not in self._resumed:
            text = self._resumed[scalar] = self.work.compiler.resume(scalar, done=LlvmPhase.SGPR, until=LlvmPhase.VGPR)
            if text != scalar:
                self._lowered.add(text)
        return self._resumed[scalar]

    def run(self, variant: Variant, names: Collection[str] | None = None) -> Result:
        """All phases with a variant of ours, audited at least for the functions named; no text if what is not proved
        ends the run (``_goes_on``).

        Where ours has registers for every function, all phases are audited at once. Where that proves not all, each
        phase is audited alone; what is before the vector phase is then done once for all of ours: variants differ in
        vector registers alone.

        Raises:
            ToolchainError: a tool failed. InputError: a text cannot be read.
        """
        whole = self._at_once(variant, names)
        return self._one_by_one(variant) if whole is None else whole

    def _one_by_one(self, variant: Variant) -> Result:
        """Each phase audited alone."""
        if self._before is None:
            self._before = self._before_vectors()
        first = self._before
        result = replace(first, text=None)
        if first.text is None or not (variant == OURS or self.accepts(first.reports)):
            return result
        try:
            _, vector = self._settled(variant, first.text, "vgpr")
            result = result.with_phase(vector)
            if self._goes_on(result, vector):
                result = replace(result, text=vector.text)
            if first.text in self._lowered:
                result = self._judged(result)
        except ToolchainError:
            self._must_be_for_lack_of_proof(result)
        return result

    def _at_once(self, variant: Variant, names: Collection[str] | None) -> Result | None:
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
        reports = self._whole(variant).of_ours(scalar, vector, names, whole_wave=has_wwm_registers(entering))
        return None if reports is None else Result(vector.after, reports)

    def _whole(self, variant: Variant) -> WholeAudit:
        return WholeAudit(self._work(variant), self.shared, self._known)

    def _judged(self, result: Result) -> Result:
        """Phases audited alone, with LLVM between them: what all phases at once refute is refuted."""
        if result.text is None:
            return result
        return replace(result, phases=self._whole(LLVM).judged(self.pre, result.text, result.phases))

    def _before_vectors(self) -> Result:
        """The phases before that of the vector registers; the text as it enters that one."""
        result = Result()
        try:
            runner, scalar = self._settled(OURS, self.pre, "sgpr")
            result = result.with_phase(scalar)
            if not self._goes_on(result, scalar) or scalar.text is None:
                return result
            text = self._resume(scalar.text)
            if has_wwm_registers(text):
                whole_wave = self.work.compiler.wwm_phase(scalar.text)
                audited_phase = runner.audit_llvm(whole_wave.before, whole_wave.after, "wwm", WWM_REASON)
                result = result.with_phase(audited_phase)
                if not self._goes_on(result, audited_phase):
                    return result
            return replace(result, text=text)
        except ToolchainError:
            self._must_be_for_lack_of_proof(result)
            return result

    def _runner(self, variant: Variant) -> PhaseRunner:
        return PhaseRunner(self._work(variant), self._limited(variant.spills), self.shared, self.most_spilled)

    def _work(self, variant: Variant) -> Work:
        """With the allocators of a variant."""
        return replace(self.work, allocators=variant.allocators(self.work.allocators, self.work.settings))

    def _limited(self, spills: SpillLimits) -> SpillLimits:
        if not self.work.settings.spill:
            return SpillLimits(spare=())
        # A step costs as much as an allocation, and seldom helps where much is spilled.
        return replace(spills, steps=FAST_STEPS) if self.work.settings.effort.is_quick else spills

    def _goes_on(self, result: Result, last: PhaseResult) -> bool:
        """Whether the run goes on after its last phase, as far as that is in need of a proof.

        One function does not end that of the others: where it may be replaced by LLVM's, they go on as long as one of
        them is proved.
        """
        return self.accepts(last.reports.values()) or (self.work.settings.fallback and result.has_a_proved_function)

    def _must_be_for_lack_of_proof(self, result: Result) -> None:
        """Raise the failure of a tool again, unless the text had what is not proved: then the verdict says enough."""
        if self.accepts(result.reports):
            raise

    # Where nothing is proved throughout: ours, with what the audit says of it, or LLVM's, function by function.

    def by_verdict(self) -> Result:
        """Ours where it is proved; of a function that is not, LLVM's where that is: a plain compile's, else one of our
        text. Without a text where some function has neither, unless what is unproved is wanted.

        Raises:
            ToolchainError: a tool failed, and nothing can be taken in its place.
        """
        result = self._ours()
        if self.work.allocators and self.work.settings.fallback and not self._all_proved(result):
            result = self._with_llvms(result)
        # Functions that are not proved cost the result, not the verdict on the others.
        return result if self.accepts(result.reports) else replace(result, text=None)

    @property
    def _names(self) -> list[str]:
        return [function.name for function in self.shared.parsed(self.pre, self.work.path).functions]

    def _all_proved(self, result: Result) -> bool:
        return result.proved and all(map(result.is_proved, self._names))

    def _ours(self) -> Result:
        """Ours; where a tool fails on its way, LLVM's allocation of a plain compile, audited, with the reason."""
        try:
            return self.run(OURS)
        except ToolchainError as error:
            given_up = isinstance(error, ToolFailure) and error.status == -signal.SIGKILL
            if given_up or not (self.ir and self.work.allocators and self.work.settings.fallback):
                raise
            try:
                plain = self.plain()
            except ToolchainError:
                raise error from None
            self.work.events.note(f"LLVM's allocation is that of a plain compile: ours was left out: {error.what}")
            phases = {
                name: [replace(report, fallback=True, fallback_reason=error.what) for report in reports]
                for name, reports in plain.phases.items()
            }
            return replace(plain, phases=phases)

    def _with_llvms(self, ours: Result) -> Result:
        best, note = ours, self.work.events.note
        for whose, allocate in self._allocations_of_llvm():
            missing = [name for name in self._names if not best.is_proved(name)]
            if not missing:
                break
            try:
                llvms = allocate(missing)
                proved_names = [name for name in missing if llvms.is_proved(name)]
                mixed = self._mixed(best, llvms, proved_names) if proved_names else None
            except ToolchainError as error:
                note(f"LLVM's allocation was left out: {error.what}")
                continue
            if mixed is not None:
                best = mixed
                of = "" if len(proved_names) == len(self._names) else f" of {', '.join(proved_names)}"
                note(f"LLVM's allocation{of} is that {whose}: of the text that was resumed none is proved")
        return best

    def _allocations_of_llvm(self) -> list[tuple[str, Callable[[Collection[str]], Result]]]:
        """LLVM's allocations, the better one first, each with a name for it; the functions asked for are audited."""
        from_text: tuple[str, Callable[[Collection[str]], Result]] = ("from our text", self.resumed)
        return [("of a plain compile", self.plain), from_text] if self.ir else [from_text]

    def _mixed(self, ours: Result, llvms: Result, taken: Sequence[str]) -> Result | None:
        """Ours with some functions of LLVM's; None where ours has no text for the rest."""
        text = llvms.text
        if len(taken) < len(self._names):
            if ours.text is None or llvms.text is None:
                return None
            text = with_functions(ours.text, llvms.text, taken, self.work.path)
        phases = {
            name: [_with_reason(report, ours.phases.get(name, ())) for report in llvms.phases[name]]
            if name in taken
            else ours.phases[name]
            for name in self._names
        }
        return Result(text, phases, mixed_records(ours.records, llvms.records, taken))


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


def mixed_records(
    ours: tuple[PhaseRecord, ...], others: tuple[PhaseRecord, ...], taken: Collection[str]
) -> tuple[PhaseRecord, ...]:
    """Those of ours without the functions that are taken, then those of the others with them."""
    return (*(r for r in ours if r.function not in taken), *(r for r in others if r.function in taken))
