"""What every SARIF 2.1.0 log of this project shares (OASIS, sarif-v2.1.0-os)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from smt_verifier.audit import RULES, Finding, FunctionAudit
from smt_verifier.audit.core.report import FAULTS, Fact
from smt_verifier.audit.wording import details
from smt_verifier.outcome import Outcome
from verilocc_mlir.report.audit import rule_text
from verilocc_mlir.results.audit import AuditedPair, AuditRun, Listing
from verilocc_mlir.results.gate import FIGURES, Compared, GateRun, Status

SCHEMA_URI = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/os/schemas/sarif-schema-2.1.0.json"


def log(version: str, rules: Sequence[dict[str, Any]], exit_code: int, **run: Any) -> dict[str, Any]:
    """A log of one run; ``run`` has its further properties, ``results`` among them."""
    driver = {"name": "verilocc", "version": version, "rules": rules}
    invocations = [{"executionSuccessful": True, "exitCode": exit_code}]
    return {
        "$schema": SCHEMA_URI,
        "version": "2.1.0",
        "runs": [{"tool": {"driver": driver}, "invocations": invocations, **run}],
    }


def uri(path: str) -> str:
    pure = Path(path)
    return pure.as_uri() if pure.is_absolute() else quote(pure.as_posix())


def as_text(data: dict[str, Any]) -> str:
    return json.dumps(data, indent=2, ensure_ascii=False) + "\n"


# A gate's result as SARIF 2.1.0, for code scanning: one result for each figure of a kernel that is worse.
#
# What makes the gate fail is an error, what is tolerated a note. So are new and vanished kernels. The fingerprint is
# that of kernel and rule, so that the same finding is known again in the next run.


_RULES = {
    **{
        figure: f"A kernel's {title} are worse than in the baseline, or than its budget."
        for figure, title in FIGURES.items()
    },
    "verdict": "A kernel's allocation is no longer proved.",
    "declared": "A kernel uses registers that it does not declare.",
    "new": "A kernel is not in the baseline.",
    "vanished": "A kernel of the baseline is not there any more.",
}


def gate_sarif(run: GateRun) -> str:
    rules = [{"id": rule, "shortDescription": {"text": text}} for rule, text in _RULES.items()]
    results = [result for row in run.rows for result in _results(row, run)]
    return as_text(log(run.version, rules, int(run.exit_code), results=results))


def _results(row: Compared, run: GateRun) -> Iterator[dict[str, Any]]:
    title = row.kernel.title
    if row.status in (Status.NEW, Status.VANISHED):
        rule = row.status.value
        yield _gate_result(rule, f"{title}: {_RULES[rule]}", run.fails(row), row, run)
    for change in row.changes:
        if change.worse:
            yield _gate_result(change.figure, f"{title}: {change}", change.beyond, row, run)


def _gate_result(rule: str, message: str, failing: bool, row: Compared, run: GateRun) -> dict[str, Any]:
    kernel = row.kernel
    stable = "\0".join((rule, kernel.name, kernel.target, str(kernel.work_items)))
    place: dict[str, Any] = {"artifactLocation": {"uri": uri(kernel.path or run.baseline)}}
    return {
        "ruleId": rule,
        "ruleIndex": list(_RULES).index(rule),
        "level": "error" if failing else "note",
        "message": {"text": message},
        "locations": [
            {
                "physicalLocation": place,
                "logicalLocations": [{"name": kernel.demangled, "decoratedName": kernel.name, "kind": "function"}],
            }
        ],
        "partialFingerprints": {"verilocc/v1": hashlib.sha256(stable.encode()).hexdigest()},
    }


# An audit as SARIF 2.1.0 (OASIS, sarif-v2.1.0-os), for editors and code scanning.
#
# One rule of the tool for each rule of the audit; a result for each finding, located in the text after allocation, with
# the text before it and the other instructions as related locations. The code flow goes from where the expected value
# was made, over what happened to it, to the operand that reads something else. UNKNOWN is a result of kind ``open``:
# evaluated, with too little information to decide.


def audit_sarif(run: AuditRun) -> str:
    return as_text(audit_sarif_data(run))


def audit_sarif_data(run: AuditRun) -> dict[str, Any]:
    listings = {t.path: t for p in run.pairs for t in (p.before, p.after)}
    verdicts = [
        {
            "function": f.function,
            "phase": p.phase,
            "outcome": str(f.outcome),
            "faults": [str(kind) for kind in f.faults],
            "obligations": f.obligations,
            "literalGoals": f.goals.literal,
            "decidedGoals": f.goals.decided,
            "ruleChecks": f.rule_checks,
        }
        for p in run.pairs
        for f in p.report.functions
    ]
    return log(
        run.version,
        [_rule(r) for r in RULES],
        int(run.exit_code),
        artifacts=[_artifact(t) for t in listings.values()],
        columnKind="unicodeCodePoints",
        results=[_audit_result(p, f, finding) for p, f, finding in run.findings()],
        properties={"target": run.target, "outcome": str(run.outcome), "verdicts": verdicts},
    )


def _rule(rule: str) -> dict[str, Any]:
    text = rule_text(rule)
    return {
        "id": rule,
        "name": "".join(word.capitalize() for word in rule.split("-")),
        "shortDescription": {"text": text.summary},
        "fullDescription": {"text": text.summary},
        "help": {"text": text.help},
        "defaultConfiguration": {"level": "error"},
        "properties": {"tags": [str(FAULTS[rule])]},
    }


def _artifact(listing: Listing) -> dict[str, Any]:
    return {
        "location": {"uri": uri(listing.path)},
        "hashes": {"sha-256": listing.sha256},
        "length": len(listing.text.encode()),
        "mimeType": "text/plain",
        "encoding": "UTF-8",
    }


def _audit_result(pair: AuditedPair, function: FunctionAudit, finding: Finding) -> dict[str, Any]:
    open_question = finding.outcome is Outcome.UNKNOWN
    stable = "\0".join((finding.rule, pair.phase, function.function, finding.instruction, finding.lane))
    result: dict[str, Any] = {
        "ruleId": finding.rule,
        "kind": "open" if open_question else "fail",
        "level": "none" if open_question else "error",
        "message": {"text": f"{pair.name(function)}: {finding.message}"},
        "locations": [_location(pair.after, finding.post_line, finding.instruction, function.function)],
        "partialFingerprints": {"verilocc/v1": hashlib.sha256(stable.encode()).hexdigest()},
        "properties": {
            "outcome": str(finding.outcome),
            "fault": str(finding.fault),
            "details": list(details(finding)),
            "path": list(finding.path),
            "more": finding.more,
        },
    }
    if finding.rule in RULES:
        result["ruleIndex"] = RULES.index(finding.rule)
    related = list(_related(pair, finding))
    if related:
        result["relatedLocations"] = [{"id": number, **row} for number, row in enumerate(related, 1)]
    flow = list(_flow(pair, finding))
    if finding.path and flow:
        result["codeFlows"] = [
            {"message": {"text": " -> ".join(finding.path)}, "threadFlows": [{"locations": flow}]},
        ]
    return result


def _location(listing: Listing, line: int, text: str, function: str = "", message: str = "") -> dict[str, Any]:
    physical: dict[str, Any] = {"artifactLocation": {"uri": uri(listing.path)}}
    if line:
        physical["region"] = {"startLine": line, **({"snippet": {"text": text}} if text else {})}
    location: dict[str, Any] = {"physicalLocation": physical}
    if function:
        location["logicalLocations"] = [{"name": function, "kind": "function"}]
    if message:
        location["message"] = {"text": message}
    return location


def _facts(finding: Finding) -> Iterator[tuple[str, Fact]]:
    for kind, value in (("expected", finding.expected), ("found", finding.found)):
        for fact in () if value is None else value.facts:
            yield kind, fact
    if finding.lost is not None:
        yield "lost", finding.lost


def _at(pair: AuditedPair, kind: str, fact: Fact) -> dict[str, Any] | None:
    site = fact.site
    return site and _location(pair.listing(site.side), site.line, site.text, message=f"{kind}: {fact.what}")


def _related(pair: AuditedPair, finding: Finding) -> Iterator[dict[str, Any]]:
    if finding.pre_line:
        yield _location(pair.before, finding.pre_line, "", message="the instruction before allocation")
    for kind, fact in _facts(finding):
        location = _at(pair, kind, fact)
        if location is not None:
            yield location


def _flow(pair: AuditedPair, finding: Finding) -> Iterator[dict[str, Any]]:
    """The events of the text after allocation, then the operand."""
    for kind, fact in _facts(finding):
        location = _at(pair, kind, fact)
        if location is not None and fact.site is not None and fact.site.side == "post":
            yield {"location": location, "importance": "essential" if kind == "lost" else "important"}
    if finding.post_line:
        here = _location(pair.after, finding.post_line, finding.instruction, message=finding.message)
        yield {"location": here, "importance": "essential"}
