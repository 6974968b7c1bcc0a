"""Edits that keep the meaning and every rule, by construction. Refuting one of them is a false refutation."""

from __future__ import annotations

import dataclasses
import random
import re
from collections.abc import Iterator

from msgspec.structs import replace

from mutants.moves import _instructions
from mutants.subject import Edit, Mutation, Subject, with_operand, without_flag
from verilocc_mlir.mir.model import LiveIn
from verilocc_mlir.target.callingconv import regmask
from verilocc_mlir.target.registers import SGPR_BASE, VGPR_BASE, Bank, physical_register


def kill_dropped(subject: Subject, rng: random.Random) -> Iterator[Edit]:
    for line, instruction in subject.shuffled(rng):
        for k, op in enumerate(instruction.all_operands):
            if op.killed and op.is_use:
                changed = with_operand(instruction, k, without_flag(op, "killed"))
                yield subject.edit({line: [changed]}, f"no kill flag on {op}")
                break


def dead_dropped(subject: Subject, rng: random.Random) -> Iterator[Edit]:
    for line, instruction in subject.shuffled(rng):
        for k, op in enumerate(instruction.all_operands):
            if op.dead and op.phys and line in subject.partners:
                changed = with_operand(instruction, k, without_flag(op, "dead"))
                yield subject.edit({line: [changed]}, f"no dead flag on {op}")
                break


def live_in_added(subject: Subject, rng: random.Random) -> Iterator[Edit]:
    """A live-in that nothing reads, declared all the same."""
    free = list(subject.unused(Bank.VGPR))[:8]
    blocks = list(range(1, len(subject.post.blocks)))
    rng.shuffle(blocks)
    for b in blocks:
        if free:
            block = subject.post.blocks[b]
            extra = LiveIn(f"vgpr{rng.choice(free)}")
            yield subject.with_block(b, replace(block, liveins=(*block.liveins, extra)), f"${extra.reg} live-in")


def renamed_register(subject: Subject, rng: random.Random) -> Iterator[Edit]:
    """A 32-bit register renamed everywhere to an unused one of the same file that calls treat alike."""
    fixed = {
        u for b in subject.pre.blocks for i in b.instructions for op in i.all_operands if op.phys
        for u in physical_register(op.phys).units
    }  # fmt: skip
    fixed |= {u for r in subject.pre.liveins for u in physical_register(r.reg).units}
    names = sorted({op.phys for _, _, op, before in subject.allocated(rng) if not subject.class_of(before).limit})
    rng.shuffle(names)
    preserved = regmask("csr_amdgpu_gfx90ainsts")
    bases = {Bank.SGPR: SGPR_BASE, Bank.VGPR: VGPR_BASE}
    for name in names:
        register = physical_register(name)
        base = bases.get(register.bank)
        if base is None or len(register.units) != 2 or fixed & set(register.units):
            continue
        others = {
            op.phys for _, i in subject.lines for op in i.all_operands
            if op.phys and op.phys != name and set(physical_register(op.phys).units) & set(register.units)
        } | {
            r.reg for b in subject.post.blocks for r in b.liveins
            if r.reg != name and set(physical_register(r.reg).units) & set(register.units)
        }  # fmt: skip
        kept = base + 2 * register.first in preserved
        # Congruent, because the tuples that a subregister's class allows may start at some numbers only.
        free = [
            n for n in subject.unused(register.bank)
            if n < 128 and (n - register.first) % 4 == 0 and (base + 2 * n in preserved) == kept
        ]  # fmt: skip
        if not others and free:
            new = f"{register.bank.value}{rng.choice(free)}"
            yield subject.renamed_everywhere(name, new, f"${new} for ${name} everywhere")


def _vector_results(subject: Subject, rng: random.Random) -> Iterator[tuple[tuple[int, int], str]]:
    for line, instruction in subject.shuffled(rng):
        plain = line in subject.partners and not instruction.bundled and not instruction.opens_bundle
        # A register whose lanes hold scalars is more than what active threads see of it.
        plain = plain and not instruction.opcode.startswith("SI_")
        if plain and not instruction.opcode.endswith("_term"):
            for op in instruction.defs:
                set_aside = bool(op.phys) and set(physical_register(op.phys).units) & subject.available.reserved_units
                if re.fullmatch(r"vgpr\d+", op.phys) and not op.dead and not set_aside:
                    yield line, op.phys
                    break


def spare_copy(subject: Subject, rng: random.Random) -> Iterator[Edit]:
    """A result copied to an unused register, where nobody reads it."""
    free = list(subject.unused(Bank.VGPR))[:8]
    if subject.scalar_phase or not free:
        return
    for line, name in _vector_results(subject, rng):
        copy = _instructions(f"renamable $vgpr{rng.choice(free)} = COPY renamable ${name}")
        yield subject.edit({line: [subject.instruction(line), *copy]}, f"{copy[0]}, which nobody reads")


def round_trip(subject: Subject, rng: random.Random) -> Iterator[Edit]:
    """A result copied to an unused register, overwritten, and copied back."""
    free = list(subject.unused(Bank.VGPR))[:8]
    if subject.scalar_phase or not free:
        return
    for line, name in _vector_results(subject, rng):
        spare = f"$vgpr{rng.choice(free)}"
        code = _instructions(
            f"renamable {spare} = COPY renamable ${name}",
            f"renamable ${name} = IMPLICIT_DEF",
            f"renamable ${name} = COPY killed renamable {spare}",
        )
        yield subject.edit({line: [subject.instruction(line), *code]}, f"${name} through {spare}")


def spilled(subject: Subject, rng: random.Random) -> Iterator[Edit]:
    """A result saved to a new slot, overwritten, and reloaded."""
    if subject.scalar_phase:
        return
    number = max((*subject.post.stack, *subject.pre.stack), default=-1) + 1
    for line, name in _vector_results(subject, rng):
        base = "$sgpr32"
        place = f"%stack.{number}, {base}, 0, implicit $exec"
        code = _instructions(
            f"SI_SPILL_V32_SAVE ${name}, {place} :: (store (s32) into %stack.{number}, addrspace 5)",
            f"renamable ${name} = IMPLICIT_DEF",
            f"renamable ${name} = SI_SPILL_V32_RESTORE {place} :: (load (s32) from %stack.{number}, addrspace 5)",
        )
        header = list(subject.post.header_lines)
        if not any("stackPtrOffsetReg: '$sgpr32'" in text for text in header):
            return
        at = next(n for n, text in enumerate(header) if text.startswith("stack:"))
        end = next((n for n in range(at + 1, len(header)) if not header[n].startswith(" ")), len(header))
        row = (
            f"  - {{ id: {number}, name: '', type: spill-slot, offset: 0, size: 4, alignment: 4, ",
            "      stack-id: default, callee-saved-register: '', callee-saved-restored: true, ",
            "      debug-info-variable: '', debug-info-expression: '', debug-info-location: '' }",
        )
        # At the end, as LLVM numbers them.
        header[at:end] = ["stack:", *header[at + 1 : end], *row]
        header = [re.sub(r"(maxAlignment: +)[12]\Z", r"\g<1>4", text) for text in header]
        header = [re.sub(r"(hasSpilledVGPRs: +)false\Z", r"\g<1>true", text) for text in header]
        edit = subject.edit({line: [subject.instruction(line), *code]}, f"${name} through slot {number}")
        yield dataclasses.replace(edit, function=replace(edit.function, header_lines=tuple(header)))


CLASSES = (
    Mutation(
        "kill flag dropped",
        frozenset(),
        kill_dropped,
        True,
        "a kill flag allows later passes something; without it they may do less",
    ),
    Mutation(
        "dead flag dropped",
        frozenset(),
        dead_dropped,
        True,
        "a dead flag allows later passes something; without it they may do less",
    ),
    Mutation(
        "live-in added", frozenset(), live_in_added, True, "the register is named nowhere else; a live-in only keeps it"
    ),
    Mutation(
        "register renamed",
        frozenset(),
        renamed_register,
        True,
        "a bijection on registers that no fixed operand, wider operand or call tells apart",
    ),
    Mutation("spare copy", frozenset(), spare_copy, True, "it writes a register that is named nowhere else"),
    Mutation("round trip", frozenset(), round_trip, True, "both copies stand at one place, under one EXEC"),
    Mutation("spilled and reloaded", frozenset(), spilled, True, "save and reload stand at one place, under one EXEC"),
)
