"""Reads machine IR as LLVM prints it (MIRPrinter.cpp), strictly: the grammar here takes every character, or none
(specification 2.1).

What LLVM's parser takes and its printer never makes is refused, so that nothing is read otherwise than LLVM reads it.
Comments are ``#`` lines of the header and what follows ``;`` in a body.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from smt_verifier.checker import operands as forms
from smt_verifier.checker.fields import Header, read_header, unquoted
from smt_verifier.checker.model import Block, File, Function, Instruction, Kind, MemoryOperand, Operand, VirtualRegister
from smt_verifier.checker.outcome import Refused
from smt_verifier.checker.tables import tables

_NAME, _NUMBER, _WORD = forms.NAME, forms.NUMBER, forms.WORD
_ATTRIBUTE = rf"(?:%ir-block\.{_NAME}|align {_NUMBER}|machine-block-address-taken|inlineasm-br-indirect-target)"
_END = r" *(?:;.*)?\Z"
_BLOCK = re.compile(
    rf"  bb\.({_NUMBER})(?:\.({_WORD}))?(?: \(({_ATTRIBUTE}(?:, {_ATTRIBUTE})*)\))?:{_END}",
    re.ASCII,
)
_PROBABILITY = r"(?:\((0x[0-9a-f]{8})\))?"
_SUCCESSOR = re.compile(rf"%bb\.({_NUMBER}){_PROBABILITY}")
_SUCCESSORS = re.compile(rf"  +successors:((?: {_SUCCESSOR.pattern}(?:, {_SUCCESSOR.pattern})*)?){_END}")
_LIVEIN = re.compile(r"\$(\w+)(?::(0x[0-9A-F]{16}))?", re.ASCII)
_LIVEINS = re.compile(rf"  +liveins: ({_LIVEIN.pattern}(?:, {_LIVEIN.pattern})*){_END}", re.ASCII)
_FLAG = (
    "frame-setup|frame-destroy|nnan|ninf|nsz|arcp|contract|afn|reassoc|nuw|nsw|nusw|samesign|exact|nofpexcept|nomerge"
    "|noconvergent|unpredictable|nneg|disjoint|inbounds|lr-split|bb-prolog"
)
_HEAD = re.compile(rf"((?:(?:{_FLAG}) )*)([A-Z][A-Za-z0-9_]*)(?=[ ;]|\Z)")
_BRACE = re.compile(rf"( \{{)?{_END}")
_NO_FLAGS: frozenset[str] = frozenset()
_ASSEMBLY = frozenset({"INLINEASM", "INLINEASM_BR"})
_CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]")


def read(text: str) -> File:
    """Read a ``.mir`` text; ``\\r\\n`` ends a line as it does for LLVM.

    Raises:
        Refused: something is not as LLVM prints it, is not known, or refers to what is not there.
    """
    text = text.replace("\r\n", "\n")
    if not text.replace("\n", "").isprintable() and (match := _CONTROL.search(text)):
        line = text.count("\n", 0, match.start()) + 1
        raise Refused("text", f"the character {match[0]!r}, which LLVM does not print", f"line {line}")
    lines = text.split("\n")
    starts = [k for k, line in enumerate(lines) if line == "---"]
    if not starts:
        raise Refused("text", "there is no machine function")
    module = _module(lines[: starts[0]])
    functions: dict[str, Function] = {}
    for start, end in zip(starts, [*starts[1:], len(lines)], strict=True):
        function = _Reader(lines, start, end).read()
        if function.name in functions:
            raise Refused("text", f"a second function {function.name!r}", f"line {start + 1}")
        functions[function.name] = function
    return File(module, tuple(functions.values()))


def _module(lines: list[str]) -> str:
    """The IR module among the lines before the first function. Comments may stand around it: before it with ``;`` too,
    as IREE writes them.
    """
    start = lines.index("--- |") if "--- |" in lines else -1
    end = lines.index("...", start) if start >= 0 and "..." in lines[start:] else -1
    comments = ("#", ";") if start >= 0 else ("#",)
    for number, line in enumerate(lines):
        inside = start < number < end
        taken = line.startswith("  ") if inside else number in (start, end) or line.startswith(comments)
        if (line.strip(" ") and not taken) or (start >= 0 and end < 0):
            raise Refused("text", "a line before the first function that is of no module", f"line {number + 1}")
        if number == end:
            comments = ("#",)
    return "\n".join(line[2:] for line in lines[start + 1 : end]) + "\n" if start >= 0 else ""


class _Reader:
    """Reads the document in lines ``[start, end)``."""

    def __init__(self, lines: list[str], start: int, end: int) -> None:
        self.lines = lines
        self.start = start
        self.end = end
        self.line = start
        self.header = Header("", {}, {}, (), {}, {})
        self.classes: dict[int, str] = {}
        self.places: dict[int, int] = {}
        self.opcodes: set[str] = set()
        """Those that were read."""
        self.left: dict[str, Operand] = {}
        self.right: dict[str, Operand] = {}

    def read(self) -> Function:
        try:
            return self.function()
        except Refused as refused:
            raise Refused(refused.rule, refused.message, refused.where or f"line {self.line + 1}") from None

    def function(self) -> Function:
        lines, start, end = self.lines, self.start, self.end
        body = next((k for k in range(start, end) if lines[k].startswith("body:")), end)
        close = next((k for k in range(body, end) if lines[k] == "..."), end)
        if close == end or not re.fullmatch(r"body: +\|", lines[body]):
            raise Refused("text", "a function without a body, or one that does not end")
        h = self.header = read_header(lines[start + 1 : body], start + 2)
        self.classes = {number: row.cls for number, row in h.registers.items()}
        heads: list[tuple[int, re.Match[str]]] = []
        for self.line in range(body + 1, end):
            line = lines[self.line]
            if self.line >= close:
                if line.strip(" ") and not line.startswith("#") and self.line > close:
                    raise Refused("text", "text behind the end of a function")
            elif line.startswith("  bb."):
                match = _BLOCK.match(line)
                if match is None or int(match[1]) in self.places:
                    raise Refused("block", f"not the head of a further block: {line!r}")
                self.places[int(match[1])] = len(heads)
                heads.append((self.line, match))
            elif line.strip(" ") and not (heads and line.startswith("  ")):
                raise Refused("text", f"a line that belongs to no block: {line!r}")
        ends = [*(at for at, _ in heads[1:]), close]
        blocks = [self.block(match, at, stop) for (at, match), stop in zip(heads, ends, strict=False)]
        used = {op.vreg for op in (*self.left.values(), *self.right.values()) if op.vreg >= 0}
        unknown = (used | {vreg for _, vreg in h.liveins if vreg >= 0}) - self.classes.keys()
        if unknown:
            raise Refused("register", f"nothing gives the class of %{min(unknown)}")
        added = {n: VirtualRegister(n, cls) for n, cls in self.classes.items() if n not in h.registers}
        known = tuple(_with_successors(place, blocks) for place in range(len(blocks)))
        registers = {**added, **h.registers}
        return Function(h.name, h.fields, registers, h.liveins, h.fixed_stack, h.stack, known, start + 1)

    def block(self, head: re.Match[str], at: int, end: int) -> Block:
        successors: tuple[tuple[int, str], ...] | None = None
        liveins: tuple[tuple[str, int], ...] = ()
        instructions: list[Instruction] = []
        bundled = False
        for self.line in range(at + 1, end):
            line = self.lines[self.line]
            code = line.strip(" ")
            if not code or code.startswith(";"):
                continue
            if not instructions and (match := _SUCCESSORS.match(line)):
                found = _SUCCESSOR.findall(match[1])
                if successors is not None or liveins or len(dict(found)) != len(found):
                    raise Refused("block", "successors a second time, or behind the live-ins")
                successors = tuple((self.place(int(number)), text) for number, text in found)
            elif not instructions and (match := _LIVEINS.match(line)):
                if liveins:
                    raise Refused("block", "a second line of live-ins")
                liveins = tuple((name, int(mask, 16) if mask else -1) for name, mask in _LIVEIN.findall(match[1]))
            elif code == "}":
                if not bundled or instructions[-1].opens_bundle:
                    raise Refused("instruction", "'}' without an open bundle")
                instructions[-1] = replace(instructions[-1], closes_bundle=True)
                bundled = False
            else:
                instruction = self.instruction(line, bundled)
                if bundled and instruction.opens_bundle:
                    raise Refused("instruction", "a bundle within a bundle")
                bundled = bundled or instruction.opens_bundle
                instructions.append(instruction)
        if bundled:
            raise Refused("instruction", "a bundle is not closed")
        number, name, attributes = head.groups("")
        printed = successors is not None
        return Block(int(number), name, attributes, successors or (), printed, liveins, tuple(instructions), at + 1)

    def place(self, number: int) -> int:
        """Position of a block in layout order."""
        if number not in self.places:
            raise Refused("block", f"there is no block %bb.{number}")
        return self.places[number]

    def instruction(self, line: str, bundled: bool) -> Instruction:
        at = len(line) - len(line.lstrip(" "))
        # What was read before in this function needs no second look; what is not found so is read by its expression.
        known: list[Operand | None] = []
        ends = line.find(" = ", at)
        if ends >= 0:
            known = [self.left.get(text) for text in line[at:ends].split(", ")]
        operands = [operand for operand in known if operand is not None]
        separator = ""
        if known and len(operands) == len(known):
            at, separator = ends + 3, " = "
        else:
            operands.clear()
        while separator != " = " and (match := forms.DEFINITION.match(line, at)):
            operands.append(self.left.get(match[1]) or self.operand(match, match[1], True))
            separator = match[2]
            at = match.end()
        definitions = len(operands)
        ends = line.find(" ", at)
        opcode = line[at:ends]
        flags, count = _NO_FLAGS, 0
        if ends >= 0 and separator != ", " and opcode in self.opcodes:
            at = ends
        else:
            head = _HEAD.match(line, at)
            if head is None or separator == ", ":
                raise Refused("instruction", f"not an instruction: {line[at:]!r}")
            words, opcode = head[1].split(), head[2]
            flags, count = frozenset(words), len(words)
            at = head.end()
            self.opcodes.add(opcode)
        separator = " "
        # An operand that has a comma in it is never found so.
        ends = line.find(" :: ", at)
        for text in line[at + 1 : ends if ends >= 0 else None].split(", ") if line.startswith(" ", at) else ():
            if (operand := self.right.get(text)) is None:
                break
            operands.append(operand)
            at += len(separator) + len(text)
            separator = ", "
        while line.startswith(separator, at) and (match := forms.OPERAND.match(line, at + len(separator))):
            operands.append(self.right.get(match[0]) or self.operand(match, match[0], False))
            at = match.end()
            separator = ", "
        tail: list[str] = []
        group = 0
        while line.startswith(separator, at) and (match := forms.ATTRIBUTE.match(line, at + len(separator))):
            if (match.lastindex or 0) <= group:
                raise Refused("instruction", f"the attribute {match[0]!r} is not in its place")
            group = match.lastindex or 0
            tail.append(match[0])
            at = match.end()
            separator = ", "
        memory: list[MemoryOperand] = []
        separator = " :: "
        while line.startswith(separator, at) and (match := forms.MEMORY.match(line, at + len(separator))):
            memory.append(self.memory(match[0]))
            at = match.end()
            separator = ", "
        brace = _BRACE.match(line, at) if at < len(line) else None
        if (brace is None and at < len(line)) or len(flags) != count:
            raise Refused("instruction", f"not known here: {line[at:].strip(' ')!r} in {line.strip(' ')!r}")
        if opcode in _ASSEMBLY:
            if not operands or operands[0].kind is not Kind.EXTERNAL:
                raise Refused("instruction", "inline assembly without its text")
            operands[0] = replace(operands[0], kind=Kind.ASM_STRING)
        _check_order(opcode, operands, definitions)
        if opcode.startswith("DBG_") and not _only_reads(opcode, operands, tail):
            raise Refused("instruction", f"{opcode}, for debugging, is more than a read of registers")
        opens = brace is not None and brace[1] is not None
        parts = tuple(operands), definitions, flags, tuple(memory), tuple(tail)
        return Instruction(opcode, *parts, bundled, opens, False, self.line + 1)

    def operand(self, match: re.Match[str], text: str, left: bool) -> Operand:
        """An operand whose text was not met in this function before."""
        kind = Kind.REGISTER if left else Kind[match.lastgroup or ""]
        if kind is Kind.REGISTER:
            operand = forms.register(text, left)
            if operand.cls and self.classes.setdefault(operand.vreg, operand.cls) != operand.cls:
                raise Refused("register", f"%{operand.vreg} is of class {self.classes[operand.vreg]} elsewhere")
        elif kind is Kind.IMMEDIATE:
            operand = forms.immediate(match["IMMEDIATE"])
        elif kind is Kind.BLOCK:
            operand = Operand(kind, text, number=self.place(int(text.removeprefix("%bb."))))
        elif kind in (Kind.FRAME_INDEX, Kind.FIXED_FRAME):
            operand = Operand(kind, text, number=self.stack_object(text))
        else:
            operand = Operand(kind, text)
        (self.left if left else self.right)[text] = operand
        return operand

    def stack_object(self, text: str) -> int:
        """The number in ``%stack.0.name``; there is such an object (``MIParser::parseStackFrameIndex``)."""
        kind, number, *name = text.split(".", 2)
        row = (self.header.fixed_stack if kind == "%fixed-stack" else self.header.stack).get(int(number))
        if row is None or (name and unquoted(row.get("name", "''")) != name[0]):
            raise Refused("object", f"there is no stack object {text}")
        return int(number)

    def memory(self, text: str) -> MemoryOperand:
        memory = forms.memory_operand(text)
        if memory.stack_object >= 0 or memory.fixed_object >= 0:
            self.stack_object(memory.pointer)
        return memory


def _only_reads(opcode: str, operands: Sequence[Operand], tail: Sequence[str]) -> bool:
    """Whether a debug instruction is one of which LLVM's passes take no notice (2.2): they believe its definitions and
    register masks, make code of a stack object that is no DBG_VALUE's, and put its symbols where it is.
    """
    known = opcode.startswith(("DBG_VALUE", "DBG_LABEL")) and all(t.startswith("debug-") for t in tail)
    return known and all(o.kind is not Kind.REGMASK and o.flags <= {"debug-use", "renamable"} for o in operands)


def _check_order(opcode: str, operands: Sequence[Operand], definitions: int) -> None:
    """What LLVM would move or refuse: ``MachineInstr::addOperand`` moves explicit operands before implicit registers,
    inline assembly aside; a tie names a definition that no other operand is tied to (``assignRegisterTies``).
    """
    assembly = opcode in _ASSEMBLY
    implicit = False
    tied: set[int] = set()
    for operand in operands[definitions:]:
        if "implicit" in operand.flags:
            implicit = True
        elif implicit and not assembly:
            raise Refused("instruction", f"the operand {operand.text} stands behind an implicit one")
        if operand.kind is Kind.ASM_FLAG and not assembly:
            raise Refused("instruction", f"{operand.text} is a word of inline assembly")
        if operand.tied >= 0:
            if operand.tied in tied or operand.tied >= len(operands) or not operands[operand.tied].is_def:
                raise Refused("instruction", f"{operand.text} is tied to nothing that is free for it")
            tied.add(operand.tied)


def _with_successors(place: int, blocks: Sequence[Block]) -> Block:
    """The block with the successors that LLVM infers where it prints none (``guessSuccessors`` of MIParser.cpp): the
    blocks that operands name, in order, then the next block unless control does not pass the last instruction.
    """
    block = blocks[place]
    if block.has_successors:
        return block
    targets = [op.number for i in block.instructions for op in i.operands if op.kind is Kind.BLOCK]
    described = (tables().opcode(i.opcode) for i in reversed(block.instructions))
    traits = next((opcode.traits for opcode in described if opcode and "debug" not in opcode.traits), frozenset[str]())
    if place + 1 < len(blocks) and "barrier" not in traits:
        targets.append(place + 1)
    return block._replace(successors=tuple((target, "") for target in dict.fromkeys(targets)))
