"""``MirFile`` back to text: the bytes it was parsed from, where nothing was changed."""

from __future__ import annotations

from msgspec.structs import replace

from verilocc_mlir.mir.header import rows, virtual_registers
from verilocc_mlir.mir.model import BasicBlock, MachineFunction, MirFile, VirtualRegister


def print_mir(file: MirFile) -> str:
    return file.preamble + "".join(print_function(f) for f in file.functions)


def print_function(function: MachineFunction) -> str:
    """One YAML document, from ``---`` to its end."""
    lines = list(function.header_lines)
    for block in function.blocks:
        _block_lines(block, lines)
    return "\n".join(lines) + "\n" + function.footer


def with_register_rows(function: MachineFunction) -> MachineFunction:
    """The function with a row of ``registers:`` for each register of its table: one that was made by hand, which no
    operand gives a class, is none without it.
    """
    written = virtual_registers(function.header_lines)
    if all(written.get(number) == register for number, register in function.registers.items()):
        return function
    given = dict(zip(written, rows(function.header_lines, "registers"), strict=True))
    table = [
        given[number] if written.get(number) == register else _row(register)
        for number, register in sorted(function.registers.items())
    ]
    *header, body = function.header_lines
    kept: list[str] = []
    inside = False
    for line in header:
        inside = line.startswith("registers:") or (inside and line.startswith(" "))
        if not inside:
            kept.append(line)
    lines = "\n".join([*kept, "registers:", *table, body]).split("\n")
    return replace(function, header_lines=tuple(lines))


def _row(register: VirtualRegister) -> str:
    hint, flags = f"'{register.preferred}'", ", ".join(register.flags)
    return f"  - {{ id: {register.id}, class: {register.cls}, preferred-register: {hint}, flags: [ {flags} ] }}"


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
