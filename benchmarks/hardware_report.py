"""How well a model orders measured configurations: rank correlations, pairs, and fits of one kernel tested on another.

The rows have what ``cost/unhidden.py`` makes a total of, and the measured time. Nothing here compiles or costs code.
"""

from __future__ import annotations

import json
import lzma
import random
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

from verilocc_mlir.cost.compare import ERROR_BARS, Kind
from verilocc_mlir.cost.unhidden import UNITS, total
from verilocc_mlir.target.targets import target

Row = dict[str, Any]
NOISE = 0.02
"""Share by which two measured times must differ to be told apart; equal code differs by 1.3 % (median) between runs."""
ARCHES = {"MI250X": "gfx90a", "W7800": "gfx1100"}


def read_rows(path: Path) -> list[Row]:
    """The rows of a file that ``write_rows`` wrote."""
    data = json.loads(lzma.decompress(path.read_bytes()))
    return [dict(zip(data["columns"], row, strict=True)) for row in data["rows"]]


def packed(rows: Sequence[Row]) -> bytes:
    """Rows as a compressed table."""
    columns = list(rows[0])
    data = {"columns": columns, "rows": [[row[name] for name in columns] for row in rows]}
    return lzma.compress(json.dumps(data, separators=(",", ":")).encode())


def sets(rows: Iterable[Row]) -> dict[str, list[Row]]:
    """The sets that are reported. Tiles of 12 and more were compiled otherwise for W7800 than LLVM 22 does."""
    listed = list(rows)
    found: dict[str, list[Row]] = {
        "convolution W7800": [r for r in listed if r["set"] == "convolution W7800" and r["tile"] < 12],
        "convolution MI250X": [r for r in listed if r["set"] == "convolution MI250X"],
        "dedispersion MI250X": [r for r in listed if r["set"] == "dedispersion MI250X"],
        "dedispersion W7800": [r for r in listed if r["set"] == "dedispersion W7800"],
    }
    found["convolution W7800, nothing spilled"] = [r for r in found["convolution W7800"] if not r["spills"]]
    found["convolution MI250X, without LDS"] = [r for r in found["convolution MI250X"] if not r["lds_bytes"]]
    strided = "dedispersion MI250X, neighbours do not load neighbours"
    found[strided] = [r for r in found["dedispersion MI250X"] if r["strided"]]
    return found


def modelled(row: Row) -> float:
    """The modelled time of a launch, but for a factor of the GPU."""
    units = {name: row[name] for name in UNITS}
    gpu = target(ARCHES[row["gpu"]])
    return row["waves"] * total(units, row["latency"], row["unhidden"], row["occupancy"], gpu)


def spearman(first: Sequence[float], second: Sequence[float]) -> float:
    """Rank correlation; equal values share the mean of their ranks."""
    a, b = _ranks(first), _ranks(second)
    mean = (len(a) - 1) / 2
    products = sum((x - mean) * (y - mean) for x, y in zip(a, b, strict=True))
    squares = [sum((x - mean) ** 2 for x in ranks) for ranks in (a, b)]
    return products / (squares[0] * squares[1]) ** 0.5 if all(squares) else 0.0


def _ranks(values: Sequence[float]) -> list[float]:
    order = sorted(range(len(values)), key=lambda k: values[k])
    ranks = [0.0] * len(values)
    start = 0
    while start < len(order):
        end = start
        while end < len(order) and values[order[end]] == values[order[start]]:
            end += 1
        for k in order[start:end]:
            ranks[k] = (start + end - 1) / 2
        start = end
    return ranks


def correlation(rows: Sequence[Row], model: Callable[[Row], float] = modelled) -> float:
    """Of modelled and measured times."""
    return round(spearman([model(row) for row in rows], [row["ms"] for row in rows]), 3)


def kind_of(a: Row, b: Row) -> Kind:
    """In what two configurations differ (``cost/compare.py``)."""
    if a["spills"] != b["spills"]:
        return Kind.SPILLS
    return Kind.WAVES if a["occupancy"] != b["occupancy"] else Kind.ORDER


def pairs(rows: Sequence[Row], model: Callable[[Row], float] = modelled) -> list[tuple[Kind, float, bool]]:
    """Of configurations with one size of work-group, whose times differ: the kind, the modelled difference as a share,
    and whether the one modelled cheaper is the faster one.
    """
    groups: dict[tuple[int, int], list[Row]] = defaultdict(list)
    for row in rows:
        groups[row["x"], row["y"]].append(row)
    found: list[tuple[Kind, float, bool]] = []
    for group in groups.values():
        for a, b in combinations(group, 2):
            if abs(a["ms"] - b["ms"]) < NOISE * min(a["ms"], b["ms"]):
                continue
            less, more = sorted((a, b), key=model)
            found.append((kind_of(a, b), model(more) / max(model(less), 1e-9) - 1, less["ms"] < more["ms"]))
    return found


def right(found: Iterable[tuple[Kind, float, bool]], bars: Mapping[Kind, float] | None = None) -> Row:
    """How many pairs lie beyond the error bars, and which share of those is right; by kind too."""
    limits = bars if bars is not None else {kind: bar.value for kind, bar in ERROR_BARS.items()}
    listed = list(found)
    beyond = [(kind, good) for kind, difference, good in listed if difference > limits[kind]]
    result: Row = {"pairs": len(listed), "beyond": len(beyond), "right": _share(good for _, good in beyond)}
    for kind in Kind:
        of = [good for other, good in beyond if other is kind]
        result[kind.name.lower()] = {"beyond": len(of), "right": _share(of)}
    return result


def _share(good: Iterable[bool]) -> float | None:
    values = list(good)
    return round(sum(values) / len(values), 3) if values else None


def fitted(rows: Sequence[Row], steps: int = 400) -> Callable[[Row], float]:
    """A sum of the components with weights that fit the measured times best (least relative squares, none below 0)."""
    names = ("unhidden", "hidden", *UNITS)
    table = [[_component(row, name) / row["ms"] for name in names] for row in rows]
    scale = [sum(line[k] for line in table) / len(table) or 1.0 for k in range(len(names))]
    table = [[value / s for value, s in zip(line, scale, strict=True)] for line in table]
    weights = [1.0 / len(names)] * len(names)
    for _ in range(steps):  # Coordinate descent: each weight is the best one for the others.
        for k in range(len(names)):
            above = below = 0.0
            for line in table:
                rest = sum(w * v for w, v in zip(weights, line, strict=True)) - weights[k] * line[k]
                above += line[k] * (1 - rest)
                below += line[k] ** 2
            weights[k] = max(above / below, 0.0) if below else 0.0
    final = [w / s for w, s in zip(weights, scale, strict=True)]

    def model(row: Row) -> float:
        return sum(w * _component(row, name) for w, name in zip(final, names, strict=True))

    return model


def _component(row: Row, name: str) -> float:
    if name == "hidden":
        return row["waves"] * max(row["latency"] - row["unhidden"], 0.0) / row["occupancy"]
    return row["waves"] * row[name]


def crossed(rows: Mapping[str, Sequence[Row]], seed: int = 1) -> Row:
    """Half of one kernel's rows fitted: the order of its other half, and of the other kernel on the same GPU."""
    result: Row = {}
    for gpu in ARCHES:
        for kernel, other in (("convolution", "dedispersion"), ("dedispersion", "convolution")):
            own = list(rows[f"{kernel} {gpu}"])
            random.Random(seed).shuffle(own)
            model = fitted(own[::2])
            result[f"{kernel} {gpu}"] = {
                "its other half": correlation(own[1::2], model),
                f"{other} {gpu}": correlation(rows[f"{other} {gpu}"], model),
            }
    return result


def summary(rows: Iterable[Row]) -> Row:
    """All figures of the page."""
    by_set = sets(rows)
    return {
        "sets": {name: {"rows": len(of), "spearman": correlation(of)} for name, of in by_set.items() if len(of) > 4},
        "pairs": {name: right(pairs(of)) for name, of in by_set.items() if "," not in name},
        "fitted": crossed(by_set),
    }
