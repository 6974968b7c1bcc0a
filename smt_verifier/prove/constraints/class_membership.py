"""``class-membership``: the register is a member of the class written in the MIR, in a bank the problem allows.

Classes are SIRegisterInfo.td's, read by ``verilocc_mlir.target.classes``. Alignment is a rule of its own.
"""

from __future__ import annotations

from collections.abc import Sequence

from smt_verifier.prove.case import Case
from smt_verifier.prove.constraints.base import Goal, place_violation, predicate, within
from smt_verifier.prove.facts import class_places
from smt_verifier.prove.result import Violation
from verilocc_mlir.problem.model import LiveRange


class ClassMembership:
    """Bank, class limit (``_lo128``, ``_lo256``) and the special registers of a class."""

    rule = "class-membership"

    def definitions(self, case: Case) -> str:
        """A predicate for each class, set of banks and limit."""
        kinds = dict.fromkeys(_kind(live) for live in case.located_ranges())
        return "".join(predicate(_name(*kind), within(class_places(*kind).intervals)) for kind in kinds)

    def goals(self, case: Case) -> list[Goal]:
        """One for each placed live range."""
        return [
            Goal(f"class-membership/{i}", f"({_name(*_kind(live))} u{i} n{i})", i)
            for live in case.located_ranges()
            if (i := live.id) >= 0
        ]

    def explain(self, case: Case, violated: Sequence[Goal], most: int) -> list[Violation]:
        """One for each register outside its class."""
        return [
            place_violation(self.rule, case, goal.subject, _message(case, case.problem.ranges[goal.subject]))
            for goal in violated[:most]
        ]


def _kind(live: LiveRange) -> tuple[str, tuple[str, ...], int]:
    return live.register_class, live.banks, live.limit


def _name(register_class: str, banks: tuple[str, ...], limit: int) -> str:
    return f"member-{register_class}-in-{'-'.join(banks)}-below-{limit}"


def _message(case: Case, live: LiveRange) -> str:
    below = f" below {live.limit}" if live.limit else ""
    return (
        f"{live.name} is of class {live.register_class} and may be in {' or '.join(live.banks)}{below}; "
        f"${case.proposal.registers[live.id]} is not a member"
    )
