"""A gate's result as SARIF 2.1.0, for code scanning: one result for each figure of a kernel that is worse.

What makes the gate fail is an error, what is tolerated a note. So are new and vanished kernels. The fingerprint is that
of kernel and rule, so that the same finding is known again in the next run.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

from verilocc_mlir.report.sarif import as_text, log, uri
from verilocc_mlir.results.gate import FIGURES, Compared, GateRun, Status

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


def to_sarif(run: GateRun) -> str:
    rules = [{"id": rule, "shortDescription": {"text": text}} for rule, text in _RULES.items()]
    results = [result for row in run.rows for result in _results(row, run)]
    return as_text(log(run.version, rules, int(run.exit_code), results=results))


def _results(row: Compared, run: GateRun) -> Iterator[dict[str, Any]]:
    title = row.kernel.title
    if row.status in (Status.NEW, Status.VANISHED):
        rule = row.status.value
        yield _result(rule, f"{title}: {_RULES[rule]}", run.fails(row), row, run)
    for change in row.changes:
        if change.worse:
            yield _result(change.figure, f"{title}: {change}", change.beyond, row, run)


def _result(rule: str, message: str, failing: bool, row: Compared, run: GateRun) -> dict[str, Any]:
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
