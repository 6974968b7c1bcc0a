"""Which of two codes of a kernel is the better one, and by what that is decided.

A modelled difference decides where it is larger than the error bar. The bars come from pairs of measured
configurations (``benchmarks/hardware.py``): beyond them the cheaper one by the model was the faster one in 95 % of the
pairs of every set. Below them, what needs no model decides: registers stored and reloaded, then waves.
The number of instructions executed decides only where the modelled cycles say the same: on the measured pairs it was
right in 14 to 20 % of the cases where the two disagree.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from verilocc_mlir.cost.model import KernelCost
from verilocc_mlir.cost.rates import Figure, Origin, Source

_EQUAL = 1e-6
"""Share of a figure below which two are the same: they are sums of floating-point numbers."""


class Kind(Enum):
    """In what two codes differ."""

    SPILLS = "registers stored and reloaded"
    WAVES = "waves"
    ORDER = "only order and registers"


def _bar(value: float, detail: str) -> Figure:
    return Figure(value, Source(Origin.MEASURED, detail))


ERROR_BARS = {
    Kind.SPILLS: _bar(0.25, "1,788 pairs of measured convolutions beyond it, all but three right"),
    Kind.WAVES: _bar(0.2, "88 pairs of measured convolutions, all right; 85 of them on W7800"),
    Kind.ORDER: _bar(0.1, "1,915 pairs, nearly all of dedispersion, 98 % right; MI250X alone 98.1 %"),
}
"""How much dearer one must be modelled, as a share of the other, for the difference to be believed."""
_NOISE = _bar(0.02, "equal code differs by 1.3 % (median) between runs, 5.6 % in one of ten")
FIGURES = {f"error bar, {kind.value} differ": figure for kind, figure in ERROR_BARS.items()} | {"noise": _NOISE}


class Ground(Enum):
    """What a decision rests on."""

    CYCLES = "modelled cycles"
    SPILLS = "registers stored and reloaded"
    WAVES = "waves"
    INSTRUCTIONS = "instructions executed, and modelled cycles below the error bar"
    NOTHING = "nothing tells them apart"


@dataclass(frozen=True, slots=True)
class Judgement:
    """Of two codes, a first and a second.

    Attributes:
        order: -1 if the first is the better one, 1 if the second is, 0 if neither is.
        ground: what that rests on.
        kind: in what they differ.
        bar: the error bar of that kind.
    """

    order: int
    ground: Ground
    kind: Kind
    bar: float

    @property
    def by_cycles(self) -> bool:
        """Whether the modelled difference alone decides; else it is undecided."""
        return self.ground is Ground.CYCLES


def spill_traffic(cost: KernelCost) -> float:
    """Registers stored to and loaded from memory or lanes, by estimated executions."""
    return sum(c.weighted for c in (cost.spill_stores, cost.spill_reloads, cost.lane_saves, cost.lane_reloads))


def more(a: float, b: float) -> bool:
    """Whether ``a`` is more than ``b`` by more than rounding."""
    return a > b * (1 + _EQUAL)


def kind_of(first: KernelCost, second: KernelCost) -> Kind:
    """In what two codes of a kernel differ, the gravest first."""
    if _order(spill_traffic(first), spill_traffic(second)):
        return Kind.SPILLS
    return Kind.WAVES if first.occupancy != second.occupancy else Kind.ORDER


def error_bar(first: KernelCost, second: KernelCost) -> float:
    """How much dearer one of them must be, as a share of the other, to be believed dearer."""
    return ERROR_BARS[kind_of(first, second)].value


def judge(first: KernelCost, second: KernelCost) -> Judgement:
    """Which of two codes that compare (``together.py``) is the better one."""
    kind = kind_of(first, second)
    bar = ERROR_BARS[kind].value
    cycles = _order(first.cycles, second.cycles)
    less, greater = sorted((first.cycles, second.cycles))
    if greater > (1 + bar) * less:
        return Judgement(cycles, Ground.CYCLES, kind, bar)
    if spills := _order(spill_traffic(first), spill_traffic(second)):
        return Judgement(spills, Ground.SPILLS, kind, bar)
    if first.occupancy != second.occupancy:
        return Judgement(-1 if first.occupancy > second.occupancy else 1, Ground.WAVES, kind, bar)
    apart = greater > (1 + _NOISE.value) * less
    if apart and cycles == _order(first.issued, second.issued):
        return Judgement(cycles, Ground.INSTRUCTIONS, kind, bar)
    return Judgement(0, Ground.NOTHING, kind, bar)


def _order(first: float, second: float) -> int:
    """-1 if the first is less, 1 if it is more, 0 for the same."""
    return -1 if more(second, first) else 1 if more(first, second) else 0
