"""The price by which answers are ranked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from verilocc_model.encoding.table import Table


class Price(NamedTuple):
    """Smaller is better, first field first. It is ``allocators.cost.Cost`` with registers counted in granules.

    Attributes:
        lost_waves: waves fewer than the most a SIMD holds.
        copies: ``Cost.saves_and_copies``.
        granules: granules of registers (eight SGPRs).
    """

    lost_waves: int
    copies: float
    granules: int


def price_of(table: Table, starts: Sequence[int]) -> Price:
    """The price when range *i* of the canonical problem starts at cell ``starts[i]``."""
    cost = table.cost.of(starts)
    return Price(cost.lost_waves, cost.saves_and_copies, -(-cost.registers // table.granule))
