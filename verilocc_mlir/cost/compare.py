"""Two costs of one kernel side by side, the component that explains the difference, and which code is cheaper."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum

from msgspec import Struct

from verilocc_mlir.cost.model import Count, KernelCost
from verilocc_mlir.cost.rates import Figure, Origin, Source
from verilocc_mlir.cost.together import Pair

LATENCY_PARTS = ("waits", "dependencies", "busy", "hazards", "branches", "issue")
"""The parts of L: five kinds of stalls, and issuing."""
TITLES = {
    "unhidden": "scratch, copies from and to AGPRs",
    "latency": "latency over occupancy",
    "valu": "VALU issue",
    "mfma": "matrix unit",
    "lds": "LDS",
    "memory": "vector memory",
    "salu": "scalar issue",
    "waits": "waits for memory",
    "dependencies": "waits for registers",
    "busy": "waits for a busy unit",
    "hazards": "hazard padding",
    "branches": "taken branches",
    "issue": "instructions issued",
}
CAUSES = (
    ("spill_reloads", "reloads"),
    ("spill_stores", "spill stores"),
    ("lane_reloads", "reloads from lanes"),
    ("lane_saves", "saves to lanes"),
    ("accumulator_copies", "accumulator copies"),
    ("copies", "copies"),
    ("scalar_copies", "scalar copies"),
    ("dual", "dual issues"),
)


class Comparison(Struct, frozen=True):
    """One function in two compilations.

    Attributes:
        name: of the function.
        first: its cost in the first; None where it is not there.
        second: its cost in the second; None where it is not there.
        percent: how much more the second costs, in percent of the first; None where that cannot be said.
        explanation: the component that the difference comes from, and the counts that changed; ``""`` for none.
        judgement: which one is better, and by what; None where the two do not compare.
        problem: why they do not compare, with the loops that differ; ``""`` where they do.
    """

    name: str
    first: KernelCost | None
    second: KernelCost | None
    percent: float | None
    explanation: str
    judgement: Judgement | None = None
    problem: str = ""


def compare(pairs: Mapping[str, Pair]) -> tuple[Comparison, ...]:
    """Every function, in order (``together.costs_together``)."""
    return tuple(_compare(name, pair) for name, pair in pairs.items())


def percent(first: float, second: float) -> float | None:
    """How much more ``second`` is, in percent of ``first``; None where only ``first`` is zero."""
    if first == second:
        return 0.0
    return 100.0 * (second - first) / first if first else None


def latency_parts(cost: KernelCost) -> dict[str, float]:
    """L split into ``LATENCY_PARTS``."""
    parts = {name: float(getattr(cost, name)) for name in LATENCY_PARTS if name != "issue"}
    return {**parts, "issue": cost.latency - sum(parts.values())}


def _compare(name: str, pair: Pair) -> Comparison:
    first, second = pair.first, pair.second
    if first is None or second is None or pair.problem:
        return Comparison(name, first, second, None, "", problem=pair.problem)
    change, judgement = percent(first.cycles, second.cycles), judge(first, second)
    return Comparison(name, first, second, change, _explanation(first, second), judgement)


def _explanation(first: KernelCost, second: KernelCost) -> str:
    if first.cycles == second.cycles:
        return ""
    rises = second.cycles > first.cycles
    dearer = second if rises else first
    reasons: list[str] = []
    if (second.unhidden - first.unhidden) / (second.cycles - first.cycles) > 0.5:
        reasons.append(_change(TITLES["unhidden"], first.unhidden, second.unhidden))
    if dearer.bound == "latency":
        reasons += _latency(first, second, rises)
    else:
        reasons.append(_change(TITLES[dearer.bound], getattr(first, dearer.bound), getattr(second, dearer.bound)))
    if first.bound != second.bound:
        reasons.append(f"bound by {TITLES[first.bound]}, then by {TITLES[second.bound]}")
    return "; ".join([*reasons, *_counted(first, second)])


def _latency(first: KernelCost, second: KernelCost, rises: bool) -> list[str]:
    """Whichever moved the total more in the direction it took: the occupancy, or one part of L."""
    sign = 1 if rises else -1
    before, after = latency_parts(first), latency_parts(second)
    changes = {name: sign * (after[name] - before[name]) / second.occupancy for name in LATENCY_PARTS}
    waves = sign * (first.latency - first.unhidden) * (1 / second.occupancy - 1 / first.occupancy)
    part = max(changes, key=lambda name: changes[name])
    if waves >= changes[part]:
        return [f"occupancy {first.occupancy} to {second.occupancy}"]
    reasons = [_change(TITLES[part], before[part], after[part])]
    if first.occupancy != second.occupancy:
        reasons.append(f"occupancy {first.occupancy} to {second.occupancy}")
    return reasons


def _counted(first: KernelCost, second: KernelCost) -> Sequence[str]:
    """The three counts of spills, copies and dual issues that changed most."""
    rows: list[tuple[float, str]] = []
    for field, title in CAUSES:
        a: Count = getattr(first, field)
        b: Count = getattr(second, field)
        if a.weighted != b.weighted:
            rows.append((abs(b.weighted - a.weighted), _change(title, a.weighted, b.weighted)))
    return [text for _, text in sorted(rows, key=lambda row: -row[0])[:3]]


def _change(title: str, before: float, after: float) -> str:
    return f"{title} {before:.0f} to {after:.0f}"


# Which of two codes of a kernel is the better one, and by what that is decided.
#
# A modelled difference decides where it is larger than the error bar. The bars come from pairs of measured
# configurations (``benchmarks/hardware.py``): beyond them the cheaper one by the model was the faster one in 95 % of
# the pairs of every set. Below them, what needs no model decides: registers stored and reloaded, then waves. The number
# of instructions executed decides only where the modelled cycles say the same: on the measured pairs it was right in 14
# to 20 % of the cases where the two disagree.


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


class Judgement(Struct, frozen=True):
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
