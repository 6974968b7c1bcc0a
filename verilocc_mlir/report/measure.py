"""Measurements as a table for people."""

from __future__ import annotations

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from verilocc_mlir.results.measure import Clocks, Interval, Measurement, MeasureRun, Sameness, Verdict

_STYLES = {
    Verdict.FASTER: "green",
    Verdict.SLOWER: "yellow",
    Verdict.ALIKE: "",
    Verdict.UNDECIDED: "yellow",
    Verdict.DIFFERENT: "bold red",
}
_SAMENESS = {
    Sameness.EQUAL: "results equal, bit for bit",
    Sameness.DIFFERENT: "RESULTS DIFFER, so nothing was timed",
    Sameness.UNSTEADY: "results not comparable",
    Sameness.NOT_COMPARED: "results not compared",
}


def print_measurements(run: MeasureRun, to: Console) -> None:
    """Print what was run on what, a line for each candidate, and what whoever reads it must know."""
    for one in run.measurements[:1]:
        device = one.device
        about = ", ".join(filter(None, (device.architecture, device.software)))
        to.print(Text(f"{device.driver}: {device.name}{f' ({about})' if about else ''}"))
        to.print(Text(one.workload))
        to.print(Text(f"base: {one.base.name} {one.base.sha256[:12]}"))
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 2, 0, 0))
    for name, justify in (
        ("candidate", "left"), ("base, ms", "right"), ("candidate, ms", "right"),
        ("ratio", "right"), ("rounds", "right"), ("verdict", "left"),
    ):  # fmt: skip
        table.add_column(name, justify="right" if justify == "right" else "left", overflow="fold")
    for one in run.measurements:
        table.add_row(
            Text(one.candidate.name), _interval(one.base_ms), _interval(one.candidate_ms), _interval(one.ratio),
            Text(str(len(one.rounds))), Text(one.verdict.value, _STYLES[one.verdict]),
        )  # fmt: skip
    to.print(table)
    for one in run.measurements:
        for line in _lines(one, known=one.asked in run.known):
            to.print(Text(line))
    for note in run.notes:
        to.print(Text(f"note: {note}"))


def _lines(one: Measurement, *, known: bool) -> list[str]:
    why = f": {one.why}" if one.why else ""
    lines = [f"{one.candidate.name}: {_SAMENESS[one.sameness]}{why}"]
    clocks = [_clocks(clock) for clock in (one.before, one.after)]
    if any(clocks):
        lines.append(f"{one.candidate.name}: clocks {clocks[0]} before, {clocks[1]} after")
    if known:
        lines.append(f"{one.candidate.name}: from the journal, measured {one.at}")
    return lines


def _interval(one: Interval | None) -> Text:
    """``1.234 [1.230, 1.241]``; four digits that count."""
    return Text("-" if one is None else f"{one.median:.4g} [{one.low:.4g}, {one.high:.4g}]")


def _clocks(clocks: Clocks) -> str:
    figures = (("core", clocks.core_mhz), ("memory", clocks.memory_mhz))
    return ", ".join(f"{name} {value:.0f} MHz" for name, value in figures if value is not None)
