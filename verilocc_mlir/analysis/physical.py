"""Where physical registers are in use before allocation: arguments, call operands and results, VCC, clobbers.

Liveness is by unit (target/registers.py), backward only: a unit is in use from a definition to its last read, or from
the function's entry where no definition comes first. ``undef`` reads count for nothing. A call's register mask
clobbers, at the slot at which ordinary definitions start, what it does not preserve.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from verilocc_mlir.analysis.cfg import ControlFlow
from verilocc_mlir.analysis.lanes import is_debug
from verilocc_mlir.analysis.liveness import Segment, bit_set, join_segments, set_bits, solve_backward
from verilocc_mlir.mir.model import MachineFunction, OperandKind
from verilocc_mlir.target.registers import physical_register


@dataclass(frozen=True)
class PhysicalLiveness:
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
