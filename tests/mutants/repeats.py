"""Mutations that repeat or drop an instruction, break a tie of any form, or change the IR module."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator

from msgspec.structs import replace

from mutants.implicit import OPERANDS
from mutants.instructions import _mandatory
from mutants.moves import _instructions, _terminates
from mutants.subject import Edit, Mutation, Subject, renamed, with_operand
from verilocc_mlir.mir.model import Instruction
from verilocc_mlir.target.registers import physical_register, tuple_name


def _counts(instruction: Instruction) -> bool:
    """It does more than compute: memory, side effects, volatile registers, other threads."""
    return bool(instruction.memory) or bool(
        re.match(
            r"S_GETREG|S_SETREG|S_MEM(?:REAL)?TIME|S_SENDMSG|.*_sideeffects|INLINEASM|DS_|GLOBAL_|FLAT_|BUFFER_|S_BARRIER"
            r"|V_READ|V_PERMLANE|V_WRITELANE|S_.*SAVEEXEC|V_CMPX|S_LOAD|S_SHADER_CYCLES|V_SWAP|V_.*_dpp",
            instruction.opcode,
        )
    )


def repeated(subject: Subject, rng: random.Random) -> Iterator[Edit]:
    """An instruction with side effects, a load or a volatile read, twice: at its place or somewhere else."""
    sites = [(line, i) for line, i in _mandatory(subject, rng) if _counts(i)]
    for (b, n), instruction in sites * 2:
        if instruction.bundled or instruction.opens_bundle or _terminates(instruction):
            continue
        row = subject.post.blocks[b].instructions
        kind = rng.randrange(3)
        if kind == 0 or not instruction.defs:
            yield subject.edit({(b, n): [instruction, instruction]}, f"twice: {instruction}")
            continue
        targets = [(c, m) for c, block in enumerate(subject.post.blocks) for m in range(len(block.instructions))]
        c, m = rng.choice(targets) if kind == 1 else (b, rng.randrange(len(row)))
        at = subject.instruction((c, m))
        if not (at.bundled or at.opens_bundle):
            yield subject.edit({(c, m): [instruction, at]}, f"{instruction} again before {at}")


def dropped(subject: Subject, rng: random.Random) -> Iterator[Edit]:
    """An instruction with side effects, a load or a volatile read is missing."""
    for line, instruction in _mandatory(subject, rng):
        if _counts(instruction) and not instruction.bundled and not instruction.opens_bundle:
            yield subject.edit({line: []}, f"dropped {instruction}")


def speculated(subject: Subject, rng: random.Random) -> Iterator[Edit]:
    """A load of the program repeated into an unused register, where it may fault, or with flags that deny it."""
    for _, instruction in _mandatory(subject, rng):
        loads = instruction.memory and len(instruction.defs) == 1 and "load" in instruction.memory[0]
        if not loads or instruction.bundled or not instruction.defs[0].phys:
            continue
        register = physical_register(instruction.defs[0].phys)
        if register.bank not in _BANKS or len(register.units) % 2:
            continue
        width = len(register.units) // 2
        free = next(subject.unused(register.bank, width, 4 if width > 1 else 1), None)
        targets = [at for at, i in subject.lines if not (i.bundled or i.opens_bundle) and not _terminates(i)]
        if free is None or not targets:
            continue
        name = tuple_name(register.bank, free, width)
        again = with_operand(instruction, 0, renamed(instruction.defs[0], name))
        for k, op in enumerate(again.all_operands):
            if op.killed and op.is_use:
                again = with_operand(again, k, op.text.replace("killed ", ""))
        if rng.random() < 0.3:
            again = replace(again, memory=tuple(f"dereferenceable invariant {m}" for m in again.memory))
        at = rng.choice(targets)
        yield subject.edit({at: [again, subject.instruction(at)]}, f"{again} speculated")


_BANKS = frozenset(physical_register(n).bank for n in ("sgpr0", "vgpr0", "agpr0"))


def dead_dropped(subject: Subject, rng: random.Random) -> Iterator[Edit]:
    """A pure instruction whose result nobody reads, put on both sides and dropped from the second one."""
    if subject.scalar_phase:
        return
    number = max(subject.pre.registers, default=-1) + 1
    for (b, n), instruction in subject.shuffled(rng):
        partner = subject.partners.get((b, n))
        if (
            partner is None
            or instruction.bundled
            or instruction.opens_bundle
            or instruction.opcode.startswith("INLINE")
        ):
            continue
        text = rng.choice((
            f"dead %{number}:vgpr_32 = V_MOV_B32_e32 {rng.randint(0, 64)}, implicit $exec",
            f"dead %{number}:vgpr_32 = V_ADD_U32_e32 1, undef %{number}, implicit $exec",
        ))  # fmt: skip
        blocks = list(subject.pre.blocks)
        row = list(blocks[b].instructions)
        at = next(k for k, i in enumerate(row) if i is partner)
        if any(i.opcode.startswith(("S_BRANCH", "S_CBRANCH")) or i.opcode.endswith("_term") for i in row[:at]):
            continue  # between terminators it would be no machine IR
        blocks[b] = replace(blocks[b], instructions=(*row[:at], *_instructions(text), *row[at:]))
        header = subject.pre.header_lines
        place = next(k for k, line in enumerate(header) if line.startswith("registers:"))
        entry = f"  - {{ id: {number}, class: vgpr_32, preferred-register: '', flags: [  ] }}"
        lines = (*header[:place], "registers:", entry, *header[place + 1 :])
        pre = replace(subject.pre, blocks=tuple(blocks), header_lines=lines)
        yield Edit(subject.post, f"{text} dropped", pre=pre, touched=frozenset({b}))


def broken_tie(subject: Subject, rng: random.Random) -> Iterator[Edit]:
    """What is one register before allocation, read and written by one instruction, in two; the value is copied."""
    for line, instruction in _mandatory(subject, rng):
        partner = subject.partners[line]
        if not partner.defs or instruction.bundled or not instruction.defs or not instruction.defs[0].phys:
            continue
        result = partner.defs[0]
        own = (result.vreg, result.sub)
        sites = [
            k for k, (op, before) in enumerate(zip(instruction.operands, partner.operands, strict=False))
            if op.phys and op.is_use and not op.undef and result.vreg >= 0 and (before.vreg, before.sub) == own
        ]  # fmt: skip
        if not sites:
            continue
        k = rng.choice(sites)
        op = instruction.operands[k]
        register = physical_register(op.phys)
        width = len(register.units) // 2
        if len(register.units) % 2 or register.bank not in _BANKS:
            continue
        step = subject.class_of(result).alignment(register.bank)
        free = next(subject.unused(register.bank, width, step), None)
        if free is None:
            continue
        name = tuple_name(register.bank, free, width)
        copy = _instructions(f"renamable ${name} = COPY ${op.phys}")
        one = with_operand(instruction, len(instruction.defs) + k, renamed(op, name))
        yield subject.edit({line: [*copy, one]}, f"${name}, a copy, for {op} of {instruction.opcode}")


def module(subject: Subject, rng: random.Random) -> Iterator[Edit]:
    """A constant, a global, a function attribute or a declaration of the IR module changed."""
    text = subject.file.preamble
    define = re.search(rf"^ *define .*@{re.escape(subject.pre.name)}\(.*#(\d+)", text, re.M)
    group = define[1] if define else "none"
    changes = (
        (r"^( *@\S+ = .*\[i32 )(\d+)", lambda m: f"{m[1]}{int(m[2]) + 1}"),
        (r"^( *@\S+ = .*)\bconstant\b", lambda m: f"{m[1]}global"),
        (r"^( *@\S+ = (?:\w+ )*addrspace\()3(\).*\[)(\d+)", lambda m: f"{m[1]}3{m[2]}{2 * int(m[3])}"),
        (rf'^( *attributes #{group} = .*"amdgpu-num-vgpr"=")(\d+)', lambda m: f"{m[1]}{int(m[2]) + 40}"),
        (rf'^( *attributes #{group} = .*"amdgpu-agpr-alloc"=")0', lambda m: f"{m[1]}64"),
        (rf'^( *attributes #{group} = .*"target-cpu"=")\w+', lambda m: f"{m[1]}gfx906"),
        (rf"^( *attributes #{group} = \{{)", lambda m: f'{m[1]} "amdgpu-flat-work-group-size"="1,64"'),
        (rf"^( *attributes #{group} = \{{)", lambda m: f'{m[1]} "amdgpu-num-sgpr"="32"'),
        (rf"^( *attributes #{group} = \{{)", lambda m: f'{m[1]} "amdgpu-waves-per-eu"="8,8"'),
        (r"\bdefine (internal )?amdgpu_kernel", lambda m: "define amdgpu_cs"),
        (r"\bdefine (internal )?void", lambda m: "define amdgpu_gfx void"),
        (r"^( *declare) (void|i32) (@other|@callee)", lambda m: f"{m[1]} fastcc {m[2]} {m[3]}"),
        (rf"^( *attributes #{group} = \{{)", lambda m: f'{m[1]} "amdgpu-ieee"="false"'),
    )
    order = [(p, r) for p, r in changes if re.search(p, text, re.M)]
    rng.shuffle(order)
    for pattern, other in order:
        changed = re.sub(pattern, other, text, count=1, flags=re.M)
        if changed != text:
            yield Edit(subject.post, f"IR module: {pattern}", preamble=changed)


CLASSES = (
    Mutation("side effect repeated", OPERANDS | {"register-class", "control-flow"}, repeated),
    Mutation("side effect dropped", OPERANDS, dropped),
    Mutation("load speculated", OPERANDS | {"register-class", "memory-operands"}, speculated),
    Mutation("dead instruction dropped", frozenset(), dead_dropped, True, "nobody reads what it computes"),
    Mutation("broken tie of any form", frozenset({"tied-operand", "operands", "value"}), broken_tie),
    Mutation("IR module", frozenset({"header"}), module, always=True),
)
