"""One phase's proposal written into a machine function."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Iterator, Mapping

from msgspec import Struct
from msgspec.structs import replace

from verilocc_mlir.analysis.cfg import ControlFlow, control_flow
from verilocc_mlir.analysis.execution import is_terminator
from verilocc_mlir.errors import InputError
from verilocc_mlir.mir.header import function_liveins, rows, virtual_registers
from verilocc_mlir.mir.model import BasicBlock, Instruction, LiveIn, MachineFunction, MirFile, Operand, OperandKind
from verilocc_mlir.mir.operands import register_operand
from verilocc_mlir.problem.model import AllocationProblem, LiveRange, Proposal, Segment
from verilocc_mlir.target.registers import (
    PhysicalRegister,
    compose,
    full_lanes,
    llvm_lane_mask,
    physical_register,
    register_of_units,
    subregister_lanes,
)
from verilocc_mlir.target.targets import Target


def rewrite_function(
    file: MirFile,
    function: MachineFunction,
    problem: AllocationProblem,
    proposal: Proposal,
    target: Target,
    *,
    whole: bool = True,
) -> MachineFunction:
    """``function`` as it stands after ``virtregrewriter`` of the problem's phase.

    Args:
        file: the file the function is in, for messages.
        function: what ``problem`` was built from.
        problem: its ranges name the virtual registers to replace, and say where they are live.
        proposal: the registers; what is wrong but well formed (overlaps, for instance) is the verifier's to find.
        whole: it places all registers of the phase.

    Returns:
        The function in which no virtual register of this phase is left: operands, copies onto themselves, block
        live-ins, ``registers:`` and ``liveins:`` are rewritten, everything else is untouched.

    Raises:
        InputError: the problem is not this function's, or the proposal does not fit the problem.
        UnsupportedError: a register without the part an operand names.
    """
    where = f"{file.path}: function {function.name}"
    if problem.function != function.name or problem.slots != 4 * function.instruction_count:
        raise InputError(f"the allocation problem of {problem.function} is not this function's", where=where)
    if problem.target != target.name:
        raise InputError(f"the allocation problem is for {problem.target}, not {target.name}", where=where)
    places = assignment(problem, proposal)
    rewriter = InstructionRewriter(places)
    liveins = new_liveins(problem, places.values())
    undefined = UndefinedLanes(problem, places, control_flow(function))
    blocks: list[BasicBlock] = []
    index = 0
    for position, (block, entering) in enumerate(zip(function.blocks, liveins, strict=True)):
        rewritten: list[Instruction] = []
        for instruction in block.instructions:
            added = undefined.definitions(instruction, position, index)
            changed = rewriter.rewrite(instruction, index, added)
            if changed is not None:
                rewritten.append(changed)
            index += 1
        rewritten = undefined.at_end(position, rewritten)
        blocks.append(replace(block, liveins=merge_liveins(block.liveins, entering), instructions=tuple(rewritten)))
    header = rewrite_header(function.header_lines, places.keys(), last=whole and problem.phase == "vgpr")
    return replace(
        function,
        header_lines=header,
        blocks=tuple(blocks),
        registers=virtual_registers(header),
        liveins=function_liveins(header),
    )


# Operands and instructions with virtual registers replaced.
#
# The rules are those of VirtRegRewriter::rewrite and handleIdentityCopy:
#
# * a subregister operand names the physical subregister;
# * a definition loses ``undef`` and ``internal``: it now defines a whole physical register;
# * a read of lanes of which none is live is ``undef``, or the machine verifier finds an undefined register;
# * an operand that was virtual is ``renamable``;
# * an ``IMPLICIT_DEF`` whose register the problem does not hold for it is left out: others may have it, and where a
#   join declares the register the block before it gets one (``undefined.py``);
# * a copy onto itself vanishes; one that reads ``undef`` or has further operands tells something, and becomes a KILL;
# * so does one of a tuple of which some lanes were never defined: each of them may be read alone after it, and LLVM's
#   machine verifier then wants a definition.
#
# ``killed`` is left off operands that were virtual: it speaks of the virtual register, whose lanes may go on living.


_FLAG_ORDER = (
    "implicit", "implicit-def", "def", "internal", "dead", "killed", "undef", "early-clobber", "renamable", "debug-use",
)  # fmt: skip
_NO_REGISTER = Operand("$noreg", OperandKind.REGISTER, phys="noreg")


class InstructionRewriter:
    """Rewrites the instructions of one function.

    Args:
        places: virtual registers to replace; others stay as they are.
    """

    def __init__(self, places: Mapping[int, Placed]) -> None:
        self._places = places
        self._cache: dict[tuple[str, bool, bool], Operand] = {}
        self._lanes: dict[tuple[int, str], int] = {}

    def rewrite(self, instruction: Instruction, index: int, added: tuple[Operand, ...] = ()) -> Instruction | None:
        """Instruction number ``index`` of the function with physical registers, then the operands ``added``.

        None where nothing is left of it.
        """
        places = self._places
        if not any(op.vreg in places for op in instruction.operands) and not any(
            op.vreg in places for op in instruction.defs
        ):
            return instruction
        if instruction.opcode == "IMPLICIT_DEF" and self._occupies_nothing(instruction.defs[0], index):
            return None
        if instruction.opcode.startswith("DBG_"):
            return replace(instruction, operands=tuple(self._debug(op, index) for op in instruction.operands))
        changed = replace(
            instruction,
            defs=tuple([self._operand(op, index) for op in instruction.defs]),
            operands=(*[self._operand(op, index) for op in instruction.operands], *added),
        )
        if _is_identity_copy(changed):
            in_bundle = changed.bundled or changed.opens_bundle
            plain = not in_bundle and len(changed.operands) == 1 and not changed.operands[0].undef
            if plain and not any(self._undefined_lanes(op, index) for op in instruction.operands):
                return None
            return replace(changed, opcode="KILL")
        return changed

    def _operand(self, operand: Operand, index: int) -> Operand:
        place = self._places.get(operand.vreg)
        if place is None:
            return operand
        undef = operand.undef
        if operand.is_def:
            undef = False
        elif not undef:
            undef = not place.live_lanes(4 * index + 1) & self._touched(operand, place)
        key = (operand.text, operand.is_def, undef)
        physical = self._cache.get(key)
        if physical is None:
            physical = self._cache[key] = _physical(operand, place, undef=undef)
        return physical

    def _debug(self, operand: Operand, index: int) -> Operand:
        place = self._places.get(operand.vreg)
        if place is None:
            return operand
        if not place.live_lanes(4 * index + 1) & self._touched(operand, place):
            return _NO_REGISTER
        return _physical(operand, place, undef=False)

    def _undefined_lanes(self, operand: Operand, index: int) -> int:
        """Lanes that a use reads although nothing is there."""
        place = self._places.get(operand.vreg)
        return self._touched(operand, place) & ~place.live_lanes(4 * index + 1) if place is not None else 0

    def _occupies_nothing(self, operand: Operand, index: int) -> bool:
        place = self._places.get(operand.vreg)
        return place is not None and not place.live_lanes(4 * index + 2) & self._touched(operand, place)

    def _touched(self, operand: Operand, place: Placed) -> int:
        return subregister_lanes(operand.sub) if operand.sub else full_lanes(16 * place.live_range.lanes)


def _physical(operand: Operand, place: Placed, *, undef: bool) -> Operand:
    dropped = {"killed", "undef"} | ({"internal"} if operand.is_def else set[str]())
    flags = {f for f in operand.flags if f not in dropped} | {"renamable"}
    if undef:
        flags.add("undef")
    if "debug-use" in flags:
        flags.discard("renamable")
    return register_operand(
        phys=compose(place.register, operand.sub),
        tied=operand.tied,
        flags=tuple(f for f in _FLAG_ORDER if f in flags),
        is_def=operand.is_def,
    )


def _is_identity_copy(instruction: Instruction) -> bool:
    return (
        instruction.opcode == "COPY"
        and len(instruction.defs) == 1
        and bool(instruction.operands)
        and instruction.defs[0].phys != ""
        and instruction.defs[0].phys == instruction.operands[0].phys
        and not instruction.defs[0].sub
        and not instruction.operands[0].sub
    )


# The YAML part of a function after allocation.


_ROW_ID = re.compile(r"\{ id: (\d+),")
_PREFERRED = re.compile(r"preferred-register: '%(\d+)'")
_VIRTUAL = re.compile(r"virtual-reg: '%(\d+)'")


def rewrite_header(header: tuple[str, ...], placed: Collection[int], *, last: bool) -> tuple[str, ...]:
    """Header lines without the ``placed`` virtual registers; without any, ``noVRegs`` set, where ``last``.

    Raises nothing: rows it does not know stay as they are.
    """
    placed_names = _PlacedRegisters(placed, every=last)
    lines: list[str] = []
    registers = rows(header, "registers")
    inside = False
    for line in header:
        if inside and line.startswith(" "):
            continue
        inside = False
        if line.startswith("registers:"):
            remaining = [placed_names.drop_hint(row) for row in registers if not placed_names.row(row)]
            lines += ["registers:", *remaining] if remaining else ["registers:       []"]
            inside = True
        elif line.startswith("noVRegs:") and last:
            lines.append("noVRegs:         true")
        else:
            lines.append(placed_names.drop_livein(line))
    return tuple("\n".join(lines).split("\n"))


class _PlacedRegisters:
    """The virtual registers that no longer exist."""

    def __init__(self, placed: Collection[int], *, every: bool) -> None:
        self._placed = placed
        self._every = every

    def has(self, number: str) -> bool:
        return self._every or int(number) in self._placed

    def row(self, row: str) -> bool:
        match = _ROW_ID.search(row)
        return match is not None and self.has(match[1])

    def drop_hint(self, row: str) -> str:
        return _PREFERRED.sub(lambda m: "preferred-register: ''" if self.has(m[1]) else m[0], row)

    def drop_livein(self, line: str) -> str:
        return _VIRTUAL.sub(lambda m: "virtual-reg: ''" if self.has(m[1]) else m[0], line)


# Block live-ins after allocation: lane masks where only part of a tuple is live.


def new_liveins(problem: AllocationProblem, places: Iterable[Placed]) -> list[list[LiveIn]]:
    """For each block in layout order, the placed registers that are live at its start, in the order of their ranges."""
    starts = problem.block_starts
    liveins: list[list[LiveIn]] = [[] for _ in starts]
    for place in places:
        masks: dict[int, int] = {}
        for group in place.live_range.groups:
            for begin, end in group.segments:
                for block in range(bisect_left(starts, begin), len(starts)):
                    if starts[block] >= end:
                        break
                    masks[block] = masks.get(block, 0) | group.lanes
        full = full_lanes(16 * place.live_range.lanes)
        for block, mask in masks.items():
            liveins[block].append(LiveIn(place.register.name, -1 if mask == full else llvm_lane_mask(mask)))
    return liveins


def merge_liveins(old: tuple[LiveIn, ...], new: list[LiveIn]) -> tuple[LiveIn, ...]:
    """Live-ins a block had, then the new ones it lacks."""
    masks = {live.reg: live.mask for live in old}
    for live in new:
        old_mask = masks.get(live.reg, 0)
        masks[live.reg] = -1 if old_mask < 0 or live.mask < 0 else old_mask | live.mask
    return tuple(LiveIn(reg, mask) for reg, mask in masks.items())


# Lanes that are live where a successor starts, but that nothing defines on the way there from this block.
#
# Another path into the join defines them; on this one any value would do. The physical register is a live-in of the
# join all the same, and LLVM's machine verifier looks for its definition as soon as a later pass copies the join's code
# into this block. So
#
# * a partial definition (``undef %5.sub3 = …`` before a join at which ``%5.sub1`` is live) gets an ``implicit-def`` of
#   those lanes, as from LLVM's rewriter (VirtRegRewriter.cpp, liveOutUndefPhiLanesForUndefSubregDef);
# * for the others the block ends in an ``IMPLICIT_DEF``. LLVM keeps the one of the given text, and the register with it
#   on all the way to the join; here the register is free on that way (``analysis/liveness.py``).
#
# Nothing is added where another value is held in the register at that point: that value has defined it.


class UndefinedLanes:
    """Finds the definitions to add, for one function."""

    def __init__(self, problem: AllocationProblem, places: Mapping[int, Placed], cfg: ControlFlow) -> None:
        self._problem = problem
        self._places = places
        self._cfg = cfg
        self._missing = self._all_missing()
        self._held: dict[int, list[Segment]] | None = None

    def definitions(self, instruction: Instruction, block: int, index: int) -> tuple[Operand, ...]:
        """Operands ``implicit-def $…`` for instruction number ``index``, in the block at layout position ``block``."""
        missing = self._missing.get(block)
        if not missing or instruction.bundled or instruction.opens_bundle or instruction.opcode == "INLINEASM":
            return ()
        operands: list[Operand] = []
        for operand in instruction.defs:
            lanes = missing.get(operand.vreg, 0)
            if lanes and operand.undef and operand.sub:
                place = self._places[operand.vreg]
                added = self._free(place, lanes & ~subregister_lanes(operand.sub), 4 * index, 4 * index + 3)
                missing[operand.vreg] &= ~added
                operands += [register_operand(phys=r, flags=("implicit-def",)) for r in _registers(place, added)]
        return tuple(operands)

    def at_end(self, block: int, instructions: list[Instruction]) -> list[Instruction]:
        """A block after rewriting, with an ``IMPLICIT_DEF`` before its terminators for what is still missing."""
        missing = self._missing.get(block)
        if not missing:
            return instructions
        last = len(instructions)
        while last and is_terminator(instructions[last - 1]):
            last -= 1
        end = 4 * self._cfg.first[block + 1]
        defined_names = {op.phys for i in instructions if i.opcode == "IMPLICIT_DEF" for op in i.defs}
        added: list[Instruction] = []
        for vreg, lanes in missing.items():
            place = self._places[vreg]
            if place.register.name in defined_names:
                continue
            registers = _registers(place, self._free(place, lanes, end - 4 * (len(instructions) - last) - 1, end))
            defined_names.update(registers)
            defined = [register_operand(phys=register, flags=("renamable",)) for register in registers]
            added += [Instruction("IMPLICIT_DEF", defs=(register,), operands=()) for register in defined]
        return [*instructions[:last], *added, *instructions[last:]]

    def _all_missing(self) -> dict[int, dict[int, int]]:
        """For each block, the virtual registers of which lanes are live in a successor, but not at its own end."""
        first, predecessors = self._cfg.first, self._cfg.predecessors
        joins = [block for block, sources in enumerate(predecessors) if len(sources) > 1]
        # An empty block ends where it starts; what it lets through is not told apart from what the next one holds.
        sources = sorted({p for join in joins for p in predecessors[join] if first[p] < first[p + 1]})
        entered = self._live_at([4 * first[join] for join in joins])
        at_exit = dict(zip(sources, self._live_at([4 * first[source + 1] - 1 for source in sources]), strict=True))
        missing: dict[int, dict[int, int]] = {}
        for join, live in zip(joins, entered, strict=True):
            for source in predecessors[join]:
                live_at_exit = at_exit.get(source, live)
                for vreg, lanes in live.items():
                    if missing_lanes := lanes & ~live_at_exit.get(vreg, 0):
                        of_source = missing.setdefault(source, {})
                        of_source[vreg] = of_source.get(vreg, 0) | missing_lanes
        return missing

    def _live_at(self, slots: list[int]) -> list[dict[int, int]]:
        """For each of the slots, ascending, the virtual registers that are live there, with their lanes."""
        live_at_slot: list[dict[int, int]] = [{} for _ in slots]
        for vreg, place in self._places.items():
            for group in place.live_range.groups:
                for begin, end in group.segments:
                    for live in live_at_slot[bisect_left(slots, begin) : bisect_left(slots, end)]:
                        live[vreg] = live.get(vreg, 0) | group.lanes
        return live_at_slot

    def _free(self, place: Placed, lanes: int, begin: int, end: int) -> int:
        """Those of ``lanes`` in whose place nothing is held between two slots."""
        free = 0
        for at, part in _parts(place):
            if lanes >> at & 1 and not any(self._is_held(unit, begin, end) for unit in part):
                free |= full_lanes(16 * len(part)) << at
        return free & lanes

    def _is_held(self, unit: int, begin: int, end: int) -> bool:
        if self._held is None:
            self._held = self._all_occupied()
        return any(start < end and begin < stop for start, stop in self._held.get(unit, ()))

    def _all_occupied(self) -> dict[int, list[Segment]]:
        segments_of: dict[int, list[Segment]] = {}
        for place in self._places.values():
            for group in place.live_range.groups:
                for lane, unit in enumerate(place.register.units):
                    if group.lanes >> lane & 1:
                        segments_of.setdefault(unit, []).extend(group.segments)
        for fixed in self._problem.fixed:
            for unit in fixed.units:
                segments_of.setdefault(unit, []).extend(fixed.segments)
        return segments_of


def _parts(place: Placed) -> Iterator[tuple[int, tuple[int, ...]]]:
    """The 32-bit parts of a register (16 bits of a register that has no more), each with its first lane."""
    units = place.register.units
    step = 1 if len(units) == 1 else 2
    for at in range(0, len(units), step):
        yield at, units[at : at + step]


def _registers(place: Placed, lanes: int) -> list[str]:
    """Names of the registers that make up ``lanes``: the whole one, or its parts."""
    if lanes == full_lanes(16 * place.live_range.lanes):
        return [place.register.name]
    return [register_of_units(part) for at, part in _parts(place) if lanes >> at & 1]


# Which physical register each virtual register got, and which of its lanes hold something at a slot.


class Placed(Struct, frozen=True):
    """One virtual register and its place.

    Attributes:
        live_range: the range it came from.
        register: what it was given.
    """

    live_range: LiveRange
    register: PhysicalRegister

    def live_lanes(self, slot: int) -> int:
        """Mask of the 16-bit lanes that are live at ``slot``."""
        lanes = 0
        for group in self.live_range.groups:
            at = bisect_right(group.segments, slot, key=lambda segment: segment[0]) - 1
            if at >= 0 and slot < group.segments[at][1]:
                lanes |= group.lanes
        return lanes


def assignment(problem: AllocationProblem, proposal: Proposal) -> Mapping[int, Placed]:
    """Virtual register number to its place.

    Raises:
        InputError: the proposal leaves a range without a register, or gives one of another size.
        UnsupportedError: it names a register that does not exist.
    """
    where = f"function {problem.function}, {problem.phase} phase, {proposal.allocator}"
    if len(proposal.registers) != len(problem.ranges):
        raise InputError(f"{len(proposal.registers)} registers proposed for {len(problem.ranges)} ranges", where=where)
    placed: dict[int, Placed] = {}
    for live_range, name in zip(problem.ranges, proposal.registers, strict=True):
        if not name:
            raise InputError(f"no register proposed for {live_range.name}", where=where)
        register = physical_register(name)
        if len(register.units) != live_range.lanes:
            raise InputError(
                f"${name} has {len(register.units)} 16-bit lanes, {live_range.name} has {live_range.lanes}", where=where
            )
        placed[int(live_range.name[1:])] = Placed(live_range, register)
    return placed
