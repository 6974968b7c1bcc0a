"""Messages of proto/verilocc/v1 from and to this project's data. Nothing here decides anything."""

from __future__ import annotations

import math
from collections.abc import Iterable

from smt_verifier.outcome import Outcome
from verilocc.v1 import problem_pb2, verdict_pb2
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
_PHASE_NUMBERS: dict[str, problem_pb2.Phase.ValueType] = {str(name): number for name, number in PHASES.items()}
_KINDS = {
    "def": problem_pb2.POINT_KIND_DEF,
    "early-def": problem_pb2.POINT_KIND_EARLY_DEF,
    "use": problem_pb2.POINT_KIND_USE,
}
_KIND_NAMES: dict[int, str] = {number: name for name, number in _KINDS.items()}


def mask_bytes(mask: int) -> bytes:
    """A lane mask as little-endian bytes, as few as needed."""
    return mask.to_bytes((mask.bit_length() + 7) // 8, "little")


def problem_message(problem: AllocationProblem) -> problem_pb2.AllocationProblem:
    occupancy = problem.occupancy
    return problem_pb2.AllocationProblem(
        version=problem.version,
        target=problem.target,
        function=problem.function,
        phase=_PHASE_NUMBERS[problem.phase],
        slots=problem.slots,
        block_starts=problem.block_starts,
        block_depths=problem.block_depths,
        ranges=[_range_message(r) for r in problem.ranges],
        affinities=[
            problem_pb2.Affinity(
                a=a.a,
                a_lane=a.a_lane,
                b=a.b,
                b_lane=a.b_lane,
                lanes=a.lanes,
                weight=a.weight,
                slot=a.slot,
                fixed=a.fixed,
            )
            for a in problem.affinities
        ],
        fixed=[
            problem_pb2.FixedOccupation(units=f.units, segments=_segment_messages(f.segments), reason=f.reason)
            for f in problem.fixed
        ],
        budgets=[
            problem_pb2.BankBudget(bank=b.bank, registers=b.registers, expensive=b.expensive) for b in problem.budgets
        ],
        occupancy=problem_pb2.Occupancy(
            granule=occupancy.granule, file=occupancy.file, max_waves=occupancy.max_waves, unified=occupancy.unified
        ),
        special=problem.special,
        preferences=[
            problem_pb2.Preference(
                kind=p.kind,
                relations=[
                    problem_pb2.Relation(a=r.a, a_lane=r.a_lane, b=r.b, b_lane=r.b_lane, modulus=r.modulus)
                    for r in p.relations
                ],
                weight=p.weight,
                slot=p.slot,
            )
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
    occupancy = message.occupancy
    problem = AllocationProblem(
        version=message.version,
        target=message.target,
        function=message.function,
        phase=PHASE_NAMES[message.phase],
        slots=message.slots,
        block_starts=tuple(message.block_starts),
        block_depths=tuple(message.block_depths),
        ranges=tuple(map(_range_of, message.ranges)),
        affinities=tuple(
            Affinity(a.a, a.a_lane, a.b, a.b_lane, a.lanes, a.weight, a.slot, a.fixed) for a in message.affinities
        ),
        fixed=tuple(FixedOccupation(tuple(f.units), _segments_of(f.segments), f.reason) for f in message.fixed),
        budgets=tuple(BankBudget(b.bank, tuple(b.registers), tuple(b.expensive)) for b in message.budgets),
        occupancy=Occupancy(occupancy.granule, occupancy.file, occupancy.max_waves, occupancy.unified),
        special=tuple(message.special),
        preferences=tuple(
            Preference(
                p.kind,
                tuple(Relation(r.a, r.a_lane, r.b, r.b_lane, r.modulus) for r in p.relations),
                p.weight,
                p.slot,
            )
            for p in message.preferences
        ),
    )
    # The JSON form's checks are the problem's: one place says what a problem is.
    return problem_from_json(to_json(problem))


def _range_message(live: LiveRange) -> problem_pb2.LiveRange:
    return problem_pb2.LiveRange(
        id=live.id,
        name=live.name,
        banks=live.banks,
        width=live.width,
        lanes=live.lanes,
        align=live.align,
        limit=live.limit,
        register_class=live.register_class,
        groups=[
            problem_pb2.LaneGroup(lanes=mask_bytes(g.lanes), segments=_segment_messages(g.segments))
            for g in live.groups
        ],
        points=[
            problem_pb2.Point(
                slot=p.slot, lanes=mask_bytes(p.lanes), kind=_KINDS[p.kind], depth=p.depth, family=p.family
            )
            for p in live.points
        ],
        weight=live.weight,
        hint=live.hint,
    )


def _range_of(live: problem_pb2.LiveRange) -> LiveRange:
    return LiveRange(
        id=live.id,
        name=live.name,
        banks=tuple(live.banks),
        width=live.width,
        lanes=live.lanes,
        align=live.align,
        limit=live.limit,
        register_class=live.register_class,
        groups=tuple(LaneGroup(int.from_bytes(g.lanes, "little"), _segments_of(g.segments)) for g in live.groups),
        points=tuple(
            Point(p.slot, int.from_bytes(p.lanes, "little"), _KIND_NAMES[p.kind], p.depth, p.family)
            for p in live.points
        ),
        weight=live.weight,
        hint=live.hint,
    )


def _segment_messages(segments: Iterable[Segment]) -> list[problem_pb2.Segment]:
    return [problem_pb2.Segment(start=start, end=end) for start, end in segments]


def _segments_of(segments: Iterable[problem_pb2.Segment]) -> tuple[Segment, ...]:
    return tuple((s.start, s.end) for s in segments)
