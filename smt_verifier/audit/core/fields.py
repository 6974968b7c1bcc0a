"""The YAML header of a machine function as fields, read from the fixed layout that LLVM prints; all else is refused.
The numbers of its stack objects.

The layout is that of llvm/include/llvm/CodeGen/MIRYamlMapping.h and SIMachineFunctionInfo.h as YAMLTraits.cpp writes
it: ``key: value`` by indentation, lists of ``- { key: value, … }`` rows, long rows over several lines.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from msgspec.structs import replace

from verilocc_mlir.errors import InputError
from verilocc_mlir.mir.model import Instruction, MachineFunction, OperandKind, StackObject

_LINE = re.compile(r"( *)([A-Za-z][A-Za-z0-9_-]*):(?: +(\S.*))?\Z")
_QUOTED = r"'(?:[^']|'')*'|\"(?:\\.|[^\"\\])*\""
_STRINGS = re.compile(_QUOTED)
_ENTRY = re.compile(rf"([A-Za-z]+(?:-[a-z]+)*): *({_QUOTED}|\[[^]\[{{}}]*\]|[^,'\"\[\]{{}}]*?) *(, *|\Z)")
_NOT_PLAIN = re.compile(r"[&*!|>?%@`#]")
_COMMENT_OR_TAB = re.compile(r" #|\t")


def header_fields(lines: tuple[str, ...], first_line: int) -> Mapping[str, str]:
    """Values of the header by path, such as ``frameInfo.maxAlignment``; a list is one value, its lines joined.

    Args:
        lines: from ``---`` to ``body:``, as ``MachineFunction.header_lines`` has them.
        first_line: number of the first, for messages.

    Raises:
        InputError: a line that is not of LLVM's layout, or a field that occurs twice.
    """
    fields: dict[str, list[str]] = {}
    outer: set[str] = set()  # what has fields in it
    path: list[str] = []
    list_indent = -1
    for number, line in enumerate(lines[1:], first_line + 1):
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        indent = len(line) - len(line.lstrip(" "))
        value = fields[".".join(path)] if path else []
        item = text.startswith("- ")
        if (list_indent >= 0 and indent >= list_indent + (not item)) or _is_open(value):
            value.append(text)
        elif path and item and not value and indent == 2 * len(path):
            list_indent = indent
            value.append(text)
        else:
            list_indent = -1
            match = _LINE.match(line)
            depth = indent // 2
            inner = depth == len(path) > 0
            if match is None or indent % 2 or depth > len(path) or (inner and value):
                raise InputError(f"the header has a line of another form than LLVM's: {text!r}", where=f"line {number}")
            if inner:
                outer.add(parent := ".".join(path))
                del fields[parent]
            path = [*path[:depth], match[2]]
            key = ".".join(path)
            if key in fields or key in outer:
                raise InputError(f"the header has {key} twice", where=f"line {number}")
            fields[key] = [match[3].strip()] if match[3] else []
        if ("#" in text or "\t" in text) and _COMMENT_OR_TAB.search(_STRINGS.sub("''", text)):
            raise InputError(f"the header has a line of another form than LLVM's: {text!r}", where=f"line {number}")
    unreadable = next((k for k, v in fields.items() if v and _NOT_PLAIN.match(v[0]) and k != "body"), None)
    if unreadable:
        raise InputError(f"the header has {unreadable} in another form than LLVM's: {fields[unreadable][0]!r}")
    return {key: " ".join(value) for key, value in fields.items()}


def fields_of(function: MachineFunction) -> Mapping[str, str]:
    return header_fields(function.header_lines, function.first_line)


def row_fields(row: str) -> Mapping[str, str]:
    """Entries of a row ``- { key: value, … }``, quotes kept.

    Raises:
        InputError: a row of another form, or a key that occurs twice.
    """
    text = " ".join(part.strip() for part in row.split("\n")).removeprefix("- ")
    if not (text.startswith("{ ") and text.endswith(" }")):
        raise InputError(f"the header has a row of another form than LLVM's: {text!r}")
    entries: dict[str, str] = {}
    at, end = 2, len(text) - 2
    while at < end:
        match = _ENTRY.match(text, at, end)
        if match is None or match[1] in entries:
            raise InputError(f"the header has a row of another form than LLVM's: {text!r}")
        entries[match[1]] = match[2]
        at = match.end()
    return entries


def unquoted(value: str) -> str:
    """A scalar without its quotes and without ``$``."""
    return value[1:-1].removeprefix("$") if value[:1] == value[-1:] == "'" else value.removeprefix("$")


def _is_open(value: list[str]) -> bool:
    """Whether a value in brackets goes on in the next line."""
    if not value or value[0][0] not in "{[":
        return False
    plain = _STRINGS.sub("", " ".join(value))
    return sum(map(plain.count, "{[")) > sum(map(plain.count, "}]"))


# Numbers of stack objects: LLVM numbers them anew, in the order they are listed, whenever it reads MIR.


_FRAME_INDEX = re.compile(r"%(fixed-stack|stack)\.(\d+)")


def without_number(row: StackObject) -> tuple[tuple[str, str], ...]:
    """All that is said of an object but its number, to compare by.

    Raises:
        InputError: the row is not of LLVM's form.
    """
    return tuple(sorted((key, value) for key, value in row_fields(row.text).items() if key != "id"))


def frame_indices(instruction: Instruction) -> Iterator[tuple[str, int]]:
    """Stack objects that an instruction names, in operands or as memory it accesses: kind and number."""
    operand_texts = [op.text for op in instruction.operands if not op.is_reg and op.kind is OperandKind.FRAME_INDEX]
    for text in (*operand_texts, *(m for m in instruction.memory if "stack." in m)):
        yield from named_objects(text)


def named_objects(text: str) -> Iterator[tuple[str, int]]:
    """Kind and number of each stack object that a text names."""
    for kind, number in _FRAME_INDEX.findall(text):
        yield kind, int(number)


def with_numbers_of(pre: MachineFunction, post: MachineFunction) -> MachineFunction:
    """``post`` with its stack objects numbered as in ``pre``; unchanged where they do not correspond.

    Fixed objects correspond by everything but their number. Of the others, those of ``pre`` come first on both sides,
    in the same order, and what the allocator added gets numbers that ``pre`` does not use.
    """
    names = {"fixed-stack": _fixed_names(pre, post), "stack": _names(pre, post)}
    if all(old == new for table in names.values() for old, new in table.items()):
        return post

    def rename(text: str) -> str:
        return _FRAME_INDEX.sub(lambda m: f"%{m[1]}.{names[m[1]].get(int(m[2]), int(m[2]))}", text)

    def renamed(instruction: Instruction) -> Instruction:
        if "stack." not in instruction.render():
            return instruction
        operands = tuple(replace(op, text=rename(op.text)) for op in instruction.operands)
        return replace(instruction, operands=operands, memory=tuple(rename(m) for m in instruction.memory))

    blocks = tuple(replace(b, instructions=tuple(renamed(i) for i in b.instructions)) for b in post.blocks)
    lines = tuple(rename(line) if line.startswith("  scavengeFI:") else line for line in post.header_lines)
    return replace(
        post,
        header_lines=lines,
        blocks=blocks,
        stack=_renumbered(post.stack, names["stack"]),
        fixed_stack=_renumbered(post.fixed_stack, names["fixed-stack"]),
    )


def _renumbered(rows: Mapping[int, StackObject], names: Mapping[int, int]) -> dict[int, StackObject]:
    return {names.get(n, n): replace(row, id=names.get(n, n)) for n, row in rows.items()}


def _fixed_names(pre: MachineFunction, post: MachineFunction) -> dict[int, int]:
    if sorted(map(without_number, pre.fixed_stack.values())) != sorted(map(without_number, post.fixed_stack.values())):
        return {}
    waiting: dict[tuple[tuple[str, str], ...], list[int]] = {}
    for row in pre.fixed_stack.values():
        waiting.setdefault(without_number(row), []).append(row.id)
    return {row.id: waiting[without_number(row)].pop() for row in post.fixed_stack.values()}


def _names(pre: MachineFunction, post: MachineFunction) -> dict[int, int]:
    pre_rows, post_rows = list(pre.stack.values()), list(post.stack.values())
    if all(n in post.stack and _alike(row, post.stack[n]) for n, row in pre.stack.items()):
        return {}
    if len(post_rows) < len(pre_rows) or not all(map(_alike, pre_rows, post_rows)):
        return {}
    free = max(pre.stack) + 1
    same_objects = {b.id: a.id for a, b in zip(pre_rows, post_rows, strict=False)}
    return same_objects | {row.id: free + n for n, row in enumerate(post_rows[len(pre_rows) :])}


def _alike(a: StackObject, b: StackObject) -> bool:
    return without_number(a) == without_number(b)
