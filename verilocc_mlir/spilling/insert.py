"""Spill code and new names put into a machine function.

A virtual register that is in memory in some gaps falls apart into pieces. A piece is made of accesses and gaps that are
connected while the value stays in a register. Each piece becomes a virtual register of its own, so an allocator may
place the pieces in different registers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import count

from msgspec import Struct
from msgspec.structs import replace

from verilocc_mlir.analysis.cfg import ControlFlow
from verilocc_mlir.mir.model import Instruction, MachineFunction, Operand, VirtualRegister
from verilocc_mlir.mir.operands import register_operand
from verilocc_mlir.spilling.code import Slot, again, copy, runs, spill, subregister, with_slots
from verilocc_mlir.spilling.gaps import Access, Gap, ones
from verilocc_mlir.spilling.plan import Places, SpillMove, SpillPlan
from verilocc_mlir.target.classes import RegisterClass

Makers = Mapping[tuple[int, int], Sequence[Instruction]]
"""By register and part, what makes it again."""

_Node = Access | Gap | tuple[str, int]


class SpillTarget(Struct, frozen=True):
    """What spill code of one function needs to know.

    Attributes:
        classes: of each virtual register.
        places: where code may go.
        stack_pointer: register that addresses the stack, without ``$``.
        offsets: parts of a slot may be moved on their own. They may not where LLVM can keep the slot in accumulators:
            that lowering counts lanes from the slot's start (SIRegisterInfo::buildSpillLoadStore).
        even: tuples start at even registers.
    """

    classes: Mapping[int, RegisterClass]
    places: Places
    stack_pointer: str
    offsets: bool
    even: bool


class Inserted(Struct, frozen=True):
    """A function with spill code.

    Attributes:
        origins: for each instruction the one of the function before, or the one that it was put in front of.
        names: for each new virtual register the one of which it is a piece.
    """

    function: MachineFunction
    origins: tuple[int, ...]
    names: Mapping[int, int]


def insert_spills(
    function: MachineFunction,
    cfg: ControlFlow,
    plans: Mapping[int, SpillPlan],
    target: SpillTarget,
    makers: Makers,
    *,
    accumulators: bool,
) -> Inserted:
    """``function`` with the spill code of ``plans``.

    Args:
        plans: by virtual register.
        makers: of the parts that are made again.
        accumulators: LLVM may keep slots of vectors in free accumulators.
    """
    work = _Insertion(function, target, makers)
    for vreg, plan in plans.items():
        work.add(vreg, plan)
    blocks = tuple(
        replace(block, instructions=tuple(work.block(position, block.instructions, cfg.first[position])))
        for position, block in enumerate(function.blocks)
    )
    changed = replace(function, blocks=blocks, registers=work.registers)
    with_rows = with_slots(changed, work.slots, scalar=work.scalar, marked=work.scalar or accumulators)
    return Inserted(with_rows, tuple(work.origins), work.names)


def renamed(instruction: Instruction, names: Mapping[int, int]) -> Instruction:
    """The instruction with other virtual registers."""
    if all(names.get(op.vreg, op.vreg) == op.vreg for op in instruction.all_operands):
        return instruction
    return replace(
        instruction,
        defs=tuple(_operand(op, names) for op in instruction.defs),
        operands=tuple(_operand(op, names) for op in instruction.operands),
    )


def _operand(operand: Operand, names: Mapping[int, int]) -> Operand:
    vreg = names.get(operand.vreg, operand.vreg)
    if operand.vreg < 0 or vreg == operand.vreg:
        return operand
    return register_operand(
        vreg=vreg,
        sub=operand.sub,
        cls=operand.cls,
        llt=operand.llt,
        tied=operand.tied,
        # A kill of the register need not be a kill of the piece.
        flags=tuple(f for f in operand.flags if f != "killed"),
        is_def=operand.is_def,
    )


class _Insertion:
    """The spill code and names for one function."""

    def __init__(self, function: MachineFunction, target: SpillTarget, makers: Makers) -> None:
        self._target = target
        self._makers = makers
        self._numbers = count(1 + max((*function.registers, *target.classes), default=-1))
        self._slot_numbers = count(1 + max(function.stack, default=-1))
        self._renamed: dict[int, dict[int, int]] = {}
        self._saves: dict[tuple[int, int], list[Instruction]] = {}
        self._reloads: dict[tuple[int, int], list[Instruction]] = {}
        self._dropped: set[int] = set()
        self.registers = dict(function.registers)
        self.slots: list[Slot] = []
        self.scalar = False
        self.origins: list[int] = []
        self.names: dict[int, int] = {}

    def add(self, vreg: int, plan: SpillPlan) -> None:
        """Take in one register's plan."""
        target = self._target
        cls = target.classes[vreg]
        self.scalar |= cls.is_scalar
        pieces = _Pieces(plan)
        names: dict[_Node, int] = {}

        def name(node: _Node) -> int:
            root = pieces.root(node)
            if root not in names:
                # One piece keeps the name, for operands that only mention the register.
                names[root] = vreg if not names else next(self._numbers)
                self.names[names[root]] = vreg
                self.registers[names[root]] = VirtualRegister(names[root], cls.name)
            return names[root]

        for access in plan.register.accesses:
            self._renamed.setdefault(access.index, {})[vreg] = name(access)
        slots = [] if plan.accumulators else self._slots_of(vreg, plan)
        homes = self._accumulators_of(vreg, plan) if plan.accumulators else {}
        for move in plan.saves:
            source = name(pieces.of(move))
            code = [
                spill(source, cls, first, size, slot, target.stack_pointer, save=True)
                for first, size, slot in self._pieces_of(vreg, move.parts, slots)
            ]
            code += [
                copy((homes[part], ""), (source, subregister(part, 1, cls.width)))
                for part in ones(move.parts)
                if part in homes
            ]
            self._saves.setdefault(self._place(move), []).extend(code)
        for move in plan.reloads:
            into = name(pieces.of(move))
            code = [
                instruction
                for part in ones(move.parts)
                if (vreg, part) in self._makers
                for instruction in again(self._makers[vreg, part], into, part, cls.width)
            ]
            code += [
                spill(into, cls, first, size, slot, target.stack_pointer, save=False)
                for first, size, slot in self._pieces_of(vreg, move.parts, slots)
            ]
            code += [
                copy((into, subregister(part, 1, cls.width)), (homes[part], ""))
                for part in ones(move.parts)
                if part in homes
            ]
            self._reloads.setdefault(self._place(move), []).extend(code)
        saved = {move.at for move in plan.saves if move.where == "after"}
        for access in plan.register.accesses:
            only_writes = pieces.size(access) == 1 and not access.reads and access.index not in saved
            if only_writes and all((vreg, part) in self._makers for part in ones(access.writes)) and access.writes:
                self._dropped.add(access.index)

    def block(self, position: int, instructions: tuple[Instruction, ...], start: int) -> list[Instruction]:
        """The instructions of a block with what belongs between them."""
        result: list[Instruction] = []
        for index, instruction in enumerate(instructions, start):
            kept = [renamed(instruction, self._renamed.get(index, {}))] if index not in self._dropped else []
            code = self._at(position, index) + kept
            self.origins += [index] * len(code)
            result += code
        last = self._at(position, start + len(instructions))
        self.origins += [start + len(instructions) - 1] * len(last)
        return result + last

    def _at(self, block: int, index: int) -> list[Instruction]:
        # Saves first: a reload may overwrite the register that a save reads.
        return [*self._saves.get((block, index), ()), *self._reloads.get((block, index), ())]

    def _place(self, move: SpillMove) -> tuple[int, int]:
        return self._target.places.block(move), self._target.places.index(move)

    def _slots_of(self, vreg: int, plan: SpillPlan) -> list[Slot]:
        masks = {self._stored(vreg, m.parts) for m in (*plan.saves, *plan.reloads)} - {0}
        parts = 0
        for mask in masks:
            parts |= mask
        if not parts:
            return []
        target = self._target
        together = runs(parts, target.classes[vreg], even=target.even)
        whole = len(masks) == 1 and len(together) == 1
        if not target.classes[vreg].is_scalar and (target.offsets or whole):
            first = together[0][0]
            slots = [Slot(next(self._slot_numbers), first, parts.bit_length() - first)]
        else:
            slots = [Slot(next(self._slot_numbers), part, 1) for part in ones(parts)]
        self.slots += slots
        return slots

    def _accumulators_of(self, vreg: int, plan: SpillPlan) -> dict[int, int]:
        """A new AGPR for each part that is kept."""
        parts = 0
        for move in (*plan.saves, *plan.reloads):
            parts |= self._stored(vreg, move.parts)
        homes = {part: next(self._numbers) for part in ones(parts)}
        self.registers.update((home, VirtualRegister(home, "agpr_32")) for home in homes.values())
        return homes

    def _stored(self, vreg: int, parts: int) -> int:
        """The parts that are stored, because nothing makes them again."""
        return sum(1 << part for part in ones(parts) if (vreg, part) not in self._makers)

    def _pieces_of(self, vreg: int, parts: int, slots: list[Slot]) -> list[tuple[int, int, Slot]]:
        """First part, how many, and the slot, of each spill instruction for ``parts``."""
        pieces: list[tuple[int, int, Slot]] = []
        for slot in slots:
            inside = self._stored(vreg, parts) & ((1 << slot.size) - 1) << slot.first
            cls = self._target.classes[vreg]
            pieces += [(first, size, slot) for first, size in runs(inside, cls, even=self._target.even)]
        return pieces


class _Pieces:
    """Which accesses and gaps of a register stay connected through registers (union-find)."""

    def __init__(self, plan: SpillPlan) -> None:
        self._parent: dict[_Node, _Node] = {}
        self._gaps = plan.gaps
        self._accesses = {a.index: a for a in plan.register.accesses}
        self._starts = {g.block: g for g in plan.register.gaps if g.opens is None}
        saved = {m.at: m.parts for m in plan.saves if m.where == "after"}
        for access in plan.register.accesses:
            self.root(access)
            self._join_access(access, saved.get(access.index, 0))
        for gap in plan.register.gaps:
            if gap not in plan.gaps:
                for successor in gap.successors:
                    if successor not in plan.gaps:
                        self._join(gap, successor)
        for move in plan.saves:
            if move.where == "start":
                for predecessor in self._starts[move.at].predecessors:
                    self._join(("start", move.at), predecessor)
        ends = {m.at for m in plan.reloads if m.where == "end"}
        for gap in plan.gaps:
            if gap.closes is None and gap.block in ends:
                for successor in gap.successors:
                    self._join(("end", gap.block), successor)
        self._sizes: dict[_Node, int] = {}
        for node in list(self._parent):
            root = self.root(node)
            self._sizes[root] = self._sizes.get(root, 0) + 1

    def root(self, node: _Node) -> _Node:
        """The node that stands for the node's piece."""
        parent = self._parent
        parent.setdefault(node, node)
        while parent[node] is not node:
            parent[node] = parent[parent[node]]
            node = parent[node]
        return node

    def size(self, node: _Node) -> int:
        """Accesses and gaps in the node's piece."""
        return self._sizes[self.root(node)]

    def of(self, move: SpillMove) -> _Node:
        """A node of the piece that a move saves or fills."""
        if move.where in ("before", "after"):
            return self._accesses[move.at]
        if move.where == "end":
            return ("end", move.at)
        start = self._starts[move.at]
        return ("start", move.at) if start in self._gaps else start

    def _join_access(self, access: Access, saved: int) -> None:
        before, after = access.before, access.after
        passed = before.live & after.live & ~access.writes if before is not None and after is not None else 0
        if before is not None and before not in self._gaps:
            needed = access.reads & before.live or (passed and after not in self._gaps) or saved & ~access.writes
            if needed:
                self._join(access, before)
        if after is not None and after not in self._gaps and (access.writes & after.live or passed):
            self._join(access, after)

    def _join(self, a: _Node, b: _Node) -> None:
        self._parent[self.root(a)] = self.root(b)
