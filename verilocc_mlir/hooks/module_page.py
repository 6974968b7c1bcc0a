"""A module as an HTML page that needs nothing else: a line for each kernel, ours beside IREE's own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

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
