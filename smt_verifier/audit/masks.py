"""Which threads are active: EXEC and the scalar registers that hold thread masks, followed exactly.

The threads of a wave are partitioned into atoms; each tracked mask is a union of atoms. Boolean operations on tracked
masks give tracked masks; an operation with an unknown operand (a comparison) splits atoms in two. That follows the
code that SILowerControlFlow.cpp and SIOptimizeExecMasking.cpp make for divergent branches and loops, and nothing
cleverer: an EXEC value that cannot be followed makes the audit answer UNKNOWN.

Threads outside every atom were not active at function entry. They become active only through whole-wave code, which
is not followed either.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from smt_verifier.audit.lanes import LaneMap
from smt_verifier.audit.semantics import EXEC_NAMES
from smt_verifier.audit.state import EXEC, Atom, State
from verilocc_mlir.errors import UnsupportedError
from verilocc_mlir.mir.model import Instruction, MachineFunction, Operand, OperandKind

MAX_ATOMS = 256
_BINARY = re.compile(r"S_(AND|OR|XOR|ANDN2|ORN2|NAND|NOR|XNOR)_B(?:32|64)(?:_term)?\Z")
_SAVE = re.compile(r"S_(AND|OR|XOR|ANDN2|ORN2|ANDN1|ORN1|NAND|NOR|XNOR)_SAVEEXEC_B(?:32|64)(?:_term)?\Z")
_MOVE = re.compile(r"(?:COPY|S_MOV_B(?:32|64)(?:_term)?|S_MOV_B64_IMM_PSEUDO)\Z")
_COMPARE = re.compile(r"V_CMP_")

Truth = bool | None
"""Membership of an atom in a mask: in, out, or not known."""


def _and(a: Truth, b: Truth) -> Truth:
    return False if a is False or b is False else None if a is None or b is None else True


def _not(a: Truth) -> Truth:
    return None if a is None else not a


def _or(a: Truth, b: Truth) -> Truth:
    return _not(_and(_not(a), _not(b)))


def _xor(a: Truth, b: Truth) -> Truth:
    return None if a is None or b is None else a != b


_OPERATIONS: dict[str, Callable[[Truth, Truth], Truth]] = {
    "AND": _and,
    "OR": _or,
    "XOR": _xor,
    "ANDN2": lambda a, b: _and(a, _not(b)),
    "ORN2": lambda a, b: _or(a, _not(b)),
    "ANDN1": lambda a, b: _and(_not(a), b),
    "ORN1": lambda a, b: _or(_not(a), b),
    "NAND": lambda a, b: _not(_and(a, b)),
    "NOR": lambda a, b: _not(_or(a, b)),
    "XNOR": lambda a, b: _not(_xor(a, b)),
}


def defines_exec(instruction: Instruction) -> bool:
    """Whether the instruction writes EXEC; ``implicit-def $exec`` on a copy only orders it and writes nothing."""
    return any(
        op.is_def and op.phys in EXEC_NAMES and not (op.implicit and instruction.opcode == "COPY")
        for op in instruction.all_operands
    )


class MaskTracker:
    """Follows masks through the pre-RA side of one function."""

    def __init__(self, function: MachineFunction, lanes: LaneMap) -> None:
        self.lanes = lanes
        self._numbers: dict[tuple[int, ...], int] = {}
        self._owners: dict[int, list[int]] = {}
        self._flowing = self._flow_into_exec(function)

    def variable(self, operand: Operand) -> int | None:
        """Mask variable an operand names: ``EXEC``, a number for a scalar register, or None for what cannot be a
        mask.
        """
        if operand.phys in EXEC_NAMES:
            whole = operand.phys == ("exec" if self.lanes.wave_size == 64 else "exec_lo")
            return EXEC if whole else None
        if not operand.is_reg:
            return None
        keys = self.lanes.keys(operand)
        if not keys or self.lanes.is_vector(keys[0]):
            return None
        number = self._numbers.get(keys)
        if number is None:
            number = len(self._numbers)
            self._numbers[keys] = number
            for key in keys:
                self._owners.setdefault(key, []).append(number)
        return number

    def _flow_into_exec(self, function: MachineFunction) -> frozenset[int]:
        """Identities of the instructions whose scalar result may reach EXEC through mask operations.

        Only these split threads into classes: a comparison that selects between two values is not followed, even if
        its register held a mask before. What is left out is merely not known, so this decides precision alone.
        """
        if not any(defines_exec(i) for b in function.blocks for i in b.instructions):
            return frozenset()
        position = {b.number: n for n, b in enumerate(function.blocks)}
        needed: list[set[int]] = [set() for _ in function.blocks]
        flowing: set[int] = set()
        changed = True
        while changed:
            changed = False
            for n in range(len(function.blocks) - 1, -1, -1):
                block = function.blocks[n]
                now = {v for successor, _ in block.successors for v in needed[position[successor]]}
                for instruction in reversed(block.instructions):
                    self._flow_back(instruction, now, flowing)
                if now != needed[n]:
                    needed[n] = now
                    changed = True
        return frozenset(flowing)

    def _flow_back(self, instruction: Instruction, needed: set[int], flowing: set[int]) -> None:
        """From the masks that reach EXEC from after ``instruction`` to those that do from before it."""
        target = next((self.variable(op) for op in instruction.defs), None)
        flows = defines_exec(instruction) or target in needed
        for op in instruction.all_operands:
            if op.is_def and op.is_reg:
                for key in self.lanes.keys(op):
                    needed.difference_update(self._owners.get(key, ()))
        if flows:
            flowing.add(id(instruction))
            if _is_mask_operation(instruction):
                found = (self.variable(op) for op in instruction.operands if op.is_reg and not op.is_def)
                needed.update(v for v in found if v is not None and v != EXEC)

    def transfer(self, instruction: Instruction, state: State) -> None:
        """Update atoms for one pre-RA instruction.

        Raises:
            UnsupportedError: EXEC gets a value that cannot be followed.
        """
        if not self._flowing:
            return
        writes_exec = defines_exec(instruction)
        target = next((self.variable(op) for op in instruction.defs), None)
        opcode = instruction.opcode
        if not writes_exec and id(instruction) not in self._flowing:
            target = None
        elif match := _SAVE.match(opcode):
            self._save_exec(instruction, _OPERATIONS[match[1]], target, state)
        elif (match := _BINARY.match(opcode)) and target is not None:
            a, b = instruction.operands[:2]
            operation = _OPERATIONS[match[1]]
            self._assign(
                target, lambda atom: operation(self._value(a, atom, state), self._value(b, atom, state)), state
            )
        elif _MOVE.match(opcode) and target is not None:
            source = instruction.operands[0]
            self._assign(target, lambda atom: self._value(source, atom, state), state)
        elif _COMPARE.match(opcode) and target is not None and not writes_exec:
            self._assign(target, _compared, state)
        elif opcode.startswith("V_CMPX_"):
            self._assign(EXEC, _compared, state)
        elif writes_exec:
            raise UnsupportedError(f"{opcode} sets EXEC in a way the audit does not follow")
        else:
            self._forget(target, state)
        if state.masks:
            for operand in instruction.all_operands:
                if operand.is_def and operand.is_reg:
                    self.forget_keys(self.lanes.keys(operand), state, keep=target)

    def live_masks(self, state: State, live: set[int]) -> frozenset[int]:
        """Tracked masks that some path still reads: ``live`` holds the pre-RA keys that are."""
        return frozenset(
            number for keys, number in self._numbers.items() if number in state.masks and not live.isdisjoint(keys)
        )

    def forget_keys(self, keys: tuple[int, ...], state: State, keep: int | None = None) -> None:
        """Masks that live in any of ``keys`` are no longer known, except ``keep``, which has just been assigned."""
        for key in keys:
            for number in self._owners.get(key, ()):
                if number != keep:
                    self._forget(number, state)

    def forget_physical(self, preserved: frozenset[int], state: State) -> None:
        """After a call: masks in physical registers whose units are not all preserved are no longer known."""
        for keys, number in self._numbers.items():
            if number in state.masks and any(k < 0 and -1 - k not in preserved for k in keys):
                self._forget(number, state)

    def _save_exec(
        self, instruction: Instruction, operation: Callable[[Truth, Truth], Truth], target: int | None, state: State
    ) -> None:
        """``D = EXEC; EXEC = S0 operation EXEC`` (ISA manual, SOP1)."""
        if target is None or target == EXEC:
            raise UnsupportedError(f"{instruction.opcode} without a destination that can be followed")
        source = instruction.operands[0]
        if operation(self._value(source, None, state), False) is not False:
            raise UnsupportedError("EXEC may come to hold threads that were not active at function entry")
        atoms: list[Atom] = []
        for atom in state.atoms:
            old = atom.active
            new = operation(self._value(source, atom, state), old)
            rest = atom.signature - {target, EXEC} | (frozenset({target}) if old else frozenset[int]())
            _place(atom, rest, EXEC, new, atoms)
        self._install(atoms, state)
        state.masks.add(target)

    def _value(self, operand: Operand, atom: Atom | None, state: State) -> Truth:
        """Membership of ``atom`` (None: threads outside all atoms) in the mask an operand holds."""
        if operand.kind is OperandKind.IMMEDIATE:
            number = int(operand.text.split()[0])
            return False if number == 0 else True if number == -1 else None
        variable = self.variable(operand)
        if variable is not None and (variable == EXEC or variable in state.masks):
            return atom is not None and variable in atom.signature
        return None

    def _assign(self, variable: int, value: Callable[[Atom | None], Truth], state: State) -> None:
        if value(None) is not False:
            if variable == EXEC:
                raise UnsupportedError("EXEC may come to hold threads that were not active at function entry")
            self._forget(variable, state)
            return
        truths = [(atom, value(atom)) for atom in state.atoms]
        for atom in state.atoms:
            atom.signature = atom.signature - {variable}
        atoms: list[Atom] = []
        for atom, truth in _merged(truths):
            _place(atom, atom.signature, variable, truth, atoms)
        self._install(atoms, state)
        if variable != EXEC:
            state.masks.add(variable)

    @staticmethod
    def _install(atoms: list[Atom], state: State) -> None:
        if len(atoms) > MAX_ATOMS:
            raise UnsupportedError(f"more than {MAX_ATOMS} classes of threads to tell apart")
        state.atoms = atoms

    @staticmethod
    def _forget(variable: int | None, state: State) -> None:
        if variable is not None and variable in state.masks:
            state.masks.discard(variable)
            for atom in state.atoms:
                atom.signature = atom.signature - {variable}


def _is_mask_operation(instruction: Instruction) -> bool:
    opcode = instruction.opcode
    return bool(_BINARY.match(opcode) or _SAVE.match(opcode) or _MOVE.match(opcode))


def _compared(atom: Atom | None) -> Truth:
    """A comparison gives 0 for inactive threads and is not known for active ones (ISA manual, VOPC)."""
    return None if atom is not None and atom.active else False


def _merged(truths: list[tuple[Atom, Truth]]) -> list[tuple[Atom, Truth]]:
    """One atom for those that nothing tells apart any more: same masks, same lanes, same membership in the new mask."""
    kept: list[tuple[Atom, Truth]] = []
    for atom, truth in truths:
        if not any(
            truth is other and atom.signature == a.signature and atom.pre == a.pre and atom.post == a.post
            for a, other in kept
        ):
            kept.append((atom, truth))
    return kept


def _place(atom: Atom, rest: frozenset[int], variable: int, truth: Truth, atoms: list[Atom]) -> None:
    """Put ``atom`` into ``atoms`` with ``variable`` added to ``rest`` as ``truth`` says; not known splits it."""
    if truth is None:
        atoms.append(atom.split(rest | {variable}))
    atom.signature = rest | {variable} if truth else rest
    atoms.append(atom)
