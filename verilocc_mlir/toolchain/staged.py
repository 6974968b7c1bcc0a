"""The staged run: LLVM up to register allocation, our phases in between, LLVM for the rest.

AMDGPU allocates in three phases, each a greedy run and a rewriter: SGPR (index 0), WWM (1), VGPR with AGPR (2). Between
them LLVM lowers SGPR spills to lanes of whole-wave registers and reserves those. The stops and resumes below run the
same passes, in the same order, as one ``llc -O3`` does. docs/design/target.md says which module mends what the text
between them does not say. Three of these losses are mended here, and what LLVM 22 does not know of an instruction:

* ``-enable-ipra=0``. With interprocedural allocation (AMDGPU's default) a local function saves no callee-saved
  register, because its callers know what it clobbers. In a staged run the callers were selected before the callee was
  allocated and hold the ordinary register mask, so values across the call would be destroyed silently.
* The SGPR phase is resumed at ``-start-before=virtregrewriter,0``, not after it. The rewriter changes nothing in a text
  without virtual SGPRs, but it brings up LiveIntervals, without which lowering SGPR spills crashes LLVM 22.
* If LLVM runs the WWM phase, it does so in one go with the passes before it, because the text does not say which
  registers that phase may use.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from verilocc_mlir.errors import InputError
from verilocc_mlir.toolchain.drivers.job import TRIPLE, CompileOptions, Driver, FileKind, LlvmJob, Point, RegAlloc
from verilocc_mlir.toolchain.find import LlvmTools, Toolchain
from verilocc_mlir.toolchain.loaded_tools import SELDOM
from verilocc_mlir.toolchain.mir_repairs import (
    close_masks,
    declare_dynamic_lds,
    is_wave32,
    mark_uncalled,
    mend_implicit_vcc,
    reads_mmra,
    refuse_unknown_intrinsics,
    shorten_masks,
    state_early_clobbers,
    strip_mmra,
    traps_apart,
)
from verilocc_mlir.toolchain.run import BROKEN_MODULE, RunningTools, ToolFailure, ToolRun, run_tool

# Each piece of work is a process of llc, or of ld.lld.


class LlcDriver(Struct, frozen=True):
    """Runs the tools of ``tools``."""

    tools: Toolchain

    def run(self, job: LlvmJob, running: RunningTools) -> ToolRun:
        """See ``Driver``."""
        options = job.options
        command: list[str | Path] = [self.tools.llc, f"-mtriple={TRIPLE}", f"-mcpu={options.cpu}"]
        if options.mattr:
            command.append(f"-mattr={options.mattr}")
        command += [f"-O{options.opt_level}", *options.llc_options, *_flags(job), "-o", "-", "-"]
        return _run(command, job.source, job.stage, options, running, loaded_after=0)

    def check_resumable(self, mir: str, where: str) -> None:
        """See ``Driver``: llc goes on from any."""

    @property
    def assembles(self) -> bool:
        """See ``Driver``."""
        return self.tools.mc is not None

    def assemble(self, assembly: bytes, options: CompileOptions, running: RunningTools) -> ToolRun:
        """See ``Driver``."""
        assembler = self.tools.mc or self.tools.llc.with_name("llvm-mc")
        command = [assembler, f"-triple={TRIPLE}", f"-mcpu={options.cpu}", "-filetype=obj", "-o", "-", "-"]
        if options.mattr:
            command.append(f"-mattr={options.mattr}")
        return _run(command, assembly, "assemble", options, running)

    def link(self, obj: bytes, options: CompileOptions, running: RunningTools) -> ToolRun:
        """See ``Driver``."""
        # lld wants a file name, and reads its own standard input through /dev/stdin.
        command = [self.tools.lld, "-shared", "--no-undefined", "/dev/stdin", "-o", "-"]
        return _run(command, obj, "link", options, running)


def _run(
    command: Sequence[str | Path],
    stdin: bytes,
    stage: str,
    options: CompileOptions,
    running: RunningTools,
    loaded_after: int = SELDOM,
) -> ToolRun:
    return run_tool(
        command,
        stdin=stdin,
        timeout=options.tool_seconds,
        stage=stage,
        where=options.input_name,
        running=running,
        loaded_after=loaded_after,
    )


def _flags(job: LlvmJob) -> list[str]:
    flags = [*(("-x", "mir") if job.machine else ()), *job.common_flags]
    if job.machine and job.start is None:
        return [*flags, "-run-pass=none"]
    return [*flags, *_at("start", job.start), *(_at("stop", job.stop) or [f"-filetype={job.kind}"])]


def _at(verb: str, point: Point | None) -> list[str]:
    return [] if point is None else [f"-{verb}-{point.side}={point.name}"]


_IGNORED = re.compile(r"'(?P<name>[^']*)' is not a recognized (?P<kind>processor|feature)")
_SCAVENGING_SLOT = re.compile(r"^  scavengeFI: +'%stack\.[0-9]+'\n", re.MULTILINE)
"""Stack objects that are gone are not printed, the scavenger's slot is printed by its old number, and LLVM refuses a
number that is too high. Nothing behind prologue and epilogue asks for that slot.
"""
_SPILL_COUNT = re.compile(rb"^ +\.[sv]gpr_spill_count: +[0-9]+$", re.MULTILINE)
_MAY_BE_LOWERED = (
    *("\nstack:\n", "\nfixedStack:\n", "SI_CALL", "SI_SPILL_"),
    *("WWM", "ENTER_STRICT_W", "V_SET_INACTIVE", "wwmReservedRegs:\n"),
)
"""Stack objects, calls, spill code; whole-wave registers and code."""
_REGALLOC_PASSES: dict[RegAlloc, str] = {"greedy": "greedy", "basic": "regallocbasic", "fast": "regallocfast"}


class LlvmPhase(IntEnum):
    """A register-allocation phase; the value is LLVM's index in ``greedy,N`` and ``virtregrewriter,N``."""

    SGPR = 0
    WWM = 1
    VGPR = 2


class WwmPhase(Struct, frozen=True):
    """The WWM phase as LLVM ran it: the texts before its greedy and after its rewriter, from the same input."""

    before: str
    after: str


@dataclass
class StagedCompiler:
    """Drives one input through LLVM.

    ``runs`` has an entry for every piece of work, in order, which ``hear`` gets at once; ``running`` holds the tools
    that still run; ``of_ir`` are further options for what starts from IR. Texts are returned as LLVM prints them,
    without memory-model annotations that it does not parse, and mended for its parser on the way in. Every method
    raises ToolchainError where LLVM fails, crashes or times out.
    """

    toolchain: LlvmTools
    options: CompileOptions
    runs: list[ToolRun] = field(default_factory=list[ToolRun])
    running: RunningTools = field(default_factory=RunningTools, repr=False)
    of_ir: tuple[str, ...] = ()
    hear: Callable[[ToolRun], None] = field(default=lambda _: None, repr=False)
    driver: Driver = field(init=False, repr=False)
    _printed: dict[str, bytes] = field(default_factory=dict[str, bytes], repr=False)

    def __post_init__(self) -> None:
        self.driver = driver_of(self.toolchain)

    @property
    def _ir_options(self) -> CompileOptions:
        """Options of work that starts from IR."""
        return (
            replace(self.options, llc_options=(*self.options.llc_options, *self.of_ir)) if self.of_ir else self.options
        )

    def to_pre_ra(self, ir: str | bytes) -> str:
        """LLVM IR (text or bitcode) to machine IR as it enters the first allocation phase.

        Raises:
            InputError: LLVM does not parse it; an unknown processor or feature.
            UnsupportedError: an intrinsic unknown to this LLVM would become an external call.
        """
        try:
            output = self._run(LlvmJob("pre-ra", _bytes(ir), False, self._ir_options, stop=_greedy(LlvmPhase.SGPR)))
        except ToolFailure as failure:
            raise self._as_input_error(failure) from failure
        mir = mark_uncalled(state_early_clobbers(self._as_others_read(output)))
        refuse_unknown_intrinsics(mir, where=self.options.input_name, version=self._version())
        return mir

    def inferred(self, ir: str) -> str | None:
        """The IR with what LLVM's attributor infers of its functions; None where there is no opt."""
        tools, options = self.toolchain, self.options
        if not isinstance(tools, Toolchain) or tools.opt is None:
            return None
        command = [tools.opt, f"-mtriple={TRIPLE}", f"-mcpu={options.cpu}", "-passes=amdgpu-attributor", "-S", "-"]
        command += [f"-mattr={options.mattr}"] if options.mattr else []
        return self._noted(lambda: _run(command, ir.encode(), "opt", options, self.running)).decode()

    def accept_mir(self, mir: str, *, reprint: bool = False) -> str:
        """A user's pre-RA machine IR, parsed and verified by LLVM, with the annotations that LLVM parses.

        Args:
            reprint: return the text as LLVM prints it, with all header fields, so that it can be compared with later
                texts of LLVM.

        Raises:
            InputError: LLVM does not parse it, or its machine verifier refuses it.
            UnsupportedError: it calls an intrinsic that this LLVM does not know.
        """
        try:
            printed = self._run(LlvmJob("parse-mir", self.as_llvm_reads(mir), True, self.options, verify=True))
        except ToolFailure as failure:
            raise self._as_input_error(failure) from failure
        refuse_unknown_intrinsics(mir, where=self.options.input_name, version=self._version())
        return state_early_clobbers(self._as_others_read(printed if reprint else mir.encode()))

    def resume(self, mir: str, *, done: LlvmPhase, until: LlvmPhase) -> str:
        """From text in which ``done`` is rewritten to the text before ``until``'s greedy.

        From SGPR to VGPR, LLVM runs the WWM phase in between; ``wwm_phase`` shows what it did. The text itself where
        LLVM has nothing to do in between (``goes_on_as_it_is``).
        """
        if until <= done:
            raise ValueError(f"cannot resume from {done.name} to {until.name}")
        if (done, until) == (LlvmPhase.SGPR, LlvmPhase.VGPR) and goes_on_as_it_is(mir):
            return mir
        return self._resume(f"resume-{until.name.lower()}", mir, _after(done), _greedy(until))

    def wwm_phase(self, mir: str) -> WwmPhase:
        """From text with SGPRs rewritten: the text before and after LLVM's own WWM allocation."""
        start = _after(LlvmPhase.SGPR)
        return WwmPhase(
            self._resume("resume-wwm", mir, start, _greedy(LlvmPhase.WWM)),
            self._resume("greedy-wwm", mir, start, _rewritten(LlvmPhase.WWM)),
        )

    def llvm_allocate(self, mir: str, phase: LlvmPhase, allocator: RegAlloc = "greedy") -> str:
        """LLVM's own allocation of one phase: text before ``greedy,N`` to text after ``virtregrewriter,N``."""
        start = Point("before", f"{_REGALLOC_PASSES[allocator]},{phase.value}")
        return self._resume(f"{allocator}-{phase.name.lower()}", mir, start, _rewritten(phase), allocator)

    def direct_after(self, ir: str | bytes, phase: LlvmPhase) -> str:
        """A plain compile of the IR up to the end of a phase. Nothing is resumed from text, so LLVM knows more."""
        return self._direct(ir, _rewritten(phase), f"direct-{phase.name.lower()}")

    def direct_before(self, ir: str | bytes, phase: LlvmPhase) -> str:
        """A plain compile of the IR up to the start of a phase."""
        return self._direct(ir, _greedy(phase), f"direct-to-{phase.name.lower()}")

    def direct_phases(
        self, ir: str | bytes, pre: str, final: str
    ) -> Iterator[tuple[Literal["sgpr", "wwm", "vgpr"], str, str]]:
        """Each phase of a plain compile, with the texts before and after it, made when they are asked for.

        Args:
            pre: the text before the first phase.
            final: the text after the last one (``direct_after``).
        """
        yield "sgpr", pre, self.direct_after(ir, LlvmPhase.SGPR)
        vector = self.direct_before(ir, LlvmPhase.VGPR)
        if has_wwm_registers(vector):
            yield "wwm", self.direct_before(ir, LlvmPhase.WWM), self.direct_after(ir, LlvmPhase.WWM)
        yield "vgpr", vector, final

    def _direct(self, ir: str | bytes, stop: Point, stage: str) -> str:
        printed = self._run(LlvmJob(stage, _bytes(ir), False, self._ir_options, stop=stop))
        return mark_uncalled(self._as_others_read(printed))

    def finish(self, mir: str, kind: FileKind = "obj", *, verify: bool = True) -> bytes:
        """From text with VGPRs rewritten to an object file or assembly text (see descriptor.py for what it lacks).

        LLVM's passes run once for both forms, where the assembly is asked for first and there is an assembler.

        Args:
            verify: run the verifier after each pass, if the options say so. LLVM always runs it on reading the text.
        """
        return self._once("finish", mir, _after(LlvmPhase.VGPR), kind, verify)

    def before_late_order(self, mir: str) -> str:
        """From text with VGPRs rewritten to the text that LLVM would order once more behind allocation."""
        return self._finished_to("to-late-order", mir, _LATE_ORDER)

    def finish_ordered(self, late: str, kind: FileKind = "obj", *, verify: bool = True) -> bytes:
        """As ``finish``, from a text of ``before_late_order`` whose order stays as it is."""
        return self._once("finish-ordered", late, _LATE_ORDER, kind, verify)

    def _once(self, stage: str, mir: str, start: Point, kind: FileKind, verify: bool) -> bytes:
        if mir in self._printed and not (verify and self.options.verify):
            printed = self._printed[mir]
            code = printed if kind == "asm" else self.assemble(printed)
            if code is not None:
                return code
        code = self._finish(stage, mir, start, kind, verify)
        if kind == "asm":
            self._printed[mir] = code
        return code

    def assemble(self, assembly: bytes) -> bytes | None:
        """The object file of assembly that LLVM printed; None where there is no assembler, or it does not read that.

        Its code, kernel descriptors and metadata are those of the object that LLVM writes itself, byte for byte; it has
        more symbols that say how many registers a function takes (``tests/toolchain/test_assembled.py``).
        """
        if not self.driver.assembles:
            return None
        try:
            return self._noted(lambda: self.driver.assemble(assembly, self.options, self.running))
        except ToolFailure as failure:
            # LLVM prints some names as it does not read them. What was killed was given up.
            if failure.status < 0:
                raise
            return None

    def finish_from(self, mir: str, phase: LlvmPhase, kind: FileKind = "obj", *, verify: bool = True) -> bytes:
        """LLVM's own result from the text that we allocate: it allocates everything from ``phase`` on."""
        return self._finish("greedy-finish", mir, _greedy(phase), kind, verify)

    def late(self, mir: str) -> str:
        """The text behind LLVM's last pass, of text with VGPRs rewritten: the code that ``finish`` prints."""
        return self._finished_to("late", mir, _LAST)

    def relaxed(self, mir: str, done: LlvmPhase) -> str:
        """The text behind the pass that makes long branches, of text in which ``done`` is rewritten."""
        return self._finished_to("relaxed", mir, Point("after", "branch-relaxation"), done)

    def _finished_to(self, stage: str, mir: str, stop: Point, done: LlvmPhase = LlvmPhase.VGPR) -> str:
        job = LlvmJob(stage, self._to_finish(mir), True, self.options, _after(done), stop)
        return self._as_others_read(self._run(job))

    def emit(self, late: str, kind: FileKind = "obj") -> bytes:
        """The object file or assembly of a text of ``late``."""
        source = self.as_llvm_reads(_SCAVENGING_SLOT.sub("", late))
        return self._run(LlvmJob("emit", source, True, self.options, _LAST, kind=kind))

    def is_of(self, obj: bytes, late: str, mir: str) -> bool:
        """Whether ``obj`` is the object file of a text of ``late`` that was made of ``mir``.

        That text does not say how many registers were spilled: the counts in the metadata may be those of ``finish``.
        """
        printed = self.emit(late, "asm")
        if obj in (self.emit(late), self.assemble(printed)):
            return True
        finished = self.finish(mir, "asm")
        counts = iter(_SPILL_COUNT.findall(finished))
        counted = _SPILL_COUNT.sub(lambda none: next(counts, none[0]), printed)
        if obj == self.assemble(counted):
            return True
        # LLVM writes the object itself where its verifier is to run after each pass.
        return counted == finished and obj == self._finish("finish", mir, _after(LlvmPhase.VGPR), "obj", verify=False)

    def direct(self, ir: str | bytes, kind: FileKind = "obj", *, verify: bool = False) -> bytes:
        """A plain compile, nothing staged: the reference for kernel descriptors and metadata.

        Args:
            verify: run the verifier after each pass, which a plain compile does not.
        """
        return self._run(LlvmJob("direct", _bytes(ir), False, self._ir_options, kind=kind, verify=verify, ipra=True))

    def link(self, obj: bytes) -> bytes:
        """An object file to a code object (HSACO)."""
        return self._noted(lambda: self.driver.link(obj, self.options, self.running))

    def _resume(self, stage: str, mir: str, start: Point, stop: Point, regalloc: RegAlloc = "greedy") -> str:
        job = LlvmJob(
            stage, self.as_llvm_reads(mir), True, self.options, start, stop, "obj", self.options.verify, regalloc
        )
        return self._as_others_read(self._run(job))

    def _finish(self, stage: str, mir: str, start: Point, kind: FileKind, verify: bool) -> bytes:
        options = self.options
        if start == _LATE_ORDER:
            mir = _SCAVENGING_SLOT.sub("", mir)
            options = replace(options, llc_options=(*options.llc_options, "-enable-post-misched=0"))
        source = self._to_finish(mir)
        return self._run(LlvmJob(stage, source, True, options, start, kind=kind, verify=verify and options.verify))

    def _to_finish(self, mir: str) -> bytes:
        return self.as_llvm_reads(declare_dynamic_lds(mir))

    def as_llvm_reads(self, mir: str) -> bytes:
        """Machine IR as LLVM's parser takes it."""
        text = close_masks(self._without_unread(mir))
        if is_wave32(self.options.cpu, self.options.mattr, text):
            text = mend_implicit_vcc(text)
        return text.encode()

    def _as_others_read(self, printed: bytes) -> str:
        """Machine IR that LLVM printed, without what would only be read at each step."""
        return traps_apart(shorten_masks(self._without_unread(printed.decode())))

    def _without_unread(self, mir: str) -> str:
        return mir if reads_mmra(self.toolchain.version) else strip_mmra(mir)

    def _run(self, job: LlvmJob) -> bytes:
        return self._noted(lambda: self.driver.run(job, self.running))

    def _noted(self, work: Callable[[], ToolRun]) -> bytes:
        try:
            run = work()
        except ToolFailure as failure:
            self._refuse_ignored(failure.stderr)
            raise
        self.runs.append(run)
        self.hear(run)
        self._refuse_ignored(run.stderr)
        return run.stdout

    def _refuse_ignored(self, stderr: str) -> None:
        """Refuse processors, and features of the options, that LLVM does not know: it ignores them and compiles for
        another target. What ``"target-features"`` of the IR says is ignored as llc does (``ignored_features``).
        """
        for ignored in _IGNORED.finditer(stderr):
            if ignored["kind"] == "feature" and ignored["name"] not in self.options.mattr.split(","):
                continue
            raise InputError(
                f"{self._version()} does not know the {ignored['kind']} {ignored['name']}",
                where=self.options.input_name,
                hint="`llc -mtriple=amdgcn -mcpu=help` lists processors and features",
            )

    @property
    def ignored_features(self) -> tuple[str, ...]:
        """Features that functions of the IR name and this LLVM does not know, in order."""
        found = (i for run in self.runs for i in _IGNORED.finditer(run.stderr))
        return tuple(dict.fromkeys(i["name"] for i in found if i["kind"] == "feature"))

    def _as_input_error(self, failure: ToolFailure) -> ToolFailure | InputError:
        """An InputError where LLVM complains about its input; the failure itself after a crash or time-out."""
        if failure.status <= 0 and BROKEN_MODULE not in failure.stderr:
            return failure
        return InputError(f"{self._version()} rejects it: {failure.line}", where=failure.where, hint=failure.hint)

    def _version(self) -> str:
        return "LLVM " + ".".join(map(str, self.toolchain.version))


_LATE_ORDER = Point("before", "si-post-ra-bundler")
"""Behind what makes or removes instructions for their own sake, before hazards, waits and dual issue."""
_LAST = Point("after", "amdgpu-preload-kern-arg-prolog")
"""Behind the last pass that changes code: what follows prints it."""


def has_wwm_registers(mir: str) -> bool:
    """Whether a text between SGPR and VGPR allocation has whole-wave registers, allocated or not.

    They come from SGPR spills and callee-saved SGPRs lowered to VGPR lanes, and from strict whole-wave operations.
    """
    return "WWM_REG" in mir or "SI_SPILL_S32_TO_VGPR" in mir or bool(re.search(r"\n  wwmReservedRegs: *\n", mir))


def goes_on_as_it_is(mir: str) -> bool:
    """Whether LLVM's passes between SGPR and VGPR allocation leave a text alone.

    They lower saves of SGPRs and of callee-saved ones to stack slots or lanes (SILowerSGPRSpills.cpp: nothing to do in
    an entry function without stack objects), give whole-wave values their registers (SIPreAllocateWWMRegs.cpp, the WWM
    greedy, SILowerWWMCopies.cpp), and reserve those (AMDGPUReserveWWMRegs.cpp).
    """
    entries = mir.count("\n  isEntryFunction: true\n")
    return entries == mir.count("\nname: ") and not any(sign in mir for sign in _MAY_BE_LOWERED)


def _bytes(ir: str | bytes) -> bytes:
    return ir.encode() if isinstance(ir, str) else ir


def _greedy(phase: LlvmPhase) -> Point:
    return Point("before", f"greedy,{phase.value}")


def _rewritten(phase: LlvmPhase) -> Point:
    return Point("after", f"virtregrewriter,{phase.value}")


def _after(done: LlvmPhase) -> Point:
    """Where a text in which ``done`` is rewritten is resumed; for the first phase, see the top of this module."""
    return Point("before", "virtregrewriter,0") if done is LlvmPhase.SGPR else _rewritten(done)


def driver_of(tools: LlvmTools) -> Driver:
    """The driver for that LLVM."""
    if isinstance(tools, Toolchain):
        return LlcDriver(tools)
    # Imported only when it is used: most users have an llc.
    from verilocc_mlir.toolchain.drivers.triton import TritonDriver, TritonTools

    assert isinstance(tools, TritonTools)
    return TritonDriver(tools)
