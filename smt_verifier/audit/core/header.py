"""The YAML header of both sides: every field is equal, or is one of those that an allocation may change, and as it may.

LLVM believes the header (MIRParser.cpp, SIMachineFunctionInfo::initializeBaseYamlFields): what stands there after the
phase decides how the frame is set up, which registers are free for later passes, and what the code object says.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from smt_verifier.audit.core.fields import fields_of, frame_indices, named_objects, unquoted, without_number
from smt_verifier.audit.core.lanes import LaneMap, key_name
from smt_verifier.audit.core.moves import cell_registers, is_whole_wave_move, lane_move
from smt_verifier.audit.core.opcodes import LANE_MOVES, NO_CODE, facts
from smt_verifier.audit.core.report import Finding
from smt_verifier.outcome import Outcome
from verilocc_mlir.errors import InputError
from verilocc_mlir.mir.header import rows
from verilocc_mlir.mir.model import Instruction, MachineFunction, OperandKind, StackObject
from verilocc_mlir.target.registers import Bank, physical_register

_FALSE = (
    "exposesReturnsTwice legalized regBankSelected selected failedISel tracksRegLiveness hasWinCFI callsEHReturn "
    "callsUnwindInit hasEHContTarget hasEHScopes hasEHFunclets isOutlined failsVerification tracksDebugUserValues "
    "debugInstrRef frameInfo.isFrameAddressTaken frameInfo.isReturnAddressTaken frameInfo.hasStackMap "
    "frameInfo.hasPatchPoint frameInfo.adjustsStack frameInfo.hasCalls frameInfo.hasOpaqueSPAdjustment "
    "frameInfo.hasVAStart frameInfo.hasMustTailInVarArgFunc frameInfo.hasTailCall frameInfo.isCalleeSavedInfoValid "
    "machineFunctionInfo.hasSpilledSGPRs machineFunctionInfo.hasSpilledVGPRs"
)
_ZERO = "stackSize offsetAdjustment maxAlignment cvBytesOfCalleeSavedRegisters localFrameSize"
_LISTS = "liveins fixedStack stack entry_values callSites debugValueSubstitutions constants"
_WHOLE_WAVE_LISTS = ("machineFunctionInfo.wwmReservedRegs", "machineFunctionInfo.spillPhysVGPRs")
_SLOT_ALIGNMENT = 4
"""Bytes; AMDGPU's registers are spilled at this alignment, halves at 2 (SIRegisterInfo.td)."""
_EXEC_COPY = "machineFunctionInfo.sgprForEXECCopy"
DEFAULTS: Mapping[str, str] = {
    **dict.fromkeys(_FALSE.split(), "false"),
    **{f"frameInfo.{name}": "0" for name in _ZERO.split()},
    **dict.fromkeys(_LISTS.split(), "[]"),
    **dict.fromkeys(_WHOLE_WAVE_LISTS, "[]"),
    "alignment": "1",
    "frameInfo.stackProtector": "''",
    "frameInfo.functionContext": "''",
    "frameInfo.maxCallFrameSize": "4294967295",
    _EXEC_COPY: "''",
}
"""What LLVM takes where a field is absent (MIRYamlMapping.h); a field that is not here must be on both sides."""


@dataclass(frozen=True, slots=True)
class Change:
    """One field that differs.

    Attributes:
        pre: the function before the phase; stack objects are numbered alike on both sides.
        post: the function after it, whole-wave brackets folded.
        allocatable: units of registers that an allocator may hand out.
    """

    pre: MachineFunction
    post: MachineFunction
    allocatable: frozenset[int]
    before: str
    after: str


def _is_raised(change: Change) -> bool:
    """``false`` may become ``true``."""
    return (change.before, change.after) == ("false", "true")


def _is_lowered(change: Change) -> bool:
    """``true`` may become ``false``."""
    return (change.before, change.after) == ("true", "false")


def _is_raised_at_the_end(change: Change) -> bool:
    """``false`` may become ``true`` once no virtual register is left."""
    return _is_raised(change) and not change.post.has_virtual_registers


def _is_for_added_slots(change: Change) -> bool:
    """The greatest alignment of an object grows with each slot that is added, even if the slot is removed later
    (MachineFrameInfo::CreateStackObject).

    LLVM counts the objects that the text lists, whatever the field says (MIRParserImpl::initializeFrameInfo). A greater
    value makes LLVM align the frame and take a base pointer.
    """
    if not (change.before.isdecimal() and change.after.isdecimal()):
        return False
    own = [
        row.alignment
        for row in (*change.pre.stack.values(), *change.pre.fixed_stack.values())
        if dict(without_number(row)).get("stack-id", "default") == "default"
    ]
    return int(change.before) <= int(change.after) <= max([int(change.before), _SLOT_ALIGNMENT, *own])


def _is_free_for_exec(change: Change) -> bool:
    """SILowerSGPRSpills moves the register that keeps EXEC to a lower one that nothing uses, or gives it up where no
    whole-wave code needs it any more.
    """
    if change.before == "''":
        return False
    if change.after == "''":
        return not change.post.has_virtual_registers and not any(map(is_whole_wave_move, _instructions(change.post)))
    old, new = physical_register(unquoted(change.before)), physical_register(unquoted(change.after))
    units = set(new.units)
    return (
        new.bank is Bank.SGPR
        and len(old.units) == len(new.units)
        and units <= change.allocatable
        and not any(
            not units.isdisjoint(physical_register(op.phys).units)
            for i in _instructions(change.post)
            for op in i.all_operands
            if op.phys and op.is_reg
        )
    )


def _has_grown(change: Change) -> bool:
    """Whole-wave registers are added, none is taken away; ``_shared_reservations`` says which may be."""
    return change.after != change.before and _listed(change.before) <= _listed(change.after)


MAY_CHANGE: Mapping[str, Callable[[Change], bool]] = {
    "noVRegs": _is_raised_at_the_end,
    "isSSA": _is_lowered,
    "tracksDebugUserValues": _is_raised,
    "frameInfo.maxAlignment": _is_for_added_slots,
    "frameInfo.isCalleeSavedInfoValid": _is_raised_at_the_end,
    "machineFunctionInfo.hasSpilledSGPRs": _is_raised,
    "machineFunctionInfo.hasSpilledVGPRs": _is_raised,
    _EXEC_COPY: _is_free_for_exec,
    **dict.fromkeys(_WHOLE_WAVE_LISTS, _has_grown),
}
"""Fields that an allocation may change, each with the check that it may:

* ``noVRegs``: VirtRegRewriter, when no virtual register is left;
* ``isSSA``: VirtRegRewriter gives the claim up (MachineRegisterInfo::leaveSSA), where machine IR by hand had it;
* ``tracksDebugUserValues``: LiveDebugVariables; for debuggers only;
* ``maxAlignment``: what the added slots for spills ask for;
* ``isCalleeSavedInfoValid``: SILowerSGPRSpills, once it has saved the callee-saved registers; only seen where a
  text is compared over several phases;
* ``hasSpilledSGPRs``, ``hasSpilledVGPRs``: SIInstrInfo::storeRegToStackSlot; ``_unmarked_spills`` says when the first
  must be true. Where they are true without need LLVM reserves a slot that stays unused;
* ``sgprForEXECCopy``, ``wwmReservedRegs``, ``spillPhysVGPRs``: SILowerSGPRSpills, AMDGPUReserveWWMRegs.

Virtual registers, live-ins and stack objects have rules of their own.
"""
_OTHER_RULES = frozenset({"registers", "liveins", "stack", "fixedStack"})


def compare_headers(pre: MachineFunction, post: MachineFunction, allocatable: frozenset[int]) -> list[Finding]:
    """One finding for each field that changed and must not, or must not so.

    Raises:
        InputError: a header is not of LLVM's layout.
    """
    before, after = ({"noVRegs": _no_virtual_registers(f), **fields_of(f)} for f in (pre, post))
    complaints: list[str] = []
    for key in {**before, **after}:
        old, new = before.get(key, DEFAULTS.get(key)), after.get(key, DEFAULTS.get(key))
        if old == new or key in _OTHER_RULES:
            continue
        may_change = MAY_CHANGE.get(key)
        if old is None or new is None:
            complaints.append(f"header field {key} is not on both sides")
        elif may_change is None or not may_change(Change(pre, post, allocatable, old, new)):
            complaints.append(f"header field {key} was {old} and became {new}")
    complaints += _changed_liveins(pre, post)
    complaints += _changed_objects(pre, post)
    complaints += _unmarked_spills(after, post)
    complaints += _unmarked_lanes(post)
    if any(after.get(name) != before.get(name) for name in _WHOLE_WAVE_LISTS):
        complaints += _shared_reservations(before, after, pre, post)
    return [Finding("header", Outcome.REFUTED, complaint) for complaint in complaints]


def _no_virtual_registers(function: MachineFunction) -> str:
    """What LLVM takes for ``noVRegs`` where it is absent (MIRParserImpl::computeFunctionProperties)."""
    return "false" if function.has_virtual_registers else "true"


def _changed_liveins(pre: MachineFunction, post: MachineFunction) -> Iterable[str]:
    """The registers that arguments come in stay; the virtual registers that name them may be gone, or have other
    numbers of the same class, or of any class if they do not occur any more.
    """
    same = [r.reg for r in pre.liveins] == [r.reg for r in post.liveins]
    pairs = zip(pre.liveins, post.liveins, strict=False)
    changed = {b.vreg for a, b in pairs if b.vreg not in (-1, a.vreg) and not _like(a.vreg, b.vreg, pre, post)}
    if not same or (changed and _occurs(changed, post)):
        yield "the function's live-in registers changed"


def _like(old: int, new: int, pre: MachineFunction, post: MachineFunction) -> bool:
    old_register, new_register = pre.registers.get(old), post.registers.get(new)
    return old_register is not None and new_register is not None and old_register.cls == new_register.cls


def _occurs(vregs: set[int], function: MachineFunction) -> bool:
    return any(op.vreg in vregs for b in function.blocks for i in b.instructions for op in i.all_operands)


_ADDED = {
    "name": ("''",),
    "type": ("spill-slot",),
    "offset": ("0",),
    "alignment": ("2", str(_SLOT_ALIGNMENT)),
    "stack-id": ("default", "sgpr-spill"),
    "callee-saved-register": ("''",),
    "callee-saved-restored": ("true",),
    "debug-info-variable": ("''",),
    "debug-info-expression": ("''",),
    "debug-info-location": ("''",),
}
"""What LLVM prints of a slot that MachineFrameInfo::CreateSpillStackObject makes; besides these it has a size.
For alignments see ``_SLOT_ALIGNMENT``.
"""
_GREATEST_SLOT = 128
"""Bytes of the widest tuple of registers."""


def _changed_objects(pre: MachineFunction, post: MachineFunction) -> Iterable[str]:
    """Stack objects stay as they are; slots for spills may be added. A slot for scalars that nothing mentions any more
    is no longer printed, once scalars are in lanes (SILowerSGPRSpills).
    """
    if sorted(map(without_number, pre.fixed_stack.values())) != sorted(map(without_number, post.fixed_stack.values())):
        yield "the fixed stack objects changed"
    for number, row in pre.stack.items():
        post_row = post.stack.get(number)
        if post_row is None or without_number(row) != without_number(post_row):
            yield f"stack object {number} changed"
    for number, row in post.stack.items():
        if number not in pre.stack and not _is_slot(row):
            yield f"stack object {number} was added and is not a slot for spills as LLVM makes them"


def require_rows(function: MachineFunction) -> None:
    """Live-ins and objects are all read, objects are what their rows say, and instructions mention no others.

    Raises:
        InputError: a row of another form, an object that occurs twice, or one that is mentioned and not there.
    """
    if len(rows(function.header_lines, "liveins")) != len(function.liveins):
        raise InputError("a live-in register is not read")
    objects = {"stack": function.stack, "fixed-stack": function.fixed_stack}
    for kind, of_kind in (("stack", function.stack), ("fixedStack", function.fixed_stack)):
        if len(rows(function.header_lines, kind)) != len(of_kind):
            raise InputError(f"an object of {kind} occurs twice, or is not read")
        for number, row in of_kind.items():
            entries = dict(without_number(row))
            read_back = (entries.get("size", "0"), entries.get("alignment", "1"), entries.get("type", "default"))
            if read_back != (str(row.size), str(row.alignment), row.type):
                raise InputError(f"object {number} of {kind} is not read as LLVM reads it")
    texts = [op.text for op in function.distinct_operands if op.kind is OperandKind.FRAME_INDEX]
    texts += {m for i in _instructions(function) for m in i.memory if "stack." in m}
    if all(number in objects[kind] for text in texts for kind, number in named_objects(text)):
        return
    for instruction in _instructions(function):
        for kind, number in frame_indices(instruction):
            if number not in objects[kind]:
                raise InputError(f"%{kind}.{number} is mentioned and not among the stack objects: {instruction}")


def _is_slot(row: StackObject) -> bool:
    entries = dict(without_number(row))
    return (
        {"type", "alignment", "size"} <= entries.keys() <= {"size", *_ADDED}
        and all(entries.get(key, values[0]) in values for key, values in _ADDED.items())
        and 0 < row.size <= _GREATEST_SLOT
        and row.size % row.alignment == 0
    )


def _unmarked_spills(after: Mapping[str, str], post: MachineFunction) -> Iterable[str]:
    """Spilled scalars need the mark ``hasSpilledSGPRs``: without it SILowerSGPRSpills moves none into lanes, and their
    slots have no place in memory. The mark for vectors is optional: it only lets LLVM use free accumulators instead of
    memory (SILowerSGPRSpills and SIFrameLowering, SpillVGPRToAGPR).
    """
    key = "machineFunctionInfo.hasSpilledSGPRs"
    spilled = any((move := facts(i.opcode).spill) and move[0] == "S" for i in _instructions(post))
    if spilled and after.get(key, DEFAULTS[key]) != "true":
        yield "scalars are spilled, but hasSpilledSGPRs is not true"


def _unmarked_lanes(post: MachineFunction) -> Iterable[str]:
    """A virtual register that holds scalars in its lanes must be marked for the whole-wave phase (SILowerSGPRSpills):
    otherwise it is copied and spilled for active threads only.
    """
    holders = {m.register.vreg for i in _instructions(post) if (m := lane_move(i)) is not None and m.register.vreg >= 0}
    for number in sorted(holders):
        if number not in post.registers or "WWM_REG" not in post.registers[number].flags:
            yield f"%{number} holds scalars in its lanes, but has no flag WWM_REG"


def _shared_reservations(
    before: Mapping[str, str], after: Mapping[str, str], pre: MachineFunction, post: MachineFunction
) -> Iterable[str]:
    """Registers that became whole-wave registers have no other meaning.

    The prologue saves what the caller left in them and the epilogue restores it (SIFrameLowering.cpp), so none of them
    may bring an argument or a result: the text before must not name them. What is in ``spillPhysVGPRs`` gets a lower
    number later, wherever that register is named on its own (shiftSpillPhysVGPRsToLowestRange), so only moves into
    and out of its lanes may name it.
    """
    reserved, shifted = (_listed(after.get(k, "")) - _listed(before.get(k, "")) for k in _WHOLE_WAVE_LISTS)
    if not reserved | shifted:
        return
    mentioned = [op.phys for i in _instructions(pre) for op in i.all_operands if op.phys and op.is_reg]
    mentioned += [r.reg for r in (*pre.liveins, *(r for b in pre.blocks for r in b.liveins))]
    ordinary = [i for i in _instructions(post) if not (i.opcode in LANE_MOVES | NO_CODE or is_whole_wave_move(i))]
    used = [op.phys for i in ordinary for op in i.all_operands if op.phys and op.is_reg]
    for name in sorted(reserved | shifted):
        units = set(physical_register(name).units)
        users = {*mentioned, *used} if name in shifted else set(mentioned)
        if any(not units.isdisjoint(physical_register(user).units) for user in users):
            yield f"${name} became a whole-wave register, but is used otherwise"


def _instructions(function: MachineFunction) -> Iterable[Instruction]:
    return (i for b in function.blocks for i in b.instructions)


def unreserved_cells(post: MachineFunction, lanes: LaneMap) -> list[Finding]:
    """Registers that hold scalars in single lanes must be reserved for whole-wave use, so that later passes save the
    lanes of inactive threads (SIFrameLowering.cpp) and copies leave them alone.
    """
    listed = whole_wave_keys(post, lanes)
    cells = {k for k in cell_registers(post, lanes) if k < 0}
    return [
        Finding(
            "header",
            Outcome.REFUTED,
            f"{key_name(k, lanes.grain)} holds spilled scalars, but is not in wwmReservedRegs",
        )
        for k in sorted(cells - listed, reverse=True)
    ]


def whole_wave_keys(function: MachineFunction, lanes: LaneMap) -> frozenset[int]:
    """Registers reserved for whole-wave use: a called function saves them for all threads (SIFrameLowering.cpp)."""
    reserved = fields_of(function).get(_WHOLE_WAVE_LISTS[0], "")
    return frozenset(k for name in _listed(reserved) for k in lanes.register_keys(name))


def _listed(value: str) -> frozenset[str]:
    """Registers in a list of ``machineFunctionInfo``, without ``$``."""
    return frozenset(_REGISTER.findall(value))


_REGISTER = re.compile(r"\$(\w+)")
