"""Calls of a function as tasks of a Ray cluster: given to it, waited for, and cancelled when the work is given up."""

from __future__ import annotations

import platform
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

from verilocc_mlir.crew import tasks
from verilocc_mlir.errors import ToolchainError, VeriloccError
from verilocc_mlir.ray_cluster import RUNTIME, load_ray

_RETRIES = 1
_CANCEL_SECONDS = 30.0
_SAME = "install the same versions of verilocc-mlir, and of all that it uses, on every node"

_Item = TypeVar("_Item")


@dataclass(frozen=True)
class Lost:
    """In place of a task's result: its Ray worker or node died, and so did that of the second try."""

    reason: str


@dataclass(frozen=True)
class _Unfit:
    """A node on which nothing can be done: what is wrong there, and what to do."""

    what: str
    where: str
    hint: str


class Tasks(tasks.Tasks[_Item]):
    """What was given to the cluster that this process is connected to, and has not ended.

    A task has a CPU. One whose Ray worker or node dies is tried once more by another.

    Args:
        name: how Ray's own tools show the tasks.
        function: called of an item and ``arguments``, and found by its name on every node. It ends what it starts when
            its Ray worker ends. A VeriloccError from it says that nothing can be done on its node, and ends all work:
            failures of one task are results.
    """

    def __init__(self, name: str, function: Callable[..., Any], *arguments: Any) -> None:
        self._ray = load_ray()
        self._given = (function, arguments)
        self._call = self._ray.remote(num_cpus=1, max_retries=_RETRIES, name=name, runtime_env=RUNTIME)(_call)
        self._items: dict[Any, _Item] = {}

    def __len__(self) -> int:
        return len(self._items)

    def start(self, item: _Item) -> None:
        function, arguments = self._given
        self._items[self._call.remote(function, item, *arguments)] = item

    def ended(self) -> list[tuple[_Item, Any]]:
        """See ``tasks.Tasks``; the result may be ``Lost``. Nothing where there is none to wait for.

        Raises:
            ToolchainError: a node is without our modules, or the function says that nothing can be done there.
        """
        if not self._items:
            return []
        ready, _ = self._ray.wait(list(self._items), num_returns=1)
        return [(self._items.pop(ref), self._result(ref)) for ref in ready]

    def cancel(self) -> None:
        """End all tasks, with the Ray workers that have them."""
        for ref in self._items:
            # Only so does it end in its middle: what the worker started hears that a pipe ends, and ends too.
            self._ray.cancel(ref, force=True)
        if self._items:
            self._ray.wait(list(self._items), num_returns=len(self._items), timeout=_CANCEL_SECONDS)
        self._items.clear()

    def _result(self, ref: Any) -> Any:
        try:
            result = self._ray.get(ref)
        except self._ray.exceptions.RayTaskError as error:
            last = str(error).strip().splitlines()[-1]
            raise ToolchainError(f"a Ray task failed: {last}", hint=_SAME) from error
        except self._ray.exceptions.RayError as error:
            reason = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
            return Lost(f"the Ray worker was lost: {reason}")
        if isinstance(result, _Unfit):
            raise ToolchainError(result.what, where=result.where, hint=result.hint)
        return result


def check_versions(expected: Mapping[str, str], here: Mapping[str, str]) -> None:
    """Compare a node's versions with those of the machine that runs the command; both by name.

    Raises:
        ToolchainError: some are others, so results would be too.
    """
    differences = [
        f"{name} is {here[name]!r}, not {value!r}" for name, value in expected.items() if here[name] != value
    ]
    if differences:
        raise ToolchainError("; ".join(differences), hint=_SAME)


def _call(function: Callable[..., Any], *arguments: Any) -> Any:
    """The task, in a Ray worker. Before it says that nothing can be done here, it is done again: a tool or a worker
    process may just have been killed.
    """
    with suppress(VeriloccError):
        return function(*arguments)
    try:
        return function(*arguments)
    except VeriloccError as error:
        message = f"{error.where}: {error.what}" if error.where else error.what
        return _Unfit(message, f"node {platform.node()}", error.hint)
