"""A function under construction: registers, operands, instructions, blocks, and their text."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(eq=False)
class Register:
    """A virtual register. ``strict`` scalars may stand wherever M0, EXEC and the null register may not."""

    register_class: str
    bank: str
    width: int
    strict: bool = True
    lanes: frozenset[int] = frozenset()
    """Lanes that are defined wherever the register is in scope."""


@dataclass(eq=False)
class Operand:
    """A virtual register operand; a tied one reads and writes and is rendered at both places."""

    register: Register
    sub: str = ""
    is_def: bool = False
    undef: bool = False
    early_clobber: bool = False

    @property
    def reads(self) -> bool:
        """A use, or a definition of some lanes that keeps the others."""
        return not self.undef and (not self.is_def or bool(self.sub))


@dataclass(eq=False)
class Instruction:
    """Text with ``<n>`` where operand n stands."""

    text: str
    operands: list[Operand] = field(default_factory=list)


@dataclass(eq=False)
class Block:
    successors: list[Block] = field(default_factory=list)
    instructions: list[Instruction] = field(default_factory=list)
    live_ins: list[str] = field(default_factory=list)


def render(blocks: list[Block]) -> tuple[str, str]:
    """The ``registers:`` list and the ``body:``; ``<bb>`` texts in branches are ``{block}`` placeholders."""
    numbers = {id(block): n for n, block in enumerate(blocks)}
    registers: dict[int, tuple[int, Register]] = {}

    def name(register: Register) -> str:
        return f"%{registers.setdefault(id(register), (len(registers), register))[0]}"

    lines: list[str] = []
    for n, block in enumerate(blocks):
        lines.append(f"  bb.{n}:")
        if block.successors:
            share = 0x80000000 // len(block.successors)
            lines.append(
                "    successors: " + ", ".join(f"%bb.{numbers[id(s)]}({share:#010x})" for s in block.successors)
            )
        if block.live_ins:
            lines.append("    liveins: " + ", ".join(block.live_ins))
        lines.append("  ")
        for instruction in block.instructions:
            text = instruction.text
            for k, operand in enumerate(instruction.operands):
                shown = name(operand.register) + (f".{operand.sub}" if operand.sub else "")
                if operand.is_def:
                    flags = "undef " * operand.undef + "early-clobber " * operand.early_clobber
                    shown = f"{flags}{shown}:{operand.register.register_class}"
                elif operand.undef:
                    shown = f"undef {shown}"
                text = text.replace(f"<{k}>", shown)
            for k, successor in enumerate(block.successors):
                text = text.replace(f"<bb{k}>", f"%bb.{numbers[id(successor)]}")
            lines.append("    " + text)
        lines.append("")
    listed = "".join(
        f"  - {{ id: {n}, class: {r.register_class}, preferred-register: '', flags: [  ] }}\n"
        for n, r in registers.values()
    )
    return f"registers:\n{listed}" if listed else "registers:       []\n", "\n".join(lines[:-1]) + "\n"
