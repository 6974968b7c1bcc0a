"""Instructions of which the oracle knows more than that they read and write: which threads, lanes and halves.

A thread's number or mask that is not known counts as every one.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TypeAlias

from oracle.decode import Decoded, Place
from oracle.machine import EVERY_THREAD, THREADS, Side, Value
from oracle.opcodes import ONE_LANE, WIDE_PRODUCT

Sides: TypeAlias = "tuple[tuple[Side, Decoded], tuple[Side, Decoded]]"
"""Before and after the phase: the machine and the instruction that it executes."""


def one_lane(post: Side, b: Decoded) -> int | None:
    """The lane that V_READLANE or V_WRITELANE names, where it is one of the threads that are run."""
    if not ONE_LANE.match(b.source.opcode) or len(b.reads) < 2:
        return None
    place = b.reads[1]
    value = b.immediates[1] if place is None else post.scalar(place.places[0])
    return value if value is not None and 0 <= value < THREADS else None


def selected(post: Side, b: Decoded, number: int, readers: tuple[int, ...] | range) -> tuple[int, ...] | range:
    """Of those threads, the ones that read an operand: V_SET_INACTIVE takes one of two by a mask of threads, which
    LLVM prints as undef (SIInstrInfo::expandPostRAPseudo: V_CNDMASK).
    """
    place = b.reads[4] if b.source.opcode == "V_SET_INACTIVE_B32" and len(b.reads) > 4 else None
    mask = post.scalar(place.places[0]) if place is not None else None
    if mask is None or mask > EVERY_THREAD or number not in (1, 3):
        return readers
    return tuple(t for t in readers if bool(mask >> t & 1) == (number == 1))


def kept_lanes(sides: Sides) -> list[list[tuple[Value, ...]]]:
    """What the register that a V_WRITELANE changes holds before it, on each side, place by place."""
    return [
        [tuple(side.vector(u)) for u in one.reads[2].places] if len(one.reads) > 2 and one.reads[2] is not None else []
        for side, one in sides
    ]


def pass_on(sides: Sides, old: list[list[tuple[Value, ...]]], lane: int) -> None:
    """The lanes that V_WRITELANE does not write keep what they held, on each side."""
    for (side, one), rows in zip(sides, old, strict=True):
        for unit, kept in zip(one.writes[0].places, rows, strict=False):
            row = side.vector(unit)
            row[:] = [row[t] if t == lane else value for t, value in enumerate(kept)]


def upper_addends(sides: Sides) -> tuple[list[list[Value]], list[list[Value]]] | None:
    """The upper half of what V_MAD_U64_U32 adds, on each side, where it has no clamp: the lower half of the result
    does not depend on it (ISA manuals: D = S0 * S1 + S2, 64 bits wide).
    """
    (pre, a), (post, b) = sides
    addends = [one.reads[2] if len(one.reads) > 2 else None for one in (a, b)]
    if not WIDE_PRODUCT.match(a.source.opcode) or None in addends or a.immediates[3:4] != (0,):
        return None
    before, after = (place for place in addends if place is not None)
    if not (before.vector and after.vector and len(before.places) == len(after.places)) or before.undef:
        return None
    half = len(before.places) // 2
    return [list(pre.vector(u)) for u in before.places[half:]], [list(post.vector(u)) for u in after.places[half:]]


def lower_half(place: Place) -> Place:
    """The place's first half."""
    return replace(place, places=place.places[: len(place.places) // 2])


def upper_results(sides: Sides, active: tuple[int, ...], before: list[list[Value]], after: list[list[Value]]) -> None:
    """The upper half of the result, and the carry, are other ones where the upper halves of the addends are."""
    (pre, a), (post, b) = sides
    result, carry = a.writes[0], a.writes[1]
    differs = [t for t in active if any(x[t] is not None and x[t] != y[t] for x, y in zip(before, after, strict=True))]
    half = len(result.places) // 2
    for unit in b.writes[0].places[half:]:
        post.spoil_unit(unit, True, differs)
    for unit in result.places[half:]:
        pre.spoil_unit(unit, True, [t for t in active if any(x[t] is None for x in before)])
    if differs and len(b.writes) > 1:
        for unit in b.writes[1].places[: len(carry.places)]:
            post.spoil_unit(unit, False)


def equal(post: Side, b: Decoded, thread: int) -> bool:
    """Whether a comparison surely finds both operands equal for a thread: it always does for the first active one,
    where one of them is what V_READFIRSTLANE took from the other (LLVM's waterfall loops).
    """
    places = [place for place in b.reads if place is not None and not place.implicit]
    if len(places) != 2 or any(place.undef for place in places):
        return False
    rows = [[post.vector(u)[thread] if place.vector else post.scalar(u) for u in place.places] for place in places]
    return rows[0] == rows[1]
