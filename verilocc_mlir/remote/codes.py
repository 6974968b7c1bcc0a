"""Status codes by number, as ``google.rpc.Status`` has them."""

from __future__ import annotations

from grpc import StatusCode

DOMAIN = "verilocc"
"""``ErrorInfo.domain`` of every error of this service."""


def number(code: StatusCode) -> int:
    value = code.value
    return int(value[0])


def code_of(value: int) -> StatusCode:
    """The status code of a number; UNKNOWN for one that is not known."""
    return next((c for c in StatusCode if number(c) == value), StatusCode.UNKNOWN)
