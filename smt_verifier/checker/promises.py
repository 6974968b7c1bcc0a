"""What the calls in a file say of a function: registers that it leaves alone beyond its convention (section 9)."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from itertools import islice

from smt_verifier.checker.frame import edges, kept_by_calls, units_named, wants_frame_pointer
from smt_verifier.checker.lanes import Lanes
from smt_verifier.checker.limits import Limits
from smt_verifier.checker.model import File, Function, Instruction, Kind
from smt_verifier.checker.module import attributes
from smt_verifier.checker.outcome import Refused
from smt_verifier.checker.tables import Tables

_WRITTEN_OUT = "CustomRegMask("
_HIDDEN = re.compile(r"[\\ ]")
"""A name with escapes, or an offset."""
_INFO, _FRAME = "machineFunctionInfo.", "frameInfo."
_LANE_REGISTERS = "wwmReservedRegs"
_MOVED_VECTORS, _MOVED_SCALARS = (_LANE_REGISTERS, "spillPhysVGPRs"), "longBranchReservedReg"
"""Header fields whose registers LLVM moves to lower ones."""
_STACK_ALIGNMENT = 16
_LANES = 32
"""Lanes of the smaller waves: so many scalars a VGPR keeps for the frame."""
_FRAME_SCALARS = 4
"""Frame pointer, base pointer and the return address."""
_ADDRESSES = 2
"""VGPRs that LLVM takes at one instruction for an address, and for what is stored there."""
_SCALAR_PAIRS = 4
"""Pairs of SGPRs for frame and base pointer, EXEC, and addresses."""


def check_promises(file: File, before: Lanes, after: Lanes, propagated: Sequence[Lanes], bounds: Limits) -> bool:
    """Q writes nothing that a mask written out in P's file says is kept, unless P's own instructions do; nor does LLVM
    take any of it for a frame. ``propagated``: what MachineCopyPropagation makes of Q, which names less.

    Returns:
        Whether there is such a mask, of more than the convention preserves.

    Raises:
        Refused: one of them may.
    """
    function = before.function
    promised = _promised(file, function, before.tables) - bounds.callee_saved
    if promised:
        promised -= {unit for i in _instructions(function) for unit in _lost(i, promised, before)}
    if not promised:
        return False
    for instruction in _instructions(after.function):
        if _lost(instruction, promised, after):
            raise Refused(
                "call-mask",
                f"{instruction.opcode} writes what a call of {function.name} keeps",
                f"line {instruction.line}",
            )
    strings = attributes(file.module, function.name).strings
    spared = (_spared(after, bounds, text.named) for text in (after, *propagated))
    if is_framed(after, bounds, strings) and not all(promised <= units for units in spared):
        raise Refused("call-mask", f"for a frame LLVM may take registers that a call of {function.name} keeps")
    return True


def is_framed(after: Lanes, bounds: Limits, strings: Mapping[str, str]) -> bool:
    """LLVM needs registers to save, address or move something (SIFrameLowering.cpp)."""
    function, fields = after.function, after.function.fields
    opcodes = [after.tables.opcode(i.opcode) for i in _instructions(function)]
    return (
        bool(function.stack or function.fixed_stack or _listed(after, *_MOVED_VECTORS, _MOVED_SCALARS))
        or any(opcode is not None and "call" in opcode.traits for opcode in opcodes)
        or wants_frame_pointer(function, strings)
        or fields.get(_FRAME + "stackSize", "0") != "0"
        or fields.get(_INFO + "isWholeWaveFunction") == "true"
        or not bounds.callee_saved.isdisjoint(after.defined_units)
    )


def _listed(after: Lanes, *fields: str) -> frozenset[int]:
    return units_named(after, " ".join(after.function.fields.get(_INFO + field, "") for field in fields))


def _spared(after: Lanes, bounds: Limits, named: frozenset[int]) -> frozenset[int]:
    """Units that LLVM's frame leaves alone for sure.

    It takes the lowest registers: VGPRs that nothing uses for the lanes of scalars, and an SGPR for the frame pointer;
    SGPRs that are dead there for EXEC in prologue and epilogue, behind one for the frame pointer if it has none; where
    something is addressed in the frame, whatever is dead. It keeps VGPRs that are spilled, or saved for the caller, in
    accumulators, and these in VGPRs (SIFrameLowering.cpp, findScratchNonCalleeSaveRegister, findUnusedRegister,
    allocateVGPRSpillToAGPR; SIRegisterInfo::eliminateFrameIndex).
    """
    function, usable = after.function, bounds.allocatable - bounds.callee_saved
    scalars, vectors, accumulators = (after.tables.units(file) for file in "sva")
    if not after.defined_units.isdisjoint(accumulators):
        return frozenset()
    unused = kept_by_calls(after, usable - {k + n for k in named for n in range(after.grain)})
    saved = {u // 2 for u in bounds.callee_saved & after.defined_units if u in scalars}
    lanes = 1 + (len(saved) + _FRAME_SCALARS) // _LANES + len(_listed(after, *_MOVED_VECTORS)) // 2
    branches = bool(_listed(after, _MOVED_SCALARS))
    aligned = int(function.fields.get(_FRAME + "maxAlignment", "1")) > _STACK_ALIGNMENT
    if function.stack or function.fixed_stack or aligned:
        spared = _above(vectors, 1, lanes + _ADDRESSES, unused)
        return frozenset([*spared, *_above(scalars, 2, _SCALAR_PAIRS + branches, unused)] if spared else ())
    if not _above(vectors, 1, lanes, unused):
        return frozenset()
    of_branches = _first(scalars, 2, branches, unused) or _listed(after, _MOVED_SCALARS)
    taken = _first(vectors, 1, lanes, unused) | _first(scalars, 1, 1, unused) | of_branches
    of_exec: set[int] = set()
    has_frame_pointer = bool(_first(scalars, 1, 1, unused))
    for live in edges(after):
        dead = usable - live - taken
        dead -= set() if has_frame_pointer else _first(scalars, 1, 1, dead)
        end = max(_first(scalars, 2, 1, dead), default=scalars.stop)
        of_exec.update(u for u in scalars if u <= end and u not in live)
    spared = frozenset([*vectors, *scalars]) - taken - of_exec
    return spared if _saves_vectors(after, bounds) else spared.union(accumulators)


def _saves_vectors(after: Lanes, bounds: Limits) -> bool:
    """LLVM saves vector registers of the caller by spill code; those for lanes it saves by plain stores, and moves
    (SIFrameLowering::determineCalleeSaves, emitCSRSpillStores).
    """
    saved = set(bounds.callee_saved - _listed(after, _LANE_REGISTERS)).difference(after.tables.units("s"))
    whole_wave = after.function.fields.get(_INFO + "isWholeWaveFunction") == "true"
    return whole_wave or any(_lost(instruction, saved, after) for instruction in _instructions(after.function))


def _first(units: range, width: int, count: int, free: Collection[int]) -> set[int]:
    """The first ``count`` aligned tuples of ``width`` free registers of a file."""
    tuples = (range(u, u + 2 * width) for u in units[:: 2 * width])
    return {u for t in islice((t for t in tuples if all(u in free for u in t)), count) for u in t}


def _above(units: range, width: int, count: int, free: Collection[int]) -> range:
    """Units of a file above those; none if there are fewer."""
    first = _first(units, width, count, free)
    return range(max(first) + 1 if len(first) == 2 * width * count else units.stop, units.stop)


def _instructions(function: Function) -> list[Instruction]:
    return [i for block in function.blocks for i in block.instructions]


def _promised(file: File, function: Function, data: Tables) -> set[int]:
    """Units that masks of calls of the function preserve, as far as they are written out: of those that name no other
    one, by a name without escapes that is no alias.
    """
    units: set[int] = set()
    aliases = {line.split(" ")[0].replace('"', "") for line in file.module.split("\n") if line.startswith("@")}
    for instruction in (i for f in file.functions for i in _instructions(f)):
        masks = [o.text for o in instruction.operands if o.kind is Kind.REGMASK]
        callees = [o.text.replace('"', "") for o in instruction.operands if o.kind is Kind.GLOBAL]
        others = [c for c in callees if c != f"@{function.name}" and c not in aliases and not _HIDDEN.search(c)]
        if (len(others) < len(callees) or not callees) and any(m.startswith(_WRITTEN_OUT) for m in masks):
            kept = [data.mask(m) or frozenset[int]() for m in masks]
            units |= kept[0].intersection(*kept)
    return units


def _lost(instruction: Instruction, units: set[int], lanes: Lanes) -> set[int]:
    """Those of ``units`` that an instruction may write, or that a call of it may."""
    opcode = lanes.tables.opcode(instruction.opcode)
    if opcode is None or "debug" in opcode.traits:
        return set()
    names = [lanes.name(o, instruction) for o in instruction.operands if o.is_def and o.is_register and o.vreg < 0]
    written = {u for name in (*names, *opcode.implicit_definitions) for u in lanes.register(name).units}
    masks = [lanes.tables.mask(o.text) or frozenset[int]() for o in instruction.operands if o.kind is Kind.REGMASK]
    if masks:
        written |= units - masks[0].intersection(*masks)
    elif "call" in opcode.traits:
        return units
    return units & written
