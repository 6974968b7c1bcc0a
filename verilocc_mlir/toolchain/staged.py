"""The staged run: LLVM up to register allocation, our phases in between, LLVM for the rest.

AMDGPU allocates in three phases, each a greedy run and a rewriter: SGPR (index 0), WWM (1), VGPR with AGPR (2). Between
them LLVM lowers SGPR spills to lanes of whole-wave registers and reserves those. The stops and resumes below run the
same passes, in the same order, as one ``llc -O3`` does; docs/design/toolchain.md lists what the text between
them cannot say.
Three of those losses are mended here:

* ``-enable-ipra=0``. With interprocedural allocation (AMDGPU's default) a local function saves no callee-saved
  register, because its callers will be told what it clobbers. Callers in a staged run were selected before the callee
  was allocated and hold the ordinary register mask, so values across the call would be destroyed, silently.
* SGPR phase resumed at ``-start-before=virtregrewriter,0``, not after it: the rewriter changes nothing in a text
  without virtual SGPRs, but brings up LiveIntervals, without which lowering SGPR spills crashes LLVM 22.
* The WWM phase, where LLVM runs it, runs in one go with the passes before it: which registers it may use is not in the
  text.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path
from typing import Literal

from verilocc_mlir.errors import InputError
from verilocc_mlir.mir.stages import STOP_BEFORE_ALL_PHASES, stop_before
from verilocc_mlir.toolchain.dynamic_lds import declare_dynamic_lds
from verilocc_mlir.toolchain.find import Toolchain
from verilocc_mlir.toolchain.implicit_vcc import is_wave32, mend_implicit_vcc
from verilocc_mlir.toolchain.mmra import strip_mmra
from verilocc_mlir.toolchain.run import BROKEN_MODULE, DEFAULT_TIMEOUT, RunningTools, ToolFailure, ToolRun, run_tool
from verilocc_mlir.toolchain.unknown_intrinsics import refuse_unknown_intrinsics

_IGNORED = re.compile(r"'(?P<name>[^']*)' is not a recognized (?P<kind>processor|feature)")

TRIPLE = "amdgcn-amd-amdhsa"
FileKind = Literal["obj", "asm"]
RegAlloc = Literal["greedy", "basic", "fast"]
"""LLVM's register allocators."""

_REGALLOC_PASSES: dict[RegAlloc, str] = {"greedy": "greedy", "basic": "regallocbasic", "fast": "regallocfast"}


class LlvmPhase(IntEnum):
    """A register-allocation phase; the value is LLVM's index in ``greedy,N`` and ``virtregrewriter,N``."""

    SGPR = 0
    WWM = 1
    VGPR = 2


@dataclass(frozen=True)
class CompileOptions:
    """How llc is called, the same for every stage.

    Attributes:
        cpu: ``"gfx942"``; no feature suffix (see ``split_target_id``).
        mattr: LLVM feature string, ``"+sramecc,-xnack"``.
        opt_level: 0 to 3, for ``-O``. The three phases exist from ``-O1`` on.
        verify: run the machine verifier after every pass of a resumed run.
        timeout: wall seconds for each subprocess.
        extra: further llc options, passed to every stage.
        input_name: the input's name, shown in errors.
    """

    cpu: str
    mattr: str = ""
    opt_level: int = 3
    verify: bool = True
    timeout: float = DEFAULT_TIMEOUT
    extra: tuple[str, ...] = ()
    input_name: str = ""


def split_target_id(target: str) -> tuple[str, str]:
    """``"gfx942:sramecc+:xnack-"`` as ``("gfx942", "+sramecc,-xnack")`` (AMDGPUUsage, Target ID).

    Raises:
        InputError: not of that form.
    """
    processor, *features = target.split(":")
    bad = [text for text in features if not re.fullmatch(r"[a-z0-9-]+[+-]", text)]
    if not re.fullmatch(r"[a-z0-9][a-z0-9-]*", processor) or bad:
        raise InputError(f"{target!r} is not a target id", hint="for example gfx942 or gfx942:sramecc+:xnack-")
    return processor, ",".join([text[-1] + text[:-1] for text in features])


@dataclass(frozen=True)
class WwmPhase:
    """The WWM phase as LLVM ran it: the text before its greedy and after its rewriter, from one and the same input."""

    before: str
    after: str


@dataclass
class StagedCompiler:
    """Drives one input through llc and ld.lld. ``runs`` has one entry for every subprocess, in order;
    ``running`` holds those that still run.

    Texts are returned as LLVM prints them (memory-model annotations left off) and mended for its parser on the way in.
    Every method raises ToolchainError where the tool fails, crashes or times out.
    """

    toolchain: Toolchain
    options: CompileOptions
    runs: list[ToolRun] = field(default_factory=list[ToolRun])
    running: RunningTools = field(default_factory=RunningTools, repr=False)

    def to_pre_ra(self, ir: str | bytes) -> str:
        """LLVM IR (text or bitcode) to machine IR as it enters the first allocation phase.

        Raises:
            InputError: llc does not parse it; an unknown processor or feature.
            UnsupportedError: an intrinsic unknown to this LLVM would become an external call.
        """
        try:
            output = self._llc("pre-ra", ir, [STOP_BEFORE_ALL_PHASES, "-enable-ipra=0"])
        except ToolFailure as failure:
            raise self._as_input_error(failure) from failure
        mir = strip_mmra(output.decode())
        refuse_unknown_intrinsics(mir, where=self.options.input_name, version=self._version())
        return mir

    def accept_mir(self, mir: str, *, reprint: bool = False) -> str:
        """A user's pre-RA machine IR, parsed and verified by llc; comes back without memory-model annotations.

        Args:
            reprint: as LLVM prints it, all header fields included, to be compared with what LLVM makes of it.

        Raises:
            InputError: llc does not parse it, or its machine verifier refuses it.
            UnsupportedError: it calls an intrinsic that this LLVM does not know.
        """
        try:
            printed = self._mir("parse-mir", mir, ["-run-pass=none", "-verify-machineinstrs"])
        except ToolFailure as failure:
            raise self._as_input_error(failure) from failure
        refuse_unknown_intrinsics(mir, where=self.options.input_name, version=self._version())
        return strip_mmra(printed.decode() if reprint else mir)

    def resume(self, mir: str, *, done: LlvmPhase, until: LlvmPhase) -> str:
        """From text in which ``done`` is rewritten to the text before ``until``'s greedy.

        From SGPR to VGPR, LLVM itself runs the WWM phase in between; ``wwm_phase`` shows what it did.
        """
        if until <= done:
            raise ValueError(f"cannot resume from {done.name} to {until.name}")
        flags = [_resume_flag(done), stop_before(until)]
        return self._resume(f"resume-{until.name.lower()}", mir, flags)

    def wwm_phase(self, mir: str) -> WwmPhase:
        """From text with SGPRs rewritten: the text before and after LLVM's own WWM allocation."""
        start = _resume_flag(LlvmPhase.SGPR)
        return WwmPhase(
            self._resume("resume-wwm", mir, [start, stop_before(LlvmPhase.WWM)]),
            self._resume("greedy-wwm", mir, [start, "-stop-after=virtregrewriter,1"]),
        )

    def llvm_allocate(self, mir: str, phase: LlvmPhase, allocator: RegAlloc = "greedy") -> str:
        """LLVM's own allocation of one phase: text before ``greedy,N`` to text after ``virtregrewriter,N``."""
        chosen = [] if allocator == "greedy" else [f"-{k}-regalloc={allocator}" for k in ("sgpr", "wwm", "vgpr")]
        start = f"-start-before={_REGALLOC_PASSES[allocator]},{phase.value}"
        flags = [*chosen, start, f"-stop-after=virtregrewriter,{phase.value}"]
        return self._resume(f"{allocator}-{phase.name.lower()}", mir, flags)

    def direct_after(self, ir: str | bytes, phase: LlvmPhase) -> str:
        """A plain ``llc`` of the IR up to the end of a phase, nothing resumed from text: LLVM then knows more."""
        return self._direct(ir, f"-stop-after=virtregrewriter,{phase.value}", f"direct-{phase.name.lower()}")

    def direct_before(self, ir: str | bytes, phase: LlvmPhase) -> str:
        """The same up to the start of a phase."""
        return self._direct(ir, stop_before(phase), f"direct-to-{phase.name.lower()}")

    def _direct(self, ir: str | bytes, flag: str, stage: str) -> str:
        return strip_mmra(self._llc(stage, ir, ["-enable-ipra=0", flag]).decode())

    def finish(self, mir: str, kind: FileKind = "obj", *, verify: bool = True) -> bytes:
        """From text with VGPRs rewritten to an object file or assembly text (see descriptor.py for what it lacks).

        Args:
            verify: run the verifier after each pass, if the options say so; on reading the text llc always does.
        """
        return self._finish("finish", mir, [_resume_flag(LlvmPhase.VGPR)], kind, verify)

    def finish_from(self, mir: str, phase: LlvmPhase, kind: FileKind = "obj", *, verify: bool = True) -> bytes:
        """LLVM allocates everything from ``phase`` on: its own result from the very text that we allocate."""
        return self._finish("greedy-finish", mir, [f"-start-before=greedy,{phase.value}"], kind, verify)

    def direct(self, ir: str | bytes, kind: FileKind = "obj", *, verify: bool = False) -> bytes:
        """A plain ``llc``, nothing staged: the reference for kernel descriptors and metadata.

        Args:
            verify: run the verifier after each pass, which a plain llc does not.
        """
        return self._llc("direct", ir, [*(["-verify-machineinstrs"] if verify else []), f"-filetype={kind}"])

    def link(self, obj: bytes) -> bytes:
        # lld wants a file name, and reads its own standard input through /dev/stdin.
        command = [self.toolchain.lld, "-shared", "--no-undefined", "/dev/stdin", "-o", "-"]
        return self._run(command, obj, "link").stdout

    def _resume(self, stage: str, mir: str, flags: Sequence[str]) -> str:
        return strip_mmra(self._mir(stage, mir, flags).decode())

    def _finish(self, stage: str, mir: str, flags: Sequence[str], kind: FileKind, verify: bool) -> bytes:
        return self._mir(stage, declare_dynamic_lds(mir), [*flags, f"-filetype={kind}"], verify)

    def _mir(self, stage: str, mir: str, flags: Sequence[str], verify: bool = True) -> bytes:
        text = strip_mmra(mir)
        if is_wave32(self.options.cpu, self.options.mattr, text):
            text = mend_implicit_vcc(text)
        verifier = ["-verify-machineinstrs"] if verify and self.options.verify else []
        return self._llc(stage, text, ["-x", "mir", "-enable-ipra=0", *verifier, *flags])

    def _llc(self, stage: str, source: str | bytes, flags: Sequence[str]) -> bytes:
        options = self.options
        command: list[str | Path] = [self.toolchain.llc, f"-mtriple={TRIPLE}", f"-mcpu={options.cpu}"]
        if options.mattr:
            command.append(f"-mattr={options.mattr}")
        command += [f"-O{options.opt_level}", *options.extra, *flags, "-o", "-", "-"]
        data = source.encode() if isinstance(source, str) else source
        return self._run(command, data, stage).stdout

    def _run(self, command: Sequence[str | Path], data: bytes, stage: str) -> ToolRun:
        try:
            run = run_tool(
                command,
                stdin=data,
                timeout=self.options.timeout,
                stage=stage,
                where=self.options.input_name,
                running=self.running,
            )
        except ToolFailure as failure:
            self._refuse_ignored(failure.stderr)
            raise
        self.runs.append(run)
        self._refuse_ignored(run.stderr)
        return run

    def _refuse_ignored(self, stderr: str) -> None:
        """llc ignores a processor or feature that it does not know, and compiles for something else."""
        ignored = _IGNORED.search(stderr)
        if ignored:
            raise InputError(
                f"{self._version()} does not know the {ignored['kind']} {ignored['name']}",
                where=self.options.input_name,
                hint="`llc -mtriple=amdgcn -mcpu=help` lists processors and features",
            )

    def _as_input_error(self, failure: ToolFailure) -> ToolFailure | InputError:
        """llc's complaint about a place in its input is the input's fault; a crash or time-out is not."""
        if failure.status <= 0 and BROKEN_MODULE not in failure.stderr:
            return failure
        return InputError(f"{self._version()} rejects it: {failure.line}", where=failure.where, hint=failure.hint)

    def _version(self) -> str:
        return "LLVM " + ".".join(map(str, self.toolchain.version))


def has_wwm_registers(mir: str) -> bool:
    """Whether a text between SGPR and VGPR allocation has whole-wave registers, allocated or not.

    They come from SGPR spills and callee-saved SGPRs lowered to VGPR lanes, and from strict whole-wave operations.
    """
    return "WWM_REG" in mir or "SI_SPILL_S32_TO_VGPR" in mir or bool(re.search(r"^  wwmReservedRegs: *\n", mir, re.M))


def _resume_flag(done: LlvmPhase) -> str:
    if done is LlvmPhase.SGPR:
        return "-start-before=virtregrewriter,0"
    return f"-start-after=virtregrewriter,{done.value}"
