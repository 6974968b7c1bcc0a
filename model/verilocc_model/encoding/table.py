"""Tables of one problem that an episode reads."""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple

from verilocc_mlir.allocators.bounds import Ceiling, Demand, Room, demands, room, splits
from verilocc_mlir.allocators.coalesce import lane_offset
from verilocc_mlir.allocators.cost import align_up, cell_relation
from verilocc_mlir.allocators.items import Item
from verilocc_mlir.allocators.protocol import AllocationFailure
from verilocc_mlir.allocators.tables import Tables
from verilocc_mlir.problem.model import AllocationProblem
from verilocc_model.encoding.features import Features
from verilocc_model.encoding.vocabulary import GRANTS, SPLITS
from verilocc_model.encoding.wishes import Wishes

SCALAR_GRANULE = 8
"""SGPRs are granted in steps of eight: the encoding granule of GCNSubtarget.cpp before gfx10, small enough after."""


class Joint(NamedTuple):
    """Two ranges that are better placed as one.

    Attributes:
        a, b: range ids.
        distance: cells from the start of ``a`` to that of ``b`` if they are placed as one.
        weight: estimated executions of a copy, as in ``Affinity`` and ``Preference``.
        chain: a preference for one register is met (chained matrix operations); otherwise a copy vanishes.
    """

    a: int
    b: int
    distance: int
    weight: float
    chain: bool


class Table(Tables):
    """``Tables`` of a problem in canonical form, and what the questions need besides."""

    def __init__(self, problem: AllocationProblem) -> None:
        super().__init__(problem)
        self.features = Features(problem, self.timeline, self.cells, self.singles)
        self.wishes = Wishes(len(problem.ranges), self.cost)
        self.demands: tuple[Demand, ...] = demands(problem, self.timeline, self.cells, self.singles, self.fixed)
        self.room: Room = room(problem, self.demands)
        self.scalar = problem.phase == "sgpr"
        self.granule = SCALAR_GRANULE if self.scalar else max(problem.occupancy.granule, 1)

    def check_pressure(self) -> None:
        """Raises AllocationFailure where more registers are needed at one point than there are."""
        for demand in self.demands:
            if demand.registers > demand.available:
                banks = " and ".join(b.upper() + "s" for b in demand.banks)
                raise AllocationFailure(
                    f"{demand.registers} {banks} are needed at once, {demand.available} are free there",
                    reason="pressure",
                    where=f"function {self.problem.function}, slot {demand.slot}",
                )

    @cached_property
    def least(self) -> int:
        """The fewest registers that any assignment could have."""
        if self.scalar:
            return max(self.room.least.get(("sgpr",), 0), 0)
        return self.room.least_vectors

    @cached_property
    def budget(self) -> int:
        return sum(self.room.top.get(b, 0) for b in (("sgpr",) if self.scalar else ("vgpr", "agpr")))

    @cached_property
    def grants(self) -> tuple[int, ...]:
        """Register totals to choose from, a granule apart, from the fewest possible to the whole budget."""
        totals: list[int] = []
        total = align_up(max(self.least, 1), self.granule)
        while len(totals) < GRANTS - 1 and total < self.budget:
            totals.append(total)
            total += self.granule
        return (*totals, self.budget)

    @cached_property
    def steps(self) -> tuple[int, ...]:
        """Indices of the ``grants`` that are the last before the loss of a wave, and of the whole budget."""
        waves = [self.waves(total) for total in self.grants]
        return (*(k for k in range(len(waves) - 1) if waves[k + 1] < waves[k]), len(waves) - 1)

    def shares(self, total: int) -> tuple[Ceiling, ...]:
        """Ways to share a total between the files; none where the demand rules all of them out."""
        if self.scalar:
            return ({"sgpr": total},)
        ceilings: list[Ceiling] = []
        for ceiling in splits(self.problem, self.room, total):
            if ceiling not in ceilings:
                ceilings.append(ceiling)
        return tuple(ceilings[:SPLITS])

    def waves(self, total: int) -> int:
        return self.problem.occupancy.max_waves - self.cost.lost_waves(total)

    def registers_for(self, banks: tuple[str, ...], ceiling: Ceiling) -> int:
        """Registers that a ceiling leaves to ranges that may be in these files."""
        return sum(min(ceiling.get(b, 0), self.room.top.get(b, 0)) for b in banks)

    def parts(self, item: Item) -> list[Item]:
        """The ranges that an item is joined from, one item each."""
        return [self.singles[member] for member, _ in item.members]

    @cached_property
    def joints(self) -> tuple[Joint, ...]:
        """Pairs of ranges that copies or chains connect, heaviest first."""
        joints: list[tuple[Joint, int]] = []
        for a in self.problem.affinities:
            distance = lane_offset(a.a_lane - a.b_lane, self.cells.halves)
            if a.b >= 0 and a.a != a.b and distance is not None:
                joints.append((Joint(a.a, a.b, distance, a.weight, chain=False), a.slot))
        for p in self.problem.preferences:
            if len(p.relations) == 1 and not p.relations[0].modulus:
                relation = cell_relation(p.relations[0], self.cells)
                if relation.a != relation.b:
                    joints.append((Joint(relation.a, relation.b, relation.distance, p.weight, chain=True), p.slot))
        return tuple(joint for joint, _ in sorted(joints, key=lambda f: (-f[0].weight, f[1], f[0].a, f[0].b)))
