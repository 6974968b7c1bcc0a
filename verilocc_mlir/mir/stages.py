"""Where llc stops in register allocation, which has three phases: scalars (0), whole-wave (1), vector registers (2)."""

from __future__ import annotations

STOP_BEFORE_ALLOCATION = "-stop-before=greedy"
"""The flag without a phase."""


def stop_before(phase: int) -> str:
    """llc's flag to stop at the text that a phase is given."""
    return f"{STOP_BEFORE_ALLOCATION},{phase}"


STOP_BEFORE_ALL_PHASES = stop_before(0)
