"""``budget``: no register above what the function's attributes leave (``amdgpu-waves-per-eu``, ``amdgpu-num-vgpr``,
``amdgpu-agpr-alloc`` …)."""

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
        return predicate("affordable", _affordable(case))

    def goals(self, case: Case) -> list[Goal]:
        """One for each placed live range."""
        return [Goal(f"budget/{i}", f"(affordable u{i} n{i})", i) for i in case.located]

    def explain(self, case: Case, violated: Sequence[Goal], most: int) -> list[Violation]:
        """One for each register over budget."""
        result: list[Violation] = []
        for goal in violated[:most]:
            live, register = case.problem.ranges[goal.subject], case.proposal.registers[goal.subject]
            tops = ", ".join(f"{b.bank}: {max(b.registers, default=-1) + 1}" for b in case.problem.budgets)
            message = f"{live.name} is given ${register}; registers this function may use: {tops}"
            result.append(place_violation(self.rule, case, live.id, message))
        return result


def _affordable(case: Case) -> str:
    terms: list[str] = []
    tops = {budget.bank: bank_top(budget) for budget in case.problem.budgets}
    for bank, (first, end) in BANKS.items():
        # A bank without a budget is not handed out at all: the rule `reserved`.
        top = tops.get(bank, end)
        terms.append(f"(or (bvult u {word(first)}) (bvule {word(end)} u) (bvule (bvadd u n) {word(top)}))")
    return all_of(terms)
