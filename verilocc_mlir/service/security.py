"""Who may call, and over what: bearer tokens and TLS.

A token file has a line for each token: its SHA-256 in hexadecimal, a name for the logs, and optionally the time it
expires (ISO 8601, with its offset from UTC); ``#`` starts a comment. Tokens themselves are never stored. The file is
read again when it changes, so that a token can be given or taken away while the server runs.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

import grpc
from grpc import StatusCode

from verilocc_mlir.errors import InputError
from verilocc_mlir.remote.access import read_bytes
from verilocc_mlir.service.logs import log
from verilocc_mlir.service.status import ServiceError

_DIGEST_LENGTH = 64


@dataclass(frozen=True)
class Token:
    """A known token: its digest, its name, and when it expires (None: never)."""

    digest: str
    name: str
    expires: datetime | None


def read_tokens(path: Path) -> tuple[Token, ...]:
    """The tokens of a file.

    Raises:
        InputError: it cannot be read, or a line is not a token's.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"tokens cannot be read: {error}", where=str(path)) from error
    tokens: list[Token] = []
    for number, line in enumerate(lines, 1):
        fields = line.partition("#")[0].split()
        if fields:
            tokens.append(_token(fields, f"{path}:{number}"))
    return tuple(tokens)


def _token(fields: list[str], where: str) -> Token:
    digest = fields[0].lower()
    if len(digest) != _DIGEST_LENGTH or not set(digest) <= set("0123456789abcdef") or not 2 <= len(fields) <= 3:
        raise InputError(
            "not a token's line", where=where, hint="SHA-256 in hexadecimal, a name, and perhaps the time it expires"
        )
    try:
        expires = datetime.fromisoformat(fields[2].replace("Z", "+00:00")) if len(fields) == 3 else None
    except ValueError as error:
        raise InputError(f"{fields[2]!r} is not a time", where=where, hint="2027-01-31T00:00:00Z") from error
    if expires is not None and expires.tzinfo is None:
        raise InputError(f"{fields[2]!r} has no offset from UTC", where=where, hint="append Z")
    return Token(digest, fields[1], expires)


class TokenBook:
    """The tokens that are good now."""

    def __init__(self, path: Path, now: Callable[[], datetime] = lambda: datetime.now(timezone.utc)) -> None:
        self._path = path
        self._now = now
        self._seen = _stamp(path)
        self._tokens = read_tokens(path)
        if not self._tokens:
            raise InputError("no token in this file", where=str(path), hint="verilocc serve --help says what one is")

    def check(self, authorization: str | None) -> str:
        """The name of the token in an ``authorization`` header.

        Raises:
            ServiceError: UNAUTHENTICATED, with the reason.
        """
        scheme, _, secret = (authorization or "").partition(" ")
        if scheme.lower() != "bearer" or not secret:
            raise _refused("TOKEN_MISSING", "send the header 'authorization: Bearer TOKEN'")
        self._reread()
        digest = hashlib.sha256(secret.strip().encode("utf-8", "replace")).hexdigest()
        match = None
        for token in self._tokens:
            # All are compared, so that the time says nothing about which.
            if hmac.compare_digest(token.digest, digest):
                match = token
        if match is None:
            raise _refused("TOKEN_UNKNOWN", "this token is not known here")
        if match.expires is not None and match.expires <= self._now():
            raise _refused("TOKEN_EXPIRED", f"this token expired at {match.expires.isoformat()}")
        return match.name

    def _reread(self) -> None:
        """Take a changed file: without a line, nobody may call any more. One with a line that is none (half-written
        perhaps), or that is gone, leaves what was known; the log says so.
        """
        stamp = _stamp(self._path)
        if stamp == self._seen:
            return
        self._seen = stamp
        try:
            self._tokens = read_tokens(self._path)
        except InputError as error:
            log("tokens not read", logging.ERROR, message=error.render())
        else:
            log("tokens read", tokens=len(self._tokens))


def _stamp(path: Path) -> tuple[int, int, int]:
    try:
        status = path.stat()
    except OSError:
        return 0, 0, 0
    return status.st_mtime_ns, status.st_size, status.st_ino


def _refused(reason: str, message: str) -> ServiceError:
    return ServiceError(StatusCode.UNAUTHENTICATED, reason, message)


@dataclass(frozen=True)
class TlsFiles:
    """PEM files: the server's certificate and key, and the CA of clients' certificates (mutual TLS if it is given)."""

    certificate: Path
    key: Path
    client_ca: Path | None = None

    def credentials(self) -> grpc.ServerCredentials:
        """For a port.

        Raises:
            InputError: a file cannot be read, or is not what it should be.
        """
        self.context()
        ca = read_bytes(self.client_ca) if self.client_ca is not None else None
        return grpc.ssl_server_credentials(
            [(read_bytes(self.key), read_bytes(self.certificate))],
            root_certificates=ca,
            require_client_auth=ca is not None,
        )

    def context(self) -> ssl.SSLContext:
        """For a port of HTTP.

        Raises:
            InputError: as ``credentials``, which would only say that the address cannot be bound.
        """
        for path in filter(None, (self.certificate, self.key, self.client_ca)):
            read_bytes(path)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        try:
            # An empty password, so that nobody is asked for one.
            context.load_cert_chain(self.certificate, self.key, password="")
        except (ssl.SSLError, OSError) as error:
            raise InputError(
                "not a certificate chain and its key",
                where=f"{self.certificate}, {self.key}",
                hint="PEM files; the key without a password",
            ) from error
        if self.client_ca is not None:
            try:
                context.load_verify_locations(self.client_ca)
            except (ssl.SSLError, OSError) as error:
                raise InputError("no certificate in this file", where=str(self.client_ca), hint="PEM") from error
            context.verify_mode = ssl.CERT_REQUIRED
        context.set_alpn_protocols(["http/1.1"])
        return context
