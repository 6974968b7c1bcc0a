"""EXEC and masks: which threads are active (specification 10)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from smt_verifier.checker.certificate import MOST_CLASSES, Key
from smt_verifier.checker.lanes import Lanes
from smt_verifier.checker.model import Instruction, Kind, Operand
from smt_verifier.checker.outcome import Refused
from smt_verifier.checker.state import State, ThreadClass
from smt_verifier.checker.tables import Opcode

Truth = bool | None
_FOLLOWED = frozenset({"mask", "save", "mask-move", "copy", "compare", "first-bit"})
"""Traits of what makes masks, or numbers of threads, of its operands."""
EXEC_NAMES = frozenset({"exec", "exec_lo", "exec_hi"})


def _and(a: Truth, b: Truth) -> Truth:
    return False if a is False or b is False else None if a is None or b is None else True


def _not(a: Truth) -> Truth:
    return None if a is None else not a


def _or(a: Truth, b: Truth) -> Truth:
    return _not(_and(_not(a), _not(b)))


def _xor(a: Truth, b: Truth) -> Truth:
    return None if a is None or b is None else a != b


OPERATIONS: dict[str, Callable[[Truth, Truth], Truth]] = {
    "": lambda a, _: a,  # a move
    "compare": lambda a, _: None if a else a,
    "AND": _and,
    "OR": _or,
    "XOR": _xor,
    "ANDN2": lambda a, b: _and(a, _not(b)),
    "ORN2": lambda a, b: _or(a, _not(b)),
    "ANDN1": lambda a, b: _and(_not(a), b),
    "ORN1": lambda a, b: _or(_not(a), b),
    "NAND": lambda a, b: _not(_and(a, b)),
    "NOR": lambda a, b: _not(_or(a, b)),
    "XNOR": lambda a, b: _not(_xor(a, b)),
}


class Source:
    """What an operand is as a mask: EXEC, a mask that is followed, the mask of nobody or everybody, or none known.

    ``first``: the comparison that it stands in holds for the first active thread. ``number``: the first bit set in it
    numbers an active thread.
    """

    def __init__(self, exec: bool = False, mask: int = -1, constant: Truth = None) -> None:
        self.exec, self.mask, self.constant = exec, mask, constant
        self.first = self.number = False

    def of(self, cls: ThreadClass) -> Truth:
        """Whether the threads of a class are in it (10.2)."""
        if self.exec:
            return cls.active
        return cls.is_in(self.mask) if self.mask >= 0 else self.constant


def writes_exec(instruction: Instruction, opcode: Opcode) -> bool:
    """Whether it writes EXEC; ``implicit-def $exec`` on a copy only orders it."""
    copies = "copy" in opcode.traits
    return any(o.is_def and o.register in EXEC_NAMES and not (copies and o.is_implicit) for o in instruction.operands)


@dataclass(repr=False, slots=True)
class Nobody:
    """Whether a thread that waits at a branch which skips some blocks would be active in them, and in masks (12.2).

    Attributes:
        active: at the branch it is not, nor is any other.
        inside, outside: lanes of masks that it is in, and is not in, as bits.
    """

    active: Truth = False
    inside: int = 0
    outside: int = 0

    def meet(self, other: Nobody) -> Nobody:
        """What both say."""
        active = self.active if self.active is other.active else None
        return Nobody(active, self.inside & other.inside, self.outside & other.outside)

    def behind(
        self, instruction: Instruction, opcode: Opcode, lanes: Lanes, bits: Callable[[Iterable[Key]], int]
    ) -> Nobody:
        """What holds behind an instruction of P that defines a scalar (10.3, 10.4)."""
        uses = instruction.operands[instruction.definitions :]
        sources = [*(self._of(o, lambda o: bits(lanes.keys(o, instruction))) for o in uses), None, None]
        save, binary, compares = opcode.value("save"), opcode.value("mask"), {"compare", "cmpx"} & opcode.traits
        result: Truth = None
        active: Truth = None
        if save or "enter-wwm" in opcode.traits:
            result, active = self.active, OPERATIONS[save](sources[0], self.active) if save else True
        elif compares:
            result = active = OPERATIONS["compare"](self.active, None)
        elif binary or {"mask-move", "copy"} & opcode.traits:
            result = active = OPERATIONS[binary](sources[0], sources[1])
        others = ~bits(lanes.operand_keys(instruction).defined)
        first = bits(lanes.keys(instruction.operands[0], instruction)) if instruction.definitions else 0
        return Nobody(
            active if writes_exec(instruction, opcode) else self.active,
            self.inside & others | (first if result else 0),
            self.outside & others | (first if result is False else 0),
        )

    def _of(self, operand: Operand, lanes: Callable[[Operand], int]) -> Truth:
        """Whether it is in what an operand is as a mask; ``lanes``: those of an operand, as bits."""
        if operand.kind is Kind.IMMEDIATE:
            return {0: False, -1: True}.get(operand.number)
        if operand.register in EXEC_NAMES:
            return self.active
        of = lanes(operand) if operand.is_use and "undef" not in operand.flags else 0
        return None if not of else True if not of & ~self.inside else False if not of & ~self.outside else None


class Masks:
    """Follows masks through P (10.3, 10.4)."""

    def __init__(self, lanes: Lanes, state: State, taken: int) -> None:
        """``taken``: masks below this number have a meaning already."""
        self._lanes = lanes
        self._state = state
        self._next = taken

    def source(self, operand: Operand, instruction: Instruction) -> Source:
        """What an operand is as a mask, before its instruction writes."""
        if operand.kind is Kind.IMMEDIATE:
            return Source(constant={0: False, -1: True}.get(operand.number))
        if not operand.is_use or "undef" in operand.flags:
            return Source()
        if operand.register in EXEC_NAMES:
            return Source(exec=operand.register == self._exec)
        keys = self._lanes.keys(operand, instruction)
        if not self._is_whole(keys):
            return Source()
        parts = [self._state.masks.get(key) for key in keys]
        first = parts[0]
        if first is None or any(part != (first[0], k) for k, part in enumerate(parts)):
            return Source()
        return Source(mask=first[0])

    @property
    def _exec(self) -> str:
        return "exec" if self._lanes.wave == 64 else "exec_lo"

    def _is_whole(self, keys: Sequence[int]) -> bool:
        whole = len(keys) * self._lanes.grain * 16 == self._lanes.wave
        return whole and not self._lanes.is_vector(keys[0])

    def follow(self, instruction: Instruction, opcode: Opcode, sources: Sequence[Source], *, split: bool) -> None:
        """What an instruction of P that has written its results makes of masks.

        Args:
            sources: what its operands behind the definitions were.
            split: the certificate asks that classes are split by the result.

        Raises:
            Refused: EXEC gets a value that is not followed.
        """
        save, binary = opcode.value("save"), opcode.value("mask")
        to_exec = writes_exec(instruction, opcode)
        first = instruction.operands[0] if instruction.definitions else None
        if save and first is not None and to_exec:
            self._assign(first, instruction, "", Source(exec=True), Source())
            self._set_exec(save, sources[0], Source(exec=True))
        elif "enter-wwm" in opcode.traits and first is not None:
            self._assign(first, instruction, "", Source(exec=True), Source())
            self._set_exec("", Source(constant=True), Source())
        elif "cmpx" in opcode.traits:
            self._set_exec("compare", Source(exec=True), Source())
        elif to_exec:
            moves = "mask-move" in opcode.traits or "copy" in opcode.traits
            if first is None or first.register != self._exec or not (binary or moves):
                raise Refused("exec", f"{instruction.opcode} sets EXEC in a way that is not followed")
            self._set_exec(binary, sources[0], sources[1] if binary else Source())
        elif first is not None and (binary or "mask-move" in opcode.traits or "compare" in opcode.traits):
            if "compare" in opcode.traits:
                mask = self._assign(first, instruction, "compare", Source(exec=True), Source())
                if mask >= 0 and sources[0].first:
                    self._state.firsts.add(mask)
            else:
                mask = self._assign(first, instruction, binary, sources[0], sources[1] if binary else Source())
            if split and mask >= 0:
                self._split_by(mask)
            if binary and any(o.is_def and o.register == "scc" for o in instruction.operands):
                self._state.scc = mask
        elif first is not None and sources and sources[0].number:
            self._state.numbers.update(self._lanes.keys(first, instruction)[:1])
        elif opcode.value("reach") == "first" and first is not None:
            self._read_first(first, instruction)

    def _read_first(self, first: Operand, instruction: Instruction) -> None:
        """V_READFIRSTLANE: the result is what the first active thread has in the operand (10.7)."""
        names, of = (
            self._lanes.keys(o, instruction) if o.is_register else () for o in (first, instruction.operands[1])
        )
        if not names or not of:
            return
        vector = self._lanes.is_vector(of[0]) and not self._lanes.is_vector(names[0])
        doubtful = "undef" in instruction.operands[1].flags or any(
            key in cls.part.doubtful for cls in self._state.classes if cls.active for key in of
        )
        if len(names) == len(of) and vector and not doubtful:
            self._state.first_of.update(zip(names, of, strict=True))

    def facts(self, instruction: Instruction, opcode: Opcode) -> list[Source]:
        """What the operands behind the definitions are as masks, before the instruction writes."""
        if _FOLLOWED.isdisjoint(opcode.traits) and _FOLLOWED.isdisjoint(opcode.values):
            return []
        operands = instruction.operands[instruction.definitions :]
        sources = [self.source(o, instruction) for o in operands]
        if not sources:
            return sources
        if "compare-equal" in opcode.traits and self._finds_first(instruction):
            sources[0].first = True
        if "first-bit" in opcode.traits and self._is_inhabited(sources[0]) and self._is_active(sources[0]):
            sources[0].number = True
        return sources

    def _finds_first(self, instruction: Instruction) -> bool:
        """Whether a comparison compares a register with what V_READFIRSTLANE took from it (10.7)."""
        pair = [o for o in instruction.operands[instruction.definitions :] if o.is_register and not o.is_implicit]
        if len(pair) != 2 or any("undef" in o.flags for o in pair):
            return False
        keys = [self._lanes.keys(o, instruction) for o in pair]
        first_of = self._state.first_of
        return any(
            len(a) == len(b) > 0 and all(first_of.get(s) == v for s, v in zip(a, b, strict=True))
            for a, b in (keys, keys[::-1])
        )

    def _is_active(self, source: Source) -> bool:
        """Whether all threads of a mask are active."""
        return all(c.active or source.of(c) is False for c in self._state.classes if c.kind != "P")

    def names_active_thread(self, instruction: Instruction, opcode: Opcode) -> bool:
        """Whether the lane operand of V_READLANE or V_WRITELANE numbers an active thread (10.8)."""
        number = opcode.value("lane-operand")
        if not number:
            return False
        operand = instruction.operands[instruction.definitions + int(number)]
        if not operand.is_register or "undef" in operand.flags:
            return False
        keys = self._lanes.keys(operand, instruction)
        return bool(keys) and keys[0] in self._state.numbers

    def _is_inhabited(self, source: Source) -> bool:
        """Whether a mask is known not to be empty (10.5)."""
        return source.mask in self._state.nonempty or source.constant is True or (source.exec and self._state.some)

    def _assign(self, operand: Operand, instruction: Instruction, operation: str, a: Source, b: Source) -> int:
        """A register holds the mask ``operation(a, b)``; returns its number, or -1 for a register that cannot."""
        keys = self._lanes.keys(operand, instruction) if operand.is_register else ()
        if not keys or not self._is_whole(keys):
            return -1
        mask = a.mask
        if operation or mask < 0:
            mask, self._next = self._next, self._next + 1
            for cls in self._state.classes:
                value = True if cls.kind == "P" else OPERATIONS[operation](a.of(cls), b.of(cls))
                if value is not None:
                    cls.put(mask, inside=value)
            if self._leaves_some(operation, a, b):
                self._state.nonempty.add(mask)
            if self._holds_first(operation, a, b):
                self._state.firsts.add(mask)
        self._state.masks.update((key, (mask, k)) for k, key in enumerate(keys))
        return mask

    def _leaves_some(self, operation: str, a: Source, b: Source) -> bool:
        """Whether ``operation(a, b)`` is known not to be empty (10.5)."""
        if self._state.some and self._holds_first(operation, a, b):
            return True
        beside = any(x.exec and y.mask in self._state.beside for x, y in ((a, b), (b, a)))
        return (operation in ("", "OR") and self._is_inhabited(a)) or (
            operation == "OR" and (self._is_inhabited(b) or beside)
        )

    def _is_inhabited_by_witness(self) -> bool:
        """Whether all threads of some mask that is not empty are active, or all that entered the function (10.5)."""
        waiting = [cls for cls in self._state.classes if not cls.active]
        entered = all(cls.kind != "T" for cls in waiting)
        return entered or any(all(c.is_in(m) is False for c in waiting) for m in self._state.nonempty)

    def _holds_first(self, operation: str, a: Source, b: Source) -> bool:
        """Whether the first active thread is in ``operation(a, b)``, if some thread is active (10.7)."""
        of_a, of_b = (s.exec or s.mask in self._state.firsts or s.constant is True for s in (a, b))
        if operation == "":
            return of_a
        return (of_a and of_b) if operation == "AND" else (of_a or of_b) if operation == "OR" else False

    def remember_exec(self, names: Sequence[Key]) -> None:
        """These names are the parts of the mask that EXEC is now (8.3)."""
        mask, self._next = self._next, self._next + 1
        for cls in self._state.classes:
            cls.put(mask, inside=cls.active)
        self._state.masks.update((name, (mask, k)) for k, name in enumerate(names))

    def is_exec(self, names: Sequence[Key]) -> bool:
        """Whether these names are the parts of a mask that holds the active threads and no others (8.2)."""
        mask, _ = self._state.masks.get(names[0], (-1, 0))
        parts = all(self._state.masks.get(name) == (mask, k) for k, name in enumerate(names))
        return mask >= 0 and parts and all(c.kind == "P" or c.is_in(mask) is c.active for c in self._state.classes)

    def _split_by(self, mask: int) -> None:
        """Classes of which it is not known whether they are in a mask become two."""
        added: list[ThreadClass] = []
        for cls in self._state.classes:
            if cls.is_in(mask) is None:
                other = cls.split()
                cls.put(mask, inside=True)
                other.put(mask, inside=False)
                added.append(other)
        self._state.classes += added
        self._count()

    def _count(self) -> None:
        if len(self._state.classes) > MOST_CLASSES:
            raise Refused("classes", f"more than {MOST_CLASSES} classes of threads")

    def _set_exec(self, operation: str, a: Source, b: Source) -> None:
        """EXEC becomes ``operation(a, b)`` (10.4)."""
        state, compute = self._state, OPERATIONS[operation]
        grows = operation == "OR" and (a.exec or b.exec)
        was_some = state.some
        state.some = self._leaves_some(operation, a, b)
        state.firsts.clear()
        state.first_of.clear()
        if not grows:
            state.numbers.clear()
        state.epoch += 1
        decided: list[tuple[ThreadClass, bool]] = []
        for cls in state.classes:
            if cls.kind == "P":
                continue
            value = compute(a.of(cls), b.of(cls))
            if value is not None:
                decided.append((cls, value))
                continue
            unknown = [s.mask for s in (a, b) if s.mask >= 0 and s.of(cls) is None]
            for part, bit in ((cls, True), (cls.split(), False)):
                result: Truth = None
                if len(unknown) == 1:
                    part.put(unknown[0], inside=bit)
                    result = compute(a.of(part), b.of(part))
                decided.append((part, bit if result is None else result))
        state.classes = [*(c for c in state.classes if c.kind == "P"), *(cls for cls, _ in decided)]
        left = [cls for cls, active in decided if cls.active and not active]
        known = {mask for mask, _ in state.masks.values()} if was_some else set[int]()
        state.beside = {mask for mask in known if all(cls.is_in(mask) for cls in left)}
        for cls, active in decided:
            if active and not cls.active:
                state.wake(cls)
            cls.active = active
            cls.was_active.append(active)
        state.some |= self._is_inhabited_by_witness()
        self._count()
