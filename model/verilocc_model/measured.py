"""Times that a GPU took beside what the ruler says: rows, what predicts one from the other, and how well it does.

A row is one code of a kernel. What a GPU adds to the ruler is learned within a kernel and a work (a *group*): a time
of one kernel says nothing of another kernel's. Every predictor corrects the ruler, in the logarithm of the time, and
is asked with NumPy alone.
"""

from __future__ import annotations

import importlib
import json
import lzma
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from verilocc_mlir.cost.compare import spill_traffic
from verilocc_mlir.cost.model import KernelCost
from verilocc_mlir.cost.unhidden import UNITS, hidden, total
from verilocc_mlir.errors import InputError
from verilocc_mlir.target.targets import target as target_called
from verilocc_model.trees import Trees

Array = NDArray[np.float64]
COMPONENTS = ("latency", "unhidden", "occupancy", *UNITS, "instructions", "spills", "lds_bytes")
"""What a row has of the ruler: cycles of one wave, waves on a SIMD, instructions and 32-bit registers moved to and from
private memory as executed, and bytes."""
NOISE = 0.02
"""Share by which two times must differ to be told apart; equal code differs by 1.3 % (median) between runs."""
FOLDS = 5
_RESAMPLES = 400


@dataclass(frozen=True)
class Row:
    """One code of a kernel.

    Attributes:
        group: kernel, device and work; times are compared within it alone.
        code: SHA-256 of the code, or of a configuration's name.
        name: what people call it.
        target: of the code.
        cost: by ``COMPONENTS``.
        waves: that the launch starts; 1 where that is not known.
        ms: measured milliseconds; None of a code that was not measured.
    """

    group: str
    code: str
    name: str
    target: str
    cost: Mapping[str, float]
    waves: float = 1.0
    ms: float | None = None

    @property
    def log_ms(self) -> float:
        assert self.ms is not None
        return float(np.log(self.ms))


def components(cost: KernelCost) -> dict[str, float]:
    """Of a costed kernel, by ``COMPONENTS``."""
    own = {name: float(getattr(cost, name)) for name in ("latency", "unhidden", "occupancy", *UNITS, "lds_bytes")}
    return {**own, "instructions": cost.instructions.weighted, "spills": spill_traffic(cost)}


def read_rows(path: Path) -> list[dict[str, Any]]:
    """The lines of a file of costed configurations, as ``model/data/measured`` has them; compressed (``.xz``) or not.

    Raises:
        InputError: it cannot be read, or a line is none of this form.
    """
    try:
        data = path.read_bytes()
        lines = (lzma.decompress(data) if path.suffix == ".xz" else data).decode().splitlines()
        rows: list[dict[str, Any]] = [json.loads(line) for line in lines]
        for row in rows:
            if row["cost"] is not None:
                row["cost"] = {name: float(row["cost"][name]) for name in COMPONENTS}
            row["key"], row["target"], row["waves"] = str(row["key"]), str(row["target"]), float(row["waves"])
    except (OSError, lzma.LZMAError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"no costed configurations are there: {error}", where=str(path)) from error
    return rows


# What predicts the logarithm of a time, but for a constant of the group.


class Predictor(Protocol):
    """``fit`` learns from measured rows; ``log_time`` gives one value a row; ``data`` is what ``load`` takes."""

    name: str

    def fit(self, rows: Sequence[Row]) -> None: ...
    def log_time(self, rows: Sequence[Row]) -> Array: ...


class Ruler:
    """The ruler alone: waves of the launch times modelled cycles of a wave."""

    name = "the ruler"

    def fit(self, rows: Sequence[Row]) -> None: ...

    def log_time(self, rows: Sequence[Row]) -> Array:
        return np.array([_modelled(row) for row in rows])


def _modelled(row: Row) -> float:
    cost = row.cost
    units = {name: cost[name] for name in UNITS}
    cycles = total(units, cost["latency"], cost["unhidden"], cost["occupancy"], target_called(row.target))
    return float(np.log(max(row.waves * cycles, 1e-9)))


class Corrected:
    """Gradient-boosted trees over the components, of what the ruler leaves of the time."""

    name = "trees on what the ruler leaves"

    def __init__(self, trees: Trees | None = None) -> None:
        self.trees = trees

    def fit(self, rows: Sequence[Row]) -> None:
        ensemble: Any = importlib.import_module("sklearn.ensemble")
        model = ensemble.HistGradientBoostingRegressor(
            max_iter=200, learning_rate=0.05, max_leaf_nodes=15, min_samples_leaf=10, random_state=0
        )
        self.trees = Trees.of(model.fit(features(rows), centred_times(rows)))

    def log_time(self, rows: Sequence[Row]) -> Array:
        assert self.trees is not None
        return self.trees.values(features(rows)) + Ruler().log_time(rows)


def centred_times(rows: Sequence[Row]) -> Array:
    """What the ruler leaves of the logarithms of the times, less its mean over the group."""
    times = np.array([row.log_ms for row in rows])
    return _centred(times - Ruler().log_time(rows), _of_groups(rows))


def features(rows: Sequence[Row]) -> Array:
    """Logarithms of the components of a wave and of a launch; shaped (rows, features)."""
    listed: list[list[float]] = []
    for row in rows:
        cost = row.cost
        of_wave = [cost[name] for name in ("latency", "unhidden", *UNITS, "instructions", "spills")]
        of_wave.append(hidden(cost["latency"], cost["unhidden"], cost["occupancy"]))
        listed.append([*of_wave, *(row.waves * part for part in of_wave), row.waves, cost["lds_bytes"]])
    modelled = Ruler().log_time(rows)[:, None]
    occupancy = np.array([[row.cost["occupancy"]] for row in rows])
    return np.concatenate([np.log1p(np.array(listed)), occupancy, modelled], axis=1)


def _of_groups(rows: Sequence[Row]) -> list[NDArray[np.intp]]:
    by_group: dict[str, list[int]] = defaultdict(list)
    for number, row in enumerate(rows):
        by_group[row.group].append(number)
    return [np.array(numbers) for numbers in by_group.values()]


def _centred(values: Array, groups: Sequence[NDArray[np.intp]]) -> Array:
    result = values.copy()
    for numbers in groups:
        result[numbers] -= values[numbers].mean()
    return result


# How rows are kept aside, and what is asked of a prediction.


def kept_aside(rows: Sequence[Row], learner: Callable[[], Predictor], folds: int = FOLDS, seed: int = 1) -> Array:
    """What a predictor says of each row when it has not learned from it: one of ``folds`` parts of the configurations
    after the other is kept aside.
    """
    part = np.random.default_rng(seed).permutation(len(rows)) % folds
    return _in_turn(rows, learner, part.tolist())


def unseen_kernels(rows: Sequence[Row], learner: Callable[[], Predictor]) -> Array:
    """The same where all rows of a group are kept aside: it learns from the other kernels alone."""
    return _in_turn(rows, learner, [row.group for row in rows])


def _in_turn(rows: Sequence[Row], learner: Callable[[], Predictor], parts: Sequence[object]) -> Array:
    said = np.zeros(len(rows))
    for part in dict.fromkeys(parts):
        inside = [number for number, own in enumerate(parts) if own == part]
        learned = learner()
        learned.fit([row for row, own in zip(rows, parts, strict=True) if own != part])
        said[inside] = learned.log_time([rows[number] for number in inside])
    return said


@dataclass(frozen=True)
class Judged:
    """How well something orders rows: means over the groups, each with the limits of its 95 % interval.

    Attributes:
        spearman: rank correlation with the measured times.
        pairs: share of the pairs whose times differ by more than ``NOISE`` that are ranked rightly; ties half.
        regret: time of the row that is said to be the fastest over that of the fastest; geometric mean.
    """

    spearman: tuple[float, float, float]
    pairs: tuple[float, float, float]
    regret: tuple[float, float, float]


class Judge:
    """Judges predictions of some measured rows, on the same resamples of them for all."""

    def __init__(self, rows: Sequence[Row], seed: int = 1) -> None:
        self._times = np.array([row.log_ms for row in rows])
        self._groups = [numbers for numbers in _of_groups(rows) if len(numbers) > 1]
        draw = np.random.default_rng(seed)
        # The first "resample" is the rows themselves.
        self._drawn = [
            np.stack([np.arange(len(n)), *(np.sort(draw.integers(0, len(n), len(n))) for _ in range(_RESAMPLES))])
            for n in self._groups
        ]

    def figures(self, said: Array) -> Array:
        """Spearman, pairs and the logarithm of the regret; shaped (1 + resamples, 3), means over the groups."""
        each = [
            _figures(self._times[numbers], said[numbers], drawn)
            for numbers, drawn in zip(self._groups, self._drawn, strict=True)
        ]
        return np.mean(each, axis=0)

    def judged(self, said: Array) -> Judged:
        values = self.figures(said)
        values[:, 2] = np.exp(values[:, 2])
        return Judged(*(_interval(values[:, k]) for k in range(3)))

    def gains(self, said: Array, other: Array) -> Judged:
        """How much better one is than the other; of the regret the ratio, below 1 where the first is better."""
        values = self.figures(said) - self.figures(other)
        values[:, 2] = np.exp(values[:, 2])
        return Judged(*(_interval(values[:, k]) for k in range(3)))


def _interval(values: Array) -> tuple[float, float, float]:
    low, high = np.quantile(values[1:], (0.025, 0.975))
    return round(float(values[0]), 4), round(float(low), 4), round(float(high), 4)


def _figures(times: Array, said: Array, drawn: NDArray[np.intp]) -> Array:
    apart = np.abs(times[:, None] - times[None, :]) > np.log1p(NOISE)
    agree = (np.sign(times[:, None] - times[None, :]) * np.sign(said[:, None] - said[None, :]) + 1) / 2 * apart
    result = np.zeros((len(drawn), 3))
    for number, rows in enumerate(drawn):
        often = np.bincount(rows, minlength=len(times)).astype(float)
        result[number, 0] = spearman(times[rows], said[rows])
        result[number, 1] = often @ agree @ often / max(often @ apart @ often, 1.0)
        chosen = rows[np.argmin(said[rows])]
        result[number, 2] = times[chosen] - times[rows].min()
    return result


def spearman(first: Array, second: Array) -> float:
    """Rank correlation; equal values share the mean of their ranks."""
    a, b = _ranks(first), _ranks(second)
    a, b = a - a.mean(), b - b.mean()
    length = float(np.sqrt((a @ a) * (b @ b)))
    return float(a @ b) / length if length else 0.0


def _ranks(values: Array) -> Array:
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts + 1) / 2)[place]
