"""Answering one problem as a sequence of questions, each with the facts that static analysis knows at that point.

Three stages: *joining* (``joining.py``), *planning* (``planning.py``), *placing* (``placing.py``).

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

from verilocc_mlir.allocators.bounds import Ceiling
from verilocc_mlir.allocators.items import Item
from verilocc_model.encoding.joining import Joining
from verilocc_model.encoding.placing import Advice, Placing
from verilocc_model.encoding.planning import Planning
from verilocc_model.encoding.questions import Question
from verilocc_model.encoding.table import Table
from verilocc_model.encoding.vocabulary import ALONE, BEGIN, number_word
from verilocc_model.encoding.witnesses import STRATEGIES, Prospects


class Episode:
    """One way through the questions of a problem.

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
        self._advice = dict(advice or {})
        self._alone = not lookahead if alone is None else alone
        self._joining = Joining(table, mask=mask)
        self._planning = Planning(
            table,
            self._joining,
            mask=mask,
            lookahead=lookahead,
            alone=self._alone,
            refuted=refuted,
            prospects=Prospects() if prospects is None else prospects,
            sure=sure,
        )
        self._placing: Placing | None = None

    @property
    def stage(self) -> str:
        """The stage of the next question; ``done`` after the last."""
        if not self._joining.done:
            return "joining"
        if self._placing is None:
            return "planning"
        return "done" if self._placing.done else "placing"

    def header(self) -> tuple[str, ...]:
        """The words that a window begins with: the problem as a whole, and the plan once there is one."""
        t = self.table
        occupancy = t.problem.occupancy
        words = [
            BEGIN, *((ALONE,) if self._alone else ()), t.problem.phase,
            "shared-file" if occupancy.unified else "own-files",
            "needs", number_word(t.least), "of", number_word(t.budget), number_word(t.granule),
            number_word(len(t.singles)),
        ]  # fmt: skip
        for k in t.steps[:3]:
            words += ["wave-at", f"grant{k}"]
        if self._placing is None:
            words.append(self.stage)
        else:
            words += ["placing", *self._planning.words]
        return tuple(words)

    def question(self) -> Question | None:
        """The next question; None where everything is answered."""
        return None if self.stage == "done" else self._asking.question()

    def answer(self, word: str) -> bool:
        """Answer the question. False where the mask forbids the word; nothing changes then."""
        if not self._asking.answer(word):
            return False
        if self._placing is None and self._planning.done:
            self._start_placing()
        return True

    def mark(self) -> int:
        """The current position, for ``rewind``."""
        return (self._placing or self._joining).mark()

    def rewind(self, mark: int) -> None:
        """Take back all answers since ``mark``, none of which may have displaced anything or been final."""
        if self._placing is not None:
            self._placing.rewind(mark)
        elif self._joining.mark() > mark:
            self._joining.rewind(mark)
            self._planning.forget()

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
        return [-1] * len(self.table.singles) if self._placing is None else self._placing.starts

    # --- of one stage ---------------------------------------------------------------------------------------------

    @property
    def joint(self) -> int:
        """The pair that is asked about, as an index of ``table.joints``."""
        return self._joining.joint

    @property
    def shares(self) -> tuple[Ceiling, ...]:
        """Ways to share the granted registers, once they are granted."""
        return self._planning.shares

    def ample(self, order: int) -> int:
        """See ``Planning.ample``."""
        return self._planning.ample(order)

    def sure_plan(self) -> tuple[str, str, str] | None:
        """See ``Planning.sure_plan``. It is called before the first answer that plans."""
        return self._planning.sure_plan()

    def current(self) -> Item:
        return self._started.current()

    def word_at(self, start: int) -> str:
        """While placing, the word that puts the current item at cell ``start``: a pointer if one leads there, else a
        number."""
        return self._started.word_at(start)

    @property
    def _asking(self) -> Joining | Planning | Placing:
        if not self._joining.done:
            return self._joining
        return self._planning if self._placing is None else self._placing

    @property
    def _started(self) -> Placing:
        if self._placing is None:
            raise AssertionError("there is no plan yet")
        return self._placing

    def _start_placing(self) -> None:
        plan = self._planning
        self._placing = Placing(
            self.table,
            self._joining.items,
            STRATEGIES[plan.order],
            plan.ceiling,
            plan.witness,
            mask=self.masked,
            alone=self._alone,
            advice=self._advice,
        )
