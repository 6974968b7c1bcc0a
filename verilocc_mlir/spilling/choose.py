"""Which registers wait in memory, and where: a weighted covering of the points at which too many are live.

A gap of a register, or a set of gaps, frees the register's live parts at the instructions inside. The choice is greedy:
it takes the set with the least cost per register freed at an overfull point, until no point is overfull. Then it undoes
the choices that later ones have made unnecessary. ``plan.py`` says what a set costs.
"""

from __future__ import annotations

import heapq
import sys
from array import array
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from copy import copy
from itertools import accumulate

from msgspec import Struct
from msgspec.structs import replace

from verilocc_mlir.budget import check_seconds
from verilocc_mlir.spilling.gaps import Access, Gap, RegisterGaps
from verilocc_mlir.spilling.plan import Costs, SpillMove, SpillPlan, spill_plan, written_before

LOAD_AHEAD = 48
"""Most instructions between a load and its use. Scratch memory takes some hundred cycles; a load that is earlier than
that only takes registers away."""

_SHARED = 0.5
"""Lower bound on a set's new price, as a part of the old one, after another set of the same register is chosen: the
store may be shared, and the load remains."""

_MAX_SETS = 12
"""Sets of gaps tried for one connected stretch of gaps."""

_NONE = (1 << 15) - 1
"""What stands for 0 in a packed point, so that 1 sets its top bit."""

_TOGETHER = 256
"""Points in one number."""

Span = tuple[int, int, int]
"""Points from the first up to another, and how many registers."""

_ONES = int.from_bytes(b"\1\0" * _TOGETHER, "little")
_TOPS = _ONES << 15


class Excess(Struct):
    """How many registers are too many at each point. An instruction has two points: it reads, then it writes.

    ``over[2 * i]`` is where instruction *i* reads, ``over[2 * i + 1]`` where it writes. A negative number says how many
    registers are free.

    Attributes:
        parts: mask of the parts that count: all, or those in every other register.
        only: the registers that count, None: all.
    """

    over: list[int]
    parts: int = -1
    only: Collection[int] | None = None

    def counts(self, vreg: int) -> bool:
        """Whether a register counts."""
        return self.only is None or vreg in self.only

    def change(self, gaps: Iterable[Gap], sign: int) -> None:
        """Add the live parts of gaps (``sign`` 1) or take them away (-1): of many at once, each call goes through all
        points."""
        steps = [0] * (len(self.over) + 1)
        for gap in gaps:
            amount = sign * (gap.live & self.parts).bit_count()
            steps[2 * gap.first] += amount
            steps[2 * gap.stop] -= amount
        self.over = [value + amount for value, amount in zip(self.over, accumulate(steps), strict=False)]

    def hold(self, first: int, stop: int, amount: int) -> None:
        """Add ``amount`` registers at instructions ``first`` up to ``stop``."""
        points = slice(2 * first, 2 * stop)
        self.over[points] = [value + amount for value in self.over[points]]

    def add(self, points: int) -> None:
        """Add one register at the points of a mask."""
        self.over = [value + (points >> point & 1) for point, value in enumerate(self.over)]

    def free_before(self, index: int, first: int, parts: int, spare: int) -> int:
        """How many instructions in a row, right before ``index`` and not before ``first``, have room for ``parts``, and
        ``spare`` registers of all left over."""
        amount = (parts & self.parts).bit_count()
        if not amount:
            return index - first
        amount += spare if self.only is None else spare // 2
        at = index
        while at > first and self.over[2 * at - 2] + amount <= 0 and self.over[2 * at - 1] + amount <= 0:
            at -= 1
        return index - at

    def least_free(self, first: int, stop: int) -> int:
        """The fewest registers free at an instruction from ``first`` up to ``stop``."""
        return -max(self.over[2 * first : 2 * stop], default=0)

    @property
    def worst(self) -> int:
        """The most registers that are too many at a point; 0 or less where there are enough everywhere."""
        return max(self.over, default=0)


class PackedExcess:
    """The same points packed into numbers, 16 bits each: what adds to many points at once, and counts them, thousands
    of times. The top bit of a point says that registers are too many there. A number holds few enough points that a
    short gap of a long function costs little, and of those inside a long gap the counts are known.
    """

    def __init__(self, over: list[int]) -> None:
        self._points = len(over)
        packed = array("H", [value + _NONE for value in over])
        packed.extend([0] * (_TOGETHER - len(over) % _TOGETHER))
        self._values = [
            int.from_bytes(packed[at : at + _TOGETHER].tobytes(), sys.byteorder)
            for at in range(0, len(packed), _TOGETHER)
        ]
        self._counts = [(value & _TOPS).bit_count() for value in self._values]
        self._total = sum(self._counts)

    @property
    def over(self) -> list[int]:
        packed = array("H", b"".join(value.to_bytes(2 * _TOGETHER, sys.byteorder) for value in self._values))
        return [value - _NONE for value in packed[: self._points]]

    @property
    def anywhere(self) -> bool:
        """Whether registers are too many at some point."""
        return self._total > 0

    @staticmethod
    def _inside(span: Span) -> list[tuple[int, int]]:
        """The numbers that have points of a span, each with a one for every point that is inside."""
        first, at = divmod(span[0], _TOGETHER)
        last, end = divmod(span[1], _TOGETHER)
        if first == last:
            return [(first, _ONES >> 16 * (_TOGETHER - end + at) << 16 * at)]
        inside = [(first, _ONES >> 16 * at << 16 * at), *((number, _ONES) for number in range(first + 1, last))]
        if end:
            inside.append((last, _ONES >> 16 * (_TOGETHER - end)))
        return inside

    def relief(self, spans: Iterable[Span]) -> int:
        """Registers that spans have at points where registers are too many, summed over these points."""
        counts, values = self._counts, self._values
        freed = 0
        for start, stop, amount in spans:
            first, at = divmod(start, _TOGETHER)
            last, end = divmod(stop, _TOGETHER)
            if first == last:
                if counts[first]:
                    freed += amount * (values[first] >> 16 * at & _TOPS >> 16 * (_TOGETHER - end + at)).bit_count()
                continue
            crowded = sum(counts[first + 1 : last])
            if counts[first]:
                crowded += (values[first] >> 16 * at & _TOPS).bit_count()
            if end and counts[last]:
                crowded += (values[last] & _TOPS >> 16 * (_TOGETHER - end)).bit_count()
            freed += amount * crowded
        return freed

    def change(self, spans: Iterable[Span], sign: int) -> None:
        """Add the registers of spans (``sign`` 1) or take them away (-1)."""
        for span in spans:
            amount = sign * span[2]
            for number, ones in self._inside(span):
                value = self._values[number] = self._values[number] + amount * ones
                count = (value & _TOPS).bit_count()
                self._total += count - self._counts[number]
                self._counts[number] = count

    def room(self, spans: Iterable[Span]) -> bool:
        """Whether the registers of spans could be added without excess, each by itself."""
        for span in spans:
            for number, ones in self._inside(span):
                if ((self._values[number] & ones * 0xFFFF) + ones * span[2]) & _TOPS:
                    return False
        return True


def load_ahead(plan: SpillPlan, excesses: Iterable[Excess], costs: Costs, spare: int) -> SpillPlan:
    """The plan with each load as far ahead of its use as free registers allow, so that the value arrives in time.

    Args:
        spare: registers that stay free.
    """
    begins = {g.closes.index: g.first for g in plan.gaps if g.closes is not None}
    excesses = list(excesses)
    moves: list[SpillMove] = []
    for move in plan.reloads:
        first = begins.get(move.at, move.at) if move.where == "before" else move.at
        if costs.masks is not None:
            while first < move.at and costs.masks.before[first] != costs.masks.before[move.at]:
                first += 1
        first = max(first, move.at - LOAD_AHEAD)
        ahead = min((e.free_before(move.at, first, move.parts, spare) for e in excesses), default=0)
        if move.where == "before" and ahead:
            for excess in excesses:
                excess.hold(move.at - ahead, move.at, (move.parts & excess.parts).bit_count())
            move = replace(move, ahead=ahead)
        moves.append(move)
    return replace(plan, reloads=tuple(moves))


def choose(
    candidates: Mapping[int, Candidates], points: Sequence[Excess], known: Mapping[int, SpillPlan] | None = None
) -> dict[int, SpillPlan] | None:
    """Spill plans, by virtual register, that bring every point within each of its budgets; None if no such plans are
    found.

    Args:
        points: what is left of each budget, ``known`` taken away.
        known: plans to start from, which may get more gaps, or be undone.
    """
    excesses = [(excess, PackedExcess(excess.over)) for excess in points]
    counted: dict[int, list[tuple[PackedExcess, int]]] = {
        vreg: [(packed, excess.parts) for excess, packed in excesses if excess.counts(vreg)] for vreg in candidates
    }
    """By register, the budgets that it counts for, and its parts that do."""
    plans = dict(known or {})
    order = [(vreg, plan.gaps) for vreg, plan in plans.items()]
    chosen: Counter[int] = Counter()
    """How often each register was chosen. A price computed before the last choice is out of date."""
    prices: dict[tuple[int, int], float] = {}
    left: dict[tuple[int, int], tuple[int, list[list[Span]]]] = {}
    """By set of gaps: how often its register was chosen then, and what the set adds to its plan, for each budget."""

    def added(vreg: int, number: int) -> list[list[Span]]:
        candidate = candidates[vreg]
        if vreg not in plans:
            return [candidate.spans(number, parts) for _, parts in counted[vreg]]
        when, spans = left.get((vreg, number), (-1, []))
        if when != chosen[vreg]:
            gaps = candidate.sets[number] - plans[vreg].gaps
            spans = [_spans(gaps, parts) for _, parts in counted[vreg]]
            left[vreg, number] = chosen[vreg], spans
        return spans

    def offer(vreg: int, number: int) -> tuple[float, SpillPlan] | None:
        """The price of adding a set of gaps, for each register freed at an overfull point, and the plan with it."""
        candidate, current = candidates[vreg], plans.get(vreg)
        gaps = candidate.sets[number]
        relief = 0
        for (excess, _), spans in zip(counted[vreg], added(vreg, number), strict=True):
            relief += excess.relief(spans)
        # Most sets relieve nothing, so that they need no plan.
        plan = candidate.plan(gaps) if relief else None
        if plan is not None and current is not None:
            plan = candidate.plan(gaps | current.gaps)
        return None if plan is None else ((plan.cost - (current.cost if current else 0.0)) / relief, plan)

    # Each choice leaves fewer points over budget, so the price of other sets only rises: a price in the heap is a lower
    # bound. Sets of the same register may become cheaper, because they share its store.
    heap: list[tuple[float, int, int, int]] = []
    for vreg, candidate in candidates.items():
        check_seconds()
        for number in range(len(candidate.sets)):
            offered = offer(vreg, number)
            if offered is not None:
                prices[vreg, number] = offered[0]
                heap.append((offered[0], vreg, number, 0))
    heapq.heapify(heap)
    while any(excess.anywhere for _, excess in excesses):
        check_seconds()
        if not heap:
            return None
        _, vreg, number, when = heapq.heappop(heap)
        offered = offer(vreg, number) if when == chosen[vreg] else None
        if offered is None:
            continue
        price, plan = offered
        prices[vreg, number] = price
        if heap and (price, vreg, number) > heap[0][:3]:
            heapq.heappush(heap, (price, vreg, number, when))
            continue
        before = plans[vreg].gaps if vreg in plans else frozenset[Gap]()
        for excess, parts in counted[vreg]:
            excess.change(_spans(plan.gaps - before, parts), -1)
        order.append((vreg, plan.gaps - before))
        plans[vreg] = plan
        chosen[vreg] += 1
        for other in range(len(candidates[vreg].sets)):
            if (vreg, other) in prices:
                heapq.heappush(heap, (_SHARED * prices[vreg, other], vreg, other, chosen[vreg]))
    _undo_unnecessary(plans, order, candidates, counted)
    for excess, packed in excesses:
        excess.over[:] = packed.over
    return plans


def _spans(gaps: Iterable[Gap], parts: int) -> list[Span]:
    """The points inside gaps of one register, with their live parts among ``parts``; gaps of blocks that follow each
    other are one span where the same number of parts is live."""
    spans: list[Span] = []
    start = end = count = 0
    of_gaps = ((gap.first, gap.stop, (gap.live & parts).bit_count()) for gap in gaps if gap.first < gap.stop)
    for first, stop, amount in sorted(of_gaps):
        if first != end or amount != count:
            if count:
                spans.append((2 * start, 2 * end, count))
            start, count = first, amount
        end = stop
    if count:
        spans.append((2 * start, 2 * end, count))
    return spans


def _undo_unnecessary(
    plans: dict[int, SpillPlan],
    order: list[tuple[int, frozenset[Gap]]],
    candidates: Mapping[int, Candidates],
    counted: Mapping[int, list[tuple[PackedExcess, int]]],
) -> None:
    """Undo the choices that later ones have made unnecessary, the most expensive first."""
    for vreg, added in sorted(order, key=lambda o: -plans[o[0]].cost):
        check_seconds()
        plan = plans.get(vreg)
        if plan is None or not added <= plan.gaps:
            continue
        if not all(excess.room(_spans(added, parts)) for excess, parts in counted[vreg]):
            continue
        remaining = plan.gaps - added
        smaller = candidates[vreg].plan(remaining) if remaining else None
        if remaining and (smaller is None or smaller.cost >= plan.cost):
            continue
        for excess, parts in counted[vreg]:
            excess.change(_spans(added, parts), 1)
        if smaller is None:
            del plans[vreg]
        else:
            plans[vreg] = smaller


class Candidates:
    """Sets of gaps of one register that are worth leaving in memory together, where there is a plan for them."""

    def __init__(self, register: RegisterGaps, costs: Costs) -> None:
        self._register = register
        self._costs = costs
        self._known: dict[frozenset[Gap], SpillPlan | None] = {}
        self._spans: dict[tuple[int, int], list[Span]] = {}
        self._written: dict[Gap, dict[Access, int]] | None = None
        sets: dict[frozenset[Gap], None] = {}
        whole: set[Gap] = set()
        for stretch in _stretches(register.gaps):
            if not any(g.first < g.stop for g in stretch):
                continue
            whole |= stretch
            sets |= dict.fromkeys(self._parts(stretch))
        if whole:
            sets[frozenset(whole)] = None
        self.sets = tuple(sets)

    def at(self, costs: Costs) -> Candidates:
        """The same sets at other costs, where blocks weigh the same."""
        other = copy(self)
        other._costs, other._known = costs, {}
        return other

    def plan(self, gaps: frozenset[Gap]) -> SpillPlan | None:
        """The plan for a set of gaps; None where there is none."""
        if gaps not in self._known:
            if self._written is None:
                self._written = written_before(self._register)
            self._known[gaps] = spill_plan(self._register, gaps, self._costs, self._written)
        return self._known[gaps]

    def spans(self, number: int, parts: int) -> list[Span]:
        """The points inside a set of gaps, with their live parts among ``parts``."""
        if (number, parts) not in self._spans:
            self._spans[number, parts] = _spans(self.sets[number], parts)
        return self._spans[number, parts]

    def _parts(self, stretch: frozenset[Gap]) -> list[frozenset[Gap]]:
        """The whole stretch, and smaller ones without the gaps before the most expensive reloads, step by step."""
        parts = [stretch]
        if len(stretch) == 1:
            return parts
        weight = self._costs.weight
        levels = sorted({weight(g.block) for g in stretch if g.closes is not None and g.closes.reads}, reverse=True)
        for level in levels[:_MAX_SETS]:
            # Without the gaps that lead to a reload of this weight: there it stays in its register.
            dear = {g for g in stretch if g.closes is not None and g.closes.reads and weight(g.block) >= level}
            work = list(dear)
            while work:
                for predecessor in work.pop().predecessors:
                    if predecessor not in dear and predecessor in stretch:
                        dear.add(predecessor)
                        work.append(predecessor)
            parts.append(stretch - dear)
            # Without the gaps in blocks of this weight: it is loaded before such a block.
            parts.append(frozenset(g for g in stretch if weight(g.block) < level))
            parts.append(frozenset(g for g in stretch if weight(g.block) >= level and g not in dear))
        return [s for s in dict.fromkeys(parts) if any(g.first < g.stop for g in s)]


def _stretches(gaps: tuple[Gap, ...]) -> list[frozenset[Gap]]:
    """Gaps connected by edges of the control flow."""
    stretches: list[frozenset[Gap]] = []
    visited: set[Gap] = set()
    for gap in gaps:
        if gap in visited:
            continue
        stretch = {gap}
        work = [gap]
        while work:
            gap_at = work.pop()
            for neighbour in (*gap_at.predecessors, *gap_at.successors):
                if neighbour not in stretch:
                    stretch.add(neighbour)
                    work.append(neighbour)
        visited |= stretch
        stretches.append(frozenset(stretch))
    return stretches
