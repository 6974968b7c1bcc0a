"""Counting: at each instant, every residue class must have as many free cells as the live ranges take of it.

A tuple aligned to ``g`` cells takes cells of known residues modulo every divisor of ``g``. The classes are those modulo
a power of two. Counting knows nothing of places and costs little. It settles most of what a packing search cannot:
parities, and which bank a range must be in.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from verilocc_mlir.allocators.exact.frame import Frame
from verilocc_mlir.allocators.exact.layout import SPLIT, Layout

Class = tuple[int, int]
"""Modulus and residue, of offsets in a file."""


@dataclass(frozen=True)
class Need:
    """Cells of one class that ranges hold at an instant.

    Attributes:
        instant: bit of the timeline.
        modulus, residue: the class.
        cells: how many, by range id.
    """

    instant: int
    modulus: int
    residue: int
    cells: Mapping[int, int]


def needs(layout: Layout, instants: tuple[int, ...]) -> Iterator[Need]:
    moduli = [1]
    most = max(layout.grain, default=1)
    while moduli[-1] * 2 <= min(most, SPLIT * layout.tables.cells.halves):
        moduli.append(moduli[-1] * 2)
    by_range: list[list[tuple[int, Class]]] = [
        [(mask, (m, offset % m)) for offset, mask in item.cells for m in moduli if grain % m == 0]
        for item, grain in zip(layout.items, layout.grain, strict=True)
    ]
    alive = {item.members[0][0]: item.live for item in layout.items if item.cells}
    for bit in instants:
        counts_of: dict[Class, Counter[int]] = {}
        for number, mask in alive.items():
            if mask >> bit & 1:
                for cell_mask, key in by_range[number]:
                    if cell_mask >> bit & 1:
                        counts_of.setdefault(key, Counter())[number] += 1
        for (modulus, residue), counts in sorted(counts_of.items()):
            yield Need(bit, modulus, residue, counts)


def add_counting(
    layout: Layout, model: Any, frame: Frame, within: Mapping[int, Mapping[str, Any]], instants: tuple[int, ...]
) -> None:
    """Constrain which file each range is in: at each of ``instants``, what is there must fit the frame's capacities.

    Args:
        within: for each range in the model, a literal (or 1) for each file it may be in.
    """
    fixed = layout.tables.fixed
    stated: set[tuple[str, int, int, int, int, tuple[tuple[int, int], ...]]] = set()
    for need in needs(layout, instants):
        by_file: dict[str, list[tuple[int, Any]]] = {}
        for number, count in need.cells.items():
            for file, literal in within.get(number, {}).items():
                by_file.setdefault(file, []).append((count, literal))
        for file, terms in by_file.items():
            is_occupied = _held_at(fixed, need.instant)
            factor, capacities = frame.capacities(file, need.modulus, need.residue, is_occupied)
            demand = tuple((n, c) for n, c in sorted(need.cells.items()) if file in within.get(n, {}))
            most = factor * sum(count for count, _ in terms)
            used = sum(factor * count * literal for count, literal in terms)
            for which, capacity in enumerate(capacities):
                if isinstance(capacity, int) and most <= capacity:
                    continue
                key = (file, need.modulus, need.residue, which, capacity if isinstance(capacity, int) else -1, demand)
                if key not in stated:
                    stated.add(key)
                    model.add(used <= capacity)


def _held_at(fixed: list[int], bit: int) -> Callable[[int], bool]:
    return lambda cell: bool(fixed[cell] >> bit & 1)
