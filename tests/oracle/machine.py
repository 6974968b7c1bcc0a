"""One side of the machine: what every place holds, and the instructions that one side executes alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from oracle.decode import VIRTUAL, Decoded, Place, UnsupportedCode
from oracle.opcodes import EQUAL
from verilocc_mlir.target.registers import TTMP_BASE, physical_register

Value: TypeAlias = "int | None"
"""16 or 32 bits as a 64-bit hash; None: the pre-RA side leaves it undefined."""
Inputs: TypeAlias = "list[tuple[list[Value] | None, list[list[Value]] | None]]"
"""What an operation reads, operand by operand: the values of scalars, or of vectors a row of threads for each place."""
BITS = (1 << 64) - 1
EXEC = physical_register("exec_lo").units[0]
SCC = physical_register("scc").units[0]
THREADS = 4
EVERY_THREAD = (1 << THREADS) - 1
ACTIVE = [tuple(t for t in range(THREADS) if mask >> t & 1) for mask in range(1 << THREADS)]


def mixed(*parts: object) -> int:
    """A hash of numbers, the same in every process."""
    return hash(parts) & BITS


class Side:
    """State of one side.

    Args:
        seed: both sides start from the machine state that it gives.
        before: this is the pre-RA side, where what nobody wrote is undefined; on the other one it is garbage.
        entry: mask of the threads that enter.
        given: units of VGPRs, AGPRs and SGPRs that hold something when the function begins; None: all of them.
    """

    def __init__(self, seed: int, before: bool, entry: int, given: frozenset[int] | None = None) -> None:
        self.seed = seed
        self.before = before
        self.given = given
        self.scalars: dict[int, Value] = {EXEC: entry, EXEC + 1: 0, EXEC + 2: 0, EXEC + 3: 0}
        self.vectors: dict[int, list[Value]] = {}
        self.lanes: dict[int, dict[int, Value]] = {}
        """Scalars kept in lanes of a vector register beyond the threads that are run."""
        self.lost: dict[int, int] = {}
        """Places that the text calls killed, dead or not live-in, and nobody wrote since; with the mask of threads in
        which later passes may have put something else there: those that were active since, up to the next block that
        declares the place live-in.
        """
        self.growing: set[int] = set()
        """Those of ``lost`` that no block declared live-in since."""
        self._garbage = 0

    @property
    def exec_mask(self) -> int:
        value = self.scalars[EXEC]
        assert value is not None
        return value & EVERY_THREAD

    def garbage(self) -> Value:
        """Something that equals nothing else."""
        if self.before:
            return None
        self._garbage += 1
        return mixed(self.seed, 1, self._garbage)

    def _is_given(self, place: int) -> bool:
        return place < VIRTUAL and (self.given is None or place >= TTMP_BASE or place in self.given)

    def scalar(self, place: int) -> Value:
        value = self.scalars.get(place, -1)
        if value == -1:
            value = mixed(self.seed, 2, place) if self._is_given(place) else self.garbage()
            self.scalars[place] = value
        return value

    def vector(self, place: int) -> list[Value]:
        row = self.vectors.get(place)
        if row is None:
            given = self._is_given(place)
            row = [mixed(self.seed, 3, place, t) if given else self.garbage() for t in range(THREADS)]
            self.vectors[place] = row
        return row

    def lane(self, place: int, lane: int) -> Value:
        """One lane of a vector register."""
        if lane < THREADS:
            return self.vector(place)[lane]
        row = self.lanes.setdefault(place, {})
        if lane not in row:
            row[lane] = self.garbage()
        return row[lane]

    def set_lane(self, place: int, lane: int, value: Value) -> None:
        """Write one lane of a vector register, whether its thread is active or not."""
        if lane < THREADS:
            self.vector(place)[lane] = value
        else:
            self.lanes.setdefault(place, {})[lane] = value

    @property
    def whole_wave(self) -> bool:
        """EXEC holds threads beyond those that are run: whole-wave code."""
        value = self.scalars[EXEC]
        return value is not None and bool(value >> THREADS & 1)

    def spoil(self, place: Place, threads: Sequence[int] | None = None) -> None:
        """The register holds nothing known from here on, in active threads."""
        for unit in place.places:
            self.spoil_unit(unit, place.vector, threads)

    def spoil_unit(self, unit: int, vector: bool, threads: Sequence[int] | None = None) -> None:
        if not vector:
            self.scalars[unit] = self.garbage()
            return
        row = self.vector(unit)
        for t in ACTIVE[self.exec_mask] if threads is None else threads:
            row[t] = self.garbage()

    def undefine_rest(self, place: Place) -> None:
        for unit in place.rest:
            self.spoil_unit(unit, place.vector)

    def alone(self, one: Decoded) -> None:
        """A copy, spill code, an undefined value, or a pure operation.

        Raises:
            UnsupportedCode: it has no meaning.
        """
        if one.kind == "copy":
            self._copy(one)
        elif one.kind == "save":
            register = one.reads[0]
            assert register is not None
            self._move(one.slots, register.places, register, one)
            for extra in one.writes:
                self.spoil(extra)
        elif one.kind == "restore":
            for extra in one.writes[1:]:
                self.spoil(extra)
            self._move(one.writes[0].places, one.slots, one.writes[0], one)
        elif one.kind == "lane":
            self._lane(one)
        elif one.kind == "undefine":
            for place in one.writes:
                self.spoil(place)
                self.undefine_rest(place)
        elif one.kind == "wave":
            self.wave(one, None)
        else:
            self.pure(one, None)

    def _lane(self, one: Decoded) -> None:
        """A scalar into a lane of a vector register, or from there; exact, because it may be a thread mask."""
        lane = next(n for n in one.immediates if n is not None)
        source = one.reads[0]
        if source is None or len(source.places) != len(one.writes[0].places):
            raise UnsupportedCode(f"a lane of an unknown form: {one.source}")
        for x, to in zip(source.places, one.writes[0].places, strict=True):
            value = self.garbage() if source.undef else self.lane(x, lane) if source.vector else self.scalar(x)
            if one.writes[0].vector:
                self.set_lane(to, lane, value)
            else:
                self.scalars[to] = value

    def _copy(self, one: Decoded) -> None:
        to, of = one.writes[0], one.reads[0]
        assert of is not None
        places = of.places
        if len(to.places) == 1 and len(places) == 2:
            places = places[:1]
        if of.vector and not to.vector:
            if self.before:
                raise UnsupportedCode("a copy from a vector to a scalar register")
            self.spoil(to)
        elif of.undef or len(places) != len(to.places):
            if self.before and not of.undef:
                raise UnsupportedCode("a copy between different widths")
            self.spoil(to)
        elif to.vector and not of.vector:
            values = [self.scalar(u) for u in places]
            for unit, value in zip(to.places, values, strict=True):
                row = self.vector(unit)
                for t in ACTIVE[self.exec_mask]:
                    row[t] = value
        else:
            self._move(to.places, places, to, one)
        # What it also reads stays: such an implicit definition only says that the tuple lives on.
        kept = {unit for place in one.reads[1:] if place is not None for unit in place.places}.union(to.places)
        for extra in one.writes[1:]:
            for unit in extra.places:
                if unit not in kept:
                    self.spoil_unit(unit, extra.vector)
        self.undefine_rest(to)

    def _move(self, to: Sequence[int], of: Sequence[int], register: Place, one: Decoded) -> None:
        if len(to) != len(of) or (one.kind == "save" and register.undef):
            for unit in to:
                self.spoil_unit(unit, register.vector)
            return
        if not register.vector:
            values = [self.scalar(u) for u in of]
            for unit, value in zip(to, values, strict=True):
                self.scalars[unit] = value
            return
        threads = range(THREADS) if one.writes_everywhere else ACTIVE[self.exec_mask]
        rows = [tuple(self.vector(u)) for u in of]
        if one.writes_everywhere or self.whole_wave:
            self.lanes.update([(unit, dict(self.lanes.get(u, {}))) for unit, u in zip(to, of, strict=True)])
        for unit, row in zip(to, rows, strict=True):
            own = self.vector(unit)
            for t in threads:
                own[t] = row[t]

    def inputs(self, one: Decoded) -> Inputs:
        """What a pure operation reads, operand by operand: scalars, or one row of threads a place."""
        found: Inputs = []
        for op in one.inputs:
            if op.tied >= 0 and op.tied < len(one.writes) and not op.undef:
                op = one.writes[op.tied]
            if op.undef:
                values = [self.garbage() for _ in op.places]
                found.append((values, None))
            elif op.vector:
                found.append((None, [list(self.vector(u)) for u in op.places]))
            else:
                found.append(([self.scalar(u) for u in op.places], None))
        return found

    def wave(self, one: Decoded, other: Inputs | None) -> Inputs:
        """Compute what depends on EXEC and on all active threads: as ``pure``. A comparison gives one bit a thread;
        every lane of DPP may come from any active thread.
        """
        read = self.inputs(one)
        active = ACTIVE[self.exec_mask]
        rows = [_thread(read, other, t) for t in active]
        defined = None not in rows
        target = one.writes[0]
        for extra in one.writes[1:]:
            self.spoil(extra)
        if target.vector:
            whole = mixed(self.seed, 9, one.shape, self.exec_mask, tuple(rows)) if defined else None
            for k, unit in enumerate(target.places):
                row = self.vector(unit)
                for t in active:
                    row[t] = None if whole is None else mixed(self.seed, 10, one.shape, k, t, whole)
        else:
            equal = EQUAL.match(one.source.opcode)
            bits = 0
            for t, values in zip(active, rows, strict=True):
                half = len(values) // 2 if values is not None else 0
                same = equal and len(read) == 2 and values is not None and values[:half] == values[half:]
                bits |= (1 if same else mixed(self.seed, 8, one.shape, t, values or ()) & 1) << t
            for k, unit in enumerate(target.places):
                value: Value = bits if k == 0 else 0
                self.scalars[unit] = value if defined else None if self.before else self.garbage()
        self.undefine_rest(target)
        return read

    def pure(self, one: Decoded, other: Inputs | None) -> Inputs:
        """Compute a pure operation; ``other`` are the inputs of the same operation on the post-RA side, which say
        what an undefined input is taken to be. Returns the inputs.
        """
        read = self.inputs(one)
        target = one.writes[0]
        own = set(target.places)
        for extra in one.writes[1:]:
            for unit in extra.places:
                if extra.places[0] != SCC and unit not in own:
                    self.spoil_unit(unit, extra.vector)
        if target.vector:
            rows = [self.vector(u) for u in target.places]
            for t in ACTIVE[self.exec_mask]:
                values = _thread(read, other, t)
                for k, row in enumerate(rows):
                    row[t] = None if values is None else mixed(self.seed, 4, one.shape, k, values)
        else:
            values = _thread(read, other, 0) if all(v is not None for v, _ in read) else None
            results = real_values(one, read, other, len(target.places)) if one.real else None
            for k, unit in enumerate(target.places):
                if results is not None:
                    self.scalars[unit] = results[k]
                else:
                    self.scalars[unit] = None if values is None else mixed(self.seed, 4, one.shape, k, values)
                    if values is None and not self.before:
                        self.scalars[unit] = self.garbage()
            bits = one.real.startswith("bits") and results is not None and None not in results
            for extra in one.writes[1:]:
                for k, unit in enumerate(extra.places if extra.places[0] == SCC else ()):
                    value = None if values is None else mixed(self.seed, 5, one.shape, k, values)
                    if bits:
                        value = int(any(results or ()))
                    self.scalars[unit] = self.garbage() if value is None else value
        self.undefine_rest(target)
        return read


def _thread(
    read: Inputs,
    other: Inputs | None,
    thread: int,
) -> tuple[Value, ...] | None:
    """All inputs of one thread; None where one stays undefined."""
    values: list[Value] = []
    for n, (scalars, rows) in enumerate(read):
        row = scalars if rows is None else [r[thread] for r in rows]
        assert row is not None
        if None in row:
            if other is None or n >= len(other):
                return None
            theirs_scalars, theirs_rows = other[n]
            theirs = theirs_scalars if theirs_rows is None else [r[thread] for r in theirs_rows]
            assert theirs is not None
            if len(theirs) != len(row):
                return None
            row = [b if a is None else a for a, b in zip(row, theirs, strict=True)]
        values += row
        values.append(-len(row))
    return tuple(values)


def slice_of(immediate: int, unit: int, grain: int) -> int:
    """Bits of an immediate that a place holds, sign-extended: all ones stay all ones."""
    width = 16 * grain
    part = immediate >> (width * unit) & ((1 << width) - 1)
    return (part - (1 << width) if part >> (width - 1) else part) & BITS


_OPERATIONS = {
    "AND": lambda a, b: a & b,
    "OR": lambda a, b: a | b,
    "XOR": lambda a, b: a ^ b,
    "ANDN2": lambda a, b: a & ~b,
    "ORN2": lambda a, b: a | ~b,
    "ANDN1": lambda a, b: ~a & b,
    "ORN1": lambda a, b: ~a | b,
    "NAND": lambda a, b: ~(a & b),
    "NOR": lambda a, b: ~(a | b),
    "XNOR": lambda a, b: ~(a ^ b),
}


def bitwise(name: str, a: Value, b: Value) -> Value:
    """A bitwise operation; undefined where an input is."""
    return None if a is None or b is None else _OPERATIONS[name](a, b) & BITS


def _of_thread_masks(operation: str, rows: list[list[Value]], count: int) -> list[Value] | None:
    """The lowest thread of a mask, and the mask of one thread: how LLVM walks over the active threads
    (AMDGPUAtomicOptimizer::buildScanIteratively). None where the inputs are no mask and no thread of those that run.
    """
    if not rows or any(value is None for row in rows[:2] for value in row):
        return None
    low, *high = rows[0]
    assert low is not None
    if any(high) or low > EVERY_THREAD:
        return None
    if operation == "first":
        thread = (low & -low).bit_length() - 1 if low else BITS
        return [thread, *([0 if low else BITS] * (count - 1))]
    thread = rows[1][0] if len(rows) > 1 else None
    if low != 1 or thread is None or thread >= THREADS:
        return None
    return [1 << thread, *([0] * (count - 1))]


def real_values(
    one: Decoded,
    read: Inputs,
    other: Inputs | None,
    count: int,
) -> list[Value] | None:
    """The result of a scalar operation that thread masks go through; None where it is not of the plain form."""
    rows: list[list[Value]] = []
    registers = iter(range(len(read)))
    grain = 64 // (16 * count) if one.source.opcode.find("64") >= 0 else 32 // (16 * count)
    for place, immediate, op in zip(one.reads, one.immediates, one.source.operands, strict=True):
        if immediate is not None:
            rows.append([slice_of(immediate, k, max(grain, 1)) for k in range(count)])
        elif place is not None and not (op.implicit and op.phys.startswith("exec")):
            n = next(registers, -1)
            values = _thread([read[n]], None if other is None or n >= len(other) else [other[n]], 0) if n >= 0 else None
            rows.append([None] * len(place.places) if values is None else list(values[:-1]))
    operation, _, name = one.real.partition(" ")
    if operation in ("first", "shift"):
        return _of_thread_masks(operation, rows, count)
    needed = {"bits": 2, "move": 1, "not": 1, "select": 2}.get(operation, 0)
    if not needed or len(rows) < needed or any(len(r) != count for r in rows[:needed]):
        return None
    if operation == "bits":
        return [bitwise(name, a, b) for a, b in zip(rows[0], rows[1], strict=True)]
    if operation == "not":
        return [None if a is None else ~a & BITS for a in rows[0]]
    if operation == "select":
        condition = rows[2][0] if len(rows) > 2 and rows[2] else None
        if condition is None:
            return list[Value]([None]) * count
        return rows[0] if condition & 1 else rows[1]
    return rows[0]
