"""What each answer costs on each kernel: modelled cycles of final code with our allocation, nothing proved.

A data set is made as that of ``verilocc corpus make``: the same kernels, the same parts, resumable, on Ray too. Its
manifest names LLVM and a digest of the code that decides a label: cost model, allocators, spilling. Labels of other
code are stale, and such a data set is refused.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import verilocc_mlir
from verilocc_mlir.cost.compare import spill_traffic
from verilocc_mlir.cost.model import KernelCost
from verilocc_mlir.errors import InputError, UnsupportedError, VeriloccError
from verilocc_mlir.pipeline.candidates import LABELLED, Answer, CandidateCost, candidate_costs
from verilocc_mlir.pipeline.plans import DEFAULT, PLANS, Plan, Planned, first_plans, has_promise, planned
from verilocc_mlir.pipeline.settings import Settings
from verilocc_mlir.store import Store
from verilocc_mlir.toolchain.find import find_toolchain
from verilocc_model.corpus.ir import ir
from verilocc_model.corpus.shards import ShardWriter, read_journal, read_lines, read_manifest, split_of
from verilocc_model.corpus.sources import SOURCES, TARGETS, Cell, source
from verilocc_model.corpus.stream import cells
from verilocc_model.corpus.workers import Done, Runner, run
from verilocc_model.plans.facts import dearest_of, facts, facts_of_text

_DECIDES = (
    "allocators",
    "analysis",
    "banks",
    "cost",
    "mir",
    "problem",
    "rewrite",
    "spilling",
    "splitting",
    "target",
    "toolchain",
)
Progress = Callable[[Mapping[str, Any], int], None]
_OF_FAST = ("default", "beside", "max-ilp")
_ALSO = (
    "pipeline/attempt.py",
    "pipeline/candidates.py",
    "pipeline/plans.py",
    "pipeline/effort.py",
    "pipeline/guard.py",
)


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
class PlanRecipe:
    """All settings that decide a data set's contents.

    Attributes:
        kernels: number of kernels of the stream; of ``listed``, where that is given.
        families: None for all.
        plans: answers as text (``pipeline.candidates``).
        listed: these kernels instead of the stream's.
    """

    kernels: int
    seed: int = 0
    targets: tuple[str, ...] = TARGETS
    sources: tuple[str, ...] = SOURCES
    families: tuple[str, ...] | None = None
    plans: tuple[str, ...] = tuple(map(str, LABELLED))
    limits: PlanLimits = field(default_factory=PlanLimits)
    listed: tuple[Cell, ...] = ()

    def parameters(self) -> dict[str, Any]:
        """JSON values; ``kernels`` is left out: a data set may be made longer."""
        data = {name: value for name, value in asdict(self).items() if name not in ("kernels", "listed")}
        return {
            **data,
            "listed": _digest("".join(cell.name for cell in self.listed)) if self.listed else "",
        }

    def cells(self) -> list[Cell]:
        """The kernels in order."""
        stream = self.listed or cells(self.seed, targets=self.targets, sources=self.sources, families=self.families)
        return list(islice(stream, self.kernels))


def make_labels(
    recipe: PlanRecipe,
    directory: Path,
    *,
    jobs: int = 1,
    runner: Runner = run,
    store: Store | None = None,
    progress: Progress = lambda _row, _left: None,
) -> list[dict[str, Any]]:
    """Make or continue a data set; returns the journal. What is done when it is interrupted is kept.

    Args:
        jobs: kernels at once, as ``runner`` takes it.
        store: keeps the kernels' IR.
        progress: called with each kernel's row of the journal and the number of kernels left.

    Raises:
        InputError: another data set is there, or one of other code. ToolchainError: a front end or LLVM is missing.
    """
    made_with = {name: source(name).version() for name in recipe.sources}
    versions = {**made_with, "llvm": find_toolchain().version_text, "engine": engine_digest()}
    writer = ShardWriter(directory, recipe.parameters(), versions)
    done_cells = {row["cell"] for row in writer.journal}
    todo = [cell for cell in recipe.cells() if cell.name not in done_cells]
    results = runner(partial(labelled, recipe=recipe, store=store), todo, jobs=jobs, seconds=recipe.limits.seconds)
    with closing(results):
        writer.add_all(map(_entry, results), len(todo), progress, kernels_a_shard=16)
    return writer.journal


def labelled(cell: Cell, recipe: PlanRecipe, store: Store | None = None) -> str:
    """A kernel's line of the data set: facts, LLVM's default compile, and what came of each answer.

    Raises:
        VeriloccError: the kernel cannot be made, is too large, or LLVM does not compile it.
    """
    text = ir(cell, store)
    settings = Settings(cpu=cell.target, tool_seconds=recipe.limits.seconds)
    given = planned(text.encode(), cell.name, settings)
    dearest, by_name = dearest_of(given.work.compiler.direct(given.ir, "asm"), given.work.target, cell.name)
    of_dearest = by_name[dearest.name]
    if of_dearest.instructions.static > recipe.limits.instructions:
        raise UnsupportedError(f"{of_dearest.instructions.static} instructions are more than are wanted")
    known, llvm = facts(dearest, of_dearest, given.work.target), figures(by_name)
    # No policy is asked about a kernel that promises nothing, so it has labels of what ``fast`` tries alone.
    worth_it = has_promise(by_name)
    answers = [Answer.parse(name) for name in recipe.plans if worth_it or name in _OF_FAST]
    spilled = any(cost.spill_stores.static for cost in by_name.values())
    if recipe.limits.spilled and not spilled:
        raise UnsupportedError("LLVM spills nothing of it")
    return json.dumps(
        {
            "cell": cell.to_data(),
            "sha256": _digest(text),
            "facts": known,
            "llvm": llvm,
            "promises": worth_it,
            "first": next(p.name for p in first_plans(given) if p in PLANS) if spilled else DEFAULT.name,
            "plans": _rows(given, answers, dearest.name),
        },
        sort_keys=True,
    )


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
        again = json.loads(labelled(cell, PlanRecipe(1, plans=names, limits=limits), store))
        yield [Difference(cell.name, what, was, now) for what, was, now in _compared(row, again) if was != now]


def _compared(row: Mapping[str, Any], again: Mapping[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    """What does not depend on the machine's speed, of two labels of one kernel."""
    for name in ("sha256", "facts", "llvm", "promises", "first"):
        yield name, row.get(name), again[name]
    fresh = {one["plan"]: one for one in again["plans"]}
    for one in row["plans"]:
        now = fresh.get(one["plan"], {})
        for name in ("cycles", "waves", "spills"):
            yield f"{name} of {one['plan']}", one.get(name), now.get(name)


def state_facts_anew(
    directory: Path,
    out: Path,
    *,
    jobs: int = 1,
    store: Store | None = None,
    progress: Progress = lambda _row, _left: None,
) -> int:
    """Write a data set once more with the facts that this version states; labels stay. What is done when it is
    interrupted is kept. Returns the number of kernels.

    Raises:
        InputError: no data set of plans is there, or another one at ``out``.
    """
    manifest, rows = read_manifest(directory), list(read_journal(directory))
    writer = ShardWriter(out, manifest["parameters"], manifest["made_with"])
    lines = {Cell.from_data(data["cell"]).name: data for data in map(json.loads, read_lines(directory))}
    done = {row["cell"] for row in writer.journal}
    left = [row for row in rows if row["cell"] not in done]
    lines_left = [lines[row["cell"]] for row in left if row["cell"] in lines]
    results = run(partial(_with_facts, store=store), lines_left, jobs=jobs, seconds=600.0)
    with closing(results):
        entries = ((row, _line_of(next(results)) if row["cell"] in lines else []) for row in left)
        writer.add_all(entries, len(left), progress, kernels_a_shard=16)
    return len(writer.journal)


def _line_of(done: Done[Any]) -> list[str]:
    """
    Raises:
        InputError: the kernel cannot be made, or LLVM does not compile it.
    """
    if done.result is None:
        raise InputError(f"no facts of a kernel: {done.failure}")
    return [done.result]


def _with_facts(data: Mapping[str, Any], store: Store | None) -> str:
    """A kernel's line, with its labels as they are."""
    cell = Cell.from_data(data["cell"])
    given = planned(ir(cell, store).encode(), cell.name, Settings(cpu=cell.target))
    dearest, by_name = dearest_of(given.work.compiler.direct(given.ir, "asm"), given.work.target, cell.name)
    rows = [
        {**row, "text": _text_facts(given, Answer.parse(row["plan"]).plan, dearest.name)} if "text" in row else row
        for row in data["plans"]
    ]
    known = facts(dearest, by_name[dearest.name], given.work.target)
    return json.dumps({**data, "facts": known, "plans": rows}, sort_keys=True)


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


def _entry(done: Done[Cell]) -> tuple[dict[str, Any], list[str]]:
    """The journal's row of a kernel, and its line of the data set."""
    cell = done.task
    row = {
        "cell": cell.name,
        "source": cell.source,
        "family": cell.family,
        "target": cell.target,
        "split": split_of(cell),
        "failure": done.failure,
        "seconds": round(done.seconds, 2),
        "records": [] if done.result is None else [{"outcome": "kept"}],
    }
    return row, [] if done.result is None else [done.result]


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def engine_digest() -> str:
    """SHA-256 of the code that decides a label."""
    package = Path(verilocc_mlir.__file__).parent
    digest = hashlib.sha256()
    for path in _sources(package):
        digest.update(path.relative_to(package).as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def _sources(package: Path) -> Sequence[Path]:
    below = (path for name in _DECIDES for path in (package / name).rglob("*.py"))
    return sorted([*below, *(package / name for name in _ALSO)])
