"""A piece of LLVM's work as data: the input, where LLVM starts and stops, and the options."""

from __future__ import annotations

import re
from typing import Literal, Protocol

from msgspec import Struct

from verilocc_mlir.errors import InputError
from verilocc_mlir.toolchain.run import DEFAULT_TIMEOUT, RunningTools, ToolRun

TRIPLE = "amdgcn-amd-amdhsa"
FileKind = Literal["obj", "asm"]
RegAlloc = Literal["greedy", "basic", "fast"]
"""LLVM's register allocators."""


class CompileOptions(Struct, frozen=True):
    """How LLVM is called, the same for every stage.

    Attributes:
        cpu: ``"gfx942"``, without features (see ``split_target_id``).
        mattr: LLVM feature string, ``"+sramecc,-xnack"``.
        opt_level: 0 to 3, for ``-O``. The three phases exist from ``-O1`` on.
        verify: run the machine verifier after every pass of a resumed run.
        tool_seconds: wall seconds for each piece of work.
        llc_options: further flags of llc, passed to every stage.
        input_name: the input's name, shown in errors.
    """

    cpu: str
    mattr: str = ""
    opt_level: int = 3
    verify: bool = True
    tool_seconds: float = DEFAULT_TIMEOUT
    llc_options: tuple[str, ...] = ()
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


class Point(Struct, frozen=True):
    """A place in LLVM's order of passes: before or after the pass ``name``, ``"greedy,0"``."""

    side: Literal["before", "after"]
    name: str


class LlvmJob(Struct, frozen=True):
    """One piece of work.

    Attributes:
        stage: its name in the report's time table, e.g. ``"pre-ra"``.
        source: LLVM IR (text or bitcode) or machine IR, mended for LLVM's parser.
        machine: whether the source is machine IR.
        options: options of the compilation.
        start: where machine IR stands in LLVM's order of passes; None: it is parsed, verified and printed, without any
            pass.
        stop: where LLVM stops and prints the text; None: all passes run, and the result is a file of ``kind``.
        kind: form of the file.
        verify: run the machine verifier after each pass.
        regalloc: LLVM's allocator.
        ipra: leave interprocedural register allocation as LLVM has it, instead of off.
    """

    stage: str
    source: bytes
    machine: bool
    options: CompileOptions
    start: Point | None = None
    stop: Point | None = None
    kind: FileKind = "obj"
    verify: bool = False
    regalloc: RegAlloc = "greedy"
    ipra: bool = False

    @property
    def common_flags(self) -> list[str]:
        """LLVM's options for the job that do not depend on the driver."""
        flags = [] if self.ipra else ["-enable-ipra=0"]
        if self.verify:
            flags.append("-verify-machineinstrs")
        if self.regalloc != "greedy":
            flags += [f"-{kind}-regalloc={self.regalloc}" for kind in ("sgpr", "wwm", "vgpr")]
        return flags


class Driver(Protocol):
    """Has LLVM do pieces of work.

    The methods raise ToolFailure where LLVM rejects the work or crashes, ToolchainError where it is late or missing.
    """

    def run(self, job: LlvmJob, running: RunningTools) -> ToolRun:
        """Do the job; ``stdout`` is the text or file. ``running`` can end it from another thread."""
        ...

    def check_resumable(self, mir: str, where: str) -> None:
        """Raise UnsupportedError if it cannot go on from machine IR of the functions in ``mir``.

        Args:
            where: the input, for the message.
        """
        ...

    @property
    def assembles(self) -> bool:
        """Whether there is an assembler."""
        ...

    def assemble(self, assembly: bytes, options: CompileOptions, running: RunningTools) -> ToolRun:
        """Assembly that LLVM printed to an object file."""
        ...

    def link(self, obj: bytes, options: CompileOptions, running: RunningTools) -> ToolRun:
        """An object file to a code object (HSACO); undefined symbols are a failure."""
        ...
