"""What each answer costs on each kernel: modelled cycles of final code with our allocation, nothing proved.

A data set is made as that of ``verilocc corpus make``: the same kernels, the same parts, resumable, on Ray too. Its
manifest names LLVM and a digest of the code that decides a label: cost model, allocators, spilling. Labels of other
code are stale, and such a data set is refused.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import verilocc_mlir
from verilocc_mlir.cost.compare import spill_traffic
from verilocc_mlir.cost.model import KernelCost
from verilocc_mlir.errors import UnsupportedError, VeriloccError
from verilocc_mlir.pipeline.candidates import LABELLED, Answer, CandidateCost, candidate_costs
from verilocc_mlir.pipeline.key import python_digest
from verilocc_mlir.pipeline.plans import DEFAULT, PLANS, Plan, Planned, first_plans, has_promise, planned
from verilocc_mlir.pipeline.settings import Settings
from verilocc_mlir.store import Store
from verilocc_model.corpus.build import Stream
from verilocc_model.corpus.ir import ir
from verilocc_model.corpus.shards import read_lines, read_manifest
from verilocc_model.corpus.sources import Cell
from verilocc_model.plans.data import FIGURES
from verilocc_model.plans.facts import dearest_of, facts, facts_of_text

_DECIDES = (
    "allocators", "analysis", "banks.py", "cost", "mir", "ordering", "problem", "rewrite", "spilling", "splitting",
    "target", "toolchain", "pipeline/attempt.py", "pipeline/candidates.py", "pipeline/effort.py", "pipeline/plans.py",
    "pipeline/runs.py",
)  # fmt: skip
_OF_FAST = ("default", "beside", "max-ilp")


@dataclass(frozen=True)
class PlanLimits:
    """Which kernels are labelled.

    Attributes:
        instructions: at most, in LLVM's own code.
        seconds: elapsed, for all answers of one kernel.
        spilled: only those that LLVM's default compile spills registers of.
    """

    instructions: int = 4000
    seconds: float = 300.0
    spilled: bool = False


@dataclass(frozen=True)
class PlanRecipe(Stream):
    """Labels of plans.

    Attributes:
        plans: answers as text (``pipeline.candidates``).
        listed: these kernels instead of the stream's.
    """

    limits: PlanLimits = field(default_factory=PlanLimits)
    plans: tuple[str, ...] = tuple(map(str, LABELLED))
    listed: tuple[Cell, ...] = ()

    def parameters(self) -> dict[str, Any]:
        """See ``Stream``."""
        named = "".join(cell.name for cell in self.listed)
        return {**super().parameters(), "listed": _digest(named) if named else ""}

    def versions(self) -> dict[str, str]:
        """See ``Stream``."""
        return {**super().versions(), "engine": engine_digest()}

    def cells(self) -> Iterable[Cell]:
        """The kernels in order."""
        return self.listed[: self.kernels] if self.listed else super().cells()

    def for_one(self) -> Stream:
        """See ``Stream``: a long list would not fit."""
        return replace(self, listed=())

    def lines(self, cell: Cell, store: Store | None = None) -> list[tuple[str, dict[str, Any]]]:
        """A kernel's line: facts, LLVM's default compile, and what came of each answer.

        Raises:
            VeriloccError: the kernel cannot be made, is too large, or LLVM does not compile it.
        """
        text = ir(cell, store)
        settings = Settings(cpu=cell.target, tool_seconds=self.limits.seconds)
        given = planned(text.encode(), cell.name, settings)
        dearest, by_name = dearest_of(given.work.compiler.direct(given.ir, "asm"), given.work.target, cell.name)
        of_dearest = by_name[dearest.name]
        if of_dearest.instructions.static > self.limits.instructions:
            raise UnsupportedError(f"{of_dearest.instructions.static} instructions are more than are wanted")
        known, llvm = facts(dearest, of_dearest, given.work.target), figures(by_name)
        # No policy is asked about a kernel that promises nothing, so it has labels of what ``fast`` tries alone.
        worth_it = has_promise(by_name)
        answers = [Answer.parse(name) for name in self.plans if worth_it or name in _OF_FAST]
        spilled = any(cost.spill_stores.static for cost in by_name.values())
        if self.limits.spilled and not spilled:
            raise UnsupportedError("LLVM spills nothing of it")
        data = {
            "cell": cell.to_data(),
            "sha256": _digest(text),
            "facts": known,
            "llvm": llvm,
            "promises": worth_it,
            "first": next(p.name for p in first_plans(given) if p in PLANS) if spilled else DEFAULT.name,
            "plans": _rows(given, answers, dearest.name),
        }
        return [(json.dumps(data, sort_keys=True), {})]


@dataclass(frozen=True)
class Difference:
    """A label that another measurement does not give: the kernel, and what was and is."""

    cell: str
    what: str
    was: Any
    now: Any


def remeasured(directory: Path, count: int, seed: int = 0, store: Store | None = None) -> Iterator[list[Difference]]:
    """Label some kernels of a data set again, drawn at random; what differs of each, so that a label that somebody
    changed, or that other code made, is seen.

    Raises:
        InputError: no data set of plans is there, or its kernels cannot be made here.
    """
    lines = [json.loads(line) for line in read_lines(directory)]
    limits = PlanLimits(**read_manifest(directory)["parameters"]["limits"])
    for row in random.Random(seed).sample(lines, min(count, len(lines))):
        cell, names = Cell.from_data(row["cell"]), tuple(one["plan"] for one in row["plans"])
        ((again, _),) = PlanRecipe(1, plans=names, limits=limits).lines(cell, store)
        compared = _compared(row, json.loads(again))
        yield [Difference(cell.name, what, was, now) for what, was, now in compared if was != now]


def _compared(row: Mapping[str, Any], again: Mapping[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    """What does not depend on the machine's speed, of two labels of one kernel."""
    for name in ("sha256", "facts", "llvm", "promises", "first"):
        yield name, row.get(name), again[name]
    fresh = {one["plan"]: one for one in again["plans"]}
    for one in row["plans"]:
        now = fresh.get(one["plan"], {})
        for name in FIGURES:
            yield f"{name} of {one['plan']}", one.get(name), now.get(name)


def figures(by_name: Mapping[str, KernelCost]) -> dict[str, float]:
    """What plans are compared by, of all functions: cycles, fewest waves, registers stored and reloaded."""
    every = by_name.values()
    return {
        "cycles": round(sum(cost.cycles for cost in every), 1),
        "waves": min(cost.occupancy for cost in every),
        "spills": round(sum(map(spill_traffic, every)), 1),
    }


def _rows(given: Planned, answers: Sequence[Answer], function: str) -> list[dict[str, Any]]:
    """What came of each answer; facts of the text stand at the first of those that share it."""
    by_candidate = {answer.candidate: answer for answer in answers}
    names = {candidate.name: str(answer) for candidate, answer in by_candidate.items()}
    costs = candidate_costs(given, by_candidate)
    seen: dict[str, str] = {}
    rows: list[dict[str, Any]] = []
    for cost in costs:
        answer = by_candidate[cost.candidate]
        row = _row(answer, cost)
        if cost.same_as:
            row["same_as"] = names[cost.same_as]
        if cost.costs is not None:
            text = given.pre_ra(cost.candidate.plan)
            if text in seen:
                row["text_of"] = seen[text]
            else:
                seen[text], row["text"] = str(answer), _text_facts(given, cost.candidate.plan, function)
        rows.append(row)
    return rows


def _text_facts(given: Planned, plan: Plan, name: str) -> dict[str, float]:
    try:
        return facts_of_text(given, plan, name)
    except VeriloccError:
        return {}


def _row(answer: Answer, cost: CandidateCost) -> dict[str, Any]:
    row: dict[str, Any] = {"plan": str(answer), "cpu": round(cost.cpu_seconds, 2)}
    return {**row, **figures(cost.costs)} if cost.costs else {**row, "reason": cost.reason[:200]}


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def engine_digest() -> str:
    """SHA-256 of the code that decides a label."""
    package = Path(verilocc_mlir.__file__).parent
    return python_digest(*(package / name for name in _DECIDES))
