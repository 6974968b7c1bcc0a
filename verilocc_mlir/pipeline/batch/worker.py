"""The process that compiles: reads jobs from a pipe, answers each on another, and outlives nothing.

Both directions carry frames: a line of JSON, whose ``size`` is the number of bytes that follow it. The first frame of a
worker says that it is ready. A thread listens for jobs, so that the end of the pipe, which comes with the parent's
death however it died, ends this process and its tools in the middle of a job.
"""

from __future__ import annotations

import importlib
import json
import os
import resource
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from queue import SimpleQueue
from typing import IO, Any

from smt_verifier.outcome import Outcome
from verilocc_mlir.allocators import UNKNOWN_VERSION, Allocator
from verilocc_mlir.collector import look_for_garbage_seldom
from verilocc_mlir.errors import ToolchainError, VeriloccError, is_out_of_memory
from verilocc_mlir.pipeline.asked import allocators_of
from verilocc_mlir.pipeline.batch.jobs import BEFORE
from verilocc_mlir.pipeline.compile import compile_module
from verilocc_mlir.pipeline.settings import Emit, Settings
from verilocc_mlir.results.compile import EXIT_CODES, Report
from verilocc_mlir.results.documents.compile import to_data

JOB_VARIABLE = "VERILOCC_JOB"
"""Environment variable that a worker and all it starts have: what is to be ended with it, whatever its group."""

_Frame = tuple[dict[str, Any], bytes]


def frame(header: dict[str, Any], data: bytes = b"") -> bytes:
    """A message as it goes over a pipe."""
    return json.dumps({**header, "size": len(data)}).encode() + b"\n" + data


def read_frame(stream: IO[bytes]) -> _Frame:
    """The next message.

    Raises:
        EOFError: the pipe ended, in its middle or before it.
    """
    line = stream.readline()
    if not line.endswith(b"\n"):
        raise EOFError
    header: dict[str, Any] = json.loads(line)
    data = stream.read(header["size"])
    if len(data) < header["size"]:
        raise EOFError
    return header, data


def end_processes(mark: str) -> None:
    """Kill every process but this one that has ``mark`` in its environment, those that they start meanwhile too."""
    wanted = f"{JOB_VARIABLE}={mark}".encode()
    for _ in range(100):
        found = [pid for pid in _processes() if pid != os.getpid() and wanted in _environment(pid)]
        if not found:
            return
        for pid in found:
            try:
                os.kill(pid, signal.SIGKILL)
            except (ProcessLookupError, PermissionError):
                continue


Factory = Callable[[Settings], Sequence[Allocator]]
"""Gives the allocators for a job. What it makes (channels) it keeps: it is called for every job."""


def serve(factory: str, memory_mib: int) -> None:
    """Answer jobs until the pipe ends.

    Args:
        factory: ``module:attribute`` of a ``Factory``; ``""`` for the allocators of this process.
        memory_mib: limit of the address space of this process, and of each tool that it starts; the solver's processes
            have their own.
    """
    most = resource.getrlimit(resource.RLIMIT_AS)[1]
    wanted = memory_mib << 20
    resource.setrlimit(resource.RLIMIT_AS, (wanted if most == resource.RLIM_INFINITY else min(wanted, most), most))
    module, _, attribute = factory.partition(":")
    allocators: Factory = getattr(importlib.import_module(module), attribute) if factory else allocators_of
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent hears it, and ends this process
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what anything prints is not an answer
    jobs: SimpleQueue[_Frame] = SimpleQueue()
    look_for_garbage_seldom()
    answers.write(frame({}))
    answers.flush()
    threading.Thread(target=_listen, args=(sys.stdin.buffer, jobs), daemon=True).start()
    while True:
        job, data = jobs.get()
        answers.write(_answer(job, data, allocators, memory_mib))
        answers.flush()


def _listen(stream: IO[bytes], jobs: SimpleQueue[_Frame]) -> None:
    try:
        while True:
            jobs.put(read_frame(stream))
    finally:
        end_processes(os.environ[JOB_VARIABLE])
        os._exit(0)


def _answer(job: dict[str, Any], data: bytes, allocators: Factory, memory_mib: int) -> bytes:
    path: str = job["path"]
    try:
        settings = Settings.from_data(job["settings"])
        compiled = compile_module(data, path, settings, allocators=allocators(settings))
    except VeriloccError as error:
        # A tool that is missing or late may be there, or in time, another day.
        return _failure(_outcome(error), _line(error, path), final=not isinstance(error, ToolchainError))
    except Exception as error:
        if is_out_of_memory(error):
            what = f"out of memory: a worker has {memory_mib} MiB; give more with --memory"
            return _failure(Outcome.UNKNOWN, what, final=False, spent=True)
        place = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{Path(place.filename).name}:{place.lineno}"
        return _failure(
            Outcome.UNKNOWN, f"a defect of verilocc: {type(error).__name__} at {where}: {error}", final=False
        )
    report = compiled.report
    proved = report.outcome is Outcome.PROVED and compiled.data is not None
    attempts = [a for f in report.functions for p in f.phases for a in p.attempts]
    versions = {a.version for a in attempts if a.server}
    header: dict[str, Any] = {
        "outcome": str(report.outcome),
        "message": "" if proved else _reason(report),
        "final": True,
        "spent": False,
        "proved": proved,
        # A server that was replaced meanwhile is two servers; one that does not say what it has, none that is known.
        "keyed": not any(p.forsaken for f in report.functions for p in f.phases)
        and len(versions) <= 1
        and not versions & {"", UNKNOWN_VERSION},
        "server_version": next(iter(versions), ""),
        "report": to_data(report),
    }
    data = compiled.data if proved and compiled.data is not None else b""
    parts = {emit.value: text for emit, text in compiled.also.items()}
    if Emit.MIR in settings.also:
        parts[BEFORE] = compiled.before.encode()
    header["parts"] = [[name, len(part)] for name, part in parts.items()]
    return frame(header, b"".join((data, *parts.values())))


def _failure(outcome: Outcome, message: str, *, final: bool, spent: bool = False) -> bytes:
    header = {"outcome": str(outcome), "message": " ".join(message.split()), "final": final, "spent": spent}
    return frame({**header, "proved": False, "keyed": True, "server_version": "", "report": None, "parts": []})


def _outcome(error: VeriloccError) -> Outcome:
    return next(outcome for outcome, code in EXIT_CODES.items() if code == error.exit_code)


def _line(error: VeriloccError, path: str) -> str:
    """The message without the input's name, which stands before it wherever it is shown."""
    where = error.where.removeprefix(path).removeprefix(":")
    head = f"{where}: {error.what}" if where else error.what
    return f"{head} (hint: {error.hint})" if error.hint else head


def _reason(report: Report) -> str:
    for function in report.functions:
        for phase in function.phases:
            if phase.outcome is not Outcome.PROVED:
                return f"{function.name}, {phase.phase.upper()}: {' '.join(phase.attempts[-1].reason.split())}"
    return "it did not come to the last phase"


def _processes() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _environment(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return []
