#!/usr/bin/env python3
"""Writes the JSON schemas of this project's documents beside the modules that define them, from their types.

Run it after a document's form has changed; tests/project/test_schemas.py compares.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from smt_verifier.prove import forms as diagnosis
from verilocc_mlir.problem import schema as problem
from verilocc_mlir.results import allocate, audit, batch, compile_document, cost_document, gate, measure, why

REPOSITORY = Path(__file__).resolve().parent.parent
_DOCUMENTS = "verilocc_mlir/results/documents"
SCHEMAS: dict[str, Callable[[], dict[str, Any]]] = {
    f"{_DOCUMENTS}/compile.schema.json": compile_document.schema,
    f"{_DOCUMENTS}/audit.schema.json": audit.schema,
    f"{_DOCUMENTS}/allocate.schema.json": allocate.schema,
    f"{_DOCUMENTS}/batch.schema.json": batch.schema,
    f"{_DOCUMENTS}/cost.schema.json": cost_document.schema,
    f"{_DOCUMENTS}/gate.schema.json": gate.schema,
    f"{_DOCUMENTS}/measure.schema.json": measure.schema,
    f"{_DOCUMENTS}/why.schema.json": why.schema,
    "verilocc_mlir/problem/allocation.schema.json": problem.json_schema,
    "smt_verifier/prove/diagnosis.schema.json": diagnosis.schema,
}


def text(schema: dict[str, Any]) -> str:
    """As it stands in the file."""
    return json.dumps(schema, indent=1, ensure_ascii=False) + "\n"


def main() -> None:
    """Write them all."""
    for name, schema in SCHEMAS.items():
        (REPOSITORY / name).write_text(text(schema()), encoding="utf-8")


if __name__ == "__main__":
    main()
