"""One line of the data set: a problem, its origin, its demand and its labels.

Canonical JSON: ``{"version", "cell", "phase", "split", "held_out", "structure", "instructions", "fits", "demand",
"problem", "labels", "refused"}``; ``problem`` is as in ``verilocc_mlir/problem/allocation.schema.json``.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from verilocc_mlir.allocators.bounds import Demand
from verilocc_mlir.problem.model import AllocationProblem
from verilocc_mlir.problem.schema import problem_from_json, to_json
from verilocc_model.corpus.cells import Cell
from verilocc_model.corpus.labels import Label, Refused

RECORD_VERSION = 1


@dataclass(frozen=True)
class Record:
    """One problem of one kernel.

    Attributes:
        instructions: number of instructions of the function as it enters the phase.
        demand: the registers of each set of files that are needed at once. If that is more than there are, the problem
            has no answer without spilling (``fits``).
        labels: best first; empty where no teacher has one.
    """

    cell: Cell
    problem: AllocationProblem
    instructions: int
    demand: tuple[Demand, ...]
    labels: tuple[Label, ...]
    refused: tuple[Refused, ...]

    @property
    def split(self) -> Split:
        return split_of(self.cell)

    @property
    def held_out(self) -> tuple[str, ...]:
        """As ``split.held_out``."""
        return held_out(self.cell)

    @property
    def fits(self) -> bool:
        """Whether the pressure exceeds no file. Even so, an allocation need not exist."""
        return all(one.registers <= one.available for one in self.demand)

    @property
    def structure(self) -> str:
        return structure_of(self.problem)

    def to_json(self) -> str:
        """One line, without its end."""
        data = {
            "version": RECORD_VERSION,
            "cell": self.cell.to_data(),
            "phase": self.problem.phase,
            "split": self.split,
            "held_out": self.held_out,
            "structure": self.structure,
            "instructions": self.instructions,
            "fits": self.fits,
            "demand": [asdict(one) for one in self.demand],
            "problem": json.loads(to_json(self.problem)),
            "labels": [asdict(label) for label in self.labels],
            "refused": [asdict(one) for one in self.refused],
        }
        return json.dumps(data, sort_keys=True, separators=(",", ":"))

    @classmethod
    def from_json(cls, line: str) -> Record:
        """A record from what ``to_json`` gave. Split, structure and the like are computed again.

        Raises:
            InputError: the problem is not valid.
            ValueError, KeyError, TypeError: the line is no record of this version.
        """
        data: dict[str, Any] = json.loads(line)
        if data["version"] != RECORD_VERSION:
            raise ValueError(f"version {data['version']!r} is not {RECORD_VERSION}")
        return cls(
            Cell.from_data(data["cell"]),
            problem_from_json(json.dumps(data["problem"])),
            int(data["instructions"]),
            tuple(_demand(one) for one in data["demand"]),
            tuple(_label(one) for one in data["labels"]),
            tuple(Refused(**one) for one in data["refused"]),
        )


def _demand(data: dict[str, Any]) -> Demand:
    values: dict[str, Any] = {**data, "banks": tuple(data["banks"])}
    return Demand(**values)


def _label(data: dict[str, Any]) -> Label:
    values: dict[str, Any] = {**data, "registers": tuple(data["registers"])}
    return Label(**values)


def structure_of(problem: AllocationProblem) -> str:
    """SHA-256 of a problem without names and target: equal for problems that differ in nothing else."""
    ranges = tuple(replace(live, name="") for live in problem.ranges)
    bare = replace(problem, target="", function="", ranges=ranges)
    return hashlib.sha256(to_json(bare).encode()).hexdigest()


# Which part of the data set a kernel belongs to: its contents decide, never its file or the order.
#
# The hash covers source, family, shape and configuration, but neither target nor limits: the same kernel for another
# GPU or with another budget is in the same part. One source and one target are kept out of the base model's training,
# in every part, to see what the model does with kernels that it has never met. Adaptation to that target uses its
# ``train`` part.


Split = Literal["train", "valid", "test"]
SPLITS: tuple[Split, ...] = ("train", "valid", "test")

HELD_OUT_SOURCE = "iree"
HELD_OUT_TARGET = "gfx1201"
_TEST, _VALID = 0.12, 0.05


def split_of(cell: Cell) -> Split:
    position = int(cell.configuration[:8], 16) / 2**32
    if position < _TEST:
        return "test"
    return "valid" if position < _TEST + _VALID else "train"


def held_out(cell: Cell) -> tuple[str, ...]:
    """Why the base model must not see a cell: ``source``, ``target``; empty where it may."""
    return reasons_held_out(cell.source, cell.target)


def reasons_held_out(source: str, target: str) -> tuple[str, ...]:
    """``held_out`` of a cell of that source for that target."""
    reasons = (("source", source == HELD_OUT_SOURCE), ("target", target == HELD_OUT_TARGET))
    return tuple(name for name, holds in reasons if holds)
