"""Q as LLVM's MachineCopyPropagation leaves it, which runs before most of the passes behind the phase (specification
10.13).

It goes through each block backwards, and has what wrote the killed source of a COPY write its target; then forwards,
where what reads the target of a COPY reads its source, and COPYs go that are needless then. It looks at registers and
flags alone: neither EXEC nor what a value is.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from smt_verifier.checker.lanes import Lanes, declared_halves
from smt_verifier.checker.model import Block, Function, Instruction, Kind, Operand
from smt_verifier.checker.tables import Opcode, Processor, Register


class Propagated:
    """What the pass makes of Q.

    Attributes:
        texts: Q once the pass has run in LLVM's own blocks, and once it has run again where LLVM has joined blocks;
            neither where it changes nothing.
        again: lines of COPYs that are gone because the same one stands before.
        dead: lines of those that are gone because nothing reads their targets.
    """

    def __init__(self, after: Lanes, processor: Processor, allocatable: Collection[int]) -> None:
        self.texts: list[Lanes] = []
        self.again: set[int] = set()
        self.dead: set[int] = set()
        text, live = after, None
        for blocks in ([(number,) for number in range(len(after.parts))], [parts for parts in after.parts if parts]):
            new = self._run(text, processor, allocatable, blocks, live)
            if new is not text:
                self.texts.append(new)
                text = new
            live = text.live  # BranchFolder works out anew what some blocks declare.

    def _run(
        self,
        text: Lanes,
        processor: Processor,
        allocatable: Collection[int],
        blocks: Sequence[Sequence[int]],
        live: Sequence[Collection[int]] | None,
    ) -> Lanes:
        codes: dict[int, list[Instruction]] = {}
        for parts in blocks:
            code = [(part, i) for part in parts for i in text.code_of(part)]
            if not any("copy" in _traits(text.tables.opcode(i.opcode)) for _, i in code if not i.in_bundle):
                continue
            rows = [_Row(part, i, text) for part, i in code]
            outer = [row for row in rows if not row.instruction.in_bundle]
            ahead = [
                {u for u in declared_halves(text, n) if live is None or u - u % text.grain in live[n]}
                for n in text.successors_of(parts[-1])
            ]
            _Pass(text, processor, allocatable, outer, ahead).run()
            self.again.update(row.instruction.line for row in outer if row.again)
            self.dead.update(row.instruction.line for row in outer if row.dead)
            if any(row.gone or row.changed for row in outer):
                for part in parts:
                    own = [row for row in rows if row.part == part and not row.gone]
                    codes[part] = [row.rewritten() if row.changed else row.instruction for row in own]
        if not codes:
            return text
        old = text.function
        new = [_with(b, codes[n]) if n in codes else b for n, b in enumerate(old.blocks)]
        header = old.name, old.fields, old.registers, old.liveins, old.fixed_stack, old.stack
        return text.of(Function(*header, tuple(new), old.line))


def _with(block: Block, code: list[Instruction]) -> Block:
    head = block.number, block.name, block.attributes, block.successors, block.has_successors, block.liveins
    return Block(*head, tuple(code), block.line)


def _traits(opcode: Opcode | None) -> frozenset[str]:
    return opcode.traits if opcode is not None else frozenset()


class _Row:
    """An instruction, and what becomes of it; ``registers``: of each operand, None where it has none with units."""

    def __init__(self, part: int, instruction: Instruction, lanes: Lanes) -> None:
        self.part, self.instruction, self.opcode = part, instruction, lanes.tables.opcode(instruction.opcode)
        self.registers = [_register(o, instruction, lanes) for o in instruction.operands]
        self.traits = _traits(self.opcode)
        self.copies = "copy" in self.traits
        self.operands = list(instruction.operands)
        self.gone = self.changed = self.again = self.dead = False

    def rewritten(self) -> Instruction:
        i = self.instruction
        head = i.opcode, tuple(self.operands), i.definitions, i.flags, i.memory, i.tail
        return Instruction(*head, i.in_bundle, i.opens_bundle, i.closes_bundle, i.line)

    def put(self, number: int, register: Register, flags: frozenset[str]) -> None:
        self.operands[number] = Operand(Kind.REGISTER, f"${register.name}", register.name, flags=flags)
        self.registers[number] = register
        self.changed = True

    def is_tied(self, number: int) -> bool:
        ties = self.opcode.ties if self.opcode is not None else {}
        own = self.operands[number].tied >= 0 or any(o.tied == number for o in self.operands)
        return own or number in ties or number in ties.values()


class _Mask:
    """A register mask: ``units`` that it keeps. A tuple is kept if it is named, whatever is said of its parts."""

    def __init__(self, text: str, lanes: Lanes) -> None:
        whole, _, names = text.partition("(")
        self._names = frozenset(names.rstrip(")").replace("$", "").split(",")) if names else None
        registers = [lanes.register(name) for name in self._names or () if name]
        self.units = (
            frozenset(u for r in registers for u in r.units) if names else lanes.tables.mask(whole) or frozenset()
        )

    def keeps(self, register: Register) -> bool:
        return self.units.issuperset(register.units) if self._names is None else register.name in self._names


class _Copy:
    """A COPY. ``at``: its row's number; ``called``: a call behind it writes one of its registers; ``users``: what reads
    its source before it.
    """

    def __init__(self, at: int, row: _Row, to: Register, of: Register) -> None:
        self.at, self.row, self.to, self.of = at, row, to, of
        self.called = False
        self.users: list[_Row] = []


class _Pass:
    """The pass in one block."""

    def __init__(
        self,
        lanes: Lanes,
        processor: Processor,
        allocatable: Collection[int],
        rows: list[_Row],
        ahead: Sequence[Collection[int]],
    ) -> None:
        self._lanes, self._processor, self._allocatable, self._rows = lanes, processor, allocatable, rows
        self._ahead = ahead
        """What each successor reads."""
        self._copies: dict[int, _Copy] = {}
        """The COPY that wrote a unit last; backwards, that writes it next."""
        self._available: set[int] = set()
        """Units of which it may be read instead what that COPY reads."""
        self._targets: dict[int, list[Register]] = {}
        """What a unit was copied to."""
        self._sources: dict[int, _Copy] = {}
        """Backwards: the COPY that reads a unit next."""

    def run(self) -> None:
        for copy in self._backwards():
            copy.row.gone = True
        self._copies.clear()
        self._forwards()

    # What an instruction says.

    def _ends(self, row: _Row) -> tuple[Register, Register] | None:
        """The registers that a COPY writes and reads."""
        ends = row.registers[:2] if row.copies else []
        return (ends[0], ends[1]) if len(ends) == 2 and ends[0] is not None and ends[1] is not None else None

    def _is_reserved(self, register: Register) -> bool:
        return register.name != "scc" and any(u not in self._allocatable for u in register.units)

    def _is_constant(self, register: Register) -> bool:
        """MachineRegisterInfo::isConstantPhysReg: nothing in the function defines it."""
        return "constant" in register.marks or self._lanes.defined_units.isdisjoint(register.units)

    def _is_renamable(self, row: _Row, o: Operand) -> bool:
        """MachineOperand::isRenamable: no use of a vector instruction is (hasExtraSrcRegAllocReq)."""
        return "renamable" in o.flags and (o.is_def or "valu" not in row.traits)

    def _suits(self, row: _Row, number: int, register: Register) -> bool:
        """Whether an operand may be a register (getRegClassConstraint). Assembly names classes by LLVM's numbers: what
        is of the same file and width does there.
        """
        tables = self._lanes.tables
        if row.opcode is None or "asm" in row.traits:
            own = row.registers[number]
            return own is not None and (own.file, len(own.units)) == (register.file, len(register.units))
        if number >= len(row.opcode.operands):
            return False
        cls = tables.register_class(row.opcode.operands[number].classes[self._processor.mode])
        return cls is not None and cls.contains(register)

    def _suits_copy(self, of: Register, to: Register) -> bool:
        """Whether some class has both (isForwardableRegClassCopy)."""
        tables = self._lanes.tables
        classes = map(tables.register_class, tables.classes)
        return any(c is not None and c.contains(of) and c.contains(to) for c in classes)

    def _implicit(self, row: _Row, number: int, register: Register) -> bool:
        """Whether an implicit use other than operand ``number`` overlaps a register (hasImplicitOverlap)."""
        used = [row.registers[n] for n, o in enumerate(row.operands) if n != number and o.is_implicit and o.is_use]
        return any(r is not None and _overlap(r, register) for r in used)

    # Forwards.

    def _forwards(self) -> None:
        unread: dict[int, _Copy] = {}
        for at, row in enumerate(self._rows):
            if row.gone or not (self._copies or unread or row.copies):
                continue
            ends = self._ends(row)
            if (
                ends
                and not _overlap(*ends)
                and (self._is_again(at, row, *ends) or self._is_again(at, row, *ends[::-1]))
            ):
                row.gone = row.again = True
                continue
            for n, o in enumerate(row.operands):
                register = row.registers[n] if "early-clobber" in o.flags else None
                if register is not None:
                    if row.is_tied(n):
                        self._read(register, unread)
                    self._clobber(register.units)
            self._forward_uses(at, row)
            ends = self._ends(row)
            copy = _Copy(at, row, *ends) if ends and not _overlap(*ends) else None
            if copy is not None and not self._is_reserved(copy.to):
                unread[at] = copy
            for o, register in zip(row.operands, row.registers, strict=True):
                if register is not None and o.reads and not o.is_def:
                    self._read(register, unread)
            for o in row.operands:
                if o.kind is Kind.REGMASK:
                    self._call(_Mask(o.text, self._lanes), unread)
            for o, register in zip(row.operands, row.registers, strict=True):
                if register is not None and o.is_def and "early-clobber" not in o.flags:
                    self._clobber(register.units)
            if copy is not None:
                self._track(copy)
        for unit in (unit for units in self._ahead for unit in units):
            if unit in self._copies:
                unread.pop(self._copies[unit].at, None)
        if not self._ahead or self._lanes.function.fields.get("tracksRegLiveness") == "true":
            for copy in unread.values():
                copy.row.gone = copy.row.dead = True

    def _read(self, register: Register, unread: dict[int, _Copy]) -> None:
        for unit in register.units:
            if unit in self._copies:
                unread.pop(self._copies[unit].at, None)

    def _clobber(self, units: Sequence[int]) -> None:
        """CopyTracker::clobberRegUnit."""
        for unit in units:
            for register in self._targets.pop(unit, ()):
                self._available.difference_update(register.units)
            own = self._copies.pop(unit, None)
            if own is not None:
                self._available.difference_update(own.to.units)
                for source in own.of.units:
                    targets = self._targets.get(source, [])
                    self._targets[source] = [r for r in targets if r.name != own.to.name]

    def _track(self, copy: _Copy) -> None:
        for unit in copy.to.units:
            self._copies[unit] = copy
            self._targets.pop(unit, None)
        self._available.update(copy.to.units)
        for unit in copy.of.units:
            targets = self._targets.setdefault(unit, [])
            if all(r.name != copy.to.name for r in targets):
                targets.append(copy.to)

    def _call(self, mask: _Mask, unread: dict[int, _Copy]) -> None:
        """What a register mask does not keep is written."""
        for copy in self._copies.values():
            copy.called = copy.called or not (mask.keeps(copy.to) and mask.keeps(copy.of))
        for copy in [c for c in unread.values() if not mask.keeps(c.to)]:
            del unread[copy.at]
            self._clobber([u for u in copy.to.units if u not in mask.units])
            if not any(u in mask.units and self._copies.get(u) is copy for u in copy.to.units):
                copy.row.gone = copy.row.dead = True

    def _found(self, register: Register) -> _Copy | None:
        """The COPY whose target a register is, or a part of."""
        copy = self._copies.get(register.units[0]) if register.units[0] in self._available else None
        holds = copy is not None and not copy.called and set(register.units) <= set(copy.to.units)
        return copy if holds else None

    def _is_again(self, at: int, row: _Row, to: Register, of: Register) -> bool:
        """Whether ``to`` was copied from ``of`` before (eraseIfRedundant)."""
        if self._is_reserved(to) or self._is_reserved(of):
            return False
        copy = self._found(to)
        if copy is None or "dead" in copy.row.operands[0].flags:
            return False
        same = (to.name, of.name) == (copy.to.name, copy.of.name)
        if not same:
            part = copy.to.units.index(to.units[0])
            within = len(of.units) < len(copy.of.units)
            if not within or copy.of.units[part : part + len(to.units)] != of.units:
                return False
        for between in self._rows[copy.at : at]:
            self._revive(between, self._ends(row) or (to, of))
        if "undef" not in row.operands[1].flags:
            source = copy.row.operands[1]
            if "undef" in source.flags:
                copy.row.put(1, copy.of, source.flags - {"undef"})
        return True

    def _revive(self, row: _Row, registers: Sequence[Register]) -> None:
        """What a row reads of the first of these registers is not read for the last time (clearRegisterKills)."""
        for n, o in enumerate(row.operands):
            if o.is_use and "killed" in o.flags:
                own = row.registers[n]
                if own is not None and _overlap(own, registers[0]):
                    flags = o.flags - {"killed"}
                    tied = Operand(Kind.REGISTER, o.text, o.register, tied=o.tied, flags=flags)
                    row.operands[n], row.changed = tied, True

    def _forward_uses(self, at: int, row: _Row) -> None:
        for n, o in enumerate(row.operands if self._copies else ()):
            if not o.is_use or o.is_implicit or "undef" in o.flags or row.is_tied(n) or not self._is_renamable(row, o):
                continue
            used = row.registers[n]
            copy = self._found(used) if used is not None else None
            if used is None or copy is None:
                continue
            source = self._part(copy, used)
            if source is None or (self._is_reserved(copy.of) and not self._is_constant(copy.of)):
                continue
            ends = self._ends(row)
            # LLVM asks for the class of the COPY's source, not of the part that is read.
            if not (self._suits_copy(copy.of, ends[0]) if ends else self._suits(row, n, copy.of)):
                continue
            if self._implicit(row, n, used):
                continue
            if ends and _overlap(ends[0], copy.of) and ends[0].name != copy.of.name:
                continue
            flags = o.flags - {"renamable", "undef"} | (copy.row.operands[1].flags & {"undef"})
            row.put(n, source, flags)
            for between in self._rows[copy.at : at + 1]:
                if not between.gone:
                    self._revive(between, (copy.of,))

    def _part(self, copy: _Copy, used: Register) -> Register | None:
        """The register that holds what ``used`` does, among the parts of a COPY's source."""
        if used.name == copy.to.name:
            return copy.of
        start = copy.to.units.index(used.units[0])
        units = copy.of.units[start : start + len(used.units)]
        return self._lanes.tables.named_by(units) if len(units) == len(used.units) else None

    # Backwards.

    def _backwards(self) -> list[_Copy]:
        """COPYs that are gone because what wrote their source writes their target."""
        gone: list[_Copy] = []
        for at in range(len(self._rows) - 1, -1, -1):
            row = self._rows[at]
            if not (self._copies or row.copies):
                continue
            ends = self._ends(row)
            if ends and len(row.operands) == 2 and not _overlap(*ends):
                of = row.operands[1]
                killed = "killed" in of.flags and self._is_renamable(row, of)
                if killed and not self._is_reserved(ends[0]) and not self._is_reserved(ends[1]):
                    self._forget(ends[1])
                    self._forget(ends[0])
                    copy = _Copy(at, row, *ends)
                    self._copies.update(dict.fromkeys(copy.to.units, copy))
                    self._sources.update(dict.fromkeys(copy.of.units, copy))
                    continue
            for o, register in zip(row.operands, row.registers, strict=True):
                if register is not None and "early-clobber" in o.flags:
                    self._forget(register)
            gone += self._propagate_definitions(at, row)
            for o, register in zip(row.operands, row.registers, strict=True):
                if register is not None and o.is_def:
                    self._forget(register)
                elif register is not None and o.reads:
                    copy = self._of(register)
                    if copy is not None:
                        copy.users.append(row)
                    else:
                        self._forget(register)
        return gone

    def _of(self, register: Register) -> _Copy | None:
        """The COPY of which a register is the source."""
        copy = self._sources.get(register.units[0])
        return copy if copy is not None and copy.of.name == register.name else None

    def _forget(self, register: Register) -> None:
        """COPYs that name a part of a register count no more."""
        for copy in [of[unit] for of in (self._sources, self._copies) for unit in register.units if unit in of]:
            for unit in copy.to.units:
                self._copies.pop(unit, None)
            for unit in copy.of.units:
                self._sources.pop(unit, None)

    def _propagate_definitions(self, at: int, row: _Row) -> list[_Copy]:
        gone: list[_Copy] = []
        for n, o in enumerate(row.operands if self._copies else ()):
            if not o.is_def or o.is_implicit or "undef" in o.flags or row.is_tied(n) or not self._is_renamable(row, o):
                continue
            written = row.registers[n]
            copy = self._of(written) if written is not None else None
            if written is None or copy is None or self._is_clobbered(copy, at) or not self._suits(row, n, copy.to):
                continue
            others = [row.registers[m] for m, d in enumerate(row.operands) if m != n and d.is_def]
            if self._implicit(row, n, written) or any(r is not None and _overlap(r, copy.to) for r in others):
                continue
            if not all(self._may_read(user, copy) for user in copy.users):
                continue
            renamable = copy.row.operands[0].flags & {"renamable"}
            row.put(n, copy.to, o.flags - {"renamable"} | renamable)
            for user in copy.users:
                for m, use in enumerate(user.operands):
                    if use.is_use and user.registers[m] is not None and use.register == copy.of.name:
                        user.put(m, copy.to, use.flags - {"renamable"} | renamable)
            gone.append(copy)
        return gone

    def _may_read(self, user: _Row, copy: _Copy) -> bool:
        """Whether what reads a COPY's source may read its target (canUpdateSrcUsers)."""
        if self._implicit(user, -1, copy.of):
            return False
        uses = [(n, o) for n, o in enumerate(user.operands) if o.is_use and o.register == copy.of.name]
        return all(
            not user.is_tied(n) and self._is_renamable(user, o) and self._suits(user, n, copy.to) for n, o in uses
        )

    def _is_clobbered(self, copy: _Copy, at: int) -> bool:
        """Whether a call between writes a COPY's registers."""
        for row in self._rows[at : copy.at]:
            for o in row.operands:
                if o.kind is Kind.REGMASK:
                    mask = _Mask(o.text, self._lanes)
                    if not (mask.keeps(copy.to) and mask.keeps(copy.of)):
                        return True
        return False


def _register(o: Operand, instruction: Instruction, lanes: Lanes) -> Register | None:
    name = lanes.name(o, instruction) if o.is_register else ""
    register = lanes.register(name) if name not in ("", "noreg") else None
    return register if register is not None and register.units else None


def _overlap(a: Register, b: Register) -> bool:
    return not set(a.units).isdisjoint(b.units)
