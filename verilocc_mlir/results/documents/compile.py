"""A report as JSON. The form is described by ``schema.json`` beside this file and carries its version."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from verilocc_mlir.results.compile import (
    REPORT_VERSION,
    Attempt,
    FunctionReport,
    Moves,
    PhaseReport,
    Report,
    Resources,
    Verdict,
)
from verilocc_mlir.spilling.actions import SpillAction

_DIGITS = 4


def schema() -> dict[str, Any]:
    """The JSON Schema (2020-12) that ``to_json`` obeys."""
    return json.loads(Path(__file__).with_name("compile.schema.json").read_text(encoding="utf-8"))


def to_json(report: Report) -> str:
    """The report as indented JSON with a final line break."""
    return render(to_data(report))


def render(data: Mapping[str, Any]) -> str:
    """What ``to_data`` has made, as indented JSON with a final line break."""
    return json.dumps(data, indent=2, ensure_ascii=False) + "\n"


def to_data(report: Report) -> dict[str, Any]:
    """The report as plain lists and dictionaries."""
    return {
        "report_version": REPORT_VERSION,
        "tool": {"name": "verilocc", "version": report.version, "llvm": report.llvm},
        "input": {"path": report.input, "sha256": report.input_sha256},
        "target": report.target,
        "features": report.features,
        "allocator": report.allocator,
        "emit": report.emit,
        "outcome": str(report.outcome),
        "exit_code": int(report.exit_code),
        "output": report.output or None,
        "functions": [_function(f) for f in report.functions],
        "mended": list(report.mended),
        "notes": list(report.notes),
        "time": {
            "cpu_seconds": round(report.cpu_seconds, _DIGITS),
            "wall_seconds": round(report.wall_seconds, _DIGITS),
            "steps": [{"name": s.name, "cpu_seconds": round(s.seconds, _DIGITS)} for s in report.steps],
        },
    }


def _function(function: FunctionReport) -> dict[str, Any]:
    return {
        "name": function.name,
        "kind": "kernel" if function.is_kernel else "device",
        "instructions": function.instructions,
        "phases": [_phase(p) for p in function.phases],
        "resources": _resources(function.resources),
        "greedy": _resources(function.greedy),
    }


def _phase(phase: PhaseReport) -> dict[str, Any]:
    return {
        "phase": phase.phase,
        "allocator": phase.allocator,
        "outcome": str(phase.outcome),
        "obligations": phase.obligations,
        "fallback": phase.fallback,
        "fallback_reason": phase.fallback_reason or None,
        "attempts": [_attempt(a) for a in phase.attempts],
        "moves": _moves(phase.moves),
        "spills": [_spill(s) for s in phase.spills],
        "cpu_seconds": {name: round(value, _DIGITS) for name, value in phase.seconds.items()},
    }


def _attempt(attempt: Attempt) -> dict[str, Any]:
    return {
        "allocator": attempt.allocator,
        "version": attempt.version or None,
        "ended": attempt.ended,
        "outcome": str(attempt.outcome),
        "reason": attempt.reason or None,
        "proof": _verdict(attempt.proof),
        "audit": _verdict(attempt.audit),
    }


def _verdict(verdict: Verdict | None) -> dict[str, Any] | None:
    if verdict is None:
        return None
    findings = [
        {"rule": f.rule, "outcome": str(f.outcome), "fault": f.fault or None, "message": f.message}
        for f in verdict.findings
    ]
    return {"outcome": str(verdict.outcome), "obligations": verdict.obligations, "findings": findings}


def _moves(moves: Moves) -> dict[str, int]:
    return {
        "copies_before": moves.copies_before,
        "copies_removed": moves.copies_removed,
        "copies_left": moves.copies_left,
        "saves": moves.saves,
        "reloads": moves.reloads,
        "rematerialised": moves.rematerialised,
    }


def _spill(action: SpillAction) -> dict[str, Any]:
    return {
        "register": action.register,
        "kind": action.kind,
        "parts": action.parts,
        "saves": list(action.saves),
        "reloads": list(action.reloads),
        "point": action.point,
        "cost": round(action.cost, _DIGITS),
        "reason": action.reason,
    }


def _resources(resources: Resources | None) -> dict[str, int | None] | None:
    if resources is None:
        return None
    return {
        "sgprs": resources.sgprs,
        "vgprs": resources.vgprs,
        "agprs": resources.agprs,
        "sgpr_spills": resources.sgpr_spills,
        "vgpr_spills": resources.vgpr_spills,
        "scratch_bytes": resources.scratch_bytes,
        "waves": resources.waves,
    }
