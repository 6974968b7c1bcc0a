"""The corpus' tasks on a Ray cluster.

A Ray task has a CPU and does its task as ``workers.run`` does: in a process that stays for the next task, with a time
limit. A Ray worker that dies takes that process with it, and Ray tries the task once more. The process that runs the
command enumerates the kernels, finds repeated problems and writes the data set.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

from verilocc_mlir.pipeline.key import python_digest, versions
from verilocc_mlir.ray_cluster import Tasks, check_versions, connected, kept
from verilocc_mlir.toolchain.find import find_toolchain
from verilocc_model.corpus.sources import ROOT, source
from verilocc_model.corpus.workers import Doer, Done, Given, in_order

_Task = TypeVar("_Task")


class RayRunner:
    """A ``workers.Runner`` with the nodes of a Ray cluster, which is joined or started when there is a task.

    Args:
        address: as for ``ray_cluster.connected``.
        sources: names of the sources. A node is refused if its versions of their front ends, of LLVM or of our code
            are not those of this machine, because its kernels would differ.
    """

    def __init__(self, address: str, sources: Sequence[str]) -> None:
        self._address = address
        self._sources = tuple(sources)

    def __call__(
        self, function: Callable[[_Task], Any], tasks: Iterable[_Task], *, jobs: int, seconds: float
    ) -> Generator[Done[_Task], None, None]:
        """As ``workers.run``; ``jobs`` is also the number of CPUs of a local cluster, 0: as many as the machine has.

        ``seconds`` begin when a CPU has the task. A task whose Ray worker or node dies is tried once more.

        Raises:
            UnsupportedError: Ray is not installed.
            InputError: there is no cluster.
            ToolchainError: a node has other versions, or lacks something.
        """
        todo = iter(tasks)
        for first in todo:
            expected = _versions(self._sources)
            with connected(self._address, jobs or None) as cluster:
                # As bytes, so that a node can tell that it is the same function as before.
                given = (pickle.dumps(function), seconds, expected, self._sources)
                pool: Given[_Task] = Given(Tasks("verilocc corpus", _do, *given))
                try:
                    # One more task than CPUs, so that no CPU waits while this thread handles a result.
                    yield from in_order(chain([first], todo), pool, (jobs or cluster.cpus) + 1)
                finally:
                    pool.cancel()


def _do(
    task: tuple[int, Any], function: bytes, seconds: float, expected: Mapping[str, str], sources: tuple[str, ...]
) -> Done[Any]:
    """One task, in a Ray worker.

    Raises:
        ToolchainError: other versions here, or LLVM or a front end is missing.
    """
    check_versions(expected, _versions(sources))
    return kept(_doer, function, seconds).do(task)


def _versions(sources: tuple[str, ...]) -> dict[str, str]:
    """The versions, by name, that must be equal on two machines so that their kernels and problems are."""
    ours = python_digest(Path(__file__).parent, ROOT / "examples")
    front_ends = {name: source(name).version() for name in sources}
    return {**versions(find_toolchain()), "corpus": f"sources {ours[:16]}", **front_ends}


def _doer(function: bytes, seconds: float) -> Doer[Any]:
    return Doer(pickle.loads(function), seconds)
