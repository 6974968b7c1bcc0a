"""MIR files as LLVM prints them (llvm/lib/CodeGen/MIRPrinter.cpp) to ``MirFile``.

One pass over the lines; every operand text is parsed once and shared. Errors name file and line.
"""

from __future__ import annotations

import re
from dataclasses import replace

from verilocc_mlir.errors import InputError, VeriloccError
from verilocc_mlir.mir.header import (
    function_liveins,
    function_name,
    stack_objects,
    virtual_registers,
)
from verilocc_mlir.mir.model import (
    BasicBlock,
    Instruction,
    LiveIn,
    MachineFunction,
    MirFile,
    Operand,
)
from verilocc_mlir.mir.operands import is_balanced, parse_operand, split_top_level

_BLOCK = re.compile(r"  bb\.([0-9]{1,9})(?:[. (].*)?:(?: *;.*)?\Z")
_SUCCESSOR = re.compile(r"%bb\.([0-9]{1,9})(?:\((0x[0-9A-Fa-f]+)\))?\Z")
_LIVEIN = re.compile(r"\$([A-Za-z0-9_]+)(?::(0x[0-9A-Fa-f]+))?\Z")
_HEAD = re.compile(r"((?:[a-z][a-z-]* )*)([A-Z][A-Za-z0-9_]*)(?: |\Z)")
_UPPER = re.compile(r"[A-Z]")
_TAIL = re.compile(
    r"(?:debug-location|debug-instr-number|pre-instr-symbol|post-instr-symbol|heap-alloc-marker|pcsections|mmra|cfi-type"
    r"|deactivation-symbol) "
)


def parse_mir(text: str, path: str = "<string>") -> MirFile:
    """Parse a whole ``.mir`` file.

    Args:
        text: the file's text with ``\\n`` line ends.
        path: shown in errors.

    Raises:
        InputError: not MIR, truncated, or a line that cannot be a part of it.
        UnsupportedError: a construct LLVM does not print.
    """
    lines = text.split("\n")
    starts = [k for k, line in enumerate(lines) if line == "---"]
    if not starts:
        raise InputError(
            "no machine function in it",
            where=path,
            hint="a .mir file has one '---' document a function",
        )
    preamble = "\n".join(lines[: starts[0]]) + ("\n" if starts[0] else "")
    functions: list[MachineFunction] = []
    for start, end in zip(starts, [*starts[1:], len(lines)], strict=True):
        functions.append(_FunctionParser(lines, start, end, path).parse())
    return MirFile(preamble, tuple(functions), path)


class _FunctionParser:
    """Parses lines ``[start, end)`` of a file, one YAML document."""

    def __init__(self, lines: list[str], start: int, end: int, path: str) -> None:
        self.lines = lines
        self.start = start
        self.end = end
        self.path = path
        self.uses: dict[str, Operand] = {}
        self.defs: dict[str, Operand] = {}

    def fail(self, message: str, line: int, hint: str = "") -> InputError:
        return InputError(message, where=f"{self.path}:{line + 1}", hint=hint)

    def parse(self) -> MachineFunction:
        lines, start, end = self.lines, self.start, self.end
        body = next((k for k in range(start, end) if lines[k].startswith("body:")), -1)
        close = next((k for k in range(end - 1, start, -1) if lines[k] == "..."), -1)
        if body < 0 or close < body:
            raise self.fail(
                "machine function without a complete body",
                start,
                "the file looks truncated: '...' must end the document",
            )
        header = tuple(lines[start : body + 1])
        footer = "\n".join(lines[close:end]) + ("\n" if end < len(lines) else "")
        blocks = self.parse_blocks(body + 1, close)
        return MachineFunction(
            name=function_name(header, where=f"{self.path}:{start + 1}"),
            header_lines=header,
            blocks=blocks,
            registers=virtual_registers(header),
            liveins=function_liveins(header),
            stack=stack_objects(header, "stack"),
            fixed_stack=stack_objects(header, "fixedStack"),
            first_line=start + 1,
            footer=footer,
        )

    def parse_blocks(self, first: int, close: int) -> tuple[BasicBlock, ...]:
        heads = [k for k in range(first, close) if self.lines[k].startswith("  bb.")]
        if heads and heads[0] != first:
            raise self.fail(f"text before the first block: {self.lines[first].strip()!r}", first)
        if not heads and close > first and any(self.lines[k].strip() for k in range(first, close)):
            raise self.fail("a body without blocks", first)
        ends = [*heads[1:], close][: len(heads)]
        blocks = tuple(self.parse_block(a, b) for a, b in zip(heads, ends, strict=True))
        numbers = [b.number for b in blocks]
        if len(set(numbers)) != len(numbers):
            raise self.fail("two blocks of one number", first)
        known = set(numbers)
        for block, head in zip(blocks, heads, strict=True):
            for successor, _ in block.successors:
                if successor not in known:
                    raise self.fail(f"successor %bb.{successor} does not exist", head)
        return blocks

    def parse_block(self, head: int, end: int) -> BasicBlock:
        lines = self.lines
        match = _BLOCK.match(lines[head])
        if match is None:
            raise self.fail(f"not a block header: {lines[head].strip()!r}", head)
        successors: tuple[tuple[int, str], ...] = ()
        liveins: tuple[LiveIn, ...] = ()
        has_successors = False
        notes: list[str] = []
        pending: list[str] = []
        instructions: list[Instruction] = []
        in_bundle = False
        for k in range(head + 1, end):
            line = lines[k]
            stripped = line.strip()
            if not stripped or stripped.startswith(";"):
                pending.append(line)
            elif not instructions and stripped.startswith("successors:"):
                if has_successors or liveins:
                    raise self.fail("a second 'successors:' line, or one after 'liveins:'", k)
                notes += pending
                pending = []
                successors = self.parse_successors(stripped[11:].strip(), k)
                has_successors = True
            elif not instructions and stripped.startswith("liveins:"):
                if liveins or pending:
                    raise self.fail("'liveins:' out of place", k)
                liveins = self.parse_liveins(stripped[8:].strip(), k)
            elif stripped == "}":
                if not in_bundle or pending:
                    raise self.fail("'}' without an open bundle", k)
                instructions[-1] = replace(instructions[-1], closes_bundle=True)
                in_bundle = False
            else:
                if not instructions:
                    notes += pending
                    pending = []
                instruction = self.parse_instruction(line, k, in_bundle, tuple(pending))
                pending = []
                in_bundle = in_bundle or instruction.opens_bundle
                instructions.append(instruction)
        if in_bundle:
            raise self.fail("a bundle is not closed", end - 1)
        if not instructions:
            notes += pending
            pending = []
        return BasicBlock(
            int(match[1]),
            lines[head],
            successors,
            liveins,
            tuple(instructions),
            has_successors,
            tuple(pending),
            tuple(notes),
        )

    def parse_successors(self, text: str, line: int) -> tuple[tuple[int, str], ...]:
        found: list[tuple[int, str]] = []
        for part in text.split(", ") if text else []:
            match = _SUCCESSOR.match(part)
            if match is None:
                raise self.fail(f"not a successor: {part!r}", line)
            found.append((int(match[1]), match[2] or ""))
        return tuple(found)

    def parse_liveins(self, text: str, line: int) -> tuple[LiveIn, ...]:
        found: list[LiveIn] = []
        for part in text.split(", ") if text else []:
            match = _LIVEIN.match(part)
            if match is None:
                raise self.fail(f"not a live-in: {part!r}", line)
            found.append(LiveIn(match[1], int(match[2], 16) if match[2] else -1))
        return tuple(found)

    def parse_instruction(self, line: str, number: int, bundled: bool, leading: tuple[str, ...]) -> Instruction:
        try:
            return self._parse_instruction(line, number, bundled, leading)
        except VeriloccError as error:
            if error.where:
                raise
            raise type(error)(
                f"{error.what} in {line.strip()!r}",
                where=f"{self.path}:{number + 1}",
                hint=error.hint,
            ) from error

    def _parse_instruction(self, line: str, number: int, bundled: bool, leading: tuple[str, ...]) -> Instruction:
        text = line.lstrip(" ")
        indent = len(line) - len(text)
        comment = ""
        if (mark := text.find(" ; ")) >= 0 and is_balanced(text[:mark]):
            mark = len(text[:mark].rstrip(" "))
            text, comment = text[:mark], text[mark:]
        opens = text.endswith(" {")
        if opens:
            text = text[:-2]
        text, memory = _split_memory(text)
        defs: tuple[Operand, ...] = ()
        equals = text.find(" = ")
        if equals > 0 and not _UPPER.search(text, 0, equals):
            defs = self.operand_list(text[:equals], self.defs, True)
            text = text[equals + 3 :]
        head = _HEAD.match(text)
        if head is None:
            raise InputError("not an instruction")
        rest = text[head.end() :]
        tail = ""
        operands: tuple[Operand, ...] = ()
        if rest:
            if _TAIL.search(rest):
                rest, tail = _split_tail(rest)
            if rest:
                operands = self.operand_list(rest, self.uses, False)
        return Instruction(
            opcode=head[2],
            defs=defs,
            operands=operands,
            flags=tuple(head[1].split()),
            tail=tail,
            memory=memory,
            line=number + 1,
            indent=indent,
            opens_bundle=opens,
            bundled=bundled,
            comment=comment,
            leading=leading,
        )

    def operand_list(self, text: str, cache: dict[str, Operand], is_def: bool) -> tuple[Operand, ...]:
        found: list[Operand] = []
        parts = text.split(", ")
        for part in parts:
            operand = cache.get(part)
            if operand is None:
                if not is_balanced(part):
                    return tuple(self.operand(p, cache, is_def) for p in split_top_level(text))
                operand = self.operand(part, cache, is_def)
            found.append(operand)
        return tuple(found)

    def operand(self, text: str, cache: dict[str, Operand], is_def: bool) -> Operand:
        operand = cache.get(text)
        if operand is None:
            operand = parse_operand(text, is_def=is_def)
            cache[text] = operand
        return operand


def _split_memory(text: str) -> tuple[str, tuple[str, ...]]:
    """Cut ``:: (…), (…)`` off; returns the rest and the texts inside the brackets."""
    at = text.find(" :: (")
    while at >= 0 and text.count('"', 0, at) % 2:
        at = text.find(" :: (", at + 1)
    if at < 0:
        return text, ()
    memory = text[at + 4 :]
    parts = [memory] if "), (" not in memory else split_top_level(memory)
    if not all(p.startswith("(") and p.endswith(")") for p in parts):
        raise InputError("malformed memory operand")
    return text[:at], tuple(p[1:-1] for p in parts)


def _split_tail(rest: str) -> tuple[str, str]:
    """Cut trailing attributes (``debug-location !7`` …) off, with the separator that precedes them."""
    parts = split_top_level(rest)
    for k, part in enumerate(parts):
        if _TAIL.match(part):
            operands = ", ".join(parts[:k])
            attributes = ", ".join(parts[k:])
            return operands, f", {attributes}" if k else f" {attributes}"
    return rest, ""
