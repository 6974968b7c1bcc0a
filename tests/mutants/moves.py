"""Mutations of what an allocator inserts: copies, spill code, repeated constants, and the EXEC they run under."""

from __future__ import annotations

import dataclasses
import random
import re
from collections.abc import Iterator

from msgspec.structs import replace

from mutants.operands import READ
from mutants.subject import Edit, Line, Mutation, Subject, renamed, with_operand
from verilocc_mlir.mir.model import Instruction, LiveIn, OperandKind, StackObject
from verilocc_mlir.mir.parser import parse_mir
from verilocc_mlir.target.callingconv import regmask
from verilocc_mlir.target.registers import SGPR_BASE, VGPR_BASE, Bank, physical_register, tuple_name

VALUE = READ | {"relation"}
SAVED = frozenset({"callee-saved"})
"""Also, where what goes wrong is the value of a callee-saved register."""


def _spill_code(subject: Subject, rng: random.Random) -> list[Line]:
    return [n for n in subject.moves(rng, "SI_SPILL_") if subject.instruction(n).opcode.endswith(("_SAVE", "_RESTORE"))]


def _is_save(instruction: Instruction) -> bool:
    return instruction.opcode.startswith("SI_SPILL_") and instruction.opcode.endswith("_SAVE")


def _is_reload(instruction: Instruction) -> bool:
    return instruction.opcode.startswith("SI_SPILL_") and instruction.opcode.endswith("_RESTORE")


def _terminates(instruction: Instruction) -> bool:
    return instruction.opcode.endswith("_term") or instruction.opcode.startswith(
        ("S_BRANCH", "S_CBRANCH", "S_ENDPGM", "SI_RETURN", "S_SETPC")
    )


def dropped_copy(subject: Subject, rng: random.Random) -> Iterator[Edit]:
    for line in subject.moves(rng, "COPY"):
        yield subject.edit({line: []}, f"dropped {subject.instruction(line)}")


def lost_back_edge_copy(subject: Subject, rng: random.Random) -> Iterator[Edit]:
    """Copies in blocks that a back edge leaves."""
    position = {b.number: n for n, b in enumerate(subject.post.blocks)}
    latches = {n for n, b in enumerate(subject.post.blocks) if any(position[s] <= n for s, _ in b.successors)}
    for line in subject.moves(rng, "COPY"):
        if line[0] in latches:
            yield subject.edit({line: []}, f"dropped {subject.instruction(line)} before a back edge")


def moved(subject: Subject, line: Line, by: int) -> Edit | None:
    """An instruction moved down (``by`` > 0) or up, not across a terminator."""
    b, n = line
    row = list(subject.post.blocks[b].instructions)
    one = row[n]
    to = n + by
    if not 0 <= to < len(row) or any(i.bundled or i.opens_bundle for i in row[min(n, to) : max(n, to) + 1]):
        return None
    if by > 0 and any(_terminates(i) for i in row[n : to + 1]):
        return None
    row.pop(n)
    row.insert(to, one)
    block = replace(subject.post.blocks[b], instructions=tuple(row))
    return subject.with_block(b, block, f"moved {one} by {by}")


def moved_copy(subject: Subject, rng: random.Random) -> Iterator[Edit]:
    for line in subject.moves(rng, "COPY"):
        edit = moved(subject, line, rng.choice((-4, -3, -2, -1, 1, 2, 3, 4)))
        if edit is not None:
            yield edit


def moved_spill(subject: Subject, rng: random.Random) -> Iterator[Edit]:
    for line in _spill_code(subject, rng):
        edit = moved(subject, line, rng.choice((-4, -3, -2, -1, 1, 2, 3, 4)))
        if edit is not None:
            yield edit


def wrong_copy(subject: Subject, rng: random.Random) -> Iterator[Edit]:
    """A copy from or to another register."""
    for line in subject.moves(rng, "COPY"):
        instruction = subject.instruction(line)
        k = rng.choice((0, 1))
        op = instruction.all_operands[k]
        register = physical_register(op.phys) if op.phys else None
        if register is None or op.undef or register.bank not in (Bank.SGPR, Bank.VGPR, Bank.AGPR):
            continue
        if len(register.units) % 2:
            continue
        width = len(register.units) // 2
        used = [
            n for n in subject.numbers(register.bank)
            if n != register.first and all(n + m in subject.numbers(register.bank) for m in range(width))
            and (n - register.first) % min(width, 4) == 0
        ]  # fmt: skip
        if used:
            name = tuple_name(register.bank, rng.choice(used), width)
            changed = with_operand(instruction, k, renamed(op, name))
            yield subject.edit({line: [changed]}, f"copy: ${name} for ${op.phys}")


def dropped_reload(subject: Subject, rng: random.Random) -> Iterator[Edit]:
    for line in _spill_code(subject, rng):
        if _is_reload(subject.instruction(line)):
            yield subject.edit({line: []}, f"dropped {subject.instruction(line)}")


def dropped_save(subject: Subject, rng: random.Random) -> Iterator[Edit]:
    for line in _spill_code(subject, rng):
        if _is_save(subject.instruction(line)):
            yield subject.edit({line: []}, f"dropped {subject.instruction(line)}")


def _other_slot(instruction: Instruction, old: int, new: int) -> Instruction:
    def rename(text: str) -> str:
        return re.sub(rf"%stack\.{old}(?!\d)", f"%stack.{new}", text)

    operands = tuple(
        replace(op, text=rename(op.text)) if op.kind is OperandKind.FRAME_INDEX else op for op in instruction.operands
    )
    return replace(instruction, operands=operands, memory=tuple(map(rename, instruction.memory)))


def _slot(instruction: Instruction) -> int:
    text = next(op.text for op in instruction.operands if op.kind is OperandKind.FRAME_INDEX)
    return int(re.findall(r"\d+", text)[0])


def slots_exchanged(subject: Subject, rng: random.Random) -> Iterator[Edit]:
    """One access goes to another slot of at least the same size."""
    for line in _spill_code(subject, rng):
        instruction = subject.instruction(line)
        own = _slot(instruction)
        row = subject.post.stack.get(own)
        others = [
            n for n, r in subject.post.stack.items()
            if row is not None and n != own and r.type == "spill-slot" and r.size >= row.size
        ]  # fmt: skip
        if others:
            new = rng.choice(sorted(others))
            yield subject.edit({line: [_other_slot(instruction, own, new)]}, f"slot {new} for slot {own}")


def wrong_offset(subject: Subject, rng: random.Random) -> Iterator[Edit]:
    """The access is some bytes further on: inside the slot where it is wide enough, else beyond it."""
    for line in _spill_code(subject, rng):
        instruction = subject.instruction(line)
        sites = [k for k, op in enumerate(instruction.all_operands) if op.kind is OperandKind.IMMEDIATE]
        if sites:
            by = rng.choice((4, 8, -4, 2, 1024))
            value = int(instruction.all_operands[sites[0]].text) + by
            changed = with_operand(instruction, sites[0], str(value))
            yield subject.edit({line: [changed]}, f"offset {value}")


def wrong_base(subject: Subject, rng: random.Random) -> Iterator[Edit]:
    """The slot is addressed with another register than the stack pointer."""
    for line in _spill_code(subject, rng):
        instruction = subject.instruction(line)
        for k, op in enumerate(instruction.all_operands[2:], 2):
            if op.phys and not op.implicit and op.phys.startswith("sgpr"):
                changed = with_operand(instruction, k, renamed(op, "sgpr33" if op.phys != "sgpr33" else "sgpr31"))
                yield subject.edit({line: [changed]}, f"another base than ${op.phys}")
                break


def foreign_slot(subject: Subject, rng: random.Random) -> Iterator[Edit]:
    """Spill code that uses a stack object of the program."""
    own = sorted(n for n, r in subject.pre.stack.items() if r.type != "spill-slot" or n in subject.post.stack)
    for line in _spill_code(subject, rng):
        if own:
            instruction = subject.instruction(line)
            yield subject.edit({line: [_other_slot(instruction, _slot(instruction), rng.choice(own))]}, "foreign slot")


def _vector_move(subject: Subject, instruction: Instruction) -> bool:
    if instruction.opcode != "COPY" and not instruction.opcode.startswith(("SI_SPILL_V", "SI_SPILL_A")):
        return False
    register = next((op for op in instruction.all_operands if op.phys), None)
    return register is not None and physical_register(register.phys).bank in (Bank.VGPR, Bank.AGPR)


def _writes_exec(instruction: Instruction) -> bool:
    if instruction.opcode == "COPY" and not any(op.phys.startswith("exec") for op in instruction.defs):
        return False
    return any(op.is_def and op.phys in ("exec", "exec_lo") for op in instruction.all_operands)


def narrower_exec(subject: Subject, rng: random.Random) -> Iterator[Edit]:
    """A vector copy, save or reload moved behind the next instruction that changes EXEC, in every successor."""
    position = {b.number: n for n, b in enumerate(subject.post.blocks)}
    for line, instruction in subject.shuffled(rng):
        if not _vector_move(subject, instruction):
            continue
        b, n = line
        row = subject.post.blocks[b].instructions
        change = next((k for k in range(n + 1, len(row)) if _writes_exec(row[k])), -1)
        if change < 0:
            continue
        if not _terminates(row[change]):
            edit = moved(subject, line, change - n)
            if edit is not None:
                yield dataclasses.replace(edit, what=f"moved {instruction} behind {row[change]}")
            continue
        blocks = list(subject.post.blocks)
        blocks[b] = replace(blocks[b], instructions=row[:n] + row[n + 1 :])
        after = [position[s] for s, _ in blocks[b].successors]
        if b in after:
            continue
        if rng.random() < 0.3 and len(after) > 1:
            after = [rng.choice(after)]
        for s in after:
            blocks[s] = replace(
                blocks[s],
                instructions=(instruction, *blocks[s].instructions),
                liveins=_with_liveins(blocks[s].liveins, instruction),
            )
        yield Edit(
            replace(subject.post, blocks=tuple(blocks)),
            f"moved {instruction} into {len(after)} of its successors",
            touched=frozenset({b, *after}),
        )


def _with_liveins(given: tuple[LiveIn, ...], instruction: Instruction) -> tuple[LiveIn, ...]:
    reads = [op.phys for op in instruction.operands if op.is_use and op.phys and not op.implicit]
    return (*given, *(LiveIn(name) for name in reads if name not in {r.reg for r in given}))


def _instructions(*lines: str) -> tuple[Instruction, ...]:
    body = "\n".join(f"    {line}" for line in lines)
    text = f"---\nname:            x\nbody:             |\n  bb.0:\n{body}\n...\n"
    return parse_mir(text).functions[0].blocks[0].instructions


def whole_wave_clobber(subject: Subject, rng: random.Random) -> Iterator[Edit]:
    """Whole-wave code on both sides, whose result the allocator put where waiting threads keep a value.

    The pre-RA side writes a virtual register of its own for the whole wave and stores it; the post-RA side writes a
    register that is live across that place.
    """
    if subject.scalar_phase or not subject.pre.registers:
        return
    wide = subject.target.wave_size == 64
    saves = subject.unused(Bank.SGPR, 2 if wide else 1, 2)
    save = next(saves, None)
    if save is None:
        return
    mask = tuple_name(Bank.SGPR, save, 2 if wide else 1)
    executive = "exec" if wide else "exec_lo"
    size = "64" if wide else "32"
    vreg = max(subject.pre.registers) + 1
    vregs = sorted(u for n in subject.numbers(Bank.VGPR) if (u := VGPR_BASE + 2 * n) in subject.named)
    begin = f"${mask} = S_OR_SAVEEXEC_B{size} -1, implicit-def $exec, implicit-def dead $scc, implicit $exec"
    end = f"${executive} = S_MOV_B{size} killed ${mask}"
    lines = [line for line, i in subject.shuffled(rng) if line in subject.partners and i.opcode.startswith("V_")]
    for line in lines:
        if not vregs:
            return
        target = f"vgpr{(rng.choice(vregs) - VGPR_BASE) // 2}"
        before, after = (
            _instructions(
                begin,
                f"{name}{suffix} = V_MOV_B32_e32 7, implicit $exec",
                f"GLOBAL_STORE_DWORD undef $vgpr0_vgpr1, {name}, 0, 0, implicit $exec",
                end,
            )
            for name, suffix in ((f"%{vreg}", ":vgpr_32"), (f"${target}", ""))
        )
        partner = subject.partners[line]
        edit = subject.edit({line: [*after, subject.instruction(line)]}, f"whole-wave write to ${target}")
        blocks = list(subject.pre.blocks)
        row = list(blocks[line[0]].instructions)
        at = next(n for n, i in enumerate(row) if i is partner)
        blocks[line[0]] = replace(blocks[line[0]], instructions=(*row[:at], *before, *row[at:]))
        header = _with_register(subject.pre.header_lines, vreg)
        yield dataclasses.replace(edit, pre=replace(subject.pre, blocks=tuple(blocks), header_lines=header))


def _with_register(header: tuple[str, ...], vreg: int) -> tuple[str, ...]:
    at = next(n for n, text in enumerate(header) if text.startswith("registers:"))
    row = f"  - {{ id: {vreg}, class: vgpr_32, preferred-register: '', flags: [  ] }}"
    return (*header[:at], "registers:", row, *header[at + 1 :])


def clobbered_by_call(subject: Subject, rng: random.Random) -> Iterator[Edit]:
    """A register that calls preserve renamed everywhere to an unused one that they do not."""
    masks = [op.text for _, i in subject.lines for op in i.operands if op.kind is OperandKind.REGMASK]
    if not masks:
        return
    preserved = regmask(masks[0])
    fixed = {u for b in subject.pre.blocks for i in b.instructions for op in i.all_operands if op.phys
             for u in physical_register(op.phys).units}  # fmt: skip
    names = sorted({op.phys for _, _, op, _ in subject.allocated(rng)})
    rng.shuffle(names)
    for name in names:
        register = physical_register(name)
        if len(register.units) != 2 or register.units[0] not in preserved or register.bank is Bank.SPECIAL:
            continue
        if any(u in fixed for u in register.units):
            continue
        covering = {
            op.phys for _, i in subject.lines for op in i.all_operands
            if op.phys and op.phys != name and set(register.units) & set(physical_register(op.phys).units)
        }  # fmt: skip
        free = [
            n for n in subject.unused(register.bank)
            if {Bank.SGPR: SGPR_BASE, Bank.VGPR: VGPR_BASE}.get(register.bank, -9999) + 2 * n not in preserved
        ]  # fmt: skip
        if covering or not free or register.bank not in (Bank.SGPR, Bank.VGPR):
            continue
        new = f"{register.bank.value}{free[0]}"
        yield subject.renamed_everywhere(name, new, f"${new}, which calls clobber, for ${name}")


def callee_saved_scalar(subject: Subject, rng: random.Random) -> Iterator[Edit]:
    """While vector registers are allocated, a copy into a callee-saved scalar register, too late to be saved."""
    if subject.scalar_phase or not subject.is_called:
        return
    preserved = regmask("csr_amdgpu")
    numbers = [n for n in subject.unused(Bank.SGPR) if SGPR_BASE + 2 * n in preserved]
    sources = sorted({op.phys for _, i in subject.lines for op in i.defs if re.fullmatch(r"sgpr\d+", op.phys)})
    for line, instruction in subject.shuffled(rng):
        written = [op.phys for op in instruction.defs if op.phys in sources]
        if numbers and written and not _terminates(instruction):
            added = _instructions(f"renamable $sgpr{rng.choice(numbers)} = COPY ${written[0]}")
            yield subject.edit({line: [instruction, *added]}, f"{added[0]} is never restored")


def wrong_rematerialisation(subject: Subject, rng: random.Random) -> Iterator[Edit]:
    """A repeated constant with another value, or computed from a register that has changed since."""
    for line, instruction in subject.shuffled(rng):
        if line in subject.partners or instruction.opcode == "COPY" or instruction.opcode.startswith("SI_"):
            continue
        sites = [k for k, op in enumerate(instruction.all_operands) if op.kind is OperandKind.IMMEDIATE]
        inputs = [
            (k, op) for k, op in enumerate(instruction.all_operands)
            if op.is_use and op.phys and not op.implicit and re.fullmatch(r"[sv]gpr\d+", op.phys)
        ]  # fmt: skip
        if sites:
            k = rng.choice(sites)
            value = int(instruction.all_operands[k].text.split()[0]) + rng.choice((-1, 1))
            yield subject.edit({line: [with_operand(instruction, k, str(value))]}, f"repeated with {value}")
        elif inputs:
            k, op = rng.choice(inputs)
            clobber = _instructions(f"renamable ${op.phys} = IMPLICIT_DEF")
            yield subject.edit({line: [*clobber, instruction]}, f"${op.phys} has changed since")


def wrong_spill_lane(subject: Subject, rng: random.Random) -> Iterator[Edit]:
    """A scalar put into another lane of the register that keeps it, or taken from another."""
    for line in subject.moves(rng, "SI_SPILL_S32_TO_VGPR", "SI_RESTORE_S32_FROM_VGPR"):
        instruction = subject.instruction(line)
        k = next(k for k, op in enumerate(instruction.all_operands) if op.kind is OperandKind.IMMEDIATE)
        lane = (int(instruction.all_operands[k].text) + rng.choice((1, 2, 29))) % 32
        yield subject.edit({line: [with_operand(instruction, k, str(lane))]}, f"lane {lane} in {instruction}")


def constant_for_copy(subject: Subject, rng: random.Random) -> Iterator[Edit]:
    """A copy replaced by a constant: as if the value had been one, and rematerialised."""
    for line in subject.moves(rng, "COPY"):
        instruction = subject.instruction(line)
        target = instruction.defs[0]
        if not target.phys or line in subject.partners:
            continue
        bank = physical_register(target.phys).bank
        opcode = {Bank.VGPR: "V_MOV_B32_e32", Bank.SGPR: "S_MOV_B32"}.get(bank)
        if opcode is None or len(physical_register(target.phys).units) != 2:
            continue
        tail = ", implicit $exec" if bank is Bank.VGPR else ""
        made = _instructions(f"{target.text} = {opcode} {rng.choice((0, 1, 7))}{tail}")
        yield subject.edit({line: list(made)}, f"{made[0]} for {instruction}")


def dropped_spill_slot(subject: Subject, rng: random.Random) -> Iterator[Edit]:
    """The stack: table loses or shrinks a spill slot."""
    slots = sorted(n for n, r in subject.post.stack.items() if n not in subject.pre.stack and r.type == "spill-slot")
    rng.shuffle(slots)
    for number in slots:
        row: StackObject = subject.post.stack[number]
        small = row.text.replace(f"size: {row.size}", f"size: {max(row.size // 2, 2)}")
        text = "\n".join(subject.post.header_lines).replace(row.text, small)
        yield Edit(replace(subject.post, header_lines=tuple(text.split("\n"))), f"slot {number} has half its size")


CLASSES = (
    Mutation("dropped copy", VALUE, dropped_copy),
    Mutation("lost back-edge copy", VALUE, lost_back_edge_copy),
    Mutation("moved copy", VALUE | SAVED | {"dead-flag", "spill-slot"}, moved_copy),
    Mutation("wrong copy", VALUE | SAVED | {"dead-flag", "reserved-register", "register-class"}, wrong_copy),
    Mutation("moved spill code", VALUE | SAVED | {"dead-flag", "spill-slot"}, moved_spill),
    Mutation("dropped reload", VALUE | SAVED, dropped_reload),
    Mutation("dropped save", VALUE | SAVED, dropped_save),
    Mutation("spill slots mixed up", VALUE | SAVED | {"spill-slot"}, slots_exchanged),
    Mutation("wrong spill offset", VALUE | SAVED | {"spill-slot"}, wrong_offset),
    Mutation("wrong spill base", frozenset({"spill-slot"}), wrong_base, always=True),
    Mutation("spill slot of the program", VALUE | SAVED | {"spill-slot", "header"}, foreign_slot),
    Mutation("spill slot shrunk", frozenset({"spill-slot", "header"}), dropped_spill_slot),
    Mutation("moved under a narrower EXEC", VALUE | SAVED | {"dead-flag"}, narrower_exec),
    Mutation("whole-wave clobber", VALUE | SAVED | {"instruction-sequence"}, whole_wave_clobber),
    Mutation("clobbered by a call", VALUE | {"register-class"}, clobbered_by_call),
    Mutation("callee-saved scalar clobbered", frozenset({"callee-saved", "reserved-register"}), callee_saved_scalar),
    Mutation(
        "wrong rematerialisation", VALUE | {"instruction-sequence", "operands", "dead-flag"}, wrong_rematerialisation
    ),
    Mutation("wrong spill lane", VALUE | SAVED | {"instruction-sequence", "operands"}, wrong_spill_lane),
    Mutation(
        "constant for a copy",
        VALUE | {"instruction-sequence", "register-class", "reserved-register", "fixed-register"},
        constant_for_copy,
    ),
)
