"""One compilation: input, pre-RA text, the phases, object, code object, and the comparison with a direct compile."""

from __future__ import annotations

import hashlib
import math
import signal
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from verilocc_mlir.allocators import Allocator
from verilocc_mlir.budget import within
from verilocc_mlir.cost.assembly import parse_assembly
from verilocc_mlir.cost.together import costs_together
from verilocc_mlir.errors import InputError, ToolchainError, UnsupportedError, VeriloccError
from verilocc_mlir.mir.model import MirFile
from verilocc_mlir.pipeline.callees import BrokenPromiseError, Promises, callees_first, check_promises, to_withhold
from verilocc_mlir.pipeline.candidates import Candidate
from verilocc_mlir.pipeline.chosen_allocators import allocators_of, checked_allocator
from verilocc_mlir.pipeline.clock import Budget, Clock
from verilocc_mlir.pipeline.effort import OURS
from verilocc_mlir.pipeline.finish import Finisher, LateOrder, late_order
from verilocc_mlir.pipeline.guard import rest_without
from verilocc_mlir.pipeline.phase import with_functions
from verilocc_mlir.pipeline.plans import DEFAULT, Planned
from verilocc_mlir.pipeline.portfolio import Kept, Portfolio
from verilocc_mlir.pipeline.resources import device_resources, kernel_resources
from verilocc_mlir.pipeline.runs import Result, Runs
from verilocc_mlir.pipeline.settings import Emit, Settings, missed_by_server
from verilocc_mlir.results.compile import FunctionReport, PhaseReport, Report, Resources, TimedStep
from verilocc_mlir.target.attributes import function_attributes
from verilocc_mlir.target.targets import Target, target
from verilocc_mlir.toolchain.checked import CheckedObject, check_object
from verilocc_mlir.toolchain.choose import choose_tools
from verilocc_mlir.toolchain.descriptor import FieldDifference, read_code_object
from verilocc_mlir.toolchain.drivers.job import CompileOptions, FileKind
from verilocc_mlir.toolchain.find import LlvmTools, Toolchain
from verilocc_mlir.toolchain.inputs import Input, load_input
from verilocc_mlir.toolchain.ir_compat import to_pre_ra, without_features
from verilocc_mlir.toolchain.mir_repairs import WITHOUT_TRUE16, close_masks, copies_between_widths, loses_mmra, trapped
from verilocc_mlir.toolchain.run import ToolFailure
from verilocc_mlir.toolchain.staged import LlvmPhase, StagedCompiler
from verilocc_mlir.toolchain.verifier import unverified, without_functions
from verilocc_mlir.version import __version__

if TYPE_CHECKING:
    from verilocc_mlir.pipeline.recording import Recording
    from verilocc_mlir.results.page import CostRow


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


_Read = TypeVar("_Read")


class _PlainCode:
    """LLVM's own code, made in another thread: assembly, and the object of that where there is an assembler."""

    def __init__(self, make: Callable[[FileKind], bytes], compiler: StagedCompiler, beside: ThreadPoolExecutor) -> None:
        self._make = make
        self._compiler = compiler
        self._beside = beside
        self._assembly = b""
        self._futures: dict[FileKind, Future[bytes]] = {}

    def __call__(self, kind: FileKind) -> Future[bytes]:
        if kind not in self._futures:
            self._futures[kind] = self._beside.submit(self._object if kind == "obj" else self._printed)
        return self._futures[kind]

    def _printed(self) -> bytes:
        self._assembly = self._assembly or self._make("asm")
        return self._assembly

    def _object(self) -> bytes:
        assembled = self._compiler.assemble(self._printed()) if self._compiler.driver.assembles else None
        return self._make("obj") if assembled is None else assembled


class Compilation:
    """The state of one run; every step adds to ``phases``, ``notes`` and the clock.

    Args:
        promise: write into masks of calls what callees keep; ``withheld``: units of a function that none says it keeps.
        left_out: functions of which LLVM makes nothing.
    """

    def __init__(
        self,
        data: bytes,
        path: str,
        settings: Settings,
        allow_unproved: bool,
        allocators: Sequence[Allocator] | None,
        recording: Recording | None = None,
        *,
        promise: bool = True,
        withheld: Mapping[str, frozenset[int]] | None = None,
        left_out: Collection[str] = (),
    ) -> None:
        self.start = time.monotonic()
        self.promise = promise
        self.withheld = withheld or {}
        self.promises = Promises("")
        self.standing: tuple[float, float] = (math.inf, math.inf)
        self.unproved: Collection[str] = ()
        self.recording = recording
        self.settings = settings
        self.allow_unproved = allow_unproved
        self.path = path
        self.digest = hashlib.sha256(data).hexdigest()
        self.clock = Clock(Budget(settings.seconds))
        # Options first: a misspelt one is said before any tool runs.
        if allocators is None:
            allocators = allocators_of(settings)
        else:
            checked_allocator(settings)
        self.allocators = tuple(allocators)
        self.toolchain: LlvmTools = choose_tools(settings.toolchain, settings.llvm)
        self.input: Input = load_input(data, path=path, cpu=settings.cpu or None, toolchain=self.toolchain)
        if left_out:
            text = rest_without(self.input.text, left_out)
            functions = tuple(name for name in self.input.functions if name not in left_out)
            self.input = replace(self.input, text=text, functions=functions)
        self.target: Target = target(self.input.cpu)
        self.compiler = StagedCompiler(self.toolchain, _tool_options(settings, self.input))
        self.finisher = Finisher(self.compiler, lambda _: None, [])
        self.file = MirFile("", ())
        self.phases: dict[str, list[PhaseReport]] = {}
        self.notes: list[str] = []
        self._objects: dict[str, bytes] = {}
        self.candidates: Mapping[str, Candidate] = {}

    def run(self) -> Compiled:
        # LLVM's own result needs nothing of ours: the second core makes it while this one allocates.
        with ThreadPoolExecutor(max_workers=1) as beside:
            try:
                budget = self.clock.budget
                with within(lambda: budget.is_over):
                    return self._run(beside)
            except BaseException:
                # Leaving the block waits for the other thread's tool, which has nothing left to do.
                self.compiler.running.kill()
                raise

    def _run(self, beside: ThreadPoolExecutor) -> Compiled:
        if self.input.kind == "mir":
            mir = self._as_llvm_reads(partial(self.compiler.accept_mir, reprint=True))
            return self._compile(mir, "", _PlainCode(partial(self._llvms_of, mir), self.compiler, beside))
        pre = self._as_llvm_reads(partial(to_pre_ra, self.compiler))
        if pre.changes:
            self.notes.append(f"IR of a newer LLVM; rewritten for this one: {', '.join(pre.changes)}")
        if names := ", ".join(trapped(pre.mir)):
            self.notes.append(f"LLVM puts a trap behind the return of {names}, which takes LDS and is no kernel")
        if copies_between_widths(pre.mir):
            pre = replace(pre, mir=self._without_true16(pre.ir))
        return self._compile(pre.mir, pre.ir, _PlainCode(partial(self.compiler.direct, pre.ir), self.compiler, beside))

    def _as_llvm_reads(self, read: Callable[[str], _Read]) -> _Read:
        """The input, without features of its functions that this LLVM does not know, and so ignores."""
        result = read(self.input.text)
        if not (unknown := self.compiler.ignored_features):
            return result
        self.notes.append(f"this LLVM does not know features of the IR, and ignores them: {', '.join(unknown)}")
        self.input = replace(self.input, text=without_features(self.input.text, unknown))
        return read(self.input.text)

    def _without_true16(self, ir: str) -> str:
        """Pre-RA machine IR, this and all that follows without 16-bit registers."""
        runs = self.compiler.runs
        mattr = ",".join(filter(None, (self.compiler.options.mattr, WITHOUT_TRUE16)))
        self.compiler = StagedCompiler(self.toolchain, replace(self.compiler.options, mattr=mattr), runs)
        self.notes.append(f"with 16-bit registers LLVM copies between widths: compiled with -mattr={WITHOUT_TRUE16}")
        return self.compiler.to_pre_ra(ir)

    def _llvms_of(self, mir: str, kind: FileKind) -> bytes:
        """LLVM's own result from machine IR; as a plain llc, without the verifier."""
        return self.compiler.finish_from(mir, LlvmPhase.SGPR, kind, verify=False)

    def _verified_plain(self, pre: str, ir: str, left_out: frozenset[str]) -> bytes:
        """The same, or from the IR where that was given, with the verifier."""
        if ir:
            return self.compiler.direct(without_functions(ir, left_out), verify=True)
        return self.compiler.finish_from(unverified(pre, left_out), LlvmPhase.SGPR)

    def _compile(self, plain: str, ir: str, llvm: Callable[[FileKind], Future[bytes]]) -> Compiled:
        self.promises = self._promises(plain)
        pre = self.promises.text
        # LLVM's allocations know of no promise.
        settings = replace(self.settings, fallback=False) if self.promises.kept else self.settings
        given = Planned(
            self.compiler, self.target, ir, pre, self.path, settings, self.allocators, self.clock,
            allow_unproved=self.allow_unproved, recorded=self.recording is not None, promised=self.promises.kept,
        )  # fmt: skip
        self.finisher = Finisher(self.compiler, lambda left_out: self._verified_plain(pre, ir, left_out), self.notes)
        greedy = llvm("obj")
        with self.clock.measure("parse"):
            self.file = given.shared.parsed(pre, self.path)
        if not self.file.functions:
            raise InputError("no function has a body", where=self.path, hint="give a module that defines a function")
        # Machine IR has no reference: what LLVM makes of it has lost the same fields.
        reference = None if self.input.kind == "mir" else greedy
        kept = self._kept(given, reference, greedy, llvm) if self.allocators else None
        if kept is None and settings.plan:
            raise UnsupportedError(
                f"of the plan {settings.plan} nothing is proved", where=self.path, hint="leave --plan out"
            )
        if kept is None and self.promises.kept:
            doubtful = to_withhold(self.promises, self.file, self.unproved)
            raise BrokenPromiseError("not all is proved with masks that say more", doubtful)
        if kept is None:
            result, before = self._by_verdict(given.runs(DEFAULT)), pre
        else:
            result, before = kept.result, kept.pre
            self.candidates = kept.candidates
        self.phases = result.phases
        if self.recording is not None and result.recording is not None:
            self.recording.phases[:], self.recording.target = result.recording.phases, result.recording.target
        before = close_masks(before)
        if result.text is None:
            return Compiled(None, self._report({}, {}, ()), before=before)
        checked = result.checked or self._finish(result, result.text, before, reference, greedy, llvm)
        if self.promises.kept:
            self._check_promises(result.text)
        if self.recording is not None:
            self.recording.costs.update(self._costs(result.text, llvm))
        data = self._emit(result.text, checked, self.settings.emit)
        also = {emit: self._emit(result.text, checked, emit) for emit in self.settings.also}
        return Compiled(data, self._report(result.ours, result.greedy, checked.mended), also, before)

    def _promises(self, pre: str) -> Promises:
        """The text before the first phase, with what its local functions leave alone in the masks of their calls."""
        if not (self.promise and self.allocators and isinstance(self.toolchain, Toolchain)):
            return Promises(pre)
        with self.clock.measure("callees"):
            return callees_first(pre, self.path, self.compiler, self.target, self.withheld)

    def _check_promises(self, text: str) -> None:
        """Prove the masks in the text that is shipped, of the object that is made of it.

        Raises:
            BrokenPromiseError: that fails.
        """
        with self.clock.measure("audit"):
            check_promises(text, self._objects[text], self.path, self.compiler, self.target)
        names = ", ".join(self.promises.kept)
        self.notes.append(f"callers use registers that these leave alone, as is proved of their final code: {names}")

    def _kept(
        self,
        given: Planned,
        reference: Future[bytes] | None,
        greedy: Future[bytes],
        llvm: Callable[[FileKind], Future[bytes]],
    ) -> Kept | None:
        """What stands best of all that is tried, proved and finished; None where some function has nothing like it."""
        names = [function.name for function in self.file.functions]
        portfolio = Portfolio(
            given, names, lambda: llvm("asm").result(), lambda: self._kernels(greedy.result()), self.notes,
        )  # fmt: skip
        while (kept := portfolio.kept()) is not None:
            assert kept.result.text is not None
            if kept.is_llvms and loses_mmra(given.ir, self.toolchain.version):
                self.finisher.llvms[kept.result.text] = lambda kind: llvm(kind).result()
            try:
                self._order(given, kept, portfolio)
                self._finish(kept.result, kept.result.text, kept.pre, reference, greedy, llvm)
            except ToolchainError as error:
                if not portfolio.refuse(kept, error):
                    raise
            else:
                portfolio.note(kept)
                self.standing = portfolio.standing(kept)
                return kept
        self.unproved = portfolio.unproved
        return None

    def _order(self, given: Planned, kept: Kept, portfolio: Portfolio) -> None:
        """Have what is kept finished in an order of our own, where that is proved and cheaper."""
        # A promise is proved of the text that LLVM finishes.
        if not self.settings.order or self.promises.kept:
            return
        text = kept.result.text or ""
        try:
            found = late_order(given, text, portfolio.costs(kept))
        except VeriloccError as error:
            if isinstance(error, ToolFailure) and error.status == -signal.SIGKILL:
                raise
            found = LateOrder("", (f"LLVM's order stays behind allocation: {error.what}",))
        self.notes += found.notes
        if found.text:
            self.finisher.ordered[text] = found.text

    def _by_verdict(self, runs: Runs) -> Result:
        """Ours, with what the audit says of it, where there is nothing that is proved throughout."""
        result = self._ours(runs)
        if self.allocators and self.settings.fallback and not self._all_proved(result):
            result = self._with_llvms(result, runs)
        if not (self.allow_unproved or self._all_proved(result)):
            # Functions that are not proved cost the result, not the verdict on the others.
            result.text = None
        return result

    def _finish(
        self,
        result: Result,
        text: str,
        pre: str,
        reference: Future[bytes] | None,
        greedy: Future[bytes],
        llvm: Callable[[FileKind], Future[bytes]],
    ) -> CheckedObject:
        """The object of a result's text, checked, and what its functions take; both are kept in the result."""
        obj = self._objects[text] = self.finisher.finish(text)
        compared = None if reference is None else reference.result()
        with self.clock.measure("check object"):
            checked = check_object(obj, mir=pre, cpu=self.target.name, reference=compared, where=self.path)
        result.checked = checked
        result.ours, result.greedy = self._resources(checked.data, greedy.result(), text, llvm)
        return checked

    def _all_proved(self, result: Result) -> bool:
        return result.proved and all(result.is_proved(f.name) for f in self.file.functions)

    def _ours(self, runs: Runs) -> Result:
        """Ours; where a tool fails on its way, LLVM's allocation of a plain compile, audited, with the reason."""
        try:
            return runs.run(OURS)
        except ToolchainError as error:
            given_up = isinstance(error, ToolFailure) and error.status == -signal.SIGKILL
            if given_up or not (runs.ir and self.allocators and self.settings.fallback):
                raise
            try:
                other = runs.plain()
            except ToolchainError:
                raise error from None
            self.notes.append(f"LLVM's allocation is that of a plain compile: ours was left out: {error.what}")
            phases = {
                name: [replace(report, fallback=True, fallback_reason=error.what) for report in reports]
                for name, reports in other.phases.items()
            }
            return replace(other, phases=phases)

    def _with_llvms(self, ours: Result, runs: Runs) -> Result:
        """Ours; of a function that is not proved, LLVM's where that is: a plain compile's, else one of our text."""
        best = ours
        for whose, allocate in runs.llvms():
            missing = [f.name for f in self.file.functions if not best.is_proved(f.name)]
            if not missing:
                break
            try:
                other = allocate(missing)
                proved_names = [name for name in missing if other.is_proved(name)]
                mixed = self._mixed(best, other, proved_names) if proved_names else None
            except ToolchainError as error:
                self.notes.append(f"LLVM's allocation was left out: {error.what}")
                continue
            if mixed is not None:
                best = mixed
                of = "" if len(proved_names) == len(self.file.functions) else f" of {', '.join(proved_names)}"
                self.notes.append(f"LLVM's allocation{of} is that {whose}: of the text that was resumed none is proved")
        return best

    def _mixed(self, ours: Result, other: Result, taken: Sequence[str]) -> Result | None:
        """Ours with some functions of LLVM's; None where ours has no text for the rest."""
        text = other.text
        if len(taken) < len(self.file.functions):
            if ours.text is None or other.text is None:
                return None
            text = with_functions(ours.text, other.text, taken, self.path)
        llvm_phases = self._with_reasons(other, ours).phases
        phases = {f.name: (llvm_phases if f.name in taken else ours.phases)[f.name] for f in self.file.functions}
        recording = ours.recording
        if recording is not None and other.recording is not None:
            records = [r for r in recording.phases if r.function not in taken]
            records += [r for r in other.recording.phases if r.function in taken]
            recording = replace(recording, phases=records, target=recording.target or other.recording.target)
        return Result(ours.variant, text, phases, recording)

    @staticmethod
    def _with_reasons(other: Result, ours: Result) -> Result:
        """LLVM's result, each phase with why ours failed in it."""
        phases = {
            name: [_with_reason(report, ours.phases.get(name, ())) for report in reports]
            for name, reports in other.phases.items()
        }
        return replace(other, phases=phases)

    def _resources(
        self, ours: bytes, greedy: bytes, done: str, llvm: Callable[[FileKind], Future[bytes]]
    ) -> tuple[dict[str, Resources], dict[str, Resources]]:
        by_side = self._kernels(ours), self._kernels(greedy)
        if not all(f.name in by_side[0] for f in self.file.functions):
            texts = self.finisher.finish(done, "asm"), llvm("asm").result()
            for kernels, text in zip(by_side, texts, strict=True):
                for name, resources in device_resources(text.decode(), self.target).items():
                    kernels.setdefault(name, resources)
        return by_side

    def _costs(self, done: str, llvm: Callable[[FileKind], Future[bytes]]) -> dict[str, tuple[CostRow, ...]]:
        """Ours beside LLVM's, where the two do the same work."""
        from verilocc_mlir.pipeline.recording import cost_rows

        texts = self.finisher.finish(done, "asm"), llvm("asm").result()
        with self.clock.measure("cost"):
            ours, greedy = (parse_assembly(text.decode(), self.target, where=self.path) for text in texts)
            pairs = costs_together(ours, greedy, self.target)
        return {
            name: cost_rows(pair.first, None if pair.problem else pair.second)
            for name, pair in pairs.items()
            if pair.first is not None
        }

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
            return close_masks(done).encode()
        if emit is Emit.OBJ:
            return checked.data
        if emit is Emit.HSACO:
            return self.compiler.link(checked.data)
        return checked.mended_asm(self.finisher.finish(done, "asm"))

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
                *self._chosen(f.name),
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
            server=missed_by_server(functions, self.notes),
        )

    def _chosen(self, name: str) -> tuple[str, str]:
        """The names of a function's plan and variant."""
        candidate = self.candidates.get(name)
        return (DEFAULT.name, "") if candidate is None else (candidate.plan.name, candidate.variant.name)

    def _steps(self) -> tuple[TimedStep, ...]:
        total = Clock()
        total.absorb(self.clock)
        for tool in self.compiler.runs:
            total.add(tool.stage, tool.cpu_seconds)
        return tuple(TimedStep(name, seconds) for name, seconds in total.seconds.items())

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
        settings.verifies,
        settings.tool_seconds,
        settings.llc_options,
        input_name=given.path,
    )
