"""A batch as JSON. The form is described by ``batch.schema.json`` beside this file and carries its version."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from smt_verifier.outcome import Outcome
from verilocc_mlir.results.batch import BATCH_VERSION, BatchItem, BatchReport, Origin

_DIGITS = 4


def schema() -> dict[str, Any]:
    """The JSON Schema (2020-12) that ``to_json`` obeys."""
    return json.loads(Path(__file__).with_name("batch.schema.json").read_text(encoding="utf-8"))


def to_json(report: BatchReport) -> str:
    """The report as indented JSON with a final line break."""
    return json.dumps(to_data(report), indent=2, ensure_ascii=False) + "\n"


def to_data(report: BatchReport) -> dict[str, Any]:
    """The report as plain lists and dictionaries; inputs sorted by path."""
    return {
        "batch_version": BATCH_VERSION,
        "tool": {"name": "verilocc", "version": report.version, "llvm": report.llvm},
        "settings": report.settings,
        "exit_code": int(report.exit_code),
        "counts": {
            "inputs": len(report.items),
            "outcomes": {str(outcome): report.count(outcome) for outcome in Outcome},
            "origins": {origin.value: sum(i.origin is origin for i in report.items) for origin in Origin},
        },
        "wall_seconds": round(report.wall_seconds, _DIGITS),
        "warnings": list(report.warnings),
        "inputs": [item_data(item) for item in sorted(report.items, key=lambda item: item.input)],
    }


def item_data(item: BatchItem) -> dict[str, Any]:
    """One input as JSON values; null for what there is not."""
    return {
        "input": item.input,
        "input_sha256": item.input_sha256 or None,
        "key": item.key or None,
        "outcome": str(item.outcome),
        "exit_code": int(item.exit_code),
        "origin": item.origin.value,
        "output": item.output or None,
        "output_sha256": item.output_sha256 or None,
        "report": item.report or None,
        "report_sha256": item.report_sha256 or None,
        "seconds": round(item.seconds, _DIGITS),
        "message": item.message or None,
        "final": item.final,
    }


def item_from_data(data: Mapping[str, Any]) -> BatchItem:
    """What ``item_data`` was made of.

    Raises:
        KeyError, ValueError: ``data`` is not of that form.
    """
    return BatchItem(
        input=data["input"],
        input_sha256=data["input_sha256"] or "",
        key=data["key"] or "",
        outcome=Outcome(data["outcome"]),
        origin=Origin(data["origin"]),
        output=data["output"] or "",
        output_sha256=data["output_sha256"] or "",
        report=data["report"] or "",
        report_sha256=data["report_sha256"] or "",
        seconds=data["seconds"],
        message=data["message"] or "",
        final=data["final"],
    )
