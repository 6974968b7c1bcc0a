"""A Ray cluster, one of this machine or one that is there: reached, used and left as it was found.

Ray is optional (extra ``ray``) and loaded when it is first needed. Only this module and ``service.ray_serve``
load it.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

from verilocc_mlir.errors import InputError, UnsupportedError

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
