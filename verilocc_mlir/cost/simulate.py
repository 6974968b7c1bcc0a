"""In-order issue of one wave: how long a block takes, and what it waits for; the matrix unit above all.

An instruction issues when its slot comes, its unit is free and its operands are there. A wait holds until the counted
accesses are done. Other waves are not modelled here; the kernel's total takes them into account.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from enum import Enum, IntEnum
from functools import lru_cache

from msgspec import Struct, field

from verilocc_mlir.cost.assembly import Block
from verilocc_mlir.cost.instructions import Instruction, Kind, Rate, is_vector, units
from verilocc_mlir.cost.memory import counters, dwords, waits
from verilocc_mlir.cost.rates import Figure, Origin, Rates, Source, rates, sourced
from verilocc_mlir.cost.unhidden import Unhidden
from verilocc_mlir.target.targets import SpeedModel, Target

# Matrix instructions: how long they hold their unit, and how far a use must be from them.
#
# Passes are LLVM's (SISchedule.td, the HWXDL cycles of SIDPFullSpeedModel and SIDPGFX940FullSpeedModel), four cycles
# each. Distances are LLVM's wait states (GCNHazardRecognizer.cpp, checkMAIHazards90A and checkMAIVALUHazards), the
# number of instruction slots between the two. LLVM 22 fills them with s_nop; the tests compare the numbers.


_MFMA = re.compile(
    r"v_(?P<sparse>s)?mfmac?_(?:scale_)?(?P<result>f32|f64|i32)_(?P<m>4|16|32)x\d+x(?P<k>\d+)_?(?P<blocks>\d+b)?_?(?P<source>\w+?)(?:_e64)?$"
)
_WMMA = re.compile(r"v_(?P<sparse>s?w)mma[c]?_(?:scale16_|scale_)?(?P<result>\w+?)_16x16x(?P<k>\d+)_(?P<source>\w+)$")
_HAZARDS = "GCNHazardRecognizer.cpp, checkMAIHazards90A and checkMAIVALUHazards"
_PASSES = Figure(4, Source(Origin.LLVM, "SISchedule.td, a pass is a slot"))
_BEFORE = Figure(2, Source(Origin.LLVM, "GCNHazardRecognizer.cpp, checkMAIHazards90A, LegacyVALUNotDotWritesVGPR"))
FIGURES = {"cycles of a pass": _PASSES, "wait states from VALU to MFMA": _BEFORE}
CYCLES_PER_PASS = _PASSES.value
VALU_BEFORE_MFMA = _BEFORE.value
"""Wait states between a VALU write and an MFMA that reads it."""


class Use(Enum):
    """What a later instruction does with a register that an MFMA writes (``OVERWRITE_C``: reads as its addend)."""

    ADDEND = "C"
    FACTOR = "A or B"
    VALU = "VALU read"
    MEMORY = "memory read"
    WRITE = "overwrite"
    OVERWRITE_C = "overwrite of C"


class Mfma(Struct, frozen=True):
    """One MFMA or SMFMAC.

    Attributes:
        passes: passes through the matrix unit, four cycles each.
        is_double: its operands are f64 (LLVM's DGEMM).
        is_xdl: it runs on the XDL unit: not f64 and, from gfx942 on, not f32 operands (LLVM's isXDL).
        is_small: a 4x4 form.
    """

    passes: int
    is_double: bool
    is_xdl: bool
    is_small: bool


@sourced(Origin.LLVM, "SISchedule.td, HWXDL cycles; tested against llvm-mca")
def mfma(mnemonic: str, modifiers: str, target: Target) -> Mfma | None:
    """The MFMA that ``mnemonic`` is, or None.

    On gfx950 the f8f6f4 forms take twice as long where an operand is 8 bits wide (``cbsz`` or ``blgp`` below 2).
    """
    match = _MFMA.match(mnemonic)
    if match is None:
        return None
    rows, source = int(match["m"]), match["source"]
    if source == "f64":
        return Mfma(4 if rows == 4 else 16 if target.speed_model is SpeedModel.CDNA4 else 8, True, False, rows == 4)
    if rows == 4:
        passes = 2
    elif target.speed_model is SpeedModel.CDNA2:
        passes = rows // 2
    else:
        wide = source == "f32" or match["blocks"] is not None
        if source == "f8f6f4":
            formats = [int(n) for n in re.findall(r"(?:cbsz|blgp):(\d+)", modifiers)]
            wide = len(formats) < 2 or min(formats) < 2
        passes = rows // 2 if wide else rows // 4
    is_xdl = target.speed_model is SpeedModel.CDNA2 or source != "f32"
    return Mfma(passes, False, is_xdl, rows == 4)


@sourced(Origin.LLVM, f"{_HAZARDS}; tested against the s_nops of llc")
def wait_states(first: Mfma, use: Use, target: Target, *, same: bool = False, then: Mfma | None = None) -> int:
    """Instruction slots that must lie between ``first`` and a use of its result.

    Args:
        first: the MFMA that wrote the register, or that reads it as its addend (``Use.OVERWRITE_C``).
        use: what the later instruction does with it.
        target: one with MFMA.
        same: for ``Use.ADDEND``: the later addend is exactly the register tuple that ``first`` wrote.
        then: the later MFMA, for ``Use.ADDEND``.
    """
    if use is Use.OVERWRITE_C:
        return _overwrite_addend(first)
    if use is Use.ADDEND:
        assert then is not None
        return _addend(first, then, target, same)
    if first.is_double:
        return _double_read(first, use)
    return first.passes + _tail(first, target) + 2


@sourced(Origin.LLVM, _HAZARDS)
def _tail(first: Mfma, target: Target) -> int:
    """Wait states that XDL units need beyond those of gfx942's f32 unit: one; on gfx950 two, except for 4x4."""
    if not first.is_xdl:
        return 0
    return 2 if target.speed_model is SpeedModel.CDNA4 and first.passes != 2 else 1


@sourced(Origin.LLVM, _HAZARDS)
def _addend(first: Mfma, then: Mfma, target: Target, same: bool) -> int:
    if first.is_double:
        if not then.is_double and (target.speed_model is SpeedModel.CDNA2 or (not same and then.is_xdl)):
            return 0
        if same:
            return 4 if first.is_small and then.is_double and then.is_small else 0
        return 4 if first.is_small else first.passes + 1
    if same:
        return 2 if target.speed_model is not SpeedModel.CDNA2 and first.passes == 2 else 0
    if target.speed_model is SpeedModel.CDNA2:
        return first.passes + (1 if then.is_double else 0)
    if then.is_xdl and not first.is_xdl:
        return 0
    both_xdl = first.is_xdl and then.is_xdl
    return first.passes + (2 if both_xdl and target.speed_model is SpeedModel.CDNA4 else _tail(first, target))


@sourced(Origin.LLVM, _HAZARDS)
def _double_read(first: Mfma, use: Use) -> int:
    if first.is_small:
        return 9 if use is Use.MEMORY else 6
    if use is Use.MEMORY:
        return 18
    return 11 if use is Use.WRITE else first.passes + 3


@sourced(Origin.LLVM, _HAZARDS)
def _overwrite_addend(first: Mfma) -> int:
    if first.is_double or not first.is_xdl:
        return 0
    return first.passes - 1


def wmma_cycles(mnemonic: str, target: Target) -> int:
    """Cycles for which a WMMA or SWMMAC of one wave holds the matrix unit."""
    match = _WMMA.match(mnemonic)
    if match is None:
        return 0
    if target.speed_model is SpeedModel.GFX1250:
        return _wmma_gfx1250(match["source"])
    return _wmma_rdna(match, target)


@sourced(Origin.LLVM, "SISchedule.td, GFX1250SpeedModel, HWXDL cycles")
def _wmma_gfx1250(source: str) -> int:
    return 16 if source in ("iu8", "f32") else 8


@sourced(Origin.ASSUMED, "published peak rates: 512 and 1,024 f16 operations a cycle and CU of two SIMDs")
def _wmma_rdna(match: re.Match[str], target: Target) -> int:
    source, depth = match["source"], int(match["k"])
    if match["sparse"] == "sw":
        depth //= 2
    operations = 16 * 16 * depth * 2
    per_cycle = 256
    if target.major >= 12:
        per_cycle = 1024 if source in ("iu8", "fp8_fp8", "fp8_bf8", "bf8_fp8", "bf8_bf8") else 512
        per_cycle = 2048 if source == "iu4" else per_cycle
    elif source == "iu4":
        per_cycle = 512
    return operations // per_cycle


class Time(Struct):
    """Cycles of one block, or of several.

    Attributes:
        total: from its first issue to the issue slot after its last.
        waits: stalled at ``s_wait*``.
        dependencies: stalled for a result or an overwrite.
        busy: stalled for a unit that is in use.
        hazards: ``s_nop`` and ``v_nop``.
        branches: taken branches, from the branch to its target.
    """

    total: float = 0.0
    waits: float = 0.0
    dependencies: float = 0.0
    busy: float = 0.0
    hazards: float = 0.0
    branches: float = 0.0

    def add(self, other: Time, times: float) -> None:
        """Add ``other``, executed ``times`` times."""
        self.total += times * other.total
        self.waits += times * other.waits
        self.dependencies += times * other.dependencies
        self.busy += times * other.busy
        self.hazards += times * other.hazards
        self.branches += times * other.branches


class Work(Struct, frozen=True):
    """Cycles for which one execution of an instruction uses each unit."""

    valu: float = 0
    matrix: float = 0
    lds: float = 0
    vmem: float = 0
    salu: float = 0


class _Timed(Struct, frozen=True):
    """An instruction with all that the simulation needs to know of it."""

    kind: Kind
    defs: tuple[int, ...]
    uses: tuple[int, ...]
    issue: float
    latency: float
    work: Work
    counters: tuple[str, ...]
    waits: tuple[tuple[str, int], ...]
    mfma: Mfma | None
    addend: tuple[int, ...]
    idle: float


@lru_cache(maxsize=1 << 16)
def timed(instruction: Instruction, target: Target) -> _Timed:
    speed = rates(target)
    kind = instruction.kind
    work = work_of(instruction, target)
    issue, latency = 0.0, 0.0
    matrix: Mfma | None = None
    addend: tuple[int, ...] = ()
    if kind is Kind.VALU:
        issue, latency = speed.valu_issue[instruction.rate], speed.valu_latency[instruction.rate]
    elif kind is Kind.MFMA:
        matrix = mfma(instruction.base, instruction.modifiers, target)
        issue, latency = work.matrix, speed.slot
        addend = _addend_registers(instruction)
    elif kind is Kind.WMMA:
        issue, latency = work.matrix, work.matrix + speed.valu_latency[Rate.FULL]
    elif kind is Kind.SALU:
        latency = speed.scalar_float_latency if instruction.rate is Rate.FLOAT else speed.salu_latency
    idle = int(instruction.operands[0], 0) + 1 if instruction.base == "s_nop" else 1
    return _Timed(
        kind,
        instruction.defs,
        tuple(dict.fromkeys(instruction.uses)),
        issue,
        latency,
        work,
        counters(instruction, target.major),
        waits(instruction.text) if kind is Kind.WAIT else (),
        matrix,
        addend,
        idle * speed.slot,
    )


def _addend_registers(instruction: Instruction) -> tuple[int, ...]:
    """Registers of an MFMA's C. An SMFMAC adds to its destination."""
    if instruction.base.startswith("v_smfmac"):
        return units(instruction.operands[0])
    return units(instruction.operands[3].split(" ")[0]) if len(instruction.operands) > 3 else ()


def work_of(instruction: Instruction, target: Target) -> Work:
    """Cycles for which ``instruction`` keeps each unit busy.

    The SIMDs of a CU share LDS and the vector cache. All SIMDs are taken to be busy, so each gets its share
    (``rates.py``).
    """
    speed = rates(target)
    kind = instruction.kind
    if kind is Kind.VALU:
        return Work(valu=speed.valu_issue[instruction.rate])
    if kind is Kind.MFMA:
        shape = mfma(instruction.base, instruction.modifiers, target)
        return Work(matrix=CYCLES_PER_PASS * shape.passes if shape else 0)
    if kind is Kind.WMMA:
        return Work(matrix=wmma_cycles(instruction.base, target))
    if kind is Kind.LDS:
        return Work(lds=max(4 * dwords(instruction.base) * target.wave_size / speed.lds_bytes_per_cycle, 1))
    if kind is Kind.VMEM:
        return Work(vmem=max(4 * dwords(instruction.base) * target.wave_size / speed.vmem_bytes_per_cycle, 1))
    if kind is Kind.SALU:
        return Work(salu=speed.slot)
    return Work()


class Unit(IntEnum):
    """Units that an instruction may have to wait for."""

    VALU = 0
    MATRIX = 1
    LDS = 2
    VMEM = 3
    SCALAR_CACHE = 4


class State(Struct):
    """The machine between two blocks. Times count from the start of the next block.

    Attributes:
        writers: for each register, when the instruction that last wrote it issued, and that instruction.
        readers: for each VGPR, when it was last read; only on targets where LDS loads wait for readers.
        addends: for each register that an MFMA reads as C, when that MFMA issued, and the MFMA.
        free: when each unit is free.
        pending: for each counter, the times at which outstanding accesses are done, oldest first.
    """

    writers: dict[int, tuple[float, _Timed]] = field(default_factory=dict[int, "tuple[float, _Timed]"])
    readers: dict[int, float] = field(default_factory=dict[int, float])
    addends: dict[int, tuple[float, Mfma]] = field(default_factory=dict[int, "tuple[float, Mfma]"])
    free: list[float] = field(default_factory=lambda: [0.0] * len(Unit))
    pending: dict[str, list[float]] = field(default_factory=dict[str, "list[float]"])

    def after(self, cycles: float) -> State:
        """The same state with times counted from ``cycles`` later; what is long past is left out."""
        horizon = cycles - _HORIZON
        return State(
            {u: (t - cycles, w) for u, (t, w) in self.writers.items() if t > horizon},
            {u: t - cycles for u, t in self.readers.items() if t > horizon},
            {u: (t - cycles, m) for u, (t, m) in self.addends.items() if t > horizon},
            [t - cycles for t in self.free],
            {name: [t - cycles for t in times] for name, times in self.pending.items()},
        )


_HORIZON = 160
"""More cycles than any latency for which an instruction waits for a register."""
_UNIT = {Kind.VALU: Unit.VALU, Kind.MFMA: Unit.MATRIX, Kind.WMMA: Unit.MATRIX}


def run_block(
    block: Block, target: Target, state: State, unhidden: Unhidden, slower: Mapping[int, float], *, taken: bool
) -> tuple[Time, State]:
    """Issue the instructions of ``block`` from ``state``.

    Args:
        slower: how many times as long accesses take, by their position (``accesses.py``).
        unhidden: says what is an access to private memory, and how long it takes.
        taken: the block's branch goes elsewhere than to the next block.

    Returns:
        the cycles of the block, and the state after it.
    """
    speed = rates(target)
    time = Time()
    now = 0.0
    for place, instruction in enumerate(block.instructions):
        current = timed(instruction, target)
        if current.kind is Kind.FREE:
            continue
        if current.kind is Kind.NOP:
            now += current.idle
            time.hazards += current.idle
            continue
        if current.kind is Kind.WAIT:
            waited_until = _wait_end(current.waits, state)
            if waited_until > now:
                time.waits += waited_until - now
                now = waited_until
            now += speed.slot
            continue
        ready = _ready(current, state, speed, target)
        if ready > now:
            time.dependencies += ready - now
            now = ready
        unit = _UNIT.get(current.kind)
        if unit is not None and state.free[unit] > now:
            time.busy += state.free[unit] - now
            now = state.free[unit]
        access = _memory_unit(instruction, current, speed, unhidden) if current.counters else None
        if access is not None and place in slower:
            access = access[0], access[1] * slower[place], access[2]
        _issue(current, now, state, speed, access)
        now += speed.slot
    if taken:
        time.branches += speed.taken_branch
        now += speed.taken_branch
    time.total = now
    return time, state.after(now)


def _wait_end(wanted: Sequence[tuple[str, int]], state: State) -> float:
    """When the counters are down to the numbers that a wait names."""
    latest = 0.0
    for name, outstanding in wanted:
        times = state.pending.get(name)
        if times and len(times) > outstanding:
            latest = max(latest, max(times[: len(times) - outstanding]))
            del times[: len(times) - outstanding]
    return latest


def _ready(current: _Timed, state: State, speed: Rates, target: Target) -> float:
    """When ``current`` may issue, given what it reads and overwrites."""
    ready = 0.0
    writers = state.writers
    for unit in current.uses:
        writer = writers.get(unit)
        if writer is not None:
            issued, producer = writer
            when = issued + _distance(producer, current, unit, speed, target)
            if when > ready:
                ready = when
    if target.has_agprs:
        for unit in current.defs:
            writer = writers.get(unit)
            if writer is not None and writer[1].mfma is not None and current.mfma is None:
                states = wait_states(writer[1].mfma, Use.WRITE, target)
                ready = max(ready, writer[0] + speed.slot * (states + 1))
            reader = state.addends.get(unit)
            if reader is not None and current.kind is Kind.VALU:
                ready = max(ready, reader[0] + speed.slot * (wait_states(reader[1], Use.OVERWRITE_C, target) + 1))
    if speed.lds_after_read and current.kind is Kind.LDS:
        for unit in current.defs:
            read_at = state.readers.get(unit)
            if read_at is not None:
                ready = max(ready, read_at + speed.lds_after_read)
    return ready


def _distance(producer: _Timed, current: _Timed, unit: int, speed: Rates, target: Target) -> float:
    """Cycles from the issue of ``producer`` to the earliest issue of ``current``, which reads the result ``unit``."""
    first = producer.mfma
    if first is None:
        if current.mfma is not None and producer.kind is Kind.VALU and is_vector(unit):
            return max(producer.latency, speed.slot * (VALU_BEFORE_MFMA + 1))
        return producer.latency
    if current.mfma is not None:
        if unit in current.addend:
            states = wait_states(first, Use.ADDEND, target, same=current.addend == producer.defs, then=current.mfma)
        else:
            states = wait_states(first, Use.FACTOR, target)
    else:
        states = wait_states(first, Use.VALU if current.kind is Kind.VALU else Use.MEMORY, target)
    return speed.slot * (states + 1)


def _issue(current: _Timed, now: float, state: State, speed: Rates, access: tuple[Unit, float, float] | None) -> None:
    """Change ``state`` by the issue of ``current`` at ``now``.

    Args:
        access: of a memory instruction, the unit, for how long it holds it, and how long it takes from then on.
    """
    unit = _UNIT.get(current.kind)
    if unit is not None:
        state.free[unit] = now + current.issue
    if access is not None:
        port, cycles, latency = access
        start = max(now, state.free[port])
        state.free[port] = start + cycles
        for name in current.counters:
            state.pending.setdefault(name, []).append(start + cycles + latency)
        # An s_wait comes before each use of what a load returns, so the register is not tracked.
        for register in current.defs:
            state.writers.pop(register, None)
    else:
        booked = (now, current)
        for register in current.defs:
            state.writers[register] = booked
    if current.mfma is not None:
        for register in current.addend:
            state.addends[register] = (now, current.mfma)
    if speed.lds_after_read:
        for register in current.uses:
            if is_vector(register):
                state.readers[register] = now


def _memory_unit(
    instruction: Instruction, current: _Timed, speed: Rates, unhidden: Unhidden
) -> tuple[Unit, float, float]:
    if current.kind is Kind.LDS:
        return Unit.LDS, current.work.lds, speed.lds_latency
    if current.kind is Kind.SMEM:
        return Unit.SCALAR_CACHE, 0, speed.smem_latency
    if unhidden.is_private(instruction):
        return Unit.VMEM, unhidden.transfer(instruction), unhidden.latency
    return Unit.VMEM, current.work.vmem, speed.load_latency
