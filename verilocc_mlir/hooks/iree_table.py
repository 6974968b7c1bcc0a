"""A module's kernels as a table for people."""

from __future__ import annotations

import re
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from verilocc_mlir.hooks.iree_result import IreeKernel, IreeResult, total_cpu_seconds
from verilocc_mlir.toolchain.metadata import read_code_object

_COLUMNS = (("kernel", "left"), ("verdict", "left"), ("obligations", "right"), ("allocated by", "left"))
_NUMBERS = ("VGPRs\n(greedy)", "[IREE's]\n", "SGPRs\n(greedy)", "spills\n(greedy)", "waves\n(greedy)", "CPU-s")


def print_result(result: IreeResult, output: str, to: Console) -> None:
    """Print the table, what was left to IREE or to LLVM and why, and the counts.

    Args:
        output: where the file was written; ``""`` if it was not.
    """
    to.print(Text(f"{result.input} for {result.target}, IREE {result.iree}, {result.llvm}"))
    if result.kernels:
        to.print(kernel_table(result.kernels))
    for kernel in result.kernels:
        for fallback in kernel.fallbacks:
            to.print(Text(f"fallback: {fallback}: LLVM's allocation instead, proved"))
        if not kernel.proved:
            to.print(Text(f"left as IREE made it: {kernel.executable}: {kernel.reason}"))
    to.print(Text(summary(result) + (f"; wrote {output}" if output else "; nothing was written")))


def summary(result: IreeResult) -> str:
    """The counts in a line."""
    if not result.kernels:
        return "the module has no GPU kernel"
    counts = result.counts()
    text = f"{counts['proved']} of {counts['kernels']} kernels proved and found in the .vmfb byte for byte"
    if counts["with_fallback"]:
        text += f", {counts['with_fallback']} of them with LLVM's allocation in a phase"
    if counts["left"]:
        text += f"; {counts['left']} left as IREE made them, unproved"
    return f"{text} ({total_cpu_seconds(result.kernels):.1f} CPU-s, {result.wall_seconds:.1f} s with IREE)"


def kernel_table(kernels: tuple[IreeKernel, ...]) -> Table:
    """One line a kernel; registers and waves beside those of LLVM's greedy allocator, and IREE's own VGPRs."""
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for name, justify in _COLUMNS:
        table.add_column(name, justify="right" if justify == "right" else "left", overflow="fold")
    for name in _NUMBERS:
        table.add_column(Text(name), justify="right", no_wrap=True)
    for kernel in kernels:
        table.add_row(*(Text(cell) for cell in _row(kernel)))
    return table


def _row(kernel: IreeKernel) -> tuple[str, ...]:
    # "main$async_" stands before all of them.
    name = ", ".join(re.sub(r"^.*?\$async_(?=dispatch_)", "", function) for function in kernel.functions)
    own = read_code_object(kernel.own).kernels.values()
    theirs = f"[{max((k.vgpr_count for k in own), default=0)}]"
    if not kernel.proved or not kernel.report:
        return (name, kernel.report.get("outcome", "left"), "", "IREE", "", theirs, "", "", "", "")
    function = next(f for f in kernel.report["functions"] if f["kind"] == "kernel")
    ours, greedy = function["resources"], function["greedy"]
    return (
        name,
        "proved",
        str(sum(phase["obligations"] for phase in kernel.phases)),
        _allocators(kernel),
        _pair(ours, greedy, "vgprs"),
        theirs,
        _pair(ours, greedy, "sgprs"),
        _pair(ours, greedy, "vgpr_spills"),
        _pair(ours, greedy, "waves"),
        f"{kernel.report['time']['cpu_seconds']:.1f}",
    )


def _allocators(kernel: IreeKernel) -> str:
    names = {phase["allocator"] for phase in kernel.phases if phase["phase"] != "wwm"}
    if len(names) == 1:
        return names.pop()
    return ", ".join(f"{p['phase'].upper()} {p['allocator']}" for p in kernel.phases if p["phase"] != "wwm")


def _pair(ours: dict[str, Any] | None, greedy: dict[str, Any] | None, key: str) -> str:
    """Our value, and LLVM's in brackets; ``?`` where there is none."""
    mine, other = ("?" if entry is None else entry[key] for entry in (ours, greedy))
    return f"{mine} ({other})"
