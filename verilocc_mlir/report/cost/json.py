"""Costs and comparisons as JSON. The form is described by ``cost.schema.json`` beside this file."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from verilocc_mlir.cost.compare import Comparison, latency_parts
from verilocc_mlir.cost.model import COUNTS, MODELLED, CostedFile, Count, KernelCost, LoopTrips

COST_VERSION = 1
_DIGITS = 2


def schema() -> dict[str, Any]:
    """The JSON Schema (2020-12) that both reports obey."""
    return json.loads(Path(__file__).with_name("cost.schema.json").read_text(encoding="utf-8"))


def cost_json(file: CostedFile, version: str) -> str:
    """The costs of one file, indented, with a final line break. ``version``: this program's."""
    return _render({**_head(version), "file": _file(file), "functions": [_cost(c) for c in file.functions.values()]})


def comparison_json(first: CostedFile, second: CostedFile, rows: Sequence[Comparison], version: str) -> str:
    """Two files side by side."""
    return _render({**_head(version), "first": _file(first), "second": _file(second), "functions": [*map(_row, rows)]})


def _render(data: dict[str, Any]) -> str:
    return json.dumps(data, indent=2, ensure_ascii=False) + "\n"


def _head(version: str) -> dict[str, Any]:
    return {"cost_version": COST_VERSION, "tool": {"name": "verilocc", "version": version}, "modelled": MODELLED}


def _file(file: CostedFile) -> dict[str, Any]:
    return {
        "path": file.path,
        "kind": file.kind,
        "target": file.target,
        "llvm": file.llvm or None,
        "notes": list(file.notes),
    }


def _row(row: Comparison) -> dict[str, Any]:
    return {
        "name": row.name,
        "percent": None if row.percent is None else round(row.percent, _DIGITS),
        "explanation": row.explanation or None,
        "first": None if row.first is None else _cost(row.first),
        "second": None if row.second is None else _cost(row.second),
    }


def _cost(cost: KernelCost) -> dict[str, Any]:
    counts = {name: _count(getattr(cost, name)) for name in COUNTS}
    return {
        "name": cost.name,
        "kind": "kernel" if cost.is_kernel else "device",
        "cycles": round(cost.cycles, _DIGITS),
        "bound": cost.bound,
        "bounds": {name: round(value, _DIGITS) for name, value in cost.bounds.items()},
        "latency": round(cost.latency, _DIGITS),
        "latency_parts": {name: round(value, _DIGITS) for name, value in latency_parts(cost).items()},
        "occupancy": cost.occupancy,
        "vector_registers": cost.vectors,
        "agprs": cost.agprs,
        "sgprs": cost.sgprs,
        "lds_bytes": cost.lds_bytes,
        "scratch_bytes": cost.scratch_bytes,
        "code_bytes": cost.code_bytes,
        "counts": counts,
        "loops": [_loop(loop) for loop in cost.loops],
    }


def _count(count: Count) -> dict[str, float]:
    return {"static": count.static, "executed": round(count.weighted, _DIGITS)}


def _loop(loop: LoopTrips) -> dict[str, Any]:
    return {
        "header": loop.label or None,
        "ir_name": loop.ir_name or None,
        "depth": loop.depth,
        "trips": loop.trips,
        "source": loop.source,
    }
