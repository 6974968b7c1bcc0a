"""A gate's result for a terminal and a log."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from verilocc_mlir.results.gate import Compared, GateRun, Status

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
