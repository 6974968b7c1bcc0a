"""MIR files as LLVM prints them (llvm/lib/CodeGen/MIRPrinter.cpp) to ``MirFile``.

One pass over the lines; every operand text is parsed once and shared. Errors name file and line. LLVM's own parser
(MIRParser/MIParser.cpp) takes more layouts than its printer makes; here they are an error, so that nothing is read
otherwise than LLVM reads it. Where the printer leaves out what the parser infers (``-simplify-mir``), the same is
inferred.
"""

from __future__ import annotations

import re

from msgspec.structs import replace

from verilocc_mlir.errors import InputError, UnsupportedError, VeriloccError
from verilocc_mlir.mir.header import (
    check_header,
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
    OperandKind,
    VirtualRegister,
)
from verilocc_mlir.mir.operands import NAME, TYPE, is_balanced, parse_operand, split_top_level
from verilocc_mlir.mir.successors import with_successors

_BLOCK_ATTRIBUTE = rf"%ir-block\.{NAME}|align [0-9]{{1,9}}|machine-block-address-taken|inlineasm-br-indirect-target"
_BLOCK = re.compile(
    rf"  bb\.([0-9]{{1,9}})(?:\.[^():;,\"]*)?(?: \((?:{_BLOCK_ATTRIBUTE})(?:, (?:{_BLOCK_ATTRIBUTE}))*\))?:(?: *;.*)?\Z"
)
_BODY = re.compile(r"body: +\|\Z")
_SUCCESSOR = re.compile(r"%bb\.([0-9]{1,9})(?:\((0x[0-9A-Fa-f]{1,8})\))?\Z")
_LIVEIN = re.compile(r"\$([A-Za-z0-9_]+)(?::(0x[0-9A-Fa-f]{16}))?\Z")
_FLAG = (
    "frame-setup|frame-destroy|nnan|ninf|nsz|arcp|contract|afn|reassoc|nuw|nsw|nusw|samesign|exact|nofpexcept|nomerge"
    "|noconvergent|unpredictable|nneg|disjoint|inbounds|lr-split|bb-prolog"
)
_HEAD = re.compile(rf"((?:(?:{_FLAG}) )*)([A-Z][A-Za-z0-9_]*)(?: |\Z)")
_UPPER = re.compile(r"[A-Z]")
_QUOTED = re.compile(r"""("[^"]*"|`[^`]*`|/\*.*?\*/)|;.*""")
_ATTRIBUTES = re.compile(
    r"(?:, |\Z)".join(
        (
            rf"(?:pre-instr-symbol <mcsymbol {NAME}>",
            rf")?(?:post-instr-symbol <mcsymbol {NAME}>",
            r")?(?:heap-alloc-marker ![0-9]+",
            r")?(?:pcsections ![0-9]+",
            r")?(?:cfi-type [0-9]+",
            rf")?(?:deactivation-symbol @{NAME}",
            r")?(?:mmra ![0-9]+",
            r")?(?:debug-instr-number [0-9]+",
            r")?(?:debug-location (?:![0-9]+|!DILocation\([\w:!, ]*(?:!DILocation\([\w:!, ]*\))?[\w:!, ]*\))",
            r")?\Z",
        )
    ),
    re.ASCII,
)
_TAIL = re.compile(
    r"(?:debug-location|debug-instr-number|pre-instr-symbol|post-instr-symbol|heap-alloc-marker|pcsections|mmra|cfi-type"
    r"|deactivation-symbol) "
)
_MEMORY = re.compile(
    r"(?:volatile )?(?:non-temporal )?(?:dereferenceable )?(?:invariant )?(?:\"amdgpu-[a-z-]+\" )*"
    r"(?:load|store|load store)(?: syncscope\(\"[^\"]*\"\))?"
    r"(?: (?:unordered|monotonic|acquire|release|acq_rel|seq_cst)){0,2}"
    rf" (?:\({TYPE}\)|unknown-size|[0-9]{{1,19}})"
    rf"(?: (?:from|into|on) (?:%ir\.{NAME}|@{NAME}|`[^`]*`|%stack\.[0-9]{{1,9}}(?:\.[-A-Za-z0-9$._]+)?"
    rf"|%fixed-stack\.[0-9]{{1,9}}|stack|got|jump-table|constant-pool|unknown-address|call-entry [@&]{NAME}"
    r"|custom \"[A-Za-z]+\")(?: [+-] [0-9]{1,19})?)?"
    r"(?:, align [0-9]{1,19})?(?:, basealign [0-9]{1,19})?(?:, !tbaa ![0-9]+)?(?:, !alias\.scope ![0-9]+)?"
    r"(?:, !noalias ![0-9]+)?(?:, !noalias\.addrspace ![0-9]+)?(?:, !range ![0-9]+)?(?:, addrspace [0-9]{1,9})?\Z"
)
"""``MachineMemOperand::print``: each part once and in this order."""


def parse_mir(text: str, path: str = "<string>") -> MirFile:
    """Parse a whole ``.mir`` file.

    Args:
        text: the file's text; ``\\r\\n`` ends a line as it does for LLVM, and is printed as ``\\n``.
        path: shown in errors.

    Raises:
        InputError: not MIR, truncated, or a line that cannot be a part of it.
        UnsupportedError: a construct LLVM does not print.
    """
    if "\r" in text and "\r" in (text := text.replace("\r\n", "\n")):
        raise UnsupportedError("a carriage return within a line", where=path, hint="LLVM takes it for a line end")
    lines = text.split("\n")
    starts = [k for k, line in enumerate(lines) if line == "---"]
    if not starts:
        raise InputError(
            "no machine function in it",
            where=path,
            hint="a .mir file has one '---' document a function",
        )
    _check_preamble(lines[: starts[0]], path)
    preamble = "\n".join(lines[: starts[0]]) + ("\n" if starts[0] else "")
    functions: dict[str, MachineFunction] = {}
    for start, end in zip(starts, [*starts[1:], len(lines)], strict=True):
        function = _FunctionParser(lines, start, end, path).parse()
        if function.name in functions:
            raise InputError(f"a second machine function {function.name!r}", where=f"{path}:{start + 1}")
        functions[function.name] = function
    return MirFile(preamble, tuple(functions.values()), path)


def _check_preamble(lines: list[str], path: str) -> None:
    """Comments, then at most one IR module: LLVM would read any other document as a machine function.

    Before the module IREE writes comments of LLVM IR's form, which LLVM refuses to read.
    """
    comments = ("#", ";") if "--- |" in lines else ("#",)
    opened = closed = False
    for number, line in enumerate(lines, 1):
        inside = opened and not closed
        if line == "--- |" and not opened:
            opened = True
        elif line == "..." and inside:
            closed = True
        elif not (line.startswith("  ") if inside else line.startswith("#" if opened else comments)) and line.strip(
            " "
        ):
            raise InputError("text before the first machine function", where=f"{path}:{number}")


class _FunctionParser:
    """Parses lines ``[start, end)`` of a file, one YAML document."""

    def __init__(self, lines: list[str], start: int, end: int, path: str) -> None:
        self.lines = lines
        self.start = start
        self.end = end
        self.path = path
        self.uses: dict[str, Operand] = {}
        self.defs: dict[str, Operand] = {}
        self.memories: set[str] = set()
        self.classes: dict[int, str] = {}
        self.virtual: set[int] = set()
        self.branches: list[list[Instruction]] = []

    def fail(self, message: str, line: int, hint: str = "") -> InputError:
        return InputError(message, where=f"{self.path}:{line + 1}", hint=hint)

    def parse(self) -> MachineFunction:
        try:
            return self.parse_document()
        except VeriloccError as error:
            if error.where:
                raise
            raise type(error)(error.what, where=f"{self.path}:{self.start + 1}", hint=error.hint) from error

    def parse_document(self) -> MachineFunction:
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
        if any(line.strip(" ") and not line.startswith("#") for line in lines[close + 1 : end]):
            raise self.fail("text after the end of the document", close + 1)
        if not _BODY.match(lines[body]):
            raise self.fail("'body:' is not laid out as LLVM prints it", body)
        footer = "\n".join(lines[close:end]) + ("\n" if end < len(lines) else "")
        check_header(header, where=self.path, line=start + 1)
        registers = virtual_registers(header)
        self.classes = {number: register.cls for number, register in registers.items()}
        blocks = self.parse_blocks(body + 1, close)
        self.check_classes(start)
        for number in self.classes.keys() - registers.keys():
            registers[number] = VirtualRegister(number, self.classes[number])
        return MachineFunction(
            name=function_name(header, where=f"{self.path}:{start + 1}"),
            header_lines=header,
            blocks=blocks,
            registers=registers,
            liveins=function_liveins(header),
            stack=stack_objects(header, "stack"),
            fixed_stack=stack_objects(header, "fixedStack"),
            first_line=start + 1,
            footer=footer,
        )

    def check_classes(self, line: int) -> None:
        """``parseRegisterClassOrBank`` and ``setupRegisterInfo``: one class each, wherever it is written."""
        if unknown := self.virtual - self.classes.keys():
            raise self.fail(f"nothing gives the class of %{min(unknown)}", line)

    def parse_blocks(self, first: int, close: int) -> tuple[BasicBlock, ...]:
        heads = [k for k in range(first, close) if self.lines[k].startswith("  bb.")]
        if heads and heads[0] != first:
            raise self.fail(f"text before the first block: {self.lines[first].strip()!r}", first)
        if not heads and close > first and any(self.lines[k].strip() for k in range(first, close)):
            raise self.fail("a body without blocks", first)
        ends = [*heads[1:], close][: len(heads)]
        blocks = tuple(self.parse_block(a, b) for a, b in zip(heads, ends, strict=True))
        branches = tuple(tuple(instructions) for instructions in self.branches)
        blocks = with_successors(blocks, branches, where=f"{self.path}:{first + 1}")
        numbers = [b.number for b in blocks]
        if len(set(numbers)) != len(numbers):
            raise self.fail("two blocks of one number", first)
        existing = set(numbers)
        for block, head in zip(blocks, heads, strict=True):
            for successor, _ in block.successors:
                if successor not in existing:
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
        branches: list[Instruction] = []
        self.branches.append(branches)
        in_bundle = False
        for k in range(head + 1, end):
            line = lines[k]
            stripped = line.strip(" ")
            if stripped and not line.startswith("  "):
                raise self.fail(f"a line that ends the body: {stripped!r}", k)
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
                    raise self.fail("a second 'liveins:' line, or one out of place", k)
                liveins = self.parse_liveins(stripped[8:].strip(), k)
            elif stripped == "}":
                if not in_bundle or pending or instructions[-1].opens_bundle:
                    raise self.fail("'}' without an open bundle", k)
                instructions[-1] = replace(instructions[-1], closes_bundle=True)
                in_bundle = False
            else:
                if not instructions:
                    notes += pending
                    pending = []
                instruction = self.parse_instruction(line, k, in_bundle, tuple(pending))
                if in_bundle and instruction.opens_bundle:
                    raise self.fail("a bundle within a bundle", k)
                pending = []
                in_bundle = in_bundle or instruction.opens_bundle
                instructions.append(instruction)
                if "%bb." in line:
                    branches.append(instruction)
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
        successors: list[tuple[int, str]] = []
        for part in text.split(", ") if text else []:
            match = _SUCCESSOR.match(part)
            if match is None:
                raise self.fail(f"not a successor: {part!r}", line)
            successors.append((int(match[1]), match[2] or ""))
        if len({number for number, _ in successors}) != len(successors):
            raise self.fail("a successor is named twice", line)
        return tuple(successors)

    def parse_liveins(self, text: str, line: int) -> tuple[LiveIn, ...]:
        liveins: list[LiveIn] = []
        if not text:
            raise self.fail("'liveins:' without a register", line)
        for part in text.split(", "):
            match = _LIVEIN.match(part)
            if match is None:
                raise self.fail(f"not a live-in: {part!r}", line)
            liveins.append(LiveIn(match[1], int(match[2], 16) if match[2] else -1))
        return tuple(liveins)

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
        text = plain = line.lstrip(" ")
        indent = len(line) - len(text)
        quoted = '"' in text or ";" in text or "/*" in text or "`" in text
        if quoted:
            plain = _QUOTED.sub(_blotted, text)
        end = len(plain.rstrip(" ")) if quoted else len(plain)
        comment = text[end:]
        opens = plain.endswith(" {", 0, end)
        if opens:
            end -= 2
        memory: tuple[str, ...] = ()
        if (at := plain.find(" :: (", 0, end)) >= 0:
            memory = self.memory_operands(text[at + 4 : end], plain[at + 4 : end])
            end = at
        start = 0
        defs: tuple[Operand, ...] = ()
        equals = plain.find(" = ", 0, end)
        if equals > 0 and not _UPPER.search(plain, 0, equals):
            defs = self.operand_list(text[:equals], plain[:equals] if quoted else "", self.defs, True)
            start = equals + 3
        head = _HEAD.match(plain, start, end)
        if head is None:
            raise _not_an_instruction(plain[start:end])
        start = head.end()
        tail = ""
        if _TAIL.search(plain, start, end):
            cut = _start_of_tail(text, plain, start, end)
            tail, end = text[cut:end], cut
        operands: tuple[Operand, ...] = ()
        if start < end:
            operands = self.operand_list(text[start:end], plain[start:end] if quoted else "", self.uses, False)
            at = plain.find("implicit", start, end)
            out_of_order = at >= 0 and plain.count(", ", at, end) != plain.count(", implicit", at, end)
            if out_of_order or "(tied-def " in text:
                _check_order(head[2], defs, operands)
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

    def memory_operands(self, text: str, plain: str) -> tuple[str, ...]:
        """The texts inside the brackets of ``(…), (…)``."""
        parts = [text] if "), (" not in plain else split_top_level(text, plain)
        for part in parts:
            if part not in self.memories:
                if part[0] != "(" or part[-1] != ")" or not _MEMORY.match(part[1:-1]):
                    raise UnsupportedError(f"the memory operand {part!r} is not known here")
                self.memories.add(part)
        return tuple([part[1:-1] for part in parts])

    def operand_list(self, text: str, plain: str, cache: dict[str, Operand], is_def: bool) -> tuple[Operand, ...]:
        if plain:
            return tuple(self.operand(p, cache, is_def) for p in split_top_level(text, plain))
        operands: list[Operand] = []
        for part in text.split(", "):
            operand = cache.get(part)
            if operand is None:
                if not is_balanced(part):
                    return tuple(self.operand(p, cache, is_def) for p in split_top_level(text, text))
                operand = self.operand(part, cache, is_def)
            operands.append(operand)
        return tuple(operands)

    def operand(self, text: str, cache: dict[str, Operand], is_def: bool) -> Operand:
        operand = cache.get(text)
        if operand is None:
            operand = parse_operand(text, is_def=is_def)
            cache[text] = operand
            if operand.vreg >= 0:
                self.virtual.add(operand.vreg)
                if operand.cls and (first := self.classes.setdefault(operand.vreg, operand.cls)) != operand.cls:
                    raise InputError(f"%{operand.vreg} is of class {first} and of class {operand.cls}")
        return operand


def _blotted(match: re.Match[str]) -> str:
    """What is quoted or an operand's comment keeps its length, a comment to the end of the line becomes blanks."""
    return "_" * len(match[0]) if match[1] else " " * len(match[0])


def _not_an_instruction(text: str) -> VeriloccError:
    first = text.partition(" ")[0]
    if re.fullmatch(r"[a-z][a-z-]*", first):
        return UnsupportedError(f"the instruction flag {first!r} is not known here")
    return InputError("not an instruction")


def _check_order(opcode: str, defs: tuple[Operand, ...], operands: tuple[Operand, ...]) -> None:
    """What LLVM would move or refuse.

    ``MachineInstr::addOperand`` moves explicit operands before the implicit registers, inline assembly aside; a tie
    names a definition, which no other operand is tied to (``assignRegisterTies``).
    """
    tied: set[int] = set()
    implicit = opcode.startswith("INLINEASM")
    explicit_after = False
    for operand in operands:
        if operand.implicit:
            implicit = True
        elif implicit:
            explicit_after = True
        if operand.tied >= 0:
            every = (*defs, *operands)
            if operand.tied in tied or operand.tied >= len(every) or not every[operand.tied].is_def:
                raise InputError(f"{operand.text!r} is tied to nothing that is free for it")
            tied.add(operand.tied)
    if opcode.startswith("INLINEASM"):
        return
    if explicit_after:
        raise InputError("an explicit operand after an implicit one")
    if any(operand.kind is OperandKind.ASM_FLAG for operand in operands):
        raise InputError("a word of inline assembly in another instruction")


def _start_of_tail(text: str, plain: str, start: int, end: int) -> int:
    """Where trailing attributes (``debug-location !7`` …) start, with the separator that precedes them."""
    at = start
    for part in split_top_level(plain[start:end], plain[start:end]):
        if _TAIL.match(part):
            if not _ATTRIBUTES.match(text, at, end):
                raise UnsupportedError(f"the attributes {text[at:end]!r} are not known here")
            return at - 2 if at > start else at - 1
        at += len(part) + 2
    return end
