"""The cost of a kernel: modelled cycles, and every component that they are made of.

``L`` is the cost of one wave: the sum over blocks of executions times cycles in an in-order issue simulation. A SIMD
runs as many waves at once as registers, LDS and the size of a work-group leave room for, so a wave costs it
``U + max((L - U) / waves, work of the units)`` cycles (``unhidden.py``), where ``U`` is what no other wave hides
(``unhidden.py``), and is in none of the terms behind it.

The cost is modelled, to rank codes of one kernel. How well it ranks measured kernels is in docs/results/ruler.md.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct, field

from verilocc_mlir.cost import counting
from verilocc_mlir.cost.accesses import slower_accesses
from verilocc_mlir.cost.assembly import Function, parse_assembly
from verilocc_mlir.cost.counting import DEFAULT_TRIPS, Flow, control_flow, executions
from verilocc_mlir.cost.instructions import Instruction, Kind
from verilocc_mlir.cost.simulate import State, Time, Work, run_block, work_of
from verilocc_mlir.cost.trips import IrLoop, find_trips
from verilocc_mlir.cost.unhidden import UNITS, Unhidden, group_changes, hidden, total, work
from verilocc_mlir.target.targets import Target
from verilocc_mlir.target.targets import target as by_name

_NO_WORK = (Kind.FREE, Kind.WAIT, Kind.NOP)
MODELLED = "modelled, not measured: use it to rank allocations of one kernel"


class Count(Struct, frozen=True):
    """How often something stands in the code, and how often it is executed by a wave."""

    static: int = 0
    weighted: float = 0.0

    def __add__(self, other: Count) -> Count:
        return Count(self.static + other.static, self.weighted + other.weighted)


class LoopTrips(Struct, frozen=True):
    """One loop of the machine code.

    Attributes:
        label: label of its header.
        ir_name: name of the IR block it comes from, or ``""``.
        depth: 1 for an outermost loop.
        trips: iterations each time it is entered.
        source: ``"ir"`` (constant in the IR), ``"code"`` (constant counter in the machine code), ``"other"`` (that of
            the same loop in the code that it is compared with) or ``"default"``.
        index: of the loop among those of the function (``Flow.loops``).
    """

    label: str
    ir_name: str
    depth: int
    trips: int
    source: str
    index: int = 0


class KernelCost(Struct, frozen=True):
    """Modelled cost of one function. Cycles are those of one wave, every block by how often it runs.

    Attributes:
        name: of the function.
        is_kernel: it is started by a dispatch; a device function is costed without its callees and callers.
        cycles: the total: what a wave costs its SIMD when the SIMD is full of such waves.
        bound: the component that decides the total but for ``unhidden``: ``"latency"``, or of the units the greatest:
            ``"valu"``, ``"mfma"``, ``"lds"``, ``"memory"`` or ``"salu"``.
        unhidden: cycles of private memory, of copies from and to AGPRs and of changes of the register group, which no
            other wave hides.
        latency: L, cycles of one wave from start to end.
        occupancy: waves per SIMD, by the size of a work-group where that is known.
        vectors: vector registers of the wave, AGPRs included where they share the file.
        agprs: how many of these are AGPRs.
        sgprs: scalar registers, VCC and the like included.
        lds_bytes: LDS of a work-group.
        scratch_bytes: private memory of a work-item.
        code_bytes: size of the code; None where the text does not say.
        valu: VALU issue cycles, but for copies from and to AGPRs.
        mfma: cycles of the matrix unit (four a pass; WMMA likewise).
        lds: cycles of the LDS, by this SIMD's share of it.
        memory: cycles of the vector memory path, by this SIMD's share; but for private memory.
        salu: scalar issue cycles.
        waits: cycles of L stalled at ``s_wait*``.
        dependencies: cycles of L stalled for a register.
        busy: cycles of L stalled for the VALU or the matrix unit.
        hazards: cycles of L in ``s_nop`` and ``v_nop``.
        branches: cycles of L from taken branches to their targets.
        issued: instructions executed, without waits, padding and hints, which do no work.
        instructions: all instructions.
        copies: moves between vector registers, or from scalar to vector ones.
        accumulator_copies: moves from or to AGPRs.
        scalar_copies: moves between scalar registers.
        spill_stores: 32-bit registers saved to memory.
        spill_reloads: 32-bit registers reloaded from memory.
        lane_saves: SGPRs saved to VGPR lanes.
        lane_reloads: SGPRs reloaded from VGPR lanes.
        scratch: all accesses to private memory, spills included.
        group_changes: changes of the group of 256 VGPRs that code can name (gfx1250).
        dual: ``v_dual_*`` instructions.
        dual_blocked: neighbours that only their registers keep from being one ``v_dual_*``.
        nops: ``s_nop`` and ``v_nop``.
        bank_conflicts: VALU sources that share a bank (RDNA); part of no total.
        loops: in the order of their headers in the code.
        llvm_occupancy: the occupancy that llc printed; None where it printed none.
    """

    name: str
    target: str
    is_kernel: bool
    cycles: float
    bound: str
    unhidden: float
    latency: float
    occupancy: int
    vectors: int
    agprs: int
    sgprs: int
    lds_bytes: int
    scratch_bytes: int
    code_bytes: int | None
    valu: float
    mfma: float
    lds: float
    memory: float
    salu: float
    waits: float
    dependencies: float
    busy: float
    hazards: float
    branches: float
    issued: float
    instructions: Count
    copies: Count
    accumulator_copies: Count
    scalar_copies: Count
    spill_stores: Count
    spill_reloads: Count
    lane_saves: Count
    lane_reloads: Count
    scratch: Count
    group_changes: Count
    dual: Count
    dual_blocked: Count
    nops: Count
    bank_conflicts: Count
    loops: tuple[LoopTrips, ...] = ()
    llvm_occupancy: int | None = None

    @property
    def spills(self) -> Count:
        """Stores and reloads, to memory and to VGPR lanes."""
        return self.spill_stores + self.spill_reloads + self.lane_saves + self.lane_reloads

    @property
    def bounds(self) -> dict[str, float]:
        """What ``cycles`` is made of, but for ``unhidden``."""
        return {"latency": hidden(self.latency, self.unhidden, self.occupancy), **self.units}

    @property
    def units(self) -> dict[str, float]:
        """Cycles of each unit."""
        return {name: getattr(self, name) for name in UNITS}

    @property
    def work(self) -> float:
        """Cycles that the work of the units takes at least, whatever the order of the instructions."""
        return work(self.units, by_name(self.target))


COUNTS: Mapping[str, str] = {
    "instructions": "instructions",
    "copies": "vector copies",
    "accumulator_copies": "accumulator copies",
    "scalar_copies": "scalar copies",
    "spill_stores": "registers spilled",
    "spill_reloads": "registers reloaded",
    "lane_saves": "SGPRs saved to lanes",
    "lane_reloads": "SGPRs from lanes",
    "scratch": "scratch accesses",
    "group_changes": "register group changes",
    "dual": "dual issues",
    "dual_blocked": "dual issues blocked",
    "nops": "s_nop, v_nop",
    "bank_conflicts": "bank conflicts",
}
"""The fields of ``KernelCost`` that are counts, in order, each with the name that tables show."""


class CostedFile(Struct, frozen=True):
    """The costs of one file.

    Attributes:
        path: its name in messages.
        kind: ``"assembly"``, ``"code object"`` or ``"machine IR"``.
        llvm: version line of the LLVM that was used; ``""`` where none was.
        functions: costs by name, in order.
        notes: limits of the figures, for their reader.
        code: the functions, in order.
        loops: loops of the IR, by function.
    """

    path: str
    kind: str
    target: str
    llvm: str
    functions: Mapping[str, KernelCost]
    notes: tuple[str, ...]
    code: tuple[Function, ...] = ()
    loops: Mapping[str, Sequence[IrLoop]] = field(default_factory=dict[str, Sequence[IrLoop]])


def cost_of_assembly(
    text: str, target: Target, trip_counts: Mapping[str, Sequence[IrLoop]] | None = None, *, where: str = ""
) -> dict[str, KernelCost]:
    """Costs of all functions of llc's assembly text, by name, in order. No tool is run.

    Args:
        text: what ``llc -filetype=asm`` writes.
        target: the GPU it is for.
        trip_counts: loops of the IR by function (``trips.parse_loops``), for their constant trip counts.
        where: the text's name in errors.

    Raises:
        InputError: the text is no AMDGPU assembly, is for another target, is truncated, or has no function.
    """
    return costs(parse_assembly(text, target, where=where), target, trip_counts)


def costs(
    functions: Sequence[Function], target: Target, trip_counts: Mapping[str, Sequence[IrLoop]] | None = None
) -> dict[str, KernelCost]:
    loops_by_function = trip_counts or {}
    return {f.name: cost_of_function(f, target, loops_by_function.get(f.name, ())) for f in functions}


def cost_of_function(
    function: Function,
    target: Target,
    ir_loops: Sequence[IrLoop] = (),
    trips: Mapping[int, tuple[int, str]] | None = None,
) -> KernelCost:
    """The cost of one function.

    Args:
        ir_loops: its loops in the IR.
        trips: iterations of its loops by their index, each with its source (``matching.match``); None: they are looked
            for in the IR and in the code.
    """
    flow = control_flow(function)
    trips_by_loop = find_trips(function, flow, ir_loops) if trips is None else trips
    counts = executions(flow, {k: count for k, (count, _) in trips_by_loop.items()})
    unhidden = Unhidden(function, target)
    slower = slower_accesses(function, flow, target)
    time = _latency(function, flow, counts, target, unhidden, slower)
    units, alone = _work(function, counts, target, unhidden, slower)
    figures = function.figures
    occupancy = figures.occupancy(target)
    counted = Tally(function, counts)
    scratch = counting.Scratch(function, target)
    waiting = hidden(time.total, alone, occupancy)
    bound = "latency" if waiting >= work(units, target) else max(units, key=lambda name: units[name])
    loops = tuple(
        LoopTrips(
            function.blocks[loop.header].label,
            function.blocks[loop.header].ir_name,
            loop.depth,
            *trips_by_loop.get(k, (DEFAULT_TRIPS, "default")),
            k,
        )
        for k, loop in sorted(enumerate(flow.loops.loops), key=lambda numbered: numbered[1].header)
    )
    return KernelCost(
        name=function.name,
        target=target.name,
        is_kernel=figures.is_kernel,
        cycles=total(units, time.total, alone, occupancy, target),
        bound=bound,
        unhidden=alone,
        latency=time.total,
        occupancy=occupancy,
        vectors=figures.vectors or 0,
        agprs=figures.agprs or 0,
        sgprs=figures.sgprs or 0,
        lds_bytes=figures.lds_bytes or 0,
        scratch_bytes=figures.scratch_bytes or 0,
        code_bytes=figures.code_bytes,
        **units,
        waits=time.waits,
        dependencies=time.dependencies,
        busy=time.busy,
        hazards=time.hazards,
        branches=time.branches,
        issued=counted.of(lambda i: int(i.kind not in _NO_WORK)).weighted,
        instructions=counted.of(lambda _: 1),
        copies=counted.of(counting.vector_copies),
        accumulator_copies=counted.of(counting.accumulator_copies),
        scalar_copies=counted.of(counting.scalar_copies),
        spill_stores=counted.of(scratch.stores),
        spill_reloads=counted.of(scratch.reloads),
        lane_saves=counted.of(scratch.lane_saves),
        lane_reloads=counted.of(scratch.lane_reloads),
        scratch=counted.of(scratch.accesses),
        group_changes=counted.of(group_changes),
        dual=counted.of(lambda i: int(i.is_dual)),
        dual_blocked=counted.of_blocks(lambda code: counting.pairs_blocked(code, target)),
        nops=counted.of(lambda i: int(i.kind is Kind.NOP)),
        bank_conflicts=counted.of(lambda i: counting.bank_conflicts(i, target)),
        loops=loops,
        llvm_occupancy=figures.llvm_occupancy,
    )


def tally(function: Function, ir_loops: Sequence[IrLoop] = ()) -> Tally:
    """A ``Tally`` of a function, for rules of one's own."""
    flow = control_flow(function)
    trips = {k: count for k, (count, _) in find_trips(function, flow, ir_loops).items()}
    return Tally(function, executions(flow, trips))


class Tally:
    """Counts over the blocks of a function.

    Args:
        counts: how often each block runs.
    """

    def __init__(self, function: Function, counts: Sequence[float]) -> None:
        self._blocks = [(block.instructions, times) for block, times in zip(function.blocks, counts, strict=True)]

    def of(self, rule: Callable[[Instruction], int]) -> Count:
        """The sum of ``rule`` over instructions."""
        return self.of_blocks(lambda code: sum(map(rule, code)))

    def of_blocks(self, rule: Callable[[Sequence[Instruction]], int]) -> Count:
        """The sum of ``rule`` over blocks."""
        static, weighted = 0, 0.0
        for code, times in self._blocks:
            number = rule(code)
            static += number
            weighted += times * number
        return Count(static, weighted)


def _work(
    function: Function,
    counts: Sequence[float],
    target: Target,
    unhidden: Unhidden,
    slower: Sequence[Mapping[int, float]],
) -> tuple[dict[str, float], float]:
    """Cycles of each unit, and what is in none of them."""
    units: dict[str, float] = dict.fromkeys(UNITS, 0.0)
    alone = 0.0
    for block, times, longer in zip(function.blocks, counts, slower, strict=True):
        for place, instruction in enumerate(block.instructions):
            if own := unhidden.cycles(instruction):
                alone += times * own
                continue
            needed: Work = work_of(instruction, target)
            units["valu"] += times * needed.valu
            units["mfma"] += times * needed.matrix
            units["lds"] += times * needed.lds * longer.get(place, 1.0)
            units["memory"] += times * needed.vmem * longer.get(place, 1.0)
            units["salu"] += times * needed.salu
    return units, alone


def _latency(
    function: Function,
    flow: Flow,
    counts: Sequence[float],
    target: Target,
    unhidden: Unhidden,
    slower: Sequence[Mapping[int, float]],
) -> Time:
    """L and its parts. Each block starts in the state that its most frequent predecessor leaves; of several, the last
    one before it in the code: where a branch skips a body that counts too, the body's wait is not waited for again.

    There are two passes, so that the header of a loop starts with what its latch leaves outstanding, as in every
    iteration but the first.
    """
    after: dict[int, State] = {}
    time_of: dict[int, Time] = {}
    for _ in range(2):
        for block in flow.cfg.order:
            leading = [p for p in flow.cfg.predecessors[block] if p in after]
            before = after[max(leading, key=lambda p: (counts[p], p < block, p))] if leading else State()
            taken = _is_taken(function, flow, counts, block)
            time_of[block], after[block] = run_block(
                function.blocks[block], target, before.after(0.0), unhidden, slower[block], taken=taken
            )
    whole = Time()
    for block, time in time_of.items():
        whole.add(time, counts[block])
    return whole


def _is_taken(function: Function, flow: Flow, counts: Sequence[float], block: int) -> bool:
    """Whether control most often goes on elsewhere than to the block after ``block``."""
    successors = flow.cfg.successors[block]
    if not successors or not function.blocks[block].targets:
        return False
    following = block + 1
    return following not in successors or counts[following] < max(counts[s] for s in successors)
