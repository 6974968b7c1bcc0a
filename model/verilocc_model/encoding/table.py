"""Tables of one problem that an episode reads."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate
from typing import NamedTuple

from verilocc_mlir.allocators.bounds import Ceiling, Demand, Room, demands, room, splits
from verilocc_mlir.allocators.cells import CellMap, Timeline, add_ones
from verilocc_mlir.allocators.cost import CellRelation, CostModel, align_up, cell_relation
from verilocc_mlir.allocators.items import Item, lane_offset
from verilocc_mlir.allocators.protocol import AllocationFailure
from verilocc_mlir.allocators.tables import Tables
from verilocc_mlir.problem.model import AllocationProblem, LiveRange
from verilocc_model.encoding.vocabulary import GRANTS, NONE, RELATIONS, SLACKS, SPLITS, WEIGHTS, life_word, shape_word

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
        self.grants = self._grants()
        self.steps = self._steps()
        self.joints = self._joints()

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

    @property
    def least(self) -> int:
        """The fewest registers that any assignment could have."""
        if self.scalar:
            return max(self.room.least.get(("sgpr",), 0), 0)
        return self.room.least_vectors

    @property
    def budget(self) -> int:
        return sum(self.room.top.get(b, 0) for b in (("sgpr",) if self.scalar else ("vgpr", "agpr")))

    def _grants(self) -> tuple[int, ...]:
        """Register totals to choose from, a granule apart, from the fewest possible to the whole budget."""
        totals: list[int] = []
        total = align_up(max(self.least, 1), self.granule)
        while len(totals) < GRANTS - 1 and total < self.budget:
            totals.append(total)
            total += self.granule
        return (*totals, self.budget)

    def _steps(self) -> tuple[int, ...]:
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

    def _joints(self) -> tuple[Joint, ...]:
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


# The places that copies and the machine's preferences want for an item, given the places of others.


class Rule(NamedTuple):
    """An item starts at ``place``; with a ``modulus``, it starts anywhere but at ``place`` modulo ``modulus``."""

    place: int
    modulus: int

    def holds(self, start: int) -> bool:
        """Whether an item at ``start`` keeps the rule."""
        apart = start - self.place
        return apart % self.modulus != 0 if self.modulus else apart == 0


class Demands:
    """What copies and preferences want of the start of one item.

    Args:
        places: starts at which copies vanish, with the weight of those copies.
        groups: rules that count only together, each group with its weight.
    """

    def __init__(self, places: Mapping[int, float], groups: Sequence[tuple[Sequence[Rule], float]]) -> None:
        self._places = places
        self._copies = sum(places.values())
        self._groups = groups

    def unmet(self, start: int) -> float:
        """The weight that is not met at ``start``."""
        weight_unmet = self._copies - self._places.get(start, 0.0)
        return weight_unmet + sum(weight for rules, weight in self._groups if not all(r.holds(start) for r in rules))

    def better(self, than: int, candidates: Iterable[int], fits: Callable[[int], bool]) -> int:
        """The first fitting candidate with the least unmet weight; -1 if that is not less than at ``than``."""
        best, least = -1, self.unmet(than)
        for start in candidates:
            if not least:
                break
            unmet = self.unmet(start)
            if unmet < least and fits(start):
                best, least = start, unmet
        return best


class Wishes:
    """The copies and preferences of each range; weights as in ``CostModel``.

    Args:
        count: number of ranges.
    """

    def __init__(self, count: int, cost: CostModel) -> None:
        # Per range: (other range, its start minus ours, weight), (cell, weight), and indices of preferences.
        self._partners: list[list[tuple[int, int, float]]] = [[] for _ in range(count)]
        self._cells: list[list[tuple[int, float]]] = [[] for _ in range(count)]
        self._preferences = cost.preferences
        self._preferring: list[list[int]] = [[] for _ in range(count)]
        for a, b, distance, weight in cost.pairs:
            if distance is not None and a != b and weight:
                self._partners[a].append((b, distance, weight))
                self._partners[b].append((a, -distance, weight))
        for a, goal, weight in cost.fixed:
            if weight:
                self._cells[a].append((goal, weight))
        for number, (relations, _) in enumerate(self._preferences):
            for member in {r.a for r in relations} | {r.b for r in relations}:
                self._preferring[member].append(number)

    def of(self, item: Item, starts: Sequence[int]) -> Demands:
        """What the ranges that have a place want of ``item``'s start.

        A preference that is already lost wants nothing. Of any other, all relations count that the item's place
        decides, so that the preference can still be met.

        Args:
            item: an item without a place.
            starts: each range's start; -1 where it has none yet.
        """
        offsets = dict(item.members)
        places: dict[int, float] = {}
        numbers: set[int] = set()
        for member, offset in item.members:
            for partner, distance, weight in self._partners[member]:
                if partner not in offsets and starts[partner] >= 0:
                    start = starts[partner] - distance - offset
                    places[start] = places.get(start, 0.0) + weight
            for cell, weight in self._cells[member]:
                places[cell - offset] = places.get(cell - offset, 0.0) + weight
            numbers.update(self._preferring[member])
        groups: list[tuple[Sequence[Rule], float]] = []
        for number in sorted(numbers):
            relations, weight = self._preferences[number]
            rules = _rules(relations, offsets, starts)
            if rules:
                groups.append((rules, weight))
        return Demands(places, groups)


def _rules(relations: Iterable[CellRelation], offsets: Mapping[int, int], starts: Sequence[int]) -> list[Rule]:
    """Relations as rules of an item's start; no rules if one relation cannot hold any more."""
    rules: list[Rule] = []
    for relation in relations:
        a, b, distance, modulus = relation
        if a in offsets and b in offsets:
            holds = relation.holds(offsets[a], offsets[b])
        elif a in offsets:
            holds = True
            if starts[b] >= 0:
                rules.append(Rule(starts[b] - distance - offsets[a], modulus))
        elif b in offsets:
            holds = True
            if starts[a] >= 0:
                rules.append(Rule(starts[a] + distance - offsets[b], modulus))
        else:
            holds = starts[a] < 0 or starts[b] < 0 or relation.holds(starts[a], starts[b])
        if not holds:
            return []
    return rules


# The facts that static analysis knows of live ranges and items, in words.


_BANK_WORDS = {
    ("vgpr",): "v",
    ("agpr",): "a",
    ("agpr", "vgpr"): "va",
    ("sgpr",): "s",
    ("sgpr", "special"): "sx",
    ("special",): "x",
}


class Features:
    """Words for one problem's live ranges.

    Args:
        problem: in canonical form.
        singles: one item for each live range.
    """

    def __init__(self, problem: AllocationProblem, timeline: Timeline, cells: CellMap, singles: list[Item]) -> None:
        self._problem = problem
        self._cells = cells
        self._profile = _profiles(problem, timeline, singles)
        self._spans = [_span(r) for r in problem.ranges]
        self._depths = [max((p.depth for p in r.points), default=0) for r in problem.ranges]

    def item_shape(self, item: Item) -> str:
        """The shape of its first member, as wide as the whole item and aligned as its strictest member."""
        ranges = [self._problem.ranges[member] for member, _ in item.members]
        banks = set(ranges[0].banks).intersection(*(r.banks for r in ranges))
        is_half = len(ranges) == 1 and ranges[0].lanes % 2
        width = 0 if is_half else -(-item.reach // self._cells.halves)
        return shape_word(_BANK_WORDS.get(tuple(sorted(banks)), "-"), width, max(r.align for r in ranges))

    def item_life(self, item: Item) -> str:
        """How long the members of an item live together (a power of two), and how deep their uses lie."""
        members = [member for member, _ in item.members]
        first = min(self._spans[m][0] for m in members)
        end = max(self._spans[m][1] for m in members)
        return life_word((-(-(end - first) // 4)).bit_length(), max(self._depths[m] for m in members))

    def role(self, item: Item) -> str:
        """Who defines it first and who reads it last."""
        ranges = [self._problem.ranges[member] for member, _ in item.members]
        defs = [(p.slot, p.family) for r in ranges for p in r.points if p.kind != "use"]
        uses = [(p.slot, p.family) for r in ranges for p in r.points if p.kind == "use"]
        return f"{min(defs)[1] if defs else NONE}>{max(uses)[1] if uses else NONE}"

    def slack(self, item: Item, registers: int) -> str:
        """How many of ``registers`` are left over at the worst point of an item's life, and whether it is joined.

        The demand is that of all ranges that may go only where the item may.
        """
        banks = self._problem.ranges[item.members[0][0]].banks
        profile = self._profile[banks]
        worst = 0
        for _, mask in item.cells[:1]:
            worst = max(profile[item.start : mask.bit_length()], default=0)
        spare = registers - -(-worst // self._cells.halves)
        return f"+{min(max(spare, 0).bit_length(), SLACKS - 1)}.{int(len(item.members) > 1)}"

    def copy(self, weight: float, a: LiveRange, b: LiveRange) -> str:
        """How often a copy runs, and whether both ends have one shape."""
        power = 0 if weight <= 0 else min(1 + len(str(int(weight))) - 1, WEIGHTS - 1)
        relation = (
            RELATIONS[0]
            if (a.width, a.banks, a.align) == (b.width, b.banks, b.align)
            else RELATIONS[1] if a.width != b.width else RELATIONS[2]
        )  # fmt: skip
        return f"copy{power}.{relation}"


def _span(live_range: LiveRange) -> tuple[int, int]:
    segments = [s for g in live_range.groups for s in g.segments]
    return (min(s[0] for s in segments), max(s[1] for s in segments)) if segments else (0, 0)


def _profiles(problem: AllocationProblem, timeline: Timeline, singles: list[Item]) -> dict[tuple[str, ...], list[int]]:
    """For each set of files, cells needed at each bit of the timeline by ranges that may only be in those files."""
    bits = len(timeline.boundaries)
    profiles: dict[tuple[str, ...], list[int]] = {}
    for banks in {r.banks for r in problem.ranges}:
        change = [0] * (bits + 1)
        for r in problem.ranges:
            if set(r.banks).issubset(banks):
                for _, mask in singles[r.id].cells:
                    add_ones(change, mask)
        profiles[banks] = list(accumulate(change[:bits]))
    return profiles


# The price by which answers are ranked.


class Price(NamedTuple):
    """Smaller is better, first field first. It is ``allocators.cost.Cost`` with registers counted in granules.

    Attributes:
        lost_waves: waves fewer than the most a SIMD holds.
        copies: ``Cost.saves_and_copies``.
        granules: granules of registers (eight SGPRs).
    """

    lost_waves: int
    copies: float
    granules: int


def price_of(table: Table, starts: Sequence[int]) -> Price:
    """The price when range *i* of the canonical problem starts at cell ``starts[i]``."""
    cost = table.cost.of(starts)
    return Price(cost.lost_waves, cost.saves_and_copies, -(-cost.registers // table.granule))
