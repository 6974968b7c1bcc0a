"""The work of ``verilocc train``, ``adapt`` and ``eval``; the command line of ``verilocc_mlir`` calls it by name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from verilocc_mlir.errors import ExitCode, InputError
from verilocc_mlir.files import write_whole
from verilocc_model.adapting import adapt_to_measured as adapt_to_measured
from verilocc_model.allocator import ModelAllocator
from verilocc_model.card import read_card
from verilocc_model.corpus.shards import split_of
from verilocc_model.evaluation import EvalConfig, EvaluationJournal, Row, evaluate, report, written
from verilocc_model.plans import evaluate as plans
from verilocc_model.plans.critic import FORM, Critic
from verilocc_model.plans.policies import Nearest, Policy
from verilocc_model.training import run
from verilocc_model.training.config import load_config
from verilocc_model.training.entries import Asking, collect_mistakes, entries
from verilocc_model.training.run import ADAPTATION, Say, adapt, commit


def train(
    data: Sequence[Path],
    out: Path,
    *,
    config: Path | None,
    settings: dict[str, Any],
    base: Path | None,
    say: Say,
) -> int:
    """Train a base, or an adapter where a ``base`` is named; the exit code is 130 for one that goes on."""
    finished = run.train(data, load_config(config, settings), out, say, base=base)
    say(f"the model is in {out / 'model'}" + ("" if finished else "; the same command goes on from the checkpoint"))
    return ExitCode.PROVED if finished else ExitCode.INTERRUPTED


def collect_command(
    data: Sequence[Path],
    out: Path,
    *,
    model: Path,
    targets: tuple[str, ...],
    limit: int,
    asking: Asking,
    say: Say,
) -> int:
    """Collect refuted answers to the problems that may be trained on."""
    loaded = ModelAllocator(model)
    chosen = [e for e in entries(data) if split_of(e.cell) == "train" and e.trains(targets)]
    if not chosen:
        raise InputError("there is nothing to ask", where=", ".join(map(str, data)))
    collect_mistakes(chosen[:limit] if limit else chosen, out, loaded.scorer, asking, say)
    return ExitCode.PROVED


def adapt_command(
    target: str, base: Path, data: Sequence[Path], out: Path, *, minutes: float, kernels: int, say: Say
) -> int:
    model = adapt(target, base, data, out, say, config=replace(ADAPTATION, minutes=minutes), kernels=kernels)
    say(f"the model is in {model}")
    return ExitCode.PROVED


def train_plans(kind: type[Nearest | Critic], data: Sequence[Path], out: Path, *, everything: bool, say: Say) -> int:
    """Fit what states answers from the facts of a kernel alone, or what ranks plans by their texts; with ``everything``
    to all labelled kernels, also those held out.
    """
    labelled = plans.labels_of(data)
    kernels = labelled if everything else plans.to_learn_from(labelled, data)
    model = kind()
    model.fit(kernels)
    model.save(out)
    say(f"the model of {len(kernels)} kernels is in {out}")
    return ExitCode.PROVED


def evaluate_plans_command(data: Sequence[Path], *, model: Path | None, out: Path | None, say: Say) -> int:
    """Compare what chooses a plan; with a model, also what it states from facts, and its critic."""
    trained: list[Policy] = []
    if model is not None:
        trained.append(Nearest.load(model))
        if (model / FORM).is_file():
            trained.append(Critic.load(model))
        for policy in trained:
            policy.name += f" of {model.name}"
    return plans.evaluate_plans(data, out, say, trained=trained, model=model.name if model else "")


def evaluate_command(
    data: Sequence[Path],
    *,
    model: Path | None,
    config: EvalConfig,
    everything: bool,
    at_most: int,
    limit: int,
    out: Path | None,
    say: Say,
) -> int:
    """Measure on the problems that the base was not trained on.

    Args:
        everything: measure on all problems.
        at_most: leave out problems with more live ranges; 0: none.
        limit: number of problems; 0: all.
    """
    loaded = ModelAllocator(model) if model is not None else None
    candidates = [e for e in entries(data) if everything or e.unseen]
    if at_most:
        candidates = [e for e in candidates if len(e.read().problem.ranges) <= at_most]
    # Their order is random, so the first ones are a random choice.
    chosen = candidates[:limit] if limit else candidates
    if not chosen:
        raise InputError("there is nothing to evaluate on", where=", ".join(map(str, data)))
    context = {
        "model": loaded.version if loaded else "",
        "card": read_card(model) if model is not None else None,
        "commit": commit(),
        "data": [str(d) for d in data],
    }
    partial = None if out is None else out.with_name(f"{out.name}.partial")
    journal = None if partial is None else EvaluationJournal(partial, {**context, "config": asdict(config)})
    rows: list[Row] = []
    for number, entry in enumerate(chosen, 1):
        measured = journal.rows.get(entry.key) if journal is not None else None
        if measured is None:
            measured = list(evaluate([entry.read()], loaded.scorer if loaded else None, config))
            if journal is not None:
                journal.note(entry.key, measured)
        rows += measured
        if number % 20 == 0 or number == len(chosen):
            say(f"{number} of {len(chosen)} problems")
    summed = report(rows, config, context)
    for line in table(summed):
        say(line)
    if out is not None and partial is not None:
        write_whole(out, written(summed).encode())
        # Everything is measured.
        partial.unlink()
    return ExitCode.PROVED


def table(summed: dict[str, Any]) -> list[str]:
    """A Markdown table of the cells."""
    lines = [
        "| target | family | source | policy | mode | problems | pass@1 | ≤ deterministic | < deterministic | ≤ greedy "
        "| < greedy | slowest s |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    shares = (
        "pass@1", "no_worse_than_deterministic", "better_than_deterministic", "no_worse_than_greedy",
        "better_than_greedy",
    )  # fmt: skip
    for cell in summed["cells"]:
        names = [str(cell[k]) for k in ("target", "family", "source", "policy", "mode")]
        fitting = f"{cell['problems'] - cell['do_not_fit']} of {cell['problems']}"
        percentages = ["-" if cell[k] is None else f"{100 * cell[k]:.1f} %" for k in shares]
        lines.append(f"| {' | '.join([*names, fitting, *percentages])} | {cell['slowest_seconds']:.2f} |")
    return lines
