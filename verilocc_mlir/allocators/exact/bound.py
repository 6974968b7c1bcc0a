"""Lower bounds on registers from counting alone; with a unified file, from the best way to share it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct

from verilocc_mlir.allocators.bounds import Ceiling
from verilocc_mlir.allocators.cells import runs
from verilocc_mlir.allocators.exact.frame import (
    SPLIT,
    Answer,
    Apart,
    Budget,
    Frame,
    Layout,
    Together,
    ask,
    at_instants,
    load,
    pieces,
)


def counted_bound(layout: Layout) -> int:
    """Registers that every placement needs in some file, each file counted apart.

    Ranges that may also be in another file count as being there, as far as there is room.
    """
    cells = layout.tables.cells
    fixed = layout.tables.fixed
    least = _widest(layout)
    free: dict[tuple[str, int, int, int], list[int]] = {}
    spare = cells.size - cells.stop["sgpr"]
    for need in needs(layout, layout.instants.bits):
        for file in layout.files:
            only = sum(n for r, n in need.cells.items() if list(layout.starts[r]) == [file])
            either = sum(n for r, n in need.cells.items() if len(layout.starts[r]) > 1 and file in layout.starts[r])
            elsewhere = -(-spare // need.modulus) if file == "sgpr" else either
            demand = only + max(0, either - elsewhere)
            if not demand:
                continue
            key = (file, need.modulus, need.residue, need.instant)
            if key not in free:
                base = cells.base[file]
                free[key] = [
                    c - base
                    for c in range(base + need.residue, cells.stop[file], need.modulus)
                    if c in cells.allocatable and not fixed[c] >> need.instant & 1
                ]
            usable = free[key]
            # The ``demand``-th free cell must lie below the ceiling; without one, no ceiling is high enough.
            last = usable[demand - 1] if demand <= len(usable) else layout.top * cells.halves
            least = max(least, last // cells.halves + 1)
    return least


def _widest(layout: Layout) -> int:
    """Registers that every placement needs because a single range needs them, wherever it is put.

    Ranges that may be in a special register do not count.
    """
    halves = layout.tables.cells.halves
    base = layout.tables.cells.base
    return max(
        (
            -(-min(starts[0] - base[file] + item.reach for file, starts in by_file.items()) // halves)
            for by_file, item in zip(layout.starts, layout.items, strict=True)
            if by_file and "special" not in by_file
        ),
        default=0,
    )


def shared_bound(layout: Layout, budget: Budget, work: float) -> int:
    """Registers that every placement needs in a unified file: the least over all ways to give each range a bank."""
    cp_model = load()
    model: Any = cp_model.CpModel()
    widest = _widest(layout)
    total = model.new_int_var(widest, layout.top, "total")
    frame = Together(layout, model, total, layout.top)
    within: dict[int, dict[str, Any]] = {}
    for item in layout.items:
        number = item.members[0][0]
        files = tuple(layout.starts[number])
        if item.cells and files:
            within[number] = literals(model, number, files)
    frame.tie(within)
    add_counting(layout, model, frame, within, layout.instants.bits)
    model.minimize(total)
    answer = ask(model, budget, work)
    if answer.refuted:
        return layout.top + 1
    return max(widest, -int(-answer.bound // 1)) if answer.has_solution or answer.bound > 0 else widest


def literals(model: Any, number: int, files: tuple[str, ...]) -> dict[str, Any]:
    """For each file, 1 if the range can be in no other, else a literal that is true if the range is there."""
    if len(files) == 1:
        return {files[0]: 1}
    if len(files) == 2:
        first = model.new_bool_var(f"{number} {files[0]}")
        return {files[0]: first, files[1]: first.negated()}
    by_file = {file: model.new_bool_var(f"{number} {file}") for file in files}
    model.add_exactly_one(by_file.values())
    return by_file


# Counting: at each instant, every residue class must have as many free cells as the live ranges take of it.
#
# A tuple aligned to ``g`` cells takes cells of known residues modulo every divisor of ``g``. The classes are those
# modulo a power of two. Counting knows nothing of places and costs little. It settles most of what a packing search
# cannot: parities, and which bank a range must be in.


Class = tuple[int, int]
"""Modulus and residue, of offsets in a file."""


class Need(Struct, frozen=True):
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


# The packing model: live ranges as rectangles, instants across, registers up.


class PackingModel:
    """A ``CpModel`` whose solutions are the placements under a ceiling, at some instants.

    With all instants a solution is a placement; with fewer the model is a relaxation: if it has none, there is none.

    Args:
        total: registers of the unified file, or of each file.
        instants: bits of the timeline that count; None: all instants of the problem.
        ceiling: instead of ``total``, registers of each file.
        movable: ids of the ranges to place; None: all. The others stay where ``starts`` has them.
        starts: first cells of the ranges that stay, by range id.
    """

    def __init__(
        self,
        layout: Layout,
        total: int = 0,
        *,
        instants: tuple[int, ...] | None = None,
        ceiling: Ceiling | None = None,
        movable: frozenset[int] | None = None,
        starts: Sequence[int] = (),
    ) -> None:
        self.layout = layout
        self.model: Any = load().CpModel()
        self.possible = True
        """Whether every range alone has a place under the ceiling."""
        self.positions: dict[int, Any] = {}
        self.within: dict[int, dict[str, Any]] = {}
        self._across: list[Any] = []
        self._up: list[Any] = []
        together = layout.unified and ceiling is None
        self.frame: Frame = (
            Together(layout, self.model, total, total)
            if together
            else Apart(layout, self.model, layout.ceiling(total) if ceiling is None else ceiling)
        )
        self._instants = layout.instants.bits if instants is None else instants
        for number in range(len(layout.items)):
            if movable is None or number in movable:
                self._place(number)
            else:
                self._keep(number, starts[number])
        if not self.possible:
            return
        self._fix()
        self.frame.tie(self.within)
        if movable is None:
            add_counting(layout, self.model, self.frame, self.within, self._instants)

    def _place(self, number: int) -> None:
        rectangles = pieces(self.layout.items[number], self._instants)
        if not rectangles and self.layout.items[number].cells:
            return
        files = self.frame.files(number)
        if not files:
            self.possible = False
            return
        within = literals(self.model, number, files)
        position = self.frame.position(number, within)
        self.positions[number] = position
        self.within[number] = within
        for piece in rectangles:
            self._hold(position + piece.offset, piece.size, piece.runs)

    def _keep(self, number: int, start: int) -> None:
        for piece in pieces(self.layout.items[number], self._instants):
            self._hold(start + piece.offset, piece.size, piece.runs)

    def _fix(self) -> None:
        for cell, mask in enumerate(self.layout.tables.fixed):
            intervals = runs(at_instants(mask, self._instants)) if mask else []
            if intervals:
                self._hold(self.frame.holding(cell), 1, intervals)

    def _hold(self, low: Any, size: int, when: Sequence[tuple[int, int]]) -> None:
        up = self.model.new_fixed_size_interval_var(low, size, "")
        for start, stop in when:
            self._across.append(self.model.new_fixed_size_interval_var(start, stop - start, ""))
            self._up.append(up)

    def reserve(self, cell: int, free: Any) -> None:
        """Keep a cell empty at all times unless the literal ``free`` holds."""
        self._hold(self.frame.holding(cell, free), 1, [(0, len(self._instants))])

    def hint(self, starts: Sequence[int]) -> None:
        """Suggest a placement; ranges at -1 are left open."""
        place = self.frame.suggest(starts)
        for number, position in self.positions.items():
            if starts[number] < 0:
                continue
            self.model.add_hint(position, place(starts[number]))
            where = self.layout.file_of(starts[number])
            for file, literal in self.within[number].items():
                # With two files, the second's literal is the first one's negation, and a variable takes one hint only.
                if not isinstance(literal, int) and literal.index >= 0:
                    self.model.add_hint(literal, file == where)

    def ask(self, budget: Budget, work: float, *, portfolio: bool = False) -> Answer:
        if not self.possible:
            return Answer(False, True, False, 0.0, int)
        if self._across:
            self.model.add_no_overlap_2d(self._across, self._up)
        return ask(self.model, budget, work, portfolio=portfolio)

    def starts(self, answer: Answer, fallback: Sequence[int] = ()) -> list[int]:
        """First cell of every range in a solution; ranges that are not in the model are where ``fallback`` has them."""
        starts = list(fallback) if fallback else [-1] * len(self.layout.items)
        for number, position in self.positions.items():
            within = self.within[number]
            file = next(f for f, literal in within.items() if isinstance(literal, int) or answer.value(literal))
            starts[number] = self.frame.start(answer.value(position), file, answer.value)
        return starts
