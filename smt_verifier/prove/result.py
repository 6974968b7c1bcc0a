"""What ``prove`` answers: an outcome, and for a refutation each violated constraint with what a next attempt needs."""

from __future__ import annotations

from dataclasses import dataclass

from smt_verifier.outcome import Outcome
from verilocc_mlir.problem.model import Segment


@dataclass(frozen=True)
class Violation:
    """One violated constraint.

    Attributes:
        rule: the constraint's stable name: ``interference``, ``alignment`` …
        ranges: ids of the live ranges involved; two for ``interference``, the one cheaper to move (lower weight) first;
            none where the proposal as a whole is at fault.
        names: their names in the MIR, for people.
        slot: first program point at which the rule is broken, -1 where it is broken everywhere.
        lanes: for each of ``ranges``, the mask of 16-bit lanes involved.
        registers: for each of ``ranges``, the register proposed.
        segments: for each of ``ranges``, the slot intervals during which the lanes involved are kept.
        free: registers that ``ranges[0]`` could have had for its whole life, everything else staying where it was
            proposed; the first few in ascending order.
    """

    rule: str
    ranges: tuple[int, ...]
    names: tuple[str, ...]
    slot: int
    lanes: tuple[int, ...]
    registers: tuple[str, ...]
    segments: tuple[tuple[Segment, ...], ...]
    message: str
    free: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Stable and unique in a result: the rule and the ids of its live ranges, ``interference/3-7``."""
        return f"{self.rule}/{'-'.join(str(i) for i in sorted(self.ranges))}"


@dataclass(frozen=True)
class ProofResult:
    """The answer of ``prove``.

    Attributes:
        outcome: PROVED, REFUTED, UNKNOWN (time-out, resource limit) or INVALID (not a problem, or not an answer to it).
        obligations: named constraints that were asked; 0 where the input was INVALID.
        violations: for REFUTED, by rule and program point; at most ``MAX_VIOLATIONS``.
        truncated: there were more violations than are listed.
        reason: why, for UNKNOWN and INVALID.
    """

    outcome: Outcome
    obligations: int
    violations: tuple[Violation, ...] = ()
    truncated: bool = False
    reason: str = ""

    @property
    def core(self) -> tuple[Violation, ...]:
        """The violations that no other one implies: minimal unsatisfiable sets of placements.

        A violation says that the placements of its live ranges cannot stand together. Where one of them cannot stand
        even alone, it must move whatever else is done, and a pair with it says nothing more.
        """
        alone = {violation.ranges[0] for violation in self.violations if len(violation.ranges) == 1}
        return tuple(v for v in self.violations if len(v.ranges) == 1 or alone.isdisjoint(v.ranges))


MAX_VIOLATIONS = 512
"""More than a reader or a model can use; a proposal that puts everything into one register has millions."""
