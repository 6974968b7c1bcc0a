"""What the machine does better with some registers than with others.

Two rules, both small against a copy:

* RDNA, wave32: two independent VOPD-able operations beside each other issue as one, if their destinations differ in
  parity, their first sources modulo 4 and their second sources modulo 4 (GCNVOPDUtils.cpp, checkVOPDRegConstraints;
  AMDGPUBaseInfo.h, VOPD_VGPR_BANK_MASKS). A third source is tied to the destination (V_FMAC). Before allocation the
  operations are in their long form; SIShrinkInstructions.cpp makes them short where they have no modifiers.
* CDNA: a matrix operation that adds to its own destination's registers follows the one that wrote them without a wait
  (GCNHazardRecognizer.cpp, checkMAIHazards90A: SrcC exactly the same as vDst).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from msgspec import Struct

from verilocc_mlir.analysis.cfg import ControlFlow
from verilocc_mlir.analysis.lanes import is_debug, lane_mask
from verilocc_mlir.mir.model import Instruction, MachineFunction, Operand, OperandKind
from verilocc_mlir.problem.model import CHAIN, Affinity, LiveRange, Preference, Relation
from verilocc_mlir.target.classes import RegisterClass
from verilocc_mlir.target.registers import physical_register
from verilocc_mlir.target.targets import Target

# Normalised opcode families: what kind of unit executes an instruction, without the target's own mnemonic.
#
# Opcode names are LLVM's (llvm/lib/Target/AMDGPU/*Instructions.td); the families follow the execution units of the ISA
# manuals.


FAMILIES = (
    "mfma", "wmma", "valu", "trans", "load", "store", "lds", "salu", "smem", "copy", "branch", "call", "other",
)  # fmt: skip
"""Every family, in a fixed order."""

_TRANSCENDENTAL = re.compile(r"V_(?:S_)?(?:EXP|LOG|RCP|RSQ|SQRT|SIN|COS|TANH)_")
_VECTOR_MEMORY = re.compile(r"(?:GLOBAL|FLAT|SCRATCH|BUFFER|TBUFFER|IMAGE|CLUSTER)_")
_STORES = re.compile(r"_(?:STORE|ATOMIC)(?:_|\Z)|_WBL|_INV")
_BRANCH = re.compile(
    r"S_(?:C?BRANCH|ENDPGM|SETPC|SWAPPC|CALL)|SI_(?:RETURN|IF|ELSE|LOOP|END_CF|WATERFALL|KILL|DEMOTE|WHOLE_WAVE_FUNC_RETURN)"
)
_IDLE = re.compile(
    r"S_(?:BARRIER|WAIT|NOP|SLEEP|SENDMSG|SETPRIO|SET_GPR|SETHALT|TRAP|ICACHE|INST_PREFETCH|CLAUSE|CODE_END|DELAY|TTRACE|INCPERF)"
)
_SCALAR_MEMORY = re.compile(
    r"S_(?:LOAD|BUFFER_LOAD|STORE|BUFFER_STORE|SCRATCH|ATOMIC|BUFFER_ATOMIC|DCACHE|PREFETCH|MEMTIME)_?"
)
_COPY_FAMILIES = frozenset({"COPY", "PRED_COPY", "WWM_COPY", "V_ACCVGPR_MOV_B32", "SCHED_COPY"})


def opcode_family(opcode: str) -> str:
    """The family of an opcode; ``"other"`` for what executes nothing (``IMPLICIT_DEF``, ``KILL``, fences, waits)."""
    if opcode in _COPY_FAMILIES:
        return "copy"
    if opcode.startswith(("V_MFMA", "V_SMFMAC")):
        return "mfma"
    if opcode.startswith(("V_WMMA", "V_SWMMAC")):
        return "wmma"
    if _TRANSCENDENTAL.match(opcode):
        return "trans"
    if opcode.startswith(("V_", "AV_MOV", "DPP_", "SI_INIT_M0_VALU")):
        return "valu"
    if opcode.startswith(("DS_", "LDS_", "SI_LDS")):
        return "lds"
    if _VECTOR_MEMORY.match(opcode):
        # An atomic that returns nothing behaves as a store; one that returns a value must be waited for like a load.
        return "store" if _STORES.search(opcode) and "_RTN" not in opcode else "load"
    if opcode.startswith(("SI_CALL", "SI_TCRETURN", "SI_CS_CHAIN")):
        return "call"
    if _BRANCH.match(opcode):
        return "branch"
    if _IDLE.match(opcode):
        return "other"
    if _SCALAR_MEMORY.match(opcode):
        return "smem"
    return "salu" if opcode.startswith("S_") or opcode == "SI_PC_ADD_REL_OFFSET" else "other"


VOPD_WEIGHT = 0.1
"""Of a copy: one issue cycle, and the scheduler may decide otherwise."""

CHAIN_WEIGHT = 0.25
"""Of a copy: the wait it spares can be filled with other work."""

WINDOW = 4
"""Instructions apart at most: the scheduler brings such pairs together."""

_DESTINATIONS, _SOURCES = 2, 4
"""Registers that share a bank are equal modulo these."""

_FLOAT = {"V_MUL_F32", "V_ADD_F32", "V_SUB_F32", "V_SUBREV_F32", "V_MAX_F32", "V_MIN_F32", "V_MUL_LEGACY_F32"}
_EITHER = {*_FLOAT, "V_FMAC_F32", "V_MOV_B32"}
_SECOND = {"V_ADD_U32", "V_LSHLREV_B32", "V_AND_B32"}
"""What may be either half of a pair, and what only its second (VOPDInstructions.td)."""

_COMMUTES = {
    "V_MUL_F32",
    "V_ADD_F32",
    "V_MAX_F32",
    "V_MIN_F32",
    "V_MUL_LEGACY_F32",
    "V_FMAC_F32",
    "V_ADD_U32",
    "V_AND_B32",
}
_INLINE = frozenset(str(n) for n in range(-16, 65))


def preferences(
    function: MachineFunction,
    cfg: ControlFlow,
    depths: tuple[int, ...],
    classes: dict[int, RegisterClass],
    ids: dict[int, int],
    ranges: Sequence[LiveRange],
    target: Target,
) -> tuple[Preference, ...]:
    """Preferences of a vector phase, in slot order.

    Args:
        depths: loop depth of each block.
        classes: class of each virtual register.
        ids: range id of each virtual register to place.
    """
    result: list[Preference] = []
    for block, start, depth in zip(function.blocks, cfg.first, depths, strict=False):
        often = float(10 ** min(depth, 6))
        if target.major >= 11 and target.wave_size == 32:
            result += _pairs(block.instructions, start, often * VOPD_WEIGHT, classes, ids, target)
        elif target.unified_vgpr:
            result += _chains(block.instructions, start, often * CHAIN_WEIGHT, ids, ranges)
    return tuple(result)


class _Half(Struct, frozen=True):
    """One operation that may be half of a pair: its registers as (range id, lane), its sources that are none."""

    name: str
    slot: int
    defined: Operand
    register: tuple[int, int]
    sources: tuple[tuple[int, int] | None, ...]
    literals: frozenset[str]
    scalars: frozenset[str]


def _pairs(
    instructions: Sequence[Instruction],
    start: int,
    weight: float,
    classes: dict[int, RegisterClass],
    ids: dict[int, int],
    target: Target,
) -> Iterator[Preference]:
    """Each operation with the nearest one after it that it could pair with; each is in one pair at most."""
    halves = [None if is_debug(i) else _half(i, 4 * n, classes, ids) for n, i in enumerate(instructions, start)]
    paired: set[int] = set()
    for first, first_half in enumerate(halves):
        if first_half is None or first in paired:
            continue
        for second in range(first + 1, min(first + WINDOW, len(halves))):
            second_half = halves[second]
            if second_half is None or second in paired or not _independent(instructions[first : second + 1]):
                continue
            relations = _relations(first_half, second_half, target)
            if relations:
                paired.add(second)
                yield Preference("vopd", relations, weight, second_half.slot)
                break


def _half(instruction: Instruction, slot: int, classes: dict[int, RegisterClass], ids: dict[int, int]) -> _Half | None:
    name = instruction.opcode.removesuffix("_e32").removesuffix("_e64")
    if name not in _EITHER | _SECOND or len(instruction.defs) != 1 or instruction.bundled:
        return None
    explicit = [o for o in instruction.operands if not o.implicit]
    if instruction.opcode.endswith("_e64") and name in _FLOAT | {"V_FMAC_F32"}:
        # Modifiers stand before each source, clamp and omod at the end.
        count = 3 if name == "V_FMAC_F32" else 2
        modifiers = [explicit[k] for k in (*range(0, 2 * count, 2), *range(2 * count, len(explicit)))]
        sources = [explicit[k] for k in (1, 3)]
    else:
        count = 1 if name == "V_MOV_B32" else 2
        sources, modifiers = explicit[:count], explicit[count:] if instruction.opcode.endswith("_e64") else []
    if any(m.text != "0" for m in modifiers):
        return None
    registers = [_register(o, classes, ids) for o in sources]
    if len(sources) == 2 and registers[1] is None:
        # The second source of a short form is a vector register.
        if name not in _COMMUTES or registers[0] is None:
            return None
        registers.reverse()
        sources.reverse()
    defined = _register(instruction.defs[0], classes, ids)
    if defined is None or any(o.vreg >= 0 and r is None for o, r in zip(sources, registers, strict=True)):
        return None
    other_sources = [o for o, r in zip(sources, registers, strict=True) if r is None]
    if any(o.phys and not o.phys.startswith(("sgpr", "vcc")) for o in other_sources):
        return None
    return _Half(
        name,
        slot,
        instruction.defs[0],
        defined,
        tuple(registers),
        frozenset(o.text for o in other_sources if not o.phys and o.text not in _INLINE),
        frozenset(o.phys for o in other_sources if o.phys),
    )


def _register(operand: Operand, classes: dict[int, RegisterClass], ids: dict[int, int]) -> tuple[int, int] | None:
    """Range and lane of a whole 32-bit register, else None."""
    if operand.kind is not OperandKind.REGISTER or operand.vreg not in ids:
        return None
    mask = lane_mask(operand, classes[operand.vreg])
    lane = (mask & -mask).bit_length() - 1
    return (ids[operand.vreg], lane) if mask >> lane == 3 and lane % 2 == 0 else None


def _independent(between: Sequence[Instruction]) -> bool:
    """Whether the last can move up to the first: it reads and writes nothing that those before it touch or write."""
    *before, last = between
    writes = {o.vreg for o in last.all_operands if o.is_def and o.vreg >= 0}
    reads = {o.vreg for o in last.all_operands if not o.is_def and o.vreg >= 0}
    for instruction in before:
        if instruction.opcode.startswith("S_") and "EXEC" in instruction.opcode.upper():
            return False
        for operand in instruction.all_operands:
            if operand.phys in ("exec", "exec_lo") and operand.is_def:
                return False
            if operand.vreg >= 0 and (operand.vreg in writes or (operand.is_def and operand.vreg in reads)):
                # Other lanes of one register do not stand in the way.
                if operand.sub and _other_lanes(operand, last):
                    continue
                return False
    return True


def _other_lanes(operand: Operand, instruction: Instruction) -> bool:
    same_register = [o for o in instruction.all_operands if o.vreg == operand.vreg]
    return all(o.sub and o.sub != operand.sub and "_" not in o.sub + operand.sub for o in same_register)


def _relations(first: _Half, second: _Half, target: Target) -> tuple[Relation, ...]:
    """What must hold for the two to pair; empty where they never can."""
    if first.name in _SECOND and second.name in _SECOND:
        return ()
    if len(first.literals | second.literals) > 1:
        return ()
    if len(first.literals | second.literals) + len(first.scalars | second.scalars) > 2:
        return ()
    relations = [Relation(*first.register, *second.register, _DESTINATIONS)]
    # On gfx12 the second of two moves reads through the third source's port.
    if not (target.major >= 12 and first.name == second.name == "V_MOV_B32"):
        relations += [
            Relation(*a, *b, _SOURCES)
            for a, b in zip(first.sources, second.sources, strict=False)
            if a and b and a != b
        ]
        if any(a is not None and a == b for a, b in zip(first.sources, second.sources, strict=False)):
            return ()
    # Lanes of one range are at a known distance.
    if any(r.a == r.b and (r.a_lane - r.b_lane) // 2 % r.modulus == 0 for r in relations):
        return ()
    return tuple(r for r in relations if r.a != r.b) or ()


def _chains(
    instructions: Sequence[Instruction], start: int, weight: float, ids: dict[int, int], ranges: Sequence[LiveRange]
) -> Iterator[Preference]:
    """Matrix operations whose addend could be in the registers of the result."""
    for index, instruction in enumerate(instructions, start):
        if len(instruction.defs) != 1 or opcode_family(instruction.opcode) != "mfma":
            continue
        result, *sources = instruction.defs[0], *(o for o in instruction.operands if o.vreg >= 0 and not o.implicit)
        addend = sources[2] if len(sources) > 2 else None
        if addend is None or addend.tied >= 0 or result.sub or addend.sub or addend.vreg == result.vreg:
            continue
        if addend.vreg not in ids or result.vreg not in ids:
            continue
        a, b = ranges[ids[addend.vreg]], ranges[ids[result.vreg]]
        if a.lanes == b.lanes and not _live_together(a, b):
            yield Preference(CHAIN, (Relation(a.id, 0, b.id, 0, 0),), weight, 4 * index)


def _live_together(a: LiveRange, b: LiveRange) -> bool:
    return any(
        a_segment[0] < b_segment[1] and b_segment[0] < a_segment[1]
        for a_group in a.groups
        for b_group in b.groups
        if a_group.lanes & b_group.lanes
        for a_segment in a_group.segments
        for b_segment in b_group.segments
    )


# Which registers should coincide: the two ends of copies, and LLVM's register hints.


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
