"""A Ray cluster, one of this machine or one that is there: reached, used and left as it was found.

Ray is optional (extra ``ray``) and loaded when it is first needed. Only this module and ``service.ray_serve``
load it.
"""

from __future__ import annotations

import contextlib
import logging
import os
import platform
import signal
import socket
import sys
import threading
from collections.abc import Callable, Generator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeVar

from verilocc_mlir.crew import tasks
from verilocc_mlir.errors import InputError, ToolchainError, UnsupportedError, VeriloccError

LOCAL = "local"
"""The address that stands for a cluster of this machine alone, started here and ended here."""

RUNTIME = {"env_vars": {"RAY_kill_child_processes_on_worker_exit": "0"}}
"""Of tasks and actors with processes of their own. Those end what they started, and themselves, when a pipe ends; Ray
would kill them first, and what they started would stay."""

_HINT = "--ray-address=local starts one; ray start --head makes this machine one that can be joined"
_REACH_SECONDS = 10.0
_LOOPBACK = "127.0.0.1"
_ALONE = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
"""If "0", Ray does here as it does by default on those: all its processes listen on loopback only, none on the network,
where whoever reaches them can run code. Read when Ray is loaded."""
_STORE_BYTES = 80 << 20
"""Ray's store of objects in a local cluster. What goes through it are texts; what does not fit goes to disk."""


@dataclass(frozen=True)
class Cluster:
    """A cluster that this process is connected to.

    Attributes:
        started: it was started here, and ends with the connection.
    """

    started: bool

    @property
    def cpus(self) -> int:
        """CPUs of all nodes that are there now, 1 at least."""
        return max(1, int(load_ray().cluster_resources().get("CPU", 0)))

    @property
    def node_addresses(self) -> tuple[str, ...]:
        """IP addresses of all nodes that are there now; loopback for a cluster that was started here."""
        if self.started:
            return (_LOOPBACK,)
        return tuple(node["NodeManagerAddress"] for node in load_ray().nodes() if node["Alive"])


def load_ray() -> Any:
    """The package ``ray``.

    Raises:
        UnsupportedError: it is not installed.
    """
    try:
        # Not in every environment that types are checked in.
        import ray  # pyright: ignore
    except ImportError as error:
        raise UnsupportedError(
            f"this needs Ray, and it cannot be loaded: {error}", hint="pip install 'verilocc-mlir[ray]'"
        ) from error
    return ray


@contextlib.contextmanager
def connected(address: str, cpus: int | None = None) -> Generator[Cluster, None, None]:
    """Be connected to a cluster; one that this process is connected to already is taken as it is.

    Args:
        address: ``"local"``, ``"auto"`` (``$RAY_ADDRESS``, or the cluster that this machine is a node of), or a
            cluster's address as for ``ray.init``.
        cpus: CPUs of a local cluster; None: those of this process.

    Raises:
        UnsupportedError: Ray is not installed. InputError: there is no cluster at ``address``, or none can be started.
    """
    # Ray tells nobody that it is used; the processes that it starts have this too.
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    if address == LOCAL and "ray" not in sys.modules:
        os.environ[_ALONE] = "0"
    ray = load_ray()
    if ray.is_initialized():
        yield Cluster(started=False)
        return
    with _signals_kept():
        started = _begin(ray, address, cpus)
    try:
        yield Cluster(started)
    finally:
        # Ends a cluster that was started here, and leaves any other.
        ray.shutdown()


def _start_here(ray: Any, cpus: int | None, options: dict[str, Any]) -> None:
    """A local cluster; tried twice.

    Raises:
        InputError: it cannot be started.
    """
    for last in (False, True):
        try:
            with _modules_of_this_process():
                ray.init(
                    address=LOCAL, num_cpus=cpus or len(os.sched_getaffinity(0)), num_gpus=0, include_dashboard=False,
                    object_store_memory=_STORE_BYTES, **options,
                )  # fmt: skip
            return
        except RuntimeError as error:
            # On a busy machine its processes may not be up in the time that Ray gives them.
            ray.shutdown()
            if last:
                lines = str(error).strip().splitlines()
                raise InputError(
                    f"Ray cannot be started: {lines[0] if lines else type(error).__name__}",
                    hint="try again, or without Ray",
                ) from error


def _begin(ray: Any, address: str, cpus: int | None) -> bool:
    quiet: dict[str, Any] = {"logging_level": logging.ERROR, "log_to_driver": False}
    if address == LOCAL:
        _start_here(ray, cpus, quiet)
        return True
    _check_reached(address)
    try:
        ray.init(address=address, **quiet)
    except (ConnectionError, ValueError, RuntimeError) as error:
        lines = str(error).strip().splitlines()
        raise InputError(
            f"there is no Ray cluster: {lines[0] if lines else type(error).__name__}",
            where=address,
            hint=_HINT,
        ) from error
    return False


def _check_reached(address: str) -> None:
    """Ray itself looks for a cluster that does not answer for minutes."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or "/" in host:
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), _REACH_SECONDS).close()
    except (OSError, OverflowError) as error:
        raise InputError(f"there is no Ray cluster: {error}", where=address, hint=_HINT) from error


@contextlib.contextmanager
def _modules_of_this_process() -> Generator[None, None, None]:
    """Processes that are started meanwhile find modules where this one does."""
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(os.path.abspath(path) for path in sys.path)
    try:
        yield
    finally:
        if before is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = before


@contextlib.contextmanager
def _signals_kept() -> Generator[None, None, None]:
    """Ray puts its own handler of SIGTERM in place of ours; this puts ours back."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


# Calls of a function as tasks of a Ray cluster: given to it, waited for, and cancelled when the work is given up.


_RETRIES = 1
_CANCEL_SECONDS = 30.0
_SAME = "install the same versions of verilocc-mlir, and of all that it uses, on every node"

_Item = TypeVar("_Item")
_Kept = TypeVar("_Kept")


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


@cache
def kept(make: Callable[..., _Kept], *arguments: Any) -> _Kept:
    """What ``make`` makes of the arguments, once in this Ray worker, which has one task at a time."""
    return make(*arguments)


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
        return _Unfit(error.without_hint, f"node {platform.node()}", error.hint)
