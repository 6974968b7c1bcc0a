"""Rows about what was asked of the solver, rule by rule and block by block."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from smt_verifier.outcome import Outcome, combine
from smt_verifier.smt import Verdict
from verilocc_mlir.results.page import PhaseRecord


@dataclass(frozen=True, slots=True)
class VerdictRow:
    """One rule of a proof, or one block of an audit.

    Attributes:
        what: the rule's stable name, or ``values in block 3``.
        goals: how many goals of it were asked.
        false: how many of them have a counterexample.
        outcome: of these goals; None where others of the same question are false and none of these was found to be.
        link: relative address of the obligation's file, or ``""``.
    """

    what: str
    goals: int
    false: int
    outcome: Outcome | None
    link: str


@dataclass(frozen=True, slots=True)
class Asked:
    """The rows of one proof, or of all blocks of one audit."""

    title: str
    rows: tuple[VerdictRow, ...]

    @property
    def goals(self) -> int:
        return sum(row.goals for row in self.rows)

    @property
    def outcome(self) -> Outcome:
        return combine(row.outcome for row in self.rows if row.outcome is not None)


def asked(record: PhaseRecord, links: tuple[str, ...]) -> list[Asked]:
    """What was asked in a phase, in order: proofs of proposals, then audits of texts.

    Args:
        links: addresses of the files of its obligations, or empty.
    """
    questions: list[Asked] = []
    blocks: list[VerdictRow] = []
    places_seen: set[str] = set()
    proofs = audits = 0

    def end_of_audit() -> None:
        nonlocal audits
        if blocks:
            audits += 1
            questions.append(Asked(f"audit {audits}" if audits > 1 else "audit of the text", tuple(blocks)))
        blocks.clear()
        places_seen.clear()

    for k, (obligation, verdict) in enumerate(record.asked):
        link = links[k] if links else ""
        false = set(verdict.violated)
        if obligation.name.startswith("prove/"):
            end_of_audit()
            proofs += 1
            goals = Counter(name.partition("/")[0] for name, _ in obligation.goals)
            wrong = Counter(name.partition("/")[0] for name, _ in obligation.goals if name in false)
            rows = tuple(
                VerdictRow(rule, n, wrong[rule], _outcome(verdict, wrong[rule]), link) for rule, n in goals.items()
            )
            # Without live ranges there is a question without goals; it has a file all the same.
            rows = rows or (VerdictRow("nothing to place", 0, 0, verdict.outcome, link),)
            questions.append(Asked(f"proof of proposal {proofs}" if proofs > 1 else "proof of the proposal", rows))
            continue
        _, separator, block = obligation.name.rpartition("/block-")
        place = f"block {block}" if separator else "all blocks"
        if place in places_seen:
            end_of_audit()
        places_seen.add(place)
        blocks.append(VerdictRow(f"values in {place}", len(obligation.goals), len(false), verdict.outcome, link))
    end_of_audit()
    return questions


def _outcome(verdict: Verdict, false: int) -> Outcome | None:
    """Outcome of a rule's goals; None where the solver may have met its limit before it had all false goals."""
    return verdict.outcome if verdict.outcome is not Outcome.REFUTED or false else None
