"""What is known of a kernel before a plan is chosen: numbers read off LLVM's default compile of it.

That compile is made for every kernel anyway, as the baseline. Its code shows the loops, the mix of instructions, what
bounds the kernel, and how far its registers are from the next count of waves.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from verilocc_mlir.cost.assembly import Block, Function, parse_assembly
from verilocc_mlir.cost.counting import control_flow, executions
from verilocc_mlir.cost.instructions import Instruction, Kind
from verilocc_mlir.cost.model import KernelCost, costs
from verilocc_mlir.cost.trips import find_trips
from verilocc_mlir.target.occupancy import max_vectors
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
