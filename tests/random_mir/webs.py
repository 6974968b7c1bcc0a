"""Makes one register of each web: definitions that reach a common use, as LLVM expects of a live interval.

A register that is read where some path does not define it gets an ``IMPLICIT_DEF`` in the entry block.
"""

from __future__ import annotations

from dataclasses import replace

from random_mir.code import Block, Instruction, Operand, Register

Reaching = dict[int, frozenset[int]]


class _Union:
    def __init__(self) -> None:
        self.parent: dict[int, int] = {}

    def find(self, item: int) -> int:
        while self.parent.setdefault(item, item) != item:
            item = self.parent[item]
        return item

    def join(self, items: frozenset[int]) -> int:
        first, *others = sorted(self.find(item) for item in items)
        for other in others:
            self.parent[other] = first
        return first


def define_everywhere(blocks: list[Block]) -> bool:
    """Adds ``IMPLICIT_DEF`` at the top of the entry for what is read undefined on some path; whether any was needed."""
    entry = blocks[0]
    missing: dict[int, Register] = {}
    inputs = _reaching(blocks)
    for block in blocks:
        state = dict(inputs[id(block)])
        for instruction in block.instructions:
            for operand in instruction.operands:
                if operand.reads and 0 in state.get(id(operand.register), frozenset({0})):
                    missing[id(operand.register)] = operand.register
            _step(instruction, state)
    first = next(k for k, i in enumerate(entry.instructions) if not i.text.startswith("<0> = COPY $"))
    entry.instructions[first:first] = [
        Instruction("<0> = IMPLICIT_DEF", [Operand(r, is_def=True)]) for r in missing.values()
    ]
    return bool(missing)


def split_webs(blocks: list[Block]) -> None:
    """Gives each web a register of its own, in place."""
    inputs = _reaching(blocks)
    union = _Union()
    webs: dict[int, int] = {}
    for block in blocks:
        state = dict(inputs[id(block)])
        for instruction in block.instructions:
            before = dict(state)
            _step(instruction, state)
            for operand in instruction.operands:
                key = id(operand.register)
                if operand.reads:
                    webs[id(operand)] = union.join(before[key])
                if operand.is_def:
                    same = {id(operand)}
                    if any(o.reads and o.register is operand.register for o in instruction.operands):
                        same |= before[key]
                    webs[id(operand)] = union.join(frozenset(same))
    registers: dict[int, Register] = {}
    for block in blocks:
        for instruction in block.instructions:
            for operand in instruction.operands:
                if id(operand) in webs:
                    web = union.find(webs[id(operand)])
                    operand.register = registers.setdefault(web, replace(operand.register))
                else:
                    operand.register = replace(operand.register)


def _step(instruction: Instruction, state: Reaching) -> None:
    for operand in instruction.operands:
        if operand.is_def:
            state[id(operand.register)] = frozenset({id(operand)})


def _reaching(blocks: list[Block]) -> dict[int, Reaching]:
    """Definitions that reach each block's entry; 0 stands for none at all."""
    nothing = frozenset({0})
    everything = {id(o.register): nothing for b in blocks for i in b.instructions for o in i.operands}
    inputs: dict[int, Reaching] = {id(b): {} for b in blocks}
    inputs[id(blocks[0])] = everything
    work = [blocks[0]]
    while work:
        block = work.pop()
        state = dict(inputs[id(block)])
        for instruction in block.instructions:
            _step(instruction, state)
        for successor in block.successors:
            known = inputs[id(successor)]
            merged = {key: known.get(key, frozenset()) | value for key, value in state.items()}
            if merged != known:
                inputs[id(successor)] = merged
                work.append(successor)
    return inputs
