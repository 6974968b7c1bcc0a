"""The second stage: the order of placing, the number of registers granted, and how files share them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from verilocc_mlir.allocators.bounds import Ceiling
from verilocc_mlir.allocators.protocol import AllocationFailure
from verilocc_mlir.allocators.search import Placement
from verilocc_model.encoding.joining import Joining
from verilocc_model.encoding.questions import Question
from verilocc_model.encoding.table import Table
from verilocc_model.encoding.vocabulary import NONE, grant_word, number_after, number_word
from verilocc_model.encoding.witnesses import REPAIR_STEPS, STRATEGIES, Prospects, Witnesses

_KINDS = ("order", "grant", "split")


class Planning:
    """The plan after the answers so far. Its answers are final.

    Args:
        joining: the stage before; the first question comes when that is done.
        mask: refuse words that are no plan; without the mask they mean the first order, the whole budget, or the first
            way to share it.
        lookahead: refuse a plan without a witness.
        alone: do not state the results of repair.
        refuted: the grants, as indices, of earlier proposals that were refuted.
        prospects: keeps the results about orders.
        sure: state the plan of ``sure_plan``, if there is one, instead of asking.
    """

    def __init__(
        self,
        table: Table,
        joining: Joining,
        *,
        mask: bool,
        lookahead: bool,
        alone: bool,
        refuted: Sequence[int],
        prospects: Prospects,
        sure: bool = False,
    ) -> None:
        self._table = table
        self._joining = joining
        self._mask = mask
        self._lookahead = lookahead
        self._alone = alone
        self._refuted = tuple(refuted)
        self._witnesses = Witnesses(table, joining, prospects)
        self._sure = sure
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
        least = max(self._witnesses.plain(order), *(k + 1 for k in self._refuted), 0)
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
        grant = self.ample(order) if self._refuted else plain(order)
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
        if self._sure and not at:
            self._stated = self.sure_plan()
        question = (self._ask_order, self._ask_grant, self._ask_share)[at]()
        return replace(question, draft=self._stated[at], known=True) if self._stated else question

    def _ask_order(self) -> Question:
        items = self._joining.items
        widest = max(items, key=lambda i: (i.width, i.area), default=None)
        facts = ["planning", number_word(len(items)), self._table.features.item_shape(widest) if widest else NONE]
        for order in range(len(STRATEGIES)):
            facts += [f"order{order}", *self._prospects_of(order)]
        if not self._alone:
            best = self._witnesses.best_order()
            facts += ["hint", f"order{best}" if best >= 0 else NONE]
        facts += self._refuted_grant()
        return Question("planning", tuple(facts), self._draft_order(), final=True)

    def _ask_grant(self) -> Question:
        facts = ["first", *self._prospects_of(self.order), *self._refuted_grant()]
        if self._refuted:
            facts += ["wave-at", grant_word(self.ample(self.order))]
        return Question("planning", tuple(facts), self._draft_grant(), final=True)

    def _ask_share(self) -> Question:
        order, grant = self._chosen
        best = self._witnesses.best_share(order, grant, steps=0 if self._alone else REPAIR_STEPS)
        if self._lookahead and best < 0:
            raise AssertionError("a grant was taken without a witness")
        share = f"split{best}" if best >= 0 else NONE
        facts = [number_word(c.get("agpr", 0)) for c in self.shares]
        if len(facts) > 1:
            facts += ["hint", share]
        return Question("planning", tuple(facts), share if self._lookahead else "", final=True)

    def _prospects_of(self, order: int) -> tuple[str, ...]:
        plain = grant_word(self._witnesses.plain(order))
        return (plain,) if self._alone else (plain, grant_word(self._witnesses.repaired(order)))

    def _refuted_grant(self) -> tuple[str, ...]:
        return ("refuted", grant_word(max(self._refuted))) if self._refuted else ()

    def _draft_order(self) -> str:
        """The order whose witness is cheapest."""
        if not self._lookahead:
            return ""
        best = self._witnesses.best_order()
        if best < 0:
            raise self._no_witness()
        return f"order{best}"

    def _draft_grant(self) -> str:
        if not self._lookahead:
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
            if self._mask:
                return False
            number = 0
        if self._lookahead and not any(self._witnesses.reached(number, k) for k in reversed(self._table.steps)):
            return False
        self._chosen.append(number)
        return True

    def _take_grant(self, number: int) -> bool:
        grants = self._table.grants
        if number not in range(len(grants)):
            if self._mask:
                return False
            number = len(grants) - 1
        if self._mask and not self._table.shares(grants[number]):
            return False
        if self._lookahead and (number <= self._too_few or not self._witnesses.reached(self.order, number)):
            # No witness was found, so smaller grants are not tried.
            self._too_few = max(self._too_few, number)
            return False
        self._chosen.append(number)
        return True

    def _take_share(self, number: int) -> bool:
        shares = self.shares
        if number not in range(len(shares)):
            if self._mask:
                return False
            shares, number = shares or (dict(self._table.room.top),), 0
        if self._lookahead:
            order, grant = self._chosen
            self.witness = self._witnesses.of(order, grant, number)
            if self.witness is None:
                return False
        self.ceiling = shares[number]
        self._chosen.append(number)
        return True
