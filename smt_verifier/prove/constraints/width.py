"""``width``: a register has exactly as many 16-bit units as its live range has lanes."""

from __future__ import annotations

from collections.abc import Sequence

from smt_verifier.prove.case import Case
from smt_verifier.prove.constraints.base import Goal, place_violation, word
from smt_verifier.prove.result import Violation


class Width:
    """Sizes match; registers without storage (``sgpr_null``) match nothing."""

    rule = "width"

    def definitions(self, case: Case) -> str:
        return ""

    def goals(self, case: Case) -> list[Goal]:
        """One for each live range that is given a register."""
        return [
            Goal(f"width/{live.id}", f"(= n{live.id} {word(live.lanes)})", live.id)
            for live in case.problem.ranges
            if case.registers[live.id] is not None
        ]

    def explain(self, case: Case, violated: Sequence[Goal], most: int) -> list[Violation]:
        """One for each register of the wrong size."""
        result: list[Violation] = []
        for goal in violated[:most]:
            live, register = case.problem.ranges[goal.subject], case.registers[goal.subject]
            bits = 16 * len(register.units) if register else 0
            message = (
                f"{live.name} has {16 * live.lanes} bits, its register ${case.proposal.registers[live.id]} has {bits}"
            )
            result.append(place_violation(self.rule, case, live.id, message))
        return result
