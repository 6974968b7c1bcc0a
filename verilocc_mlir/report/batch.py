"""A batch for people: one line an input as it is ready, and a table of counts at the end."""

from __future__ import annotations

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from smt_verifier.outcome import Outcome
from verilocc_mlir.report.text import STYLES
from verilocc_mlir.results.batch import BatchItem, BatchReport, Origin

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
