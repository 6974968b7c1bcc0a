"""Positions, files and capacities as expressions of a CP-SAT model.

``Apart``: a position is a cell of the cell array, and each file has its own ceiling. ``Together``: a unified file as
the hardware has it, one strip of ``total`` registers. VGPRs begin at 0, AGPRs at a movable split, so that the model
itself decides how the file is shared.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from verilocc_mlir.allocators.bounds import Ceiling
from verilocc_mlir.allocators.exact.layout import SPLIT, Layout
from verilocc_mlir.allocators.exact.solver import load


class Frame(Protocol):
    """How positions relate to cells in one model."""

    def files(self, number: int) -> tuple[str, ...]:
        """Files that range ``number`` may be in under the ceiling."""
        ...

    def position(self, number: int, within: Mapping[str, Any]) -> Any:
        """A variable for where the range starts, tied to the literals that say which file it is in."""
        ...

    def at(self, cell: int) -> Any:
        """The position of a cell, an expression."""
        ...

    def holding(self, cell: int, free: Any = None) -> Any:
        """The position of a box that holds a cell of the frame.

        The box is away from all others where the frame does not have that cell, or where ``free`` is true.
        Boxes are moved away, not made optional: CP-SAT 9.15 refutes a satisfiable model in which one side of a box
        is optional.
        """
        ...

    def tie(self, within: Mapping[int, Mapping[str, Any]]) -> None:
        """Constrain the frame by which files ranges are in: for each, a literal (or 1) for each file."""
        ...

    def capacities(
        self, file: str, modulus: int, residue: int, is_occupied: Callable[[int], bool]
    ) -> tuple[int, tuple[Any, ...]]:
        """Upper bounds on how many cells of a residue class of a file can be in use.

        Args:
            file: which.
            modulus, residue: the class, of offsets in the file.
            is_occupied: whether something fixed holds a cell.

        Returns:
            A factor, and expressions that the factor times the number in use must not exceed.
        """
        ...

    def suggest(self, starts: Sequence[int]) -> Callable[[int], int]:
        """Hint at how ``starts`` share the files; returns a function from a cell to its position under that hint."""
        ...

    def start(self, position: int, file: str, value: Callable[[Any], int]) -> int:
        """The first cell, from a position in a solution."""
        ...


_AWAY = 1 << 20
"""A position past every file."""


class Apart:
    """Each file under its own ceiling, in registers; special registers are not counted."""

    def __init__(self, layout: Layout, model: Any, ceiling: Ceiling) -> None:
        self._layout = layout
        self._model = model
        cells = layout.tables.cells
        self._stop = {
            file: min(cells.base[file] + ceiling.get(file, 0) * cells.halves, cells.stop[file]) for file in layout.files
        }
        self._domain = load().Domain

    def files(self, number: int) -> tuple[str, ...]:
        return tuple(file for file in self._layout.starts[number] if self._starts(number, file))

    def _starts(self, number: int, file: str) -> list[int]:
        reach = self._layout.items[number].reach
        stop = self._stop.get(file)
        return [c for c in self._layout.starts[number][file] if stop is None or c + reach <= stop]

    def position(self, number: int, within: Mapping[str, Any]) -> Any:
        domains = {file: self._domain.from_values(self._starts(number, file)) for file in within}
        whole = self._domain.from_values([c for file in within for c in self._starts(number, file)])
        variable = self._model.new_int_var_from_domain(whole, f"y{number}")
        if len(within) > 1:
            for file, literal in within.items():
                self._model.add_linear_expression_in_domain(variable, domains[file]).only_enforce_if(literal)
        return variable

    def at(self, cell: int) -> Any:
        return cell

    def holding(self, cell: int, free: Any = None) -> Any:
        return cell if free is None else cell + _AWAY * free

    def tie(self, within: Mapping[int, Mapping[str, Any]]) -> None:
        del within

    def capacities(
        self, file: str, modulus: int, residue: int, is_occupied: Callable[[int], bool]
    ) -> tuple[int, tuple[Any, ...]]:
        cells = self._layout.tables.cells
        if file == "special":
            usable: Sequence[int] = range(cells.stop["sgpr"], cells.size)
            base = cells.stop["sgpr"]
        else:
            base = cells.base[file]
            usable = [c for c in range(base, self._stop[file]) if c in cells.allocatable]
        return 1, (sum(1 for c in usable if (c - base) % modulus == residue and not is_occupied(c)),)

    def suggest(self, starts: Sequence[int]) -> Callable[[int], int]:
        del starts
        return int

    def start(self, position: int, file: str, value: Callable[[Any], int]) -> int:
        del file, value
        return position


class Together:
    """One file of ``total`` registers, a number or an expression."""

    def __init__(self, layout: Layout, model: Any, total: Any, most: int) -> None:
        self._layout = layout
        self._model = model
        cells = layout.tables.cells
        self._halves = cells.halves
        self._size = total * cells.halves
        self._most = most * cells.halves
        self._agprs = cells.base["agpr"]
        self._domain = load().Domain
        vgprs = -(-min(layout.size("vgpr"), self._most) // (SPLIT * cells.halves))
        self._quarters = model.new_int_var(0, vgprs, "split")
        self._split = self._quarters * (SPLIT * cells.halves)
        self._shared = model.new_bool_var("shared")

    def files(self, number: int) -> tuple[str, ...]:
        reach = self._layout.items[number].reach
        starts = self._layout.starts[number]
        base = {"vgpr": 0, "agpr": self._agprs}
        return tuple(file for file in starts if starts[file][0] - base[file] + reach <= self._most)

    def position(self, number: int, within: Mapping[str, Any]) -> Any:
        reach, grain = self._layout.items[number].reach, self._layout.grain[number]
        starts = self._layout.starts[number]
        values = set(starts.get("vgpr", ())) if "vgpr" in within else set[int]()
        if "agpr" in within:
            step = grain if SPLIT * self._halves % grain == 0 else 1
            values.update(range(0, self._most - reach + 1, step))
        whole = self._domain.from_values([c for c in values if c + reach <= self._most])
        variable = self._model.new_int_var_from_domain(whole, f"y{number}")
        both = len(within) > 1
        for file, literal in within.items():
            if file == "vgpr":
                rules = [self._model.add(variable + reach <= self._split)]
                if both:
                    inside = self._domain.from_values(starts["vgpr"])
                    rules.append(self._model.add_linear_expression_in_domain(variable, inside))
            else:
                inside = self._domain.from_values([c - self._agprs for c in starts["agpr"]])
                rules = [self._model.add_linear_expression_in_domain(variable - self._split, inside)]
            if both:
                for rule in rules:
                    rule.only_enforce_if(literal)
        return variable

    def at(self, cell: int) -> Any:
        return cell if cell < self._agprs else self._split + (cell - self._agprs)

    def holding(self, cell: int, free: Any = None) -> Any:
        if cell >= self._agprs:
            if free is None:
                return self.at(cell)
            position = self._model.new_int_var(0, 2 * _AWAY, "")
            self._model.add(position == self.at(cell) + _AWAY * free)
            return position
        # The strip does not have cells of the VGPR file at or past the split.
        past = self._model.new_bool_var("")
        self._model.add(self._split <= cell).only_enforce_if(past)
        if free is None:
            return cell + _AWAY * past
        away = self._model.new_bool_var("")
        self._model.add_bool_or(free, past, away.negated())
        return cell + _AWAY * away

    def tie(self, within: Mapping[int, Mapping[str, Any]]) -> None:
        self._model.add(self._split <= self._size).only_enforce_if(self._shared)
        for files in within.values():
            if "agpr" in files:
                self._model.add(files["agpr"] <= self._shared)

    def capacities(
        self, file: str, modulus: int, residue: int, is_occupied: Callable[[int], bool]
    ) -> tuple[int, tuple[Any, ...]]:
        # The split is a multiple of every modulus used. Fixed cells may lie on either side of it, so none is counted.
        del is_occupied
        rounding = modulus - 1 - residue
        whole = self._layout.size(file) + rounding
        if file == "vgpr":
            return modulus, (self._split, self._size + rounding, whole)
        # Without AGPRs the split may lie past the end.
        slack = (1 - self._shared) * self._most
        return modulus, (self._size - self._split + rounding + slack, whole)

    def suggest(self, starts: Sequence[int]) -> Callable[[int], int]:
        ends = [s + i.reach for s, i in zip(starts, self._layout.items, strict=True) if 0 <= s < self._agprs]
        quarters = -(-max(ends, default=0) // (SPLIT * self._halves))
        self._model.add_hint(self._quarters, quarters)
        return lambda cell: cell if cell < self._agprs else quarters * SPLIT * self._halves + cell - self._agprs

    def start(self, position: int, file: str, value: Callable[[Any], int]) -> int:
        if file == "vgpr":
            return position
        return position - SPLIT * self._halves * value(self._quarters) + self._agprs
