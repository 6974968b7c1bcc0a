"""Mutations of implicit operands, of KILL and IMPLICIT_DEF, and of inline assembly."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator

from msgspec.structs import replace

from mutants.instructions import ADDED, SEQUENCE, SHIFTED, _mandatory
from mutants.moves import SAVED, VALUE, _instructions, _terminates
from mutants.subject import Edit, Mutation, Subject, renamed, with_operand
from verilocc_mlir.mir.model import Instruction, OperandKind
from verilocc_mlir.target.registers import Bank, physical_register

OPERANDS = SEQUENCE | VALUE | ADDED | SHIFTED | SAVED
_NOT_CODE = ("KILL", "IMPLICIT_DEF")


def _sites(instruction: Instruction) -> list[int]:
    return [n for n, op in enumerate(instruction.operands) if op.implicit and op.phys]


def dropped(subject: Subject, rng: random.Random) -> Iterator[Edit]:
    """An implicit operand that the opcode has: EXEC, MODE, M0, SCC, VCC, argument registers."""
    for line, instruction in _mandatory(subject, rng):
        sites = _sites(instruction)
        if sites:
            n = rng.choice(sites)
            changed = replace(instruction, operands=instruction.operands[:n] + instruction.operands[n + 1 :])
            yield subject.edit({line: [changed]}, f"{instruction.operands[n]} dropped from {instruction}")


def _register(subject: Subject, rng: random.Random) -> str:
    """A register in use, or a special one."""
    if rng.random() < 0.35:
        return rng.choice(("$vcc", "$scc", "$m0", "$mode", "$exec"))
    names = sorted({op.phys for _, i in subject.lines for op in i.defs if re.match(r"[sva]gpr\d", op.phys)})
    return f"${rng.choice(names)}" if names else "$vgpr0"


def _with_implicit(instruction: Instruction, text: str) -> Instruction:
    one = _instructions(f"S_NOP 0, {text}")[0].operands[-1]
    return replace(instruction, operands=(*instruction.operands, one))


def added(subject: Subject, rng: random.Random) -> Iterator[Edit]:
    """An implicit definition or use that the opcode has not, on any instruction."""
    for line, instruction in subject.shuffled(rng):
        if instruction.bundled or instruction.opens_bundle or instruction.opcode.startswith("INLINEASM"):
            continue
        way = rng.choice(("implicit-def", "implicit-def", "implicit-def dead", "implicit", "implicit killed"))
        text = f"{way} {_register(subject, rng)}"
        if subject.target.wave_size == 32:
            text = text.replace("$exec", "$exec_lo") if way != "implicit" else text
        yield subject.edit({line: [_with_implicit(instruction, text)]}, f"{text} at {instruction}")


def added_to_move(subject: Subject, rng: random.Random) -> Iterator[Edit]:
    """An implicit definition on a copy, a save or a reload: the expansion leaves the register alone, or writes it."""
    for line in subject.moves(rng, "COPY", "SI_SPILL_", "WWM_COPY"):
        instruction = subject.instruction(line)
        text = f"implicit-def {_register(subject, rng)}"
        yield subject.edit({line: [_with_implicit(instruction, text)]}, f"{text} at {instruction}")


def changed(subject: Subject, rng: random.Random) -> Iterator[Edit]:
    """Another register, the other direction, a kill flag, or ``undef``."""
    for line, instruction in _mandatory(subject, rng):
        sites = _sites(instruction)
        if not sites:
            continue
        n = rng.choice(sites)
        op = instruction.operands[n]
        name = f"${op.phys}"
        plain = op.text.replace("implicit-def ", "").replace("implicit ", "")
        choices = [
            renamed(op, rng.choice(("m0", "scc", "mode", "vcc"))),
            f"implicit {name}" if op.is_def else f"implicit-def {plain}",
            op.text.replace(name, f"undef {name}") if not op.is_def and not op.undef else op.text,
            op.text.replace(name, f"killed {name}") if not op.is_def and not op.killed else op.text,
            op.text.replace(name, f"dead {name}") if op.is_def and not op.dead else op.text,
        ]
        text = rng.choice([c for c in choices if c != op.text])
        one = with_operand(instruction, len(instruction.defs) + n, text)
        yield subject.edit({line: [one]}, f"{text} for {op}")


def no_code_added(subject: Subject, rng: random.Random) -> Iterator[Edit]:
    """KILL or IMPLICIT_DEF of a register, which may hold a value there."""
    for line, instruction in subject.shuffled(rng):
        if instruction.bundled or instruction.opens_bundle or _terminates(instruction):
            continue
        name = _register(subject, rng)
        if name in ("$exec", "$mode"):
            continue
        text = rng.choice((
            f"{name} = KILL {name}", f"{name} = KILL killed {name}", f"{name} = KILL undef {name}",
            f"KILL killed {name}",
            f"{name} = IMPLICIT_DEF", f"KILL implicit-def {name}", f"renamable {name} = IMPLICIT_DEF",
            f"{name} = KILL {_register(subject, rng)}",
        ))  # fmt: skip
        code = _instructions(text)
        row = [*code, instruction] if rng.random() < 0.5 else [instruction, *code]
        yield subject.edit({line: row}, f"{text} added")


def no_code_changed(subject: Subject, rng: random.Random) -> Iterator[Edit]:
    """KILL or IMPLICIT_DEF that LLVM left, dropped or of other registers."""
    for line in subject.moves(rng, *_NOT_CODE) * 4:
        instruction = subject.instruction(line)
        sites = [
            k for k, op in enumerate(instruction.all_operands) if op.phys and physical_register(op.phys).first >= 0
        ]
        if not sites or rng.random() < 0.3:
            yield subject.edit({line: []}, f"{instruction} dropped")
            continue
        k = rng.choice(sites)
        op = instruction.all_operands[k]
        name = _register(subject, rng)[1:]
        yield subject.edit({line: [with_operand(instruction, k, renamed(op, name))]}, f"${name} for {op}")


def assembly(subject: Subject, rng: random.Random) -> Iterator[Edit]:
    """Of inline assembly: registers, early clobbers, ties, flags, clobbers, text, and what it may touch."""
    for line in subject.moves(rng, "INLINEASM") * 16:
        instruction = subject.instruction(line)
        row = list(instruction.operands)
        kind = rng.randrange(6)
        n = rng.randrange(len(row))
        op = row[n]
        if kind == 0 and op.phys and not op.implicit:
            register = physical_register(op.phys)
            used = sorted(
                m.name for m in {physical_register(o.phys) for _, i in subject.lines for o in i.all_operands if o.phys}
                if m.bank is register.bank and len(m.units) == len(register.units) and m != register
            )  # fmt: skip
            if not used or register.bank is Bank.SPECIAL:
                continue
            row[n] = replace(op, text=renamed(op, rng.choice(used)))
        elif kind == 1 and op.early_clobber:
            row[n] = replace(op, text=op.text.replace("early-clobber ", ""))
        elif kind == 2 and op.tied >= 0:
            row[n] = replace(op, text=re.sub(r"\(tied-def \d+\)", "", op.text))
        elif kind == 3 and op.kind is OperandKind.IMMEDIATE:
            row[n] = replace(op, text=str(int(op.text.split()[0]) ^ rng.choice((1, 2, 8, 1 << 16))))
        elif kind == 4 and op.implicit and n:
            if row[n - 1].text.startswith("12 ") and rng.random() < 0.6:
                del row[n - 1 : n + 1]
            else:
                row[n] = replace(op, text=renamed(op, rng.choice(("vgpr3", "sgpr9", "m0"))))
        elif kind == 5 and n == 0:
            row[n] = replace(op, text=op.text[:-1] + '; s_nop 0"')
        else:
            continue
        if [o.text for o in row] != [o.text for o in instruction.operands]:
            yield subject.edit({line: [replace(instruction, operands=tuple(row))]}, f"operand {n}: {op}")


CLASSES = (
    Mutation("implicit operand dropped", OPERANDS, dropped),
    Mutation("implicit operand added", OPERANDS | {"spill-slot"}, added),
    Mutation("implicit definition on a move", OPERANDS | {"spill-slot"}, added_to_move),
    Mutation("implicit operand changed", OPERANDS | {"fixed-register"}, changed),
    Mutation("KILL or IMPLICIT_DEF added", OPERANDS | {"spill-slot"}, no_code_added),
    Mutation("KILL or IMPLICIT_DEF changed", OPERANDS, no_code_changed),
    Mutation("inline assembly", OPERANDS | {"overlapping-definitions", "fixed-register", "tied-operand"}, assembly),
)
