"""LLVM's own allocation as a proposal, where it gives each live range one register.

Greedy may split, spill and rematerialise; then its text has other instructions than the text before. If it does not,
the rewriter (VirtRegMap.cpp) only replaces virtual registers and deletes copies that have become identities. So both
texts are read side by side, and the operands show where each register is. Copies are matched last, when the places of
their ends are known. ``prove`` decides whether the result is a valid allocation.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from verilocc_mlir.errors import UnsupportedError
from verilocc_mlir.mir.model import Instruction, MachineFunction, Operand
from verilocc_mlir.problem.model import PROBLEM_VERSION, AllocationProblem, Proposal
from verilocc_mlir.target.registers import lane_list, physical_register, register_of_units, subregister_lanes

NAME = "llvm-greedy"
_COPIES = frozenset({"COPY", "KILL"})
"""The rewriter makes a KILL of an identity copy that has further operands."""


class NotExpressible(Exception):
    """Greedy did more than give each live range a register; the message names the first such thing."""


def greedy_proposal(
    problem: AllocationProblem, before: MachineFunction, after: MachineFunction, version: str
) -> Proposal:
    """Read LLVM's allocation of a phase from its text.

    Args:
        before: the function as it entered the phase.
        after: the function after ``virtregrewriter`` of the phase, made from ``before``.
        version: LLVM's version, for the proposal's ``allocator``.

    Raises:
        NotExpressible: some live range has more than one place.
    """
    places = _Places(problem)
    if len(before.blocks) != len(after.blocks):
        raise NotExpressible("blocks were added")
    copies: list[tuple[list[Instruction], list[Instruction]]] = []
    for block_before, block_after in zip(before.blocks, after.blocks, strict=True):
        copies += _walk(block_before.instructions, block_after.instructions, places)
    # A copy with one known end gives the place of the other, so copies with known ends come first.
    copies.sort(key=lambda pair: sum(not places.knows(copy) for copy in pair[0]))
    for copies_before, copies_after in copies:
        _match_copies(copies_before, copies_after, places)
    return Proposal(PROBLEM_VERSION, f"{NAME}/{version}", places.registers())


class _Places:
    """The first unit of each live range's register, as far as it is known."""

    def __init__(self, problem: AllocationProblem) -> None:
        self._problem = problem
        self._start: dict[int, int] = {}
        self._members = {int(live.name[1:]) for live in problem.ranges}

    def start(self, operand: Operand) -> int | None:
        """First unit of an operand, virtual or physical; None where it is not known."""
        if operand.phys:
            units = physical_register(operand.phys).units
            return units[0] if units else None
        start = self._start.get(operand.vreg)
        return None if start is None else start + _first_lane(operand)

    def concerns(self, operand: Operand) -> bool:
        return operand.vreg in self._members

    def knows(self, copy: Instruction) -> bool:
        return all(self.start(op) is not None for op in (*copy.defs[:1], *copy.operands[:1]))

    def learn(self, operands: Iterable[Operand], replacements: Sequence[Operand]) -> None:
        """Take the places of an instruction's operands from the instruction that replaces it."""
        for operand, replacement in zip(operands, replacements, strict=False):
            if not self.concerns(operand):
                continue
            units = physical_register(replacement.phys).units if replacement.phys else ()
            if not units:
                raise NotExpressible(f"{operand.text} became {replacement.text}")
            self.put(operand.vreg, units[0] - _first_lane(operand))

    def put(self, vreg: int, start: int) -> None:
        earlier = self._start.setdefault(vreg, start)
        if earlier != start:
            raise NotExpressible(f"%{vreg} is in two places")

    def join(self, copy: Instruction) -> None:
        """Learn from a copy that became an identity: its ends are in one place."""
        a, b = copy.defs[0], copy.operands[0]
        at_a, at_b = self.start(a), self.start(b)
        if at_a is None and at_b is None:
            raise NotExpressible("a deleted copy between registers that nothing else mentions")
        if at_a is None and at_b is not None and self.concerns(a):
            self.put(a.vreg, at_b - _first_lane(a))
        elif at_b is None and at_a is not None and self.concerns(b):
            self.put(b.vreg, at_a - _first_lane(b))
        elif at_a != at_b:
            raise NotExpressible(f"a copy is gone, and its ends differ: {copy}")

    def registers(self) -> tuple[str, ...]:
        names: list[str] = []
        for live in self._problem.ranges:
            start = self._start.get(int(live.name[1:]))
            if start is None:
                raise NotExpressible(f"nothing mentions {live.name}")
            try:
                names.append(register_of_units(tuple(range(start, start + live.lanes))))
            except UnsupportedError as error:
                raise NotExpressible(error.what) from error
        return tuple(names)


def _first_lane(operand: Operand) -> int:
    return lane_list(subregister_lanes(operand.sub))[0] if operand.sub else 0


def _walk(
    before: tuple[Instruction, ...], after: tuple[Instruction, ...], places: _Places
) -> list[tuple[list[Instruction], list[Instruction]]]:
    """Learn from all instructions but copies; returns the copies between two of these, on both sides."""
    runs_before, runs_after = _runs(before), _runs(after)
    if len(runs_before) != len(runs_after):
        raise NotExpressible("instructions were added or removed")
    copies: list[tuple[list[Instruction], list[Instruction]]] = []
    for (copies_before, a), (copies_after, b) in zip(runs_before, runs_after, strict=True):
        if copies_before or copies_after:
            copies.append((copies_before, copies_after))
        if a is None or b is None:
            continue
        if a.opcode != b.opcode or len(a.defs) != len(b.defs) or len(a.operands) > len(b.operands):
            raise NotExpressible(f"{a.opcode} became {b.opcode}")
        places.learn(a.all_operands[: len(a.defs)], b.defs)
        places.learn(a.operands, b.operands)
    return copies


def _runs(instructions: tuple[Instruction, ...]) -> list[tuple[list[Instruction], Instruction | None]]:
    """Each instruction with the copies before it; the last entry has the copies at the end and no instruction."""
    runs: list[tuple[list[Instruction], Instruction | None]] = []
    copies: list[Instruction] = []
    for instruction in instructions:
        if instruction.opcode.startswith("DBG_"):
            continue
        if instruction.opcode in _COPIES:
            copies.append(instruction)
            continue
        runs.append((copies, instruction))
        copies = []
    return [*runs, (copies, None)]


def _match_copies(copies_before: list[Instruction], copies_after: list[Instruction], places: _Places) -> None:
    """Match copies in order; a copy that is gone had its ends in one place."""
    waiting = list(copies_after)
    unmatched: list[Instruction] = []
    for copy in copies_before:
        if waiting and _may_be(copy, waiting[0], places):
            counterpart = waiting.pop(0)
            places.learn(copy.defs, counterpart.defs)
            places.learn(copy.operands, counterpart.operands)
        else:
            unmatched.append(copy)
    if waiting:
        raise NotExpressible("copies were added")
    for copy in unmatched:
        if copy.opcode == "COPY":
            places.join(copy)


def _may_be(copy: Instruction, other: Instruction, places: _Places) -> bool:
    """Whether ``copy`` can have become ``other``."""
    if other.opcode == "KILL" and copy.opcode == "COPY" and not other.defs:
        return False
    pairs = [*zip(copy.defs, other.defs, strict=False), *zip(copy.operands, other.operands, strict=False)]
    for operand, counterpart in pairs:
        place = places.start(operand)
        if place is not None and counterpart.phys and place != places.start(counterpart):
            return False
        # Registers of later phases stay virtual; LLVM numbers them anew as it reads the text.
        is_kept = operand.vreg >= 0 and not places.concerns(operand)
        if is_kept != (counterpart.vreg >= 0) or (is_kept and operand.sub != counterpart.sub):
            return False
    return len(copy.operands) <= len(other.operands)
