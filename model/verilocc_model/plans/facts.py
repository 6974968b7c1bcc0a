"""What is known of a kernel before a plan is chosen: numbers read off LLVM's default compile of it.

That compile is made for every kernel anyway, as the baseline. Its code shows the loops, the mix of instructions, what
bounds the kernel, and how far its registers are from the next count of waves.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

from verilocc_mlir.analysis.cfg import control_flow as flow_of_machine_ir
from verilocc_mlir.analysis.cfg import find_loops
from verilocc_mlir.analysis.lanes import virtual_classes
from verilocc_mlir.banks import in_vgprs
from verilocc_mlir.cost.assembly import Block, Function, parse_assembly
from verilocc_mlir.cost.counting import control_flow, executions
from verilocc_mlir.cost.instructions import Instruction, Kind, decode
from verilocc_mlir.cost.memory import dwords
from verilocc_mlir.cost.model import KernelCost, costs
from verilocc_mlir.cost.rates import rates
from verilocc_mlir.cost.simulate import work_of
from verilocc_mlir.cost.trips import find_trips
from verilocc_mlir.mir.model import BasicBlock, MachineFunction, MirFile
from verilocc_mlir.mir.model import Instruction as MachineInstruction
from verilocc_mlir.ordering.schedule import Timing
from verilocc_mlir.pipeline.plans import Plan, Planned
from verilocc_mlir.problem.build import build_problem, frequency
from verilocc_mlir.problem.model import AllocationProblem
from verilocc_mlir.spilling.relieve import Spiller, pressures
from verilocc_mlir.target.occupancy import max_vectors, waves_by_vectors
from verilocc_mlir.target.reserved import allocatable
from verilocc_mlir.target.targets import Target

_KINDS = (Kind.VALU, Kind.MFMA, Kind.WMMA, Kind.SALU, Kind.SMEM, Kind.LDS, Kind.VMEM, Kind.WAIT, Kind.BARRIER)
_STALLS = ("waits", "dependencies", "busy", "hazards", "branches")
_EVENTS = ("copies", "accumulator_copies", "scalar_copies", "scratch", "dual", "dual_blocked", "nops")


def dearest_of(code: bytes, target: Target, where: str) -> tuple[Function, Mapping[str, KernelCost]]:
    """The function of an assembly text with the most modelled cycles, and the costs of all by name.

    Raises:
        InputError: as ``parse_assembly``.
    """
    functions = parse_assembly(code.decode(), target, where=where)
    by_name = costs(functions, target)
    return max(functions, key=lambda function: by_name[function.name].cycles), by_name


def facts(function: Function, cost: KernelCost, target: Target) -> dict[str, float]:
    """Numbers by name; the same names for every kernel. Counts are ``log2(1 + n)``, parts are shares of their whole.

    Args:
        function: the machine code of LLVM's default compile.
        cost: its cost.
    """
    flow = control_flow(function)
    trips = {k: count for k, (count, _) in find_trips(function, flow, ()).items()}
    times = executions(flow, trips)
    hot = max(range(len(times)), key=lambda k: times[k] * len(function.blocks[k].instructions))
    return {
        "blocks": log(len(function.blocks)),
        "loops": log(len(flow.loops.loops)),
        "depth": float(max(flow.loops.depths, default=0)),
        "instructions": log(cost.instructions.static),
        "executed": log(cost.instructions.weighted),
        "hot share": share(times[hot] * len(function.blocks[hot].instructions), cost.instructions.weighted),
        **_hot_block(function.blocks[hot]),
        **{f"bound {name}": share(cycles, cost.cycles) for name, cycles in cost.bounds.items()},
        **{f"stalled {name}": share(getattr(cost, name), cost.latency) for name in _STALLS},
        **{name: share(getattr(cost, name).weighted, cost.instructions.weighted) for name in _EVENTS},
        "spills": log(cost.spills.weighted),
        "cycles": log(cost.cycles),
        **_registers(cost, target),
    }


def _hot_block(block: Block) -> dict[str, float]:
    """The block in which most instructions are executed."""
    code = block.instructions
    counts = {kind: sum(i.kind is kind for i in code) for kind in _KINDS}
    loads = [k for k, i in enumerate(code) if i.kind in (Kind.VMEM, Kind.LDS) and not i.is_store and i.defs]
    distances = [_first_use(code, k) - k for k in loads]
    return {
        "hot instructions": log(len(code)),
        **{f"hot {kind.name.lower()}": share(count, len(code)) for kind, count in counts.items()},
        "hot loads": log(len(loads)),
        "hot load to use": log(sum(distances) / len(distances)) if distances else 0.0,
        "hot results": log(len({register for i in code if i.kind in (Kind.MFMA, Kind.WMMA) for register in i.defs})),
    }


def _first_use(code: Sequence[Instruction], start: int) -> int:
    """Where the result of the instruction at ``start`` is first read; the end of the block where it is not."""
    results = set(code[start].defs)
    return next((k for k in range(start + 1, len(code)) if not results.isdisjoint(code[k].uses)), len(code))


def _registers(cost: KernelCost, target: Target) -> dict[str, float]:
    more = cost.occupancy + 1
    fewer = max_vectors(target, more) if more <= target.max_waves else 0
    return {
        "waves": float(cost.occupancy),
        "waves share": share(cost.occupancy, target.max_waves),
        "vectors": log(cost.vectors),
        "agprs": log(cost.agprs),
        "sgprs": log(cost.sgprs),
        "over the next step": log(max(cost.vectors - fewer, 0)) if fewer else 0.0,
        "below the last step": log(max(max_vectors(target, cost.occupancy) - cost.vectors, 0)),
        "lds": log(cost.lds_bytes),
        "unified": float(target.unified_vgpr),
    }


# How facts are scaled: counts as logarithms, parts as shares.


def log(number: float) -> float:
    """``log2(1 + number)``, for a count."""
    return round(math.log2(1.0 + number), 3)


def share(part: float, whole: float) -> float:
    """Of the whole; 0 of nothing."""
    return round(part / whole, 4) if whole else 0.0


# What the machine IR of a plan shows before it is allocated: numbers that a critic ranks plans by.
#
# The text has the order in which the scheduler left the instructions, so what they wait for can be estimated from it
# alone: instructions issue in order, each when what it reads is there (``cost/rates.py`` has the figures; waits, copies
# and spill code are not in the text yet). How many registers are live says what will be spilled.
#


_FORM = re.compile(r"_(?:vgprcd|mac|saddr|vaddr|svs|addr64|offset|offen|bothen|idxen|exact|imm|sgpr|rtn)(?=_|$)")
_HOPELESS = 1e6
"""Stands for what is spilled where the registers that may be spilled do not suffice."""
_NOTHING = ("COPY", "IMPLICIT_DEF", "KILL", "BUNDLE", "PHI", "DBG_", "CFI_", "SI_", "S_WAITCNT", "REG_SEQUENCE")


def text_facts(file: MirFile, function: MachineFunction, target: Target) -> dict[str, float]:
    """Numbers by name; the same names for every text. Counts are ``log2(1 + n)``, shares are of their whole.
    Cycles are those of one wave, or, in waves and in the estimate, what it costs its SIMD (``cost/model.py``).

    Raises:
        UnsupportedError: the allocation problem cannot be stated.
    """
    if target.unified_vgpr:  # As attempts do.
        function = in_vgprs(function, virtual_classes(function)) or function
    problem = build_problem(file, function, target, "vgpr")
    flow = flow_of_machine_ir(function)
    depths = find_loops(flow).depths
    times = [frequency(depth) for depth in depths]
    hot = max(range(len(times)), key=lambda k: times[k] * len(function.blocks[k].instructions))
    slot = float(rates(target).slot)
    timed = {opcode: _timed(opcode, target) for opcode in function.opcodes if not opcode.startswith(_NOTHING)}
    cycles, waiting, vector = 0.0, 0.0, 0.0
    work = [0.0] * len(_UNITS)
    for block, count in zip(function.blocks, times, strict=True):
        one = simulated(block, timed, slot)
        cycles += count * one.cycles
        waiting += count * one.waiting
        vector += count * max(one.busy)
        work = [sum_so_far + count * of_block for sum_so_far, of_block in zip(work, one.busy, strict=True)]
    points = pressures(problem)
    room = allocatable(function, file.preamble, target)
    needed = min(most_live(problem), len(room.vgprs) + len(room.agprs))
    waves = min(waves_by_vectors(target, needed), room.waves[1])
    spilled, unhidden = _spilled(function, problem, target, waves) if max(points, default=0) > 0 else (0.0, 0.0)
    first, stop = 2 * flow.first[hot], 2 * flow.first[hot + 1]
    in_hot = points[first:stop] or [0]
    alone = simulated(function.blocks[hot], timed, slot)
    return {
        "text instructions": log(function.instruction_count),
        "text executed": log(sum(n * len(b.instructions) for n, b in zip(times, function.blocks, strict=True))),
        "text cycles": log(cycles),
        "text waiting": share(waiting, cycles),
        "text unit": share(vector, cycles),
        "text over": _signed(max(points, default=0)),
        "text over hot": _signed(max(in_hot)),
        "text over hot mean": _signed(sum(in_hot) / len(in_hot)),
        "text over often": share(sum(excess > 0 for excess in points), len(points)),
        "text spilled": log(spilled),
        "text waves": log(waves),
        "text in waves": log(max(cycles / waves, *work)),
        "text estimate": log(max(cycles / waves, *work) + unhidden),
        "text hot cycles": log(alone.cycles),
        "text hot waiting": share(alone.waiting, alone.cycles),
        "text hot unit": share(max(alone.busy), alone.cycles),
        "text hot loads": log(alone.loads),
        "text hot distance": log(alone.distance),
    }


def most_live(problem: AllocationProblem) -> int:
    """Registers that are live at once, of all files, where most are."""
    change: Counter[int] = Counter()
    for live_range in problem.ranges:
        for group in live_range.groups:
            for start, stop in group.segments:
                change[start] += group.lanes.bit_count()
                change[stop] -= group.lanes.bit_count()
    lanes = accumulate(count for _, count in sorted(change.items()))
    return (max(lanes, default=0) + 1) // 2


def _spilled(function: MachineFunction, problem: AllocationProblem, target: Target, waves: int) -> tuple[float, float]:
    """Registers that are stored and loaded to bring the need down to what there is, by estimated executions, and the
    cycles that no other wave hides (``cost/unhidden.py``; loads and stores alike, at the rate of loads).
    """
    relieved = Spiller(function, problem, target).relieve(ahead=False)
    if relieved is None:
        return _HOPELESS, _HOPELESS
    saved = [action for action in relieved.actions if action.kind == "spill"]
    speed, bytes_of_a_register = rates(target), 4 * target.wave_size
    held = sum(action.parts for action in saved) * bytes_of_a_register * waves
    first = min(1.0, speed.vmem_bytes / held) if held else 1.0
    second = min(1.0, speed.l2_bytes / held) - first if first < 1 else 0.0
    each = first / speed.vmem_bytes_per_cycle + second / speed.l2_bytes_per_cycle
    each += (1 - first - second) / speed.far_bytes_per_cycle
    traffic = sum(action.cost for action in saved)
    copies = sum(action.cost for action in relieved.actions if action.kind == "accumulate")
    return traffic, traffic * bytes_of_a_register * each + copies * speed.valu_issue[0]


def facts_of_text(given: Planned, plan: Plan, name: str) -> dict[str, float]:
    """Facts of a function in a plan's text before allocation; none where the text has no such function.

    Raises:
        UnsupportedError: the allocation problem cannot be stated.
    """
    file = given.shared.parsed(given.pre_ra(plan), given.work.path)
    return next((text_facts(file, f, given.work.target) for f in file.functions if f.name == name), {})


@dataclass(frozen=True)
class Simulated:
    """One execution of a block by itself, in cycles.

    Attributes:
        cycles: from the first issue to the last.
        waiting: of them, those in which nothing issues because a result is not there.
        busy: of each unit in ``_UNITS``.
        loads: from memory and LDS.
        distance: instructions from a load to its first reader, on average.
    """

    cycles: float
    waiting: float
    busy: tuple[float, ...]
    loads: int
    distance: float


_UNITS = (Kind.VALU, Kind.MFMA, Kind.LDS, Kind.VMEM)


def simulated(block: BasicBlock, times: Mapping[str, Timing], slot: float) -> Simulated:
    """A block whose first execution has filled its registers: the second one is counted, as in a loop.

    Args:
        times: what each opcode takes.
    """
    ready: dict[int | str, float] = {}
    free = [0.0] * len(Kind)
    busy = [0.0] * len(Kind)
    now = begin = waiting = 0.0
    loaded: dict[int | str, int] = {}
    distances: list[int] = []
    loads = 0
    code = [i for i in block.instructions if not i.opcode.startswith(_NOTHING)]
    for again in (False, True):
        if again:
            begin, waiting, loads, busy = now, 0.0, 0, [0.0] * len(Kind)
            distances.clear()
            loaded.clear()
        for k, instruction in enumerate(code):
            timed = times[instruction.opcode]
            reads, writes = _registers_of(instruction)
            there = max((ready.get(r, 0.0) for r in reads), default=0.0)
            waiting += max(there - now, 0.0)
            now = max(now, there, free[timed.kind]) + slot
            free[timed.kind] = now - slot + timed.issue
            busy[timed.kind] += timed.issue
            for register in reads:
                if register in loaded:
                    distances.append(k - loaded.pop(register))
            is_load = timed.kind in (Kind.LDS, Kind.VMEM) and bool(writes)
            loads += is_load
            done = now + timed.latency
            for register in writes:
                ready[register] = max(done, ready.get(register, 0.0)) if is_load else done
                if is_load:
                    loaded[register] = k
    distances += [len(code) - k for k in loaded.values()]
    units = (busy[Kind.VALU], busy[Kind.MFMA] + busy[Kind.WMMA], busy[Kind.LDS], busy[Kind.VMEM])
    return Simulated(now - begin, waiting, units, loads, sum(distances) / len(distances) if distances else 0.0)


def _registers_of(instruction: MachineInstruction) -> tuple[list[int | str], list[int | str]]:
    reads: list[int | str] = []
    writes: list[int | str] = []
    for operand in instruction.all_operands:
        if operand.is_reg and operand.phys not in ("exec", "mode"):
            name = operand.vreg if operand.vreg >= 0 else operand.phys
            if operand.is_def:
                writes.append(name)
            elif not operand.undef:
                reads.append(name)
    return reads, writes


def _timed(opcode: str, target: Target) -> Timing:
    speed = rates(target)
    name = _FORM.sub("", opcode.lower())
    one = decode(f"{name} v0, v1, v2, v3", target.major)  # What it takes is not by its operands.
    if one.kind is Kind.VALU:
        return Timing(one.kind, speed.valu_issue[one.rate], speed.valu_latency[one.rate])
    if one.kind in (Kind.MFMA, Kind.WMMA):
        busy = float(work_of(one, target).matrix or 16)
        return Timing(one.kind, busy, busy + speed.slot)
    if one.kind is Kind.SALU:
        return Timing(one.kind, speed.slot, speed.salu_latency)
    if one.kind is Kind.SMEM:
        return Timing(one.kind, 0.0, speed.smem_latency)
    if one.kind is Kind.LDS:
        return Timing(one.kind, max(4 * dwords(one.base) * target.wave_size / speed.lds_bytes_per_cycle, 1.0),
                      speed.lds_latency)  # fmt: skip
    if one.kind is Kind.VMEM:
        return Timing(one.kind, max(4 * dwords(one.base) * target.wave_size / speed.vmem_bytes_per_cycle, 1.0),
                      speed.load_latency)  # fmt: skip
    return Timing(one.kind, 0.0, 0.0)


def _signed(registers: float) -> float:
    """Registers beyond what there is, or below it where negative, as a logarithm."""
    return log(registers) if registers >= 0 else -log(-registers)
