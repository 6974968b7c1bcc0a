"""Operands as names and places: the lanes of one text (specification 3)."""

from __future__ import annotations

from itertools import pairwise

from smt_verifier.checker.certificate import LANES, SLOT, VIRTUAL, Key
from smt_verifier.checker.model import Function, Instruction, Kind, Operand
from smt_verifier.checker.outcome import Refused
from smt_verifier.checker.tables import Register, RegisterClass, Tables

SGPR_BASE = 8192
"""First unit that is not of a vector register (the tables' numbering)."""


class OperandKeys:
    """Keys of an instruction's register operands, by what its text says of them.

    Attributes:
        defined: those that it defines. ``killed``: those that it reads for the last time; ``dead``: marked so.
        used: all that it reads. ``read``: vector lanes among them, and ``written``, those that it defines.
        killed_scalars: lanes of physical scalar registers that are marked so; ``dead_scalars`` likewise.
        of_frame: it has a stack object among its operands.
    """

    def __init__(self, instruction: Instruction, lanes: Lanes) -> None:
        self.instruction = instruction
        self.defined, self.killed, self.dead = set[int](), set[int](), set[int]()
        self.used, self.read, self.written = set[int](), set[int](), set[int]()
        self.killed_scalars, self.dead_scalars = set[int](), set[int]()
        self.of_frame = False
        for o in instruction.operands:
            self.of_frame = self.of_frame or o.kind is Kind.FRAME_INDEX or o.kind is Kind.FIXED_FRAME
            keys = lanes.keys(o, instruction) if o.is_register else ()
            if not keys:
                continue
            vector = lanes.is_vector(keys[0])
            if o.is_def:
                self.defined.update(keys)
                if vector:
                    self.written.update(keys)
            if o.reads:
                self.used.update(keys)
                if vector:
                    self.read.update(keys)
            if "killed" in o.flags:
                self.killed.update(keys)
                if o.vreg < 0 and not vector:
                    self.killed_scalars.update(keys)
            if "dead" in o.flags:
                self.dead.update(keys)
                if o.vreg < 0 and not vector:
                    self.dead_scalars.update(keys)
        self.killed -= self.defined


class Lanes:
    """The lanes of one text's operands, and its joined blocks.

    Args:
        parts: LLVM's blocks that each joined block consists of (``parts_of``).
        grain: lanes of 16 bits that one key stands for: 1, or 2 where neither text names a half (3.1).
        wave: lanes of a wave.
    """

    def __init__(self, function: Function, parts: list[tuple[int, ...]], tables: Tables, grain: int, wave: int) -> None:
        self.function = function
        self.parts = parts
        self.tables = tables
        self.grain = grain
        self.wave = wave
        self._keys: dict[tuple[int, str, str], tuple[int, ...]] = {}
        self._classes: dict[int, RegisterClass] = {}
        self._vector: dict[int, bool] = {}
        self._operand_keys: dict[int, OperandKeys] = {}
        self._ahead: dict[int, list[int]] = {}
        self.declared: dict[int, frozenset[int]] = {}
        """Units that the live-ins of each block declare, once they were asked for (``declared_units``)."""
        self._code: dict[int, list[Instruction]] = {}
        self._known: dict[int, tuple[Operand, tuple[int, ...]]] = {}
        """Operands by ``id``, which are kept, with their keys."""
        # Worked out once; mypyc has cached_property do so at every use.
        self._predecessors: list[set[int]] | None = None
        self._live: list[set[int]] | None = None
        self._joints: dict[tuple[int, int], list[int]] | None = None
        self._named: frozenset[int] | None = None
        self._defined: frozenset[int] | None = None

    def of(self, function: Function) -> Lanes:
        """The lanes of a function that has most instructions of this one: what is known of those is kept."""
        lanes = Lanes(function, self.parts, self.tables, self.grain, self.wave)
        lanes._keys, lanes._known, lanes._operand_keys = self._keys, self._known, dict(self._operand_keys)
        return lanes

    def operand_keys(self, instruction: Instruction) -> OperandKeys:
        """What an instruction's text says of its registers: by its line, and worked out once."""
        known = self._operand_keys.get(instruction.line)
        if known is None or known.instruction is not instruction:
            known = self._operand_keys[instruction.line] = OperandKeys(instruction, self)
        return known

    def code(self, number: int) -> list[Instruction]:
        """The instructions of a joined block, debug ones left out (2.2); nobody changes the list."""
        code = self._code.get(number)
        if code is None:
            code = self._code[number] = [i for part in self.parts[number] for i in self.code_of(part)]
        return code

    def code_of(self, part: int) -> list[Instruction]:
        """Those of one of LLVM's blocks, likewise."""
        opcodes = [(i, self.tables.opcode(i.opcode)) for i in self.function.blocks[part].instructions]
        return [i for i, opcode in opcodes if opcode is None or "debug" not in opcode.traits]

    def successors(self, number: int) -> list[int]:
        """Those of a joined block, in order."""
        parts = self.parts[number]
        return self.successors_of(parts[-1]) if parts else []

    def successors_of(self, part: int) -> list[int]:
        """Those of one of LLVM's blocks, in order; nobody changes the list."""
        ahead = self._ahead.get(part)
        if ahead is None:
            ahead = self._ahead[part] = [place for place, _ in self.function.blocks[part].successors]
        return ahead

    @property
    def predecessors(self) -> list[set[int]]:
        """Those of each joined block."""
        if self._predecessors is None:
            self._predecessors = predecessors([set(self.successors(number)) for number in range(len(self.parts))])
        return self._predecessors

    @property
    def live(self) -> list[set[int]]:
        """For each joined block physical registers that are read on some path before they are written (10.13)."""
        if self._live is None:
            self._live = [set() for _ in self.parts]
            pending = list(range(len(self.parts)))
            while pending:
                number = pending.pop()
                live = set[int]().union(*(self._live[n] for n in self.successors(number)))
                for i in reversed(self.code(number)):
                    own = self.operand_keys(i)
                    live -= own.defined
                    live.update(k for k in own.used if k < VIRTUAL)
                if live != self._live[number]:
                    self._live[number] = live
                    pending += self.predecessors[number]
        return self._live

    @property
    def joints(self) -> dict[tuple[int, int], list[int]]:
        """By joined block and instruction, the parts that begin before it (4.5)."""
        if self._joints is None:
            self._joints = {}
            for number, parts in enumerate(self.parts):
                at = 0
                for part, following in pairwise(parts):
                    at += len(self.code_of(part))
                    self._joints.setdefault((number, at), []).append(following)
        return self._joints

    def register_class(self, vreg: int) -> RegisterClass:
        """The class of a virtual register."""
        known = self._classes.get(vreg)
        if known is None:
            row = self.function.registers.get(vreg)
            known = self.tables.register_class(row.cls) if row is not None else None
            if known is None:
                raise Refused("register-class", f"%{vreg} has no class that is known")
            if known.bits > 16 * LANES:
                raise Refused("register-class", f"%{vreg} is too wide")
            self._classes[vreg] = known
        return known

    def register(self, name: str) -> Register:
        """A physical register."""
        register = self.tables.register(name)
        if register is None:
            raise Refused("operands", f"${name} is no register that is known")
        return register

    def name(self, operand: Operand, instruction: Instruction) -> str:
        """The physical register that an operand means: an implicit ``$vcc`` is ``$vcc_lo`` on wave32 (3.1)."""
        if operand.register == "vcc" and self.wave == 32 and operand.is_implicit:
            description = self.tables.opcode(instruction.opcode)
            if description is None or "asm" not in description.traits:
                return "vcc_lo"
        return operand.register

    def keys(self, operand: Operand, instruction: Instruction) -> tuple[int, ...]:
        """Keys of the lanes of a register operand, lowest first; none for a register without storage."""
        known = self._known.get(id(operand))
        if known is not None:
            return known[1]
        name = self.name(operand, instruction) if operand.vreg < 0 else ""
        at = operand.vreg, name, operand.sub
        keys = self._keys.get(at)
        if keys is None:
            keys = self._keys[at] = self._compute(*at)
        if operand.register != "vcc":
            self._known[id(operand)] = operand, keys
        return keys

    def _compute(self, vreg: int, name: str, sub: str) -> tuple[int, ...]:
        if vreg < 0:
            return self.register(name).units[:: self.grain] if name != "noreg" else ()
        every = self.all_lanes(vreg)
        if not sub:
            return every
        lanes = self.tables.lanes(sub)
        if lanes is None or lanes[-1] >= self.register_class(vreg).bits // 16:
            raise Refused("width", f"%{vreg}.{sub} is no part of its register")
        return tuple(VIRTUAL + vreg * LANES + lane for lane in lanes[:: self.grain])

    def all_lanes(self, vreg: int) -> tuple[int, ...]:
        """Keys of all lanes of a virtual register."""
        first = VIRTUAL + vreg * LANES
        return tuple(range(first, first + max(1, self.register_class(vreg).bits // 16), self.grain))

    def slot(self, number: int, offset: int, bits: int) -> tuple[int, ...]:
        """Keys of ``bits`` bits of a slot from byte ``offset``, which is a multiple of 4, on."""
        first, count = offset // 2, bits // 16
        if first + count > LANES:
            raise Refused("spill-slot", f"%stack.{number} is too wide")
        return tuple(SLOT + number * LANES + first + lane for lane in range(0, count, self.grain))

    def is_vector(self, key: int) -> bool:
        """Whether a register's lane has one value a thread; not for slots."""
        if key < VIRTUAL:
            return key < SGPR_BASE
        vreg = (key - VIRTUAL) // LANES
        known = self._vector.get(vreg)
        if known is None:
            known = self._vector[vreg] = self.register_class(vreg).is_vector
        return known

    @property
    def named(self) -> frozenset[int]:
        """Keys of all lanes that some operand names."""
        if self._named is None:
            keys: set[int] = set()
            seen: set[int] = set()
            for i in (i for block in self.function.blocks for i in block.instructions):
                for o in i.operands:
                    if o.is_register and (o.register == "vcc" or id(o) not in seen):
                        seen.add(id(o))
                        keys.update(self.keys(o, i))
            self._named = frozenset(keys)
        return self._named

    @property
    def defined_units(self) -> frozenset[int]:
        """Units of all physical registers that some operand defines."""
        if self._defined is None:
            instructions = [i for block in self.function.blocks for i in block.instructions]
            names = {self.name(o, i) for i in instructions for o in i.operands if o.is_def and o.vreg < 0}
            self._defined = frozenset(u for name in names - {"noreg", ""} for u in self.register(name).units)
        return self._defined


def declared_units(lanes: Lanes, number: int) -> frozenset[int]:
    """Units that the live-ins of a block declare."""
    known = lanes.declared.get(number)
    if known is None:
        known = lanes.declared[number] = frozenset(_declared(lanes, number, lanes.grain))
    return known


def declared_halves(lanes: Lanes, number: int) -> set[int]:
    """Likewise, those too of a register of which only the other half is declared."""
    return _declared(lanes, number, 1)


def _declared(lanes: Lanes, number: int, grain: int) -> set[int]:
    units: set[int] = set()
    for name, mask in lanes.function.blocks[number].liveins:
        every = lanes.register(name).units
        # LLVM's lane masks have the halves of each register the other way round (TableGen numbers them by name).
        named = [mask < 0 or bool(mask >> (k ^ 1 if len(every) > 1 else k) & 1) for k in range(len(every))]
        if grain == 2:
            named = [all(named[k - k % 2 : k - k % 2 + 2]) for k in range(len(every))]
        units.update(u for u, is_named in zip(every, named, strict=True) if is_named)
    return units


def parts_of(function: Function) -> list[tuple[int, ...]]:
    """LLVM's blocks that are one block (2.5): for each block itself and what is joined to it; none for one that is
    joined to another.
    """
    ahead = [{place for place, _ in block.successors} for block in function.blocks]
    entered = [0] * len(ahead)
    for number in reachable(ahead):
        for place in ahead[number]:
            entered[place] += 1
    only = [next(iter(places)) if len(places) == 1 else -1 for places in ahead]
    following = [place if place > 0 and entered[place] == 1 else -1 for place in only]
    parts: list[tuple[int, ...]] = [(number,) for number in range(len(ahead))]
    joined = {following[number] for number in reachable(ahead)}
    for number in reachable(ahead) - joined:
        row = [number]
        while following[row[-1]] >= 0:
            row.append(following[row[-1]])
        for part in row:
            parts[part] = ()
        parts[number] = tuple(row)
    return parts


def predecessors(ahead: list[set[int]]) -> list[set[int]]:
    """The blocks that lead to each one; ``ahead``: the successors of each."""
    before: list[set[int]] = [set() for _ in ahead]
    for number, places in enumerate(ahead):
        for place in places:
            before[place].add(number)
    return before


def reachable(ahead: list[set[int]]) -> set[int]:
    """The blocks that the function's entry leads to; ``ahead``: the successors of each."""
    entered, pending = {0}, [0]
    while pending:
        places = ahead[pending.pop()] - entered
        entered |= places
        pending += places
    return entered


def led_to(ahead: list[set[int]], start: int) -> set[int]:
    """The blocks that one leads to by one step or more; ``ahead``: the successors of each."""
    entered, pending = set[int](), [start]
    while pending:
        places = ahead[pending.pop()] - entered
        entered |= places
        pending += places
    return entered


def nested_loops(ahead: list[set[int]], before: list[set[int]]) -> list[tuple[set[int], set[int]]]:
    """Blocks that lead to each other, and those of them that others lead to; behind each such loop those that are in it
    without the only one to which others lead.
    """
    loops: list[tuple[set[int], set[int]]] = []
    pending = [set(range(len(ahead)))]
    while pending:
        left, count = pending.pop(), -1
        while len(left) != count:  # What is in no loop, nor between two.
            count = len(left)
            left = {n for n in left if not left.isdisjoint(ahead[n]) and not left.isdisjoint(before[n])}
        onwards = [ahead[n] & left if n in left else set[int]() for n in range(len(ahead))] if left else []
        backwards = predecessors(onwards)
        while left:
            number = left.pop()
            loop = led_to(onwards, number) & led_to(backwards, number)
            left -= loop
            entered = {n for n in loop if n == 0 or not before[n] <= loop}
            if loop:
                loops.append((loop, entered))
            if len(entered) == 1 and len(loop) > 1:
                pending.append(loop - entered)
    return loops


def container(key: int) -> int:
    """First lane of the 32-bit register, or part of a slot, that a lane is in; cells are named by it."""
    return key - ((key - VIRTUAL) % 2 if VIRTUAL <= key < SLOT else (key - SLOT) % 2 if key >= SLOT else key % 2)


def cell(register: int, thread: int, half: int) -> Key:
    """The cell of a thread in the 32-bit register whose first lane is given (3.5); ``half`` 1: its upper 16 bits."""
    return ("&", register, thread, half)


def names_halves(function: Function, tables: Tables) -> bool:
    """Whether a text names lanes of 16 bits (3.1)."""
    for row in function.registers.values():
        cls = tables.register_class(row.cls)
        if cls is not None and cls.bits == 16:
            return True
    texts = {(o.register, o.sub) for b in function.blocks for i in b.instructions for o in i.operands}
    if any("lo16" in name or "hi16" in name for text in texts for name in text):
        return True
    return any("lo16" in name or "hi16" in name for b in function.blocks for name, _ in b.liveins)
