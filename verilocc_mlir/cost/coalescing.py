"""Loads of neighbours: CDNA serves four lanes a cycle, and sixteen where each four lanes want neighbouring elements.

A CU serves a load by quads of lanes, one a cycle. Of loads of up to 32 bits it serves four quads in a cycle, if the
lanes of each want the same element or four in a row. RDNA serves all loads of 32 bits alike.

Sources: sebbbi/perftest, results of GCN 2 to 5 and of Navi (loads of 8 to 32 bits, the same for all lanes and linear:
four times as fast as random ones; on Navi all alike); "Understanding Memory Coalescing on GCN" (GPUOpen): 4 cycles a
wave under specific cases, else 16. That CDNA does as GCN is borne out by dedispersion on MI250X, where lanes that load
every second to fourth byte take 16 cycles (docs/results/ruler.md). The quads come from there too.
"""

from __future__ import annotations

from functools import lru_cache

from verilocc_mlir.cost.instructions import Instruction
from verilocc_mlir.cost.lanes import Lanes, State, loaded_from
from verilocc_mlir.cost.rates import Figure, Origin, Source

_QUADS = Figure(4, Source(Origin.MEASURED, "by others: sebbbi/perftest, GCN 2 to 5; MI250X agrees"))
FIGURES = {"quads of lanes that CDNA serves together, where they load neighbours": _QUADS}
_QUAD = 4
_BYTES = {1: ("byte", "u8", "i8"), 2: ("short", "u16", "i16", "b16"), 4: ("dword", "b32")}
_HALF = 1 << 31


def scattered(instruction: Instruction, state: State, lanes: int, active: int) -> float:
    """How many times as long a load takes as one of neighbours; 1 where the addresses are not known.

    Args:
        active: lanes that load, from the first on.
    """
    size = _element(instruction.base)
    address = loaded_from(instruction, state, lanes) if size else None
    return slowdown(address, size, active) if address is not None else 1.0


@lru_cache(maxsize=1 << 12)
def _element(base: str) -> int:
    """Bytes that a lane loads; 0 if more than four, or if it is no load."""
    return next((size for size, ends in _BYTES.items() if "_load_" in base and base.endswith(ends)), 0)


@lru_cache(maxsize=1 << 12)
def slowdown(address: Lanes, size: int, active: int) -> float:
    """How many times as long a load of ``size`` bytes a lane takes as one of neighbours.

    Args:
        address: of each lane, in bytes. Lanes of several groups are taken to want neighbours.
        active: lanes that load, from the first on.
    """
    groups = address.groups or (0,) * len(address.values)
    quads = [range(first, min(first + _QUAD, active)) for first in range(0, active, _QUAD)]
    far = 0
    for quad in quads:
        wanted: dict[int, list[int]] = {}
        for lane in quad:
            wanted.setdefault(groups[lane], []).append(address.values[lane])
        far += any(_distance(min(of), max(of)) >= _QUAD * size for of in wanted.values())
    return 1 + (_QUADS.value - 1) * far / len(quads)


def _distance(low: int, high: int) -> int:
    """Between two numbers of 32 bits, of which the greater may be below 0."""
    return min(high - low, 2 * _HALF - high + low)
