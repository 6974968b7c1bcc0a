"""A gate's result and a hunt's, as text and as Markdown."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from verilocc_mlir.results.gate import Compared, GateRun, Status
from verilocc_mlir.results.hunt import Group, HuntReport, Kind, Reduced

# The report of one group, and the summary of all.


_TITLES = {
    Kind.REFUTED: "wrong register allocation",
    Kind.REJECTED: "LLVM rejects the text it has allocated",
    Kind.CRASH: "crash in register allocation",
}
_LONGEST = 400
"""Lines of a text that a report shows; longer ones are in their files only."""


def folder_name(group: Group) -> str:
    """``refuted-fast-value-lost-at-COPY-of-lanes``."""
    words = re.sub(r"[^A-Za-z0-9_]+", "-", f"{group.kind.value} {group.regalloc} {group.cause}")
    return words.strip("-")[:100].rstrip("-")


def group_report(group: Group, reduced: Reduced | str, llvm: str) -> str:
    """The group's report.

    Args:
        reduced: its example made small, or why there is none.
    """
    case, suspect = group.example.case, group.suspect
    variant = case.variant if isinstance(reduced, str) else reduced.variant
    lines = [
        f"# AMDGPU, {group.regalloc} allocator, {case.cpu}: {_TITLES[group.kind]} ({group.cause})",
        "",
        f"* {llvm}",
        f"* phase: {suspect.phase}; options: {' '.join(variant.options) or 'none'}; allocator: {variant.regalloc}",
        f"* seen in {group.cases} cases: {_counted(group.variants)}",
        f"* targets: {_counted(group.targets)}",
        f"* first seen in `{case.path.rpartition('/')[2]}`, function `{suspect.function or '?'}`, "
        f"variant `{case.variant.name}`",
        "",
        "## What is wrong",
        "",
        "```",
        suspect.message,
        "```",
        "",
    ]
    if isinstance(reduced, str):
        return "\n".join([*lines, f"Not reduced: {reduced}.", ""])
    verifier = f"`{reduced.verifier}`" if reduced.verifier else "nothing"
    lines += [
        f"* `-verify-machineinstrs` on the reduced text says: {verifier}",
        f"* {reduced.plainly}",
        "",
        "## To reproduce",
        "",
        *_block("sh", _command(reduced)),
        *_text("before.mir", reduced.given),
        *_text("after.mir", reduced.after),
        "## What is said of the reduced text",
        "",
        *_block("", reduced.report[:4000]),
        f"`original.before.mir` and `original.after.mir` are the texts it was reduced from, in {reduced.steps} steps.",
        "",
    ]
    return "\n".join(lines)


def summary(report: HuntReport, folders: Sequence[str]) -> str:
    """Counts, and the groups with their folders."""
    counts = report.counts()
    lines = [
        "# Hunt",
        "",
        f"{report.llvm}: {counts['inputs']} inputs, {counts['cases']} cases, {counts['phases']} phases, "
        f"{counts['proved']} of them proved; {counts['cpu_hours']} CPU hours; {report.waiting} cases are left.",
        "",
        "| kind | allocator | cause | cases | variants | folder |",
        "|---|---|---|---|---|---|",
    ]
    for group, folder in zip(report.groups, folders, strict=True):
        variants = ", ".join(name for name, _ in group.variants[:4])
        lines.append(
            f"| {group.kind.value} | {group.regalloc} | {group.cause} | {group.cases} | {variants} | {folder} |"
        )
    lines += ["", "| no fault, by reason | phases |", "|---|---|"]
    lines += [f"| {reason} | {number} |" for reason, number in counts["by_reason"].items()]
    return "\n".join(lines) + "\n"


def _command(reduced: Reduced) -> str:
    options = " ".join(reduced.variant.options)
    return reduced.command or f"# in the LLVM of Triton's package, from before.mir on; options: {options or 'none'}"


def _text(name: str, text: str) -> list[str]:
    if not text:
        return []
    if text.count("\n") > _LONGEST:
        return [f"`{name}` has {text.count(chr(10))} lines.", ""]
    return [f"`{name}`:", "", *_block("", text)]


def _block(language: str, text: str) -> list[str]:
    return [f"```{language}", text.rstrip("\n"), "```", ""]


def _counted(pairs: Sequence[tuple[str, int]]) -> str:
    return ", ".join(f"{name} ({number})" for name, number in pairs)


# A gate's result for a terminal and a log.


_WIDTH = max(len(status.value) for status in Status)


def to_text(run: GateRun) -> str:
    """One line for each kernel that differs, the gravest first, then the counts."""
    lines = [_line(row, run.fails(row)) for row in run.rows if row.status is not Status.SAME]
    notes = [f"note: {note}" for note in run.notes]
    return "\n".join([*lines, *notes, f"{run.baseline}: {run.summary}", _verdict(run)]) + "\n"


def _verdict(run: GateRun) -> str:
    if run.updated:
        return f"wrote {run.baseline}"
    return "the gate fails" if run.exit_code else "nothing is worse than the tolerances allow"


def _line(row: Compared, failing: bool) -> str:
    changes = ", ".join(f"{change}{' (worse)' * change.worse}" for change in row.changes)
    where = f" [{row.now.path}]" if row.now is not None and failing else ""
    return f"{row.status.value:{_WIDTH}}  {row.kernel.title}{': ' * bool(changes)}{changes}{where}"


# A gate's result as a comment on a pull request (GitHub's Markdown).


_SHOWN = {"vgprs": "VGPRs", "sgprs": "SGPRs", "waves": "Waves", "scratch_bytes": "Scratch", "lds_bytes": "LDS"}


def to_markdown(run: GateRun) -> str:
    """A verdict, a table of what makes the gate fail, and one of everything else that differs, folded."""
    failing = [row for row in run.rows if run.fails(row)]
    others = [row for row in run.rows if not run.fails(row) and row.status is not Status.SAME]
    title = f"{len(failing)} of {len(run.rows)} kernels fail" if failing else "nothing is worse"
    lines = [f"### Kernels: {title}", "", f"{run.summary[:1].upper()}{run.summary[1:]}."]
    if failing:
        lines += ["", *_table(failing)]
    if others:
        lines += [
            "",
            f"<details><summary>{len(others)} more that differ</summary>",
            "",
            *_table(others),
            "",
            "</details>",
        ]
    lines += [f"\n{note}." for note in run.notes]
    return "\n".join(lines) + "\n"


def _table(rows: Iterable[Compared]) -> Iterator[str]:
    yield f"| Kernel | Target | | {' | '.join(_SHOWN.values())} | Also |"
    yield f"|---|---|---|{'---:|' * len(_SHOWN)}---|"
    for row in rows:
        cells = [_code(row.kernel.demangled), row.kernel.target, row.status.value]
        cells += [_figure(row, figure) for figure in _SHOWN]
        also = [str(change) for change in row.changes if change.figure not in _SHOWN]
        yield f"| {' | '.join([*cells, ', '.join(also)])} |"


def _figure(row: Compared, figure: str) -> str:
    change = next((c for c in row.changes if c.figure == figure), None)
    if change is not None:
        text = f"{change.before} → {change.now}"
        return f"**{text}**" if change.worse else text
    value = getattr(row.kernel, figure)
    return "" if value is None else str(value)


def _code(name: str) -> str:
    """As code; a table cell ends at a bar even there."""
    return "`" + name.replace("`", "'").replace("|", "\\|") + "`"
