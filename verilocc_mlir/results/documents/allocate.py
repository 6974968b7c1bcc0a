"""The report as JSON. The form is described by ``allocate.schema.json`` beside this file and carries its version."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from verilocc_mlir.results.allocate import ALLOCATE_VERSION, AllocatedFile, AllocatedFunction, AllocateReport


def schema() -> dict[str, Any]:
    """The JSON Schema (2020-12) that ``to_json`` obeys."""
    return json.loads(Path(__file__).with_name("allocate.schema.json").read_text(encoding="utf-8"))


def to_json(report: AllocateReport) -> str:
    """The report as indented JSON with a final line break."""
    data = {
        "allocate_version": ALLOCATE_VERSION,
        "tool": {"name": "verilocc", "version": report.version},
        "server": {"address": report.server, "version": report.server_version or None},
        "phase": report.phase,
        "outcome": str(report.outcome),
        "exit_code": int(report.exit_code),
        "wall_seconds": round(report.wall_seconds, 4),
        "files": [_file(f) for f in report.files],
    }
    return json.dumps(data, indent=2, ensure_ascii=False) + "\n"


def _file(file: AllocatedFile) -> dict[str, Any]:
    return {
        "input": file.input,
        "input_sha256": file.input_sha256,
        "outcome": str(file.outcome),
        "reason": file.reason or None,
        "output": file.output or None,
        "functions": [_function(f) for f in file.functions],
    }


def _function(function: AllocatedFunction) -> dict[str, Any]:
    return {
        "name": function.name,
        "outcome": str(function.outcome),
        "obligations": function.obligations,
        "allocator": function.allocator or None,
        "registers": {"sgprs": function.sgprs, "vgprs": function.vgprs, "agprs": function.agprs},
        "attempts": [
            {"allocator": a.allocator, "version": a.version, "ended": a.ended, "reason": a.reason or None}
            for a in function.attempts
        ],
        "reason": function.reason or None,
        "findings": list(function.findings),
    }
