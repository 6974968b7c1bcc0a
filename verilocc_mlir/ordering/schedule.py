"""A list scheduler on the in-order model of one wave (``cost/rates.py``): what can issue first without waiting issues
first, among these what most waits for.
"""

from __future__ import annotations

import re
from bisect import insort
from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from verilocc_mlir.cost.instructions import Kind, decode
from verilocc_mlir.cost.memory import dwords
from verilocc_mlir.cost.rates import Rates, rates
from verilocc_mlir.cost.simulate import work_of
from verilocc_mlir.mir.model import BasicBlock, Instruction, MachineFunction
from verilocc_mlir.ordering.dependences import Item, items_of
from verilocc_mlir.target.targets import Target

_FORM = re.compile(
    r"_(?:e32|e64|vgprcd_e64|vgprcd|mac_e64|vi|gfx\d+|offset|offen|idxen|bothen|addr64|saddr|imm|sgpr_imm|sgpr|ec)(?=_|\Z)"
)
_MOST_COMPARED = 256
_NO_CODE = frozenset({"COPY", "IMPLICIT_DEF", "KILL", "BUNDLE"})
_HAS_A_UNIT = frozenset({Kind.VALU, Kind.MFMA, Kind.WMMA, Kind.SALU, Kind.SMEM, Kind.LDS, Kind.VMEM})


class Timing(Struct, frozen=True):
    """Cycles that an instruction holds its unit, and cycles until its result is there."""

    kind: Kind
    issue: float
    latency: float


class Wave(Struct):
    """When registers are ready and units are free, in cycles, as one wave issues in order."""

    now: float
    ready: dict[int, float]
    free: dict[Kind, float]


class Pace(Struct, frozen=True):
    """The cost model's figures for a text.

    Attributes:
        slot: cycles from one issue to the next.
        of: the timing of each opcode; one without code has none.
    """

    slot: float
    of: Mapping[str, Timing]


def pace_of(opcodes: Iterable[str], target: Target) -> Pace:
    """What the cost model has for the opcodes of a text."""
    speed = rates(target)
    return Pace(speed.slot, {opcode: _timing(opcode, target, speed) for opcode in opcodes if opcode not in _NO_CODE})


def _timing(opcode: str, target: Target, speed: Rates) -> Timing:
    # The model reads mnemonics; what such an instruction takes does not depend on its operands.
    one = decode(f"{_FORM.sub('', opcode.lower())} v0, v1, v2, v3", target.major)
    kind = one.kind
    if kind is Kind.VALU:
        return Timing(kind, speed.valu_issue[one.rate], speed.valu_latency[one.rate])
    if kind in (Kind.MFMA, Kind.WMMA):
        busy = float(work_of(one, target).matrix or 16)
        return Timing(kind, busy, busy + speed.slot)
    if kind is Kind.SALU:
        return Timing(kind, speed.slot, speed.salu_latency)
    if kind is Kind.SMEM:
        return Timing(kind, 0.0, speed.smem_latency)
    if kind is Kind.LDS:
        busy = 4 * dwords(one.base) * target.wave_size / speed.lds_bytes_per_cycle
        return Timing(kind, max(busy, 1.0), speed.lds_latency + busy)
    if kind is Kind.VMEM:
        busy = 4 * dwords(one.base) * target.wave_size / speed.vmem_bytes_per_cycle
        return Timing(kind, max(busy, 1.0), speed.load_latency)
    return Timing(kind, 0.0, 0.0)


def scheduled(items: Sequence[Item], pace: Pace, *, loops: bool) -> list[int]:
    """An order of a block's items: their numbers. ``loops``: the block is its own successor."""
    wave = Wave(0.0, {}, {})
    order = _pass(items, pace, wave)
    if loops:
        # The next iteration finds what this one left under way.
        again = Wave(
            0.0, {r: t - wave.now for r, t in wave.ready.items()}, {k: t - wave.now for k, t in wave.free.items()}
        )
        order = _pass(items, pace, again)
    return order


def _pass(items: Sequence[Item], pace: Pace, wave: Wave) -> list[int]:
    order: list[int] = []
    start = 0
    for end in [*(item.number for item in items if item.stays), len(items)]:
        order += _region(items, range(start, end), pace, wave)
        if end < len(items):
            _issue(items[end], pace, wave)
            order.append(end)
        start = end + 1
    return order


def _region(items: Sequence[Item], region: range, pace: Pace, wave: Wave) -> list[int]:
    """Between what stays."""
    after: dict[int, list[int]] = {number: [] for number in region}
    missing: dict[int, int] = {}
    for number in region:
        missing[number] = len(items[number].before)
        for other in items[number].before:
            after[other].append(number)
    height = _heights(items, region, after, pace)
    # In the order of the text: where many are ready, the first ones are looked at.
    ready = [number for number in region if not missing[number]]
    # Cycles. Known once an item is ready: what writes its operands stands before it, or must stand behind it.
    operands_at = {number: _operands_at(items[number], wave) for number in ready}
    units = {number: _units(items[number], pace) for number in region}
    order: list[int] = []
    slot = pace.slot
    while ready:
        best, stalled, highest = -1, 0.0, 0.0
        for number in ready[:_MOST_COMPARED]:
            at = operands_at[number]
            for kind in units[number]:
                at = max(at, wave.free.get(kind, 0.0))
            slots = (at - wave.now) // slot if at > wave.now else 0.0
            if best < 0 or slots < stalled or (slots == stalled and height[number] > highest):
                best, stalled, highest = number, slots, height[number]
        ready.remove(best)
        order.append(best)
        _issue(items[best], pace, wave)
        for number in after[best]:
            missing[number] -= 1
            if not missing[number]:
                insort(ready, number)
                operands_at[number] = _operands_at(items[number], wave)
    return order


def _heights(items: Sequence[Item], region: range, after: Mapping[int, Sequence[int]], pace: Pace) -> dict[int, float]:
    """Cycles from the issue of each item to the end of the region, at least."""
    height: dict[int, float] = {}
    slot = pace.slot
    for number in reversed(region):
        item = items[number]
        latency = max((t.latency for i in item.instructions if (t := pace.of.get(i.opcode))), default=0.0)
        values = item.writes
        height[number] = max(
            (height[n] + (latency if values & items[n].reads else slot) for n in after[number]), default=latency
        )
    return height


def _operands_at(item: Item, wave: Wave) -> float:
    """The cycle in which all that it reads is written."""
    return max([wave.ready[r] for r in item.reads if r in wave.ready], default=0.0)


def _units(item: Item, pace: Pace) -> tuple[Kind, ...]:
    """The units that it needs. An access finds its way to memory busy without keeping others from issuing. Loads are
    spread all the same: code waits for the last one.
    """
    rows = (pace.of.get(i.opcode) for i in item.instructions)
    return tuple({one.kind: None for one in rows if one is not None and one.kind in _HAS_A_UNIT})


def _issue(item: Item, pace: Pace, wave: Wave) -> None:
    slot = pace.slot
    at = max(wave.now, _operands_at(item, wave), *(wave.free.get(kind, 0.0) for kind in _units(item, pace)))
    done = at
    for i in item.instructions:
        one = pace.of.get(i.opcode)
        if one is None or one.kind not in _HAS_A_UNIT:
            continue
        start = max(wave.free.get(one.kind, 0.0), at)
        wave.free[one.kind] = start + one.issue
        done = max(done, start + one.latency)
        at += slot
    wave.now = at
    for register in item.writes:
        wave.ready[register] = done


# Blocks of an allocated text in an order of our own, with the certificate that the checkers read (spec 16).


_KILLED = re.compile(r"\bkilled ")


class Ordered(Struct, frozen=True):
    """A function in another order.

    Attributes:
        orders: by block, where its items stood; blocks that stay as they are have none.
        moved: how many items stand elsewhere.
    """

    function: MachineFunction
    orders: Mapping[int, Sequence[int]]
    moved: int

    @property
    def certificate(self) -> str:
        return certificate_of(self.function.name, self.orders)


def ordered(function: MachineFunction, target: Target) -> Ordered:
    """The function with each block in the order of the list scheduler."""
    blocks: list[BasicBlock] = []
    orders: dict[int, list[int]] = {}
    moved = 0
    pace = pace_of(function.opcodes, target)
    for number, block in enumerate(function.blocks):
        items = items_of(block.instructions)
        order = scheduled(items, pace, loops=any(to == block.number for to, _ in block.successors))
        elsewhere = sum(at != of for at, of in enumerate(order))
        if elsewhere:
            moved += elsewhere
            orders[number] = order
            block = replace(block, instructions=in_order(items, order))
        blocks.append(block)
    return Ordered(replace(function, blocks=tuple(blocks)), orders, moved)


def certificate_of(name: str, orders: Mapping[int, Sequence[int]]) -> str:
    """The certificate of a function's orders by block."""
    lines = [f"block {number} {' '.join(_runs(order))}" for number, order in sorted(orders.items())]
    return "\n".join(["verilocc-order 1", f"function {name}", *lines, "end", ""])


def in_order(items: Sequence[Item], order: Sequence[int]) -> tuple[Instruction, ...]:
    """A block's instructions in a new order. Where a register dies is another place now, and need not be said."""
    return tuple(_without_deaths(i) for of in order for i in items[of].instructions)


def _without_deaths(i: Instruction) -> Instruction:
    if not any(o.killed for o in i.operands):
        return i
    operands = tuple(
        replace(
            o,
            text=_KILLED.sub("", o.text, count=1),
            flags=tuple(flag for flag in o.flags if flag != "killed"),
            killed=False,
        )
        if o.killed
        else o
        for o in i.operands
    )
    return replace(i, operands=operands)


def _runs(order: Sequence[int]) -> list[str]:
    """Neighbours as ``first-last``."""
    runs: list[list[int]] = []
    for of in order:
        if runs and runs[-1][-1] + 1 == of:
            runs[-1].append(of)
        else:
            runs.append([of])
    return [str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs]
