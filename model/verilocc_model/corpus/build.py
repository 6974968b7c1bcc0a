"""Making a data set: kernels of the stream, and what is said of each. Repeated problems are left out.

Kernels are made in parallel and taken in the stream's order. So the same parameters and versions give the same data
set, whatever the number of processes, and however often the run was interrupted. There are two exceptions: a kernel
that takes longer than ``KernelLimits.seconds``, and on a cluster a kernel whose node dies twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from verilocc_mlir.store import Store
from verilocc_mlir.toolchain.drivers.job import CompileOptions
from verilocc_mlir.toolchain.find import find_toolchain
from verilocc_mlir.toolchain.staged import StagedCompiler
from verilocc_model.corpus.ir import ir
from verilocc_model.corpus.labels import DEFAULT_TEACHERS, problem_demands, stated_problems, teach, teacher
from verilocc_model.corpus.shards import Record, ShardWriter, split_of
from verilocc_model.corpus.sources import SOURCES, TARGETS, Cell, source
from verilocc_model.corpus.stream import cells
from verilocc_model.corpus.workers import Done, Runner, run


@dataclass(frozen=True)
class KernelLimits:
    """Limits of one kernel: instructions before allocation, elapsed seconds, seconds for one question to the solver."""

    instructions: int = 4000
    seconds: float = 180.0
    solver_seconds: float = 30.0


@dataclass(frozen=True)
class Stream:
    """All settings that decide a data set's contents. A kind of data sets adds its own, and says what a line is.

    Attributes:
        kernels: number of kernels of the stream.
        families: None for all.
        limits: of one kernel, elapsed ``seconds`` among them.
    """

    kernels: int
    seed: int = 0
    targets: tuple[str, ...] = TARGETS
    sources: tuple[str, ...] = SOURCES
    families: tuple[str, ...] | None = None
    limits: Any = None

    def parameters(self) -> dict[str, Any]:
        """JSON values; ``kernels`` is left out: a data set may be made longer."""
        return {name: value for name, value in asdict(self).items() if name != "kernels"}

    def versions(self) -> dict[str, str]:
        """Versions of what the contents are made with.

        Raises:
            ToolchainError: a front end or LLVM is missing.
        """
        return {name: source(name).version() for name in self.sources} | {"llvm": find_toolchain().version_text}

    def cells(self) -> Iterable[Cell]:
        """The kernels in order."""
        stream = cells(self.seed, targets=self.targets, sources=self.sources, families=self.families)
        return islice(stream, self.kernels)

    def for_one(self) -> Stream:
        """What decides the lines of a kernel: processes get it when they start."""
        return self

    def lines(self, cell: Cell, store: Store | None = None) -> list[tuple[str, dict[str, Any]]]:
        """A kernel's lines of the data set, each with its facts for the journal.

        Raises:
            VeriloccError: the kernel cannot be made or stated.
        """
        raise NotImplementedError


@dataclass(frozen=True)
class Recipe(Stream):
    """Problems with labels; ``teachers`` are names that ``labels.teacher`` takes."""

    limits: KernelLimits = field(default_factory=KernelLimits)
    teachers: tuple[str, ...] = DEFAULT_TEACHERS

    def versions(self) -> dict[str, str]:
        """See ``Stream``.

        Raises:
            InputError: a teacher does not exist.
        """
        for name in self.teachers:
            teacher(name, StagedCompiler(find_toolchain(), CompileOptions("")))
        return super().versions()

    def lines(self, cell: Cell, store: Store | None = None) -> list[tuple[str, dict[str, Any]]]:
        """Each problem of a kernel."""
        limits = self.limits
        options = CompileOptions(cell.target, verify=False, tool_seconds=limits.seconds, input_name=cell.name)
        compiler = StagedCompiler(find_toolchain(), options)
        teachers = [(name, teacher(name, compiler)) for name in self.teachers]
        records: list[tuple[str, dict[str, Any]]] = []
        for stated in stated_problems(
            ir(cell, store), compiler, most_instructions=limits.instructions, solver_seconds=limits.solver_seconds
        ):
            labels, refused = teach(stated, teachers, timeout_s=limits.solver_seconds)
            demand = problem_demands(stated.problem)
            record = Record(cell, stated.problem, stated.function.instruction_count, demand, labels, refused)
            records.append((record.to_json(), record.facts()))
        return records


def make(
    recipe: Stream,
    directory: Path,
    *,
    jobs: int = 1,
    runner: Runner = run,
    store: Store | None = None,
    progress: Callable[[Mapping[str, Any], int], None] = lambda _row, _left: None,
) -> list[dict[str, Any]]:
    """Make or continue a data set; returns the journal. What is done when it is interrupted is kept.

    Args:
        jobs: kernels made at once, as ``runner`` takes it.
        runner: where kernels are made: in processes of this machine, or with ``on_ray.RayRunner``.
        store: keeps the kernels' IR.
        progress: called with each kernel's row of the journal and the number of kernels left.

    Raises:
        InputError: another data set is there, or one made with other versions.
        ToolchainError: a front end or LLVM is missing.
    """
    writer = ShardWriter(directory, recipe.parameters(), recipe.versions())
    done_cells = {row["cell"] for row in writer.journal}
    todo = [cell for cell in recipe.cells() if cell.name not in done_cells]
    earlier_problems = _EarlierProblems(writer.journal)
    results = runner(partial(recipe.for_one().lines, store=store), todo, jobs=jobs, seconds=recipe.limits.seconds)
    with closing(results):
        entries = (_journal_row(outcome, earlier_problems) for outcome in results)
        writer.add_all(entries, len(todo), progress)
    return writer.journal


class _EarlierProblems:
    """Structures of problems that are in the data set already."""

    def __init__(self, journal: Sequence[Mapping[str, Any]]) -> None:
        self._split: dict[str, str] = {}
        self._targets: set[tuple[str, str]] = set()
        for row in journal:
            for one in row["records"]:
                if one["outcome"] == "kept" and "structure" in one:
                    self._split[one["structure"]] = row["split"]
                    self._targets.add((one["structure"], row["target"]))

    def outcome(self, structure: str, cell: Cell) -> str:
        """``kept``; ``duplicate`` of a problem for the same target; ``leak`` where the same is in another part."""
        split = split_of(cell)
        if self._split.setdefault(structure, split) != split:
            return "leak"
        if (structure, cell.target) in self._targets:
            return "duplicate"
        self._targets.add((structure, cell.target))
        return "kept"


def _journal_row(done: Done[Cell], earlier_problems: _EarlierProblems) -> tuple[dict[str, Any], list[str]]:
    """The journal's row of a kernel, and the lines that are kept."""
    cell = done.task
    lines: list[str] = []
    records: list[dict[str, Any]] = []
    for line, facts in done.result or ():
        outcome = earlier_problems.outcome(facts["structure"], cell) if "structure" in facts else "kept"
        records.append({**facts, "outcome": outcome})
        if outcome == "kept":
            lines.append(line)
    return journal_row(cell, records, done.failure, done.seconds), lines


def journal_row(
    cell: Cell, records: Sequence[Mapping[str, Any]], failure: str = "", seconds: float = 0.0
) -> dict[str, Any]:
    """A row of the journal: a kernel, and the facts of its lines."""
    return {
        "cell": cell.name,
        "source": cell.source,
        "family": cell.family,
        "target": cell.target,
        "split": split_of(cell),
        "failure": failure,
        "seconds": round(seconds, 2),
        "records": records,
    }
