"""Trip counts: from the IR where they are constant, else from a constant counter in the machine code."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from verilocc_mlir.cost.assembly import Function
from verilocc_mlir.cost.counter import counter_trips
from verilocc_mlir.cost.flow import Flow


@dataclass(frozen=True, slots=True)
class IrLoop:
    """A loop of the IR.

    Attributes:
        header: name of its header block, without ``%``.
        depth: 1 for an outermost loop.
        trips: iterations each time it is entered; None where that is not constant.
    """

    header: str
    depth: int
    trips: int | None


_FUNCTION = re.compile(r"^Determining loop execution counts for: @(?P<name>\"[^\"]*\"|[-\w.$]+)$")
_LOOP = re.compile(r"^ *Loop at depth (?P<depth>\d+) containing: (?P<blocks>.*)$")
_COUNT = re.compile(r"^Loop %(?P<header>\"[^\"]*\"|[-\w.$]+): backedge-taken count is i\d+ (?P<count>-?\d+)$")


def parse_loops(text: str) -> dict[str, tuple[IrLoop, ...]]:
    """Loops by function, in the order of the IR, outer before inner.

    Args:
        text: what ``opt -passes='function(print<loops>,print<scalar-evolution>)'`` prints with
            ``-scalar-evolution-classify-expressions=0``.
    """
    by_function: dict[str, tuple[IrLoop, ...]] = {}
    nest: list[tuple[str, int]] = []
    counts: dict[str, int] = {}
    name = ""

    def close() -> None:
        if name:
            by_function[name] = tuple(IrLoop(header, depth, counts.get(header)) for header, depth in nest)

    for line in text.splitlines():
        if line.startswith("Loop info for function"):
            close()
            name, nest, counts = "", [], {}
        elif loop := _LOOP.match(line):
            header = next((b.strip() for b in loop["blocks"].split(",") if "<header>" in b), "")
            nest.append((header.partition("<")[0].lstrip("%").strip('"'), int(loop["depth"])))
        elif function := _FUNCTION.match(line):
            name = function["name"].strip('"')
        elif (count := _COUNT.match(line)) and int(count["count"]) >= 0:
            counts[count["header"].strip('"')] = int(count["count"]) + 1
    close()
    return by_function


def find_trips(function: Function, flow: Flow, ir_loops: Sequence[IrLoop]) -> dict[int, tuple[int, str]]:
    """Known trip counts of a function's loops by index, each with its source: ``"ir"`` or ``"code"``."""
    trips: dict[int, tuple[int, str]] = {}
    by_name = _matched(function, flow, ir_loops)
    for k in range(len(flow.loops.loops)):
        ir_trips = by_name.get(k)
        if ir_trips is not None:
            trips[k] = (ir_trips, "ir")
            continue
        code_trips = counter_trips(function, flow, k)
        if code_trips is not None:
            trips[k] = (code_trips, "code")
    return trips


def _matched(function: Function, flow: Flow, ir_loops: Sequence[IrLoop]) -> dict[int, int]:
    """Constant trip counts of the IR's loops, by machine loop.

    Loops are matched by the name of the IR block that llc prints beside a header. Where the blocks of the IR have no
    names, they are matched by order, if both sides have the same nest of loops.
    """
    loops = flow.loops.loops
    headers = [function.blocks[loop.header].ir_name for loop in loops]
    trips_by_header = {loop.header: loop.trips for loop in ir_loops if loop.header and loop.trips is not None}
    matched = {k: trips_by_header[name] for k, name in enumerate(headers) if name in trips_by_header}
    if not matched and not any(headers):
        order = sorted(range(len(loops)), key=lambda k: loops[k].header)
        if [loops[k].depth for k in order] == [loop.depth for loop in ir_loops]:
            matched = {k: loop.trips for k, loop in zip(order, ir_loops, strict=True) if loop.trips is not None}
    return matched
