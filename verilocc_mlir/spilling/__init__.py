"""Register pressure brought down to what there is: spilling, rematerialisation, live-range splitting.

What was done is data for reports.
"""

from __future__ import annotations

from msgspec import Struct


class SpillAction(Struct, frozen=True):
    """What was done to one register.

    Attributes:
        register: its name before, ``%346``.
        kind: ``spill`` (to memory), ``accumulate`` (copied to AGPRs), ``rematerialise`` (made again: constants, and
            what is made from another register) or ``split`` (over several registers).
        parts: number of its 32-bit parts that were moved.
        saves: where it is stored: ``after instruction 17``, ``at the start of block 2`` (by layout position).
        reloads: where it is loaded or computed again, or copied to its next register.
        point: slot of the first save or reload.
        cost: stores and loads of 32-bit registers, or copies of them, weighted by estimated executions.
        reason: the point at which most registers were missing, and how many; or that none is free for all of it.
    """

    register: str
    kind: str
    parts: int
    saves: tuple[str, ...]
    reloads: tuple[str, ...]
    point: int
    cost: float
    reason: str
