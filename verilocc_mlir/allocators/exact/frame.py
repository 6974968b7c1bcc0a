"""Positions, files and capacities as expressions of a CP-SAT model, and the solver.

``Apart``: a position is a cell of the cell array, and each file has its own ceiling. ``Together``: a unified file as
the hardware has it, one strip of ``total`` registers. VGPRs begin at 0, AGPRs at a movable split, so that the model
itself decides how the file is shared.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, Protocol

from msgspec import Struct

from verilocc_mlir.allocators.bounds import Ceiling
from verilocc_mlir.allocators.cells import runs
from verilocc_mlir.allocators.items import Item
from verilocc_mlir.allocators.tables import Tables
from verilocc_mlir.errors import UnsupportedError

# CP-SAT of OR-Tools, loaded when it is first needed: the budget of a search, and one call of the solver.


SCALE = 1000
"""Objectives are whole numbers: thousandths of an estimated execution."""


def load() -> Any:
    """The module ``ortools.sat.python.cp_model``.

    Raises:
        UnsupportedError: OR-Tools is not installed; the hint names the extra.
    """
    try:
        return import_module("ortools.sat.python.cp_model")
    except ImportError as error:
        raise UnsupportedError(
            f"exact allocation needs OR-Tools, and it cannot be loaded: {error}",
            hint="pip install 'verilocc-mlir[exact]'; beside the service's packages: docs/design/allocation.md",
        ) from error


def available() -> bool:
    try:
        load()
    except UnsupportedError:
        return False
    return True


@dataclass
class Budget:
    """What a search may still use.

    ``work`` is CP-SAT's deterministic time: about a second a unit, and the same on every machine. ``seconds`` of wall
    time cut the search off where the machine is slower. Without that cut-off, the answer is the same on every run.
    """

    work: float
    seconds: float
    seed: int = 0
    _until: float = field(init=False)

    def __post_init__(self) -> None:
        self._until = time.monotonic() + self.seconds

    @property
    def seconds_left(self) -> float:
        """Wall time to the cut-off."""
        return self._until - time.monotonic()

    @property
    def spent(self) -> bool:
        """Whether nothing is left."""
        return self.work <= 0 or self.seconds_left <= 0


class Answer(Struct, frozen=True):
    """The solver's answer to a model.

    Attributes:
        has_solution: there is a solution; ``value`` reads it.
        refuted: it is proved that there is none.
        optimal: no other solution has a smaller objective.
        bound: no solution has an objective smaller than this.
        value: the value of a variable of the model in the solution.
    """

    has_solution: bool
    refuted: bool
    optimal: bool
    bound: float
    value: Callable[[Any], int]


def ask(model: Any, budget: Budget, work: float, *, portfolio: bool = False) -> Answer:
    """Solve with at most ``work`` of the budget.

    Args:
        budget: what the call uses is taken from it.
        work: deterministic time for this call.
        portfolio: take turns between several search strategies; better for objectives.
    """
    cp_model = load()
    solver = cp_model.CpSolver()
    parameters = solver.parameters
    parameters.num_workers = 1
    parameters.random_seed = budget.seed
    parameters.max_deterministic_time = max(min(work, budget.work), 1e-3)
    parameters.max_time_in_seconds = max(budget.seconds_left, 1e-3)
    parameters.interleave_search = portfolio
    status = solver.solve(model)
    budget.work -= max(float(solver.response_proto.deterministic_time), 1e-3)
    if status == cp_model.MODEL_INVALID:
        raise AssertionError(f"the model is not valid: {model.validate()}")
    has_solution = status in (cp_model.OPTIMAL, cp_model.FEASIBLE)
    refuted = status == cp_model.INFEASIBLE
    bound = float(solver.best_objective_bound) if not refuted else 0.0
    return Answer(has_solution, refuted, status == cp_model.OPTIMAL, bound, solver.value)


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


# A problem's ranges and register files as the CP-SAT models see them.


SPLIT = 4
"""AGPRs of a unified file start at a multiple of this (GCNSubtarget.cpp, getTotalNumVGPRs)."""


class Layout:
    """A problem's ranges and files.

    Attributes:
        starts: for each range, by file (``vgpr``, ``agpr``, ``sgpr``, ``special``), the cells in which it may start;
            files without such a cell are left out.
        grain: alignment of each range's start, in cells.
        unified: VGPRs and AGPRs come out of one file, and some range may be in an AGPR.
    """

    def __init__(self, tables: Tables) -> None:
        self.tables = tables
        self.instants = Instants(tables)
        cells = tables.cells
        self.starts = [self._starts(r.id) for r in tables.problem.ranges]
        self.grain = [1 if r.lanes % 2 else r.align * cells.halves for r in tables.problem.ranges]
        self.items: list[Item] = tables.singles
        self.unified = tables.problem.occupancy.unified and any("agpr" in starts for starts in self.starts)

    def _starts(self, number: int) -> dict[str, tuple[int, ...]]:
        starts_of: dict[str, list[int]] = {}
        for start in self.tables.candidates.by_range[number]:
            starts_of.setdefault(self.file_of(start), []).append(start)
        return {file: tuple(sorted(starts)) for file, starts in starts_of.items()}

    def file_of(self, cell: int) -> str:
        """The file that a cell is in."""
        cells = self.tables.cells
        return "special" if cell >= cells.stop["sgpr"] else cells.register_of(cell)[0]

    @property
    def files(self) -> tuple[str, ...]:
        return tuple(file for file in ("vgpr", "agpr", "sgpr") if self.size(file))

    def size(self, file: str) -> int:
        cells = self.tables.cells
        return cells.stop[file] - cells.base[file]

    @property
    def top(self) -> int:
        """The greatest register count that a placement can have."""
        halves = self.tables.cells.halves
        sizes = [self.size(file) // halves for file in self.files]
        return -(-sizes[0] // SPLIT) * SPLIT + sum(sizes[1:]) if self.unified else max(sizes, default=0)

    def ceiling(self, total: int) -> Ceiling:
        """The ceiling of ``total`` registers where the files are counted apart."""
        return dict.fromkeys(self.files, total)


# The instants that decide interference: those whose set of live cells is not contained in that of a neighbour.


class Piece(Struct, frozen=True):
    """Neighbouring cells of a live range that are live at the same instants.

    Attributes:
        offset: first cell, relative to the range's.
        runs: half-open intervals of positions in the list of instants.
    """

    offset: int
    size: int
    runs: tuple[tuple[int, int], ...]


class Instants:
    """The instants of a problem, as bits of its timeline, ascending.

    A bit is left out if everything live there is also live at a neighbouring bit that is kept. Two cells are live
    together at some time if and only if they are live together at an instant.
    """

    def __init__(self, tables: Tables) -> None:
        live = _live_cells(tables)
        instants: list[int] = []
        for bit, cells in enumerate(live):
            while instants and not live[instants[-1]] & ~cells:
                instants.pop()
            if cells and not (instants and not cells & ~live[instants[-1]]):
                instants.append(bit)
        self.bits: tuple[int, ...] = tuple(instants)
        self.load: dict[int, int] = {bit: live[bit].bit_count() for bit in instants}
        """Cells held at each instant, by ranges and by what is fixed."""

    def tightest(self, cells: int) -> tuple[int, ...]:
        """Instants at which at least ``cells`` cells are held."""
        return tuple(bit for bit in self.bits if self.load[bit] >= cells)


def _live_cells(tables: Tables) -> list[int]:
    """For each bit of the timeline, what is held there, as a set in an integer: one bit for each cell of each range
    and for each fixed cell."""
    live = [0] * len(tables.timeline.boundaries)
    masks = [mask for item in tables.singles for _, mask in item.cells] + [mask for mask in tables.fixed if mask]
    for number, mask in enumerate(masks):
        for start, stop in runs(mask):
            for bit in range(start, stop):
                live[bit] |= 1 << number
    return live


def pieces(item: Item, instants: tuple[int, ...]) -> list[Piece]:
    """A range's rectangles at some instants, in the order of their offsets."""
    result: list[Piece] = []
    for offset, mask in item.cells:
        intervals = tuple(runs(at_instants(mask, instants)))
        if not intervals:
            continue
        last = result[-1] if result else None
        if last is not None and last.offset + last.size == offset and last.runs == intervals:
            result[-1] = Piece(last.offset, last.size + 1, intervals)
        else:
            result.append(Piece(offset, 1, intervals))
    return result


def at_instants(mask: int, instants: tuple[int, ...]) -> int:
    """A mask of the timeline as a mask over the list of instants."""
    return sum(1 << k for k, bit in enumerate(instants) if mask >> bit & 1)
