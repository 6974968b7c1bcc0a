"""Reading a data set of plans."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from verilocc_mlir.errors import InputError
from verilocc_model.corpus.cells import Cell
from verilocc_model.corpus.shards import read_lines
from verilocc_model.corpus.split import Split, held_out, split_of

DEFAULT = "default"


@dataclass(frozen=True)
class Labels:
    """One kernel: what is known of it, and what each plan costs.

    Attributes:
        facts: as ``facts.facts`` gives them.
        llvm: ``cycles``, ``waves`` and ``spills`` of LLVM's default compile.
        plans: the same by plan; a plan without an allocation is missing.
        first: the plan that is tried first in any case, which the others are compared with.
        cpu: CPU seconds that allocating, finishing and costing took, by plan.
    """

    cell: Cell
    facts: Mapping[str, float]
    llvm: Mapping[str, float]
    plans: Mapping[str, Mapping[str, float]]
    first: str = DEFAULT
    cpu: Mapping[str, float] = field(default_factory=dict[str, float])

    @property
    def split(self) -> Split:
        return split_of(self.cell)

    @property
    def held_out(self) -> tuple[str, ...]:
        """Why no policy is fitted to it; empty where it may be."""
        return held_out(self.cell)

    def gain(self, plan: str) -> float:
        """Natural logarithm of the plan's cycles over the first one's; 0 where the guard takes the first one.

        The guard (``pipeline.guard``): a plan without an allocation, one that is dearer, one with fewer waves than
        LLVM's default compile and more cycles, and one that spills more than it, is not kept.
        """
        return min(0.0, self.unguarded(plan)) if self.is_kept(plan) else 0.0

    def unguarded(self, plan: str) -> float:
        """The logarithm alone; 0 for a plan without an allocation."""
        first, chosen = self.plans[self.first], self.plans.get(plan)
        return math.log(chosen["cycles"] / first["cycles"]) if chosen else 0.0

    def is_kept(self, plan: str) -> bool:
        """Whether the guard lets the plan stand."""
        chosen, first, llvm = self.plans.get(plan), self.plans[self.first], self.llvm
        if chosen is None:
            return False
        loses_waves = chosen["waves"] < llvm["waves"] and chosen["cycles"] > llvm["cycles"]
        return not loses_waves and chosen["spills"] <= max(llvm["spills"], first["spills"])


def read_labels(directory: Path) -> Iterator[Labels]:
    """All kernels whose first plan has an allocation.

    Raises:
        InputError: a shard is missing or damaged, or a line is none of this form.
    """
    for number, line in enumerate(read_lines(directory), 1):
        try:
            labels = _labels(json.loads(line))
        except (ValueError, KeyError, TypeError) as error:
            raise InputError(f"line {number} has no labels of plans: {error}", where=str(directory)) from error
        if labels.first in labels.plans:
            yield labels


def _labels(data: Mapping[str, Any]) -> Labels:
    plans = {row["plan"]: _figures(row) for row in data["plans"] if "cycles" in row}
    cpu = {row["plan"]: float(row.get("cpu", 0.0)) for row in data["plans"]}
    return Labels(
        Cell.from_data(data["cell"]), data["facts"], _figures(data["llvm"]), plans, data.get("first", DEFAULT), cpu
    )


def _figures(row: Mapping[str, Any]) -> dict[str, float]:
    return {name: float(row[name]) for name in ("cycles", "waves", "spills")}
