"""The corpus' tasks on a Ray cluster.

A Ray task has a CPU and does its task as ``workers.run`` does: in a process that stays for the next one, within its
time. A Ray worker that dies takes that process with it, and Ray tries the task once more. Which kernels there are, what
repeats, and the data set itself stay with the process that runs the command.
"""

from __future__ import annotations

import functools
import pickle
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, Generic, TypeVar

from verilocc_mlir.pipeline.key import python_digest, versions
from verilocc_mlir.ray_cluster import connected
from verilocc_mlir.ray_tasks import Lost, Tasks, check_versions
from verilocc_mlir.toolchain.find import find_toolchain
from verilocc_model.corpus.repository import ROOT
from verilocc_model.corpus.sources import source
from verilocc_model.corpus.workers import Done, Processes, in_order

_Task = TypeVar("_Task")


class RayRunner:
    """A ``workers.Runner`` with the nodes of a Ray cluster, which is joined or started when there is a task.

    Args:
        address: as for ``ray_cluster.connected``.
        sources: names; a node that has others of their front ends than this machine, another LLVM or other code of ours
            is refused, its kernels would be other ones.
    """

    def __init__(self, address: str, sources: Sequence[str]) -> None:
        self._address = address
        self._sources = tuple(sources)

    def __call__(
        self, function: Callable[[_Task], Any], tasks: Iterable[_Task], *, jobs: int, seconds: float
    ) -> Generator[Done[_Task], None, None]:
        """As ``workers.run``; ``jobs`` are also the CPUs of a local cluster, 0: as many as it has.

        ``seconds`` begin when a CPU has the task. One whose Ray worker or node dies is tried once more by another.

        Raises:
            UnsupportedError: Ray is not installed. InputError: there is no cluster. ToolchainError: a node has other
            versions, or lacks something.
        """
        todo = iter(tasks)
        for first in todo:
            expected = _versions(self._sources)
            with connected(self._address, jobs or None) as cluster:
                pool = _Pool(function, seconds, expected, self._sources)
                try:
                    # One more than are done at once: no CPU waits while this thread deals with a result.
                    yield from in_order(chain([first], todo), pool, (jobs or cluster.cpus) + 1)
                finally:
                    pool.cancel()


class _Pool(Generic[_Task]):
    """A ``workers.Pool`` of tasks of the cluster that this process is connected to."""

    def __init__(
        self, function: Callable[[_Task], Any], seconds: float, expected: Mapping[str, str], sources: tuple[str, ...]
    ) -> None:
        # As bytes, a node can tell that it is the function of the task before.
        self._given = (pickle.dumps(function), seconds, expected, sources)
        self._tasks: Tasks[tuple[int, _Task]] = Tasks("verilocc corpus", _do)

    def __len__(self) -> int:
        return len(self._tasks)

    def start(self, number: int, task: _Task) -> None:
        """See ``workers.Pool``."""
        self._tasks.start((number, task), task, *self._given)

    def ended(self) -> Generator[tuple[int, Done[_Task]], None, None]:
        """See ``workers.Pool``."""
        for (number, task), outcome in self._tasks.ended():
            yield number, Done(task, None, outcome.reason) if isinstance(outcome, Lost) else outcome

    def cancel(self) -> None:
        """End all tasks."""
        self._tasks.cancel()


def _do(task: Any, function: bytes, seconds: float, expected: Mapping[str, str], sources: tuple[str, ...]) -> Done[Any]:
    """One task, in a Ray worker.

    Raises:
        ToolchainError: other versions here, or LLVM or a front end is missing.
    """
    check_versions(expected, _versions(sources))
    processes = _processes(function, seconds)
    processes.start(0, task)
    while True:
        for _, outcome in processes.ended():
            return outcome


@functools.cache
def _versions(sources: tuple[str, ...]) -> dict[str, str]:
    """What must be equal on two machines for their kernels and problems to be, by name."""
    ours = python_digest(Path(__file__).parent, ROOT / "examples")
    front_ends = {name: source(name).version() for name in sources}
    return {**versions(find_toolchain()), "corpus": f"sources {ours[:16]}", **front_ends}


@functools.cache
def _processes(function: bytes, seconds: float) -> Processes[Any]:
    """Processes of this Ray worker: one, as it has one task at a time."""
    return Processes(pickle.loads(function), seconds)
