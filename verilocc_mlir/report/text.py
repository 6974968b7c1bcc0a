"""A report as a table for people. Only here and in ``cli`` is rich imported."""

from __future__ import annotations

import io
import os
import sys
from typing import TextIO

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from smt_verifier.outcome import Outcome
from verilocc_mlir.results.compile import Attempt, CheckFinding, FunctionReport, PhaseReport, Report, Resources

_PLAIN_WIDTH = 132
STYLES = {Outcome.PROVED: "green", Outcome.REFUTED: "bold red", Outcome.INVALID: "bold red", Outcome.UNKNOWN: "yellow"}
_MAX_FINDINGS = 5


def console(*, stderr: bool = False) -> Console:
    """A console that does not wrap tables at 80 columns when it is not a terminal."""
    stream: TextIO | None = sys.stderr if stderr else sys.stdout
    wide = stream is None or not stream.isatty()
    return _Console(file=stream, width=_PLAIN_WIDTH if wide else None, highlight=False, soft_wrap=False)


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """Whoever read has enough. That is no verdict, and no reason to end the program."""
        self.quiet = True
        os.dup2(os.open(os.devnull, os.O_WRONLY), self.file.fileno())


def print_report(report: Report, to: Console) -> None:
    """Print the table, fallbacks, failures, notes and where the time went."""
    target = " ".join(filter(None, (report.target, report.features)))
    to.print(Text(f"{report.input} for {target}, {report.llvm}"))
    to.print(_table(report))
    for line in _plans(report):
        to.print(Text(line))
    for function in report.functions:
        for phase in function.phases:
            _explain(function, phase, to)
    for part in report.models:
        to.print(Text(f"model: {part.line()}"))
    for field in report.mended:
        to.print(Text(f"mended: {field}"))
    for note in report.notes:
        to.print(Text(f"note: {note}"))
    steps = ", ".join(
        f"{s.name} {s.seconds:.2f}" for s in sorted(report.steps, key=lambda s: -s.seconds) if s.seconds >= 0.005
    )
    to.print(Text(f"time: {report.cpu_seconds:.2f} CPU-s, {report.wall_seconds:.2f} s elapsed ({steps})"))
    without = f" without {', '.join(report.left_out)}, which nobody proves" if report.left_out else ""
    ending = f"; wrote {report.output}{without}" if report.output else "; nothing was written"
    to.print(Text(f"{report.outcome}", style=STYLES[report.outcome]) + Text(ending, style=""))


def _plans(report: Report) -> list[str]:
    """Under which plan LLVM made what was allocated, and how that was; functions alike on one line."""
    names: dict[tuple[str, str], list[str]] = {}
    for function in report.functions:
        if function.variant:
            names.setdefault((function.plan, function.variant), []).append(function.name)
    whose = "" if len(names) == 1 else "; {}"
    return [f"plan: {plan}, {variant}{whose.format(', '.join(of))}" for (plan, variant), of in names.items()]


def render(report: Report) -> str:
    stream = io.StringIO()
    print_report(report, Console(file=stream, width=_PLAIN_WIDTH, highlight=False, color_system=None))
    return stream.getvalue()


def _table(report: Report) -> Table:
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("function", overflow="fold", min_width=8)
    table.add_column("phase", no_wrap=True)
    table.add_column("allocator", no_wrap=True)
    for head in ("tries", "verdict", "obligations", "registers\n(greedy)", "copies\ngone", "\nleft"):
        table.add_column(head, justify="left" if head == "verdict" else "right", no_wrap=True)
    for head in ("spills\n(greedy)", "waves\n(greedy)", "CPU-s"):
        table.add_column(head, justify="right", no_wrap=True)
    for function in report.functions:
        for number, phase in enumerate(function.phases):
            table.add_row(*_row(function, phase, number == 0))
    return table


def _row(function: FunctionReport, phase: PhaseReport, first: bool) -> tuple[str | Text, ...]:
    moves = phase.moves
    return (
        Text(function.name if first else ""),
        phase.phase.upper(),
        phase.allocator + (" (fallback)" if phase.fallback else ""),
        str(sum(len(attempt.tries) or 1 for attempt in phase.attempts)),
        Text(str(phase.outcome), style=STYLES[phase.outcome]),
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


def _explain(function: FunctionReport, phase: PhaseReport, to: Console) -> None:
    where = f"{function.name}, {phase.phase.upper()}"
    for attempt in phase.attempts:
        if attempt.server and attempt is not phase.attempts[-1]:
            whose = "LLVM's" if phase.fallback else "local"
            to.print(Text(f"remote: {where}: {_told(attempt)}; {whose} allocation instead"))
        for number, one in enumerate(attempt.tries, 1):
            for violated in one.refuted[:_MAX_FINDINGS]:
                to.print(Text(f"refuted: {where}: try {number} of {attempt.server}: {one.allocator}: {violated}"))
            if one.nearest:
                to.print(Text(f"nearest: {where}: try {number} of {attempt.server}: {one.allocator}: {one.nearest}"))
    if phase.fallback:
        to.print(Text(f"fallback: {where}: {phase.allocator}'s allocation instead: {phase.fallback_reason}"))
    for attempt in phase.attempts:
        if attempt.outcome is not Outcome.PROVED:
            for line in _failures(attempt):
                to.print(Text(f"{attempt.outcome}: {where}: {attempt.allocator}: {line}"))
        if attempt.nearest is not None:
            to.print(Text(f"nearest: {where}: {attempt.allocator}: {attempt.nearest}"))


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
