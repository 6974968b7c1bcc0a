"""Which registers should coincide: the two ends of copies, and LLVM's register hints."""

from __future__ import annotations

from collections.abc import Iterator

from verilocc_mlir.analysis.cfg import ControlFlow
from verilocc_mlir.analysis.lanes import lane_mask
from verilocc_mlir.mir.model import MachineFunction, Operand
from verilocc_mlir.problem.model import Affinity
from verilocc_mlir.target.classes import RegisterClass
from verilocc_mlir.target.registers import physical_register

_COPIES = frozenset({"COPY", "PRED_COPY", "WWM_COPY"})


def affinities(
    function: MachineFunction,
    cfg: ControlFlow,
    depths: tuple[int, ...],
    classes: dict[int, RegisterClass],
    ids: dict[int, int],
    allowed: frozenset[int],
    hints: dict[int, str],
) -> tuple[Affinity, ...]:
    """Affinities in slot order.

    A copy that reads ``undef`` or that joins two parts of one register is none. A hint ``%N`` for which no copy stands
    is an affinity of weight 0 at slot 0: a preference of LLVM's, no instruction saved.

    Args:
        depths: loop depth of each block.
        classes: class of each virtual register.
        ids: range id of each virtual register to place; others are left out.
        allowed: units that may be handed out; a copy with a physical register outside of them is none.
        hints: ``preferred-register`` of each virtual register, ``""`` where there is none.
    """
    result: list[Affinity] = []
    joined: set[tuple[int, int]] = set()
    for block, start, depth in zip(function.blocks, cfg.first, depths, strict=False):
        for index, instruction in enumerate(block.instructions, start):
            if instruction.opcode not in _COPIES or not instruction.defs or not instruction.operands:
                continue
            target, source = instruction.defs[0], instruction.operands[0]
            affinity = _of_copy(target, source, classes, ids, allowed, 4 * index, float(10 ** min(depth, 6)))
            if affinity is not None:
                result.append(affinity)
                joined.add((affinity.a, affinity.b))
                joined.add((affinity.b, affinity.a))
    result += _of_hints(classes, ids, hints, joined)
    result.sort(key=lambda f: (f.slot, f.a, f.a_lane, f.b, f.b_lane))
    return tuple(result)


def _of_copy(
    target: Operand,
    source: Operand,
    classes: dict[int, RegisterClass],
    ids: dict[int, int],
    allowed: frozenset[int],
    slot: int,
    weight: float,
) -> Affinity | None:
    if source.undef or target.vreg == source.vreg:
        return None
    if target.vreg in ids and source.vreg in ids:
        a, b = _lanes(target, classes), _lanes(source, classes)
        if a[1] != b[1]:
            return None
        return Affinity(ids[target.vreg], a[0], ids[source.vreg], b[0], a[1], weight, slot)
    virtual, fixed = (target, source) if target.vreg in ids else (source, target)
    if virtual.vreg not in ids or not fixed.phys:
        return None
    units = physical_register(fixed.phys).units
    first, count = _lanes(virtual, classes)
    if not units or not allowed.issuperset(units) or len(units) != count:
        return None
    return Affinity(ids[virtual.vreg], first, -1, 0, count, weight, slot, fixed.phys)


def _lanes(operand: Operand, classes: dict[int, RegisterClass]) -> tuple[int, int]:
    """First lane and number of lanes; subregister indices of copies are contiguous."""
    mask = lane_mask(operand, classes[operand.vreg])
    return (mask & -mask).bit_length() - 1, mask.bit_count()


def _of_hints(
    classes: dict[int, RegisterClass], ids: dict[int, int], hints: dict[int, str], joined: set[tuple[int, int]]
) -> Iterator[Affinity]:
    for vreg, hint in hints.items():
        if not hint.startswith("%") or int(hint[1:]) not in ids:
            continue
        hinted = int(hint[1:])
        pair = (ids[vreg], ids[hinted])
        if pair[0] != pair[1] and pair not in joined:
            joined.update((pair, (pair[1], pair[0])))
            yield Affinity(pair[0], 0, pair[1], 0, min(classes[vreg].lanes, classes[hinted].lanes), 0.0, 0)
