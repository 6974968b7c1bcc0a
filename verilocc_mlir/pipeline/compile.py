"""The whole way: input, pre-RA text, the phases, object, code object, and the comparison with a direct compile."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace

from smt_verifier.outcome import Outcome
from verilocc_mlir.allocators import Allocator, allocator
from verilocc_mlir.allocators.improve import Improving
from verilocc_mlir.allocators.registry import MODEL
from verilocc_mlir.cost.model import cost_of_assembly
from verilocc_mlir.errors import InputError, ToolchainError
from verilocc_mlir.mir.model import MirFile
from verilocc_mlir.mir.parser import parse_mir
from verilocc_mlir.pipeline.attempt import SpillLimits
from verilocc_mlir.pipeline.clock import Clock
from verilocc_mlir.pipeline.effort import LLVM, OURS, Variant, ahead, cheapest, loses, variants
from verilocc_mlir.pipeline.phase import NoAllocation, PhaseRunner
from verilocc_mlir.pipeline.recording import Recording
from verilocc_mlir.pipeline.resources import device_resources, kernel_resources
from verilocc_mlir.pipeline.settings import DEFAULT_ALLOCATOR, LLVM_ALLOCATOR, Emit, Settings
from verilocc_mlir.problem.build import Phase as PhaseName
from verilocc_mlir.report.model import FunctionReport, PhaseReport, Report, Resources, Step
from verilocc_mlir.report.page.costs import cost_rows
from verilocc_mlir.report.page.model import CostRow
from verilocc_mlir.target.attributes import function_attributes
from verilocc_mlir.target.targets import Target, target
from verilocc_mlir.toolchain.checked import CheckedObject, check_object
from verilocc_mlir.toolchain.descriptor import FieldDifference
from verilocc_mlir.toolchain.find import Toolchain, find_toolchain
from verilocc_mlir.toolchain.inputs import Input, load_input
from verilocc_mlir.toolchain.ir_compat import to_pre_ra
from verilocc_mlir.toolchain.metadata import read_code_object
from verilocc_mlir.toolchain.staged import (
    CompileOptions,
    FileKind,
    Phase,
    StagedCompiler,
    has_wwm_registers,
    split_target_id,
)
from verilocc_mlir.version import __version__

_PHASES: dict[PhaseName, Phase] = {"sgpr": Phase.SGPR, "wwm": Phase.WWM, "vgpr": Phase.VGPR}
_WWM_REASON = "MIR does not say which registers whole-wave values may take"


@dataclass(frozen=True)
class Compiled:
    """What came of a compilation.

    ``data`` is the result in the form asked for, None where a phase ended without any text; ``also`` the further forms
    asked for. They may be unproved: whoever writes them looks at ``report.outcome`` first. ``before`` is the machine IR
    as it entered the first phase; ``also`` with Emit.MIR is what left the last one.
    """

    data: bytes | None
    report: Report
    also: Mapping[Emit, bytes] = field(default_factory=dict[Emit, bytes])
    before: str = ""


def compile_module(
    data: bytes,
    path: str,
    settings: Settings,
    *,
    allow_unproved: bool = False,
    allocators: Sequence[Allocator] | None = None,
    recording: Recording | None = None,
) -> Compiled:
    """Compile one LLVM IR, bitcode or pre-RA MIR file.

    Args:
        data: the file's bytes.
        path: its name, for messages; ``-`` for standard input.
        settings: what is asked for.
        allow_unproved: go on after a phase that is not proved; without it the run ends there, with its verdict.
        allocators: ours, in the order they are tried; None: those of ``allocators_of(settings)``.
        recording: keeps what every phase was decided on, for the HTML page; costs one more run of llc a phase.

    Raises:
        InputError: unusable input or option. ToolchainError: a tool is missing or failed. UnsupportedError: outside
            what this version handles.
    """
    return _Compilation(data, path, settings, allow_unproved, allocators, recording).run()


def allocators_of(settings: Settings, remote: Callable[[Settings], Allocator] | None = None) -> tuple[Allocator, ...]:
    """The allocators to try, in their order: the server's where one is named, then the local one; none for LLVM's.

    Args:
        settings: what is asked for.
        remote: makes the allocator of the server; nothing here speaks its protocol
            (``verilocc_mlir.allocators.remote``).

    Raises:
        InputError: as for ``checked_allocator``; a server is named, and there is no ``remote``, or LLVM's allocation is
            wanted.
    """
    local = checked_allocator(settings)
    if not settings.server:
        if local is None:
            return ()
        # A model that has no answer, or a refuted one, is followed by the allocator that needs none.
        return (local, allocator(DEFAULT_ALLOCATOR)) if local.name == MODEL else (local,)
    if local is None:
        raise InputError("LLVM's allocation is wanted, and a server for another", hint="leave one of the two out")
    if remote is None:
        raise InputError(
            f"who is to ask the server {settings.server} is not said",
            hint="hand its allocator in: compile_module(…, allocators=(RemoteAllocator(…), allocator(…)))",
        )
    return remote(settings), local


def checked_allocator(settings: Settings) -> Allocator | None:
    """The allocator asked for, None for LLVM's, after the checks of options that need neither input nor tool.

    Raises:
        InputError: there is no such allocator, triple or processor.
        UnsupportedError: the allocator needs a package that is not installed.
    """
    found = (
        None
        if settings.allocator == LLVM_ALLOCATOR
        else allocator(settings.allocator, seconds=settings.allocator_seconds)
    )
    if settings.triple and not settings.triple.startswith("amdgcn"):
        raise InputError(f"-mtriple={settings.triple} is not an AMDGPU", hint="use amdgcn-amd-amdhsa")
    if settings.cpu:
        target(split_target_id(settings.cpu)[0])
    return found


@dataclass
class _Result:
    """What one variant came to."""

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


class _Compilation:
    """The state of one run; every step adds to ``phases``, ``notes`` and the clock."""

    def __init__(
        self,
        data: bytes,
        path: str,
        settings: Settings,
        allow_unproved: bool,
        allocators: Sequence[Allocator] | None,
        recording: Recording | None = None,
    ) -> None:
        self.start = time.monotonic()
        self.recording = recording
        self.settings = settings
        self.allow_unproved = allow_unproved
        self.path = path
        self.digest = hashlib.sha256(data).hexdigest()
        self.clock = Clock()
        # Options first: a misspelt one is said before any tool runs.
        if allocators is None:
            allocators = allocators_of(settings)
        else:
            checked_allocator(settings)
        self.allocators = tuple(allocators)
        self.toolchain: Toolchain = find_toolchain(settings.llvm)
        self.input: Input = load_input(data, path=path, cpu=settings.cpu or None, toolchain=self.toolchain)
        self.target: Target = target(self.input.cpu)
        self.compiler = StagedCompiler(self.toolchain, _tool_options(settings, self.input))
        self.file = MirFile("", ())
        self.ir = ""
        """The IR as llc takes it, ``""`` where machine IR was given."""
        self.scalar: dict[bool, _Result] = {}
        self.phases: dict[str, list[PhaseReport]] = {}
        self.notes: list[str] = []

    def run(self) -> Compiled:
        # LLVM's own result needs nothing of ours: the second core makes it while this one allocates.
        with ThreadPoolExecutor(max_workers=1) as beside:
            try:
                return self._run(beside)
            except BaseException:
                # Leaving the block waits for the other thread's tool, which has nothing left to do.
                self.compiler.running.kill()
                raise

    def _run(self, beside: ThreadPoolExecutor) -> Compiled:
        if self.input.kind == "mir":
            mir = self.compiler.accept_mir(self.input.text)
            return self._compile(mir, lambda kind: beside.submit(self.compiler.finish_from, mir, Phase.SGPR, kind))
        pre = to_pre_ra(self.compiler, self.input.text)
        self.ir = pre.ir
        if pre.changes:
            self.notes.append(f"IR of a newer LLVM; rewritten for this one: {', '.join(pre.changes)}")
        return self._compile(pre.mir, lambda kind: beside.submit(self.compiler.direct, pre.ir, kind))

    def _compile(self, pre: str, llvm: Callable[[FileKind], Future[bytes]]) -> Compiled:
        greedy = llvm("obj")
        with self.clock.measure("parse"):
            self.file = parse_mir(pre, self.path)
        if not self.file.functions:
            raise InputError("no function has a body", where=self.path, hint="give a module that defines a function")
        kept = self._phases(pre, OURS)
        # Machine IR has no reference: what LLVM makes of it has lost the same fields.
        reference = None if self.input.kind == "mir" else greedy.result()
        if kept.text is not None:
            self._finish(kept, pre, reference, greedy.result(), llvm)
        others = variants(self.settings.effort, self.target, min((r.waves for r in kept.ours.values()), default=0))
        if self.allocators and others:
            kept = self._cheapest(kept, others, pre, llvm("asm").result())
        elif self.allocators and self.settings.fallback and loses(kept.ours, kept.greedy):
            kept = self._unless_llvms(kept, pre, reference, greedy.result(), llvm)
        self.phases = kept.phases
        if self.recording is not None and kept.recording is not None:
            self.recording.phases[:], self.recording.target = kept.recording.phases, kept.recording.target
        if kept.text is None:
            return Compiled(None, self._report({}, {}, ()), before=pre)
        if kept.checked is None:
            self._finish(kept, pre, reference, greedy.result(), llvm)
        assert kept.checked is not None
        if self.recording is not None:
            self.recording.costs.update(self._costs(kept.text, llvm))
        data = self._emit(kept.text, kept.checked, self.settings.emit)
        also = {emit: self._emit(kept.text, kept.checked, emit) for emit in self.settings.also}
        return Compiled(data, self._report(kept.ours, kept.greedy, kept.checked.mended), also, pre)

    def _finish(
        self,
        result: _Result,
        pre: str,
        reference: bytes | None,
        greedy: bytes,
        llvm: Callable[[FileKind], Future[bytes]],
    ) -> None:
        """The object of a text, checked, and what its functions take."""
        assert result.text is not None
        obj = self.compiler.finish(result.text)
        with self.clock.measure("check object"):
            result.checked = check_object(obj, mir=pre, cpu=self.target.name, reference=reference, where=self.path)
        result.ours, result.greedy = self._resources(result.checked.data, greedy, result.text, llvm)

    def _unless_llvms(
        self,
        ours: _Result,
        pre: str,
        reference: bytes | None,
        greedy: bytes,
        llvm: Callable[[FileKind], Future[bytes]],
    ) -> _Result:
        """Ours, or LLVM's allocation if that is proved and stands better."""
        try:
            other = self._llvms(pre)
            if not other.proved:
                return ours
            self._finish(other, pre, reference, greedy, llvm)
        except ToolchainError as error:
            self.notes.append(f"LLVM's allocation was left out: {error.what}")
            return ours
        if loses(other.ours, other.greedy) and not ahead(other.ours, ours.ours):
            return ours
        last = [reports[-1] for reports in ours.phases.values()]
        self.notes.append(
            "LLVM's allocation is that of a plain compile: from text LLVM spills more"
            if all(report.fallback for report in last)
            else "LLVM's allocation was kept: ours has fewer waves or spills more"
        )
        other.phases = {
            name: [_with_reason(report, ours.phases.get(name, ())) for report in reports]
            for name, reports in other.phases.items()
        }
        return other

    def _cheapest(self, ours: _Result, others: Sequence[Variant], pre: str, greedy: bytes) -> _Result:
        """The proved result with the least modelled cost; ``ours``, whatever its verdict, where none is proved."""
        results = [ours] if ours.proved else []
        texts = [self._assembly(ours)] if ours.proved else []
        for variant in others:
            if variant.llvm and not self.settings.fallback:
                continue
            try:
                result = self._llvms(pre) if variant.llvm else self._phases(pre, variant)
                if result.proved and result.text not in [r.text for r in results]:
                    texts.append(self._assembly(result))
                    results.append(result)
            except ToolchainError as error:
                self.notes.append(f"{variant.name} was left out: {error.what}")
        if len(results) < 2:
            return results[0] if results else ours
        with self.clock.measure("cost"):
            costs = [cost_of_assembly(text, self.target, where=self.path) for text in texts]
            chosen = cheapest(costs, cost_of_assembly(greedy.decode(), self.target, where=self.path))
        said = ", ".join(
            f"{r.variant.name} {sum(c.cycles for c in cost.values()):.0f}"
            for r, cost in zip(results, costs, strict=True)
        )
        self.notes.append(f"modelled cycles of what was tried: {said}; kept: {results[chosen].variant.name}")
        return results[chosen]

    def _assembly(self, result: _Result) -> str:
        assert result.text is not None
        return self.compiler.finish(result.text, "asm").decode()

    def _llvms(self, pre: str) -> _Result:
        """LLVM's allocation, audited: as in a plain compile of the IR where that is proved, else from our text.

        The plain one is the better: text cannot say all that LLVM knows.
        """
        if self.ir:
            recording = Recording() if self.recording is not None else None
            result = _Result(LLVM, recording=recording)
            runner = self._runner((), LLVM.spills, recording)
            phases = self._direct_phases(pre)
            for phase, before, after in phases:
                found = runner.audit_llvm(before, after, self.path, phase, "")
                if not self._goes_on(result, found.reports):
                    break
            else:
                result.text = phases[-1][2]
            if result.proved:
                return result
        return self._phases(pre, LLVM)

    def _direct_phases(self, pre: str) -> list[tuple[PhaseName, str, str]]:
        """Name, text before and text after each phase of a plain compile."""
        vector = self.compiler.direct_before(self.ir, Phase.VGPR)
        found: list[tuple[PhaseName, str, str]] = [("sgpr", pre, self.compiler.direct_after(self.ir, Phase.SGPR))]
        if has_wwm_registers(vector):
            ends = self.compiler.direct_before, self.compiler.direct_after
            before, after = (end(self.ir, Phase.WWM) for end in ends)
            found.append(("wwm", before, after))
        return [*found, ("vgpr", vector, self.compiler.direct_after(self.ir, Phase.VGPR))]

    def _phases(self, pre: str, variant: Variant) -> _Result:
        """All phases in one way; no text if a phase is not proved and that ends the run.

        What is before the vector phase is done once for all of ours: variants differ in vector registers alone.
        """
        if variant.llvm not in self.scalar:
            self.scalar[variant.llvm] = self._before_vectors(pre, LLVM if variant.llvm else OURS)
        first = self.scalar[variant.llvm]
        recording = replace(first.recording, phases=[*first.recording.phases]) if first.recording else None
        phases = {name: [*reports] for name, reports in first.phases.items()}
        result = _Result(variant, phases=phases, recording=recording)
        if first.text is None:
            return result
        runner = self._runner(self._allocators(variant), variant.spills, recording)
        try:
            vector = runner.run(first.text, self.path, "vgpr")
            if self._goes_on(result, vector.reports):
                result.text = vector.text
        except NoAllocation as stopped:
            self._goes_on(result, stopped.reports)
        return result

    def _before_vectors(self, pre: str, variant: Variant) -> _Result:
        """The phases before that of the vector registers; the text as it enters that one."""
        recording = Recording() if self.recording is not None else None
        result = _Result(variant, recording=recording)
        runner = self._runner(self._allocators(variant), variant.spills, recording)
        try:
            scalar = runner.run(pre, self.path, "sgpr")
            if not self._goes_on(result, scalar.reports):
                return result
            text = self.compiler.resume(scalar.text, done=Phase.SGPR, until=Phase.VGPR)
            if has_wwm_registers(text):
                whole_wave = self.compiler.wwm_phase(scalar.text)
                found = runner.audit_llvm(whole_wave.before, whole_wave.after, self.path, "wwm", _WWM_REASON)
                if not self._goes_on(result, found.reports):
                    return result
            result.text = text
        except NoAllocation as stopped:
            self._goes_on(result, stopped.reports)
        return result

    def _runner(
        self, allocators: tuple[Allocator, ...], spills: SpillLimits, recording: Recording | None
    ) -> PhaseRunner:
        return PhaseRunner(
            allocators,
            self.target,
            lambda text, phase: self.compiler.llvm_allocate(text, _PHASES[phase]),
            fallback=self.settings.fallback,
            spills=spills if self.settings.spill else SpillLimits(spare=()),
            solver_seconds=self.settings.solver_seconds,
            clock=self.clock,
            recording=recording,
        )

    def _allocators(self, variant: Variant) -> tuple[Allocator, ...]:
        if variant.llvm:
            return ()
        if variant.improved:
            return tuple(Improving(a, self.settings.allocator_seconds) for a in self.allocators)
        return self.allocators

    def _goes_on(self, result: _Result, reports: Mapping[str, PhaseReport]) -> bool:
        """Keep the reports; False where a phase that is not proved ends the run."""
        for name, report in reports.items():
            result.phases.setdefault(name, []).append(report)
        return self.allow_unproved or all(r.outcome is Outcome.PROVED for r in reports.values())

    def _resources(
        self, ours: bytes, greedy: bytes, done: str, llvm: Callable[[FileKind], Future[bytes]]
    ) -> tuple[dict[str, Resources], dict[str, Resources]]:
        """Ours and LLVM's, by function name."""
        found = self._kernels(ours), self._kernels(greedy)
        if not all(f.name in found[0] for f in self.file.functions):
            texts = self.compiler.finish(done, "asm"), llvm("asm").result()
            for kernels, text in zip(found, texts, strict=True):
                for name, resources in device_resources(text.decode(), self.target).items():
                    kernels.setdefault(name, resources)
        return found

    def _costs(self, done: str, llvm: Callable[[FileKind], Future[bytes]]) -> dict[str, tuple[CostRow, ...]]:
        """The cost model's figures for the page, by function."""
        texts = self.compiler.finish(done, "asm"), llvm("asm").result()
        with self.clock.measure("cost"):
            ours, greedy = (cost_of_assembly(t.decode(), self.target, where=self.path) for t in texts)
        return {name: cost_rows(cost, greedy.get(name)) for name, cost in ours.items()}

    def _kernels(self, elf: bytes) -> dict[str, Resources]:
        functions = {f.name: f for f in self.file.functions}
        kernels = read_code_object(elf).kernels
        return {
            name: kernel_resources(counts, functions[name], self.file.preamble, self.target)
            for name, counts in kernels.items()
            if name in functions
        }

    def _emit(self, done: str, checked: CheckedObject, emit: Emit) -> bytes:
        if emit is Emit.MIR:
            return done.encode()
        if emit is Emit.OBJ:
            return checked.data
        if emit is Emit.HSACO:
            return self.compiler.link(checked.data)
        return checked.mended_asm(self.compiler.finish(done, "asm"))

    def _report(
        self,
        ours: Mapping[str, Resources],
        greedy: Mapping[str, Resources],
        mended: tuple[FieldDifference, ...],
    ) -> Report:
        functions = tuple(
            FunctionReport(
                f.name,
                function_attributes(self.file.preamble, f.name).is_entry,
                f.instruction_count,
                tuple(self.phases.get(f.name, ())),
                ours.get(f.name),
                greedy.get(f.name),
            )
            for f in self.file.functions
        )
        return Report(
            version=__version__,
            llvm=self.toolchain.version_text,
            input=self.path,
            input_sha256=self.digest,
            target=self.target.name,
            features=self.settings.features,
            allocator=self.settings.server_allocator or self.settings.allocator,
            emit=self.settings.emit.value,
            functions=functions,
            mended=tuple(str(difference) for difference in mended),
            notes=tuple(self.notes),
            steps=self._steps(),
            wall_seconds=self._elapsed(),
        )

    def _steps(self) -> tuple[Step, ...]:
        total = Clock()
        total.absorb(self.clock)
        for tool in self.compiler.runs:
            total.add(tool.stage, tool.cpu_seconds)
        return tuple(Step(name, seconds) for name, seconds in total.seconds.items())

    def _elapsed(self) -> float:
        return time.monotonic() - self.start


def _with_reason(report: PhaseReport, before: Sequence[PhaseReport]) -> PhaseReport:
    """The report of a phase, with why ours failed in it, where it did."""
    for failed in before:
        if failed.phase == report.phase and failed.fallback:
            attempts = (*failed.attempts[:-1], *report.attempts)
            return replace(report, attempts=attempts, fallback=True, fallback_reason=failed.fallback_reason)
    return report


def _tool_options(settings: Settings, given: Input) -> CompileOptions:
    """Options for the tools; features of a target id come after ``-mattr``."""
    return CompileOptions(
        given.cpu,
        ",".join(filter(None, (settings.features, given.mattr))),
        settings.opt_level,
        settings.verify,
        settings.tool_seconds,
        settings.llc_options,
        input_name=given.path,
    )
