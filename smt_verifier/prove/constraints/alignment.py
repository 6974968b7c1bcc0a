"""``alignment``: a tuple starts at a register number that its class allows.

``_align2`` vector classes start at even registers, SGPR pairs too, wider SGPR tuples at multiples of four
(SIRegisterInfo.td; GCNSubtarget::needsAlignedVGPRs for which targets have ``_align2``). Special registers are aligned
as they are.
"""

from __future__ import annotations

from collections.abc import Sequence

from smt_verifier.prove.case import Case
from smt_verifier.prove.constraints.base import Goal, place_violation, word
from smt_verifier.prove.facts import alignment, unit_mask
from smt_verifier.prove.result import Violation
from verilocc_mlir.target.registers import SPECIAL_BASE


class Alignment:
    """The first unit's low bits are zero."""

    rule = "alignment"

    def definitions(self, case: Case) -> str:
        return ""

    def goals(self, case: Case) -> list[Goal]:
        """One for each placed live range of 32 bits or more."""
        special, zero = word(SPECIAL_BASE), word(0)
        return [
            Goal(
                f"alignment/{live.id}",
                f"(or (bvule {special} u{live.id}) (= (bvand u{live.id} {word(mask)}) {zero}))",
                live.id,
            )
            for live in case.located_ranges()
            if (mask := unit_mask(live))
        ]

    def explain(self, case: Case, violated: Sequence[Goal], most: int) -> list[Violation]:
        """One for each register that starts at a wrong number."""
        result: list[Violation] = []
        for goal in violated[:most]:
            live = case.problem.ranges[goal.subject]
            message = (
                f"{live.name} of class {live.register_class} must start at a multiple of {alignment(live)}, "
                f"${case.proposal.registers[live.id]} does not"
            )
            result.append(place_violation(self.rule, case, live.id, message))
        return result
