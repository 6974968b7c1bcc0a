"""How a client shows who it is, and knows the server."""

from __future__ import annotations

import os
from pathlib import Path

import grpc

from verilocc_mlir.errors import InputError


def channel_credentials(ca: Path | None, certificate: Path | None, key: Path | None) -> grpc.ChannelCredentials:
    """A client's: the CA that signed the server's certificate (None: the system's), and its own certificate and key.

    Raises:
        InputError: a file cannot be read, or only one of certificate and key is given.
    """
    if (certificate is None) != (key is None):
        raise InputError("a client certificate needs its key", hint="give both --tls-cert and --tls-key")
    return grpc.ssl_channel_credentials(
        root_certificates=read_bytes(ca) if ca else None,
        private_key=read_bytes(key) if key else None,
        certificate_chain=read_bytes(certificate) if certificate else None,
    )


def read_bytes(path: Path) -> bytes:
    """The file's bytes.

    Raises:
        InputError: it cannot be read.
    """
    try:
        return path.read_bytes()
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", where=os.fspath(path)) from error
