"""A module as an HTML page that needs nothing else: a line for each kernel, ours beside IREE's own."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from verilocc_mlir.hooks.baseline import Standing
from verilocc_mlir.hooks.iree_result import IreeKernel, IreeResult
from verilocc_mlir.hooks.kernels import NATIVE

_COLUMNS = {
    "VGPRs": "vgprs", "SGPRs": "sgprs", "scratch, bytes": "scratch_bytes", "waves": "waves", "cycles": "cycles",
}  # fmt: skip
_STATUS = {
    "proved": "ours, proved",
    NATIVE: "IREE's, proved",
    "declined": "IREE's, ours proved",
    "left": "IREE's, unproved",
}
_BADGES = {"proved": "proved", NATIVE: "proved", "declined": "unknown", "left": "invalid"}


def module_page(result: IreeResult, links: Mapping[str, str]) -> str:
    """The page.

    Args:
        links: by executable, where the page of a kernel is, relative to this one.
    """
    environment = Environment(
        loader=PackageLoader("verilocc_mlir.hooks", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    css, _, _ = PackageLoader("verilocc_mlir.report.page", ".").get_source(environment, "page.css")
    return environment.get_template("module_page.html.j2").render(
        result=result,
        counts=result.counts(),
        titles=list(_COLUMNS),
        rows=[_row(kernel, links.get(kernel.executable, "")) for kernel in result.kernels],
        css=Markup(css),
    )


def _row(kernel: IreeKernel, link: str) -> dict[str, Any]:
    ours, theirs = (list(side.values()) for side in (kernel.comparison.ours, kernel.comparison.theirs))
    return {
        "name": ", ".join(kernel.functions) or kernel.executable,
        "link": link,
        "status": _STATUS[kernel.status],
        "badge": _BADGES[kernel.status],
        "reason": kernel.reason or "; ".join(kernel.fallbacks),
        "cells": [
            {"title": title, "ours": _most(ours, field), "theirs": _most(theirs, field)}
            for title, field in _COLUMNS.items()
        ],
    }


def _most(side: Sequence[Standing], field: str) -> str:
    return f"{max(getattr(standing, field) for standing in side):,.0f}" if side else "-"


# A module's kernels as a table for people.


_TABLE_COLUMNS = (("kernel", "left"), ("verdict", "left"), ("obligations", "right"), ("allocated by", "left"))
_NUMBERS = ("VGPRs\n[IREE's]", "SGPRs\n[IREE's]", "scratch\n[IREE's]", "waves\n[IREE's]", "cycles\n[IREE's]")


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
        if not kernel.ours:
            verdict = f" ({kernel.native})" if kernel.native else ""
            to.print(Text(f"IREE's own stays{verdict}: {kernel.executable}: {kernel.reason}"))
    for line in result.server:
        to.print(Text(f"server: {line}"))
    for part in result.models:
        to.print(Text(f"model: {part.line()}"))
    to.print(Text(summary(result) + (f"; wrote {output}" if output else "; nothing was written")))


def summary(result: IreeResult) -> str:
    if not result.kernels:
        return "the module has no GPU kernel"
    counts = result.counts()
    ours = counts["ours"] + counts["with_fallback"]
    text = f"{counts['proved']} of {counts['kernels']} kernels proved: {ours} ours, found in the .vmfb byte for byte"
    if counts["with_fallback"]:
        text += f", {counts['with_fallback']} of them with LLVM's allocation in a phase"
    if counts["native"]:
        text += f"; {counts['native']} as IREE allocated them"
    if counts["left"]:
        text += f"; {counts['left']} left as IREE made them, unproved"
    spent = result.spent
    of_iree = f", of which iree-compile {spent.iree_seconds:.1f}" if spent.iree_seconds else ""
    return f"{text} ({spent.cpu_seconds:.1f} CPU-s{of_iree}; {spent.wall_seconds:.1f} s)"


def kernel_table(kernels: tuple[IreeKernel, ...]) -> Table:
    """One line a kernel: what is in the file beside IREE's own, both read from machine code, cycles by the model."""
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for name, justify in _TABLE_COLUMNS:
        table.add_column(name, justify="right" if justify == "right" else "left", overflow="fold")
    for name in _NUMBERS:
        table.add_column(Text(name), justify="right", no_wrap=True)
    for kernel in kernels:
        table.add_row(*(Text(cell) for cell in _table_row(kernel)))
    return table


def _table_row(kernel: IreeKernel) -> tuple[str, ...]:
    # "main$async_" stands before all of them.
    name = ", ".join(re.sub(r"^.*?\$async_(?=dispatch_)", "", function) for function in kernel.functions)
    verdict = kernel.status if kernel.status != "left" else kernel.report.get("outcome", "left")
    obligations = str(kernel.obligations or "")
    ours, theirs = (list(side.values()) for side in (kernel.comparison.ours, kernel.comparison.theirs))
    numbers = (_pair(ours, theirs, field) for field in ("vgprs", "sgprs", "scratch_bytes", "waves", "cycles"))
    return (name, verdict, obligations, _allocators(kernel) if kernel.ours else "IREE", *numbers)


def _allocators(kernel: IreeKernel) -> str:
    names = {phase["allocator"] for phase in kernel.phases if phase["phase"] != "wwm"}
    if len(names) == 1:
        return names.pop()
    return ", ".join(f"{p['phase'].upper()} {p['allocator']}" for p in kernel.phases if p["phase"] != "wwm")


def _pair(ours: Sequence[Standing], theirs: Sequence[Standing], field: str) -> str:
    """The greatest value of ours, and of IREE's in brackets; ``-`` where there is none."""
    sides = (f"{max(getattr(s, field) for s in side):,.0f}" if side else "-" for side in (ours, theirs))
    return "{} [{}]".format(*sides)
