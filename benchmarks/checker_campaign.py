"""The campaign by table against the checkers of certificates: every kind of mutant, before each checker alone.

    .venv/bin/python benchmarks/checker_campaign.py --count 500000 --seed 1 --jobs 1 \
        --scratch out/checker_campaign --out benchmarks/results/checker_campaign.json

Parts: ``operands`` (each shape of operands in LLVM's tables, and each replacement of each operand), ``moves`` (each
form of move in each context), ``header`` (each field, row and attribute), ``certificate`` (each line of a certificate).
A mutant is offered with the certificate that the search makes for it, and with that of the right text. It must be
refused, unless an argument coded beside its kind says that it is right too (tests/campaign).

The second checker is asked where there is one: ``VERILOCC_SECOND_BATCH`` names its batch program (``cargo build
--release --example batch`` in smt_verifier/second), else ``verilocc-check`` is started for each question.

Turn 0 fills every cell of the tables; further turns go on with other instructions and operands, until ``--count``
mutants are judged. Rows are kept in the scratch directory: the same command goes on from there. Exit codes: 0 no fault,
1 a fault, 130 interrupted.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import asdict
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from common import Log, command, machine, tree, write

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(REPOSITORY), str(REPOSITORY / "tests")]

from campaign.judge import BATCH, Judge, batch_program  # noqa: E402
from campaign.units import PARTS, run  # noqa: E402

Task = tuple[str, str, int]
_DIGITS = "0123456789"
_TURNS = 1000
_judges: list[Judge] = []


def main() -> int:
    """Run, or go on with, a campaign."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=10_000, help="mutants to judge at least (default: %(default)s)")
    parser.add_argument("--per-row", type=int, default=100, help="mutants of a row in turns after the first")
    parser.add_argument("--parts", default=",".join(PARTS), help="which, with commas (default: all)")
    parser.add_argument("--rows", type=int, default=0, help="no more rows of each part than so many")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=1, help="processes (default: %(default)s)")
    parser.add_argument("--scratch", type=Path, default=Path("out/checker_campaign"))
    parser.add_argument("--out", type=Path, help="the result, as JSON")
    parser.add_argument("--quiet", action="store_true", help="no progress")
    options = parser.parse_args()
    batch = batch_program(REPOSITORY)
    if BATCH not in os.environ and batch is not None:
        os.environ[BATCH] = str(batch)
    log = Log(options.scratch / "rows.jsonl")
    rows = list(log.rows())
    done = {(row["part"], row["name"], row["turn"]) for row in rows}
    judged = sum(_mutants(row) for row in rows)
    interrupted, checked = False, tree()
    with get_context("fork").Pool(options.jobs, _start) as pool:
        waiting = (task for task in _tasks(options) if task not in done)
        try:
            while judged < options.count and (
                some := [t for _, t in zip(range(8 * options.jobs), waiting, strict=False)]
            ):
                arguments = [(task, options.per_row, options.seed) for task in some]
                for made in pool.imap_unordered(_work, arguments):
                    row = {**made, "tree": checked}
                    log.add(row)
                    rows.append(row)
                    judged += _mutants(row)
                    if not options.quiet:
                        faults = sum(len(r["faults"]) for r in rows)
                        print(f"\r{len(rows)} rows, {judged} mutants, {faults} faults ", end="", file=sys.stderr)
        except KeyboardInterrupt:
            interrupted = True
    if not options.quiet:
        print(file=sys.stderr)
    result = summary(rows)
    shown = {key: value for key, value in result.items() if key not in ("tables", "columns")}
    print(json.dumps({k: v for k, v in shown.items() if k != "skipped"}, indent=1))
    if options.out:
        head = {"command": command(), "tree": tree(), "machine": machine(), "seed": options.seed}
        write(options.out, {**head, **result})
    return 130 if interrupted else int(bool(result["faults"]))


def _tasks(options: argparse.Namespace) -> Iterator[Task]:
    """Turn 0 of all rows first, then the others."""
    for turn in range(_TURNS):
        tasks: list[Task] = []
        for part in options.parts.split(","):
            names = PARTS[part][0]()
            tasks += [(part, name, turn) for name in names[: options.rows or len(names)]]
        random.Random(options.seed + turn).shuffle(tasks)
        yield from tasks


def _start() -> None:
    os.nice(15)
    _judges.append(Judge())


def _work(argument: tuple[Task, int, int]) -> dict[str, Any]:
    task, most, seed = argument
    return asdict(run(*task, _judges[0], most=most, seed=seed))


def _mutants(row: dict[str, Any]) -> int:
    return sum(cell[0] for cell in row["cells"].values())


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Sums, faults, disagreements, and the coverage tables: one digit for each cell, ``9`` for nine and more mutants,
    ``-`` where the row has nothing of that column (no such operand).
    """
    columns: defaultdict[str, Counter[str]] = defaultdict(Counter)
    cells: defaultdict[str, defaultdict[str, Counter[str]]] = defaultdict(lambda: defaultdict(Counter))
    sums: defaultdict[str, Counter[str]] = defaultdict(Counter)
    skipped: defaultdict[str, Counter[str]] = defaultdict(Counter)
    subjects: dict[tuple[str, str], str] = {}
    trees: Counter[str] = Counter()
    faults: list[dict[str, Any]] = []
    disagreements: defaultdict[str, dict[str, Any]] = defaultdict(dict)
    for row in rows:
        part, name = row["part"], row["name"]
        trees[row.get("tree", "")] += _mutants(row)
        if row["skipped"]:
            skipped[part][row["skipped"]] += row["turn"] == 0
            continue
        subjects.setdefault((part, name), row["subject"])
        sums[part]["rows"] += row["turn"] == 0
        for column, (made, refused, equivalent) in row["cells"].items():
            columns[part][column] += made
            cells[part][name][column] += made
            sums[part]["mutants"] += made
            sums[part]["refused by each checker"] += refused
            sums[part]["equivalent and accepted"] += equivalent
        sums[part]["faults"] += len(row["faults"])
        sums[part]["disagreements"] += len(row["disagreements"])
        faults += [{"row": row["subject"], "part": part, **_without_texts(fault)} for fault in row["faults"]]
        for one in row["disagreements"]:
            key = json.dumps([part, one["column"], one["answers"]], sort_keys=True)
            seen = disagreements[key] or {"part": part, "first": row["subject"], **one, "count": 0}
            disagreements[key] = {**seen, "count": seen["count"] + 1}
    tables: dict[str, dict[str, str]] = {}
    for part, names in cells.items():
        order = sorted(columns[part])
        tables[part] = {
            subjects[part, name]: "".join(_DIGITS[min(9, row[c])] if c in row else "-" for c in order)
            for name, row in names.items()
        }
    return {
        "mutants": sum(s["mutants"] for s in sums.values()),
        "by tree": dict(trees),
        "by part": {part: dict(s) for part, s in sums.items()},
        "empty cells": sum(row.count("0") for table in tables.values() for row in table.values()),
        "faults": faults[:200],
        "disagreements": sorted(disagreements.values(), key=lambda d: -d["count"])[:100],
        "skipped": {part: dict(s.most_common()) for part, s in skipped.items()},
        "columns": {part: dict(sorted(c.items())) for part, c in columns.items()},
        "tables": tables,
    }


def _without_texts(fault: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in fault.items() if key not in ("before", "after", "certificate")}


if __name__ == "__main__":
    sys.exit(main())
