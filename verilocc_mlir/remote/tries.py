"""What a server says of its tries, made printable and bounded: nothing decides by it."""

from __future__ import annotations

from collections.abc import Iterable

from google.protobuf.duration_pb2 import Duration
from grpc import StatusCode

from verilocc.v1 import allocation_service_pb2 as allocation
from verilocc.v1 import verdict_pb2
from verilocc_mlir.allocators.protocol import ModelUse, ServerAttempt
from verilocc_mlir.remote.wire import OUTCOMES

_MAX_TRIES = 64
_MAX_REFUTED = 8
_MAX_TEXT = 400
_OUTCOME_NAMES = {number: str(outcome) for outcome, number in OUTCOMES.items()}


def printable(text: str) -> str:
    """What a server said, as one line that a terminal can be shown."""
    visible = "".join(c if c.isprintable() else " " for c in text)
    return " ".join(visible.split())[:_MAX_TEXT]


def seconds_of(duration: Duration) -> float:
    return max(0.0, duration.seconds + duration.nanos / 1e9)


def tries_of(attempts: Iterable[allocation.Attempt]) -> tuple[ServerAttempt, ...]:
    """The tries of one function, the last 64."""
    return tuple(map(_try_of, list(attempts)[-_MAX_TRIES:]))


def _try_of(attempt: allocation.Attempt) -> ServerAttempt:
    verdict = attempt.audit if attempt.HasField("audit") else attempt.proof
    refuted = [f for f in verdict.findings if f.outcome == verdict_pb2.OUTCOME_REFUTED][:_MAX_REFUTED]
    return ServerAttempt(
        printable(attempt.allocator),
        printable(attempt.version),
        printable(attempt.ended),
        printable(attempt.reason),
        _OUTCOME_NAMES.get(verdict.outcome, ""),
        tuple(printable(f"{f.rule}: {f.message}") for f in refuted),
        _use_of(attempt.model) if attempt.HasField("model") else None,
    )


def _use_of(use: allocation.ModelUse) -> ModelUse:
    return ModelUse(
        printable(use.model),
        printable(use.adapter),
        max(0, use.tokens),
        seconds_of(use.wall_time),
        printable(use.note),
    )


# Status codes by number, as ``google.rpc.Status`` has them.


DOMAIN = "verilocc"
"""``ErrorInfo.domain`` of every error of this service."""


def number(code: StatusCode) -> int:
    value = code.value
    return int(value[0])


def code_of(value: int) -> StatusCode:
    """The status code of a number; UNKNOWN for one that is not known."""
    return next((c for c in StatusCode if number(c) == value), StatusCode.UNKNOWN)
