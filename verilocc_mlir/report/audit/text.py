"""An audit for people at a terminal: one verdict a line, then what is wrong, with file and line first."""

from __future__ import annotations

from collections.abc import Iterator

from smt_verifier.audit import Finding
from verilocc_mlir.report.audit.model import AuditedPair, AuditRun


def to_text(run: AuditRun) -> str:
    """The report as plain text with a final line break."""
    return "\n".join(_lines(run)) + "\n"


def _lines(run: AuditRun) -> Iterator[str]:
    if run.source is not None:
        yield f"{run.source.path} for {run.target}, {run.llvm}, {run.allocator} allocation"
    for pair in run.pairs:
        for function in pair.report.functions:
            yield f"{pair.name(function)}: {function.outcome}, {function.obligations} obligations"
            for finding in function.findings:
                yield from _finding(pair, finding)
    for note in run.notes:
        yield f"note: {note}"
    yield str(run.outcome)


def _finding(pair: AuditedPair, finding: Finding) -> Iterator[str]:
    yield f"  {place(pair, finding)}{finding.outcome}: {finding.rule}: {finding.message}"
    if finding.instruction:
        yield f"    {finding.instruction}"
    for line in finding.details():
        yield f"    {line}"


def place(pair: AuditedPair, finding: Finding) -> str:
    """``after.mir:12: `` where the finding has a line, of the text before allocation if it stands only there."""
    if finding.post_line:
        return f"{pair.after.path}:{finding.post_line}: "
    return f"{pair.before.path}:{finding.pre_line}: " if finding.pre_line else ""
