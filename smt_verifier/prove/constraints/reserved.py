"""``reserved``: only registers that LLVM hands out in this function: the budgets' and the special ones allowed.

A register above the highest of its bank's is over budget, which is the rule ``budget``; this one is about the holes
below (stack pointer, frame pointer, scratch descriptor: SIRegisterInfo::getReservedRegs) and the special registers.
"""

from __future__ import annotations

from collections.abc import Sequence

from smt_verifier.prove.case import Case
from smt_verifier.prove.constraints.base import Goal, place_violation, predicate, within, word
from smt_verifier.prove.facts import BANKS, bank_top
from smt_verifier.prove.result import Violation


class Reserved:
    """The register lies among the allocatable ones."""

    rule = "reserved"

    def definitions(self, case: Case) -> str:
        over = [
            f"(and (bvule {word(BANKS[b.bank][0])} u) (bvult u {word(BANKS[b.bank][1])})"
            f" (bvult {word(bank_top(b))} (bvadd u n)))"
            for b in case.problem.budgets
        ]
        return predicate("handed-out", f"(or false {' '.join(over)} {within(case.allocatable)})")

    def goals(self, case: Case) -> list[Goal]:
        """One for each placed live range."""
        return [Goal(f"reserved/{i}", f"(handed-out u{i} n{i})", i) for i in case.located]

    def explain(self, case: Case, violated: Sequence[Goal], most: int) -> list[Violation]:
        """One for each register that is not handed out here."""
        result: list[Violation] = []
        for goal in violated[:most]:
            name, register = case.problem.ranges[goal.subject].name, case.proposal.registers[goal.subject]
            message = f"{name} is given ${register}, part of which is reserved in this function"
            result.append(place_violation(self.rule, case, goal.subject, message))
        return result
