"""What spilling did, as data for reports."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SpillAction:
    """What was done to one register.

    Attributes:
        register: its name before, ``%346``.
        kind: ``spill`` (to memory), ``accumulate`` (copied to AGPRs) or ``rematerialise`` (constants, computed anew).
        parts: 32-bit registers of it that were concerned.
        saves: where it is stored: ``after instruction 17``, ``at the start of block 2`` (by layout position).
        reloads: where it is loaded or computed again.
        point: slot of the first of them.
        cost: stores and loads of 32-bit registers, weighted by estimated executions.
        reason: why: the point with most registers too many.
    """

    register: str
    kind: str
    parts: int
    saves: tuple[str, ...]
    reloads: tuple[str, ...]
    point: int
    cost: float
    reason: str
