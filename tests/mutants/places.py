"""Mutations of where code stands: between terminators, across calls, under another EXEC, in whole-wave code."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator

from msgspec.structs import replace

from mutants.implicit import OPERANDS
from mutants.instructions import SEQUENCE
from mutants.moves import VALUE, _instructions, _terminates, _writes_exec, moved
from mutants.subject import Edit, Line, Mutation, Subject, renamed, with_operand
from verilocc_mlir.mir.model import Instruction, OperandKind
from verilocc_mlir.target.callingconv import regmask
from verilocc_mlir.target.registers import Bank, physical_register, tuple_name

_OWN = ("COPY", "WWM_COPY", "SI_SPILL_", "IMPLICIT_DEF", "KILL")


def _first_branch(row: tuple[Instruction, ...]) -> int:
    return next((n for n, i in enumerate(row) if _terminates(i)), len(row))


def between_terminators(subject: Subject, rng: random.Random) -> Iterator[Edit]:
    """A move of the allocator's that stands before the branches, put between them or behind them."""
    order = list(range(len(subject.post.blocks)))
    rng.shuffle(order)
    for b in order * 2:
        row = subject.post.blocks[b].instructions
        first = _first_branch(row)
        own = [n for n in range(first) if row[n].opcode.startswith(_OWN) or (b, n) not in subject.partners]
        if not own or len(row) - first < 1 or any(i.bundled or i.opens_bundle for i in row):
            continue
        n = rng.choice(own)
        to = rng.randint(first, len(row) - 1)
        changed = [*row[:n], *row[n + 1 : to + 1], row[n], *row[to + 1 :]]
        block = replace(subject.post.blocks[b], instructions=tuple(changed))
        yield subject.with_block(b, block, f"{row[n]} behind {row[to]}")


def terminators(subject: Subject, rng: random.Random) -> Iterator[Edit]:
    """Branches exchanged or dropped, or another condition."""
    order = list(range(len(subject.post.blocks)))
    rng.shuffle(order)
    for b in order * 2:
        row = list(subject.post.blocks[b].instructions)
        first = _first_branch(tuple(row))
        branches = [n for n in range(first, len(row)) if row[n].opcode.startswith(("S_BRANCH", "S_CBRANCH"))]
        if not branches:
            continue
        kind, n = rng.randrange(3), rng.choice(branches)
        if kind == 0 and len(row) - first > 1:
            m = rng.choice([k for k in range(first, len(row)) if k != n])
            what = f"{row[n]} and {row[m]} exchanged"
            row[n], row[m] = row[m], row[n]
        elif kind == 1:
            what = f"{row.pop(n)} dropped"
        else:
            opcode = rng.choice(("S_CBRANCH_SCC0", "S_CBRANCH_SCC1", "S_CBRANCH_VCCZ", "S_CBRANCH_EXECZ", "S_BRANCH"))
            name = {"S": "scc", "V": "vcc", "E": "exec"}.get(opcode[10:11], "")
            if opcode == row[n].opcode:
                continue
            target = next(op for op in row[n].operands if op.kind is OperandKind.BLOCK)
            what = f"{opcode} for {row[n]}"
            tail = f", implicit ${name}" if name else ""
            row[n] = with_operand(_instructions(f"{opcode} %bb.0{tail}")[0], 0, target.text)
        yield subject.with_block(b, replace(subject.post.blocks[b], instructions=tuple(row)), what)


def _calls(subject: Subject, rng: random.Random) -> list[Line]:
    found = [line for line, i in subject.lines if any(op.kind is OperandKind.REGMASK for op in i.operands)]
    rng.shuffle(found)
    return found


def kept_across_call(subject: Subject, rng: random.Random) -> Iterator[Edit]:
    """A value that calls preserve goes by way of a register that they do not."""
    for line in _calls(subject, rng) * 3:
        b, n = line
        row = subject.post.blocks[b].instructions
        mask = next(op for op in row[n].operands if op.kind is OperandKind.REGMASK)
        preserved = regmask(mask.text)
        own = {op.phys for op in row[n].all_operands if op.phys}
        names = sorted({
            op.phys for i in row[n + 1 :] for op in i.operands
            if op.is_use and not op.undef and re.fullmatch(r"[sv]gpr\d+", op.phys) and op.phys not in own
            and set(physical_register(op.phys).units) <= preserved
            and not set(physical_register(op.phys).units) & subject.available.reserved_units
        })  # fmt: skip
        if not names:
            continue
        name = rng.choice(names)
        vector = name.startswith("v")
        free = [f"{'v' if vector else 's'}gpr{k}" for k in subject.unused(Bank.VGPR if vector else Bank.SGPR)]
        free = [r for r in free if not set(physical_register(r).units) <= preserved]
        by = rng.choice([*free[:4], *(() if vector else ("vcc_lo", "m0", "vcc_hi"))] or [""])
        if not by:
            continue
        tail = ", implicit $exec" if vector and rng.random() < 0.3 else ""
        before = _instructions(f"renamable ${by} = COPY ${name}{tail}", f"renamable ${name} = IMPLICIT_DEF")
        after = _instructions(f"renamable ${name} = COPY ${by}{tail}")
        yield subject.edit({line: [*before, row[n], *after]}, f"${name} in ${by} across {row[n].opcode}")


def call_changed(subject: Subject, rng: random.Random) -> Iterator[Edit]:
    """Another callee, another argument register, one fewer, another result."""
    for line in _calls(subject, rng) * 3:
        instruction = subject.instruction(line)
        sites = [k for k, op in enumerate(instruction.all_operands) if op.kind is not OperandKind.REGMASK]
        k = rng.choice(sites)
        op = instruction.all_operands[k]
        if op.phys and op.implicit and rng.random() < 0.5:
            n = k - len(instruction.defs)
            one = replace(instruction, operands=instruction.operands[:n] + instruction.operands[n + 1 :])
        elif op.phys and op.is_reg:
            register = physical_register(op.phys)
            if register.first < 0:
                continue
            name = tuple_name(register.bank, register.first + 2, len(register.units) // 2)
            one = with_operand(instruction, k, renamed(op, name))
        elif op.text.startswith("@"):
            one = with_operand(instruction, k, "@k")
        else:
            continue
        yield subject.edit({line: [one]}, f"{op} of {instruction.opcode} changed")


def other_exec(subject: Subject, rng: random.Random) -> Iterator[Edit]:
    """Code of the allocator's moved over the instruction that changes EXEC, up or down within its block."""
    for (b, n), instruction in subject.shuffled(rng):
        own = instruction.opcode.startswith(_OWN[:3]) or (b, n) not in subject.partners
        if not own or _terminates(instruction):
            continue
        row = subject.post.blocks[b].instructions
        changes = [k for k in range(len(row)) if _writes_exec(row[k]) and not _terminates(row[k])]
        ups, downs = [k for k in changes if k < n], [k for k in changes if k > n]
        by = rng.choice([*(k - n for k in ups[-1:]), *(k - n for k in downs[:1])] or [0])
        edit = moved(subject, (b, n), by) if by else None
        if edit is not None:
            yield edit


def mask_operand(subject: Subject, rng: random.Random) -> Iterator[Edit]:
    """A mask that EXEC comes from or is saved to, in another register."""
    wide = subject.target.wave_size == 64
    for line, instruction in subject.shuffled(rng):
        about_exec = any(
            op.phys.startswith("exec") and not (op.implicit and op.is_use) for op in instruction.all_operands
        )
        if not about_exec:
            continue
        sites = [k for k, op in enumerate(instruction.all_operands) if op.phys and op.phys.startswith(("sgpr", "vcc"))]
        names = sorted({
            op.phys for _, i in subject.lines for op in i.all_operands if op.phys.startswith(("sgpr", "vcc"))
            and len(physical_register(op.phys).units) == (4 if wide else 2)
        })  # fmt: skip
        if sites and len(names) > 1:
            k = rng.choice(sites)
            op = instruction.all_operands[k]
            name = rng.choice([m for m in names if m != op.phys])
            yield subject.edit({line: [with_operand(instruction, k, renamed(op, name))]}, f"${name} for {op}")


_LANES = (
    "V_READLANE",
    "V_READFIRSTLANE",
    "V_WRITELANE",
    "DS_BPERMUTE",
    "V_PERMLANE",
    "SI_SPILL_S32_TO",
    "SI_RESTORE_S32",
)


def lane_operand(subject: Subject, rng: random.Random) -> Iterator[Edit]:
    """An operand of an instruction that reads or writes lanes of other threads."""
    for line in subject.moves(rng, *_LANES) * 2:
        instruction = subject.instruction(line)
        sites = [k for k, op in enumerate(instruction.all_operands) if op.phys and not op.implicit]
        if not sites:
            continue
        k = rng.choice(sites)
        op = instruction.all_operands[k]
        register = physical_register(op.phys)
        names = sorted({
            o.phys for _, i in subject.lines for o in i.all_operands if o.phys and o.phys != op.phys
            and physical_register(o.phys).bank is register.bank and len(physical_register(o.phys).units) == 2
        })  # fmt: skip
        if names and len(register.units) == 2:
            name = rng.choice(names)
            yield subject.edit({line: [with_operand(instruction, k, renamed(op, name))]}, f"${name} for {op}")


def bracket(subject: Subject, rng: random.Random) -> Iterator[Edit]:
    """The begin or end of whole-wave code moved over its neighbour, dropped, or with another register."""
    for line in subject.moves(rng, "ENTER_STRICT", "EXIT_STRICT", "S_OR_SAVEEXEC", "SI_WHOLE_WAVE") * 3:
        instruction = subject.instruction(line)
        if rng.random() < 0.2:
            yield subject.edit({line: []}, f"{instruction} dropped")
            continue
        edit = moved(subject, line, rng.choice((-2, -1, 1, 2)))
        if edit is not None:
            yield edit


def whole_wave_move(subject: Subject, rng: random.Random) -> Iterator[Edit]:
    """A move inside whole-wave code that moves active threads only, or another register, or not at all."""
    inside: list[Line] = []
    for b, block in enumerate(subject.post.blocks):
        open_ = False
        for n, i in enumerate(block.instructions):
            open_ = (open_ or i.opcode.startswith("ENTER_STRICT")) and not i.opcode.startswith("EXIT_STRICT")
            if open_ or "WWM" in i.opcode:
                inside.append((b, n))
    rng.shuffle(inside)
    for line in inside * 2:
        instruction = subject.instruction(line)
        if instruction.opcode == "WWM_COPY":
            yield subject.edit({line: [replace(instruction, opcode="COPY")]}, "COPY for WWM_COPY")
        elif "WWM_" in instruction.opcode:
            opcode = instruction.opcode.replace("WWM_", "")
            yield subject.edit({line: [replace(instruction, opcode=opcode)]}, f"{opcode} for {instruction.opcode}")
        elif instruction.opcode in ("COPY", "V_SET_INACTIVE_B32") or instruction.opcode.startswith("V_"):
            sites = [k for k, op in enumerate(instruction.all_operands) if re.fullmatch(r"vgpr\d+", op.phys)]
            names = sorted(
                {o.phys for _, i in subject.lines for o in i.all_operands if re.fullmatch(r"vgpr\d+", o.phys)}
            )
            if sites and len(names) > 1:
                k = rng.choice(sites)
                op = instruction.all_operands[k]
                name = rng.choice([m for m in names if m != op.phys])
                yield subject.edit({line: [with_operand(instruction, k, renamed(op, name))]}, f"${name} for {op}")
            edit = moved(subject, line, rng.choice((-4, -2, 2, 4)))
            if edit is not None:
                yield edit


CLASSES = (
    Mutation("move between terminators", OPERANDS | {"control-flow"}, between_terminators),
    Mutation("terminators changed", SEQUENCE | {"control-flow"}, terminators),
    Mutation("kept across a call", OPERANDS | {"register-class"}, kept_across_call),
    Mutation("call changed", OPERANDS | {"fixed-register", "register-class"}, call_changed),
    Mutation("moved under another EXEC", OPERANDS | {"spill-slot"}, other_exec),
    Mutation("mask in another register", OPERANDS | {"fixed-register", "unsupported", "register-class"}, mask_operand),
    Mutation(
        "lane operand", OPERANDS | VALUE | {"register-class", "tied-operand", "header", "spill-slot"}, lane_operand
    ),
    Mutation("whole-wave bracket", OPERANDS | {"unsupported", "spill-slot"}, bracket),
    Mutation("whole-wave move", OPERANDS | {"unsupported", "spill-slot", "register-class"}, whole_wave_move),
)
