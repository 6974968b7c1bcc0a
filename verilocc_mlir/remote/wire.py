"""Messages of proto/verilocc/v1 from and to this project's data. Nothing here decides anything."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, TypeVar, cast

from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from grpc import StatusCode

from smt_verifier.outcome import Outcome
from verilocc.v1 import allocation_service_pb2 as allocation
from verilocc.v1 import problem_pb2, verdict_pb2
from verilocc_mlir.allocators.protocol import ModelUse, ServerAttempt
from verilocc_mlir.errors import InputError
from verilocc_mlir.problem.model import (
    Affinity,
    AllocationProblem,
    BankBudget,
    FixedOccupation,
    LaneGroup,
    LiveRange,
    Occupancy,
    Phase,
    Point,
    Preference,
    Relation,
    Segment,
)
from verilocc_mlir.problem.schema import problem_from_json, to_json

_M = TypeVar("_M", bound=Message)
_D = TypeVar("_D")

OUTCOMES = {
    Outcome.PROVED: verdict_pb2.OUTCOME_PROVED,
    Outcome.REFUTED: verdict_pb2.OUTCOME_REFUTED,
    Outcome.UNKNOWN: verdict_pb2.OUTCOME_UNKNOWN,
    Outcome.INVALID: verdict_pb2.OUTCOME_INVALID,
}
PHASES: dict[Phase, problem_pb2.Phase.ValueType] = {
    "sgpr": problem_pb2.PHASE_SGPR,
    "wwm": problem_pb2.PHASE_WWM,
    "vgpr": problem_pb2.PHASE_VGPR,
}
PHASE_NAMES: dict[int, Phase] = {number: name for name, number in PHASES.items()}
PHASE_NUMBERS: dict[str, problem_pb2.Phase.ValueType] = {str(name): number for name, number in PHASES.items()}
_KINDS = {
    "def": problem_pb2.POINT_KIND_DEF,
    "early-def": problem_pb2.POINT_KIND_EARLY_DEF,
    "use": problem_pb2.POINT_KIND_USE,
}
_KIND_NAMES: dict[int, str] = {number: name for name, number in _KINDS.items()}


def mask_bytes(mask: int) -> bytes:
    return mask.to_bytes((mask.bit_length() + 7) // 8, "little")


def problem_message(problem: AllocationProblem) -> problem_pb2.AllocationProblem:
    return _message(
        problem_pb2.AllocationProblem,
        problem,
        phase=PHASE_NUMBERS[problem.phase],
        ranges=[_range_message(r) for r in problem.ranges],
        affinities=[_message(problem_pb2.Affinity, a) for a in problem.affinities],
        fixed=[_message(problem_pb2.FixedOccupation, f, segments=_segment_messages(f.segments)) for f in problem.fixed],
        budgets=[_message(problem_pb2.BankBudget, b) for b in problem.budgets],
        occupancy=_message(problem_pb2.Occupancy, problem.occupancy),
        preferences=[
            _message(problem_pb2.Preference, p, relations=[_message(problem_pb2.Relation, r) for r in p.relations])
            for p in problem.preferences
        ],
    )


def problem_of(message: problem_pb2.AllocationProblem) -> AllocationProblem:
    """A message as a problem, checked as its JSON form is.

    Raises:
        InputError: it is not a problem; ``where`` names the field.
    """
    if message.phase not in PHASE_NAMES:
        raise InputError("phase is not set", where="problem.phase")
    kinds = {p.kind for r in message.ranges for p in r.points}
    if not kinds <= set(_KIND_NAMES):
        raise InputError("a point without kind", where="problem.ranges.points.kind")
    weights = (weighed.weight for many in (message.ranges, message.affinities, message.preferences) for weighed in many)
    if not all(map(math.isfinite, weights)):
        raise InputError("a weight that is no number", where="problem.ranges.weight")
    problem = _data(
        AllocationProblem,
        message,
        phase=PHASE_NAMES[message.phase],
        ranges=tuple(map(_range_of, message.ranges)),
        affinities=tuple(_data(Affinity, a) for a in message.affinities),
        fixed=tuple(_data(FixedOccupation, f, segments=_segments_of(f.segments)) for f in message.fixed),
        budgets=tuple(_data(BankBudget, b) for b in message.budgets),
        occupancy=_data(Occupancy, message.occupancy),
        preferences=tuple(
            _data(Preference, p, relations=tuple(_data(Relation, r) for r in p.relations)) for p in message.preferences
        ),
    )
    # The JSON form's checks are the problem's: one place says what a problem is.
    return problem_from_json(to_json(problem))


def _message(kind: type[_M], source: object, /, **given: object) -> _M:
    """A message with the fields in ``given``, and all others from the attributes of the same names."""
    names = kind.DESCRIPTOR.fields_by_name
    return kind(**{name: given[name] if name in given else getattr(source, name) for name in names})


def _data(kind: type[_D], message: Message, /, **given: Any) -> _D:
    """The way back; repeated fields are tuples."""
    names = cast(Any, kind).__struct_fields__
    values = {name: given[name] if name in given else getattr(message, name) for name in names}
    return kind(**{n: v if isinstance(v, (str, int, float)) or n in given else tuple(v) for n, v in values.items()})


def _range_message(live: LiveRange) -> problem_pb2.LiveRange:
    return _message(
        problem_pb2.LiveRange,
        live,
        groups=[
            problem_pb2.LaneGroup(lanes=mask_bytes(g.lanes), segments=_segment_messages(g.segments))
            for g in live.groups
        ],
        points=[_message(problem_pb2.Point, p, lanes=mask_bytes(p.lanes), kind=_KINDS[p.kind]) for p in live.points],
    )


def _range_of(live: problem_pb2.LiveRange) -> LiveRange:
    return _data(
        LiveRange,
        live,
        groups=tuple(LaneGroup(_mask(g.lanes), _segments_of(g.segments)) for g in live.groups),
        points=tuple(_data(Point, p, lanes=_mask(p.lanes), kind=_KIND_NAMES[p.kind]) for p in live.points),
    )


def _mask(data: bytes) -> int:
    return int.from_bytes(data, "little")


def _segment_messages(segments: Iterable[Segment]) -> list[problem_pb2.Segment]:
    return [problem_pb2.Segment(start=start, end=end) for start, end in segments]


def _segments_of(segments: Iterable[problem_pb2.Segment]) -> tuple[Segment, ...]:
    return tuple((s.start, s.end) for s in segments)


# What a server says of its tries, made printable and bounded: nothing decides by it.


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
        printable(_near(attempt.nearest)) if attempt.HasField("nearest") else "",
    )


def _near(nearest: allocation.Nearest) -> str:
    """As the verifier here says it (``smt_verifier.prove.Nearest``)."""
    if not nearest.moves:
        return f"no valid assignment is near: {nearest.reason}"
    moves = ", ".join(f"{move.virtual_register} to ${move.physical_register}" for move in nearest.moves)
    return f"the nearest valid assignment moves {moves}"


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
