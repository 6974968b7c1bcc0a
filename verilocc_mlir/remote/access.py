"""How to get through to an allocation server, as plain data."""

from __future__ import annotations

import contextlib
import ipaddress
import os
from pathlib import Path

from msgspec import Struct

from verilocc_mlir.errors import InputError

DEFAULT_SERVER_SECONDS = 60.0


class ServerAccess(Struct, frozen=True):
    """How to get through to an allocation server.

    Attributes:
        ca: PEM file of the CA that signed its certificate; None: the system's.
        certificate: PEM file of the client's own certificate, where the server wants one.
        key: PEM file of its key.
        token: file with the bearer token; None: ``$VERILOCC_TOKEN``, or no token.
        insecure: no TLS to an address that is not this machine's; then no token is sent either.
        seconds: wall time of one call, waiting and trying again included.
    """

    ca: Path | None = None
    certificate: Path | None = None
    key: Path | None = None
    token: Path | None = None
    insecure: bool = False
    seconds: float = DEFAULT_SERVER_SECONDS


DEFAULT_ACCESS = ServerAccess()


# Whether the way to a server can be gone: its address, its certificates, its token. Nothing here needs gRPC.


TOKEN_VARIABLE = "VERILOCC_TOKEN"
"""Environment variable with the bearer token, where no file is named."""


class Way(Struct, frozen=True):
    """How a server is reached.

    Attributes:
        local: it is on this machine.
        tls: TLS is used.
        metadata: the header with the token, where there is one.
        ca, certificate, key: content of the files, where they are given.
    """

    local: bool
    tls: bool
    metadata: tuple[tuple[str, str], ...]
    ca: bytes | None
    certificate: bytes | None
    key: bytes | None


def way_to(address: str, access: ServerAccess) -> Way:
    """The way to ``HOST:PORT`` or ``unix:PATH``. TLS is used for every address that is not this machine's, unless
    ``insecure``; for loopback where a CA or a certificate is given; never over a Unix socket.

    Raises:
        InputError: it is no address; a file cannot be read; a token would go over the network without TLS.
    """
    local = is_local(address)
    has_certificates = (access.ca, access.certificate, access.key) != (None, None, None)
    tls = not address.startswith(SOCKET) and (has_certificates or not (local or access.insecure))
    if has_certificates and (access.insecure or not tls):
        raise InputError(
            "certificates are given, and TLS is not used there", where=address, hint="leave one of the two out"
        )
    metadata = _authorization(address, access, safe=tls or local)
    if (access.certificate is None) != (access.key is None):
        raise InputError("a client certificate needs its key", hint="give both --server-cert and --server-key")
    files = (read_bytes(path) if path else None for path in (access.ca, access.certificate, access.key))
    return Way(local, tls, metadata, *files)


def read_bytes(path: Path) -> bytes:
    """The file's bytes.

    Raises:
        InputError: it cannot be read.
    """
    try:
        return path.read_bytes()
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", where=os.fspath(path)) from error


def _authorization(address: str, access: ServerAccess, *, safe: bool) -> tuple[tuple[str, str], ...]:
    """The header with the token, where there is one."""
    if access.token is not None:
        token, where = _read_token(access.token), str(access.token)
    else:
        token, where = os.environ.get(TOKEN_VARIABLE, "").strip(), f"${TOKEN_VARIABLE}"
        if not token:
            return ()
    if not token.isascii() or not token.isprintable() or " " in token or not token:
        raise InputError("this is no token: one line of printable ASCII", where=where)
    if not safe:
        raise InputError(
            "a token is not sent over the network without TLS", where=address, hint=f"the token comes from {where}"
        )
    return (("authorization", f"Bearer {token}"),)


def _read_token(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").strip()
    except OSError as error:
        raise InputError(f"the token cannot be read: {error.strerror}", where=str(path)) from error
    except UnicodeDecodeError as error:
        raise InputError("this is no token: one line of printable ASCII", where=str(path)) from error


# Addresses of servers: ``HOST:PORT`` and ``unix:PATH``, as gRPC takes them.


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
