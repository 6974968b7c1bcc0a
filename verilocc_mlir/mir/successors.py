"""Successors of blocks: those LLVM infers where the line is missing, and those a line must name."""

from __future__ import annotations

import re

from msgspec.structs import replace

from verilocc_mlir.errors import InputError, UnsupportedError
from verilocc_mlir.mir.model import BasicBlock, Instruction, OperandKind

_BARRIERS = frozenset({
    "S_BRANCH", "S_ENDPGM", "S_ENDPGM_ORDERED_PS_DONE", "S_ENDPGM_SAVED", "S_SETPC_B64", "S_SETPC_B64_return",
    "SI_CS_CHAIN_TC_W32", "SI_CS_CHAIN_TC_W32_DVGPR", "SI_CS_CHAIN_TC_W64", "SI_CS_CHAIN_TC_W64_DVGPR", "SI_RETURN",
    "SI_RETURN_TO_EPILOG", "SI_TCRETURN", "SI_TCRETURN_CHAIN", "SI_TCRETURN_GFX", "SI_TCRETURN_GFX_WholeWave",
    "SI_WHOLE_WAVE_FUNC_RETURN",
})  # fmt: skip
_MAY_BE_BARRIER = re.compile(r"(?!S_CBRANCH_).*(?:RETURN|ENDPGM|BRANCH|SETPC|ADD_PC|CHAIN|CODE_END|G_BR)", re.ASCII)
_DEBUG = frozenset({"DBG_VALUE", "DBG_VALUE_LIST", "DBG_INSTR_REF", "DBG_PHI", "DBG_LABEL", "PSEUDO_PROBE"})


def with_successors(
    blocks: tuple[BasicBlock, ...], branches: tuple[tuple[Instruction, ...], ...], *, where: str
) -> tuple[BasicBlock, ...]:
    """Blocks with the successors that LLVM infers where ``successors:`` is missing (``guessSuccessors`` of
    MIRParser/MIParser.cpp): the blocks that operands name, in order, then the next block unless control does not
    pass the last instruction. A line that is there must name them too: LLVM believes it, and control goes where the
    branches say (``MachineVerifier::visitMachineBasicBlockBefore``). ``branches``: of each block, the instructions
    that name one.

    Raises:
        InputError: a line leaves out a block that control may go to.
        UnsupportedError: whether control passes the last instruction is not known here.
    """
    result: list[BasicBlock] = []
    for number, block in enumerate(blocks):
        targets = _targets(branches[number], where)
        follows = blocks[number + 1].number if number + 1 < len(blocks) else -1
        if not block.has_successors:
            if follows >= 0 and follows not in targets and _falls_through(block, where):
                targets.append(follows)
            block = replace(block, successors=tuple((target, "") for target in targets))
        elif block.successors or targets:
            declared = {target for target, _ in block.successors}
            if _falls_through(block, where):
                targets.append(follows)
            if missing := [target for target in targets if target not in declared]:
                name = f"bb.{missing[0]}" if missing[0] >= 0 else "the end of the function"
                raise InputError(f"control goes from bb.{block.number} to {name}, which is no successor", where=where)
        result.append(block)
    return tuple(result)


def _targets(branches: tuple[Instruction, ...], where: str) -> list[int]:
    """Blocks that operands name, each once."""
    targets: list[int] = []
    for instruction in branches:
        for operand in instruction.operands:
            if operand.kind is OperandKind.BLOCK:
                if instruction.bundled or instruction.opcode == "PHI":
                    raise UnsupportedError(f"{instruction.opcode} names a block", where=where)
                target = int(operand.text.split(".")[1])
                if target not in targets:
                    targets.append(target)
    return targets


def _falls_through(block: BasicBlock, where: str) -> bool:
    """Whether control passes the last instruction that is not for debugging, all of a bundle."""
    for instruction in reversed(block.instructions):
        if instruction.opcode in _DEBUG:
            continue
        barrier = is_barrier(instruction.opcode)
        if barrier is None:
            raise UnsupportedError(f"whether control passes {instruction.opcode} is not known here", where=where)
        if barrier:
            return False
        if not instruction.bundled:
            return True
    return True


def is_barrier(opcode: str) -> bool | None:
    """Whether control does not pass an opcode (``isBarrier`` in LLVM's tables); None where it is not known here."""
    if opcode in _BARRIERS:
        return True
    return None if _MAY_BE_BARRIER.match(opcode) else False
