"""An audit as JSON. The form is described by ``audit.schema.json`` beside this file and carries its version."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from smt_verifier.audit import Finding, FunctionAudit
from verilocc_mlir.results.audit import AUDIT_VERSION, AuditedPair, AuditRun, Listing

_DIGITS = 4


def schema() -> dict[str, Any]:
    """The JSON Schema (2020-12) that ``to_json`` obeys."""
    return json.loads(Path(__file__).with_name("audit.schema.json").read_text(encoding="utf-8"))


def to_json(run: AuditRun) -> str:
    """The report as indented JSON with a final line break."""
    return json.dumps(to_data(run), indent=2, ensure_ascii=False) + "\n"


def to_data(run: AuditRun) -> dict[str, Any]:
    """The report as plain lists and dictionaries."""
    return {
        "audit_version": AUDIT_VERSION,
        "tool": {"name": "verilocc", "version": run.version, "llvm": run.llvm or None},
        "target": run.target,
        "source": _listing(run.source) if run.source else None,
        "allocator": run.allocator or None,
        "outcome": str(run.outcome),
        "exit_code": int(run.exit_code),
        "pairs": [_pair(p) for p in run.pairs],
        "notes": list(run.notes),
    }


def _listing(listing: Listing) -> dict[str, str]:
    return {"path": listing.path, "sha256": listing.sha256}


def _pair(pair: AuditedPair) -> dict[str, Any]:
    return {
        "phase": pair.phase or None,
        "before": _listing(pair.before),
        "after": _listing(pair.after),
        "outcome": str(pair.report.outcome),
        "faults": [str(kind) for kind in pair.report.faults],
        "obligations": pair.report.obligations,
        "cpu_seconds": round(pair.cpu_seconds, _DIGITS),
        "functions": [_function(f) for f in pair.report.functions],
    }


def _function(function: FunctionAudit) -> dict[str, Any]:
    return {
        "name": function.function,
        "outcome": str(function.outcome),
        "faults": [str(kind) for kind in function.faults],
        "obligations": function.obligations,
        "goals": asdict(function.goals),
        "rule_checks": function.rule_checks,
        "moves": asdict(function.moves),
        "findings": [_finding(f) for f in function.findings],
    }


def _finding(finding: Finding) -> dict[str, Any]:
    data = asdict(finding)
    data["outcome"], data["fault"] = str(finding.outcome), str(finding.fault)
    data["elsewhere"], data["path"] = list(finding.elsewhere), list(finding.path)
    return data
