"""How to get through to an allocation server, as plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

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

    def to_data(self) -> dict[str, Any]:
        """Every field as JSON values, by name."""
        return {f.name: str(v) if isinstance(v := getattr(self, f.name), Path) else v for f in fields(self)}

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> ServerAccess:
        """What ``to_data`` was made of; fields that are missing have their defaults.

        Raises:
            TypeError: ``data`` has an unknown field.
        """
        values: dict[str, Any] = dict(data)
        for name in ("ca", "certificate", "key", "token"):
            values[name] = Path(values[name]) if values.get(name) else None
        return cls(**values)


DEFAULT_ACCESS = ServerAccess()
