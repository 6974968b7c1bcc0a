"""Answering one problem as a sequence of questions, each with the facts that static analysis knows at that point.

Three stages. *Joining*: for each copy that could vanish, heaviest first, whether its ends are placed as one.
*Planning*: in which order items are placed, how many registers are granted, how they are shared between files.
*Placing*: a register for each item, in that order.

An episode knows nothing of language models: it hands out words and takes words. It can be rewound, so that a decoder
may draft ahead. What may be answered is the mask:

* a register must be of the item's class, aligned, inside of the grant, and free while the item lives;
* with ``lookahead``, an answer must leave a complete assignment: the episode keeps one, the *witness*, found by first
  fit and repair, and an answer that contradicts it is allowed if the ranges it displaces find other places. So an
  episode that got its witness ends with an assignment, whatever is answered;
* without ``mask``, any word is taken; one that names no place for the item leaves it without a register.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from verilocc_mlir.allocators.bounds import Ceiling
from verilocc_mlir.allocators.coalesce import join_items
from verilocc_mlir.allocators.cost import Cost
from verilocc_mlir.allocators.items import Candidates, Item
from verilocc_mlir.allocators.packing import Packing, below
from verilocc_mlir.allocators.protocol import AllocationFailure
from verilocc_mlir.allocators.search import Placement, Strategy, by_area, by_start, by_width
from verilocc_model.encoding.table import Table
from verilocc_model.encoding.vocabulary import (
    AGPRS,
    APART,
    BEGIN,
    ENDLESS,
    FIRST,
    GRANTS,
    HALVES,
    HINT,
    JOIN,
    NONE,
    NUMBERS,
    POINTERS,
    SPECIALS,
    TIGHT,
    TOP,
)

STRATEGIES = (
    Strategy("program order", by_start, coalesced=True),
    Strategy("largest first", by_area, coalesced=True),
    Strategy("widest first", by_width, coalesced=True),
)
"""What ``order0`` … mean."""

REPAIR_STEPS = 400
DISPLACED = 24
"""Items that one answer may displace from the witness."""


@dataclass(frozen=True)
class Question:
    """What is asked next.

    Attributes:
        stage: ``joining``, ``planning`` or ``placing``.
        facts: words that come before the answer.
        draft: an answer that is allowed, found without a model: what the witness says, or else what is free; ``""``
            where that is not known.
        final: the answer must be known before there is a next question.
    """

    stage: str
    facts: tuple[str, ...]
    draft: str
    final: bool = False


@dataclass(frozen=True)
class Advice:
    """What earlier refutations say of one range: cells that it cannot have, and cells that it could have had."""

    refuted: tuple[int, ...] = ()
    free: tuple[int, ...] = ()


@dataclass
class _Plan:
    order: int = 0
    grant: int = 0
    share: int = 0
    ceiling: Ceiling = field(default_factory=dict)


class Episode:
    """One way through the questions of a problem.

    Args:
        table: the problem.
        mask: take only answers that the mask allows.
        lookahead: keep a witness; needs ``mask``.
        advice: by range id, what refutations of earlier proposals said.
        plain: where to keep what first fit needs in each order, for further episodes that join the same copies.

    Raises:
        AllocationFailure: with ``lookahead``, no assignment was found even without a model.
    """

    def __init__(
        self,
        table: Table,
        *,
        mask: bool = True,
        lookahead: bool = True,
        advice: Mapping[int, Advice] | None = None,
        plain: dict[int, int] | None = None,
    ) -> None:
        self.table = table
        self._mask = mask
        self._advice = dict(advice or {})
        self.lookahead = lookahead and mask
        self._item_of: list[Item] = list(table.singles)
        self._offset_of = [0] * len(table.singles)
        self.copy = 0
        """The copy asked about, as an index of ``table.copies``."""
        self._plan = _Plan()
        self._planned = 0
        self._witnesses: dict[tuple[int, int, int], Placement] = {}
        self._plain_of: dict[int, int] = {} if plain is None else plain
        self._too_few = -1
        self._contradictions = 0
        self._tried: set[tuple[int, int, int, int]] = set()
        self._starts_of: dict[Item, Candidates] = {}
        self.witness: Placement | None = None
        self._queue: list[Item] = []
        self._next = 0
        self.decided = Packing(table.fixed)
        self.starts: list[int] = [-1] * len(table.singles)
        self._undo: list[Callable[[], None]] = []
        self._limits: dict[tuple[Candidates, int], tuple[Candidates, frozenset[int]]] = {}
        self._skip_copies()

    # --- what the caller sees ------------------------------------------------------------------------------------

    @property
    def stage(self) -> str:
        """The stage of the next question, ``done`` after the last."""
        if self.copy < len(self.table.copies):
            return "joining"
        if self._planned < 3:
            return "planning"
        return "placing" if self._next < len(self._queue) else "done"

    def header(self) -> tuple[str, ...]:
        """Words that a window begins with: the problem as a whole, and the plan once there is one."""
        t = self.table
        occupancy = t.problem.occupancy
        words = [
            BEGIN, t.problem.phase, "shared-file" if occupancy.unified else "own-files",
            "needs", _number(t.least), "of", _number(t.budget), _number(t.granule), _number(len(t.singles)),
        ]  # fmt: skip
        for k in t.steps[:3]:
            words += ["wave-at", f"grant{k}"]
        stage = self.stage
        words.append(stage if stage != "done" else "placing")
        if stage in ("placing", "done"):
            words += self._plan_words()
        return tuple(words)

    def question(self) -> Question | None:
        """What is asked next, None where everything is answered."""
        stage = self.stage
        if stage == "joining":
            return self._ask_copy()
        if stage == "planning":
            return self._ask_plan()
        return self._ask_place() if stage == "placing" else None

    def answer(self, word: str) -> bool:
        """Answer the question; False, and nothing is changed, where the mask forbids the word."""
        stage = self.stage
        if stage == "joining":
            return self._answer_copy(word)
        if stage == "planning":
            return self._answer_plan(word)
        return self._answer_place(word)

    def mark(self) -> int:
        """Where we are, for ``rewind``."""
        return len(self._undo)

    def rewind(self, mark: int) -> None:
        """Take back all answers since ``mark``, none of which may have displaced anything or been final."""
        while len(self._undo) > mark:
            self._undo.pop()()

    def options(self) -> Iterator[str]:
        """Words that could answer the question, most of which the mask may forbid."""
        stage = self.stage
        if stage == "joining":
            return iter((JOIN, APART))
        if stage == "planning":
            if self._planned == 0:
                return (f"order{k}" for k in range(len(STRATEGIES)))
            if self._planned == 1:
                return (f"grant{k}" for k in range(len(self.table.grants)))
            return (f"split{k}" for k in range(len(self.shares)))
        return self._registers()

    def registers(self) -> tuple[str, ...]:
        """The answer: a register for each range of the canonical problem, ``""`` where an answer named none."""
        t = self.table
        return tuple(
            t.cells.name(start, r) if start >= 0 else "" for start, r in zip(self.starts, t.problem.ranges, strict=True)
        )

    # --- joining -------------------------------------------------------------------------------------------------

    def _joined(self) -> Item | None:
        """The item that the copy at hand would make; None where it cannot be."""
        affinity, distance = self.table.copies[self.copy]
        first, second = self._item_of[affinity.a], self._item_of[affinity.b]
        if first is second:
            return None
        shift = self._offset_of[affinity.a] + distance - self._offset_of[affinity.b]
        joined = join_items(first, second, shift)
        return joined if joined is not None and self.table.candidates.of(joined) else None

    def _skip_copies(self) -> None:
        while self.copy < len(self.table.copies) and self._joined() is None:
            self.copy += 1

    def _ask_copy(self) -> Question:
        t = self.table
        affinity, _ = t.copies[self.copy]
        a, b = t.problem.ranges[affinity.a], t.problem.ranges[affinity.b]
        first, second = self._item_of[affinity.a], self._item_of[affinity.b]
        facts = (
            t.features.copy(affinity.weight, a, b),
            t.features.item_shape(first),
            t.features.item_life(first),
            t.features.item_life(second),
            t.features.slack(first if first.area > second.area else second, self._room_for(a.banks)),
        )
        return Question("joining", facts, JOIN)

    def _answer_copy(self, word: str) -> bool:
        if word not in (JOIN, APART) and self._mask:
            return False
        before = self.copy
        changed: list[tuple[int, Item, int]] = []
        if word == JOIN:
            joined = self._joined()
            if joined is None:
                raise AssertionError("a copy was asked about that cannot vanish")
            for member, offset in joined.members:
                changed.append((member, self._item_of[member], self._offset_of[member]))
                self._item_of[member], self._offset_of[member] = joined, offset
        self.copy += 1
        self._skip_copies()

        def undo() -> None:
            self.copy = before
            for member, item, offset in changed:
                self._item_of[member], self._offset_of[member] = item, offset
            # A plan drafted ahead was for these joins.
            self._witnesses.clear()
            self._tried.clear()
            self._plain_of.clear()

        self._undo.append(undo)
        return True

    # --- planning ------------------------------------------------------------------------------------------------

    @property
    def shares(self) -> tuple[Ceiling, ...]:
        """Ways to share the registers granted."""
        return self.table.shares(self.table.grants[self._plan.grant])

    def _plan_words(self) -> list[str]:
        chosen = [f"order{self._plan.order}", f"grant{self._plan.grant}", f"split{self._plan.share}"]
        return chosen[: self._planned]

    def _ask_plan(self) -> Question:
        if self._planned == 0:
            items = list(dict.fromkeys(self._item_of))
            widest = max(items, key=lambda i: (i.width, i.area), default=None)
            facts = ["planning", _number(len(items)), self.table.features.item_shape(widest) if widest else NONE]
            for order in range(len(STRATEGIES)):
                grant = self._plain(order)
                facts += [f"order{order}", f"grant{grant}" if grant >= 0 else NONE]
            return Question("planning", tuple(facts), self._draft_order(), final=True)
        if self._planned == 1:
            plain = self._plain(self._plan.order)
            facts = ["first", f"grant{plain}" if plain >= 0 else NONE]
            return Question("planning", tuple(facts), self._draft_grant(), final=True)
        facts = tuple(_number(c.get("agpr", 0)) for c in self.shares)
        return Question("planning", facts, self._draft_share(), final=True)

    def _draft_order(self) -> str:
        """The order whose witness is cheapest."""
        if not self.lookahead:
            return ""
        best: tuple[Cost, int] | None = None
        for order in range(len(STRATEGIES)):
            self._plan.order = order
            try:
                grant = _tail(self._draft_grant(), "grant")
            except AllocationFailure:
                continue
            for share in range(len(self.table.shares(self.table.grants[grant]))):
                found = self._witness(order, grant, share)
                if found is not None:
                    cost = self.table.cost.of(found.starts)
                    if best is None or cost < best[0]:
                        best = (cost, order)
        self._plan.order = 0
        if best is None:
            raise self._no_witness()
        return f"order{best[1]}"

    def _no_witness(self) -> AllocationFailure:
        return AllocationFailure(
            "no assignment was found without spilling",
            reason="fragmentation",
            where=f"function {self.table.problem.function}",
        )

    def _draft_grant(self) -> str:
        if not self.lookahead:
            return ""
        # The fewest registers, in steps of a wave, for which there is a witness; then fewer granules without repair.
        level = next((k for k in self.table.steps if self._reached(k)), -1)
        if level < 0:
            raise self._no_witness()
        plain = self._plain(self._plan.order)
        return f"grant{min(plain, level) if plain >= 0 else level}"

    def _plain(self, order: int) -> int:
        """The fewest registers, as an index of the grants, with which first fit in an order goes through; -1: none."""
        found = self._plain_of.get(order)
        if found is None:
            before = self._plan.order
            self._plan.order = order
            low, high, last = 0, 0, len(self.table.grants) - 1
            # It is near the least that could do, as a rule: steps that double, then halves.
            while not self._reached(high, steps=0):
                low = high + 1
                if low > last:
                    break
                high = min(2 * high + 1, last)
            while low < high:
                middle = (low + high) // 2
                if self._reached(middle, steps=0):
                    high = middle
                else:
                    low = middle + 1
            self._plan.order = before
            found = self._plain_of[order] = low if low <= last else -1
        return found

    def _draft_share(self) -> str:
        if not self.lookahead:
            return ""
        for k in range(len(self.shares)):
            if self._witness(self._plan.order, self._plan.grant, k) is not None:
                return f"split{k}"
        raise AssertionError("a grant was taken without a witness")

    def _reached(self, grant: int, steps: int = REPAIR_STEPS) -> bool:
        shares = self.table.shares(self.table.grants[grant])
        return any(self._witness(self._plan.order, grant, k, steps) is not None for k in range(len(shares)))

    def _witness(self, order: int, grant: int, share: int, steps: int = REPAIR_STEPS) -> Placement | None:
        key = (order, grant, share)
        found = self._witnesses.get(key)
        if found is not None:
            return found
        if (*key, steps) in self._tried:
            return None
        self._tried.add((*key, steps))
        t = self.table
        items = list(dict.fromkeys(self._item_of))
        ceiling = t.shares(t.grants[grant])[share]
        placement = Placement(items, t.fixed, t.candidates, t.hints, t.cells, ceiling)
        placement.run(STRATEGIES[order])
        if placement.waiting and not (steps and placement.repair(self._parts, steps)):
            return None
        self._witnesses[key] = placement
        return placement

    def _answer_plan(self, word: str) -> bool:
        kind = ("order", "grant", "split")[self._planned]
        number = _tail(word, kind)
        plan = self._plan
        if kind == "order":
            if number not in range(len(STRATEGIES)):
                return self._default_plan(kind)
            plan.order = number
            if self.lookahead and not any(self._reached(k) for k in reversed(self.table.steps)):
                return False
            self._planned = 1
            return True
        if kind == "grant":
            if number not in range(min(len(self.table.grants), GRANTS)):
                return self._default_plan(kind)
            if self._mask and not self.table.shares(self.table.grants[number]):
                return False
            if self.lookahead and (number <= self._too_few or not self._reached(number)):
                # No witness was found, so none is looked for with fewer registers.
                self._too_few = max(self._too_few, number)
                return False
            plan.grant = number
            self._planned = 2
            return True
        shares = self.shares
        if number not in range(len(shares)):
            return self._default_plan(kind)
        if self.lookahead:
            self.witness = self._witness(plan.order, plan.grant, number)
            if self.witness is None:
                return False
        plan.share, plan.ceiling = number, shares[number]
        self._planned = 3
        self._start_placing()
        return True

    def _default_plan(self, kind: str) -> bool:
        """Without a mask a word that is no plan means the whole budget; with one it is refused."""
        if self._mask:
            return False
        plan = self._plan
        if kind == "order":
            self._planned = 1
        elif kind == "grant":
            plan.grant, self._planned = len(self.table.grants) - 1, 2
        else:
            shares = self.shares
            plan.ceiling, self._planned = (shares[0] if shares else dict(self.table.room.top)), 3
            self._start_placing()
        return True

    def _start_placing(self) -> None:
        items = self.witness.packing.placed if self.witness is not None else dict.fromkeys(self._item_of)
        self._queue = sorted(items, key=STRATEGIES[self._plan.order].order)
        self._undo.clear()

    # --- placing -------------------------------------------------------------------------------------------------

    def _candidates(self, item: Item) -> tuple[Candidates, frozenset[int]]:
        """Where the item may start under the ceiling, as a list and as a set."""
        every = self._starts_of.get(item)
        if every is None:
            every = self._starts_of[item] = self.table.candidates.of(item)
        key = (every, item.reach)
        found = self._limits.get(key)
        if found is None:
            inside = below(every, self.table.cells, self._plan.ceiling, item.reach)
            found = self._limits[key] = (inside, frozenset(inside))
        return found

    def _ask_place(self) -> Question:
        t = self.table
        item = self._queue[self._next]
        banks = t.problem.ranges[item.members[0][0]].banks
        facts = [
            t.features.item_shape(item),
            t.features.item_life(item),
            t.features.role(item),
            t.features.slack(item, self._room_for(banks)),
        ]
        for member, offset in item.members:
            advice = self._advice.get(member)
            if advice is not None:
                for cell in advice.refuted[:2]:
                    facts += ["refuted", self._cell_word(item, cell - offset)]
                for cell in advice.free[:2]:
                    facts += ["free", self._cell_word(item, cell - offset)]
        hint = self._hint(item)
        if hint >= 0:
            facts += ["hint", self._cell_word(item, hint)]
        first = self._first(item)
        facts += ["first", self._cell_word(item, first) if first >= 0 else NONE]
        draft = HINT if hint >= 0 else FIRST if first >= 0 else ""
        if self.witness is not None:
            draft = self._word_of(item, self.witness.packing.placed[item], hint, first)
        return Question("placing", tuple(facts), draft)

    def _answer_place(self, word: str) -> bool:
        item = self._queue[self._next]
        start = self._cell_of(item, word)
        candidates, allowed = self._candidates(item)
        if start not in allowed or not self.decided.fits(item, start):
            if self._mask:
                return False
            return self._put_unmasked(item, start, candidates)
        contradicted = self.witness is not None and self.witness.packing.placed[item] != start
        if contradicted and not self._displace(item, start):
            return False
        self._put(item, start)
        if contradicted:
            self._contradictions += 1
            if self._contradictions.bit_count() == 1:
                self._renew()
        return True

    def _put(self, item: Item, start: int) -> None:
        self.decided.place(item, start)
        for member, offset in item.members:
            self.starts[member] = start + offset
        self._next += 1

        def undo() -> None:
            self.decided.remove(item)
            for member, _ in item.members:
                self.starts[member] = -1
            self._next -= 1

        self._undo.append(undo)

    def _put_unmasked(self, item: Item, start: int, candidates: Candidates) -> bool:
        """Take a wrong answer as it is: the registers named, if there are such, held twice or not."""
        cells = self.table.cells
        named = start >= 0 and all(self.table.candidates.allows(m, start + offset) for m, offset in item.members)
        for member, offset in item.members:
            self.starts[member] = start + offset if named and start + offset < cells.size else -1
        before = self._next
        self._next += 1

        def undo() -> None:
            for member, _ in item.members:
                self.starts[member] = -1
            self._next = before

        self._undo.append(undo)
        return True

    def _renew(self) -> None:
        """Another witness, first fit from here on, if there is one.

        Who answers otherwise than the witness said is likely to go on so. Tried after 1, 2, 4 … contradictions.
        """
        t = self.table
        rest = self._queue[self._next :]
        fresh = Placement(rest, t.fixed, t.candidates, t.hints, t.cells, self._plan.ceiling)
        for item, start in self.decided.placed.items():
            fresh.put(item, start)
        fresh.run(STRATEGIES[self._plan.order])
        if not fresh.waiting:
            self.witness = fresh

    def _displace(self, item: Item, start: int) -> bool:
        """Move what is undecided out of the way of ``item`` at ``start``; False, and nothing moved, if it cannot."""
        witness = self.witness
        if witness is None:
            raise AssertionError("no witness")
        packing = witness.packing
        origin = witness.lift(item)
        others = packing.conflicts(item, start)
        if len(others) > DISPLACED:
            witness.put(item, origin)
            return False
        homes = [(other, witness.lift(other)) for other in others]
        witness.put(item, start)
        placed: list[Item] = []
        for other, _ in sorted(homes, key=lambda pair: by_area(pair[0])):
            moved = self._settle(other, placed)
            if not moved:
                for done in placed:
                    witness.lift(done)
                witness.lift(item)
                for whom, home in homes:
                    witness.put(whom, home)
                witness.put(item, origin)
                return False
        self._requeue(others, placed)
        return True

    def _settle(self, item: Item, placed: list[Item]) -> bool:
        """Put a displaced item, or each of its parts, where there is room; what was put is added to ``placed``."""
        witness = self.witness
        if witness is None:
            raise AssertionError("no witness")
        if witness.place(item, witness.candidates(item)):
            placed.append(item)
            return True
        parts = self._parts(item)
        return len(parts) > 1 and all(self._settle(part, placed) for part in parts)

    def _requeue(self, displaced: list[Item], placed: list[Item]) -> None:
        """Ask for the parts of items that were taken apart."""
        apart = [item for item in displaced if item not in placed]
        if not apart:
            return
        order = STRATEGIES[self._plan.order].order
        rest = [i for i in self._queue[self._next :] if i not in apart]
        for part in placed:
            if part not in displaced:
                bisect.insort(rest, part, key=order)
        # The item at hand comes first, whatever its parts' keys are.
        current = self._queue[self._next]
        rest.remove(current)
        self._queue[self._next :] = [current, *rest]

    def _parts(self, item: Item) -> list[Item]:
        return [self.table.singles[member] for member, _ in item.members]

    def _room_for(self, banks: tuple[str, ...]) -> int:
        """Registers that the plan leaves to ranges of these files; the whole budget before there is a plan."""
        limits = self._plan.ceiling if self._planned == 3 else self.table.room.top
        return sum(min(limits.get(b, 0), self.table.room.top.get(b, 0)) for b in banks)

    # --- cells and words -----------------------------------------------------------------------------------------

    def _hint(self, item: Item) -> int:
        _, allowed = self._candidates(item)
        for start in self.table.hints.starts(item, self.starts):
            if start in allowed and self.decided.fits(item, start):
                return start
        return -1

    def _first(self, item: Item) -> int:
        return self.decided.first_fit(item, self._candidates(item)[0])

    def _top(self, item: Item) -> int:
        numbered = self.table.cells.stop["sgpr"]
        return self.decided.first_fit(item, (c for c in reversed(self._candidates(item)[0]) if c < numbered))

    def _tight(self, item: Item) -> int:
        """The free place with the smallest gaps in time before and after the item."""
        best, least = -1, -1
        occupied = self.decided.occupied
        for start in self._candidates(item)[0]:
            if not self.decided.fits(item, start):
                continue
            gaps = 0
            for offset, mask in item.cells:
                held = occupied[start + offset]
                low, high = (mask & -mask).bit_length() - 1, mask.bit_length()
                gaps += low - (held & ((1 << low) - 1)).bit_length()
                after = held >> high
                gaps += (after & -after).bit_length() - 1 if after else len(self.table.timeline.boundaries) - high
            if best < 0 or gaps < least:
                best, least = start, gaps
        return best

    def word_at(self, start: int) -> str:
        """The word that puts the item at hand at cell ``start``: a pointer if one leads there, else a number."""
        item = self._queue[self._next]
        word = self._word_of(item, start, self._hint(item), self._first(item))
        if word in POINTERS:
            return word
        if start == self._top(item):
            return TOP
        return TIGHT if start == self._tight(item) else word

    def current(self) -> Item:
        """The item at hand, while placing."""
        return self._queue[self._next]

    def _word_of(self, item: Item, start: int, hint: int, first: int) -> str:
        if start == hint:
            return HINT
        return FIRST if start == first else self._cell_word(item, start)

    def _registers(self) -> Iterator[str]:
        item = self._queue[self._next]
        yield from POINTERS
        for start in self._candidates(item)[0]:
            if self.decided.fits(item, start):
                yield self._cell_word(item, start)

    def _cell_word(self, item: Item, cell: int) -> str:
        """A cell as a number within its file."""
        cells = self.table.cells
        for k, (start, _, width) in enumerate(cells.specials):
            if start == cell and width * cells.halves == item.reach:
                return f"x{min(k, SPECIALS - 1)}"
        if not 0 <= cell < cells.size:
            return NONE
        bank, number = cells.register_of(cell)
        if (cell - cells.base[bank]) % cells.halves:
            return f"{number}h" if number < HALVES else ENDLESS
        if bank == "agpr":
            return f"a{number}" if number < AGPRS else ENDLESS
        return _number(number)

    def _cell_of(self, item: Item, word: str) -> int:
        """The cell a word names for an item, -1 where it names none."""
        if word in POINTERS:
            find = {HINT: self._hint, FIRST: self._first, TOP: self._top, TIGHT: self._tight}[word]
            return find(item)
        cells = self.table.cells
        if word[:1] == "x" and word[1:].isdigit():
            number = int(word[1:])
            return cells.specials[number][0] if number < len(cells.specials) else -1
        if word[:1] == "a" and word[1:].isdigit():
            return self._numbered("agpr", int(word[1:]), 0)
        banks = self.table.problem.ranges[item.members[0][0]].banks
        bank = "sgpr" if "sgpr" in banks else "vgpr"
        if word.isdigit():
            return self._numbered(bank, int(word), 0)
        if word[:-1].isdigit() and word[-1:] == "h" and cells.halves == 2:
            return self._numbered(bank, int(word[:-1]), 1)
        return -1

    def _numbered(self, bank: str, number: int, half: int) -> int:
        cells = self.table.cells
        cell = cells.base[bank] + number * cells.halves + half
        return cell if cell < cells.stop[bank] else -1


def _number(count: int) -> str:
    return str(count) if 0 <= count < NUMBERS else ENDLESS


def _tail(word: str, kind: str) -> int:
    tail = word[len(kind) :]
    return int(tail) if word.startswith(kind) and tail.isdigit() else -1
