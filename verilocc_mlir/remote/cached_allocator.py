"""The allocator of a server for a process that compiles many kernels: its channel, and what is known of it, stay."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Generator
from functools import lru_cache
from importlib.util import find_spec
from typing import TYPE_CHECKING

from verilocc_mlir.errors import UnsupportedError
from verilocc_mlir.remote.access import ServerAccess, way_to

if TYPE_CHECKING:
    from verilocc_mlir.remote.allocator import RemoteAllocator


def remote_allocator(server: str, name: str, access: ServerAccess) -> RemoteAllocator:
    """The allocator called ``name``, ``""`` for the default, of the server at the address ``server``.

    Raises:
        UnsupportedError: the packages of the service are not installed. InputError: as for ``Client``.
    """
    _needs_grpc()
    return _kept(server, name, access)


def check_way(server: str, access: ServerAccess) -> None:
    """See, without a call, whether the server could be asked.

    Raises:
        As ``remote_allocator``.
    """
    _needs_grpc()
    way_to(server, access)


def _needs_grpc() -> None:
    if find_spec("grpc") is None:
        raise UnsupportedError(
            "an allocation server is named, and grpc is not installed", hint="pip install 'verilocc-mlir[service]'"
        )


@lru_cache(maxsize=1)
def _kept(server: str, name: str, access: ServerAccess) -> RemoteAllocator:
    with quiet_grpc():
        from verilocc_mlir.remote.allocator import RemoteAllocator
        from verilocc_mlir.remote.client import Client

        return RemoteAllocator(Client(server, access), allocator=name)


# gRPC without words of its own: it writes failures of handshakes and name look-ups to standard error, and our error
# messages say the same once.


_VERBOSITY = "GRPC_VERBOSITY"


@contextlib.contextmanager
def quiet_grpc() -> Generator[None, None, None]:
    """For the block in which gRPC is loaded and a channel made: it reads this then. The environment stays as it was."""
    was_there = _VERBOSITY in os.environ
    os.environ.setdefault(_VERBOSITY, "NONE")
    try:
        yield
    finally:
        if not was_there:
            os.environ.pop(_VERBOSITY, None)
