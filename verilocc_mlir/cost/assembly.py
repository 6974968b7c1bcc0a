"""Functions of an assembly text, as llc writes it (AMDGPUAsmPrinter.cpp) or llvm-objdump -d shows it, in blocks."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from msgspec import Struct, field

from verilocc_mlir.cost.figures import Figures, figures_of_text
from verilocc_mlir.cost.instructions import Instruction, Kind, decode, is_complete
from verilocc_mlir.errors import InputError
from verilocc_mlir.target.targets import Target

_LABEL = re.compile(r'^(?P<name>"(?:[^"]|\\")*"|[\w.$@]+):')
_IR_NAME = re.compile(r"; %(?!bb\.\d)(?P<name>\"[^\"]*\"|[-\w.$]+)\s*$")
_MACHINE_BLOCK = re.compile(r"^; %bb\.\d+:")
_SYMBOL = re.compile(r"^(?P<address>[0-9a-f]{8,16}) <(?P<name>.+)>:$")
_SHOWN = re.compile(
    r"^\s+(?P<text>[a-z]\S*.*?)\s*// (?P<address>[0-9A-F]+): (?P<words>[0-9A-F ]+?)"
    r"(?: <(?P<symbol>[^>]*?)(?:\+0x(?P<offset>[0-9a-f]+))?>)?\s*$"
)
_UNCONDITIONAL = ("s_branch", "s_endpgm", "s_setpc", "s_set_pc")
_TARGET = re.compile(r'^\s*\.amdgcn_target\s+"[^"]*?-(gfx[0-9a-z]+(?:-\d+)*(?:-generic)?)', re.MULTILINE)
_PADDING = ("s_code_end", "s_nop")


class Block(Struct):
    """A straight piece of code.

    Attributes:
        label: the label that branches name; ``""`` where there is none.
        ir_name: name of the IR block it comes from; ``""`` where llc does not say it.
        instructions: in order, branches last.
        targets: labels that its branches name.
        falls_through: control may go on to the next block.
    """

    label: str
    ir_name: str = ""
    instructions: list[Instruction] = field(default_factory=list[Instruction])
    targets: list[str] = field(default_factory=list[str])
    falls_through: bool = True


class Function(Struct, frozen=True):
    """One function: its blocks in layout order, and the figures known of it."""

    name: str
    blocks: tuple[Block, ...]
    figures: Figures

    @property
    def instructions(self) -> Iterable[Instruction]:
        return (instruction for block in self.blocks for instruction in block.instructions)


class _Builder:
    """Collects the blocks of one function."""

    def __init__(self, name: str, generation: int) -> None:
        self.name = name
        self._generation = generation
        self.blocks = [Block("")]

    def start(self, label: str, ir_name: str = "") -> None:
        last = self.blocks[-1]
        if last.instructions or last.label:
            self.blocks.append(Block(label, ir_name))
        else:
            last.label, last.ir_name = label, ir_name

    def add(self, text: str, target: str = "") -> None:
        """Add one instruction; ``target`` is the label of a branch whose text does not have it."""
        instruction = decode(text, self._generation)
        if not is_complete(instruction):
            raise InputError(f"instruction {text!r} lacks operands", where=self.name)
        block = self.blocks[-1]
        if block.instructions and block.instructions[-1].kind is Kind.BRANCH and instruction.kind is not Kind.BRANCH:
            self.start("")
            block = self.blocks[-1]
        block.instructions.append(instruction)
        if instruction.kind is Kind.BRANCH and instruction.base.startswith(("s_branch", "s_cbranch")):
            block.targets.append(target or instruction.operands[-1])
        if instruction.base.startswith(_UNCONDITIONAL):
            block.falls_through = False

    def finished(self) -> tuple[Block, ...]:
        """The blocks without what pads the end; at least one, which has no instruction if its IR is unreachable."""
        while len(self.blocks) > 1 and all(i.base in _PADDING for i in self.blocks[-1].instructions):
            self.blocks.pop()
        code = self.blocks[-1].instructions
        ends = [k for k, i in enumerate(code) if i.base == "s_endpgm"]
        if ends and all(i.base in _PADDING for i in code[ends[-1] + 1 :]):
            del code[ends[-1] + 1 :]
        return tuple(self.blocks)


def parse_assembly(text: str, target: Target, *, where: str = "") -> list[Function]:
    """The functions of llc's assembly text.

    Raises:
        InputError: the text is no AMDGPU assembly, is for another target, ends inside a function, or has no function.
    """
    _check(text, target, where)
    figures = figures_of_text(text, target)
    functions: list[Function] = []
    function_names: set[str] = set()
    builder: _Builder | None = None
    for line in text.splitlines():
        if not line or line.isspace():
            continue
        first = line[0]
        if builder is not None and first in "\t ":
            code = line.partition(";")[0].strip()
            if code and code[0] != "." and not code.startswith("//"):
                builder.add(_spaced(code.partition("//")[0].rstrip()))
            elif code.startswith(".size"):
                builder = None
            continue
        if first == ";":
            if builder is not None and _MACHINE_BLOCK.match(line):
                builder.start("", _ir_name(line))
            continue
        label = _LABEL.match(line)
        if label is None:
            if line.lstrip().startswith(".type") and "@function" in line:
                function_names.add(line.split(None, 1)[1].rpartition(",")[0].strip())
            continue
        name = label["name"]
        if name in function_names:
            function_names.discard(name)
            builder = _Builder(name.strip('"'), target.major)
        elif name.startswith(".Lfunc_end"):
            if builder is not None:
                functions.append(_function(builder.name, builder.finished(), figures, target))
            builder = None
        elif builder is not None and name.startswith((".LBB", "LBB")):
            builder.start(name, _ir_name(line))
    if builder is not None:
        raise InputError(f"the text ends inside function {builder.name!r}: it is truncated", where=where)
    if not functions:
        raise InputError("this assembly has no function", where=where, hint="give what llc -filetype=asm writes")
    return functions


def parse_disassembly(
    text: str, target: Target, figures: Mapping[str, Figures], names: Iterable[str], *, where: str = ""
) -> list[Function]:
    """The functions called ``names`` in the output of ``llvm-objdump -d``.

    Args:
        figures: the figures known of each kernel, by name.

    Raises:
        InputError: none of the functions is there.
    """
    requested = set(names)
    functions: list[Function] = []
    code: list[re.Match[str]] = []
    name = ""
    starts: dict[str, int] = {}

    def close() -> None:
        if name in requested and code:
            functions.append(_disassembled(name, code, starts, figures, target))

    lines = text.splitlines()
    for line in lines:
        if symbol := _SYMBOL.match(line):
            starts[symbol["name"]] = int(symbol["address"], 16)
    for line in lines:
        if symbol := _SYMBOL.match(line):
            close()
            name, code = symbol["name"], []
        elif line_match := _SHOWN.match(line):
            code.append(line_match)
    close()
    if not functions:
        raise InputError("no function could be disassembled", where=where)
    return functions


def _disassembled(
    name: str, code: list[re.Match[str]], starts: Mapping[str, int], figures: Mapping[str, Figures], target: Target
) -> Function:
    goals = [
        starts.get(m["symbol"], 0) + int(m["offset"] or "0", 16) if m["symbol"] is not None else None for m in code
    ]
    leaders = {goal for goal in goals if goal is not None}
    builder = _Builder(name, target.major)
    for line_match, goal in zip(code, goals, strict=True):
        address = int(line_match["address"], 16)
        if address in leaders:
            builder.start(f"{address:x}")
        builder.add(line_match["text"], "" if goal is None else f"{goal:x}")
    blocks = builder.finished()
    last = code[sum(len(block.instructions) for block in blocks) - 1]
    size = int(last["address"], 16) + len(last["words"].replace(" ", "")) // 2 - starts[name]
    return _function(name, blocks, figures, target, size)


def _function(
    name: str, blocks: tuple[Block, ...], figures: Mapping[str, Figures], target: Target, size: int | None = None
) -> Function:
    known_figures = figures.get(name, Figures())
    used = [u for b in blocks for i in b.instructions for group in (i.defs, i.uses) for u in group]
    return Function(name, blocks, known_figures.completed(used, target, size))


def named_target(text: str) -> str:
    """The processor that an assembly text is for, ``""`` where it names none.

    ``amdgcn-amd-amdhsa--gfx942`` and, from LLVM 24, ``amdgpu9.42-amd-amdhsa-unknown-gfx942``.
    """
    match = _TARGET.search(text)
    return match[1] if match else ""


def _check(text: str, target: Target, where: str) -> None:
    name = named_target(text)
    if not name:
        message = "this is no AMDGPU assembly: it names no .amdgcn_target"
        raise InputError(message, where=where, hint="give what llc -mtriple=amdgcn-amd-amdhsa -filetype=asm writes")
    if name != target.name:
        raise InputError(f"it is assembly for {name}, not for {target.name}", where=where, hint="change -mcpu")


def _ir_name(line: str) -> str:
    match = _IR_NAME.search(line)
    return match["name"].strip('"') if match else ""


def _spaced(code: str) -> str:
    """The instruction with a single blank after its mnemonic."""
    mnemonic, _, operands = code.partition("\t") if "\t" in code else code.partition(" ")
    return f"{mnemonic} {operands.strip()}" if operands else mnemonic
