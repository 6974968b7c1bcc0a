"""Mutations of instructions that the allocator must leave alone, of control flow and of the header."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator

from msgspec.structs import replace

from mutants.moves import SAVED, VALUE
from mutants.subject import Edit, Mutation, Subject, with_operand
from verilocc_mlir.mir.model import BasicBlock, Instruction, OperandKind
from verilocc_mlir.target.registers import physical_register

SEQUENCE = frozenset({"instruction-sequence", "operands"})
ADDED = frozenset({"dead-flag", "reserved-register"})
"""Also where an instruction without a partner counts as the allocator's: it writes EXEC, or a result that is read."""
SHIFTED = frozenset(
    {"register-class", "width", "fixed-register", "memory-operands", "instruction-flags", "tied-operand"}
)
"""Also: among instructions of one form, which of them is missing or added is a matter of pairing; the others shift."""
_OWN = ("COPY", "IMPLICIT_DEF", "KILL", "SI_SPILL_", "DBG_", "BUNDLE")


def _mandatory(subject: Subject, rng: random.Random) -> Iterator[tuple[tuple[int, int], Instruction]]:
    for line, instruction in subject.shuffled(rng):
        if not instruction.opcode.startswith(_OWN) and line in subject.partners:
            yield line, instruction


def changed_opcode(subject: Subject, rng: random.Random) -> Iterator[Edit]:
    """Another opcode of the same form, one that the function has elsewhere or a sibling."""
    siblings = {
        "ADD": "SUB", "SUB": "ADD", "AND": "OR", "OR": "XOR", "XOR": "AND", "LSHLREV": "LSHRREV", "LSHL": "LSHR",
        "MUL_LO": "MUL_HI", "MAX": "MIN", "MIN": "MAX", "DWORD": "USHORT", "LT": "LE", "GT": "GE", "EQ": "NE",
        "U32": "I32", "I32": "U32", "F32": "U32", "LOAD": "STORE", "ANDN2": "ORN2",
    }  # fmt: skip
    for line, instruction in _mandatory(subject, rng):
        parts = instruction.opcode.split("_")
        choices = [k for k, part in enumerate(parts) if part in siblings]
        if choices:
            k = rng.choice(choices)
            parts[k] = siblings[parts[k]]
            changed = replace(instruction, opcode="_".join(parts))
            yield subject.edit({line: [changed]}, f"{changed.opcode} for {instruction.opcode}")


def changed_immediate(subject: Subject, rng: random.Random) -> Iterator[Edit]:
    for line, instruction in _mandatory(subject, rng):
        sites = [k for k, op in enumerate(instruction.all_operands) if op.kind is OperandKind.IMMEDIATE]
        if sites:
            k = rng.choice(sites)
            text = instruction.all_operands[k].text
            value = int(text.split()[0]) + rng.choice((-1, 1, 4, 64))
            changed = with_operand(instruction, k, str(value) + text[len(text.split()[0]) :])
            yield subject.edit({line: [changed]}, f"{value} for {text}")


def changed_memory(subject: Subject, rng: random.Random) -> Iterator[Edit]:
    for line, instruction in _mandatory(subject, rng):
        if instruction.memory:
            text = instruction.memory[0]
            changes = [
                re.sub(r"\(s(\d+)\)", lambda m: f"(s{2 * int(m[1])})", text, count=1),
                text.replace("volatile ", "", 1) if "volatile" in text else f"volatile {text}",
                text.replace("addrspace 1", "addrspace 3", 1),
                re.sub(r"%ir\.\w+", "%ir.other", text, count=1),
            ]
            made = [c for c in changes if c != text]
            if made:
                changed = replace(instruction, memory=(rng.choice(made), *instruction.memory[1:]))
                yield subject.edit({line: [changed]}, f"memory operand {changed.memory[0]}")


def dropped_memory(subject: Subject, rng: random.Random) -> Iterator[Edit]:
    for line, instruction in _mandatory(subject, rng):
        if instruction.memory:
            yield subject.edit({line: [replace(instruction, memory=())]}, f"no memory operand: {instruction}")


def changed_flag(subject: Subject, rng: random.Random) -> Iterator[Edit]:
    for line, instruction in _mandatory(subject, rng):
        if instruction.opcode.startswith(("V_", "S_")) and not instruction.opcode.startswith(("S_CBRANCH", "S_BRANCH")):
            flags = instruction.flags[1:] if instruction.flags else (rng.choice(("nsw", "nuw", "nofpexcept", "nnan")),)
            yield subject.edit({line: [replace(instruction, flags=flags)]}, f"flags {flags} for {instruction.flags}")


def deleted(subject: Subject, rng: random.Random) -> Iterator[Edit]:
    for line, instruction in _mandatory(subject, rng):
        if not instruction.bundled and not instruction.opens_bundle:
            yield subject.edit({line: []}, f"deleted {instruction}")


def duplicated(subject: Subject, rng: random.Random) -> Iterator[Edit]:
    for line, instruction in _mandatory(subject, rng):
        if not instruction.bundled and not instruction.opens_bundle and "_term" not in instruction.opcode:
            yield subject.edit({line: [instruction, instruction]}, f"twice: {instruction}")


def swapped_instructions(subject: Subject, rng: random.Random) -> Iterator[Edit]:
    for (b, n), instruction in _mandatory(subject, rng):
        row = subject.post.blocks[b].instructions
        if n + 1 < len(row) and not any(i.bundled or i.opens_bundle for i in row[n : n + 2]):
            other = row[n + 1]
            if instruction.render() != other.render() and not other.opcode.startswith(
                ("S_BRANCH", "S_CBRANCH", "SI_R")
            ):
                yield subject.edit({(b, n): [other], (b, n + 1): [instruction]}, f"{instruction} behind {other}")


def branch_target(subject: Subject, rng: random.Random) -> Iterator[Edit]:
    numbers = [b.number for b in subject.post.blocks]
    for line, instruction in subject.shuffled(rng):
        for k, op in enumerate(instruction.all_operands):
            if op.kind is OperandKind.BLOCK:
                found = re.search(r"%bb\.(\d+)", op.text)
                others = [n for n in numbers if found and n != int(found[1])]
                if found and others:
                    text = op.text.replace(found[0], f"%bb.{rng.choice(others)}", 1)
                    yield subject.edit({line: [with_operand(instruction, k, text)]}, f"{text} for {op}")


def successors(subject: Subject, rng: random.Random) -> Iterator[Edit]:
    order = list(range(len(subject.post.blocks)))
    rng.shuffle(order)
    for n in order:
        block = subject.post.blocks[n]
        if len(block.successors) > 1 and block.successors[0][0] != block.successors[1][0]:
            changed = replace(block, successors=block.successors[::-1])
        elif block.successors and len(subject.post.blocks) > 2:
            others = [b.number for b in subject.post.blocks if b.number != block.successors[0][0]]
            changed = replace(block, successors=((rng.choice(others), block.successors[0][1]), *block.successors[1:]))
        else:
            continue
        yield subject.with_block(n, changed, f"successors of block {n}")


def inverted_branch(subject: Subject, rng: random.Random) -> Iterator[Edit]:
    inverse = {"EXECZ": "EXECNZ", "EXECNZ": "EXECZ", "SCC0": "SCC1", "SCC1": "SCC0", "VCCZ": "VCCNZ", "VCCNZ": "VCCZ"}
    for line, instruction in subject.shuffled(rng):
        kind = instruction.opcode.removeprefix("S_CBRANCH_")
        if kind in inverse:
            changed = replace(instruction, opcode=f"S_CBRANCH_{inverse[kind]}")
            yield subject.edit({line: [changed]}, f"{changed.opcode} for {instruction.opcode}")


def register_mask(subject: Subject, rng: random.Random) -> Iterator[Edit]:
    for line, instruction in subject.shuffled(rng):
        for k, op in enumerate(instruction.all_operands):
            if op.kind is OperandKind.REGMASK:
                name = "csr_amdgpu_noregs" if rng.random() < 0.5 else "csr_amdgpu_si_gfx"
                if name != op.text:
                    yield subject.edit({line: [with_operand(instruction, k, name)]}, f"{name} for {op.text}")


def kill_added(subject: Subject, rng: random.Random) -> Iterator[Edit]:
    """``killed`` on a read after which the register is read again in the same block."""
    for (b, n), instruction in subject.shuffled(rng):
        for k, op in enumerate(instruction.all_operands):
            if not op.is_use or op.killed or op.undef or not op.phys or op.implicit or "gpr" not in op.phys:
                continue
            units = set(physical_register(op.phys).units)
            alone = all(
                other is op
                or not other.is_reg
                or not other.phys
                or units.isdisjoint(physical_register(other.phys).units)
                for other in instruction.all_operands
            )
            if alone and _read_again(subject.post.blocks[b], n, op.phys):
                text = op.text.replace("renamable ", "killed renamable ") if op.renamable else f"killed {op.text}"
                yield subject.edit({(b, n): [with_operand(instruction, k, text)]}, f"killed {op}, read again")
                break


def _read_again(block: BasicBlock, n: int, name: str) -> bool:
    """The next instruction of the block that names exactly this register reads it and is no copy."""
    for later in block.instructions[n + 1 :]:
        if any(op.phys == name and op.is_use and not op.undef and not op.implicit for op in later.operands):
            return later.opcode not in ("COPY", "KILL") and not later.opcode.startswith("SI_SPILL")
        if any(op.phys and op.is_def and (name in op.phys or op.phys in name) for op in later.all_operands):
            return False
        if any(op.kind is OperandKind.REGMASK for op in later.operands):
            return False
    return False


def dead_added(subject: Subject, rng: random.Random) -> Iterator[Edit]:
    """``dead`` on a result that is read in the same block."""
    for (b, n), instruction in subject.shuffled(rng):
        for k, op in enumerate(instruction.defs):
            if op.phys and not op.dead and not op.early_clobber and _read_again(subject.post.blocks[b], n, op.phys):
                yield subject.edit(
                    {(b, n): [with_operand(instruction, k, f"dead {op.text}")]}, f"dead {op}, read again"
                )


def live_in_dropped(subject: Subject, rng: random.Random) -> Iterator[Edit]:
    """A block live-in that the block reads before it writes it."""
    order = list(range(len(subject.post.blocks)))
    rng.shuffle(order)
    for b in order:
        block = subject.post.blocks[b]
        rows = list(range(len(block.liveins)))
        rng.shuffle(rows)
        for r in rows:
            name = block.liveins[r].reg
            if name not in ("vcc", "scc") and "gpr" in name and _read_again(block, -1, name):
                liveins = block.liveins[:r] + block.liveins[r + 1 :]
                yield subject.with_block(b, replace(block, liveins=liveins), f"live-in ${name} of block {b} dropped")


def header_changed(subject: Subject, rng: random.Random) -> Iterator[Edit]:
    changes = (
        ("isEntryFunction: true", "isEntryFunction: false"),
        ("stackPtrOffsetReg: '$sgpr32'", "stackPtrOffsetReg: '$sgpr33'"),
        ("explicitKernArgSize: ", "explicitKernArgSize: 1"),
        ("ldsSize:         0", "ldsSize:         64"),
        ("returnsVoid:     true", "returnsVoid:     false"),
        ("workItemIDX:     { reg: '$vgpr0'", "workItemIDX:     { reg: '$vgpr1'"),
        ("ieee:            true", "ieee:            false"),
        ("fp32-input-denormals: true", "fp32-input-denormals: false"),
        ("  - { reg: '$vgpr0', ", "  - { reg: '$vgpr1', "),
    )
    order = list(changes)
    rng.shuffle(order)
    text = "\n".join(subject.post.header_lines)
    for old, new in order:
        if old in text:
            lines = tuple(text.replace(old, new, 1).split("\n"))
            yield Edit(replace(subject.post, header_lines=lines), f"{new!r} in the header")


def bundle_split(subject: Subject, rng: random.Random) -> Iterator[Edit]:
    """A bundle loses its first member's place inside."""
    for b, block in enumerate(subject.post.blocks):
        for n, instruction in enumerate(block.instructions):
            if instruction.opens_bundle:
                row = block.instructions
                end = next(k for k in range(n, len(row)) if row[k].closes_bundle)
                free = [
                    replace(i, bundled=False, closes_bundle=False, indent=4) for i in row[n + 1 : end + 1]
                ]  # fmt: skip
                changed = replace(block, instructions=(*row[:n], *free, *row[end + 1 :]))
                yield subject.with_block(b, changed, f"the bundle {instruction} dissolved")


CLASSES = (
    Mutation("changed opcode", SEQUENCE | VALUE | ADDED | SHIFTED, changed_opcode),
    Mutation("changed immediate", SEQUENCE | VALUE | ADDED | SHIFTED, changed_immediate),
    Mutation("changed memory operand", SEQUENCE | VALUE | {"memory-operands"}, changed_memory),
    Mutation("dropped memory operand", SEQUENCE | VALUE | {"memory-operands"}, dropped_memory),
    Mutation("changed flag", VALUE | {"instruction-flags"}, changed_flag),
    Mutation("deleted instruction", SEQUENCE | VALUE | ADDED | SHIFTED | {"control-flow"}, deleted),
    Mutation("duplicated instruction", SEQUENCE | VALUE | ADDED | SHIFTED, duplicated),
    Mutation(
        "swapped instructions",
        SEQUENCE | VALUE | ADDED | SHIFTED | SAVED | {"control-flow", "spill-slot"},
        swapped_instructions,
    ),
    Mutation("changed branch target", SEQUENCE | {"control-flow"}, branch_target),
    Mutation("changed successors", frozenset({"control-flow"}), successors, always=True),
    Mutation("inverted branch", SEQUENCE | {"control-flow"}, inverted_branch),
    Mutation("changed register mask", SEQUENCE, register_mask),
    Mutation("kill flag added", frozenset({"kill-flag"}), kill_added),
    Mutation("dead flag added", frozenset({"dead-flag"}), dead_added),
    Mutation("live-in dropped", frozenset({"live-in"}), live_in_dropped),
    Mutation("header changed", frozenset({"header"}), header_changed, always=True),
    Mutation("bundle dissolved", SEQUENCE | {"bundle"}, bundle_split),
)
