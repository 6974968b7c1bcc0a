"""Numbers of stack objects: LLVM numbers them anew, in the order they are listed, whenever it reads MIR."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace

from smt_verifier.audit.core.fields import row_fields
from verilocc_mlir.mir.model import Instruction, MachineFunction, OperandKind, StackObject

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
