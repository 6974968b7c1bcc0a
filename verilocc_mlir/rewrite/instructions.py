"""Operands and instructions with virtual registers replaced.

The rules are those of VirtRegRewriter::rewrite and handleIdentityCopy:

* a subregister operand names the physical subregister;
* a definition loses ``undef`` and ``internal``: it now defines a whole physical register;
* a read of lanes of which none is live is ``undef``, or the machine verifier finds an undefined register;
* an operand that was virtual is ``renamable``;
* an ``IMPLICIT_DEF`` whose register the problem does not hold for it is left out: others may have it, and where a join
  declares the register the block before it gets one (``undefined.py``);
* a copy onto itself vanishes; one that reads ``undef`` or has further operands tells something, and becomes a KILL;
* so does one of a tuple of which some lanes were never defined: each of them may be read alone after it, and LLVM's
  machine verifier then wants a definition.

``killed`` is left off operands that were virtual: it speaks of the virtual register, whose lanes may go on living.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from verilocc_mlir.mir.model import Instruction, Operand, OperandKind
from verilocc_mlir.mir.operands import register_operand
from verilocc_mlir.rewrite.assignment import Placed
from verilocc_mlir.target.lanes import full_lanes, subregister_lanes
from verilocc_mlir.target.registers import compose

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
