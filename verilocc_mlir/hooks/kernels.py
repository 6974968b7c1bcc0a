"""Compile the kernels of one module beside each other, each by ``verilocc compile`` in a process of its own.

Processes, not threads: parsing, the data flow of the audit and the solver are bound to one core each. A process of its
own also keeps whatever goes wrong with one kernel away from the others, and does not load the caller's main program
again, as a process pool would.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from verilocc_mlir import version
from verilocc_mlir.errors import ExitCode
from verilocc_mlir.pipeline.settings import Settings

_GRACE_SECONDS = 5.0
"""What a process has to stop its own tools before it is killed."""

_PACKAGES = Path(version.__file__).resolve().parent.parent


@dataclass(frozen=True)
class KernelSource:
    """LLVM IR of one module and how to compile it; ``features`` and ``llc_options`` go after those of the settings."""

    name: str
    ir: bytes
    cpu: str
    features: str = ""
    opt_level: int = 3
    llc_options: tuple[str, ...] = ()


@dataclass(frozen=True)
class KernelResult:
    """What came of one module.

    Attributes:
        name: as in its source.
        code_object: the proved code object; None where there is none.
        report: the JSON report of ``verilocc compile``; empty where it did not come to one.
        reason: why there is no code object, in a line; ``""`` where there is one.
        exit_code: of ``verilocc compile``.
        before: machine IR as it entered allocation; ``""`` where it did not come to that.
        after: machine IR after the last phase; likewise.
    """

    name: str
    code_object: bytes | None
    report: Mapping[str, Any]
    reason: str
    exit_code: int
    before: str
    after: str


def default_jobs() -> int:
    """As many processes as there are cores, eight at most."""
    return max(1, min(8, os.cpu_count() or 1))


def compile_kernels(
    sources: Sequence[KernelSource],
    settings: Settings,
    directory: Path,
    *,
    jobs: int = 0,
    progress: Callable[[KernelResult], None] = lambda _: None,
) -> tuple[KernelResult, ...]:
    """Compile every source; the results come in their order.

    Args:
        settings: what holds for all of them; processor, level, features and form of the result come from the sources.
        directory: an empty one for files in between.
        jobs: processes at once; 0 for one a core.
        progress: called from the threads that wait, as each result comes in.

    An interrupt ends all processes and their tools, and is raised on.
    """
    running = _Running()

    def one(numbered: tuple[int, KernelSource]) -> KernelResult:
        number, source = numbered
        result = _compile(source, settings, directory / f"{number:04}", running)
        progress(result)
        return result

    with ThreadPoolExecutor(max_workers=max(1, jobs or default_jobs())) as pool:
        futures = [pool.submit(one, item) for item in enumerate(sources)]
        try:
            return tuple(future.result() for future in futures)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            running.stop()
            raise


class _Running:
    """The processes at work, so that they can be stopped; none starts after that."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._stopped = False
        self._children: set[subprocess.Popen[bytes]] = set()

    def run(self, command: Sequence[str], environment: Mapping[str, str]) -> tuple[int, str]:
        """Exit code and standard error."""
        with self._lock:
            if self._stopped:
                return ExitCode.INTERRUPTED, ""
            # A session of its own: Ctrl-C comes to us, and we stop it, tools first.
            child = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                env=environment,
                start_new_session=True,
            )
            self._children.add(child)
        try:
            _, stderr = child.communicate()
        finally:
            with self._lock:
                self._children.discard(child)
        return child.returncode, stderr.decode("utf-8", "replace")

    def stop(self) -> None:
        with self._lock:
            self._stopped = True
            children = tuple(self._children)
        for child in children:
            with contextlib.suppress(ProcessLookupError):
                child.terminate()
        for child in children:
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(_GRACE_SECONDS)
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(child.pid, signal.SIGKILL)


def _compile(source: KernelSource, settings: Settings, directory: Path, running: _Running) -> KernelResult:
    directory.mkdir()
    ir, out, report, temps = (directory / name for name in ("kernel.ll", "kernel.hsaco", "report.json", "temps"))
    ir.write_bytes(source.ir)
    command = [
        sys.executable, "-m", "verilocc_mlir.cli.main", "compile", str(ir),
        "-o", str(out), f"--report={report}", f"--save-temps={temps}", "--quiet", *_options(source, settings),
    ]  # fmt: skip
    exit_code, stderr = running.run(command, _environment())
    content: dict[str, Any] = json.loads(report.read_text()) if report.exists() else {}
    return KernelResult(
        name=source.name,
        code_object=out.read_bytes() if exit_code == ExitCode.PROVED else None,
        report=content,
        reason=_reason(exit_code, stderr, content).replace(str(ir), source.name),
        exit_code=exit_code,
        before=_text(temps / "kernel.before.mir"),
        after=_text(temps / "kernel.after.mir"),
    )


def _options(source: KernelSource, settings: Settings) -> list[str]:
    features = ",".join(filter(None, (settings.features, source.features)))
    options = [
        f"-mcpu={source.cpu}",
        f"-O{source.opt_level}",
        f"--allocator={settings.allocator}",
        "--fallback" if settings.fallback else "--no-fallback",
        "--verify" if settings.verify else "--no-verify",
        f"--solver-seconds={settings.solver_seconds}",
        f"--tool-seconds={settings.tool_seconds}",
        *(f"--llc={option}" for option in (*settings.llc_options, *source.llc_options)),
    ]
    if features:
        options.append(f"-mattr={features}")
    if settings.llvm is not None:
        options.append(f"--llvm={settings.llvm}")
    return options


def _environment() -> dict[str, str]:
    """Ours, with this very package found first and nothing from the current directory."""
    path = os.pathsep.join(filter(None, (str(_PACKAGES), os.environ.get("PYTHONPATH", ""))))
    return {**os.environ, "PYTHONPATH": path, "PYTHONSAFEPATH": "1"}


def _reason(exit_code: int, stderr: str, report: Mapping[str, Any]) -> str:
    if exit_code == ExitCode.PROVED:
        return ""
    for function in report.get("functions", ()):
        for phase in function["phases"]:
            if phase["outcome"] != "proved":
                why = phase["attempts"][-1]["reason"]
                return f"{function['name']}, {phase['phase'].upper()}: {phase['outcome']}: {why}"
    message = stderr.strip().removeprefix("verilocc: error: ")
    if exit_code == ExitCode.UNKNOWN and message:
        message = message.splitlines()[-2] if len(message.splitlines()) > 1 else message
    return message.splitlines()[0] if message else f"verilocc compile ended with exit code {exit_code}"


def _text(path: Path) -> str:
    return path.read_text() if path.exists() else ""
