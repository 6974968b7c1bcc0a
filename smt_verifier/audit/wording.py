"""Findings as text for people."""

from __future__ import annotations

from collections.abc import Iterator

from smt_verifier.audit.core.report import Fact, Finding, Site


def render(finding: Finding) -> str:
    """``rule: message``, the place and the instruction, and the explanation, one fact a line."""
    where = (
        f" [block {finding.block}, pre line {finding.pre_line}, post line {finding.post_line}]"
        if finding.block >= 0
        else ""
    )
    lines = [f"{finding.rule}: {finding.message}{where}"]
    if finding.instruction:
        lines.append(f"    {finding.instruction}")
    lines += [f"    {line}" for line in details(finding)]
    return "\n".join(lines)


def details(finding: Finding) -> Iterator[str]:
    """The explanation, a line for each fact."""
    if finding.operand is not None:
        operand = finding.operand
        lane = f", {finding.lane}" if finding.lane else ""
        yield f"operand {operand.number}: {operand.post}, before allocation {operand.pre}{lane}"
    if finding.expected is not None:
        for fact in finding.expected.facts:
            yield f"expected: {fact_text(fact)}"
    if finding.found is not None:
        for fact in finding.found.facts:
            yield f"found: {fact_text(fact)}"
    if finding.lost is not None:
        yield f"lost: {fact_text(finding.lost)}"
    if finding.elsewhere:
        yield f"the expected value is in {', '.join(finding.elsewhere)} there"
    if finding.path:
        yield f"path: {path_text(finding.path)}"
    if finding.more:
        yield f"and {finding.more} more {'use' if finding.more == 1 else 'uses'} that this makes wrong"


def fact_text(fact: Fact) -> str:
    """``what: site``."""
    return f"{fact.what}: {site_text(fact.site)}" if fact.site else fact.what


def site_text(site: Site) -> str:
    """``post line 12, bb.3: the instruction``."""
    return f"{site.side} line {site.line}, {site.label}: {site.text}"


def path_text(path: tuple[str, ...]) -> str:
    """``bb.1 -> bb.3 -> bb.1``, or ``within bb.1``."""
    return " -> ".join(path) if len(path) != 1 else f"within {''.join(path)}"
