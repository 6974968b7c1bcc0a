"""Lower bounds on registers from counting alone; with a unified file, from the best way to share it."""

from __future__ import annotations

from typing import Any

from verilocc_mlir.allocators.exact.counting import add_counting, needs
from verilocc_mlir.allocators.exact.frame import Together
from verilocc_mlir.allocators.exact.layout import Layout
from verilocc_mlir.allocators.exact.solver import Budget, ask, load


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
