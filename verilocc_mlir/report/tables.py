"""What servers allocated, what a batch did, what codes cost and what was measured, as tables and lines for people."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from typing import TextIO

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from smt_verifier.outcome import Outcome
from verilocc_mlir.cost.compare import TITLES, Comparison, latency_parts, percent
from verilocc_mlir.cost.model import COUNTS, MODELLED, CostedFile, Count, KernelCost
from verilocc_mlir.report.text import COLOURS, WIDTH
from verilocc_mlir.results.allocate import AllocatedFunction, AllocateReport
from verilocc_mlir.results.batch import BatchItem, BatchReport, Origin
from verilocc_mlir.results.measure import Clocks, Interval, Measurement, MeasureRun, Sameness, Verdict

STYLES = {outcome: "bold red" if colour == "red" else colour for outcome, colour in COLOURS.items()}


def console(*, stderr: bool = False) -> Console:
    """A console that does not wrap tables at 80 columns when it is not a terminal."""
    stream: TextIO | None = sys.stderr if stderr else sys.stdout
    wide = stream is None or not stream.isatty()
    return _Console(file=stream, width=WIDTH if wide else None, highlight=False, soft_wrap=False)


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """Whoever read has enough. That is no verdict, and no reason to end the program."""
        self.quiet = True
        os.dup2(os.open(os.devnull, os.O_WRONLY), self.file.fileno())


# Measurements as a table for people.


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


# A batch for people: one line an input as it is ready, and a table of counts at the end.


_ORIGINS = {Origin.COMPILED: "compiled", Origin.CACHE: "from cache", Origin.JOURNAL: "done before"}


def item_line(item: BatchItem) -> str:
    """Verdict, input, target, and how long it took, where it came from, or why it is not proved."""
    how = f"{item.seconds:.2f} s" if item.origin is Origin.COMPILED else _ORIGINS[item.origin]
    target = f" for {item.target}" if item.target else ""
    return f"{item.outcome}: {item.input}{target}: {item.message or how}"


def print_batch(report: BatchReport, to: Console) -> None:
    """Print what was asked, the counts, and the sum in a line."""
    cpu = report.settings.get("cpu")
    to.print(Text(f"{len(report.items)} inputs for {cpu or 'the targets they name'}, {report.llvm}"))
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("verdict", no_wrap=True)
    for head in (*_ORIGINS.values(), "inputs"):
        table.add_column(head, justify="right", no_wrap=True)
    for outcome in Outcome:
        if total := report.count(outcome):
            counts = [str(report.count(outcome, origin)) for origin in _ORIGINS]
            table.add_row(Text(str(outcome), style=STYLES[outcome]), *counts, str(total))
    to.print(table)
    proved = report.count(Outcome.PROVED)
    parts = sum(bool(item.output) for item in report.items if item.outcome is not Outcome.PROVED)
    more = f", {parts} written without functions that nobody proves" if parts else ""
    to.print(Text(f"{proved} of {len(report.items)} proved and written{more}; {report.wall_seconds:.1f} s elapsed"))


# The report as a table for people.


def print_allocated(report: AllocateReport, to: Console) -> None:
    """Print a table for each file, what is not proved, and where the text is."""
    version = f", {report.server_version}" if report.server_version else ""
    to.print(Text(f"{report.phase.upper()} phase, allocated by {report.server}{version}; audited here"))
    for file in report.files:
        if file.functions:
            to.print(_table(file.functions, report.phase, file.input if len(report.files) > 1 else ""))
        for function in file.functions:
            if function.reason:
                to.print(Text(f"{function.outcome}: {function.name}: {function.reason}"))
            for finding in function.findings[1:]:
                to.print(Text(f"{function.outcome}: {function.name}: {finding}"))
        if file.reason:
            to.print(Text(f"{file.outcome}: {file.input}: {file.reason}"))
        ending = f"wrote {file.output}" if file.output else "nothing was written"
        to.print(Text(str(file.outcome), style=STYLES[file.outcome]) + Text(f": {file.input}; {ending}", style=""))


def _table(functions: tuple[AllocatedFunction, ...], phase: str, title: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), title=Text(title) if title else None, title_justify="left")
    table.add_column("function", overflow="fold", min_width=8)
    for head in ("verdict", "allocator"):
        table.add_column(head, no_wrap=True)
    for head in ("obligations", "registers", "attempts"):
        table.add_column(head, justify="right", no_wrap=True)
    for function in functions:
        table.add_row(
            Text(function.name),
            Text(str(function.outcome), style=STYLES[function.outcome]),
            Text(function.allocator or "none"),
            str(function.obligations),
            _registers(function, phase),
            str(len(function.attempts)),
        )
    return table


def _registers(function: AllocatedFunction, phase: str) -> str:
    if not function.allocator:
        return ""
    if phase == "sgpr":
        return f"{function.sgprs} S"
    return f"{function.vgprs} V" + (f" + {function.agprs} A" if function.agprs else "")


# Costs and comparisons as tables for people.


_BOUNDS = {
    "latency": "latency / occupancy",
    "valu": "VALU issue",
    "mfma": "matrix unit",
    "lds": "LDS",
    "memory": "vector memory",
    "salu": "scalar issue",
}
_PARTS = {
    "waits": "  waits for memory",
    "dependencies": "  waits for registers",
    "busy": "  waits for a busy unit",
    "hazards": "  hazard padding",
    "branches": "  taken branches",
    "issue": "  instructions issued",
}
_SOURCES = {
    "ir": "constant in the IR",
    "code": "constant counter in the code",
    "other": "as in the code compared with",
    "default": "not known: the default",
}


def print_costs(file: CostedFile, to: Console) -> None:
    """One table for each function, with what it is bound by and its loops."""
    to.print(Text(_title(file)))
    for cost in file.functions.values():
        to.print()
        to.print(Text(f"{_kind(cost)} {cost.name}: {cost.cycles:.0f} cycles a wave, bound by {_BOUNDS[cost.bound]}"))
        to.print(_cost_table(["cycles of a wave"], [(title, [text]) for title, text in _cycles(cost)]))
        to.print(_cost_table(["in the code", "executed"], [(title, _pair(count)) for title, count in _counts(cost)]))
        to.print(_cost_table([""], [(title, [text]) for title, text in _facts(cost)]))
        for loop in cost.loops:
            name = f" (%{loop.ir_name})" if loop.ir_name else ""
            to.print(Text(f"loop {loop.label}{name}, depth {loop.depth}: {loop.trips} trips, {_SOURCES[loop.source]}"))
    _notes((file,), to)


def print_comparison(first: CostedFile, second: CostedFile, rows: Sequence[Comparison], to: Console) -> None:
    """Both sides of each function, the difference in percent, and what it comes from."""
    to.print(Text(f"A: {_title(first)}"))
    to.print(Text(f"B: {_title(second)}"))
    for row in rows:
        to.print()
        if row.first is None or row.second is None:
            to.print(Text(f"{row.name}: only in {'B' if row.first is None else 'A'}"))
            continue
        to.print(Text(_verdict(row)))
        to.print(_cost_table(["A", "B", "%"], [*_compared(row.first, row.second)]))
    _notes((first, second), to)


def _title(file: CostedFile) -> str:
    return f"{file.path} ({file.kind}) for {file.target}" + (f", {file.llvm}" if file.llvm else "")


def _kind(cost: KernelCost) -> str:
    return "kernel" if cost.is_kernel else "function"


def _verdict(row: Comparison) -> str:
    if row.problem:
        return f"{row.name}: not comparable: {row.problem}"
    if not row.percent or row.judgement is None:
        return f"{row.name}: the same cost"
    word = "dearer" if row.percent > 0 else "cheaper"
    judged = row.judgement
    decided = f"decided by {judged.ground.value}"
    if not judged.by_cycles:
        better = {-1: "A is better", 0: "undecided", 1: "B is better"}[judged.order]
        decided = f"below the error bar of {judged.bar:.0%} by the model; {better}, {decided}"
    return f"{row.name}: B is {abs(row.percent):.1f} % {word}, {decided}: {row.explanation}"


def _cycles(cost: KernelCost) -> Iterator[tuple[str, str]]:
    yield TITLES["unhidden"], f"{cost.unhidden:.0f}"
    for name, value in cost.bounds.items():
        yield _BOUNDS[name], f"{value:.0f}"
    yield "latency of one wave", f"{cost.latency:.0f}"
    for name, value in latency_parts(cost).items():
        yield _PARTS[name], f"{value:.0f}"


def _counts(cost: KernelCost) -> Iterator[tuple[str, Count]]:
    for name, title in COUNTS.items():
        yield title, getattr(cost, name)


def _facts(cost: KernelCost) -> Iterator[tuple[str, str]]:
    yield "occupancy, waves per SIMD", str(cost.occupancy)
    yield "vector registers", f"{cost.vectors}" + (f", {cost.agprs} of them AGPRs" if cost.agprs else "")
    yield "SGPRs", str(cost.sgprs)
    yield "LDS, bytes", str(cost.lds_bytes)
    yield "scratch, bytes", str(cost.scratch_bytes)
    yield "code, bytes", "?" if cost.code_bytes is None else str(cost.code_bytes)


def _pair(count: Count) -> list[str]:
    return [str(count.static), f"{count.weighted:.0f}"]


def _compared(first: KernelCost, second: KernelCost) -> Iterator[tuple[str, list[str]]]:
    yield "cycles of a wave", _sides(first.cycles, second.cycles)
    yield "  " + TITLES["unhidden"], _sides(first.unhidden, second.unhidden)
    for name, title in _BOUNDS.items():
        yield "  " + title, _sides(first.bounds[name], second.bounds[name])
    yield "latency of one wave", _sides(first.latency, second.latency)
    parts = latency_parts(first), latency_parts(second)
    for name, title in _PARTS.items():
        yield title, _sides(parts[0][name], parts[1][name])
    for name, title in COUNTS.items():
        yield title + ", executed", _sides(getattr(first, name).weighted, getattr(second, name).weighted)
    for (title, a), (_, b) in zip(_facts(first), _facts(second), strict=True):
        yield title, [a, b, "" if a == b else "≠"]


def _sides(first: float, second: float) -> list[str]:
    change = percent(first, second)
    return [f"{first:.0f}", f"{second:.0f}", "new" if change is None else f"{change:+.1f}" if change else ""]


def _cost_table(heads: Sequence[str], rows: Sequence[tuple[str, Sequence[str]]]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), show_header=any(heads))
    table.add_column("", no_wrap=True, min_width=26)
    for head in heads:
        table.add_column(head, justify="right", no_wrap=True)
    for title, cells in rows:
        table.add_row(Text(title), *map(Text, cells))
    return table


def _notes(files: Sequence[CostedFile], to: Console) -> None:
    for file in files:
        for note in file.notes:
            to.print(Text(f"note: {file.path}: {note}"))
    to.print(Text(f"{MODELLED}. How well it ranks measured kernels: docs/results/ruler.md"))
