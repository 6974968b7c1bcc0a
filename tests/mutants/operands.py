"""Mutations of one operand: another register, another part of it, another file, another width, another order."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator

from msgspec.structs import replace

from mutants.subject import BASES, Edit, Mutation, Subject, renamed, with_flag, with_operand, without_flag
from verilocc_mlir.errors import UnsupportedError
from verilocc_mlir.target.registers import Bank, physical_register, tuple_name

READ = frozenset({"value", "early-clobber", "tied-operand", "kill-flag", "dead-flag", "live-in", "undef-flag"})
WRITTEN = READ | {"overlapping-definitions"}


def wrong_register_read(subject: Subject, rng: random.Random) -> Iterator[Edit]:
    for line, k, op, before in subject.allocated(rng):
        if op.is_use and not op.undef and not before.undef:
            for other in subject.others(op, before, rng):
                changed = with_operand(subject.instruction(line), k, renamed(op, other.name))
                yield subject.edit({line: [changed]}, f"reads ${other.name} for ${op.phys}")
                break


def wrong_register_written(subject: Subject, rng: random.Random) -> Iterator[Edit]:
    for line, k, op, before in subject.allocated(rng):
        if op.is_def:
            for other in subject.others(op, before, rng):
                changed = with_operand(subject.instruction(line), k, renamed(op, other.name))
                yield subject.edit({line: [changed]}, f"writes ${other.name} for ${op.phys}")
                break


def wrong_lane(subject: Subject, rng: random.Random) -> Iterator[Edit]:
    """The neighbouring lanes: one register on, the other half, the other end of the tuple."""
    for line, k, op, before in subject.allocated(rng):
        if op.undef or before.undef:
            continue
        register = physical_register(op.phys)
        if op.phys.endswith(("_lo16", "_hi16")):
            name = op.phys[:-4] + ("hi16" if op.phys.endswith("lo16") else "lo16")
        elif register.first >= 0 and (before.sub or subject.class_of(before).bits > 32):
            width = len(register.units) // 2
            step = subject.class_of(before).alignment(register.bank) if not before.sub else 1
            first = register.first + rng.choice((-step, step))
            if first not in subject.numbers(register.bank) or first + width - 1 not in subject.numbers(register.bank):
                continue
            name = tuple_name(register.bank, first, width)
        else:
            continue
        yield subject.edit(
            {line: [with_operand(subject.instruction(line), k, renamed(op, name))]}, f"${name} for ${op.phys}"
        )


def _exists(name: str) -> bool:
    """Whether LLVM has such a register: it has no scalar tuples at odd places."""
    try:
        return bool(physical_register(name).units)
    except UnsupportedError:
        return False


def misaligned_tuple(subject: Subject, rng: random.Random) -> Iterator[Edit]:
    for line, k, op, before in subject.allocated(rng):
        register = physical_register(op.phys)
        cls = subject.class_of(before)
        if register.first < 0 or before.sub or cls.alignment(register.bank) < 2:
            continue
        width = len(register.units) // 2
        first = register.first + rng.choice((-1, 1))
        if first < 0 or not all(first + n in subject.numbers(register.bank) for n in range(width)):
            continue
        name = tuple_name(register.bank, first, width)
        if not _exists(name):
            continue
        yield subject.edit(
            {line: [with_operand(subject.instruction(line), k, renamed(op, name))]}, f"${name} for ${op.phys}"
        )


def misaligned_everywhere(subject: Subject, rng: random.Random) -> Iterator[Edit]:
    """A tuple moved by one register wherever it is named: all values are right, only the alignment is wrong."""
    names = sorted({
        op.phys for _, _, op, before in subject.allocated(rng)
        if not before.sub and subject.class_of(before).alignment(physical_register(op.phys).bank) > 1
    })  # fmt: skip
    fixed = subject.fixed_units
    rng.shuffle(names)
    for name in names:
        register = physical_register(name)
        if register.first < 0 or fixed & set(register.units):
            continue
        width = len(register.units) // 2
        others = subject.overlapping(name)
        free = next((n for n in subject.unused(register.bank, width) if n % 2), None)
        if others or free is None or not _exists(tuple_name(register.bank, free, width)):
            continue
        yield subject.renamed_everywhere(name, tuple_name(register.bank, free, width), f"${name} misaligned everywhere")


def wrong_width(subject: Subject, rng: random.Random) -> Iterator[Edit]:
    for line, k, op, _before in subject.allocated(rng):
        register = physical_register(op.phys)
        if register.first < 0 or len(register.units) % 2:
            continue
        width = len(register.units) // 2
        new = width + 1 if width == 1 or rng.random() < 0.5 else width - 1
        name = tuple_name(register.bank, register.first, new)
        if not _exists(name):
            continue
        yield subject.edit(
            {line: [with_operand(subject.instruction(line), k, renamed(op, name))]}, f"${name} for ${op.phys}"
        )


def swapped_operands(subject: Subject, rng: random.Random) -> Iterator[Edit]:
    for line, instruction in subject.shuffled(rng):
        partner = subject.partners.get(line)
        if partner is None:
            continue
        uses = [
            (k, op)
            for k, (op, before) in enumerate(zip(instruction.all_operands, partner.all_operands, strict=False))
            if op.is_use and op.phys and not op.implicit and not op.undef and before.vreg >= 0 and not before.undef
        ]
        pairs = [
            (x, y)
            for x in uses
            for y in uses
            if x[0] < y[0]
            and x[1].phys != y[1].phys
            and len(physical_register(x[1].phys).units) == len(physical_register(y[1].phys).units)
        ]
        if pairs:
            (k, a), (m, b) = rng.choice(pairs)
            changed = with_operand(with_operand(instruction, k, renamed(a, b.phys)), m, renamed(b, a.phys))
            yield subject.edit({line: [changed]}, f"${a.phys} and ${b.phys} exchanged")


def other_file(subject: Subject, rng: random.Random) -> Iterator[Edit]:
    """An AGPR for a VGPR, or the other way round, where the class has only one of them.

    Some instructions take either (LLVM widens classes to ``av_*`` when it splits); then the value is missing there.
    """
    for line, k, op, before in subject.allocated(rng):
        register = physical_register(op.phys)
        bank = {Bank.VGPR: Bank.AGPR, Bank.AGPR: Bank.VGPR}.get(register.bank)
        if bank is None or bank in subject.class_of(before).banks or len(register.units) % 2:
            continue
        name = tuple_name(bank, register.first % 64, len(register.units) // 2)
        yield subject.edit(
            {line: [with_operand(subject.instruction(line), k, renamed(op, name))]}, f"${name} for ${op.phys}"
        )


_NEVER = {
    Bank.SGPR: ("sgpr32", "ttmp4", "m0", "exec_lo"),
    Bank.VGPR: (),
    Bank.AGPR: (),
}


def reserved_register(subject: Subject, rng: random.Random) -> Iterator[Edit]:
    for line, k, op, _before in subject.allocated(rng):
        register = physical_register(op.phys)
        if len(register.units) != 2 or not _NEVER.get(register.bank):
            continue
        name = rng.choice(_NEVER[register.bank])
        if set(physical_register(name).units) <= subject.available.reserved_units:
            changed = with_operand(subject.instruction(line), k, renamed(op, name))
            yield subject.edit({line: [changed]}, f"reserved ${name} for ${op.phys}")


def over_budget(subject: Subject, rng: random.Random) -> Iterator[Edit]:
    """One register everywhere renamed to one beyond the budget: only the budget is violated."""
    registers = sorted({
        op.phys for _, _, op, _ in subject.allocated(rng) if len(physical_register(op.phys).units) == 2
    })  # fmt: skip
    rng.shuffle(registers)
    for name in registers:
        register = physical_register(name)
        budget = subject.available.budgets.get(register.bank.value)
        limit = {Bank.SGPR: 106, Bank.VGPR: 256, Bank.AGPR: 256}.get(register.bank, 0)
        if budget is None or budget.count >= limit or register.bank not in BASES:
            continue
        new = f"{register.bank.value}{rng.randrange(budget.count, limit)}"
        if physical_register(new).units[0] in subject.named:
            continue
        yield subject.edit(
            {
                line: [_renamed_everywhere(subject, line, name, new)]
                for line, i in subject.lines
                if any(op.phys == name for op in i.all_operands)
            },
            f"${new} for ${name} everywhere",
        )


def _renamed_everywhere(subject: Subject, line: tuple[int, int], name: str, new: str):
    instruction = subject.instruction(line)
    for k, op in enumerate(instruction.all_operands):
        if op.phys == name:
            instruction = with_operand(instruction, k, renamed(op, new))
    return instruction


def early_clobber_overlap(subject: Subject, rng: random.Random) -> Iterator[Edit]:
    """An early-clobber result in a register that the instruction still reads."""
    for line, instruction in subject.shuffled(rng):
        partner = subject.partners.get(line)
        if partner is None:
            continue
        operands = list(enumerate(zip(instruction.all_operands, partner.all_operands, strict=False)))
        results = [(k, op) for k, (op, before) in operands if op.is_def and before.early_clobber and op.phys]
        reads = [
            op
            for _, (op, before) in operands
            if op.is_use and op.phys and not op.implicit and not before.undef and before.tied < 0
        ]
        pairs = [
            (k, op, use)
            for k, op in results
            for use in reads
            if physical_register(use.phys).bank is physical_register(op.phys).bank
            and len(physical_register(use.phys).units) == len(physical_register(op.phys).units)
            and use.phys != op.phys
        ]
        if pairs:
            k, op, use = rng.choice(pairs)
            changed = with_operand(instruction, k, renamed(op, use.phys))
            yield subject.edit({line: [changed]}, f"early-clobber ${use.phys}, which is read")


def early_clobber_flag(subject: Subject, rng: random.Random) -> Iterator[Edit]:
    for line, instruction in subject.shuffled(rng):
        for k, op in enumerate(instruction.all_operands):
            if op.early_clobber and line in subject.partners:
                changed = with_operand(instruction, k, without_flag(op, "early-clobber"))
                yield subject.edit({line: [changed]}, f"early-clobber dropped from {op}")
                break


_TIES = re.compile(r"V_(?:FMAC|MAC|PK_FMAC|DOT2C|DOT4C|WRITELANE|SMFMAC|SWMMAC)_|V_\w+_dpp|\w+_D16(?:_HI)?(?:_|\Z)")
"""Forms whose last input is the old value of the destination (``$vdst = $src2``, ``$old`` in VOP*Instructions.td)."""


def broken_tie(subject: Subject, rng: random.Random) -> Iterator[Edit]:
    """The input that the encoding ties to the result in a register of its own, which holds the same value."""
    for line, instruction in subject.shuffled(rng):
        partner = subject.partners.get(line)
        if partner is None or not _TIES.match(instruction.opcode) or not partner.defs or instruction.bundled:
            continue
        result, count = partner.defs[0], len(partner.defs)
        operands = list(enumerate(zip(instruction.operands, partner.operands, strict=False)))
        # The register may be read twice: ``old`` of DPP is the first input, an accumulator the last one.
        for k, (op, before) in operands[:1] if "_dpp" in instruction.opcode else reversed(operands):
            own = op.phys and op.is_use and not op.undef and op.phys == instruction.defs[0].phys
            if result.vreg < 0 or (before.vreg, before.sub) != (result.vreg, result.sub) or not own:
                continue
            register = physical_register(op.phys)
            width = len(register.units) // 2
            free = next(subject.unused(register.bank, width, subject.class_of(before).alignment(register.bank)), None)
            if len(register.units) % 2 or free is None:
                continue
            name = tuple_name(register.bank, free, width)
            copy = replace(
                instruction, opcode="COPY", defs=(replace(op, text=f"renamable ${name}"),), flags=(), memory=(),
                tail="", operands=(replace(op, text=f"${op.phys}"),),
            )  # fmt: skip
            changed = with_operand(instruction, count + k, renamed(op, name))
            yield subject.edit({line: [copy, changed]}, f"${name}, a copy, for the tied ${op.phys}")
            break


def fixed_operand(subject: Subject, rng: random.Random) -> Iterator[Edit]:
    """A physical register of the pre-RA side changed: arguments of calls, return values, VCC, SCC, M0, EXEC."""
    for line, instruction in subject.shuffled(rng):
        partner = subject.partners.get(line)
        if partner is None:
            continue
        sites = [
            (k, op)
            for k, (op, before) in enumerate(zip(instruction.all_operands, partner.all_operands, strict=False))
            if before.phys and op.phys and op.phys == before.phys and op.is_reg
        ]
        if not sites:
            continue
        k, op = rng.choice(sites)
        register = physical_register(op.phys)
        if register.first >= 0 and len(register.units) % 2 == 0:
            name = tuple_name(register.bank, register.first + 4, len(register.units) // 2)
        else:
            name = {
                "vcc": "exec", "vcc_lo": "vcc_hi", "exec": "vcc", "exec_lo": "vcc_lo", "scc": "mode", "mode": "scc",
                "m0": "vcc_hi",
            }.get(op.phys, "")  # fmt: skip
        if name:
            try:
                physical_register(name)
            except UnsupportedError:
                continue
            changed = with_operand(instruction, k, renamed(op, name))
            yield subject.edit({line: [changed]}, f"fixed ${op.phys} became ${name}")


def undef_added(subject: Subject, rng: random.Random) -> Iterator[Edit]:
    for line, k, op, before in subject.allocated(rng):
        if op.is_use and not op.undef and not before.undef and not op.killed:
            changed = with_operand(subject.instruction(line), k, with_flag(op, "undef"))
            yield subject.edit({line: [changed]}, f"{op} is marked undef")


def other_virtual_register(subject: Subject, rng: random.Random) -> Iterator[Edit]:
    """In the scalar phase, a vector virtual register of the later phase exchanged for another."""
    lines = [
        (line, k, op)
        for line, i in subject.shuffled(rng)
        if line in subject.partners
        for k, op in enumerate(i.all_operands)
        if op.vreg >= 0 and not op.undef and not op.is_def
    ]
    for line, k, op in lines:
        row = subject.post.registers.get(op.vreg)
        same = [n for n, r in subject.post.registers.items() if row and r.cls == row.cls and n != op.vreg]
        if same:
            text = re.sub(rf"%{op.vreg}(?!\d)", f"%{rng.choice(sorted(same))}", op.text)
            yield subject.edit({line: [with_operand(subject.instruction(line), k, text)]}, f"{text} for {op}")


CLASSES = (
    Mutation("wrong register read", READ | {"operands"}, wrong_register_read),
    Mutation("wrong register written", WRITTEN, wrong_register_written),
    Mutation("wrong lane", WRITTEN | {"register-class", "operands"}, wrong_lane),
    Mutation("misaligned tuple", WRITTEN | {"register-class"}, misaligned_tuple, always=True),
    Mutation("misaligned everywhere", frozenset({"register-class"}), misaligned_everywhere, always=True),
    Mutation("wrong width", WRITTEN | {"width", "register-class", "reserved-register"}, wrong_width, always=True),
    Mutation("swapped operands", READ | {"register-class"}, swapped_operands),
    Mutation("AGPR for VGPR", WRITTEN | {"register-class", "reserved-register"}, other_file),
    Mutation("reserved register", frozenset({"reserved-register", "register-class"}), reserved_register, always=True),
    Mutation("budget exceeded", WRITTEN | {"reserved-register"}, over_budget, always=True),
    Mutation(
        "early-clobber overlap",
        WRITTEN | {"fixed-register", "reserved-register", "register-class"},
        early_clobber_overlap,
    ),
    Mutation("early-clobber flag dropped", frozenset({"early-clobber"}), early_clobber_flag, always=True),
    Mutation("broken tie", frozenset({"tied-operand"}), broken_tie, always=True),
    Mutation(
        # Where the instruction is pure, it counts as another one, and its value is missing.
        "fixed register changed",
        WRITTEN | {"fixed-register", "operands", "instruction-sequence"},
        fixed_operand,
    ),
    # An added instruction that reads something undefined gives another value.
    Mutation("undef flag added", frozenset({"undef-flag", "value"}), undef_added),
    Mutation("virtual register exchanged", READ | {"operands", "register-class"}, other_virtual_register),
)
