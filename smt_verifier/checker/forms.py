"""A pair of instructions: every operand is compared once, by the relation that is its own (specification 5.2 to 5.9).

What is left to compare once the state is known are the lanes that are read; a ``Pair`` lists them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from smt_verifier.checker.assembly import asm_operands
from smt_verifier.checker.lanes import Lanes
from smt_verifier.checker.model import Instruction, Kind, MemoryOperand, Operand, bytes_of
from smt_verifier.checker.outcome import Refused
from smt_verifier.checker.tables import Opcode, OperandRow, Processor, Register, RegisterClass

_SAME = frozenset({"def", "implicit", "early-clobber", "internal", "debug-use"})
_ADDED = frozenset({"def", "implicit", "dead", "killed", "undef", "renamable"})
_OBJECT = re.compile(r"%(stack|fixed-stack)\.(\d+)")
_ALIGN = re.compile(r", align ([0-9]+)")
_ASM_VGPRS = 256
_DEBUG = ("debug-location ", "debug-instr-number ")


class Use:
    """Lanes that P reads, and the places that Q reads at the same positions, ``lanes``; ``undef``: Q says so."""

    def __init__(self, names: tuple[int, ...], places: tuple[int, ...], undef: bool) -> None:
        self.names, self.places, self.undef = names, places, undef
        self.lanes: Sequence[int] = range(len(names))


class Definition:
    """Lanes that both write; ``rest``: the other lanes of their virtual registers, which hold nothing afterwards."""

    def __init__(
        self,
        names: tuple[int, ...],
        places: tuple[int, ...],
        rest_names: tuple[int, ...],
        rest_places: tuple[int, ...],
        lost_names: tuple[int, ...] = (),
        lost_places: tuple[int, ...] = (),
    ) -> None:
        self.names, self.places, self.rest_names, self.rest_places = names, places, rest_names, rest_places
        self.lost_names, self.lost_places = lost_names, lost_places

    def kept(self, count: int) -> Definition:
        """The same, but all lanes above the lowest ``count`` get values that the other side is not known to have."""
        names, places = self.names, self.places
        kept = names[:count], places[:count], self.rest_names, self.rest_places
        return Definition(*kept, names[count:], places[count:])


class High:
    """Lanes of the addend that the upper half of the result and the carry alone depend on (5.11)."""

    def __init__(self, rows: tuple[tuple[int, int], ...] = (), undef: bool = False) -> None:
        self.rows, self.undef = rows, undef


class Pair:
    """What executing two instructions together compares and writes.

    Attributes:
        uses: by the number of the operand.
        spoiled: places that Q alone defines, implicitly.
        early: places that Q writes before it has read everything.
        own: if there are some, names and places that are written together: P overwrites those that it reads itself.
        tied: numbers of the uses that are tied to a result.
        operands: of Q, that were compared for it.
    """

    def __init__(self) -> None:
        self.uses: dict[int, Use] = {}
        self.definitions: list[Definition] = []
        self.spoiled: tuple[int, ...] = ()
        self.early: frozenset[int] = frozenset()
        self.own: frozenset[tuple[int, int]] = frozenset()
        self.tied: frozenset[int] = frozenset()
        self.high = High()
        self.operands = 0

    def without_high(self) -> list[Definition]:
        """The definitions where the upper half of the addend differs, and so may what depends on it."""
        first, *others = self.definitions
        return [first.kept(len(first.names) // 2), *(other.kept(0) for other in others)]


class Forms:
    """Compares instructions of P with instructions of Q.

    Args:
        allocatable: units that may be allocated (13.4).
        objects: P's number for each stack object of Q (13.3), by kind (``stack``, ``fixed-stack``) and number.
    """

    def __init__(
        self,
        before: Lanes,
        after: Lanes,
        processor: Processor,
        allocatable: frozenset[int],
        objects: Mapping[tuple[str, int], int],
    ) -> None:
        self.before = before
        self.after = after
        self._pairs: dict[tuple[int, int, bool], tuple[Pair, Instruction, Instruction]] = {}
        """By ``id``; the instructions are kept, so that their identities stay their own."""
        self.compared = 0
        """Operands of Q that were compared."""
        self._tables = before.tables
        self._processor = processor
        self._allocatable = allocatable
        self.objects = objects
        self._suits: dict[tuple[str, str, str, bool, str], bool] = {}

    def opcode(self, instruction: Instruction) -> Opcode:
        """What the tables say of an instruction."""
        opcode = self._tables.opcode(instruction.opcode)
        if opcode is None:
            raise Refused("well-formed", f"{instruction.opcode} is not known", f"line {instruction.line}")
        return opcode

    def pair(self, a: Instruction, b: Instruction, *, repeats: bool = False) -> Pair:
        """Compare ``b`` of Q with ``a`` of P; ``repeats``: it stands alone in Q and repeats ``a`` (8.2).

        What it answers is a function of the two: it is worked out once.

        Raises:
            Refused: they differ in something that is not a register, or a register does not suit.
        """
        at = id(a), id(b), repeats
        known = self._pairs.get(at)
        if known is None:
            before = self.compared
            pair = self._compared(a, b, repeats=repeats)
            pair.operands = self.compared - before
            self._pairs[at] = pair, a, b
            return pair
        self.compared += known[0].operands
        return known[0]

    def _compared(self, a: Instruction, b: Instruction, *, repeats: bool) -> Pair:
        of_a, of_b = self.opcode(a), self.opcode(b)
        if (of_a.value("canon") or a.opcode) != (of_b.value("canon") or b.opcode):
            raise Refused("instruction-sequence", f"{a.opcode} became {b.opcode}")
        self._compare_marks(a, b)
        if len(b.operands) < len(a.operands) or a.definitions != b.definitions:
            raise Refused("operands", f"{len(a.operands)} operands became {len(b.operands)}")
        pair = Pair()
        for number, x in enumerate(a.operands):
            y = b.operands[number]
            row = of_b.operands[number] if number < len(of_b.operands) and not x.is_implicit else None
            self.compared += 1
            if x.kind is not y.kind:
                raise Refused("operands", f"{x.text} became {y.text}")
            if x.kind is Kind.REGISTER:
                either = self._processor.has_agprs and number in of_b.numbers("either")
                self._register(x, y, row, either=either, loose=repeats and number < a.definitions)
                self._lanes(number, a, b, pair)
            elif self._text(x) != self._text(y, renumber=True):
                raise Refused("operands", f"{x.text} became {y.text}")
        self._one_place(a, b)
        self._unread(a, of_a, pair)
        pair.spoiled = tuple(k for y in b.operands[len(a.operands) :] for k in self._added(y, a, b))
        pair.tied = self._ties(a, b, of_a, of_b)
        pair.early = self.early(b, of_b)
        if pair.early:
            pair.own = frozenset(row for d in pair.definitions for row in zip(d.names, d.places, strict=True))
        self._overlap(b, of_b)
        self._matrix_file(b, of_b)
        if "asm" in of_b.traits:
            self._number_fits(b)
        return pair

    # What is no register.

    def _compare_marks(self, a: Instruction, b: Instruction) -> None:
        if a.flags != b.flags:
            raise Refused("instruction-flags", f"flags {sorted(a.flags)} became {sorted(b.flags)}")
        if [m.text for m in a.memory] != [self._renumbered(m) for m in b.memory]:
            raise Refused("memory-operands", "the memory operands differ")
        marks = [[t for t in i.tail if not t.startswith(_DEBUG)] for i in (a, b)]
        if marks[0] != marks[1] and [t for t in marks[0] if not t.startswith("mmra ")] != marks[1]:
            raise Refused("instruction-flags", f"{marks[0]} behind it became {marks[1]}")
        if (a.in_bundle, a.opens_bundle, a.closes_bundle) != (b.in_bundle, b.opens_bundle, b.closes_bundle):
            raise Refused("bundle", "bundle boundaries differ")

    def _renumbered(self, of: Operand | MemoryOperand) -> str:
        """A text of Q that names a stack object, with the number that P gives it."""
        match = _OBJECT.search(of.text)
        if isinstance(of, Operand):
            names_object = of.kind in (Kind.FRAME_INDEX, Kind.FIXED_FRAME)
        else:
            names_object = max(of.stack_object, of.fixed_object) >= 0
        if not names_object or match is None:
            return of.text
        known = self.objects.get((match[1], int(match[2])))
        if known is None:
            raise Refused("operands", f"{match[0]} is no stack object")
        return f"{of.text[: match.start(2)]}{known}{of.text[match.end() :]}"

    def _text(self, operand: Operand, *, renumber: bool = False) -> object:
        """What an operand that is no register is compared by; ``renumber``: it is Q's."""
        if operand.kind is Kind.BLOCK:
            return operand.text.partition("%bb.")[0], operand.number
        return self._renumbered(operand) if renumber else operand.text

    # Registers.

    def _register(self, x: Operand, y: Operand, row: OperandRow | None, *, either: bool, loose: bool) -> None:
        other_type = x.llt != y.llt and (y.llt or y.vreg >= 0)
        if not (x.flags ^ y.flags).isdisjoint(_SAME) or x.tied != y.tied or other_type:
            raise Refused("operands", f"{x.text} became {y.text} with other flags")
        if x.vreg < 0:
            if y.vreg >= 0 or (x.register != y.register and x.register not in self._same_register(y)):
                raise Refused("fixed-register", f"fixed register ${x.register} became {y.text}")
            if "renamable" in y.flags and "renamable" not in x.flags:
                raise Refused("fixed-register", f"fixed register ${x.register} is marked renamable")
            if x.is_register and not (y.flags - x.flags).isdisjoint(("killed", "dead")):
                self._check_flags(x)
        elif y.vreg >= 0:
            self._virtual(x, y, loose=loose)
        else:
            cls = self.before.register_class(x.vreg)
            register = self.after.register(y.register)
            if not self._allocatable.issuperset(register.units) or not register.units:
                raise Refused("reserved-register", f"${y.register} must not be allocated")
            if (register.file in "va") is not cls.is_vector:
                raise Refused("register-class", f"${y.register} is of another file than {x.text}")
            table = row.classes[self._processor.mode] if row is not None else ""
            at = cls.name, x.sub, register.name, either, table
            suits = self._suits.get(at)
            if suits is None:
                suits = self._suits[at] = self._suits_there(cls, x.sub, register, either, table)
            if not suits:
                raise Refused("register-class", f"${y.register} does not suit {x.text} of class {cls.name}")

    def _check_flags(self, x: Operand) -> None:
        """Kill and dead flags of MODE and its like say no more than P does (11)."""
        register = self.before.register(x.register)
        if register.file == "x" and x.register != "scc" and not self._allocatable.issuperset(register.units):
            raise Refused("dead-flag", f"${x.register} is said to be read for the last time, or not at all")

    def _same_register(self, y: Operand) -> tuple[str, ...]:
        """What an implicit register of Q is called as well: on wave32 ``$vcc`` is ``$vcc_lo`` (3.1)."""
        names = ("vcc", "vcc_lo")
        return names if y.is_implicit and self.after.wave == 32 and y.register in names else ()

    def _virtual(self, x: Operand, y: Operand, *, loose: bool) -> None:
        """A virtual register that stays virtual, or is made anew."""
        old, new = self.before.register_class(x.vreg), self.after.register_class(y.vreg)
        flags = [lanes.function.registers[o.vreg].flags for lanes, o in ((self.before, x), (self.after, y))]
        same = old.name == new.name and flags[0] == flags[1] and x.sub == y.sub
        files = [{run.file for run in cls.runs} for cls in (old, new)]
        if not same and not (loose and files[0] == files[1] and flags[0] == flags[1]):
            raise Refused("register-class", f"{y.text} is not of class {old.name}")

    def _suits_there(self, cls: RegisterClass, sub: str, register: Register, either: bool, table: str) -> bool:
        """Whether a register is a member of the table's class, or else that part of a member of P's class."""
        of_table = self._tables.register_class(table)
        if of_table is not None:
            return self._widened(of_table, either).contains(register)
        lanes = (self._tables.lanes(sub) or (-1,)) if sub else ()
        return self._tables.contains_part(self._widened(cls, either), register, lanes)

    def _widened(self, cls: RegisterClass, either: bool) -> RegisterClass:
        return self._tables.either_file(cls) if either else cls

    def _one_place(self, a: Instruction, b: Instruction) -> None:
        """What reads one lane of a virtual register of P reads one place of Q, and writes it there if it counts
        registers from an operand on (5.12).
        """
        places: dict[int, int] = {}
        opcode = self.opcode(a)
        writes = "indirect" in opcode.traits and not opcode.value("reach")
        used = [x.vreg for x in a.operands if x.vreg >= 0 and (x.is_use or writes)]
        if len(set(used)) == len(used):
            return
        for x, y in zip(a.operands, b.operands, strict=False):
            if x.vreg >= 0 and (x.is_use or writes):
                for name, place in zip(self.before.keys(x, a), self.after.keys(y, b), strict=True):
                    if places.setdefault(name, place) != place:
                        raise Refused("operands", f"{b.opcode} reads {x.text} in two registers", f"line {b.line}")

    def _lanes(self, number: int, a: Instruction, b: Instruction, pair: Pair) -> None:
        """File the lanes of an operand under what is done with it."""
        x, y = a.operands[number], b.operands[number]
        names = self.before.keys(x, a) if x.is_register else ()
        places = self.after.keys(y, b) if y.is_register else ()
        if len(names) != len(places):
            raise Refused("width", f"{x.text} and {y.text} differ in width")
        if not x.is_def:
            blend = self.opcode(a).numbers("blend")
            selects = bool(blend) and number == a.definitions + blend[2]  # Read even if it is said to be undefined.
            if names and (selects or "undef" not in x.flags):
                pair.uses[number] = Use(names, places, not selects and "undef" in y.flags)
            return
        rests = _rest(self.before, x, names), _rest(self.after, y, places)
        pair.definitions.append(Definition(names, places, *rests))

    def _added(self, y: Operand, a: Instruction, b: Instruction) -> tuple[int, ...]:
        """An operand that only Q has (5.3); returns the places that it spoils."""
        self.compared += 1
        if not y.is_register or not y.is_implicit or not y.flags <= _ADDED:
            raise Refused("operands", f"operand {y.text} was added")
        keys = self.after.keys(y, b)
        own = b.operands[: len(a.operands)]
        if not y.is_def:
            registers = [(o, self.after.keys(o, b)) for o in own if o.is_register]
            if not any(
                (k == keys and o.is_implicit) or (k and not o.is_implicit and set(k) <= set(keys)) for o, k in registers
            ):
                raise Refused("operands", f"the read of {y.text} was added")
            return ()
        if y.vreg < 0 and not (keys and self._allocatable.issuperset(self.after.register(y.register).units)):
            raise Refused("reserved-register", f"${y.register} must not be allocated")
        read = {
            k
            for o in b.operands
            if o.is_use and o.is_implicit and "undef" not in o.flags
            for k in self.after.keys(o, b)
        }
        defined = {k for o in own if o.is_def and o.is_register for k in self.after.keys(o, b)}
        if defined.isdisjoint(keys):
            # LLVM's passes take the instruction for one that writes it (MachineInstr::definesRegister).
            return keys
        return tuple(k for k in keys if k not in read and k not in defined)

    def _unread(self, a: Instruction, opcode: Opcode, pair: Pair) -> None:
        """Lanes that an instruction does not read, or that only a part of its result depends on (5.11)."""
        if "wide-mad" in opcode.traits:
            use = pair.uses.get(a.definitions + 2)
            if use is not None and a.operands[a.definitions + 3].text == "0" and self._is_vector(use):
                half = len(use.names) // 2
                pair.high = High(tuple(zip(use.names[half:], use.places[half:], strict=True)), use.undef)
                pair.uses[a.definitions + 2] = Use(use.names[:half], use.places[:half], use.undef)
        elif (packed := "packed-f32" in opcode.traits) or "mixed" in opcode.traits:
            for number, use in pair.uses.items():
                modifiers = a.operands[number - 1]
                vector = self._is_vector(use)
                if number > a.definitions and modifiers.kind is Kind.IMMEDIATE and (vector or packed):
                    low_high = bool(modifiers.number & 4), bool(modifiers.number & 8)
                    if not vector and all(low_high):
                        continue
                    read = _read_lanes(opcode, number - a.definitions, len(use.names), *low_high)
                    use.names, use.places = (tuple(keys[n] for n in read) for keys in (use.names, use.places))
                    use.lanes = read

    def _is_vector(self, use: Use) -> bool:
        return self.before.is_vector(use.names[0])

    # Rules of the whole instruction.

    def _ties(self, a: Instruction, b: Instruction, of_a: Opcode, of_b: Opcode) -> frozenset[int]:
        """Numbers of the uses that are tied (5.7)."""
        ties: dict[int, int] = {}
        for instruction, opcode in ((a, of_a), (b, of_b)):
            ties.update(opcode.ties)
            ties |= {n: o.tied for n, o in enumerate(instruction.operands) if o.tied >= 0}
            if "asm" in opcode.traits:
                ties |= {o.number: o.tied for o in asm_operands(instruction) if o.tied >= 0}
        for use, definition in ties.items():
            if max(use, definition) >= len(b.operands) or not b.operands[definition].is_def:
                raise Refused("tied-operand", f"operand {use} is tied to operand {definition}, which is no result")
            x, y = b.operands[use], b.operands[definition]
            if x.is_register and (x.register, x.vreg, x.sub) != (y.register, y.vreg, y.sub):
                raise Refused("tied-operand", f"{y.text} must be the register of {x.text}")
        return frozenset(ties)

    def early(self, b: Instruction, opcode: Opcode) -> frozenset[int]:
        """Places that are written before everything is read (5.6)."""
        early = set(opcode.early)
        early.update(n for n, o in enumerate(b.operands) if "early-clobber" in o.flags)
        if "asm" in opcode.traits:
            early.update(o.number for o in asm_operands(b) if o.early_clobber)
        if self._processor.xnack and "scalar-load" in opcode.traits and not self._is_at_once(b):
            early.add(0)
        written = [b.operands[n] for n in sorted(early) if n < len(b.operands)]
        return frozenset(key for o in written if o.is_def and o.is_register for key in self.after.keys(o, b))

    def _is_at_once(self, b: Instruction) -> bool:
        """Whether a scalar load is never done again for a part of it: it is of 32 bits, or aligned to its size
        (SMInstructions.td, smrd_load with and without "_ec"). Without a word an access is aligned to its own size
        (MIParser::parseMachineMemoryOperand).
        """
        size = 2 * len(self.after.keys(b.operands[0], b)) * self.after.grain
        if size <= 4 or not b.memory:
            return size <= 4
        memory, whole = b.memory[0], 1 << (size - 1).bit_length()
        own, align = bytes_of(memory.size), _ALIGN.match(memory.rest)
        known = int(align[1]) if align else own & -own
        return own > 0 and known >= size and memory.offset % whole == 0

    def _overlap(self, b: Instruction, opcode: Opcode) -> None:
        """No place is defined twice at once (5.8)."""
        if b.definitions < 2 and "asm" not in opcode.traits:
            return
        written: set[int] = set()
        for o in b.operands:
            if (
                o.is_def
                and o.is_register
                and ("early-clobber" in o.flags or not o.is_implicit or "asm" in opcode.traits)
            ):
                keys = self.after.keys(o, b)
                if not written.isdisjoint(keys):
                    raise Refused("overlapping-definitions", f"{o.text} is defined twice at once")
                written.update(keys)

    def _number_fits(self, b: Instruction) -> None:
        """The text of inline assembly has room for eight bits of a VGPR's number (AMDGPUInstPrinter.cpp)."""
        for o in b.operands:
            if o.is_register and o.vreg < 0:
                register = self.after.register(o.register)
                if register.file == "v" and register.first + (len(register.units) + 1) // 2 > _ASM_VGPRS:
                    raise Refused("register-class", f"inline assembly cannot name ${o.register}")

    def _matrix_file(self, b: Instruction, opcode: Opcode) -> None:
        file = opcode.value("file")
        if not file or not self._processor.has_agprs:
            return
        for number in (0, 3):
            if number < len(b.operands):
                register = b.operands[number].register
                if register and register != "noreg" and self.after.register(register).file != file:
                    raise Refused("register-class", f"{b.opcode} needs ${register} in the other vector file")


def _rest(lanes: Lanes, o: Operand, keys: tuple[int, ...]) -> tuple[int, ...]:
    """The other lanes of a virtual register that a definition says it does not read."""
    if o.vreg < 0 or "undef" not in o.flags:
        return ()
    return tuple(k for k in lanes.all_lanes(o.vreg) if k not in keys)


def _read_lanes(opcode: Opcode, place: int, count: int, low: bool, high: bool) -> list[int]:
    """Which lanes of a source are read, by the two modifier bits before it (OP_SEL_0, OP_SEL_1; 5.11).

    Args:
        place: the operand's number right of the opcode.
        count: its lanes.
    """
    if "mixed" in opcode.traits:
        part = place in (1, 3, 5) and count == 2 and high
        return [int(low)] if part else list(range(count))
    return [n for n in range(count) if (2 * n >= count) in (low, high)]
