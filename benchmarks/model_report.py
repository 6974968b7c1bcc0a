"""Tables and a plot of the model's evaluations, for ``docs/guide/model.md``.

    .venv/bin/python benchmarks/model_report.py [--results benchmarks/results] [--out docs]

Reads ``model_shared_kernels.json`` and ``model_corpus.json`` (``verilocc eval --out``), prints the tables as Markdown
and writes ``model-prices.png``. Prices are modelled (``verilocc_model/encoding/table.py``), not measured.
"""

from __future__ import annotations

import argparse
import importlib
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

Row = dict[str, Any]
SHARED, CORPUS = "model_shared_kernels.json", "model_corpus.json"
_RESULTS = Path(__file__).parent / "results"
_POLICIES = {
    "model": "model",
    "meets": "draft with places that meet more",
    "draft": "draft",
    "improved": "deterministic and local moves",
    "first-fit": "first fit",
    "random": "random",
}
_COLOURS = {"cheaper": "#228833", "equal": "#bbbbbb", "dearer": "#ee6677"}
"""Tol's bright scheme, which colour-blind readers can tell apart."""


class Problems:
    """First answers, one decode each, to the problems that fit the file.

    Args:
        path: an evaluation.
    """

    def __init__(self, path: Path) -> None:
        found = json.loads(path.read_text())
        rows: list[Row] = [dict(zip(found["columns"], row, strict=True)) for row in found["rows"]]
        first = [r for r in rows if r["sample"] < 0 and r["attempt"] == "first"]
        too_much = {_key(r) for r in first if r["reason"] == "pressure"}
        self.asked = len({_key(r) for r in first})
        self.rows = [r for r in first if _key(r) not in too_much]
        self._prices = {(*_key(r), r["policy"]): r["price"] for r in self.rows if r["mode"] == "masked"}

    def of(self, policy: str, mode: str = "masked", **only: str) -> list[Row]:
        """Rows of a policy, with these values."""
        return [
            r
            for r in self.rows
            if (r["policy"], r["mode"]) == (policy, mode) and all(r[k] == v for k, v in only.items())
        ]

    def against(self, rows: Sequence[Row], other: str) -> tuple[int, int, int]:
        """In how many rows the price is below, equal to and above that of another policy, masked, or of one of the
        allocators beside (``deterministic``, ``greedy``), where both have one."""
        counts = [0, 0, 0]
        for row in rows:
            theirs = row[other] if other in row else self._prices.get((*_key(row), other))
            if row["price"] is not None and theirs is not None:
                counts[0 if row["price"] < theirs else 1 if row["price"] == theirs else 2] += 1
        return counts[0], counts[1], counts[2]


def _key(row: Row) -> tuple[str, str, str]:
    return row["name"], row["target"], row["phase"]


def share(rows: Sequence[Row], holds: Callable[[Row], bool]) -> str:
    """``13 of 14``."""
    return f"{sum(map(holds, rows))} of {len(rows)}"


def proved(row: Row) -> bool:
    """Whether the answer was."""
    return row["outcome"] == "proved"


def markdown(head: Sequence[str], lines: Sequence[Sequence[object]]) -> str:
    """A table."""
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in (head, ["---"] * len(head), *lines)) + "\n"


def by_cell(problems: Problems) -> str:
    """One line for each target and family, and one for all."""
    head = (
        "target", "family", "masked", "unmasked", "no dearer than deterministic", "cheaper",
        "the same, unmasked: no dearer", "cheaper than first fit", "than random", "slowest with its proof",
    )  # fmt: skip
    lines: list[list[object]] = []
    cells: list[dict[str, str]] = [
        {"target": target, "family": family}
        for target, family in dict.fromkeys((r["target"], r["family"]) for r in problems.rows)
    ]
    for cell in [*sorted(cells, key=lambda c: (len(c["target"]), c["target"], c["family"])), {}]:
        masked, unmasked = problems.of("model", **cell), problems.of("model", "unmasked", **cell)
        below, equal, _ = problems.against(masked, "deterministic")
        alone = problems.against(unmasked, "deterministic")
        lines.append([
            cell.get("target", "all"), cell.get("family", ""), share(masked, proved), share(unmasked, proved),
            f"{below + equal} of {len(masked)}", below, f"{sum(alone[:2])} of {len(unmasked)}",
            problems.against(masked, "first-fit")[0], problems.against(masked, "random")[0],
            f"{max(r['wall_seconds'] for r in masked):.1f} s",
        ])  # fmt: skip
    return markdown(head, lines)


def by_source(problems: Problems) -> str:
    """One line for each source and policy, and for all sources."""
    head = (
        "source", "policy", "proved, masked", "unmasked", "cheaper than deterministic", "dearer",
        "cheaper than LLVM greedy", "dearer",
    )  # fmt: skip
    lines: list[list[object]] = []
    sources: list[dict[str, str]] = [{"source": s} for s in sorted({r["source"] for r in problems.rows})]
    for source in [*sources, {}]:
        for policy, name in _POLICIES.items():
            masked, unmasked = problems.of(policy, **source), problems.of(policy, "unmasked", **source)
            ours, llvm = problems.against(masked, "deterministic"), problems.against(masked, "greedy")
            lines.append([
                source.get("source", "all"), name, share(masked, proved), share(unmasked, proved) if unmasked else "",
                ours[0], ours[2], llvm[0], llvm[2],
            ])  # fmt: skip
    return markdown(head, lines)


def against_others(sets: dict[str, Problems]) -> str:
    """The model against every other policy, masked."""
    lines: list[list[object]] = []
    for name, problems in sets.items():
        rows = problems.of("model")
        for other in ("deterministic", "greedy", *list(_POLICIES)[1:]):
            counts = problems.against(rows, other)
            if sum(counts):
                lines.append([name, _POLICIES.get(other, other), *counts])
    return markdown(("problems", "the model against", "cheaper", "equal", "dearer"), lines)


def plot(plots: Any, sets: dict[str, Problems], path: Path) -> None:
    """Prices against the deterministic allocator's, a bar for each policy."""
    figure, axes = plots.subplots(1, len(sets), figsize=(11, 3.2), sharey=True)
    for axis, (name, problems) in zip(axes, sets.items(), strict=True):
        for at, policy in enumerate(reversed(_POLICIES)):
            counts = problems.against(problems.of(policy), "deterministic")
            left = 0.0
            for (word, colour), count in zip(_COLOURS.items(), counts, strict=True):
                width = 100 * count / max(sum(counts), 1)
                axis.barh(at, width, left=left, color=colour, label=word if not at else None)
                if width > 4:
                    axis.text(left + width / 2, at, str(count), ha="center", va="center", fontsize=8)
                left += width
        axis.set_yticks(range(len(_POLICIES)), list(reversed(_POLICIES.values())))
        axis.set(
            title=f"{name}: {len(problems.of('model'))} problems",
            xlabel="% of problems, by modelled price",
            xlim=(0, 100),
        )
    figure.legend(*axes[0].get_legend_handles_labels(), loc="lower center", ncols=3, frameon=False)
    figure.suptitle("Price against the deterministic allocator's")
    figure.tight_layout(rect=(0, 0.07, 1, 1))
    figure.savefig(path, dpi=110)


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=_RESULTS)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent.parent / "docs" / "results")
    arguments = parser.parse_args()
    shared, corpus = (Problems(arguments.results / name) for name in (SHARED, CORPUS))
    sets = {"shared kernels": shared, "corpus": corpus}
    print(f"{len(shared.of('model'))} of {shared.asked} shared problems fit.\n\n{by_cell(shared)}")
    print(f"{len(corpus.of('model'))} of {corpus.asked} corpus problems fit.\n\n{by_source(corpus)}")
    print(against_others(sets))
    importlib.import_module("matplotlib").use("Agg")
    plot(importlib.import_module("matplotlib.pyplot"), sets, arguments.out / "model-prices.png")


if __name__ == "__main__":
    main()
