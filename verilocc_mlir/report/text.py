"""A report as lines for people. It is part of every compile, so nothing that takes long to load is used for it."""

from __future__ import annotations

from collections.abc import Iterator

import click

from smt_verifier.outcome import Outcome
from verilocc_mlir.results.compile import Attempt, CheckFinding, FunctionReport, PhaseReport, Report, Resources

WIDTH = 132
"""Columns of what is no terminal."""
COLOURS = {Outcome.PROVED: "green", Outcome.REFUTED: "red", Outcome.INVALID: "red", Outcome.UNKNOWN: "yellow"}
_HEADS = (
    "\nfunction", "\nphase", "\nallocator", "\ntries", "\nverdict", "\nobligations", "registers\n(greedy)",
    "copies\ngone", "\nleft", "spills\n(greedy)", "waves\n(greedy)", "\nCPU-s",
)  # fmt: skip
_TO_THE_LEFT = {0, 1, 2, 4}
_VERDICT = 4
_LEAST_WIDTH = 8
"""Of the column of names, which is folded where the table is too wide."""
_MAX_FINDINGS = 5


def render(report: Report, width: int = WIDTH) -> str:
    """The table, fallbacks, failures, notes and where the time went.

    Verdicts are in colour, which ``click.echo`` leaves out where the output is no terminal.
    """
    return "\n".join(_lines(report, width))


def _lines(report: Report, width: int) -> Iterator[str]:
    target = " ".join(filter(None, (report.target, report.features)))
    yield f"{report.input} for {target}, {report.llvm}"
    yield from _table(report, width)
    yield from _plans(report)
    for function in report.functions:
        for phase in function.phases:
            yield from _explained(function, phase)
    for part in report.models:
        yield f"model: {part.line()}"
    for field in report.mended:
        yield f"mended: {field}"
    for note in report.notes:
        yield f"note: {note}"
    steps = ", ".join(
        f"{s.name} {s.seconds:.2f}" for s in sorted(report.steps, key=lambda s: -s.seconds) if s.seconds >= 0.005
    )
    yield f"time: {report.cpu_seconds:.2f} CPU-s, {report.wall_seconds:.2f} s elapsed ({steps})"
    without = f" without {', '.join(report.left_out)}, which nobody proves" if report.left_out else ""
    ending = f"; wrote {report.output}{without}" if report.output else "; nothing was written"
    yield _coloured(report.outcome) + ending


def _coloured(outcome: Outcome, width: int = 0) -> str:
    return click.style(f"{outcome}".ljust(width), fg=COLOURS[outcome], bold=COLOURS[outcome] == "red")


def _plans(report: Report) -> list[str]:
    """Under which plan LLVM made what was allocated, and how that was; functions alike on one line."""
    names: dict[tuple[str, str], list[str]] = {}
    for function in report.functions:
        if function.variant:
            names.setdefault((function.plan, function.variant), []).append(function.name)
    whose = "" if len(names) == 1 else "; {}"
    return [f"plan: {plan}, {variant}{whose.format(', '.join(of))}" for (plan, variant), of in names.items()]


def _table(report: Report, width: int) -> Iterator[str]:
    rows = [
        (_row(function, phase, number == 0), phase.outcome)
        for function in report.functions
        for number, phase in enumerate(function.phases)
    ]
    heads = [*zip(*(head.split("\n") for head in _HEADS), strict=True)]
    widths = [max(map(len, column)) for column in zip(*heads, *(cells for cells, _ in rows), strict=True)]
    widths[0] = min(widths[0], max(_LEAST_WIDTH, width - sum(widths[1:]) - 2 * len(widths)))
    for head in heads:
        yield _aligned(head, widths)
    yield " " + "-" * (sum(widths) + 2 * (len(widths) - 1))
    for cells, outcome in rows:
        names = [cells[0][i : i + widths[0]] for i in range(0, len(cells[0]), widths[0])] or [""]
        yield _aligned((names[0], *cells[1:]), widths, outcome)
        yield from (f" {name}" for name in names[1:])
    yield ""


def _aligned(cells: tuple[str, ...], widths: list[int], outcome: Outcome | None = None) -> str:
    """A line of the table; ``outcome`` colours the verdict."""
    aligned = [
        cell.ljust(width) if column in _TO_THE_LEFT else cell.rjust(width)
        for column, (cell, width) in enumerate(zip(cells, widths, strict=True))
    ]
    if outcome is not None:
        aligned[_VERDICT] = _coloured(outcome, widths[_VERDICT])
    return f" {'  '.join(aligned)}".rstrip()


def _row(function: FunctionReport, phase: PhaseReport, first: bool) -> tuple[str, ...]:
    moves = phase.moves
    return (
        function.name if first else "",
        phase.phase.upper(),
        phase.allocator + (" (fallback)" if phase.fallback else ""),
        str(sum(len(attempt.tries) or 1 for attempt in phase.attempts)),
        str(phase.outcome),
        str(phase.obligations),
        _registers(phase.phase, function.resources, function.greedy),
        str(moves.copies_removed),
        str(moves.copies_left),
        _spills(phase, function.resources, function.greedy),
        _waves(phase.phase, function.resources, function.greedy),
        f"{sum(phase.seconds.values()):.2f}",
    )


def _registers(phase: str, ours: Resources | None, greedy: Resources | None) -> str:
    def one(resources: Resources | None) -> str:
        if resources is None:
            return "?"
        if phase == "sgpr":
            return f"{resources.sgprs} S"
        return f"{resources.vgprs} V" + (f" [{resources.agprs} A]" if resources.agprs else "")

    if phase == "wwm":
        return ""
    return f"{one(ours)} ({one(greedy)})"


def _spills(phase: PhaseReport, ours: Resources | None, greedy: Resources | None) -> str:
    """Registers spilled, by LLVM's count; where it has none (device functions), spill instructions of the phase."""

    def one(resources: Resources | None) -> str:
        count = None if resources is None else resources.sgpr_spills if phase.phase == "sgpr" else resources.vgpr_spills
        return "?" if count is None else str(count)

    if ours is None or ours.vgpr_spills is None:
        return f"{phase.moves.saves} ({one(greedy)})"
    return "" if phase.phase == "wwm" else f"{one(ours)} ({one(greedy)})"


def _waves(phase: str, ours: Resources | None, greedy: Resources | None) -> str:
    if phase != "vgpr" or ours is None:
        return ""
    return f"{ours.waves} ({greedy.waves if greedy else '?'})"


def _explained(function: FunctionReport, phase: PhaseReport) -> Iterator[str]:
    where = f"{function.name}, {phase.phase.upper()}"
    for attempt in phase.attempts:
        if attempt.server and attempt is not phase.attempts[-1]:
            whose = "LLVM's" if phase.fallback else "local"
            yield f"remote: {where}: {_told(attempt)}; {whose} allocation instead"
        for number, one in enumerate(attempt.tries, 1):
            for violated in one.refuted[:_MAX_FINDINGS]:
                yield f"refuted: {where}: try {number} of {attempt.server}: {one.allocator}: {violated}"
            if one.nearest:
                yield f"nearest: {where}: try {number} of {attempt.server}: {one.allocator}: {one.nearest}"
    if phase.fallback:
        yield f"fallback: {where}: {phase.allocator}'s allocation instead: {phase.fallback_reason}"
    for attempt in phase.attempts:
        if attempt.outcome is not Outcome.PROVED:
            for line in _failures(attempt):
                yield f"{attempt.outcome}: {where}: {attempt.allocator}: {line}"
        if attempt.nearest is not None:
            yield f"nearest: {where}: {attempt.allocator}: {attempt.nearest}"


def _line(finding: CheckFinding) -> str:
    """The finding, with its kind of fault at the end of the first line."""
    first, newline, rest = finding.message.partition("\n")
    fault = f" [{finding.fault}]" if finding.fault else ""
    return f"{finding.rule}: {first}{fault}{newline}{rest}"


def _told(attempt: Attempt) -> str:
    """Why a server's allocation was not used, its address first."""
    reason = attempt.reason.removeprefix(f"{attempt.server}: ")
    return f"{attempt.server}: its proposal: {reason}" if attempt.proof is not None else f"{attempt.server}: {reason}"


def _failures(attempt: Attempt) -> list[str]:
    verdicts = [v for v in (attempt.proof, attempt.audit) if v is not None]
    findings = [f for v in verdicts for f in v.findings]
    lines = [_line(f) for f in findings[:_MAX_FINDINGS]]
    if len(findings) > _MAX_FINDINGS:
        lines.append(f"and {len(findings) - _MAX_FINDINGS} more in the JSON report")
    return lines
