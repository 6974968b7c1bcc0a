"""Costs and comparisons as tables for people."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from verilocc_mlir.cost.compare import TITLES, Comparison, latency_parts, percent
from verilocc_mlir.cost.model import COUNTS, MODELLED, CostedFile, Count, KernelCost

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
        to.print(_table(["cycles of a wave"], [(title, [text]) for title, text in _cycles(cost)]))
        to.print(_table(["in the code", "executed"], [(title, _pair(count)) for title, count in _counts(cost)]))
        to.print(_table([""], [(title, [text]) for title, text in _facts(cost)]))
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
        to.print(_table(["A", "B", "%"], [*_compared(row.first, row.second)]))
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


def _table(heads: Sequence[str], rows: Sequence[tuple[str, Sequence[str]]]) -> Table:
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
