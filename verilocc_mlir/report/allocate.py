"""The report as a table for people."""

from __future__ import annotations

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from verilocc_mlir.report.text import STYLES
from verilocc_mlir.results.allocate import AllocatedFunction, AllocateReport


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
