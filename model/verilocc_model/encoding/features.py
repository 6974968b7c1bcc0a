"""The facts that static analysis knows of live ranges and items, in words."""

from __future__ import annotations

from itertools import accumulate

from verilocc_mlir.allocators.cells import CellMap
from verilocc_mlir.allocators.items import Item
from verilocc_mlir.allocators.timeline import Timeline, add_ones
from verilocc_mlir.problem.model import AllocationProblem, LiveRange
from verilocc_model.encoding.vocabulary import NONE, RELATIONS, SLACKS, WEIGHTS, life_word, shape_word

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

    def shape(self, range_id: int) -> str:
        r = self._problem.ranges[range_id]
        return shape_word(_BANK_WORDS.get(r.banks, "-"), 0 if r.lanes % 2 else r.width, r.align)

    def item_shape(self, item: Item) -> str:
        """The shape of its first member, as wide as the whole item and aligned as its strictest member."""
        ranges = [self._problem.ranges[member] for member, _ in item.members]
        banks = set(ranges[0].banks).intersection(*(r.banks for r in ranges))
        if len(ranges) == 1 and ranges[0].lanes % 2:
            return self.shape(ranges[0].id)
        width = -(-item.reach // self._cells.halves)
        return shape_word(_BANK_WORDS.get(tuple(sorted(banks)), "-"), width, max(r.align for r in ranges))

    def item_life(self, item: Item) -> str:
        """How long the members of an item live together, and how deep their uses lie."""
        members = [member for member, _ in item.members]
        first = min(self._spans[m][0] for m in members)
        end = max(self._spans[m][1] for m in members)
        return life_word(_power(-(-(end - first) // 4)), max(self._depths[m] for m in members))

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
        return f"+{min(_power(max(spare, 0)), SLACKS - 1)}.{int(len(item.members) > 1)}"

    def copy(self, weight: float, a: LiveRange, b: LiveRange) -> str:
        """How often a copy runs, and whether both ends have one shape."""
        power = 0 if weight <= 0 else min(1 + len(str(int(weight))) - 1, WEIGHTS - 1)
        relation = (
            RELATIONS[0]
            if (a.width, a.banks, a.align) == (b.width, b.banks, b.align)
            else RELATIONS[1] if a.width != b.width else RELATIONS[2]
        )  # fmt: skip
        return f"copy{power}.{relation}"


def _power(count: int) -> int:
    """0, 1, 2-3, 4-7 … as 0, 1, 2, 3 …"""
    return count.bit_length()


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
