"""Mutations of memory operands: of spill code, and of instructions of the program."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator

from msgspec.structs import replace

from mutants.instructions import SEQUENCE, _mandatory
from mutants.moves import VALUE, _spill_code
from mutants.subject import Edit, Mutation, Subject

_SIZE = re.compile(r"\(s(\d+)\)")


def _changed(text: str, slots: list[int], rng: random.Random) -> tuple[str, ...]:
    """Other texts of one memory operand, whatever it is of."""
    way = "store" if re.search(r"\bload\b", text) else "load"
    other = rng.choice(slots) if slots else 0
    return (
        f"invariant {text}",
        f"dereferenceable invariant {text}",
        f"dereferenceable {text}",
        f"volatile {text}" if "volatile" not in text else text.replace("volatile ", "", 1),
        f"non-temporal {text}",
        re.sub(r"\b(load|store) (\(s\d+\)) (from|into)", f"{way} \\2 " + ("into" if way == "store" else "from"), text),
        _SIZE.sub(lambda m: f"(s{max(int(m[1]) // 2, 8)})", text, count=1),
        _SIZE.sub(lambda m: f"(s{2 * int(m[1])})", text, count=1),
        re.sub(r"%stack\.\d+", f"%stack.{other}", text),
        re.sub(r"(%stack\.\d+(?:\.\w+)?)", r"\1 + 4", text, count=1),
        re.sub(r"(, align \d+)?(, addrspace \d+)", r", align 64\2", text),
        re.sub(r"addrspace \d+", f"addrspace {rng.choice((0, 1, 3, 4))}", text),
        re.sub(r" (?:from|into) %ir\.[\w.]+", "", text),
        re.sub(r"\b(load|store) \(", r"\1 seq_cst (", text),
        re.sub(r"(?<=load )(?:monotonic|acquire|seq_cst) |(?<=store )(?:monotonic|release|seq_cst) ", "", text),
    )


def spill_memory(subject: Subject, rng: random.Random) -> Iterator[Edit]:
    """Of spill code: slot, offset, size, alignment, flags, direction, address space; none, two."""
    slots = sorted(subject.post.stack)
    for line in _spill_code(subject, rng) * 3:
        instruction = subject.instruction(line)
        if not instruction.memory:
            continue
        text = instruction.memory[0]
        choices = [(c,) for c in _changed(text, slots, rng) if c != text]
        choices += [(), (text, text), (rng.choice(choices)[0], text)]
        memory = rng.choice(choices)
        changed = replace(instruction, memory=memory)
        yield subject.edit({line: [changed]}, f"memory operands {memory} for {text}")


def program_memory(subject: Subject, rng: random.Random) -> Iterator[Edit]:
    """Of an instruction of the program."""
    for line, instruction in _mandatory(subject, rng):
        if not instruction.memory:
            continue
        text = rng.choice(instruction.memory)
        choices = [(c,) for c in _changed(text, sorted(subject.post.stack), rng) if c != text]
        choices += [(*instruction.memory, text), instruction.memory[1:]]
        memory = rng.choice(choices)
        if memory != instruction.memory:
            changed = replace(instruction, memory=memory)
            yield subject.edit({line: [changed]}, f"memory operands {memory} for {instruction.memory}")


CLASSES = (
    Mutation("memory operand of spill code", VALUE | {"spill-slot", "memory-operands"}, spill_memory),
    Mutation("memory operand of the program", SEQUENCE | VALUE | {"memory-operands"}, program_memory),
)
