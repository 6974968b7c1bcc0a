"""``budget``: no register above what the function's attributes leave (``amdgpu-waves-per-eu``, ``amdgpu-num-vgpr``,
``amdgpu-agpr-alloc`` …), nor above the live range's own limit."""

from __future__ import annotations

from collections.abc import Sequence

from smt_verifier.prove.case import Case
from smt_verifier.prove.constraints.base import Goal, all_of, place_violation, predicate, word
from smt_verifier.prove.facts import BANKS, bank_top
from smt_verifier.prove.result import Violation


class Budget:
    """A register of a bank ends below the top of the bank."""

    rule = "budget"

    def definitions(self, case: Case) -> str:
        """A predicate for each limit."""
        limits = sorted({live.limit for live in case.located_ranges()})
        return "".join(predicate(f"affordable-{limit}", _affordable(case, limit)) for limit in limits)

    def goals(self, case: Case) -> list[Goal]:
        """One for each placed live range."""
        ranges = case.problem.ranges
        return [Goal(f"budget/{i}", f"(affordable-{ranges[i].limit} u{i} n{i})", i) for i in case.located]

    def explain(self, case: Case, violated: Sequence[Goal], most: int) -> list[Violation]:
        """One for each register over budget."""
        result: list[Violation] = []
        for goal in violated[:most]:
            live, register = case.problem.ranges[goal.subject], case.proposal.registers[goal.subject]
            tops = ", ".join(f"{b.bank}: {max(b.registers, default=-1) + 1}" for b in case.problem.budgets)
            own = f"; its own limit is {live.limit}" if live.limit else ""
            message = f"{live.name} is given ${register}; registers this function may use: {tops}{own}"
            result.append(place_violation(self.rule, case, live.id, message))
        return result


def _affordable(case: Case, limit: int) -> str:
    terms: list[str] = []
    tops = {budget.bank: bank_top(budget) for budget in case.problem.budgets}
    for bank, (first, end) in BANKS.items():
        # A bank without a budget is not handed out at all: the rule `reserved`.
        top = min(tops.get(bank, end), first + 2 * limit if limit else end)
        terms.append(f"(or (bvult u {word(first)}) (bvule {word(end)} u) (bvule (bvadd u n) {word(top)}))")
    return all_of(terms)
