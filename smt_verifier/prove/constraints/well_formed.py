"""``well-formed``: each name proposed denotes a register that exists.

(A proposal with the wrong *number* of names answers another problem: that is INVALID, not a violated rule.)
"""

from __future__ import annotations

from collections.abc import Sequence

from smt_verifier.prove.case import Case
from smt_verifier.prove.constraints.base import Goal, place_violation
from smt_verifier.prove.result import Violation


class WellFormed:
    """Names are names of registers."""

    rule = "well-formed"

    def definitions(self, case: Case) -> str:
        return ""

    def goals(self, case: Case) -> list[Goal]:
        """One for each live range that is given a name."""
        names = case.proposal.registers
        return [Goal(f"well-formed/{i}", f"known{i}", i) for i in range(len(names)) if names[i]]

    def explain(self, case: Case, violated: Sequence[Goal], most: int) -> list[Violation]:
        """One for each name that is not a register's."""
        result: list[Violation] = []
        for goal in violated[:most]:
            live, name = case.problem.ranges[goal.subject], case.proposal.registers[goal.subject]
            message = f"{live.name} is given {name!r}, which is not a register"
            result.append(place_violation(self.rule, case, goal.subject, message))
        return result
