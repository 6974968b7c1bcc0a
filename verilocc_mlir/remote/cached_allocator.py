"""The allocator of a server for a process that compiles many kernels: its channel, and what is known of it, stay."""

from __future__ import annotations

import os
from functools import lru_cache
from importlib.util import find_spec
from typing import TYPE_CHECKING

from verilocc_mlir.errors import UnsupportedError
from verilocc_mlir.remote.access import ServerAccess

if TYPE_CHECKING:
    from verilocc_mlir.remote.allocator import RemoteAllocator


def remote_allocator(server: str, name: str, access: ServerAccess) -> RemoteAllocator:
    """The allocator called ``name``, ``""`` for the default, of the server at the address ``server``.

    Raises:
        UnsupportedError: the packages of the service are not installed. InputError: as for ``Client``.
    """
    if find_spec("grpc") is None:
        raise UnsupportedError(
            "an allocation server is named, and grpc is not installed", hint="pip install 'verilocc-mlir[service]'"
        )
    return _kept(server, name, access)


@lru_cache(maxsize=1)
def _kept(server: str, name: str, access: ServerAccess) -> RemoteAllocator:
    # gRPC writes failures of handshakes and name look-ups to standard error. Our error messages say the same once.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    from verilocc_mlir.remote.allocator import RemoteAllocator
    from verilocc_mlir.remote.client import Client

    return RemoteAllocator(Client(server, access), allocator=name)
