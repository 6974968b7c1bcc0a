"""Reads machine IR as LLVM prints it (MIRPrinter.cpp), strictly: the grammar here takes every character, or none.

What LLVM's parser takes and its printer never makes is refused, so that nothing is read otherwise than LLVM reads it.
Comments are ``#`` lines of the header and what follows ``;`` in a body.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from smt_verifier.checker.fields import Header, read_header, unquoted
from smt_verifier.checker.model import Block, File, Function, Instruction, Kind, MemoryOperand, Operand, VirtualRegister
from smt_verifier.checker.operands import (
    ATTRIBUTE,
    DEFINITION,
    MEMORY,
    NAME,
    NUMBER,
    OPERAND,
    WORD,
    immediate,
    memory_operand,
    register,
)
from smt_verifier.checker.outcome import Refused

_ATTRIBUTE = rf"(?:%ir-block\.{NAME}|align {NUMBER}|machine-block-address-taken|inlineasm-br-indirect-target)"
_END = r" *(?:;.*)?\Z"
_BLOCK = re.compile(
    rf"  bb\.({NUMBER})(?:\.({WORD}))?(?: \(({_ATTRIBUTE}(?:, {_ATTRIBUTE})*)\))?:{_END}",
    re.ASCII,
)
_PROBABILITY = r"(?:\((0x[0-9a-f]{8})\))?"
_SUCCESSOR = re.compile(rf"%bb\.({NUMBER}){_PROBABILITY}")
_SUCCESSORS = re.compile(rf"  +successors:((?: {_SUCCESSOR.pattern}(?:, {_SUCCESSOR.pattern})*)?){_END}")
_LIVEIN = re.compile(r"\$(\w+)(?::(0x[0-9A-F]{16}))?", re.ASCII)
_LIVEINS = re.compile(rf"  +liveins: ({_LIVEIN.pattern}(?:, {_LIVEIN.pattern})*){_END}", re.ASCII)
_NOTHING = re.compile(rf"{_END}|#.*\Z")
_FLAG = (
    "frame-setup|frame-destroy|nnan|ninf|nsz|arcp|contract|afn|reassoc|nuw|nsw|nusw|samesign|exact|nofpexcept|nomerge"
    "|noconvergent|unpredictable|nneg|disjoint|inbounds|lr-split|bb-prolog"
)
_HEAD = re.compile(rf"((?:(?:{_FLAG}) )*)([A-Z][A-Za-z0-9_]*)(?=[ ;]|\Z)")
_BRACE = re.compile(rf"( \{{)?{_END}")
_ASSEMBLY = frozenset({"INLINEASM", "INLINEASM_BR"})
_DEBUG = frozenset({"DBG_VALUE", "DBG_VALUE_LIST", "DBG_INSTR_REF", "DBG_PHI", "DBG_LABEL", "PSEUDO_PROBE"})
BARRIERS = frozenset({
    "G_AMDGPU_WHOLE_WAVE_FUNC_RETURN", "G_BR", "G_BRINDIRECT", "G_BRJT", "SI_CS_CHAIN_TC_W32",
    "SI_CS_CHAIN_TC_W32_DVGPR", "SI_CS_CHAIN_TC_W64", "SI_CS_CHAIN_TC_W64_DVGPR", "SI_RETURN", "SI_RETURN_TO_EPILOG",
    "SI_TCRETURN", "SI_TCRETURN_CHAIN", "SI_TCRETURN_GFX", "SI_TCRETURN_GFX_WholeWave", "SI_WHOLE_WAVE_FUNC_RETURN",
    "S_ADD_PC_I64", "S_BRANCH", "S_BRANCH_pad_s_nop", "S_CODE_END", "S_ENDPGM", "S_ENDPGM_ORDERED_PS_DONE",
    "S_ENDPGM_SAVED", "S_SETPC_B64", "S_SETPC_B64_return",
})  # fmt: skip
"""What control does not pass, by LLVM's tables (``isBarrier``)."""
_CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f]")


def read(text: str) -> File:
    """Read a ``.mir`` text; ``\\r\\n`` ends a line as it does for LLVM.

    Raises:
        Refused: something is not as LLVM prints it, is not known, or refers to what is not there.
    """
    text = text.replace("\r\n", "\n")
    if match := _CONTROL.search(text):
        line = text.count("\n", 0, match.start()) + 1
        raise Refused("text", f"the character {match[0]!r}, which LLVM does not print", f"line {line}")
    lines = text.split("\n")
    starts = [k for k, line in enumerate(lines) if line == "---"]
    if not starts:
        raise Refused("text", "there is no machine function")
    module = _module(lines[: starts[0]])
    functions: dict[str, Function] = {}
    for start, end in zip(starts, [*starts[1:], len(lines)], strict=True):
        function = _Reader(lines, start, end).function()
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
        body = next((k for k in range(start, end) if lines[k].startswith("body:")), end)
        close = next((k for k in range(body, end) if lines[k] == "..."), end)
        for k in range(close + 1, end):
            if lines[k].strip(" ") and not lines[k].startswith("#"):
                raise Refused("text", "text behind the end of a function", f"line {k + 1}")
        if close == end or not re.fullmatch(r"body: +\|", lines[body]):
            raise Refused("text", "a function without a body, or one that does not end", f"line {start + 1}")
        self.lines = lines
        self.start = start
        self.first = body + 1
        self.close = close
        self.header: Header = read_header(lines[start + 1 : body], start + 2)
        self.classes = {number: r.cls for number, r in self.header.registers.items()}
        self.places: dict[int, int] = {}
        self.operands: dict[str, Operand] = {}
        self.definitions: dict[str, Operand] = {}

    def function(self) -> Function:
        heads: list[re.Match[str]] = []
        at: list[int] = []
        for k in range(self.first, self.close):
            if self.lines[k].startswith("  bb."):
                match = _BLOCK.match(self.lines[k])
                if match is None or int(match[1]) in self.places:
                    raise Refused(
                        "block", f"not the head of a further block: {self.lines[k].strip()!r}", f"line {k + 1}"
                    )
                self.places[int(match[1])] = len(heads)
                heads.append(match)
                at.append(k)
        if any(line.strip(" ") for line in self.lines[self.first : at[0] if at else self.close]):
            raise Refused("block", "text before the first block", f"line {self.first + 1}")
        ends = [*at[1:], self.close][: len(at)]
        blocks = [self.block(*ends_of) for ends_of in zip(heads, at, ends, strict=True)]
        h = self.header
        used = {op.vreg for table in (self.operands, self.definitions) for op in table.values() if op.vreg >= 0}
        used |= {vreg for _, vreg in h.liveins if vreg >= 0}
        if unknown := used - self.classes.keys():
            raise Refused("register", f"nothing gives the class of %{min(unknown)}", f"line {self.start + 1}")
        added = {number: VirtualRegister(number, cls) for number, cls in self.classes.items()}
        registers = {**added, **h.registers}
        known = tuple(_with_successors(place, blocks) for place in range(len(blocks)))
        return Function(h.name, h.fields, registers, h.liveins, h.fixed_stack, h.stack, known, self.start + 1)

    def block(self, head: re.Match[str], at: int, end: int) -> Block:
        successors: list[tuple[int, str]] | None = None
        liveins: tuple[tuple[str, int], ...] = ()
        instructions: list[Instruction] = []
        bundle = False
        for k in range(at + 1, end):
            line = self.lines[k]
            where = f"line {k + 1}"
            if not line or line.isspace():
                continue
            if not line.startswith("  "):
                raise Refused("text", f"a line that ends the body: {line!r}", where)
            if _NOTHING.match(line):
                continue
            if not instructions and (match := _SUCCESSORS.match(line)):
                if successors is not None or liveins:
                    raise Refused("block", "a second line of successors, or one behind the live-ins", where)
                found = _SUCCESSOR.findall(match[1])
                successors = [(self.place(int(number), where), text) for number, text in found]
                if len({place for place, _ in successors}) != len(successors):
                    raise Refused("block", "a successor is named twice", where)
            elif not instructions and (match := _LIVEINS.match(line)):
                if liveins:
                    raise Refused("block", "a second line of live-ins", where)
                liveins = tuple((name, int(mask, 16) if mask else -1) for name, mask in _LIVEIN.findall(match[1]))
            elif line.strip(" ") == "}":
                if not bundle or instructions[-1].opens_bundle:
                    raise Refused("instruction", "'}' without an open bundle", where)
                instructions[-1] = replace(instructions[-1], closes_bundle=True)
                bundle = False
            else:
                instruction = self.instruction(line, k + 1, bundle)
                if bundle and instruction.opens_bundle:
                    raise Refused("instruction", "a bundle within a bundle", where)
                bundle = bundle or instruction.opens_bundle
                instructions.append(instruction)
        if bundle:
            raise Refused("instruction", "a bundle is not closed", f"line {end}")
        number, name, attributes = head.groups("")
        has_successors = successors is not None
        known = tuple(successors or ())
        return Block(int(number), name, attributes, known, has_successors, liveins, tuple(instructions), at + 1)

    def place(self, number: int, where: str) -> int:
        if number not in self.places:
            raise Refused("block", f"there is no block %bb.{number}", where)
        return self.places[number]

    def instruction(self, line: str, number: int, bundled: bool) -> Instruction:
        where = f"line {number}"
        at = len(line) - len(line.lstrip(" "))
        operands: list[Operand] = []
        separator = ""
        while match := DEFINITION.match(line, at):
            text, separator = match.groups()
            operands.append(self.definitions.get(text) or self.operand(match, text, where, True))
            at = match.end()
            if separator == " = ":
                break
        definitions = len(operands)
        head = _HEAD.match(line, at)
        if head is None or separator == ", ":
            raise Refused("instruction", f"not an instruction: {line[at:]!r}", where)
        flags, opcode = head[1].split(), head[2]
        at = head.end()
        separator = " "
        while line.startswith(separator, at) and (match := OPERAND.match(line, at + len(separator))):
            operands.append(self.operands.get(match[0]) or self.operand(match, match[0], where, False))
            at = match.end()
            separator = ", "
        tail: list[str] = []
        group = 0
        while line.startswith(separator, at) and (match := ATTRIBUTE.match(line, at + len(separator))):
            if (match.lastindex or 0) <= group:
                raise Refused("instruction", f"the attribute {match[0]!r} is not in its place", where)
            group = match.lastindex or 0
            tail.append(match[0])
            at = match.end()
            separator = ", "
        memory: list[MemoryOperand] = []
        separator = " :: "
        while line.startswith(separator, at) and (match := MEMORY.match(line, at + len(separator))):
            memory.append(self.memory(match[0], where))
            at = match.end()
            separator = ", "
        brace = _BRACE.match(line, at)
        if brace is None:
            raise Refused("instruction", f"not known here: {line[at:].strip(' ')!r} in {line.strip(' ')!r}", where)
        if len(set(flags)) != len(flags):
            raise Refused("instruction", "an instruction flag stands twice", where)
        if opcode in _ASSEMBLY:
            if not operands or operands[0].kind is not Kind.EXTERNAL:
                raise Refused("instruction", "inline assembly without its text", where)
            operands[0] = replace(operands[0], kind=Kind.ASM_STRING)
        _check_order(opcode, operands, definitions, where)
        return Instruction(
            opcode,
            tuple(operands),
            definitions,
            frozenset(flags),
            tuple(memory),
            tuple(tail),
            bundled,
            brace[1] is not None,
            False,
            number,
        )

    def operand(self, match: re.Match[str], text: str, where: str, left: bool) -> Operand:
        """An operand whose text was not met in this function before."""
        kind = Kind.REGISTER if left else Kind[match.lastgroup or ""]
        try:
            if kind is Kind.REGISTER:
                operand = register(text, left)
                if operand.cls and self.classes.setdefault(operand.vreg, operand.cls) != operand.cls:
                    raise Refused(
                        "register", f"%{operand.vreg} is of class {self.classes[operand.vreg]} elsewhere", where
                    )
            elif kind is Kind.IMMEDIATE:
                operand = immediate(match["IMMEDIATE"])
            else:
                operand = Operand(kind, text, number=self.number(kind, text, where))
        except Refused as refused:
            raise Refused(refused.rule, refused.message, where) from None
        (self.definitions if left else self.operands)[text] = operand
        return operand

    def number(self, kind: Kind, text: str, where: str) -> int:
        """What an operand names: the position of a block, or the number of a stack object."""
        if kind is Kind.BLOCK:
            return self.place(int(text.removeprefix("%bb.")), where)
        if kind in (Kind.FRAME_INDEX, Kind.FIXED_FRAME):
            number, _, name = text.partition(".")[2].partition(".")
            self.object(int(number), name, kind is Kind.FIXED_FRAME, where)
            return int(number)
        return 0

    def object(self, number: int, name: str, fixed: bool, where: str) -> None:
        """There is a stack object of this number and name (``MIParser::parseStackFrameIndex``)."""
        row = (self.header.fixed_stack if fixed else self.header.stack).get(number)
        if row is None or (name and unquoted(row.get("name", "''")) != name):
            raise Refused("object", f"there is no such stack object: {number} {name}".rstrip(), where)

    def memory(self, text: str, where: str) -> MemoryOperand:
        try:
            memory = memory_operand(text)
        except Refused as refused:
            raise Refused(refused.rule, refused.message, where) from None
        if memory.stack_object >= 0:
            self.object(memory.stack_object, memory.pointer.partition(".")[2].partition(".")[2], False, where)
        if memory.fixed_object >= 0:
            self.object(memory.fixed_object, "", True, where)
        return memory


def _check_order(opcode: str, operands: Sequence[Operand], definitions: int, where: str) -> None:
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
            raise Refused("instruction", f"the operand {operand.text} stands behind an implicit one", where)
        if operand.kind is Kind.ASM_FLAG and not assembly:
            raise Refused("instruction", f"{operand.text} is a word of inline assembly", where)
        if operand.tied >= 0:
            if operand.tied in tied or operand.tied >= len(operands) or not operands[operand.tied].is_def:
                raise Refused("instruction", f"{operand.text} is tied to nothing that is free for it", where)
            tied.add(operand.tied)


def _with_successors(place: int, blocks: Sequence[Block]) -> Block:
    """The block with the successors that LLVM infers where it prints none (``guessSuccessors`` of MIParser.cpp): the
    blocks that operands name, in order, then the next block unless control does not pass the last instruction.
    """
    block = blocks[place]
    if block.has_successors:
        return block
    targets = [op.number for i in block.instructions for op in i.operands if op.kind is Kind.BLOCK]
    last = next((i for i in reversed(block.instructions) if i.opcode not in _DEBUG), None)
    if place + 1 < len(blocks) and (last is None or last.opcode not in BARRIERS):
        targets.append(place + 1)
    return replace(block, successors=tuple((target, "") for target in dict.fromkeys(targets)))
