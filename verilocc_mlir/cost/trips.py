"""Trip counts: from the IR where they are constant, else from a constant counter in the machine code."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Sequence

from msgspec import Struct

from verilocc_mlir.cost.assembly import Function
from verilocc_mlir.cost.counting import Flow
from verilocc_mlir.cost.instructions import SCC, VCC, Instruction, Kind, units


class IrLoop(Struct, frozen=True):
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


# Trip counts of loops that a scalar counter ends, read from the machine code.
#
# A loop is recognised if one block leaves it, and that block runs in every iteration; the block's branch depends on a
# comparison of a counter with a constant; and the counter starts at a constant and grows by a constant once an
# iteration. For such a loop the count is exact. Any other loop has no count here.


_MOST = 1 << 17
_COMPARE = re.compile(r"(?:s_cmpk?|v_cmp)_(?P<relation>eq|lg|ne|lt|le|gt|ge)_(?P<sign>[iu])(?P<bits>32|64)$")
_MIRRORED = {"eq": "eq", "lg": "lg", "ne": "ne", "lt": "gt", "le": "ge", "gt": "lt", "ge": "le"}
_HOLDS: dict[str, Callable[[int, int], bool]] = {
    "eq": operator.eq,
    "lg": operator.ne,
    "ne": operator.ne,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
}
_MOVES = ("s_mov_b32", "s_movk_i32", "s_mov_b64", "v_mov_b32", "v_mov_b64")
_ADD = ("s_add_u32", "s_add_i32", "s_add_co_u32", "s_add_co_i32")
_ADD_WITH_CARRY = ("s_addc_u32", "s_add_co_ci_u32")
_SUBTRACT = ("s_sub_u32", "s_sub_i32", "s_sub_co_u32", "s_sub_co_i32")
_ADD_SHORT = ("s_addk_i32", "s_addk_co_i32")
_ADD_64 = ("s_add_nc_u64", "s_add_u64")
_SUBTRACT_64 = ("s_sub_nc_u64", "s_sub_u64")


class _Place(Struct, frozen=True):
    """Where an instruction is: the position of its block, and its position in the block."""

    block: int
    index: int


class _Loop:
    """One loop of a function, seen from its only exit."""

    def __init__(self, function: Function, flow: Flow, loop: int) -> None:
        self._function = function
        self._flow = flow
        self.blocks = flow.loops.blocks(loop)
        self.header = flow.loops.loops[loop].header
        self._index = loop

    def code(self, block: int) -> list[Instruction]:
        return self._function.blocks[block].instructions

    def exit(self) -> int | None:
        """The block that leaves the loop, if there is only one and it runs once in every iteration."""
        leaving = {b for b in self.blocks if any(s not in self.blocks for s in self._flow.cfg.successors[b])}
        latches = {p for p in self._flow.cfg.predecessors[self.header] if p in self.blocks}
        if len(leaving) != 1:
            return None
        (block,) = leaving
        return block if block == self.header or latches == {block} else None

    def goes_on_if_taken(self, block: int) -> bool | None:
        """Whether the conditional branch that ends ``block`` stays in the loop when taken."""
        labels = {self._function.blocks[b].label for b in self.blocks}
        staying = [target in labels for target in self._function.blocks[block].targets]
        return staying[0] if staying else None

    def writes(self, unit: int) -> list[_Place]:
        """Where the loop writes a register."""
        return [_Place(b, k) for b in sorted(self.blocks) for k, i in enumerate(self.code(b)) if unit in i.defs]

    def in_every_iteration(self, block: int, leaving: int) -> bool:
        """Whether ``block`` is known to run exactly once in each iteration, before or at the exit."""
        return block in (self.header, leaving) and self._flow.loops.innermost[block] == self._index

    def before(self, unit: int) -> Instruction | None:
        """The instruction whose value ``unit`` has on entry to the loop; None where there may be several."""
        outside = [p for p in self._flow.cfg.predecessors[self.header] if p not in self.blocks]
        visited: set[int] = set()
        while len(outside) == 1 and outside[0] not in visited:
            (block,) = outside
            visited.add(block)
            for instruction in reversed(self.code(block)):
                if unit in instruction.defs:
                    return instruction
            outside = list(self._flow.cfg.predecessors[block])
        return None

    def constant(self, operand: str) -> int | None:
        """The value of an operand; None unless it is a known constant that the loop does not change."""
        group = units(operand)
        if not group:
            return _number(operand)
        value = 0
        for place, unit in enumerate(group):
            word = self.start(unit) if not self.writes(unit) else None
            if word is None:
                return None
            value |= word << 32 * place
        return value

    def start(self, unit: int) -> int | None:
        """The 32 bits of ``unit`` when the loop is entered; None unless a constant was moved there."""
        setter = self.before(unit)
        if setter is None or setter.base not in _MOVES or setter.is_dual:
            return None
        value = _short(setter.operands[1]) if setter.base == "s_movk_i32" else _number(setter.operands[1])
        return None if value is None else value >> 32 * setter.defs.index(unit) & 0xFFFFFFFF


def counter_trips(function: Function, flow: Flow, loop: int) -> int | None:
    """Iterations of the loop with index ``loop``; None where its counter is not recognised."""
    machine_loop = _Loop(function, flow, loop)
    leaving = machine_loop.exit()
    if leaving is None:
        return None
    comparison = _comparison(machine_loop.code(leaving))
    continues = machine_loop.goes_on_if_taken(leaving)
    if comparison is None or continues is None:
        return None
    index, taken_if = comparison
    compare = machine_loop.code(leaving)[index]
    shape = _COMPARE.match(compare.base)
    assert shape is not None
    first, second = compare.operands[-2:]
    relation = shape["relation"]
    short = compare.base.startswith("s_cmpk") and shape["sign"] == "i"
    bound, counter = _short(second) if short else machine_loop.constant(second), first
    if bound is None:
        bound, counter, relation = machine_loop.constant(first), second, _MIRRORED[relation]
    bits = int(shape["bits"])
    if bound is None or not units(counter) or len(units(counter)) * 32 != bits:
        return None
    counter_step = _step(machine_loop, units(counter), leaving, index)
    if counter_step is None:
        return None
    start, step, updated = counter_step
    return _iterations(
        start,
        step,
        bound,
        relation,
        bits,
        signed=shape["sign"] == "i",
        updated=updated,
        continues=continues == taken_if,
    )


def _comparison(code: list[Instruction]) -> tuple[int, bool] | None:
    """Index of the comparison that the block's branch depends on, and whether the branch is taken if it holds."""
    branch = next((k for k, i in enumerate(code) if i.base.startswith("s_cbranch")), None)
    if branch is None or any(i.base.startswith("s_cbranch") for i in code[branch + 1 :]):
        return None
    base = code[branch].base
    taken_if = base.endswith(("scc1", "vccnz"))
    condition = SCC if "scc" in base else VCC if "vcc" in base else -1
    for _ in range(4):
        index = next((k for k in range(branch - 1, -1, -1) if condition in code[k].defs), None)
        if index is None:
            return None
        instruction = code[index]
        if _COMPARE.match(instruction.base):
            return index, taken_if
        if instruction.base in ("s_and_b64", "s_and_b32") and instruction.operands[1].startswith("exec"):
            condition = units(instruction.operands[2])[0] if units(instruction.operands[2]) else -1
        elif instruction.base in ("s_cselect_b64", "s_cselect_b32") and instruction.operands[1:] == ("-1", "0"):
            condition = SCC
        else:
            return None
        branch = index
    return None


def _step(loop: _Loop, counter: tuple[int, ...], leaving: int, compared: int) -> tuple[int, int, bool] | None:
    """Start and step of a counter, and whether the step comes before the comparison at the exit."""
    start = step = 0
    places: list[_Place] = []
    for place, unit in enumerate(counter):
        writes = loop.writes(unit)
        word = loop.start(unit)
        if len(writes) != 1 or word is None or not loop.in_every_iteration(writes[0].block, leaving):
            return None
        instruction = loop.code(writes[0].block)[writes[0].index]
        added = _added(instruction, unit, place, len(counter))
        if added is None:
            return None
        start |= word << 32 * place
        step += added
        places.append(writes[0])
    if any(p.block != places[0].block for p in places):
        return None
    if places[0].block == leaving:
        updated = {p.index < compared for p in places}
        return (start, step, updated.pop()) if len(updated) == 1 else None
    # It is written in the header of a longer loop, so before the exit.
    return start, step, True


def _added(instruction: Instruction, unit: int, place: int, words: int) -> int | None:
    """What an instruction adds to the counter by writing its word ``place``; None unless it adds a constant to it."""
    base, operands = instruction.base, instruction.operands
    if base in _ADD_SHORT:
        return _short(operands[1]) if words == 1 else None
    if len(operands) != 3 or instruction.kind is not Kind.SALU:
        return None
    if unit not in units(operands[1]) or units(operands[0]) != units(operands[1]):
        return None
    value = _number(operands[2])
    if value is None:
        return None
    if base in _ADD_64 + _SUBTRACT_64:
        # The instruction writes both words: it counts with the first one.
        return 0 if place else value if base in _ADD_64 else -value
    if base in _ADD and place == 0:
        return value if words == 1 else value & 0xFFFFFFFF
    if base in _SUBTRACT and words == 1:
        return -value
    return value << 32 if base in _ADD_WITH_CARRY and place == 1 else None


def _iterations(
    start: int, step: int, bound: int, relation: str, bits: int, *, signed: bool, updated: bool, continues: bool
) -> int | None:
    """Iterations until the comparison ends the loop; None for more than 131,072."""
    mask = (1 << bits) - 1

    def read(value: int) -> int:
        value &= mask
        return value - (mask + 1) if signed and value >> (bits - 1) else value

    limit, first = read(bound), start + step if updated else start
    for k in range(_MOST):
        if _HOLDS[relation](read(first + k * step), limit) != continues:
            return k + 1
    return None


def _short(text: str) -> int | None:
    """A 16-bit operand; the instruction extends its sign."""
    value = _number(text)
    return None if value is None else (value & 0xFFFF) - ((value & 0x8000) << 1)


def _number(text: str) -> int | None:
    """An integer operand; None for any other."""
    try:
        return int(text, 0)
    except ValueError:
        return None
