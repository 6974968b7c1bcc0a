"""Answering one problem as a sequence of questions, each with the facts that static analysis knows at that point.

Three stages: *joining* (``witnesses.py``), *planning*, *placing* (``placing.py``).

An episode knows nothing of language models: it hands out words and takes words. It can be rewound, so that a decoder
may draft ahead. The *mask* decides which answers are allowed:

* A register must be of the item's class, aligned, inside the grant, and free while the item lives.
* With ``lookahead``, an answer must leave a complete assignment. The episode keeps one, the *witness*
  (``witnesses.py``), found by first fit and repair. An answer that contradicts the witness is allowed if the ranges
  that it displaces find other places. So an episode with a witness ends with an assignment, whatever the answers.
* Without ``mask``, any word is taken. A word that names no place for the item leaves it without a register.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from verilocc_mlir.allocators.bounds import Ceiling
from verilocc_mlir.allocators.protocol import AllocationFailure
from verilocc_mlir.allocators.search import Placement
from verilocc_model.encoding.placing import Advice, Manner, Placing
from verilocc_model.encoding.table import Table
from verilocc_model.encoding.vocabulary import (
    ALONE,
    BEGIN,
    MEETS,
    MEETS_AT,
    NONE,
    Question,
    grant_word,
    number_after,
    number_word,
)
from verilocc_model.encoding.witnesses import REPAIR_STEPS, STRATEGIES, Joining, Prospects, Witnesses


class Episode:
    """One way through the questions of a problem.

    Attributes:
        joining, planning, placing: its stages; ``placing`` is None until there is a plan.

    Args:
        mask: take only answers that the mask allows.
        lookahead: keep a witness; needs ``mask``.
        advice: what the refutations of earlier proposals say, by range id.
        refuted: the grants, as indices, of earlier proposals that were refuted.
        alone: state that nothing looks ahead, and not the results of searches; None: if nothing looks ahead.
        prospects: keeps the results about orders, for further episodes that join the same copies.
        sure: if there is a plan with which first fit goes through (``sure_plan``), state it instead of asking.

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
        refuted: Sequence[int] = (),
        alone: bool | None = None,
        prospects: Prospects | None = None,
        sure: bool = False,
    ) -> None:
        self.table = table
        self.masked = mask
        """Whether the mask decides what is an answer."""
        lookahead = lookahead and mask
        alone = not lookahead if alone is None else alone
        self._manner = Manner(mask, lookahead, alone, dict(advice or {}), tuple(refuted), sure)
        self.joining = Joining(table, mask=mask)
        self.planning = Planning(table, self.joining, self._manner, Prospects() if prospects is None else prospects)
        self.placing: Placing | None = None

    @property
    def stage(self) -> str:
        """The stage of the next question; ``done`` after the last."""
        if not self.joining.done:
            return "joining"
        if self.placing is None:
            return "planning"
        return "done" if self.placing.done else "placing"

    def header(self) -> tuple[str, ...]:
        """The words that a window begins with: the problem as a whole, and the plan once there is one."""
        t = self.table
        occupancy = t.problem.occupancy
        words = [
            BEGIN, *((ALONE,) if self._manner.alone else ()), t.problem.phase,
            "shared-file" if occupancy.unified else "own-files",
            "needs", number_word(t.least), "of", number_word(t.budget), number_word(t.granule),
            number_word(len(t.singles)),
        ]  # fmt: skip
        for k in t.steps[:3]:
            words += ["wave-at", f"grant{k}"]
        if self.placing is None:
            words.append(self.stage)
        else:
            words += ["placing", *self.planning.words]
        return tuple(words)

    def question(self) -> Question | None:
        """The next question; None where everything is answered."""
        return None if self.stage == "done" else self._asking.question()

    def answer(self, word: str) -> bool:
        """Answer the question. False where the mask forbids the word; nothing changes then."""
        if not self._asking.answer(word):
            return False
        if self.placing is None and self.planning.done:
            self._start_placing()
        return True

    def mark(self) -> int:
        """The current position, for ``rewind``."""
        return (self.placing or self.joining).mark()

    def rewind(self, mark: int) -> None:
        """Take back all answers since ``mark``, none of which may have displaced anything or been final."""
        if self.placing is not None:
            self.placing.rewind(mark)
        elif self.joining.mark() > mark:
            self.joining.rewind(mark)
            self.planning.forget()

    def options(self) -> Iterator[str]:
        """Words that could answer the question, most of which the mask may forbid."""
        return self._asking.options()

    def registers(self) -> tuple[str, ...]:
        """A register for each range of the canonical problem; ``""`` where an answer named none."""
        t = self.table
        return tuple(
            t.cells.name(start, r) if start >= 0 else "" for start, r in zip(self.starts, t.problem.ranges, strict=True)
        )

    @property
    def starts(self) -> list[int]:
        """The cell that each range of the canonical problem starts at; -1: none yet, or an answer named none."""
        return [-1] * len(self.table.singles) if self.placing is None else self.placing.starts

    @property
    def _asking(self) -> Joining | Planning | Placing:
        if not self.joining.done:
            return self.joining
        return self.planning if self.placing is None else self.placing

    def _start_placing(self) -> None:
        plan = self.planning
        self.placing = Placing(
            self.table, self.joining.items, STRATEGIES[plan.order], plan.ceiling, plan.witness, self._manner
        )


# The second stage: the order of placing, the number of registers granted, and how files share them.


_KINDS = ("order", "grant", "split")


class Planning:
    """The plan after the answers so far. Its answers are final.

    Args:
        joining: the stage before; the first question comes when that is done.
        manner: without a mask, words that are no plan mean the first order, the whole budget, or the first way to
            share it.
        prospects: keeps the results about orders.
    """

    def __init__(self, table: Table, joining: Joining, manner: Manner, prospects: Prospects) -> None:
        self._table = table
        self._joining = joining
        self._manner = manner
        self._witnesses = Witnesses(table, joining, prospects)
        self._stated: tuple[str, str, str] | None = None
        self._chosen: list[int] = []
        # The largest grant for which no witness was found.
        self._too_few = -1
        self.ceiling: Ceiling = {}
        """Registers of each file that may be used, once the plan is made."""
        self.witness: Placement | None = None
        """With ``lookahead``, an assignment under the plan, once the plan is made."""

    @property
    def done(self) -> bool:
        return len(self._chosen) == len(_KINDS)

    @property
    def words(self) -> list[str]:
        return [f"{kind}{number}" for kind, number in zip(_KINDS, self._chosen, strict=False)]

    @property
    def order(self) -> int:
        """The order of placing, as an index of ``STRATEGIES``, once it is chosen."""
        return self._chosen[0]

    @property
    def shares(self) -> tuple[Ceiling, ...]:
        """Ways to share the granted registers, once they are granted."""
        return self._table.shares(self._table.grants[self._chosen[1]])

    def forget(self) -> None:
        """Drop all witnesses: other copies are joined now."""
        self._witnesses.forget()

    def ample(self, order: int) -> int:
        """A grant, as an index, with room to spare for first fit in an order: larger than the refuted ones, and as
        large
        as possible without the loss of a further wave."""
        least = max(self._witnesses.plain(order), *(k + 1 for k in self._manner.refuted), 0)
        return next((k for k in self._table.steps if k >= least), len(self._table.grants) - 1)

    def sure_plan(self) -> tuple[str, str, str] | None:
        """An order, a grant and a share with which first fit goes through; None where there are none.

        If grants were refuted, the grant has room to spare.
        """
        plain = self._witnesses.plain
        orders = [k for k in range(len(STRATEGIES)) if plain(k) >= 0]
        if not orders:
            return None
        order = min(orders, key=plain)
        grant = self.ample(order) if self._manner.refuted else plain(order)
        share = self._witnesses.best_share(order, grant, steps=0)
        return (f"order{order}", f"grant{grant}", f"split{share}") if share >= 0 else None

    def options(self) -> Iterator[str]:
        kind = _KINDS[len(self._chosen)]
        count = {"order": len(STRATEGIES), "grant": len(self._table.grants)}.get(kind)
        return (f"{kind}{k}" for k in range(len(self.shares) if count is None else count))

    # --- questions ------------------------------------------------------------------------------------------------

    def question(self) -> Question:
        """The question about the next part of the plan.

        Raises:
            AllocationFailure: with ``lookahead``, no assignment was found even without a model.
        """
        at = len(self._chosen)
        if self._manner.sure and not at:
            self._stated = self.sure_plan()
        question = (self._ask_order, self._ask_grant, self._ask_share)[at]()
        return replace(question, draft=self._stated[at], known=True) if self._stated else question

    def _ask_order(self) -> Question:
        items = self._joining.items
        widest = max(items, key=lambda i: (i.width, i.area), default=None)
        facts = ["planning", number_word(len(items)), self._table.features.item_shape(widest) if widest else NONE]
        for order in range(len(STRATEGIES)):
            facts += [f"order{order}", *self._prospects_of(order)]
        if not self._manner.alone:
            best = self._witnesses.best_order()
            facts += ["hint", f"order{best}" if best >= 0 else NONE]
        facts += self._refuted_grant()
        return Question("planning", tuple(facts), self._draft_order(), final=True)

    def _ask_grant(self) -> Question:
        facts = ["first", *self._prospects_of(self.order), *self._refuted_grant()]
        if self._manner.refuted:
            facts += ["wave-at", grant_word(self.ample(self.order))]
        return Question("planning", tuple(facts), self._draft_grant(), final=True)

    def _ask_share(self) -> Question:
        order, grant = self._chosen
        best = self._witnesses.best_share(order, grant, steps=0 if self._manner.alone else REPAIR_STEPS)
        if self._manner.lookahead and best < 0:
            raise AssertionError("a grant was taken without a witness")
        share = f"split{best}" if best >= 0 else NONE
        facts = [number_word(c.get("agpr", 0)) for c in self.shares]
        if len(facts) > 1:
            facts += ["hint", share]
        return Question("planning", tuple(facts), share if self._manner.lookahead else "", final=True)

    def _prospects_of(self, order: int) -> tuple[str, ...]:
        plain = grant_word(self._witnesses.plain(order))
        return (plain,) if self._manner.alone else (plain, grant_word(self._witnesses.repaired(order)))

    def _refuted_grant(self) -> tuple[str, ...]:
        return ("refuted", grant_word(max(self._manner.refuted))) if self._manner.refuted else ()

    def _draft_order(self) -> str:
        """The order whose witness is cheapest."""
        if not self._manner.lookahead:
            return ""
        best = self._witnesses.best_order()
        if best < 0:
            raise self._no_witness()
        return f"order{best}"

    def _draft_grant(self) -> str:
        if not self._manner.lookahead:
            return ""
        grant = self._witnesses.repaired(self.order)
        if grant < 0:
            raise self._no_witness()
        return f"grant{grant}"

    def _no_witness(self) -> AllocationFailure:
        return AllocationFailure(
            "no assignment was found without spilling",
            reason="fragmentation",
            where=f"function {self._table.problem.function}",
        )

    # --- answers --------------------------------------------------------------------------------------------------

    def answer(self, word: str) -> bool:
        """Take an answer. False where the mask forbids it; the plan does not change then."""
        at = len(self._chosen)
        number = number_after(_KINDS[at], word)
        return (self._take_order, self._take_grant, self._take_share)[at](number)

    def _take_order(self, number: int) -> bool:
        if number not in range(len(STRATEGIES)):
            if self._manner.mask:
                return False
            number = 0
        if self._manner.lookahead and not any(self._witnesses.reached(number, k) for k in reversed(self._table.steps)):
            return False
        self._chosen.append(number)
        return True

    def _take_grant(self, number: int) -> bool:
        grants = self._table.grants
        if number not in range(len(grants)):
            if self._manner.mask:
                return False
            number = len(grants) - 1
        if self._manner.mask and not self._table.shares(grants[number]):
            return False
        if self._manner.lookahead and (number <= self._too_few or not self._witnesses.reached(self.order, number)):
            # No witness was found, so smaller grants are not tried.
            self._too_few = max(self._too_few, number)
            return False
        self._chosen.append(number)
        return True

    def _take_share(self, number: int) -> bool:
        shares = self.shares
        if number not in range(len(shares)):
            if self._manner.mask:
                return False
            shares, number = shares or (dict(self._table.room.top),), 0
        if self._manner.lookahead:
            order, grant = self._chosen
            self.witness = self._witnesses.of(order, grant, number)
            if self.witness is None:
                return False
        self.ceiling = shares[number]
        self._chosen.append(number)
        return True


# Answers without a model: the draft, with or without the places that meet more copies and preferences.


def usual(question: Question, *, meets: bool) -> str:
    """The draft; with ``meets``, the place that meets more than the plain ones, if the facts name one."""
    return MEETS if meets and MEETS_AT in question.facts else question.draft


def draft(episode: Episode, *, meets: bool = False) -> list[tuple[Question, str]]:
    """Give every question its usual answer, or the draft where the mask forbids that; returns the answers.

    Raises:
        AllocationFailure: as ``Episode.question``.
    """
    answers: list[tuple[Question, str]] = []
    while (question := episode.question()) is not None:
        word = usual(question, meets=meets)
        if not episode.answer(word):
            if word == question.draft or not episode.answer(question.draft):
                raise AssertionError(f"the draft {question.draft!r} is not allowed")
            word = question.draft
        answers.append((question, word))
    return answers
