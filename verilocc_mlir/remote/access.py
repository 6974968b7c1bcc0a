"""How to get through to an allocation server, as plain data."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

DEFAULT_SERVER_SECONDS = 60.0


@dataclass(frozen=True)
class ServerAccess:
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
