"""An audit as SARIF 2.1.0 (OASIS, sarif-v2.1.0-os), for editors and code scanning.

One rule of the tool for each rule of the audit; a result for each finding, located in the text after allocation, with
the text before it and the other instructions as related locations. The code flow goes from where the expected value
was made, over what happened to it, to the operand that reads something else. UNKNOWN is a result of kind ``open``:
evaluated, with too little information to decide.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

from smt_verifier.audit import RULES, Finding, FunctionAudit
from smt_verifier.audit.core.report import FAULTS, Fact
from smt_verifier.audit.wording import details
from smt_verifier.outcome import Outcome
from verilocc_mlir.report.audit.rules import rule_text
from verilocc_mlir.report.sarif import as_text, log, uri
from verilocc_mlir.results.audit import AuditedPair, AuditRun, Listing


def to_sarif(run: AuditRun) -> str:
    return as_text(to_sarif_data(run))


def to_sarif_data(run: AuditRun) -> dict[str, Any]:
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
        results=[_result(p, f, finding) for p, f, finding in run.findings()],
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


def _result(pair: AuditedPair, function: FunctionAudit, finding: Finding) -> dict[str, Any]:
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
