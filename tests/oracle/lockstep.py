"""Both sides run in lock step; the first event that reads different values is the answer."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from oracle import exact
from oracle.decode import (
    STACK,
    VIRTUAL,
    Decoded,
    Decoder,
    Place,
    UnsupportedCode,
    has_scalar_registers,
    names_halves,
    place_name,
)
from oracle.dying import Dying, dying
from oracle.machine import ACTIVE, EVERY_THREAD, EXEC, SCC, THREADS, Side, Value, bitwise, mixed, slice_of
from oracle.opcodes import EQUAL, FIRST_LANE
from oracle.pairing import Slot, pair
from oracle.statics import edges_fault, header_fault, implicit_fault, repeated_fault, spill_fault
from verilocc_mlir.errors import VeriloccError
from verilocc_mlir.mir.header import header_field
from verilocc_mlir.mir.model import MachineFunction
from verilocc_mlir.target.callingconv import regmask
from verilocc_mlir.target.registers import SGPR_BASE, SPECIAL_BASE, TTMP_BASE, physical_register

_MAX_EVENTS = 500
_MAX_BLOCKS = 150
_DECLARED = frozenset(u for n in ("vcc", "scc") for u in physical_register(n).units)
_LOST_IN_CALLS = frozenset(u for n in ("vcc", "scc", "m0", "mode") for u in physical_register(n).units)


class _Difference(Exception):
    """Both sides do different things."""


@dataclass(frozen=True)
class Answer:
    """What the oracle saw.

    Attributes:
        differs: in some run an event read another value, or another event was reached.
        where: the event and what differs; the reason where the oracle cannot run the code.
        path: layout positions of the blocks up to there.
        runs: how many runs were made.
        visits: how often each block was entered in all of them, by layout position.
        supported: the oracle could run the code; else it says nothing.
    """

    differs: bool
    where: str = ""
    path: tuple[int, ...] = ()
    runs: int = 0
    visits: Counter[int] = field(default_factory=Counter[int])
    supported: bool = True


class Oracle:
    """Runs one pre-RA function against post-RA functions of it, which are decoded only where they differ.

    Args:
        pre: the function before the phase.
        wave_size: 32 or 64.
        reserved: units that no allocator hands out; they need not be declared live-in.
    """

    def __init__(self, pre: MachineFunction, wave_size: int, reserved: frozenset[int] = frozenset()) -> None:
        self.pre = pre
        self.reserved = reserved
        self.wave_size = wave_size
        self._cache: dict[tuple[int, str], Decoded] = {}
        self._scalar_phase = has_scalar_registers(pre)
        self._is_called = header_field(pre, "isEntryFunction") == "false"
        # Beside an object of unknown size LLVM takes the stack pointer back from the frame pointer.
        pointer = (header_field(pre, "stackPtrOffsetReg") or "").removeprefix("$")
        dynamic = pointer and any("variable-sized" in row.text for row in pre.stack.values())
        self._taken_back = physical_register(pointer).units if dynamic else ()
        self._sides: dict[int, list[list[Decoded]]] = {}
        self._dying: dict[int, Dying] = {}

    def compare(self, post: MachineFunction, runs: int, seed: int = 0, *, flags: bool = False) -> Answer:
        """Run ``post`` against the pre-RA side ``runs`` times, or until they differ.

        Args:
            post: the function after the phase.
            runs: how many runs to make.
            seed: what their machine states and paths come from.
            flags: take the text at its word about liveness: what is killed, dead or not declared live-in is lost.
        """
        visits: Counter[int] = Counter()
        try:
            schedule, grain, targets = self._prepare(post)
            if fault := self._static_fault(post, schedule):
                return Answer(True, fault, (), 0, visits)
            declared = self._declared(post, grain) if flags else None
            for number in range(runs):
                path: list[int] = []
                run = _Run(self, mixed(seed, number), grain, post, declared, self._dying[grain])
                try:
                    run.go(schedule, targets, path)
                except _Difference as difference:
                    visits.update(path)
                    return Answer(True, str(difference), tuple(path), number + 1, visits)
                visits.update(path)
        except (UnsupportedCode, VeriloccError) as error:
            return Answer(False, str(error), (), 0, visits, False)
        return Answer(False, "", (), runs, visits)

    def written(self, post: MachineFunction) -> frozenset[int]:
        """Units of physical registers that a text writes."""
        return frozenset(
            u
            for block in post.blocks
            for instruction in block.instructions
            for op in instruction.all_operands
            if op.is_def and op.phys and op.phys != "noreg"
            for u in physical_register(op.phys).units
        )

    def _static_fault(self, post: MachineFunction, schedule: list[list[Slot]]) -> str:
        """The first fault that no run would show."""
        found = (
            edges_fault(self.pre, post)
            or header_fault(self.pre, post)
            or spill_fault(post)
            or repeated_fault(self.pre, post)
        )
        events = (
            implicit_fault(slot.pre.source, slot.post.source)
            for block in schedule
            for slot in block
            if slot.pre is not None and slot.post is not None and slot.pre.kind == "event" and not slot.mismatch
        )
        return found or next((fault for fault in events if fault), "")

    def given(self, grain: int) -> frozenset[int] | None:
        """Units that hold something when the function begins; None: all, as the caller of a function may want them
        kept.

        What a kernel does not declare live-in is undefined there. Trap and special registers need no declaration.
        """
        if self._is_called:
            return None
        declared = Decoder(self.pre, grain, self.wave_size).live_ins(self.pre.blocks[0])
        declared |= {u for row in self.pre.liveins for u in physical_register(row.reg).units}
        return declared | self.reserved

    def _declared(self, post: MachineFunction, grain: int) -> list[tuple[frozenset[int], frozenset[int]]]:
        """Places declared live-in of each block, before and after."""
        left, right = (Decoder(f, grain, self.wave_size) for f in (self.pre, post))
        return [(left.live_ins(a), right.live_ins(b)) for a, b in zip(self.pre.blocks, post.blocks, strict=True)]

    def _prepare(self, post: MachineFunction) -> tuple[list[list[Slot]], int, list[list[int]]]:
        grain = 1 if names_halves(self.pre, post) else 2
        if len(self.pre.blocks) != len(post.blocks):
            raise UnsupportedCode("the blocks do not correspond")
        before = self._sides.get(grain)
        if before is None:
            decoder = Decoder(self.pre, grain, self.wave_size)
            before = [[decoder.decode(i) for i in b.instructions] for b in self.pre.blocks]
            self._sides[grain] = before
        decoder = Decoder(post, grain, self.wave_size)
        salt = hash((grain, str(sorted(post.stack.items())), tuple(b.number for b in post.blocks)))
        after: list[list[Decoded]] = []
        for block in post.blocks:
            row: list[Decoded] = []
            for instruction in block.instructions:
                key = (salt, instruction.render())
                found = self._cache.get(key)
                if found is None:
                    found = self._cache[key] = decoder.decode(instruction)
                row.append(found)
            after.append(row)
        position = {b.number: n for n, b in enumerate(self.pre.blocks)}
        targets = [[position[s] for s, _ in b.successors] for b in self.pre.blocks]
        if grain not in self._dying:
            self._dying[grain] = dying(before, targets)
        return [pair(a, b) for a, b in zip(before, after, strict=True)], grain, targets


class _Run:
    """One run: a machine state, a mask of threads that enter, and a path."""

    def __init__(
        self,
        oracle: Oracle,
        seed: int,
        grain: int,
        post: MachineFunction,
        declared: list[tuple[frozenset[int], frozenset[int]]] | None,
        ends: Dying,
    ) -> None:
        self.declared = declared
        self.dying = ends
        self.seed = seed
        self.grain = grain
        self.entry = (seed >> 7) % EVERY_THREAD + 1 if seed & 3 else EVERY_THREAD
        self.pre = Side(seed, True, self.entry, oracle.given(grain))
        self.post = Side(seed, False, self.entry)
        self.events = 0
        self.oracle = oracle
        self.kept = _kept(post)
        # Callee-saved scalars that this function never writes: no later pass may, since none is saved any more.
        self.callers = frozenset[int]()
        if oracle._is_called and not oracle._scalar_phase:
            self.callers = regmask("csr_amdgpu") - oracle.written(post)

    def go(self, schedule: list[list[Slot]], targets: list[list[int]], path: list[int]) -> None:
        block = 0
        while len(path) < _MAX_BLOCKS and self.events < _MAX_EVENTS:
            if path:
                self.forget(u for u in (*self.pre.scalars, *self.pre.vectors) if u not in self.dying.live_in[block])
            if self.declared is not None and path:
                self.enter(*self.declared[block])
            path.append(block)
            chosen = -1
            for slot in schedule[block]:
                if self.declared is not None:
                    self.begin(slot)
                mask = self.pre.exec_mask
                if slot.post is not None:
                    self.waiting_in_caller(slot.post)
                self.step(slot)
                if slot.pre is not None:
                    self.forget(self.dying.after.get(id(slot.pre), ()), mask)
                    self.wake(slot.pre, self.pre.exec_mask & ~mask)
                if self.declared is not None:
                    self.end(slot, mask)
                if slot.pre is not None and slot.pre.targets:
                    chosen = self.branch(slot.pre)
                    if chosen >= 0:
                        break  # what follows is on the other edge
            if not targets[block]:
                self.leave()
                return
            if chosen < 0:
                chosen = block + 1
            if chosen not in targets[block]:
                chosen = targets[block][mixed(self.seed, 9, len(path)) % len(targets[block])]
            block = chosen

    def forget(self, units: Iterable[int], mask: int | None = None) -> None:
        """A virtual register that nobody reads any more before it is written again is nowhere, in active threads.

        A later ``v_readlane`` may still read the lane of a thread that has left: LLVM keeps nothing for it.
        """
        threads = ACTIVE[self.pre.exec_mask if mask is None else mask]
        for unit in [u for u in units if VIRTUAL <= u < STACK]:
            self.pre.spoil_unit(unit, unit in self.pre.vectors, threads)

    def wake(self, one: Decoded, threads: int) -> None:
        """Threads become active: for them too, what nobody reads any more is nowhere from here on."""
        live = self.dying.live_after.get(id(one))
        if threads and live is not None:
            self.forget((u for u in (*self.pre.scalars, *self.pre.vectors) if u not in live), threads)

    def enter(self, before: frozenset[int], after: frozenset[int]) -> None:
        """What a block does not declare live-in is lost in the threads that enter it (a thread that waits keeps its
        lanes: what later passes put there is written under EXEC); reserved and special registers need no declaration.

        What it declares is there from here on: later passes take liveness at a block's end from what its successors
        declare, and may use a register only between a kill and that end.
        """
        kept = self.kept | self.oracle.reserved | self.callers
        for side, declared in ((self.pre, before), (self.post, after)):
            side.growing -= declared
            for unit in (*side.scalars, *side.vectors):
                if (unit < SPECIAL_BASE or unit in _DECLARED) and unit not in declared and unit not in kept:
                    side.lost[unit] = side.lost.get(unit, 0) | side.exec_mask
                    side.growing.add(unit)

    def begin(self, slot: Slot) -> None:
        """What is read although it was lost is garbage."""
        for side, one in ((self.pre, slot.pre), (self.post, slot.post)):
            if one is not None and side.lost:
                for unit, vector in one.read_places:
                    if unit in side.lost:
                        self.spoil_lost(side, unit, vector)

    def spoil_lost(self, side: Side, unit: int, vector: bool) -> None:
        side.spoil_unit(unit, vector, ACTIVE[side.lost.pop(unit)])

    def end(self, slot: Slot, mask: int) -> None:
        """What is written is there again; what is killed or dead is lost, but for registers that are set aside: LLVM
        gives their flags no meaning (RegScavenger::forward, LivePhysRegs). ``mask`` is EXEC before the instruction.
        """
        for side, one in ((self.pre, slot.pre), (self.post, slot.post)):
            if one is None:
                continue
            if not one.targets:
                for unit in side.growing & side.lost.keys():
                    side.lost[unit] |= mask
            for unit, _ in one.written_places:
                side.lost.pop(unit, None)
            for unit, _ in one.ended:
                if (unit < SPECIAL_BASE or unit in _DECLARED) and unit not in self.oracle.reserved:
                    side.lost[unit] = mask
                    side.growing.add(unit)

    def step(self, slot: Slot) -> None:
        a, b = slot.pre, slot.post
        if slot.mismatch:
            raise _Difference(f"{b.source if b else 'nothing'} in the place of {a.source if a else 'nothing'}")
        if a is not None and b is not None:
            if a.kind == "event":
                self.event(a, b)
            elif a.kind == "wave":
                self.pre.wave(a, self.post.wave(b, None))
            else:
                self.pre.pure(a, self.post.pure(b, None))
        elif a is not None:
            self.pre.alone(a)
        elif b is not None:
            self.post.alone(b)

    def branch(self, one: Decoded) -> int:
        """Where a branch goes; -1 where it falls through."""
        opcode = one.source.opcode
        target = one.targets[0]
        if opcode == "S_BRANCH":
            return target
        if opcode.startswith("S_CBRANCH_EXEC"):
            return target if (self.post.exec_mask == 0) == (opcode == "S_CBRANCH_EXECZ") else -1
        if opcode.startswith("S_CBRANCH_VCC"):
            units = physical_register("vcc_lo" if self.oracle.wave_size == 32 else "vcc").units
            zero = not any(self.post.scalar(u) for u in units[:: self.grain])
            return target if zero == (opcode == "S_CBRANCH_VCCZ") else -1
        if opcode.startswith("S_CBRANCH_SCC"):
            value = self.post.scalar(SCC)
            assert value is not None
            return target if (value & 1) == int(opcode[-1]) else -1
        raise UnsupportedCode(f"a branch the oracle does not take: {one.source}")

    def waiting_in_caller(self, one: Decoded) -> None:
        """Where EXEC holds every thread, a called function writes for those that wait in its caller too: only registers
        that its prologue saves for all of them (wwmReservedRegs).
        """
        if not self.oracle._is_called or not self.post.whole_wave or one.kind == "nothing":
            return
        for unit, vector in one.written_places:
            if vector and unit < VIRTUAL and unit not in self.kept:
                raise _Difference(f"{place_name(unit)} is written for threads that wait in the caller at {one.source}")

    def leave(self) -> None:
        """What a called function must have kept: scalar registers are saved before vector registers are allocated."""
        if not self.oracle._is_called or self.oracle._scalar_phase:
            return
        for unit in sorted(regmask("csr_amdgpu").difference(self.oracle._taken_back)):
            if SGPR_BASE <= unit < TTMP_BASE and (unit in self.pre.scalars or unit in self.post.scalars):
                a, b = self.pre.scalar(unit), self.post.scalar(unit)
                if a is not None and a != b:
                    raise _Difference(f"callee-saved unit {unit} is not what it was")

    def event(self, a: Decoded, b: Decoded) -> None:
        self.events += 1
        if self.pre.exec_mask != self.post.exec_mask:
            raise _Difference(f"EXEC differs at {b.source}")
        active = ACTIVE[self.pre.exec_mask]
        readers = ACTIVE[self.pre.exec_mask | self.entry] if a.everywhere else active
        if not readers and a.source.opcode.startswith("V_READFIRSTLANE"):
            readers = (0,)  # ISA manuals, V_READFIRSTLANE_B32: lane 0 where EXEC is zero
        sides = (self.pre, a), (self.post, b)
        lane = exact.one_lane(self.post, b)
        if lane is not None:
            # One thread's lane is read or written, and a V_WRITELANE passes the others on.
            readers = (lane,) if a.source.opcode.startswith("V_READ") else ()
        written_early = {u for w in b.writes if w.early for u in w.places}
        wide = exact.upper_addends(sides)
        old = exact.kept_lanes(sides) if lane is not None and not readers else []
        real: list[list[Value]] = []
        for n, left in enumerate(a.reads):
            if left is None:
                immediate = a.immediates[n] if n < len(a.immediates) else None
                if immediate is not None:
                    real.append([slice_of(immediate, k, self.grain) for k in range(4 // self.grain)])
                continue
            right = left if left.fixed and left.implicit else b.reads[n] if n < len(b.reads) else None
            if n == 2 and wide is not None and right is not None:
                left, right = exact.lower_half(left), exact.lower_half(right)
            real.append(self.read(left, right, a, b, exact.selected(self.post, b, n, readers), written_early))
        self.results(a, b, active, real)
        if lane is not None and not readers:
            exact.pass_on(sides, old, lane)
        if wide is not None:
            exact.upper_results(sides, active, *wide)

    def read(
        self,
        left: Place,
        right: Place | None,
        a: Decoded,
        b: Decoded,
        readers: tuple[int, ...] | range,
        early: set[int],
    ) -> list[Value]:
        """Compare one operand; the values that the post-RA side reads, of scalars."""
        if right is not None and 0 <= left.tied < len(b.writes):
            tied = b.writes[left.tied]
            if right.places != tied.places:
                raise _Difference(f"a tied operand is not in the register of its result at {b.source}")
            early = early.difference(tied.places)
        if left.undef:
            return [] if right is None or right.vector else [self.post.scalar(u) for u in right.places]
        if right is None or left.vector != right.vector or len(left.places) != len(right.places):
            raise _Difference(f"an operand of another kind at {b.source}")
        values: list[Value] = []
        own = {u for w in a.writes if w.early for u in w.places}
        for x, y in zip(left.places, right.places, strict=True):
            lost = right.undef or (y in early and x not in own)
            if left.vector:
                before, after = self.pre.vector(x), self.post.vector(y)
                for t in readers:
                    if before[t] is not None and (lost or before[t] != after[t]):
                        raise _Difference(
                            f"thread {t} reads another value of {place_name(x)} in {place_name(y)} at {b.source}"
                        )
            else:
                value = self.pre.scalar(x)
                if value is not None and (lost or value != self.post.scalar(y)):
                    raise _Difference(f"another value of {place_name(x)} is read in {place_name(y)} at {b.source}")
                values.append(self.post.scalar(y))
        return values

    def results(self, a: Decoded, b: Decoded, active: tuple[int, ...], real: list[list[Value]]) -> None:
        if a.preserved is not None:
            self.call(a.preserved, active)
        exec_before = [self.post.scalar(EXEC + k) for k in range(0, 4, self.grain)]
        known = self.known(a, real, exec_before)
        threads = range(THREADS) if a.writes_everywhere else active
        right_writes = self.matching(a, b)
        covered = {u for w in right_writes for u in w.places}
        for extra in b.writes:
            if extra not in right_writes:
                for unit in extra.places:
                    if unit not in covered and not EXEC <= unit < EXEC + 4:
                        self.post.spoil_unit(unit, extra.vector)
        for d, left in enumerate(a.writes):
            right = right_writes[d] if d < len(right_writes) else None
            self.pre.undefine_rest(left)
            touches_exec = any(EXEC <= u < EXEC + 4 for u in left.places)
            if touches_exec and left.implicit and known is None and not a.source.opcode.startswith("V_CMPX"):
                raise UnsupportedCode(f"EXEC gets a value the oracle does not know: {a.source}")
            for k, unit in enumerate(left.places):
                at = right.places[k] if right is not None and k < len(right.places) else None
                if left.vector:
                    row = self.pre.vector(unit)
                    theirs = self.post.vector(at) if at is not None else None
                    for t in threads:
                        row[t] = mixed(self.seed, 6, self.events, d, k, t)
                        if theirs is not None:
                            theirs[t] = row[t]
                    continue
                value: Value = mixed(self.seed, 7, self.events, d, k)
                source = b.reads[0] if FIRST_LANE.match(a.source.opcode) else None
                if source is not None and k < len(source.places):
                    value = self.post.vector(source.places[k])[active[0] if active else 0]
                if a.mask_result and len(left.places) * self.grain * 16 == self.oracle.wave_size:
                    value = mixed(self.seed, 8, self.events, d) & _mask(active) if k == 0 else 0
                    if k == 0 and EQUAL.match(a.source.opcode):
                        value |= _mask(tuple(t for t in active if exact.equal(self.post, b, t)))
                if touches_exec and a.source.opcode.startswith("V_CMPX"):
                    value = mixed(self.seed, 8, self.events, 0) & _mask(active) if k == 0 else 0
                elif known is not None and (known_value := known(left, k)) is not None:
                    value = known_value
                elif touches_exec:
                    raise UnsupportedCode(f"EXEC gets a value the oracle does not know: {a.source}")
                self.pre.scalars[unit] = value
                if at is not None:
                    self.post.scalars[at] = value

    def matching(self, a: Decoded, b: Decoded) -> list[Place]:
        """Post-RA definitions for the pre-RA ones; implicit fixed ones are what the opcode says, not the text."""
        found: list[Place] = []
        explicit = iter(b.writes[: b.explicit_writes])
        others = [w for w in b.writes[b.explicit_writes :] if not (w.fixed and w.implicit)]
        waiting = iter(others)
        for n, left in enumerate(a.writes):
            if n < a.explicit_writes:
                right = next(explicit, None)
            elif left.fixed and left.implicit:
                right = left
            else:
                right = next(waiting, None)
            found.append(right if right is not None else Place((), left.vector))
        return found

    def known(
        self, a: Decoded, real: list[list[Value]], exec_before: list[Value]
    ) -> Callable[[Place, int], Value] | None:
        """Results of scalar operations on masks, which must be computed for real."""
        operation, _, name = a.real.partition(" ")
        if not operation:
            return None

        def value(left: Place, k: int) -> Value:
            is_exec = EXEC <= left.places[k] < EXEC + 4
            if operation in ("save", "enter"):
                if not is_exec:
                    return exec_before[k] if left.places[0] != SCC else None
                n = (left.places[k] - EXEC) // self.grain
                if operation == "enter":
                    return -1 & ((1 << 64) - 1)
                if n >= len(real[0]):
                    return exec_before[n]
                return bitwise(name, real[0][n], exec_before[n])
            if left.places[0] == SCC:
                return None
            if len(real) < (2 if operation == "bits" else 1) or any(k >= len(row) for row in real[:2]):
                return None
            if operation == "bits":
                return bitwise(name, real[0][k], real[1][k])
            if operation == "not":
                return bitwise("XOR", real[0][k], (1 << 64) - 1)
            if operation == "move":
                return real[0][k]
            return None

        return value

    def call(self, preserved: frozenset[int], active: tuple[int, ...]) -> None:
        """What a call does not preserve is undefined after it, in active threads."""
        for side in (self.pre, self.post):
            for table, vector in ((side.scalars, False), (side.vectors, True)):
                for unit in list(table):
                    if self._lost(unit, preserved):
                        side.spoil_unit(unit, vector, active)

    def _lost(self, unit: int, preserved: frozenset[int]) -> bool:
        if unit >= SPECIAL_BASE:
            return unit in _LOST_IN_CALLS
        return unit not in preserved and unit not in self.kept


def _kept(function: MachineFunction) -> frozenset[int]:
    """Registers that the header sets aside: they hold what they held."""
    found: set[int] = set()
    for key in ("stackPtrOffsetReg", "frameOffsetReg", "scratchRSrcReg", "sgprForEXECCopy", "longBranchReservedReg"):
        name = (header_field(function, key) or "").removeprefix("$")
        if name and name != "noreg":
            found.update(physical_register(name).units)
    for n, line in enumerate(function.header_lines):
        if line.strip().startswith("wwmReservedRegs:"):
            for row in function.header_lines[n + 1 :]:
                if match := re.match(r" +- '\$(\w+)'", row):
                    found.update(physical_register(match[1]).units)
                else:
                    break
    return frozenset(found)


def _mask(threads: tuple[int, ...]) -> int:
    return sum(1 << t for t in threads)
