"""Two costs of one kernel side by side, and the component that explains the difference."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from verilocc_mlir.cost.judge import Judgement, judge
from verilocc_mlir.cost.model import Count, KernelCost
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


@dataclass(frozen=True, slots=True)
class Comparison:
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
