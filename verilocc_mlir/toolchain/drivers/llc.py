"""Each piece of work is a process of llc, or of ld.lld."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from verilocc_mlir.toolchain.drivers.job import TRIPLE, CompileOptions, LlvmJob, Point
from verilocc_mlir.toolchain.find import Toolchain
from verilocc_mlir.toolchain.loaded_tools import SELDOM
from verilocc_mlir.toolchain.run import RunningTools, ToolRun, run_tool


@dataclass(frozen=True)
class LlcDriver:
    """Runs the tools of ``tools``."""

    tools: Toolchain

    def run(self, job: LlvmJob, running: RunningTools) -> ToolRun:
        """See ``Driver``."""
        options = job.options
        command: list[str | Path] = [self.tools.llc, f"-mtriple={TRIPLE}", f"-mcpu={options.cpu}"]
        if options.mattr:
            command.append(f"-mattr={options.mattr}")
        command += [f"-O{options.opt_level}", *options.extra, *_flags(job), "-o", "-", "-"]
        return _run(command, job.source, job.stage, options, running, loaded_after=0)

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
        timeout=options.timeout,
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
