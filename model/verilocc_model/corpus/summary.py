"""The contents of a data set, counted from its journal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from verilocc_model.corpus.split import HELD_OUT_SOURCE, HELD_OUT_TARGET, SPLITS

Rows = Sequence[Mapping[str, Any]]


def summary(journal: Rows) -> dict[str, Any]:
    """Counts as JSON values.

    ``cells`` has a row for each target, source and family. ``teachers`` has, for each phase and teacher, the number of
    its labels, and how many of these are the best known.
    """
    records = [(row, record) for row in journal for record in row["records"] if record["outcome"] == "kept"]
    by_cell = Counter(
        (row["target"], row["source"], row["family"], row["split"], record["phase"]) for row, record in records
    )
    names = sorted({key[:3] for key in by_cell})
    cells = [
        {
            "target": target,
            "source": source,
            "family": family,
            **{f"{s}_{p}": by_cell[target, source, family, s, p] for s in SPLITS for p in ("sgpr", "vgpr")},
        }
        for target, source, family in names
    ]
    seconds = [row["seconds"] for row in journal if not row["failure"]]
    return {
        "kernels": len(journal),
        "kernels_failed": sum(bool(row["failure"]) for row in journal),
        "failures": dict(Counter(_general(row["failure"]) for row in journal if row["failure"]).most_common(12)),
        "problems": len(records),
        "duplicates": sum(record["outcome"] == "duplicate" for row in journal for record in row["records"]),
        "leaks": sum(record["outcome"] == "leak" for row in journal for record in row["records"]),
        "base_training": sum(
            row["split"] == "train" and row["source"] != HELD_OUT_SOURCE and row["target"] != HELD_OUT_TARGET
            for row, _ in records
        ),
        "splits": dict(Counter(row["split"] for row, _ in records)),
        "phases": {
            phase: _phase([record for _, record in records if record["phase"] == phase]) for phase in ("sgpr", "vgpr")
        },
        "over_pressure": {
            target: _share([record for row, record in records if row["target"] == target and record["phase"] == "vgpr"])
            for target in sorted({row["target"] for row, _ in records})
        },
        "seconds_per_kernel": {"median": median(seconds), "mean": round(sum(seconds) / len(seconds), 2)}
        if seconds
        else None,
        "cells": cells,
    }


def _phase(problems: Rows) -> dict[str, Any]:
    teachers = sorted({name.partition("/")[0] for one in problems for name in (*one["ranks"], *one["refused"])})
    ranges = [one["ranges"] for one in problems] or [0]
    return {
        "problems": len(problems),
        "fit": sum(one["fits"] for one in problems),
        "without_label": sum(not one["ranks"] for one in problems),
        "ranges": {"median": median(ranges), "most": max(ranges)},
        "teachers": {name: _teacher(name, problems) for name in teachers},
    }


def _teacher(name: str, problems: Rows) -> dict[str, Any]:
    ranks = [rank for one in problems for label, rank in one["ranks"].items() if label.partition("/")[0] == name]
    reasons = Counter(_general(one["refused"][name]) for one in problems if name in one["refused"])
    fitting = [one for one in problems if one["fits"]]
    labelled = sum(any(label.partition("/")[0] == name for label in one["ranks"]) for one in fitting)
    return {
        "labels": len(ranks),
        "best": sum(rank == 0 for rank in ranks),
        "labels_where_it_fits": f"{labelled} of {len(fitting)}",
        "refused": dict(reasons.most_common(6)),
    }


def _share(problems: Rows) -> str:
    return f"{sum(not one['fits'] for one in problems)} of {len(problems)}"


def _general(reason: str) -> str:
    """A reason without the numbers and names of one kernel, so that equal reasons can be counted."""
    text = reason.partition("\n")[0]
    if ": " in text and "-gfx" in text.partition(": ")[0]:
        text = text.partition(": ")[2]
    return "".join("N" if c.isdigit() else c for c in text)[:90].replace("NN", "N").replace("NN", "N")
