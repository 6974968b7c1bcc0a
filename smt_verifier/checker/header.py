"""The headers of both texts: every field is equal, or is one of those that an allocation may change, and as it
may (specification 13.1, 13.2).

LLVM believes the header (MIRParser.cpp, SIMachineFunctionInfo::initializeBaseYamlFields): what stands there after the
phase decides how the frame is set up, which registers are free for later passes, and what the code object says. Stack
objects have rules of their own (``objects.py``).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

from smt_verifier.checker.fields import known_fields
from smt_verifier.checker.model import Function, Instruction, Kind, Operand
from smt_verifier.checker.outcome import Refused
from smt_verifier.checker.tables import Opcode, Tables

_INFO = "machineFunctionInfo."
_RESERVED = f"{_INFO}wwmReservedRegs"
_SHIFTED = f"{_INFO}spillPhysVGPRs"
_EXEC_COPY = f"{_INFO}sgprForEXECCopy"
_SLOT_ALIGNMENT = 4
"""Bytes; registers are spilled at this alignment (SIRegisterInfo.td)."""


class _Side:
    """A function, and what is asked of all its instructions."""

    def __init__(self, function: Function, tables: Tables) -> None:
        self.function = function
        self.tables = tables
        self.instructions = [i for b in function.blocks for i in b.instructions]
        self.opcodes = {name: _described(name, tables) for name in {i.opcode for i in self.instructions}}
        operands = {id(op): op for i in self.instructions for op in i.operands if op.is_register}.values()
        self.vregs = {op.vreg for op in operands if op.vreg >= 0}
        self.names = {op.register for op in operands if op.register}
        self.fields = {"noVRegs": "false" if self.vregs else "true", **function.fields}
        """With what LLVM takes for ``noVRegs`` where it is absent (MIRParserImpl::computeFunctionProperties)."""
        whole_wave = {name for name, opcode in self.opcodes.items() if is_whole_wave_move(opcode)}
        self.whole_wave_moves = [i for i in self.instructions if i.opcode in whole_wave]
        """Copies and spills of the lanes of all threads, active or not."""

    def value(self, key: str) -> str:
        """A field, or what LLVM takes where it is absent; ``-`` where that depends on more."""
        return self.fields.get(key) or known_fields()["fields"].get(key, ("", "-"))[1]

    def units(self, names: Iterable[str]) -> set[int]:
        """Units of registers by their names."""
        return {unit for name in names for unit in _units(name, self.tables)}

    def with_trait(self, *traits: str) -> Iterator[Instruction]:
        return (i for i in self.instructions if not self.opcodes[i.opcode].traits.isdisjoint(traits))

    def listed(self, key: str) -> frozenset[str]:
        """Registers in a list of ``machineFunctionInfo``, without ``$``."""
        names = re.findall(r"\$(\w+)", self.fields.get(key, ""))
        if len(set(names)) != len(names):
            raise Refused("header", f"{key} names a register twice")
        return frozenset(names)


def _described(name: str, tables: Tables) -> Opcode:
    opcode = tables.opcode(name)
    if opcode is None:
        raise Refused("instruction", f"{name} is not in LLVM's tables")
    return opcode


def _units(name: str, tables: Tables) -> tuple[int, ...]:
    register = tables.register(name)
    if register is None:
        raise Refused("register", f"there is no register ${name}")
    return register.units


def is_whole_wave_move(opcode: Opcode) -> bool:
    """Whether spill code moves the lanes of all threads, active or not."""
    return opcode.value("spill").startswith("WWM_")


class _Change(NamedTuple):
    """One field that differs; ``allocatable``: units of registers that an allocator may hand out."""

    before: _Side
    after: _Side
    allocatable: frozenset[int]
    old: str
    new: str


def _is_raised(change: _Change) -> bool:
    """``false`` may become ``true``."""
    return (change.old, change.new) == ("false", "true")


def _is_lowered(change: _Change) -> bool:
    """``true`` may become ``false``."""
    return (change.old, change.new) == ("true", "false")


def _is_raised_at_the_end(change: _Change) -> bool:
    """``false`` may become ``true`` once no virtual register is left."""
    return _is_raised(change) and not change.after.vregs


def _is_for_added_slots(change: _Change) -> bool:
    """The greatest alignment of an object grows with each slot that is added, even if the slot is removed later
    (MachineFrameInfo::CreateStackObject).

    LLVM counts the objects that the text lists, whatever the field says (MIRParserImpl::initializeFrameInfo). A greater
    value makes LLVM align the frame and take a base pointer.
    """
    function = change.before.function
    rows = (*function.stack.values(), *function.fixed_stack.values())
    own = [int(row.get("alignment", "1")) for row in rows if row.get("stack-id", "default") == "default"]
    return int(change.old) <= int(change.new) <= max([int(change.old), _SLOT_ALIGNMENT, *own])


def _is_free_for_exec(change: _Change) -> bool:
    """SILowerSGPRSpills moves the register that keeps EXEC to a lower one that nothing uses, or gives it up where no
    whole-wave code needs it any more.
    """
    after, tables = change.after, change.after.tables
    if change.old == "''":
        return False
    if change.new == "''":
        return not after.vregs and not after.whole_wave_moves and not _opens_brackets(after, change.old)
    old, new = (tables.register(name.strip("'$")) for name in (change.old, change.new))
    if old is None or new is None:
        raise Refused("header", f"{_EXEC_COPY} is no register")
    units = set(new.units)
    if new.file != "s" or len(old.units) != len(units) or not units <= change.allocatable:
        return False
    return units.isdisjoint(after.units(after.names))


def _opens_brackets(side: _Side, register: str) -> bool:
    """Whether whole-wave brackets keep EXEC in a register."""
    opening = side.with_trait("bracket-open")
    return any(i.definitions and i.operands[0].register == register.strip("'$") for i in opening)


def _has_grown(change: _Change) -> bool:
    """Whole-wave registers are added, none is taken away; ``_shared_reservations`` says which may be."""
    return all(change.before.listed(key) <= change.after.listed(key) for key in (_RESERVED, _SHIFTED))


MAY_CHANGE: Mapping[str, Callable[[_Change], bool]] = {
    "noVRegs": _is_raised_at_the_end,
    "isSSA": _is_lowered,
    "tracksDebugUserValues": _is_raised,
    "frameInfo.maxAlignment": _is_for_added_slots,
    "frameInfo.isCalleeSavedInfoValid": _is_raised_at_the_end,
    f"{_INFO}hasSpilledSGPRs": _is_raised,
    f"{_INFO}hasSpilledVGPRs": _is_raised,
    _EXEC_COPY: _is_free_for_exec,
    _RESERVED: _has_grown,
    _SHIFTED: _has_grown,
}
"""Fields that an allocation may change, each with the check that it may:

* ``noVRegs``: VirtRegRewriter, when no virtual register is left;
* ``isSSA``: VirtRegRewriter gives the claim up (MachineRegisterInfo::leaveSSA), where machine IR by hand had it;
* ``tracksDebugUserValues``: LiveDebugVariables; for debuggers only;
* ``maxAlignment``: what the added slots for spills ask for;
* ``isCalleeSavedInfoValid``: SILowerSGPRSpills, once it has saved the callee-saved registers; only seen where a
  text is compared over several phases;
* ``hasSpilledSGPRs``, ``hasSpilledVGPRs``: SIInstrInfo::storeRegToStackSlot; ``_marks`` says when the first must be
  true. Where they are true without need LLVM reserves a slot that stays unused;
* ``sgprForEXECCopy``, ``wwmReservedRegs``, ``spillPhysVGPRs``: SILowerSGPRSpills, AMDGPUReserveWWMRegs.
"""


def compare_headers(before: Function, after: Function, allocatable: frozenset[int], tables: Tables) -> None:
    """What the header says is the same, or changed as an allocation may change it.

    Args:
        before: the function before the phase.
        after: the function after it, stack objects numbered alike, whole-wave brackets folded.
        allocatable: units of registers that an allocator may hand out.

    Raises:
        Refused: something changed that must not, or not so.
    """
    old_side, new_side = _Side(before, tables), _Side(after, tables)
    for key in {**old_side.fields, **new_side.fields}:
        old, new = (side.value(key) for side in (old_side, new_side))
        if re.search(r"%(?:fixed-)?stack\.", new):
            # Its number may mean another object in Q, and spill code does not know that others write there.
            raise Refused("header", f"the field {key} names a stack object")
        may_change = MAY_CHANGE.get(key)
        if old != new and not (may_change and may_change(_Change(old_side, new_side, allocatable, old, new))):
            raise Refused("header", f"the field {key} was {old} and became {new}")
    _liveins(old_side, new_side)
    _marks(new_side)
    _shared_reservations(old_side, new_side)


def _liveins(before: _Side, after: _Side) -> None:
    """The registers that arguments come in stay; the virtual registers that name them may be gone, or have other
    numbers of the same class, or of any class if they do not occur any more.
    """
    old, new = before.function.liveins, after.function.liveins
    if [name for name, _ in old] != [name for name, _ in new]:
        raise Refused("header", "the function's live-in registers changed")
    for (_, a), (_, b) in zip(old, new, strict=True):
        classes = [side.function.registers[n].cls if n >= 0 else "" for side, n in ((before, a), (after, b))]
        if b not in (-1, a) and classes[0] != classes[1] and b in after.vregs:
            raise Refused("header", f"the live-in register %{a} became %{b}, of another class")


def _marks(after: _Side) -> None:
    """Spilled scalars need the mark ``hasSpilledSGPRs``: without it SILowerSGPRSpills moves none into lanes, and their
    slots have no place in memory. The mark for vectors is optional: it only lets LLVM use free accumulators instead of
    memory (SILowerSGPRSpills and SIFrameLowering, SpillVGPRToAGPR).

    A virtual register that holds scalars in its lanes is marked for the whole-wave phase (SILowerSGPRSpills): otherwise
    it is copied and spilled for active threads only.
    """
    spilled = any(opcode.value("spill").startswith("S,") for opcode in after.opcodes.values())
    if spilled and after.fields.get(f"{_INFO}hasSpilledSGPRs") != "true":
        raise Refused("header", "scalars are spilled, but hasSpilledSGPRs is not true")
    for instruction in after.with_trait("lane-save", "lane-restore"):
        vreg = lane_holder(instruction, after.tables).vreg
        if vreg >= 0 and "WWM_REG" not in after.function.registers[vreg].flags:
            raise Refused("header", f"%{vreg} holds scalars in its lanes, but has no flag WWM_REG")


def lane_holder(instruction: Instruction, tables: Tables) -> Operand:
    """The vector register that a scalar is saved in a lane of, or comes from.

    Raises:
        Refused: the instruction has another form than LLVM's.
    """
    place = 0 if "lane-save" in _described(instruction.opcode, tables).traits else 1
    if len(instruction.operands) <= place or not instruction.operands[place].is_register:
        raise Refused("instruction", f"{instruction.opcode} without its register", f"line {instruction.line}")
    return instruction.operands[place]


def _shared_reservations(before: _Side, after: _Side) -> None:
    """Registers that became whole-wave registers have no other meaning.

    The prologue saves what the caller left in them and the epilogue restores it (SIFrameLowering.cpp), so none of them
    may bring an argument or a result: the text before must not name them. What is in ``spillPhysVGPRs`` gets a lower
    number later, wherever that register is named on its own (shiftSpillPhysVGPRsToLowestRange), so only moves into
    and out of its lanes may name it.
    """
    reserved, shifted = (after.listed(key) - before.listed(key) for key in (_RESERVED, _SHIFTED))
    liveins = [*before.function.liveins, *(r for b in before.function.blocks for r in b.liveins)]
    mentioned = before.units([*before.names, *(name for name, _ in liveins)]) if reserved | shifted else set[int]()
    apart = {*map(id, after.with_trait("lane-save", "lane-restore", "no-code")), *map(id, after.whole_wave_moves)}
    others = (i for i in after.instructions if id(i) not in apart) if shifted else ()
    used = after.units({op.register for i in others for op in i.operands if op.is_register and op.register})
    for name in sorted(reserved | shifted):
        if not (mentioned | (used if name in shifted else set())).isdisjoint(_units(name, after.tables)):
            raise Refused("header", f"${name} became a whole-wave register, but is used otherwise")


def unreserved_cells(after: Function, tables: Tables) -> None:
    """In a called function without virtual registers, those that hold scalars in single lanes are reserved for
    whole-wave use, so that later passes save the lanes of inactive threads (SIFrameLowering.cpp) and copies leave them
    alone. Whole-wave moves carry such lanes along, through spill slots too.

    Raises:
        Refused: one is not in ``wwmReservedRegs``.
    """
    side = _Side(after, tables)
    if side.vregs or after.fields.get(f"{_INFO}isEntryFunction") == "true":
        return
    holders = {lane_holder(i, tables).register for i in side.with_trait("lane-save", "lane-restore")}
    places: set[tuple[str, int]] = {("register", unit) for unit in side.units(holders)}
    moves = [pair for i in side.whole_wave_moves for pair in _carried(i, side)] if places else []
    while added := {to for to, of in moves if of in places} - places:
        places |= added
    reserved = side.units(side.listed(_RESERVED))
    if missing := [unit for kind, unit in places if kind == "register" and unit not in reserved]:
        raise Refused(
            "header", f"a register holds scalars in lanes, but is not in wwmReservedRegs: unit {min(missing)}"
        )


def _carried(instruction: Instruction, side: _Side) -> Iterator[tuple[tuple[str, int], tuple[str, int]]]:
    """Places that a whole-wave move writes and those that it reads, by units of 16 bits."""
    operands = instruction.operands
    units = sorted(side.units(op.register for op in operands[:1]))
    spill = side.opcodes[instruction.opcode].value("spill")
    if not spill:
        other = [("register", unit) for unit in sorted(side.units(op.register for op in operands[1:2]))]
    else:
        slot = next((op.number for op in operands if op.kind is Kind.FRAME_INDEX), -1)
        offset = next((op.number for op in operands if op.kind is Kind.IMMEDIATE), 0)
        other = [(f"slot {slot}", offset // 2 + k) for k in range(len(units))]
    if len(other) != len(units):
        raise Refused("instruction", f"{instruction.opcode} between different widths", f"line {instruction.line}")
    pairs = zip((("register", unit) for unit in units), other, strict=True)
    return ((b, a) if spill.endswith("save") else (a, b) for a, b in pairs)


def compare_blocks(before: Function, after: Function) -> None:
    """Blocks correspond by their place in the layout: as many, the same attributes, the same successors in order.

    Raises:
        Refused: they do not.
    """
    if len(before.blocks) != len(after.blocks):
        raise Refused("control-flow", f"{len(before.blocks)} blocks became {len(after.blocks)}")
    for old, new in zip(before.blocks, after.blocks, strict=True):
        if [place for place, _ in old.successors] != [place for place, _ in new.successors]:
            raise Refused("control-flow", f"the successors of bb.{old.number} changed", f"bb.{new.number}")
        if old.attributes != new.attributes:
            raise Refused("control-flow", f"the attributes of bb.{old.number} changed", f"bb.{new.number}")
