"""One phase's proposal written into a machine function."""

from __future__ import annotations

from dataclasses import replace

from verilocc_mlir.analysis.cfg import control_flow
from verilocc_mlir.errors import InputError
from verilocc_mlir.mir.header import function_liveins, virtual_registers
from verilocc_mlir.mir.model import BasicBlock, Instruction, MachineFunction, MirFile
from verilocc_mlir.problem.model import AllocationProblem, Proposal
from verilocc_mlir.rewrite.assignment import assignment
from verilocc_mlir.rewrite.header import rewrite_header
from verilocc_mlir.rewrite.instructions import InstructionRewriter
from verilocc_mlir.rewrite.liveins import merge_liveins, new_liveins
from verilocc_mlir.rewrite.undefined import UndefinedLanes
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
