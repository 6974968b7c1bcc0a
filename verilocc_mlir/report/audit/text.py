"""An audit for people at a terminal: one verdict a line, then what is wrong, with file and line first."""

from __future__ import annotations

from collections.abc import Iterator

from smt_verifier.audit import Finding, FunctionAudit
from smt_verifier.audit.wording import details
from smt_verifier.outcome import Outcome
from verilocc_mlir.results.audit import AuditedPair, AuditRun


def to_text(run: AuditRun) -> str:
    return "\n".join(_lines(run)) + "\n"


def _lines(run: AuditRun) -> Iterator[str]:
    if run.llvm:
        source = f"{run.source.path} for " if run.source is not None else ""
        yield f"{source}{run.target}, {run.llvm}, {run.allocator} allocation"
    for pair in run.pairs:
        for function in pair.report.functions:
            yield f"{pair.name(function)}: {verdict(function)}, {function.obligations} obligations{counts(function)}"
            if function.checkers:
                names = " and ".join(function.checkers)
                yield f"  certificate: accepted by {names}, {function.operands} operands compared"
                if function.outcome is Outcome.PROVED and function.goals.total:
                    yield "  search with Z3: proved too"
            elif function.outcome is Outcome.PROVED:
                yield f"  certificate: none, no checker knows {run.target}"
            for finding in function.findings:
                yield from _finding(pair, finding)
    for note in run.notes:
        yield f"note: {note}"
    yield str(run.outcome)


def _finding(pair: AuditedPair, finding: Finding) -> Iterator[str]:
    kind = f" [{finding.fault}]" if finding.outcome is Outcome.REFUTED else ""
    yield f"  {place(pair, finding)}{finding.outcome}: {finding.rule}: {finding.message}{kind}"
    if finding.instruction:
        yield f"    {finding.instruction}"
    for line in details(finding):
        yield f"    {line}"


def verdict(function: FunctionAudit) -> str:
    """``refuted (computes-otherwise, untrue-liveness)``: the outcome, and of a refutation the kinds of fault."""
    kinds = ", ".join(dict.fromkeys(str(f.fault) for f in function.findings if f.outcome is Outcome.REFUTED))
    return f"{function.outcome} ({kinds})" if kinds else str(function.outcome)


def counts(function: FunctionAudit) -> str:
    """Of which kinds a function's obligations are, or ``""`` where no value was asked about."""
    goals = function.goals
    if not goals.total:
        return ""
    return f": {goals.literal} literal goals, {goals.decided} decided, {function.rule_checks} rule checks"


def place(pair: AuditedPair, finding: Finding) -> str:
    """``after.mir:12: `` where the finding has a line, of the text before allocation if it stands only there."""
    if finding.post_line:
        return f"{pair.after.path}:{finding.post_line}: "
    return f"{pair.before.path}:{finding.pre_line}: " if finding.pre_line else ""
