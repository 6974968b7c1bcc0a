"""The allocator of a server for a process that compiles many kernels: its channel, and what is known of it, stay."""

from __future__ import annotations

import os
from functools import lru_cache
from importlib.util import find_spec
from typing import TYPE_CHECKING

from verilocc_mlir.errors import UnsupportedError
from verilocc_mlir.pipeline.settings import ServerAccess, Settings

if TYPE_CHECKING:
    from verilocc_mlir.allocators.remote import RemoteAllocator


def remote_allocator(settings: Settings) -> RemoteAllocator:
    """The allocator behind ``settings.server``.

    Raises:
        UnsupportedError: the packages of the service are not installed. InputError: as for ``Client``.
    """
    if find_spec("grpc") is None:
        raise UnsupportedError(
            "an allocation server is named, and grpc is not installed", hint="pip install 'verilocc-mlir[service]'"
        )
    return _kept(settings.server, settings.server_allocator, settings.access)


@lru_cache(maxsize=1)
def _kept(server: str, name: str, access: ServerAccess) -> RemoteAllocator:
    # The library writes what it thinks of handshakes and name servers to standard error; errors say it once, and why.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    from verilocc_mlir.allocators.remote import RemoteAllocator
    from verilocc_mlir.service.client import Client

    return RemoteAllocator(Client(server, access), allocator=name)
