"""Addresses of servers: ``HOST:PORT`` and ``unix:PATH``, as gRPC takes them."""

from __future__ import annotations

import contextlib
import ipaddress

from verilocc_mlir.errors import InputError

SOCKET = "unix:"
"""What the address of a Unix socket begins with."""


def host_and_port(address: str) -> tuple[str, int]:
    """The two halves of ``HOST:PORT``.

    Raises:
        InputError: it is none.
    """
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65535:
        raise InputError(f"{address!r} is not HOST:PORT", hint="127.0.0.1:50551, [::1]:50551 or unix:/path/to/socket")
    return host.strip("[]"), int(port)


def is_loopback(host: str) -> bool:
    """Whether what is sent there stays on this machine."""
    if host == "localhost":
        return True
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return False


def is_local(address: str) -> bool:
    """Whether a Unix socket or a loopback address is meant.

    Raises:
        InputError: it is no address.
    """
    return address.startswith(SOCKET) or is_loopback(host_and_port(address)[0])
