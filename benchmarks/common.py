"""What the benchmark scripts share: options, kernels, CPU time, a log to go on from, and results written whole."""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import json
import os
import platform
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parent.parent
RESULTS = REPOSITORY / "benchmarks" / "results"
_PR_SET_CHILD_SUBREAPER = 36
_PLACES = (
    "--out",
    "--log",
    "--scratch",
    "--kernels",
    "--against",
    "--hub",
    "--tuning",
    "--llvm14",
    "--llvm22",
    "--old",
    "--ir",
    "--cells",
    "--again",
)
"""Options that name a place on this machine, which nobody else has."""

Row = dict[str, Any]


def options(
    description: str | None, result: str, *, kernels: Path | None = None, jobs: int | None = None
) -> argparse.ArgumentParser:
    """A command line with ``--out`` among the results, and ``--kernels`` and ``--jobs`` where a default is given."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=RESULTS / result)
    if kernels is not None:
        parser.add_argument("--kernels", type=Path, default=kernels)
    if jobs is not None:
        parser.add_argument("--jobs", type=int, default=jobs)
    return parser


def cores() -> int:
    """The cores of this machine."""
    return os.cpu_count() or 1


def kernel_directory() -> Path:
    """``$VERILOCC_KERNELS``, the shared set beside the repository, or the kernels of the examples."""
    beside = REPOSITORY.parent / "shared" / "kernels"
    return Path(os.environ.get("VERILOCC_KERNELS", beside if beside.is_dir() else REPOSITORY / "examples" / "kernels"))


def command() -> str:
    """The command that runs, without where files lie on this machine."""
    words = sys.argv[1:]
    shown = [
        word
        for number, word in enumerate(words)
        if word.partition("=")[0] not in _PLACES and (number == 0 or words[number - 1] not in _PLACES)
    ]
    return " ".join([f"benchmarks/{Path(sys.argv[0]).name}", *shown])


def machine() -> Row:
    """What the figures were measured on."""
    return {"python": platform.python_version(), "cores": os.cpu_count(), "architecture": platform.machine()}


def tree() -> str:
    """The commit that is checked out; ``-dirty`` where files differ from it."""
    git = ["git", "-C", str(REPOSITORY), "describe", "--always", "--dirty"]
    return subprocess.run(git, capture_output=True, text=True, check=False).stdout.strip()


def cpu_seconds() -> float:
    """User and system time of this process and its finished children, tools included."""
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def adopt_orphans() -> None:
    """Processes that outlive who started them come to this one, so that ``cpu_seconds`` counts them once reaped."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def reap(*, wait: bool) -> None:
    """Take the exit of each child: of all where ``wait``, else of those that have ended."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, 0 if wait else os.WNOHANG)[0]:
            pass


class Log:
    """Rows of an unfinished run, one line of JSON each; the same command goes on from them."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists() and not path.read_bytes().endswith(b"\n"):
            path.write_bytes(path.read_bytes() + b"\n")

    def rows(self) -> Iterator[Row]:
        """The rows that are there; a line that an interrupt cut off is not one."""
        for line in self.path.read_text().splitlines() if self.path.exists() else ():
            with contextlib.suppress(json.JSONDecodeError):
                yield json.loads(line)

    def add(self, row: Row) -> None:
        """Append a row, whole before the next one is measured."""
        with self.path.open("a") as stream:
            stream.write(json.dumps(row) + "\n")


def earlier(path: Path) -> Row:
    """The results of an earlier run, which is gone on with; empty if there is none."""
    return json.loads(path.read_text()) if path.exists() else {}


def write(path: Path, data: Any) -> None:
    """All of the file, or nothing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + ".partial")
    partial.write_text(json.dumps(data, indent=1) + "\n")
    partial.replace(path)
