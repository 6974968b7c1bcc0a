"""An audit as one HTML file that needs nothing else: verdicts, and both texts side by side around each finding."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from pathlib import Path
from string import Template

from smt_verifier.audit import Finding, FunctionAudit
from smt_verifier.audit.core.report import Fact
from smt_verifier.audit.wording import path_text
from verilocc_mlir.report.audit.rules import rule_text
from verilocc_mlir.results.audit import AuditedPair, AuditRun, Listing

_CONTEXT = 5
"""Lines shown before and after each line that matters."""
_GAP = 3
"""Fewer lines than this between two excerpts are shown instead of left out."""
_OPEN = 3
"""Findings of a function that are unfolded from the start."""


def to_html(run: AuditRun) -> str:
    """The whole page. Everything that comes from the input is escaped; there is no script and no outside resource."""
    page = Template(Path(__file__).with_name("page.html").read_text(encoding="utf-8"))
    source = f"{run.source.path}, {run.llvm}, {run.allocator} allocation, " if run.source else ""
    return page.substitute(
        title=escape(f"audit: {run.outcome}"),
        outcome=escape(str(run.outcome)),
        subtitle=escape(f"{source}{run.target}, verilocc {run.version}"),
        verdicts="".join(_verdict(p, f) for p in run.pairs for f in p.report.functions),
        notes="".join(f"<p class=note>{escape(note)}</p>" for note in run.notes),
        functions="".join(_function(p, f) for p in run.pairs for f in p.report.functions if f.findings),
        files="".join(_file(t) for p in run.pairs for t in (p.before, p.after)),
    )


def _anchor(pair: AuditedPair, function: FunctionAudit) -> str:
    return escape(f"f-{pair.phase}-{function.function}", quote=True)


def _verdict(pair: AuditedPair, function: FunctionAudit) -> str:
    outcome = str(function.outcome)
    moves = function.moves
    name = escape(function.function)
    if function.findings:
        name = f'<a href="#{_anchor(pair, function)}">{name}</a>'
    cells = [
        name,
        escape(pair.label),
        f"<span class={outcome}>{outcome}</span>",
        "<br>".join(str(kind) for kind in function.faults),
        str(function.obligations),
        str(function.goals.literal),
        str(function.goals.decided),
        str(len(function.findings)),
        f"{moves.copies_before} → {moves.copies_after}",
        str(moves.saves),
        str(moves.reloads),
        str(moves.rematerialised),
    ]
    return "<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>\n"


def _function(pair: AuditedPair, function: FunctionAudit) -> str:
    findings = "".join(_finding(pair, f, number < _OPEN) for number, f in enumerate(function.findings))
    return f'<section id="{_anchor(pair, function)}"><h2>{escape(pair.name(function))}</h2>\n{findings}</section>\n'


def _finding(pair: AuditedPair, finding: Finding, unfolded: bool) -> str:
    rule = rule_text(finding.rule)
    head = (
        f"<summary><span class={finding.outcome}>{escape(finding.rule)}</span> {escape(finding.message)} "
        f"<span class=fault>{finding.fault}</span></summary>"
        f"<p class=help>{escape(rule.summary)} {escape(rule.help)}</p>"
    )
    sides = "".join(_side(pair.listing(side), side, finding) for side in ("pre", "post"))
    is_open = " open" if unfolded else ""
    return f"<details{is_open}>{head}<dl>{''.join(_facts(finding))}</dl><div class=sides>{sides}</div></details>\n"


def _facts(finding: Finding) -> Iterator[str]:
    if finding.operand is not None:
        lane = f", {escape(finding.lane)}" if finding.lane else ""
        operand = finding.operand
        yield _row(
            "operand",
            f"{operand.number}: <code>{escape(operand.post)}</code>, "
            f"before allocation <code>{escape(operand.pre)}</code>{lane}",
        )
    for kind, value in (("expected", finding.expected), ("found", finding.found)):
        for fact in () if value is None else value.facts:
            yield _row(kind, _fact(fact))
    if finding.lost is not None:
        yield _row("lost", _fact(finding.lost))
    if finding.elsewhere:
        yield _row("it is in", escape(", ".join(finding.elsewhere)))
    if finding.path:
        yield _row("path", escape(path_text(finding.path)))
    if finding.more:
        yield _row("also wrong", f"{finding.more} more")


def _row(kind: str, text: str) -> str:
    return f"<dt class={kind.split()[0]}>{escape(kind)}</dt><dd>{text}</dd>"


def _fact(fact: Fact) -> str:
    if fact.site is None:
        return escape(fact.what)
    site = fact.site
    return f"{escape(fact.what)} <code>{escape(site.text)}</code> ({escape(site.label)}, {site.side} line {site.line})"


def _side(listing: Listing, side: str, finding: Finding) -> str:
    """The lines around everything that the finding names in one text."""
    marks = _marks(side, finding)
    title = f"{'before' if side == 'pre' else 'after'} allocation: {listing.path}"
    if not marks:
        return f"<div><h3>{escape(title)}</h3><p class=help>nothing of it</p></div>"
    line_numbers = sorted({n for line in marks for n in range(line - _CONTEXT, line + _CONTEXT + 1)})
    rows: list[str] = []
    last = 0
    for number in (n for n in line_numbers if 1 <= n <= len(listing.lines)):
        if last and number > last + _GAP:
            rows.append("<span class=gap>…</span>\n")
            last = number - 1
        for line_number in range(last + 1 if last else number, number + 1):
            kind = marks.get(line_number, "")
            text = f"{line_number:6} {escape(listing.lines[line_number - 1])}"
            rows.append(f'<span class="line {kind}" title="{kind}">{text}</span>\n' if kind else f"{text}\n")
        last = number
    return f"<div><h3>{escape(title)}</h3><pre>{''.join(rows)}</pre></div>"


def _marks(side: str, finding: Finding) -> dict[int, str]:
    """Lines of one text that the finding names, with what they are."""
    marks: dict[int, str] = {}
    facts = [("expected", f) for f in (finding.expected.facts if finding.expected else ())]
    facts += [("found", f) for f in (finding.found.facts if finding.found else ())]
    facts += [("lost", finding.lost)] if finding.lost else []
    for kind, fact in facts:
        if fact.site is not None and fact.site.side == side and fact.site.line:
            marks[fact.site.line] = kind
    here = finding.pre_line if side == "pre" else finding.post_line
    if here:
        marks[here] = "here"
    return marks


def _file(listing: Listing) -> str:
    numbered = "\n".join(f"{n:6} {escape(line)}" for n, line in enumerate(listing.lines, 1))
    title = f"{escape(listing.path)} <span class=hash>sha256 {listing.sha256}</span>"
    return f"<details><summary>{title}</summary><pre>{numbered}</pre></details>\n"
