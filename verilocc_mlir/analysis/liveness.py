"""Lane liveness of virtual registers, and live ranges as segments.

Two data-flow problems over sets of atoms (``lanes.py``), both with union at joins:

* *needed*, backward: a read makes an atom needed, a write or anything that undefines it ends the need;
* *defined*, forward: a write makes an atom defined, ``undef %r.sub = …`` makes the lanes it leaves out undefined.
  Nothing is defined at entry.

An atom is **live** where it is needed and defined on some path: a place where any value would do needs no storage. This
is how LLVM's LiveRangeCalc treats subranges (it extends a range only to where a definition reaches).

``IMPLICIT_DEF`` ends the need and leaves *defined* as it is. So a register that holds nothing yet is not held from
there on either, until a real definition joins in (LLVM counts it as a definition like any other; ``implicit_def_holds``
gives that reading). The instruction itself occupies its register for the one slot in which it writes, as a dead
definition does, and so may stay in the text without harm to a neighbour. A register that may hold a value already is
held, as in LLVM: SIOptimizeVGPRLiveRange writes ``IMPLICIT_DEF`` at the end of a region whose *inactive* lanes still
need the old value, so what comes between it and the join must leave the register alone. Where no lane is ever inactive
that was active before (``inactive_lanes`` is false: scalars, and functions that never write EXEC) it ends both and
occupies nothing: it must then be left out of the text.

Segments are in the slot numbering of ``problem/model.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import compress
from typing import NamedTuple

from msgspec import Struct

from verilocc_mlir.analysis.cfg import ControlFlow
from verilocc_mlir.analysis.lanes import Access, LaneAccesses, is_debug, lane_accesses
from verilocc_mlir.mir.model import MachineFunction, OperandKind
from verilocc_mlir.target.classes import RegisterClass
from verilocc_mlir.target.registers import physical_register

Segment = tuple[int, int]
"""Half-open slot interval."""


class LaneSegments(NamedTuple):
    """Lanes of one register (16-bit mask) that are live in the same ``segments`` (sorted, disjoint, not touching)."""

    lanes: int
    segments: tuple[Segment, ...]


class LaneLiveness(Struct, frozen=True):
    """Where each lane of each chosen virtual register is live.

    Attributes:
        accesses: the accesses it was computed from.
        ranges: for each virtual register, groups of lanes with their segments; lanes never live are in no group.
        live_in: for each block, the set of live atoms at its start, as a bit set.
        live_out: likewise at its end.
    """

    accesses: LaneAccesses
    ranges: dict[int, tuple[LaneSegments, ...]]
    live_in: tuple[int, ...]
    live_out: tuple[int, ...]

    def lanes_in(self, block: int) -> dict[int, int]:
        """Live-in lanes of the block at layout position ``block``: virtual register to lane mask."""
        return self._lanes(self.live_in[block])

    def lanes_out(self, block: int) -> dict[int, int]:
        return self._lanes(self.live_out[block])

    def _lanes(self, bits: int) -> dict[int, int]:
        lanes: dict[int, int] = {}
        for atom in set_bits(bits):
            vreg = self.accesses.owner[atom]
            lanes[vreg] = lanes.get(vreg, 0) | self.accesses.lanes[atom]
        return lanes


def lane_liveness(
    function: MachineFunction,
    cfg: ControlFlow,
    classes: dict[int, RegisterClass],
    chosen: Callable[[int], bool] = lambda _: True,
    *,
    implicit_def_holds: bool = False,
    inactive_lanes: bool = True,
) -> LaneLiveness:
    """Live ranges of the virtual registers for which ``chosen`` is true.

    Args:
        function: pre-RA machine code, in which LLVM has left SSA form.
        classes: ``virtual_classes(function)``.
        chosen: which registers to look at; the others cost next to nothing.
        implicit_def_holds: count ``IMPLICIT_DEF`` as an ordinary definition, as LLVM does.
        inactive_lanes: lanes that ``IMPLICIT_DEF`` does not reach may still need what the register holds.

    Raises:
        InputError: a subregister outside of its register.
    """
    accesses = lane_accesses(function, cfg, classes, chosen)
    ends = not inactive_lanes and not implicit_def_holds
    live_in, live_out, defined_in = _solve(accesses, cfg, implicit_def_holds, ends)
    segments = _segments(accesses, cfg, live_in, live_out, defined_in, implicit_def_holds, ends)
    ranges = {vreg: _group(atoms, accesses.lanes, segments) for vreg, atoms in accesses.atoms.items()}
    return LaneLiveness(accesses, ranges, live_in, live_out)


_DENSE = 6
"""Digits for each one among them, up to which the ones are not looked for one by one."""
_AS_NUMBERS = bytes.maketrans(b"01", b"\0\1")


def set_bits(bits: int) -> list[int]:
    """Positions of the ones, ascending."""
    text = bin(bits)[:1:-1]
    if _DENSE * bits.bit_count() > len(text):
        return [*compress(range(len(text)), text.encode().translate(_AS_NUMBERS))]
    positions: list[int] = []
    at = text.find("1")
    while at >= 0:
        positions.append(at)
        at = text.find("1", at + 1)
    return positions


def bit_set(members: set[int]) -> int:
    """The integer whose ones are at ``members``."""
    if not members:
        return 0
    store = bytearray(max(members) // 8 + 1)
    for member in members:
        store[member >> 3] |= 1 << (member & 7)
    return int.from_bytes(store, "little")


def _solve(
    accesses: LaneAccesses, cfg: ControlFlow, implicit_def_holds: bool, implicit_def_ends: bool
) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Live-in, live-out and defined-in sets of every block."""
    count = len(accesses.blocks)
    exposed: list[int] = []
    ended: list[int] = []
    defined: list[int] = []
    undefined: list[int] = []
    for block in accesses.blocks:
        reads: set[int] = set()
        closes: set[int] = set()
        for access in reversed(block):
            for atoms in (access.writes, access.implicit, access.undefines, access.early):
                if atoms:
                    reads.difference_update(atoms)
                    closes.update(atoms)
            reads.update(access.reads)
        defined_here: set[int] = set()
        undefined_here: set[int] = set()
        for access in block:
            ended_here = access.undefines + access.implicit if implicit_def_ends else access.undefines
            undefined_here.update(ended_here)
            defined_here.difference_update(ended_here)
            for atoms in (access.early, access.writes, access.implicit if implicit_def_holds else ()):
                defined_here.update(atoms)
                undefined_here.difference_update(atoms)
        exposed.append(bit_set(reads))
        ended.append(bit_set(closes))
        defined.append(bit_set(defined_here))
        undefined.append(bit_set(undefined_here))
    needed_in = solve_backward(cfg, exposed, ended)
    defined_out = solve_forward(cfg, defined, undefined)
    live_in: list[int] = []
    live_out: list[int] = []
    defined_in: list[int] = []
    for block in range(count):
        arriving = 0
        for predecessor in cfg.predecessors[block]:
            arriving |= defined_out[predecessor]
        leaving = 0
        for successor in cfg.successors[block]:
            leaving |= needed_in[successor]
        live_in.append(needed_in[block] & arriving)
        live_out.append(leaving & defined_out[block])
        defined_in.append(arriving)
    return tuple(live_in), tuple(live_out), tuple(defined_in)


def solve_backward(cfg: ControlFlow, gen: list[int], kill: list[int]) -> list[int]:
    """Sets at the blocks' starts: least solution of ``in = gen | (union of in over successors & ~kill)``."""
    return _fixpoint([*reversed(_all_blocks(cfg))], cfg.successors, cfg.predecessors, gen, kill)


def solve_forward(cfg: ControlFlow, gen: list[int], kill: list[int]) -> list[int]:
    """Sets at the blocks' ends: least solution of ``out = gen | (union of out over predecessors & ~kill)``."""
    return _fixpoint(_all_blocks(cfg), cfg.predecessors, cfg.successors, gen, kill)


def _all_blocks(cfg: ControlFlow) -> list[int]:
    """Reachable blocks in reverse post-order, then the others: their code is in the text and must get registers too."""
    return [*cfg.order, *sorted(set(range(len(cfg.successors))) - set(cfg.order))]


def _fixpoint(
    order: list[int],
    sources: tuple[tuple[int, ...], ...],
    targets: tuple[tuple[int, ...], ...],
    gen: list[int],
    kill: list[int],
) -> list[int]:
    """Least solution of ``value[b] = gen[b] | (union of value[s] over sources[b] & ~kill[b])``."""
    value = list(gen)
    rank = {block: k for k, block in enumerate(order)}
    waiting = set(order)
    while waiting:
        # Sweeps in a good order: as many as loops are deep, and one more.
        sweep = sorted(waiting, key=rank.__getitem__)
        waiting.clear()
        changed_in_sweep: set[int] = set()
        for block in sweep:
            incoming = 0
            for source in sources[block]:
                incoming |= value[source]
            new = gen[block] | (incoming & ~kill[block])
            if new != value[block]:
                value[block] = new
                changed_in_sweep.add(block)
        for block in changed_in_sweep:
            waiting.update(targets[block])
    return value


def _segments(
    accesses: LaneAccesses,
    cfg: ControlFlow,
    live_in: tuple[int, ...],
    live_out: tuple[int, ...],
    defined_in: tuple[int, ...],
    implicit_def_holds: bool,
    implicit_def_ends: bool,
) -> list[list[Segment]]:
    """Segments of every atom, latest first; they may touch or overlap.

    What stays live over the border of two blocks is not touched there, so that long ranges cost nothing by the block.
    """
    count = len(accesses.owner)
    segments: list[list[Segment]] = [[] for _ in range(count)]
    end = [-1] * count
    entering_next = boundary = 0

    def forget(atom: int) -> None:
        """It is live no further back: what is known of it in the blocks behind is a segment."""
        if end[atom] > boundary:
            segments[atom].append((boundary, end[atom]))
        end[atom] = -1

    for position in range(len(accesses.blocks) - 1, -1, -1):
        boundary = 4 * cfg.first[position + 1]
        leaving, entering = live_out[position], live_in[position]
        for atom in set_bits(entering_next & ~leaving):
            forget(atom)
        for atom in set_bits(leaving & ~entering_next):
            end[atom] = boundary
        touched: set[int] = set()
        holding = _implicit_holds(
            accesses.blocks[position], defined_in[position], implicit_def_holds, ends=implicit_def_ends
        )
        for access in reversed(accesses.blocks[position]):
            slot = 4 * access.index
            written: list[tuple[int, tuple[int, ...]]] = [(slot + 2, access.writes), (slot + 1, access.early)]
            for atom in access.implicit:
                if atom in holding[access.index]:
                    written.append((slot + 2, (atom,)))
                else:
                    touched.add(atom)
                    forget(atom)
                    if not implicit_def_ends:
                        segments[atom].append((slot + 2, slot + 3))
            for start, atoms in written:
                for atom in atoms:
                    stop = end[atom]
                    if stop < 0:
                        stop = slot + 3
                    else:
                        end[atom] = -1
                        touched.add(atom)
                    segments[atom].append((start, stop))
            for atom in access.undefines:
                touched.add(atom)
                forget(atom)
            for atom in access.reads:
                if end[atom] < 0:
                    end[atom] = slot + 2
                    touched.add(atom)
        for atom in touched:
            if end[atom] >= 0 and not entering >> atom & 1:
                forget(atom)
        for atom in set_bits(leaving & ~entering):
            if end[atom] >= 0:
                forget(atom)
        entering_next = entering & ~bit_set({atom for atom in touched if end[atom] < 0})
    boundary = 0
    for atom in set_bits(entering_next):
        forget(atom)
    return segments


def _implicit_holds(block: tuple[Access, ...], defined_in: int, always: bool, *, ends: bool) -> dict[int, set[int]]:
    """For each IMPLICIT_DEF of a block, by instruction index, the atoms for which it counts as a definition."""
    if not any(access.implicit for access in block):
        return {}
    if ends:
        return {access.index: set() for access in block}
    holding: dict[int, set[int]] = {}
    # Of the others nobody asks.
    asked = {atom for access in block for atom in access.implicit}
    has = {atom for atom in asked if defined_in >> atom & 1}
    for access in block:
        if access.implicit:
            holding[access.index] = {a for a in access.implicit if always or a in has}
        has.difference_update(access.undefines)
        has.update(asked.intersection(access.early), asked.intersection(access.writes))
    return holding


def _group(atoms: tuple[int, ...], lanes: tuple[int, ...], segments: list[list[Segment]]) -> tuple[LaneSegments, ...]:
    """Join touching segments, and atoms with the same segments; groups are ordered by lowest lane."""
    groups: dict[tuple[Segment, ...], int] = {}
    for atom in atoms:
        if segments[atom]:
            joined = join_segments(segments[atom])
            groups[joined] = groups.get(joined, 0) | lanes[atom]
    return tuple(LaneSegments(mask, segs) for segs, mask in sorted(groups.items(), key=lambda g: g[1] & -g[1]))


def join_segments(segments: list[Segment]) -> tuple[Segment, ...]:
    """Sorted, disjoint, non-touching segments that cover the same slots."""
    joined: list[Segment] = []
    for start, stop in sorted(segments):
        if joined and start <= joined[-1][1]:
            if stop > joined[-1][1]:
                joined[-1] = (joined[-1][0], stop)
        else:
            joined.append((start, stop))
    return tuple(joined)


# Where physical registers are in use before allocation: arguments, call operands and results, VCC, clobbers.
#
# Liveness is by unit (target/registers.py), backward only: a unit is in use from a definition to its last read, or from
# the function's entry where no definition comes first. ``undef`` reads count for nothing. A call's register mask
# clobbers, at the slot at which ordinary definitions start, what it does not preserve.


class PhysicalLiveness(Struct, frozen=True):
    """Fixed uses of physical registers.

    Attributes:
        ranges: segments in which each unit is in use; units never in use are missing. Clobbers are not in here.
        clobbers: ``(instruction index, register mask text)`` of every register mask, in order.
        names: for each unit of ``ranges``, the register by whose name the function first mentions it.
        live_in: for each block, the units live at its start.
    """

    ranges: dict[int, tuple[Segment, ...]]
    clobbers: tuple[tuple[int, str], ...]
    names: dict[int, str]
    live_in: tuple[frozenset[int], ...]


def physical_liveness(
    function: MachineFunction, cfg: ControlFlow, is_selected: Callable[[int], bool]
) -> PhysicalLiveness:
    """Fixed uses of the units for which ``is_selected`` is true; reserved registers, always busy, are best left out.

    Raises:
        UnsupportedError: a physical register this project does not know.
    """
    names: dict[int, str] = {}
    clobbers: list[tuple[int, str]] = []
    units: dict[int, tuple[int, ...]] = {}
    # (index, read, written early, written) in bits of `numbering`
    blocks: list[list[tuple[int, tuple[int, ...], tuple[int, ...], tuple[int, ...]]]] = []
    for block, start in zip(function.blocks, cfg.first, strict=False):
        events: list[tuple[int, tuple[int, ...], tuple[int, ...], tuple[int, ...]]] = []
        for index, instruction in enumerate(block.instructions, start):
            if instruction.opcode == "BUNDLE" or is_debug(instruction):
                continue
            reads: tuple[int, ...] = ()
            early: tuple[int, ...] = ()
            writes: tuple[int, ...] = ()
            for operand in instruction.all_operands:
                if operand.kind is OperandKind.REGMASK:
                    clobbers.append((index, operand.text))
                if not operand.phys:
                    continue
                key = id(operand)
                if key not in units:
                    units[key] = tuple(u for u in physical_register(operand.phys).units if is_selected(u))
                    for unit in units[key]:
                        names.setdefault(unit, operand.phys)
                touched = units[key]
                if not operand.is_def:
                    if not operand.undef:
                        reads += touched
                elif operand.early_clobber:
                    early += touched
                else:
                    writes += touched
            if reads or early or writes:
                events.append((index, reads, early, writes))
        blocks.append(events)

    gen: list[int] = []
    kill: list[int] = []
    for events in blocks:
        needed: set[int] = set()
        ended: set[int] = set()
        for _, reads, early, writes in reversed(events):
            needed.difference_update(writes, early)
            ended.update(writes, early)
            needed.update(reads)
        gen.append(bit_set(needed))
        kill.append(bit_set(ended))
    needed_in = solve_backward(cfg, gen, kill)

    segments_of: dict[int, list[Segment]] = {}
    for position, events in enumerate(blocks):
        boundary = 4 * cfg.first[position + 1]
        leaving = 0
        for successor in cfg.successors[position]:
            leaving |= needed_in[successor]
        end = dict.fromkeys(set_bits(leaving), boundary)
        for index, reads, early, writes in reversed(events):
            for start, touched in ((4 * index + 2, writes), (4 * index + 1, early)):
                for unit in touched:
                    segments_of.setdefault(unit, []).append((start, end.pop(unit, 4 * index + 3)))
            for unit in reads:
                end.setdefault(unit, 4 * index + 2)
        start = 4 * cfg.first[position]
        for unit, stop in end.items():
            if start < stop:
                segments_of.setdefault(unit, []).append((start, stop))
    return PhysicalLiveness(
        ranges={unit: join_segments(segments) for unit, segments in sorted(segments_of.items())},
        clobbers=tuple(clobbers),
        names=names,
        live_in=tuple(frozenset(set_bits(bits)) for bits in needed_in),
    )
