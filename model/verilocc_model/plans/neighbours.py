"""The gain that each plan brought on the labelled kernels most like a new one: what ``-O=learned`` asks.

Plain Python without numpy, so that a compilation does not wait for an import. The kernels are in one JSON file, which
``save`` writes (``verilocc train plans``) and the package carries (``weights/plans.json``).
"""

from __future__ import annotations

import heapq
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from verilocc_mlir.errors import InputError
from verilocc_mlir.files import write_whole
from verilocc_mlir.target.targets import target

NEAREST = 7
LEAST_GAIN = 0.01
"""Share of the cycles that a plan is expected to save where it is tried."""
VERSION = 1
INSTALLED = Path(__file__).parent.parent / "weights" / "plans.json"


@dataclass(frozen=True)
class Example:
    """A labelled kernel: its facts by name (``facts.facts``), and what each plan gained (``data.Labels.gain``)."""

    cpu: str
    facts: Mapping[str, float]
    gains: Mapping[str, float]


class Neighbours:
    """Expects of each plan the mean gain over the nearest kernels: by the sum of distances of the facts, each scaled by
    its spread.
    """

    def __init__(self, examples: Sequence[Example]) -> None:
        self.examples = tuple(examples)
        self._names = sorted(examples[0].facts)
        rows = [self._row(one.facts, one.cpu) for one in examples]
        columns = list(zip(*rows, strict=True))
        self._means = [math.fsum(column) / len(rows) for column in columns]
        self._spreads = [
            math.sqrt(math.fsum((x - mean) ** 2 for x in column) / len(rows)) + 1e-6
            for column, mean in zip(columns, self._means, strict=True)
        ]
        self._rows = [self._scaled(row) for row in rows]
        self._plans: dict[str, set[str]] = {}
        for one in examples:
            self._plans.setdefault(kind(one.cpu), set()).update(one.gains)

    def expected(self, facts: Mapping[str, float], cpu: str) -> dict[str, float]:
        """The logarithm of each plan's cycles over the default plan's, where other GPUs of the kind have the plan."""
        row = self._scaled(self._row(facts, cpu))
        distances = [math.fsum(abs(a - b) for a, b in zip(row, other, strict=True)) for other in self._rows]
        nearest = heapq.nsmallest(NEAREST, range(len(distances)), key=lambda k: (distances[k], k))
        # One more kernel without a gain: few neighbours say little.
        return {
            plan: math.fsum(self.examples[k].gains.get(plan, 0.0) for k in nearest) / (len(nearest) + 1.0)
            for plan in sorted(self._plans.get(kind(cpu), ()))
        }

    def best(self, facts: Mapping[str, float], cpu: str, count: int) -> list[str]:
        """At most ``count`` plans that are worth a try, the best first."""
        gains = self.expected(facts, cpu)
        return sorted((plan for plan, gain in gains.items() if gain <= -LEAST_GAIN), key=lambda plan: gains[plan])[
            :count
        ]

    def _row(self, facts: Mapping[str, float], cpu: str) -> list[float]:
        gpu = target(cpu)
        of_target = [gpu.unified_vgpr, gpu.max_waves, gpu.vgpr_total, gpu.vgpr_granule]
        return [facts[name] for name in self._names] + [float(x) for x in of_target]

    def _scaled(self, row: Sequence[float]) -> list[float]:
        return [(x - mean) / spread for x, mean, spread in zip(row, self._means, self._spreads, strict=True)]


def kind(cpu: str) -> str:
    """``CDNA`` or ``RDNA``."""
    return "CDNA" if cpu.startswith("gfx9") else "RDNA"


def save(neighbours: Neighbours, path: Path, made_with: Mapping[str, Any]) -> None:
    """Write the kernels as JSON."""
    rows = [{"cpu": e.cpu, "facts": dict(e.facts), "gains": _rounded(e.gains)} for e in neighbours.examples]
    lines = ",\n".join(json.dumps(row, sort_keys=True, separators=(",", ":")) for row in rows)
    head = json.dumps({"version": VERSION, "made_with": made_with}, sort_keys=True)[:-1]
    write_whole(path, f'{head}, "kernels": [\n{lines}\n]}}\n'.encode())


def load(path: Path = INSTALLED) -> Neighbours:
    """Read them.

    Raises:
        InputError: the file is missing, or is none of this form.
    """
    try:
        data = json.loads(path.read_bytes())
        if data["version"] != VERSION:
            raise InputError(f"has version {data['version']}, not {VERSION}", where=str(path))
        return Neighbours([Example(row["cpu"], row["facts"], row["gains"]) for row in data["kernels"]])
    except (OSError, ValueError, KeyError, TypeError, IndexError) as error:
        raise InputError(f"has no labelled kernels: {error}", where=str(path)) from error


def _rounded(gains: Mapping[str, float]) -> dict[str, float]:
    return {plan: round(gain, 5) for plan, gain in gains.items()}
