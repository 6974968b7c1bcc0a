"""What ``verilocc audit`` answers, for people: as text at a terminal, and as one HTML file that needs nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from html import escape
from pathlib import Path
from string import Template

from smt_verifier.audit import Finding, FunctionAudit
from smt_verifier.audit.core.report import Fact
from smt_verifier.audit.wording import details, path_text
from smt_verifier.outcome import Outcome
from verilocc_mlir.results.audit import AuditedPair, AuditRun, Listing


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
                options = "".join(f" --{name}" for name in function.premises)
                told = f", told{options}" if options else ""
                yield f"  certificate: accepted by {names}, {function.operands} operands compared{told}"
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


# An audit as one HTML file that needs nothing else: verdicts, and both texts side by side around each finding.


_CONTEXT = 5
"""Lines shown before and after each line that matters."""
_GAP = 3
"""Fewer lines than this between two excerpts are shown instead of left out."""
_OPEN = 3
"""Findings of a function that are unfolded from the start."""


def to_html(run: AuditRun) -> str:
    """The whole page. Everything that comes from the input is escaped; there is no script and no outside resource."""
    page = Template(Path(__file__).with_name("audit.html").read_text(encoding="utf-8"))
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
    findings = "".join(_finding_html(pair, f, number < _OPEN) for number, f in enumerate(function.findings))
    return f'<section id="{_anchor(pair, function)}"><h2>{escape(pair.name(function))}</h2>\n{findings}</section>\n'


def _finding_html(pair: AuditedPair, finding: Finding, unfolded: bool) -> str:
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
    lines = listing.lines
    line_numbers = sorted({n for line in marks for n in range(line - _CONTEXT, line + _CONTEXT + 1)})
    rows: list[str] = []
    last = 0
    for number in (n for n in line_numbers if 1 <= n <= len(lines)):
        if last and number > last + _GAP:
            rows.append("<span class=gap>…</span>\n")
            last = number - 1
        for line_number in range(last + 1 if last else number, number + 1):
            kind = marks.get(line_number, "")
            text = f"{line_number:6} {escape(lines[line_number - 1])}"
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


# What each rule of the audit means and what to do when it is violated, for reports.


@dataclass(frozen=True, slots=True)
class RuleText:
    """``summary``: what must hold. ``help``: what usually breaks it, and where to look."""

    summary: str
    help: str


RULE_TEXTS: dict[str, RuleText] = {
    "certificate": RuleText(
        "Each checker at hand accepts a certificate of the proof.",
        "Not proved and not refuted: the search found no fault, but its certificate is refused by the rule named. "
        "Report both texts: either the search is wrong, or the checker does not follow this code yet.",
    ),
    "value": RuleText(
        "Every operand holds, in every lane, the value it held before allocation.",
        "Look for a copy, reload or rematerialised instruction that is missing, stands on the wrong path, or moves "
        "another register or spill slot; for a result written over a value that is still needed; or for a vector move "
        "that stands where EXEC is narrower than where the value is read.",
    ),
    "inactive-lanes": RuleText(
        "What an instruction reads of threads that are not active (matrix operations, v_readlane) is still there.",
        "Not proved and not refuted: LLVM keeps such lanes only as far as it takes the value to be live. Compare both "
        "texts by hand, or keep the instruction out of divergent code.",
    ),
    "path-by-path": RuleText(
        "The text after allocation is right on every path as if EXEC did not exist, not only for each thread.",
        "LLVM's later passes reason so: they forward a COPY that waiting threads do not execute over a write of EXEC. "
        "Move the copy behind the write of EXEC, or keep the register's value on that path.",
    ),
    "undef-flag": RuleText(
        "An operand marked undef had no defined value before allocation.",
        "Later passes drop what an undef operand reads. Remove the flag, or name the value's register.",
    ),
    "kill-flag": RuleText(
        "A register marked killed is not read again before it is written.",
        "Later passes reuse a killed register. Remove the flag, or the later read.",
    ),
    "dead-flag": RuleText(
        "A result marked dead is not read.", "Later passes reuse a dead register. Remove the flag, or the read."
    ),
    "live-in": RuleText(
        "A register that a block reads first is declared live-in there.",
        "Add it to the block's liveins, or find out why the block reads a register that nobody wrote for it.",
    ),
    "early-clobber": RuleText(
        "A result that is written before the operands are read shares no register with them.",
        "Give the early-clobber result a register of its own.",
    ),
    "instruction-sequence": RuleText(
        "Both sides execute the same instructions in the same order, but for moves and repeated pure ones.",
        "An instruction was added, dropped, moved or replaced. An allocator may add copies, spill code and "
        "rematerialised instructions only.",
    ),
    "instruction-flags": RuleText("Instruction flags are what they were.", "Restore the flags (nofpexcept, nsw, …)."),
    "memory-operands": RuleText("Memory operands are what they were.", "Restore what stands after '::'."),
    "bundle": RuleText("Bundles begin and end where they did.", "Restore the braces."),
    "operands": RuleText(
        "Operands that are not allocated registers are what they were.",
        "An immediate, a symbol, a branch target or the number of operands changed.",
    ),
    "fixed-register": RuleText(
        "Physical registers that stood in the text before allocation are what they were.",
        "Arguments, results, calls and special registers are not the allocator's to choose.",
    ),
    "tied-operand": RuleText(
        "A use that is tied to a definition has the same register.",
        "Two-address forms read and write one register: copy the value there first.",
    ),
    "width": RuleText("A register has as many lanes as the operand it stands for.", "Use a tuple of the same width."),
    "register-class": RuleText(
        "A register is a member of the operand's class, alignment included.",
        "gfx90a and its like want even-aligned vector tuples; scalar tuples of 64 bits are even, wider ones multiples "
        "of four; some operands take AGPRs or VGPRs only.",
    ),
    "reserved-register": RuleText(
        "Code of the allocator writes only registers that this function may allocate.",
        "Reserved registers, the stack pointer, and registers beyond the function's budget (attributes such as "
        "amdgpu-num-vgpr and amdgpu-waves-per-eu) are not to be used.",
    ),
    "overlapping-definitions": RuleText(
        "No register is defined twice by one instruction.",
        "Give the results of the instruction registers of their own.",
    ),
    "spill-slot": RuleText(
        "Spill code uses slots that the allocator made, within their bounds, through the function's stack pointer.",
        "Compare the slot's row in stack: (size, type spill-slot), the offset, the memory operand and the base.",
    ),
    "callee-saved": RuleText(
        "At a return, registers that the convention preserves hold again what they held at function entry.",
        "Save the register before it is written and restore it on every path to a return, or use another.",
    ),
    "call-mask": RuleText(
        "A function leaves alone what the masks of its calls say it keeps beyond its calling convention.",
        "Give the value another register, or leave the register out of the calls' CustomRegMask.",
    ),
    "control-flow": RuleText(
        "Blocks and their successors are what they were.", "Allocation must not add, drop or reorder blocks."
    ),
    "header": RuleText(
        "The function's header is what it was, but for what allocation fills in.",
        "Compare the two texts above 'body:'; INVALID also where a function is missing on one side.",
    ),
    "relation": RuleText(
        "Where paths meet, both sides can be related.",
        "The audit could not relate both sides at a block's start. This is a limit of the audit, not a counterexample.",
    ),
    "solver": RuleText(
        "The solver decides every obligation within its limits.",
        "A time or memory limit was hit, or the solver failed: raise --solver-seconds or --solver-memory.",
    ),
    "undefined-input": RuleText(
        "An instruction that reads an undefined register is executed once, or its results are not compared.",
        "It was repeated, and each execution may give another value: see whether two uses of its result must agree.",
    ),
    "unsupported": RuleText(
        "The code is within what the audit models.",
        "The message names what is not modelled; docs/trust/audit.md lists what is.",
    ),
}


def rule_text(rule: str) -> RuleText:
    """The texts of a rule; a rule without texts stands for itself."""
    return RULE_TEXTS.get(rule) or RuleText(rule, rule)
