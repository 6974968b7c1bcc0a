"""What an answer is ranked by."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from verilocc_model.encoding.table import Table


class Price(NamedTuple):
    """Smaller is better, first field first; ``allocators.cost.Cost`` with registers as the hardware hands them out.

    Attributes:
        lost_waves: waves fewer than the most a SIMD holds.
        copies: estimated executions of copies left, and of saves and restores of callee-saved registers.
        granules: granules of registers (eight SGPRs).
    """

    lost_waves: int
    copies: float
    granules: int


def price_of(table: Table, starts: Sequence[int]) -> Price:
    """The price when range *i* of the canonical problem starts at cell ``starts[i]``."""
    cost = table.cost.of(starts)
    return Price(cost.lost_waves, cost.saves_and_copies, -(-cost.registers // table.granule))
