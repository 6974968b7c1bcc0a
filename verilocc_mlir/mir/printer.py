"""``MirFile`` back to text: the bytes it was parsed from, where nothing was changed."""

from __future__ import annotations

from verilocc_mlir.mir.model import BasicBlock, MachineFunction, MirFile


def print_mir(file: MirFile) -> str:
    return file.preamble + "".join(print_function(f) for f in file.functions)


def print_function(function: MachineFunction) -> str:
    """One YAML document, from ``---`` to its end."""
    lines = list(function.header_lines)
    for block in function.blocks:
        _block_lines(block, lines)
    return "\n".join(lines) + "\n" + function.footer


def _block_lines(block: BasicBlock, lines: list[str]) -> None:
    lines.append(block.header)
    if block.has_successors:
        successors = [f"%bb.{n}({p})" if p else f"%bb.{n}" for n, p in block.successors]
        lines.append(f"    successors: {', '.join(successors)}")
    if block.liveins:
        lines.append(f"    liveins: {', '.join([str(r) for r in block.liveins])}")
    lines.extend(block.notes)
    for instruction in block.instructions:
        lines.extend(instruction.leading)
        lines.append(instruction.render())
        if instruction.closes_bundle:
            lines.append(" " * (instruction.indent - 2) + "}")
    lines.extend(block.trailer)
