"""The packing model: live ranges as rectangles, instants across, registers up."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from verilocc_mlir.allocators.bounds import Ceiling
from verilocc_mlir.allocators.exact.bound import add_counting, literals
from verilocc_mlir.allocators.exact.frame import Apart, Frame, Together
from verilocc_mlir.allocators.exact.layout import Layout, at_instants, pieces
from verilocc_mlir.allocators.exact.solver import Answer, Budget, ask, load
from verilocc_mlir.allocators.timeline import runs


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
