"""Tables and plots of ``allocators.py``'s results, for ``docs/results/allocators.md``.

    .venv/bin/python benchmarks/allocators_report.py [--results benchmarks/results/allocators.json] [--out docs]

Prints the tables as Markdown and writes ``benchmark-cycles.png`` and ``benchmark-spills.png``. Cycles are modelled, and
the plots say so.
"""

from __future__ import annotations

import argparse
import importlib
import json
import math
import statistics
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

from allocators import RESULT, best_of_llvm

Row = dict[str, Any]
_SHOWN = "balanced"
"""The effort whose spills and waves are in the table, and which is plotted: the dearest one run on every kernel."""
_COLOURS = {"gfx90a": "#4477aa", "gfx942": "#66ccee", "gfx950": "#228833", "gfx1100": "#ccbb44", "gfx1201": "#ee6677"}
"""Tol's bright scheme, which colour-blind readers can tell apart."""


def ratios(rows: Iterable[Row], effort: str) -> list[float]:
    """Modelled cycles of ours over LLVM's better setting, kernel by kernel."""
    return [r[effort]["cycles"] / best_of_llvm(r)["cycles"] for r in rows if effort in r]


def mean(values: Sequence[float]) -> str:
    """Geometric mean, for a table."""
    return f"{math.exp(statistics.fmean(map(math.log, values))):.3f}" if values else "–"


def table(rows: Sequence[Row], efforts: Sequence[str]) -> str:
    """One line for each target, and one for all."""
    head = [
        "target",
        "kernels",
        *(f"cycles, {e}" for e in efforts),
        "LLVM spills in",
        "ours spills less",
        "nothing",
        "more",
    ]
    head += ["more waves", "fewer"]
    lines = [head, ["---"] * len(head)]
    groups = {t: [r for r in rows if r["target"] == t] for t in dict.fromkeys(r["target"] for r in rows)}
    for name, group in {**groups, "all": list(rows)}.items():
        pairs = [(best_of_llvm(r), r[_SHOWN]) for r in group]
        spilling = [(a, b) for a, b in pairs if a["spill_traffic"] > 0]
        counts = (
            len(spilling),
            sum(b["spill_traffic"] < a["spill_traffic"] for a, b in spilling),
            sum(b["spill_traffic"] == 0 for _, b in spilling),
            sum(b["spill_traffic"] > a["spill_traffic"] for a, b in pairs),
            sum(b["waves"] > a["waves"] for a, b in pairs),
            sum(b["waves"] < a["waves"] for a, b in pairs),
        )
        lines.append([name, str(len(group)), *(mean(ratios(group, e)) for e in efforts), *map(str, counts)])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def overview(summary: dict[str, Row], rows: Sequence[Row]) -> str:
    """One column for each effort: ratios of modelled cycles, then counts of kernels, then CPU seconds."""

    def times(effort: str) -> str:
        found = [r[effort]["cpu_seconds"] / r[effort]["llc_cpu_seconds"] for r in rows if effort in r]
        of = summary[effort]
        return f"{statistics.median(found):.0f}; {of['cpu_seconds'] / of['llc_cpu_seconds']:.0f}"

    cells: dict[str, Callable[[Row], object]] = {
        "modelled cycles where LLVM spills or copies between files": lambda s: (
            f"{s['cycles_ratio_where_llvm_spills_or_copies_between_files']:.3f} ({s['kernels_there']})"
        ),
        "… of the others": lambda s: f"{s['cycles_ratio_elsewhere']:.3f}",
        "… of all": lambda s: f"{s['cycles_ratio']:.3f}",
        "kernels": lambda s: s["kernels"],
        "every allocation proved, spill code included": lambda s: s["proved"],
        "fewer waves than LLVM": lambda s: len(s["fewer_waves"]),
        "more waves": lambda s: s["more_waves"],
        "stores and reloads more registers than LLVM, by estimated executions": lambda s: len(s["spill_more"]),
        "LLVM spills": lambda s: s["llvm_spills"],
        "… ours stores and reloads fewer": lambda s: s["spill_less"],
        "… ours spills nothing": lambda s: s["spill_nothing"],
        "spills although the registers suffice": lambda s: len(s["spills_though_it_fits"]),
        "modelled cycles lower than LLVM's by more than 0.1 %": lambda s: s["cheaper"],
        "modelled cycles higher than LLVM's by more than 0.1 %": lambda s: s["dearer"],
        "copies between the files: LLVM, ours": lambda s: (
            f"{s['accumulator_copies_llvm']}, {len(s['accumulator_copies_ours'])}"
        ),
        "CPU seconds (llc alone)": lambda s: f"{s['cpu_seconds']:.0f} ({s['llc_cpu_seconds']:.1f})",
    }
    lines = [["of the kernels", *(f"`{e}`" for e in summary)], ["---"] * (len(summary) + 1)]
    lines += [[name, *(str(cell(of)) for of in summary.values())] for name, cell in cells.items()]
    lines.append(["time over llc's: median kernel; all", *map(times, summary)])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def plot_cycles(plots: Any, rows: Sequence[Row], effort: str, path: Path) -> None:
    """Every kernel's ratio, sorted, by target; filled where LLVM spills or copies between files."""
    figure, axes = plots.subplots(figsize=(9, 4.5), constrained_layout=True)
    for target, colour in _COLOURS.items():
        group = sorted((r for r in rows if r["target"] == target), key=lambda r: ratios([r], effort)[0])
        found = ratios(group, effort)
        troubled = [best_of_llvm(r)["spill_traffic"] > 0 or best_of_llvm(r)["accumulator_copies"] > 0 for r in group]
        axes.plot(found, color=colour, linewidth=1, label=target)
        axes.scatter(
            range(len(found)), found, s=16, edgecolors=colour, facecolors=[colour if t else "white" for t in troubled]
        )
    axes.axhline(1.0, color="black", linewidth=0.8)
    axes.set_yscale("log")
    axes.set_yticks([0.2, 0.3, 0.5, 0.7, 1.0], labels=["0.2", "0.3", "0.5", "0.7", "1.0"])
    axes.minorticks_off()
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.set_xlabel("kernels of a target, from the greatest gain to the least")
    axes.set_ylabel(f"modelled cycles, ours (-O={effort}) / LLVM's better setting")
    axes.set_title("Modelled, not measured. Filled: LLVM spills, or copies between VGPRs and AGPRs", fontsize=10)
    axes.legend(frameon=False)
    figure.savefig(path, dpi=110)


def plot_spills(plots: Any, rows: Sequence[Row], effort: str, path: Path) -> None:
    """Registers stored and reloaded, by estimated executions, ours against LLVM's, where LLVM spills."""
    figure, axes = plots.subplots(figsize=(5.5, 5), constrained_layout=True)
    top = 1.0
    for target, colour in _COLOURS.items():
        group = [r for r in rows if r["target"] == target and best_of_llvm(r)["spill_traffic"] > 0]
        theirs, ours = [best_of_llvm(r)["spill_traffic"] for r in group], [r[effort]["spill_traffic"] for r in group]
        axes.scatter(theirs, ours, s=18, color=colour, label=target)
        top = max([top, *theirs, *ours])
    axes.plot([0, top], [0, top], color="black", linewidth=0.8)
    axes.set_xscale("symlog", linthresh=10)
    axes.set_yscale("symlog", linthresh=10)
    axes.set_xlabel("LLVM's better setting")
    axes.set_ylabel(f"ours (-O={effort})")
    axes.set_title("Registers stored and reloaded, by estimated executions", fontsize=10)
    axes.legend(frameon=False)
    figure.savefig(path, dpi=110)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=RESULT)
    parser.add_argument("--out", type=Path, default=Path("docs/results"))
    given = parser.parse_args()
    data = json.loads(given.results.read_text())
    efforts = list(data["summary"])
    rows = [r for r in data["kernels"] if not any("error" in r.get(k, {}) for k in ("greedy", *efforts))]
    print(f"{len(rows)} of {len(data['kernels'])} kernels\n")
    print(overview(data["summary"], rows), table(rows, efforts), sep="\n\n")
    print(json.dumps({"sources": data["sources"], "summary": data["summary"], "exact": data["exact"]}, indent=1))
    # Matplotlib's types are partial.
    importlib.import_module("matplotlib").use("Agg")
    plots = importlib.import_module("matplotlib.pyplot")
    plot_cycles(plots, rows, _SHOWN, given.out / "benchmark-cycles.png")
    plot_spills(plots, rows, _SHOWN, given.out / "benchmark-spills.png")
    return 0


if __name__ == "__main__":
    sys.exit(main())
