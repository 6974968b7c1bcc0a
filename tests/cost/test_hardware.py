"""The total's formula against measured configurations: counts in, order out. No code is compiled or costed here.

The rows are those of ``benchmarks/hardware.py``: what the model counted in a configuration's code, and its measured
time (public data of Kernel Tuner's benchmark hub, MIT licence). A change of ``cost/unhidden.py`` or of the error bars
that makes the order worse fails here.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType

import pytest

from verilocc_mlir.cost.compare import ERROR_BARS, Kind

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
ROWS = BENCHMARKS / "results" / "hardware_rows.json.xz"


@pytest.fixture(scope="module")
def report() -> ModuleType:
    sys.path.insert(0, str(BENCHMARKS))
    try:
        return importlib.import_module("hardware_report")
    finally:
        sys.path.remove(str(BENCHMARKS))


@pytest.fixture(scope="module")
def sets(report: ModuleType) -> dict[str, list[dict[str, float]]]:
    return report.sets(report.read_rows(ROWS))


LEAST = {
    "convolution W7800": 0.970,
    "convolution W7800, nothing spilled": 0.90,
    "convolution MI250X": 0.95,
    "convolution MI250X, without LDS": 0.70,
    "dedispersion MI250X": 0.89,
    "dedispersion W7800": 0.80,
}
"""Rank correlations that are there (docs/results/ruler.md), with a hundredth or more to spare."""


@pytest.mark.parametrize("name", LEAST)
def test_the_order_of_measured_configurations_gets_no_worse(report: ModuleType, sets, name: str) -> None:
    assert report.correlation(sets[name]) >= LEAST[name]


@pytest.mark.parametrize("name", [n for n in LEAST if "," not in n])
def test_differences_beyond_the_error_bar_are_right(report: ModuleType, sets, name: str) -> None:
    found = report.right(report.pairs(sets[name]))
    assert found["beyond"] > 100
    assert found["right"] >= 0.95


@pytest.mark.parametrize("kind", Kind)
def test_the_bars_are_no_wider_than_the_rows_ask_for(report: ModuleType, sets, kind: Kind) -> None:
    """With half of a bar, fewer pairs of some set are right."""
    bars = {k: bar.value * (0.5 if k is kind else 1) for k, bar in ERROR_BARS.items()}
    of = kind.name.lower()
    worst = [
        report.right(report.pairs(rows), limits)[of]["right"]
        for limits in (None, bars)
        for rows in [[row for name, group in sets.items() if "," not in name for row in group]]
    ]
    assert worst[1] <= worst[0]


def test_the_sum_of_the_units_orders_rdna_and_the_greatest_cdna(report: ModuleType, sets) -> None:
    """What the form of the total was chosen by."""
    for name, better in (("dedispersion W7800", sum), ("dedispersion MI250X", max)):
        by_form = {
            form: report.correlation(
                sets[name],
                lambda row, form=form: (
                    row["waves"] * max(row["latency"] / row["occupancy"], form(row[u] for u in report.UNITS))
                ),
            )
            for form in (sum, max)
        }
        assert by_form[better] > by_form[max if better is sum else sum] + 0.01


def test_rank_correlation(report: ModuleType) -> None:
    assert report.spearman([1, 2, 3, 4], [10, 20, 30, 40]) == 1
    assert report.spearman([1, 2, 3, 4], [4, 3, 2, 1]) == -1
    assert report.spearman([1, 1, 2, 2], [1, 1, 2, 2]) == 1
    assert report.spearman([1, 1, 1], [1, 2, 3]) == 0
    assert report.spearman([1, 2, 3, 4, 5], [2, 1, 4, 3, 5]) == pytest.approx(0.8)
