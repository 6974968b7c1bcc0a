"""Whether a function is machine IR by LLVM's tables: each opcode with the operands that it has, where it may stand.

A text that breaks this means something else to LLVM than what is read here, or LLVM refuses it. Registers, classes and
subregisters are those of the target; control goes where the text says; a bundle's head says what is in it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from smt_verifier.checker.model import Block, Function, Instruction, Kind, Operand, is_relative
from smt_verifier.checker.outcome import Refused
from smt_verifier.checker.tables import Opcode, Tables

_SAME_REGISTER = {"vcc_lo": "vcc", "exec_lo": "exec"}
"""On wave32 targets the lower halves stand for the whole ones that the table names."""
_Part = tuple[str, int]


def well_formed(function: Function, tables: Tables) -> None:
    """A function is machine IR by LLVM's tables.

    Raises:
        Refused: an opcode, register or class that the tables do not have; operands that are not those of the opcode;
            control that leaves a block for none of its successors; an instruction where it must not stand; a bundle
            whose head does not sum it up; an instruction that is not followed (asm goto, registers that show others).
    """
    if function.fields.get("tracksRegLiveness") != "true":
        raise Refused("header", "tracksRegLiveness is not true: LLVM would not know what is live")
    opcodes = {i.opcode: tables.opcode(i.opcode) for b in function.blocks for i in b.instructions}
    described = {name: opcode for name, opcode in opcodes.items() if opcode is not None}
    if unknown := sorted(opcodes.keys() - described.keys()):
        raise Refused("instruction", f"{unknown[0]} is not in LLVM's tables")
    _check_registers(function, tables)
    fitting: set[tuple[str, int, int, tuple[str, ...]]] = set()
    for place, block in enumerate(function.blocks):
        for instruction in block.instructions:
            opcode = described[instruction.opcode]
            if "debug" in opcode.traits:
                continue
            form = _form(instruction)
            if form not in fitting:
                _check_form(opcode, *form[1:], _where(instruction))
                fitting.add(form)
            if ("call" in opcode.traits) != any(op.kind is Kind.REGMASK for op in instruction.operands):
                raise Refused(
                    "instruction", f"{opcode.name}: calls, and no others, have register masks", _where(instruction)
                )
            if _keeps_a_part(instruction, opcode):
                raise Refused("instruction", f"{opcode.name} keeps a part of what nothing reads", _where(instruction))
            if _is_apart(instruction):
                raise Refused("instruction", f"{opcode.name}: nothing keeps its distance", _where(instruction))
            if _has_immediate(instruction, opcode, "beyond"):
                raise Refused("instruction", f"{opcode.name} reads beyond its operands", _where(instruction))
        _check_control(place, function, described)
        _check_places(block, described, tables)


def _where(instruction: Instruction) -> str:
    return f"line {instruction.line}"


def _check_registers(function: Function, tables: Tables) -> None:
    """All registers, classes and subregisters that the text names are known, and subregisters are in their class."""
    bits: dict[int, int] = {}
    for row in function.registers.values():
        cls = tables.register_class(row.cls)
        if cls is None:
            raise Refused("register", f"%{row.number} is of the class {row.cls}, which is not known")
        bits[row.number] = cls.bits
    operands = {id(op): op for b in function.blocks for i in b.instructions for op in i.operands if op.is_register}
    if function.fields.get("noVRegs") == "true" and any(op.vreg >= 0 for op in operands.values()):
        raise Refused("header", "noVRegs is true, and there are virtual registers")
    names = {op.register for op in operands.values() if op.register}
    names |= {name for name, _ in function.liveins}
    names |= {name for block in function.blocks for name, _ in block.liveins}
    for name in sorted(names):
        register = tables.register(name)
        if register is None or "alias" in register.marks:
            raise Refused("register", f"the register ${name} is not known, or shows another one")
    for vreg, sub in {(op.vreg, op.sub) for op in operands.values() if op.sub}:
        lanes = tables.lanes(sub)
        if lanes is None or 16 * (lanes[-1] + 1) > bits[vreg]:
            raise Refused("register", f"%{vreg} has no part {sub}")


def _form(instruction: Instruction) -> tuple[str, int, int, tuple[str, ...]]:
    """Opcode, definitions, explicit operands, and the implicit registers, definitions with ``=`` before them."""
    implicit = tuple([f"={op.register}" if op.is_def else op.register for op in instruction.operands if op.is_implicit])
    masks = sum(op.kind is Kind.REGMASK for op in instruction.operands)
    return instruction.opcode, instruction.definitions, len(instruction.operands) - len(implicit) - masks, implicit


def _check_form(opcode: Opcode, definitions: int, explicit: int, implicit: tuple[str, ...], where: str) -> None:
    """What LLVM's table has otherwise: MIParser refuses the text for each of these (verifyImplicitOperands)."""
    if "asm-goto" in opcode.traits:
        raise Refused("instruction", "inline assembly that may branch is not followed", where)
    if "variadic" in opcode.traits:
        return
    if explicit in opcode.not_described:
        raise Refused("instruction", f"{opcode.name} has {explicit} operands in LLVM 24, another form", where)
    if definitions != opcode.definitions or explicit not in opcode.counts:
        counts = " or ".join(map(str, opcode.counts))
        raise Refused(
            "instruction",
            f"{opcode.name} with {definitions} results of {explicit} operands; "
            f"LLVM has {opcode.definitions} of {counts}",
            where,
        )
    if "call" in opcode.traits:
        return
    present = {mark[: mark.startswith("=")] + _SAME_REGISTER.get(name := mark.lstrip("="), name) for mark in implicit}
    for mark in (*opcode.implicit_uses, *(f"={name}" for name in opcode.implicit_definitions)):
        if mark not in present:
            raise Refused("instruction", f"{opcode.name} without its implicit operand ${mark.lstrip('=')}", where)


def _keeps_a_part(instruction: Instruction, opcode: Opcode) -> bool:
    """Whether an instruction keeps a part of its result, which it reads nowhere (DST_OP_SEL, UNUSED_PRESERVE, TFE)."""
    if any(row.tied_to == 0 for row in opcode.operands) or any(op.tied == 0 for op in instruction.operands):
        return False
    return _has_immediate(instruction, opcode, "keeps")


def _is_apart(instruction: Instruction) -> bool:
    """Whether it has an address relative to itself, and something may come between it and what that is added to."""
    alone = not instruction.in_bundle and not instruction.opcode.startswith("SI_PC_ADD_REL_OFFSET")
    return alone and any(map(is_relative, instruction.operands))


def _has_immediate(instruction: Instruction, opcode: Opcode, trait: str) -> bool:
    """Whether an immediate is one of those that a trait names; another operand in its place may be."""
    numbers, operands = opcode.numbers(trait), instruction.operands[opcode.definitions :]
    rows = zip(numbers[::3], numbers[1::3], numbers[2::3], strict=True)
    return any(operands[n].kind is not Kind.IMMEDIATE or operands[n].number & bits == value for n, bits, value in rows)


def _check_control(place: int, function: Function, opcodes: dict[str, Opcode]) -> None:
    """Control goes to successors only (``MachineVerifier::visitMachineBasicBlockBefore``)."""
    block = function.blocks[place]
    targets: list[int] = []
    ended = False
    for instruction in block.instructions:
        named = [op.number for op in instruction.operands if op.kind is Kind.BLOCK]
        if named and (instruction.in_bundle or "terminator" not in opcodes[instruction.opcode].traits):
            raise Refused("control-flow", f"{instruction.opcode} names a block", _where(instruction))
        targets += named
        if "indirect-branch" in opcodes[instruction.opcode].traits and not block.successors:
            raise Refused("control-flow", f"{instruction.opcode} leaves the function unseen", _where(instruction))
        if ended and opcodes[instruction.opcode].traits.isdisjoint(("trap", "debug")):
            raise Refused("control-flow", f"{instruction.opcode} behind a return", _where(instruction))
        ended = ended or "return" in opcodes[instruction.opcode].traits
        if ended and block.successors:
            raise Refused("control-flow", f"{instruction.opcode} in a block with successors", _where(instruction))
    if not block.successors and not targets:
        return
    if _falls_through(block, opcodes):
        targets.append(place + 1)
    if targets[-1:] == [len(function.blocks)]:
        raise Refused("control-flow", f"control leaves the end of bb.{block.number}", f"bb.{block.number}")
    if missing := set(targets) - {successor for successor, _ in block.successors}:
        message = f"control goes from bb.{block.number} to the block at place {min(missing)}, which is no successor"
        raise Refused("control-flow", message, f"bb.{block.number}")


def _falls_through(block: Block, opcodes: dict[str, Opcode]) -> bool:
    """Whether control passes the last instruction that is not for debugging, all of a bundle."""
    for instruction in reversed(block.instructions):
        traits = opcodes[instruction.opcode].traits
        if "barrier" in traits:
            return False
        if not instruction.in_bundle and "debug" not in traits:
            return True
    return True


def _check_places(block: Block, opcodes: dict[str, Opcode], tables: Tables) -> None:
    """Only terminators stand behind a terminator, heads sum up their bundles, and saves of a tuple stand together."""
    terminated = ends = branched = False
    head = 0
    for at, instruction in enumerate(block.instructions):
        traits = opcodes[instruction.opcode].traits
        if terminated and not (instruction.in_bundle or "terminator" in traits or (ends and "trap" in traits)):
            # On the way out by a branch before it, it is not executed; LLVM takes terminators to end the block.
            raise Refused("control-flow", f"{instruction.opcode} stands behind a terminator", _where(instruction))
        if branched and any(op.is_def for op in instruction.operands):
            raise Refused(
                "control-flow", f"{instruction.opcode} defines something behind a branch", _where(instruction)
            )
        branched = branched or "branch" in traits
        terminated = terminated or "terminator" in traits
        ends = ends or "barrier" in traits
        if instruction.opens_bundle:
            head = at
        if instruction.closes_bundle and not _sums_up(block.instructions[head : at + 1], tables):
            message = "the head of a bundle does not say what its instructions read and write"
            raise Refused("bundle", message, _where(block.instructions[head]))
        if "lane-save" in traits and not _rest_follows(block.instructions[at:], opcodes, tables):
            raise Refused("spill-slot", "a tuple whose other parts are not saved with this one", _where(instruction))


def _parts(operands: Iterable[Operand], tables: Tables) -> set[_Part]:
    """What registers consist of: units, and parts of virtual registers by their index."""
    return {part for op in operands if op.is_register for part in _parts_of(op, tables)}


def _parts_of(op: Operand, tables: Tables) -> Iterator[_Part]:
    register = tables.register(op.register) if op.register else None
    if register is not None:
        yield from (("", unit) for unit in register.units)
    else:
        yield op.sub, op.vreg


def _sums_up(bundle: Sequence[Instruction], tables: Tables) -> bool:
    """Whether a head has its members' definitions and uses, and ends no life that they do not (finalizeBundle)."""
    head = [op for op in bundle[0].operands if op.is_register]
    inside = [op for i in bundle[1:] for op in i.operands if op.is_register]
    defined = _parts((op for op in inside if op.is_def), tables)
    used = _parts((op for op in inside if op.is_use and "internal" not in op.flags), tables) - defined
    killed = _parts((op for op in inside if "killed" in op.flags), tables) | defined
    return (
        _parts((op for op in head if op.is_def), tables) == defined
        and used <= _parts((op for op in head if op.is_use), tables)
        and _parts((op for op in head if "killed" in op.flags), tables) <= killed
        and not any("dead" in op.flags for op in head)
    )


def _rest_follows(instructions: Sequence[Instruction], opcodes: dict[str, Opcode], tables: Tables) -> bool:
    """Whether the tuple that a save of a scalar into a lane defines is saved in full by this one and the next ones.

    Between them may stand spill code of other registers: where the tuple reaches into the next vector register, the
    fast allocator stores the first one in between.
    """
    save = instructions[0]
    scalar = _parts(save.operands[1:2], tables)
    whole = _parts((op for op in save.operands if op.is_implicit and op.is_def), tables)
    if scalar.isdisjoint(whole):
        return True
    saved = set(scalar)
    for instruction in instructions[1:]:
        if whole <= saved:
            break
        opcode = opcodes[instruction.opcode]
        if "lane-save" in opcode.traits:
            saved |= _parts(instruction.operands[1:2], tables)
        elif opcode.value("spill") and whole.isdisjoint(_parts(instruction.operands, tables)):
            continue
        elif "debug" not in opcode.traits:
            break
    return whole <= saved


def reads_are_defined(function: Function, tables: Tables) -> None:
    """Every read of a virtual register has a definition before it on every path.

    An undefined value counts as a definition; one that is marked dead does not, and a read marked as the last one ends
    it (MachineVerifier, checkLiveness: "defs don't dominate all uses", "using a killed virtual register"). A set of
    virtual registers is a number with the bits of its members.

    Raises:
        Refused: a read without one.
    """
    bit = {number: 1 << place for place, number in enumerate(function.registers)}
    defined: list[int] = []
    ended: list[int] = []
    early: list[int] = []
    for block in function.blocks:
        here = over = before = 0
        for instruction in block.instructions:
            opcode = tables.opcode(instruction.opcode)
            if opcode is not None and "debug" in opcode.traits:
                continue
            operands = [op for op in instruction.operands if op.vreg >= 0]
            read = sum({bit[op.vreg] for op in operands if op.reads}) & ~here
            if read & over:
                raise _undefined(f"line {instruction.line}")
            finished = sum({bit[op.vreg] for op in operands if not op.flags.isdisjoint(("killed", "dead"))})
            here, over, before = here & ~finished, over | finished, before | read
            here |= sum({bit[op.vreg] for op in operands if op.is_def and "dead" not in op.flags})
        defined.append(here)
        ended.append(over)
        early.append(before)
    every = -1
    entry = [0] + [every] * (len(function.blocks) - 1)
    pending = set(range(len(function.blocks)))
    while pending:
        place = pending.pop()
        for successor, _ in function.blocks[place].successors if entry[place] != every else ():
            arriving = entry[successor] & (entry[place] & ~ended[place] | defined[place])
            if arriving != entry[successor]:
                entry[successor] = arriving
                pending.add(successor)
    for place, block in enumerate(function.blocks):
        if early[place] & ~entry[place]:
            raise _undefined(f"bb.{block.number}")


def _undefined(where: str) -> Refused:
    message = "a virtual register is read, but not defined on every path, or called dead or killed before"
    return Refused("undefined", message, where)
