"""``complete``: every live range is given a register, also one that is never live (its operands need some register)."""

from __future__ import annotations

from collections.abc import Sequence

from smt_verifier.prove.case import Case
from smt_verifier.prove.constraints.base import Goal, place_violation
from smt_verifier.prove.result import Violation


class Complete:
    """No live range is left without a name."""

    rule = "complete"

    def definitions(self, case: Case) -> str:
        return ""

    def goals(self, case: Case) -> list[Goal]:
        """One for each live range."""
        return [Goal(f"complete/{live.id}", f"named{live.id}", live.id) for live in case.problem.ranges]

    def explain(self, case: Case, violated: Sequence[Goal], most: int) -> list[Violation]:
        """One for each live range without a register."""
        ranges = case.problem.ranges
        return [
            place_violation(self.rule, case, goal.subject, f"{ranges[goal.subject].name} is given no register")
            for goal in violated[:most]
        ]
