"""Reading the HTML page of a compilation as a browser would, and the boxes of its pictures as sets of cells."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from html.parser import HTMLParser
from typing import Any

from verilocc_mlir.explain.boxes import Box, row_name
from verilocc_mlir.problem.model import AllocationProblem, Proposal
from verilocc_mlir.target.registers import physical_register

VOID = {"meta", "link", "br", "hr", "img", "input", "base", "col", "source", "wbr"}
Cell = tuple[str, str, int]
"""Live range, 16-bit half of a register (``v7.1``), slot."""


@dataclass
class Element:
    """One element: its tag, attributes, and the text directly in it."""

    tag: str
    attributes: dict[str, str]
    text: str = ""


@dataclass
class Page(HTMLParser):
    """The elements of a page in order; ``faults`` are ends without a beginning and beginnings without an end."""

    elements: list[Element] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    open: list[Element] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = [name for name, _ in attrs]
        if len(set(names)) != len(names):
            self.faults.append(f"<{tag}> has an attribute twice")
        element = Element(tag, {name: value or "" for name, value in attrs})
        self.elements.append(element)
        if tag not in VOID:
            self.open.append(element)

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open[-1].tag != tag:
            self.faults.append(f"</{tag}> does not end {self.open[-1].tag if self.open else 'anything'}")
        else:
            self.open.pop()

    def handle_data(self, data: str) -> None:
        for element in self.open:
            element.text += data

    def of(self, tag: str) -> list[Element]:
        """All elements with a tag."""
        return [e for e in self.elements if e.tag == tag]

    def data(self) -> list[dict[str, Any]]:
        """The pictures, in order."""
        return [json.loads(e.text) for e in self.of("script") if e.attributes.get("type") == "application/json"]

    @property
    def text(self) -> str:
        """Everything a reader sees."""
        return " ".join(self.of("body")[0].text.split())


def read_page(html: str) -> Page:
    """Parse a page; elements left open are faults."""
    page = Page()
    page.feed(html)
    page.close()
    page.faults += [f"<{e.tag}> is not ended" for e in page.open]
    return page


def shown_cells(data: dict[str, Any], placement: int) -> set[Cell]:
    """What a picture says is where."""
    return {
        (data["ranges"][owner][0], f"{data['rows'][row + k]}.{half}", slot)
        for owner, row, rows, halves, start, end in data["placements"][placement]["boxes"]
        for k in range(rows)
        for half in (0, 1)
        if halves >> half & 1
        for slot in range(start, end)
    }


def assigned_cells(problem: AllocationProblem, proposal: Proposal) -> set[Cell]:
    """What an assignment says is where, lane by lane."""
    found: set[Cell] = set()
    for live, name in zip(problem.ranges, proposal.registers, strict=True):
        units = physical_register(name).units
        for group in live.groups:
            for lane in (k for k in range(live.lanes) if group.lanes >> k & 1):
                low = units[lane] // 2 * 2
                cell = f"{row_name(low)}.{units[lane] - low}"
                found |= {(live.name, cell, slot) for start, end in group.segments for slot in range(start, end)}
    return found


def box_cells(boxes: Iterable[Box]) -> set[tuple[int, int, int]]:
    """``(owner, unit, slot)`` that boxes cover."""
    return {
        (b.owner, b.unit + 2 * k + half, slot)
        for b in boxes
        for k in range(b.registers)
        for half in (0, 1)
        if b.half >> half & 1
        for slot in range(b.start, b.end)
    }
