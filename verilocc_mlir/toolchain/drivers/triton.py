"""The LLVM inside Triton's wheel, in worker processes: an abort of LLVM is a failure of one piece of work.

Three properties of Triton's interface shape this module.

* ``translate_mir_to_asm`` always starts before the machine scheduler. The passes between there and allocation are done
  in every text that we give it, so they are left out by name (``-opt-disable``). Allocation and later passes run again;
  they find nothing to do in text that is further on, and ``repeated`` checks that they change nothing. The result is,
  instruction for instruction, that of a compile in one go.
* LLVM's list of passes to leave out only grows. IR needs all passes, so it has workers of its own.
* An error ends the process, or is written to standard error beside a result. Such a result is not used.
"""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Mapping, Set
from functools import cache, partial
from itertools import zip_longest
from pathlib import Path
from typing import Any, ClassVar

from msgspec import Struct
from msgspec.structs import replace

from verilocc_mlir.crew.descendants import JobWorker
from verilocc_mlir.crew.jobs import JobCrew
from verilocc_mlir.crew.worker import Late, WorkerFailure
from verilocc_mlir.errors import InputError, ToolchainError, UnsupportedError
from verilocc_mlir.toolchain.drivers import triton_worker
from verilocc_mlir.toolchain.drivers.job import TRIPLE, CompileOptions, LlvmJob
from verilocc_mlir.toolchain.drivers.undefined import define_everywhere, is_about_undefined
from verilocc_mlir.toolchain.elf import read_elf
from verilocc_mlir.toolchain.find import LlvmTools, kept
from verilocc_mlir.toolchain.mir_repairs import function_headers, is_wave32, mend_implicit_vcc, without_frame_marks
from verilocc_mlir.toolchain.run import RunningTools, ToolFailure, ToolRun, failed, late, replay_hint

DONE_BEFORE = (
    "machine-scheduler",
    "amdgpu-pre-ra-optimizations",
    "si-optimize-exec-masking-pre-ra",
    "si-form-memory-clauses",
)
"""The passes that change code between Triton's starting point and allocation, by LLVM's names."""

DONE_BEFORE_LATE_ORDER = (
    "si-optimize-exec-masking",
    "postra-machine-sink",
    "machine-latecleanup",
    "branch-folder",
    "tailduplication",
    "machine-cp",
    "si-shrink-instructions",
)
"""Those behind allocation that change code, up to where a text that is ordered anew goes on. The others there find
nothing to do in a kernel without a frame. With one they change the text, and LLVM's order stays."""

_LATE_ORDER = "si-post-ra-bundler"
_LEAVE_OUT = (f"-opt-disable={','.join(DONE_BEFORE)}", "-opt-bisect-verbose=0")
_LEAVE_OUT_LATE = (f"-opt-disable={','.join(DONE_BEFORE + DONE_BEFORE_LATE_ORDER)}", *_LEAVE_OUT[1:])
_USE_LLC = "use an llc: --toolchain=llc"
_IR_ERROR = re.compile(r"^LLVM ERROR: failed to parse IR: (?P<what>.*?)lineno: (?P<line>\d+)", re.MULTILINE)
_BAD_INPUT = re.compile(r"^LLVM ERROR: Failed to parse machine functions|failed to parse MIR", re.MULTILINE)
_GIVEN = re.compile(r"/proc/self/fd/\d+")
_ERROR = re.compile(r"^(?:error: |LLVM ERROR: )", re.MULTILINE)
_FUSION = "-fp-contract="
_OUTPUT_SECONDS = 60.0


class TritonDriver(Struct, frozen=True):
    """Has the LLVM of ``tools`` do the work."""

    tools: TritonTools

    def run(self, job: LlvmJob, running: RunningTools) -> ToolRun:
        """See ``Driver``.

        Raises:
            UnsupportedError: the text or an option needs an llc.
        """
        options = job.options
        if not options.opt_level:
            raise UnsupportedError("Triton's LLVM always optimises: there is no -O0", hint=_USE_LLC)
        if not job.machine:
            run = self._compile(replace(job, source=_with_file_name(job.source)), running)
            return replace(run, stdout=without_marks(run.stdout.decode()).encode()) if job.stop else run
        self.check_resumable(job.source.decode(), options.input_name)
        return self.resume(job, running)

    def resume(self, job: LlvmJob, running: RunningTools) -> ToolRun:
        """The job, from the text as it is, or with what is undefined in it defined."""
        options = job.options
        try:
            return self._resumed(job, running)
        except ToolFailure as failure:
            if not is_about_undefined(failure.stderr):
                raise
        wave32 = is_wave32(options.cpu, options.mattr, job.source.decode())
        text = define_everywhere(job.source.decode(), wave32=wave32, where=options.input_name)
        return self._resumed(replace(job, source=text.encode()), running)

    def _resumed(self, job: LlvmJob, running: RunningTools) -> ToolRun:
        """The job, and before it the check that LLVM takes the text up as it is."""
        if job.start is None:
            return self._compile(job, running)
        if _is_late(job):
            # LLVM notes them again.
            job = replace(job, source=without_frame_marks(job.source.decode())[0].encode())
        lowered = with_lowered_spills(job.source.decode())
        job = replace(job, source=with_spill_field(job.source.decode(), lowered, False).encode())
        check = self._unchanged(job, running)
        run = self._compile(job, running)
        printed = job.stop is not None
        return replace(
            run,
            stdout=with_spill_field(run.stdout.decode(), lowered, True).encode() if printed else run.stdout,
            cpu_seconds=run.cpu_seconds + check.cpu_seconds,
            wall_seconds=run.wall_seconds + check.wall_seconds,
        )

    def _unchanged(self, job: LlvmJob, running: RunningTools) -> ToolRun:
        """LLVM's work up to where the text stands, which must change nothing.

        Raises:
            UnsupportedError: it changes something.
        """
        again = self._compile(replace(job, stop=job.start), running)
        given, text = job.source.decode(), again.stdout.decode()
        if is_wave32(job.options.cpu, job.options.mattr, given):
            text = mend_implicit_vcc(text)
        if _is_late(job):
            text, _ = without_frame_marks(text)
        difference = first_difference(given, text)
        if difference is not None:
            raise UnsupportedError(
                f"Triton's LLVM changes the text before it goes on: {difference[0]!r} is {difference[1]!r} then",
                where=job.options.input_name,
                hint=_USE_LLC,
            )
        return again

    def _compile(self, job: LlvmJob, running: RunningTools) -> ToolRun:
        options = job.options
        flags = [flag for flag in options.llc_options if not flag.startswith(_FUSION)]
        self._must_know(flags, options.input_name)
        question = {
            "do": "mir" if job.machine else "ir",
            "late": _is_late(job),
            "options": [*_options(job), *flags],
            "triple": TRIPLE,
            "cpu": options.cpu,
            "features": options.mattr,
            "fusion": _fusion(options.llc_options),
            # A process keeps the allocator that it first used.
            "fresh": job.regalloc != "greedy",
            "object": job.stop is None and job.kind == "obj" and (not job.machine or job.start is not None),
        }
        return self._ask(question, job.source, job.stage, options, running)

    def check_resumable(self, mir: str, where: str) -> None:
        """See ``Driver``."""
        refuse_called_functions(mir, where=where)

    @property
    def assembles(self) -> bool:
        """See ``Driver``."""
        return False

    def assemble(self, assembly: bytes, options: CompileOptions, running: RunningTools) -> ToolRun:
        """See ``Driver``."""
        raise ToolchainError(f"no assembler is known in {self.tools.version_text}", where=options.input_name)

    def link(self, obj: bytes, options: CompileOptions, running: RunningTools) -> ToolRun:
        """See ``Driver``."""
        undefined = read_elf(obj).undefined
        if undefined:  # Triton's call of lld allows them
            stderr = f"ld.lld: error: undefined symbol: {', '.join(undefined)}"
            raise failed("lld of Triton's wheel (link)", "", 1, stderr, options.input_name)
        return self._ask({"do": "link"}, obj, "link", options, running)

    def _ask(
        self, question: Mapping[str, Any], data: bytes, stage: str, options: CompileOptions, running: RunningTools
    ) -> ToolRun:
        command = _command(self.tools, question)
        title, where, seconds = f"Triton's LLVM ({stage})", options.input_name, options.tool_seconds
        started = time.monotonic()
        fresh = question.get("fresh", False)
        kind = "late" if question.get("late") else question["do"]
        with _workers(str(self.tools.library), kind).worker(fresh=fresh) as worker:
            assert isinstance(worker, JobWorker)
            try:
                with running.holding(worker.pid):
                    answer, output = worker.ask({**question, "seconds": seconds}, seconds, data)
            except Late as failure:
                raise late(title, replay_hint(command, data, stage), seconds, where) from failure
            except WorkerFailure as failure:
                worker.kill()
                stderr = _named(worker.words()) or str(failure)
                status = worker.status or 0
                status, stderr = (1, _placed(stderr)) if _is_of_the_input(stderr) else (status or 1, stderr)
                raise failed(title, replay_hint(command, data, stage), status, stderr, where) from failure
            stderr = _named(worker.words())
        stderr += answer["failure"]
        if answer["failure"] or _ERROR.search(stderr):
            raise failed(title, replay_hint(command, data, stage), 1, stderr, where)
        wall = time.monotonic() - started
        return ToolRun(command, stage, output, stderr, float(answer["cpu_s"]), wall, int(answer["rss_kib"]))

    def _must_know(self, flags: list[str], where: str) -> None:
        """Refuse options that LLVM does not know: it ignores them silently."""
        known = kept(self.tools.library, "options", _option_names).split() if flags else []
        for flag in flags:
            name = flag.lstrip("-").partition("=")[0]
            if name not in known:
                raise InputError(f"{self.tools.version_text} has no option {flag}", where=where, hint=_USE_LLC)


def output_of(library: str, options: list[str]) -> str:
    """What LLVM writes for options that end the process, such as ``-version``.

    Raises:
        ToolchainError: no process starts, or it does not end.
    """
    with _workers(library, "ir").worker(fresh=True) as worker:
        assert isinstance(worker, JobWorker)
        try:
            worker.ask({"do": "say", "options": options}, _OUTPUT_SECONDS)
        except Late as failure:
            raise ToolchainError(f"{library} does not answer: {failure}") from failure
        except WorkerFailure:
            pass
        worker.kill()
        return worker.words()


def _is_late(job: LlvmJob) -> bool:
    """Whether the text stands where instructions are ordered behind allocation."""
    return job.start is not None and job.start.name == _LATE_ORDER


def _options(job: LlvmJob) -> list[str]:
    flags = job.common_flags
    if job.machine:
        flags += _LEAVE_OUT_LATE if _is_late(job) else _LEAVE_OUT
        if job.start is None:
            return [*flags, "-stop-before=machine-scheduler"]
    return [*flags, f"-stop-{job.stop.side}={job.stop.name}"] if job.stop else flags


def _with_file_name(ir: bytes) -> bytes:
    """IR that names its file, as any does that llc has read: machine IR that is read again has a name."""
    named = b"\nsource_filename" in b"\n" + ir
    return ir if named else b'source_filename = "<stdin>" ' + ir  # on the first line, which keeps the others' numbers


def _fusion(flags: tuple[str, ...]) -> bool:
    """Whether floating-point operations may be fused anywhere, as with ``-fp-contract=fast``."""
    chosen = [flag.removeprefix(_FUSION) for flag in flags if flag.startswith(_FUSION)]
    if chosen and chosen[-1] not in ("fast", "on"):
        raise UnsupportedError(f"Triton's LLVM has no {_FUSION}{chosen[-1]}", hint=_USE_LLC)
    return chosen[-1:] == ["fast"]


def _named(stderr: str) -> str:
    """LLVM's output with the name that llc gives to its input."""
    return _GIVEN.sub("<stdin>", stderr)


def _is_of_the_input(stderr: str) -> bool:
    return bool(_IR_ERROR.search(stderr) or _BAD_INPUT.search(stderr))


def _placed(stderr: str) -> str:
    """Complaints about IR with the line number where llc prints it."""
    return _IR_ERROR.sub(lambda match: f"<stdin>:{match['line']}: error: {match['what']}", stderr)


def _command(tools: TritonTools, question: Mapping[str, Any]) -> tuple[str, ...]:
    return (sys.executable, str(triton_worker.__file__), str(tools.library), json.dumps(question))


@cache
def _workers(library: str, kind: str) -> JobCrew:
    """Workers; those for machine IR (``"mir"``, ``"late"``) leave passes out for as long as they live."""
    return JobCrew(partial(triton_worker.work, library))


def _option_names(library: Path) -> str:
    """The names of all options, or ``"!"`` where it lists none."""
    listed = re.findall(r"^\s+--?([\w.-]+)", output_of(str(library), ["-help-hidden"]), re.MULTILINE)
    return " ".join(listed) or "!"


# Triton's library as a set of LLVM tools.


class TritonTools(LlvmTools, frozen=True, kw_only=True):
    """The LLVM inside Triton's ``library``, which has none of the optional tools."""

    place: ClassVar[str] = "in Triton's wheel"
    library: Path

    @property
    def files(self) -> dict[str, Path]:
        """See ``LlvmTools``."""
        return {"library": self.library}


# Traps of Triton's interface to LLVM that are seen, refused or mended in the text of machine IR.


# Trap of Triton's interface: functions that are called cannot be resumed.
#
# All of allocation runs again over a text that is further on. In a kernel it finds nothing to do. But in a function
# that saves registers for its caller, lowering SGPR spills saves them again and overwrites the saved values.


def refuse_called_functions(mir: str, *, where: str = "") -> None:
    """Refuse machine IR with a function that is no kernel.

    Raises:
        UnsupportedError: it has such a function; the message names it.
    """
    for name, header in function_headers(mir):
        if "isEntryFunction: true" not in " ".join(header.split()):
            raise UnsupportedError(
                f"{name} is called, not a kernel: Triton's LLVM cannot resume it",
                where=where,
                hint="use an llc (--toolchain=llc), or have it inlined: Triton's LLVM inlines what is not noinline",
            )


# Trap of Triton's interface: every function that is not ``noinline`` is marked ``alwaysinline``, intrinsics too.
#
# With that mark Triton has all calls inlined before code is generated. When LLVM reads a text, it gives intrinsics
# their own attributes again, so the IR module before a phase would differ from the one after it. Machine IR no longer
# needs the mark.

_ATTRIBUTES = re.compile(r"^ *(?:attributes #\d+ = \{|; Function Attrs:)[^\n]*", re.MULTILINE)
_INLINE_MARK = re.compile(r"\balwaysinline (?!\})")
"""The mark, if it is not the only attribute: LLVM cannot read an empty list, and keeps the mark on other functions."""


def without_marks(mir: str) -> str:
    """The text without the mark in its IR module."""
    end = mir.find("\n---\nname:")
    module = mir[: max(end, 0)]
    return _ATTRIBUTES.sub(lambda line: _INLINE_MARK.sub("", line[0]), module) + mir[len(module) :]


# Trap of Triton's interface: the lowering of scalar spills runs again over text in which it is done.
#
# LLVM 24's SILowerSGPRSpills takes saves to lanes of vector registers and reloads from them for scalar spills
# (``SIInstrInfo::isSGPRSpill``), asks for their stack slots, and crashes. It looks for spills where the function has
# stack objects and its header says ``hasSpilledSGPRs``. Nothing else reads that field. So it is taken back where all
# scalar spills are lowered.

_WITH_NAME = re.compile(r"^name: +(?P<name>[^\n]+)\n.*?^body: [^\n]*\n.*?(?=^\.\.\.)", re.MULTILINE | re.DOTALL)
_LOWERED = re.compile(r"\bSI_(?:SPILL_S32_TO_VGPR|RESTORE_S32_FROM_VGPR)\b")
_TO_LOWER = re.compile(r"\bSI_SPILL_S\d+_(?:SAVE|RESTORE)\b")
_SPILLED = re.compile(r"^(  hasSpilledSGPRs: )(true|false)$", re.MULTILINE)


def with_lowered_spills(mir: str) -> frozenset[str]:
    """The functions of a text that are said to have scalar spills, and have lowered ones only."""
    return frozenset(
        function["name"]
        for function in _WITH_NAME.finditer(mir)
        if (header := _SPILLED.search(function[0])) is not None
        and header[2] == "true"
        and _LOWERED.search(function[0])
        and not _TO_LOWER.search(function[0])
    )


def with_spill_field(mir: str, functions: frozenset[str], value: bool) -> str:
    """The text with this value of ``hasSpilledSGPRs`` in the headers of these functions."""

    def mended(function: re.Match[str]) -> str:
        return (
            _SPILLED.sub(rf"\g<1>{str(value).lower()}", function[0]) if function["name"] in functions else function[0]
        )

    return _WITH_NAME.sub(mended, mir) if functions else mir


# Trap of Triton's interface: passes that ran before run again over every text that is resumed.
#
# Most of them find nothing to do. One does (``SI Whole Quad Mode`` makes a plain copy of a ``V_SET_INACTIVE_B32`` that
# it has lowered before) and would change what has been proved. So LLVM also prints the text when it is back where the
# text stood. Both texts must be the same, block for block, instruction for instruction.

_FUNCTION = re.compile(r"^name: .*?^body: [^\n]*\n.*?(?=^\.\.\.)", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"^(?:  bb\.\d+.*:|    (?!liveins:| *;).*\S.*)$", re.MULTILINE)
_COMPUTED = re.compile(r"\b(?:killed|dead|renamable) |(?<=\d)\(0x[0-9a-f]+\)")
"""Flags of operands that LLVM computes anew each time, and the probabilities of successors."""
_LEFT_OUT = re.compile(r'^  define available_externally [^@\n]*@(?P<name>"[^"]+"|[\w.$-]+)\(', re.MULTILINE)
"""Functions that LLVM reads, leaves alone and does not print (``verifier.without_functions``)."""
_VIRTUAL = re.compile(r"%(\d+)\b")
_BLOCK = re.compile(r"(?:^  |%)bb\.(\d+)\b")


def first_difference(given: str, again: str) -> tuple[str, str] | None:
    """The first line in which the code of two machine IR texts differs, as each has it; None where it does not.

    Numbers of virtual registers and blocks do not count: LLVM may number them anew when it reads a text.
    """
    left_out = {match["name"].strip('"') for match in _LEFT_OUT.finditer(given)}
    for ours, theirs in zip_longest(_code(given, left_out), _code(again, left_out), fillvalue=""):
        if ours != theirs:
            return ours.strip(), theirs.strip()
    return None


def _code(mir: str, left_out: Set[str]) -> list[str]:
    """Functions, blocks and instructions without what LLVM computes anew; without the functions left out."""
    lines: list[str] = []
    for function in _FUNCTION.findall(mir):
        name, _, body = function.partition("\nbody: ")
        headline = name.partition("\n")[0]
        if headline.partition(":")[2].strip(" '\"") in left_out:
            continue
        lines.append(headline)
        registers: dict[str, str] = {}
        blocks: dict[str, str] = {}
        for line in _CODE.findall(body):
            plain = _COMPUTED.sub("", line).partition(" ::")[0]
            plain = _VIRTUAL.sub(lambda match, seen=registers: seen.setdefault(match[1], f"%v{len(seen)}"), plain)
            lines.append(_BLOCK.sub(lambda match, seen=blocks: seen.setdefault(match[1], f"%b{len(seen)}"), plain))
    return lines
