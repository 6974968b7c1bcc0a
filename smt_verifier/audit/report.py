"""What an audit says: findings with their place and rule, and one outcome per function."""

from __future__ import annotations

from dataclasses import dataclass

from smt_verifier.outcome import Outcome, combine


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong, or could not be decided.

    Attributes:
        rule: stable rule name, one of ``smt_verifier.audit.RULES``.
        outcome: ``REFUTED``, or ``UNKNOWN`` where the audit cannot decide.
        message: what was expected and what is there.
        block: layout position of the block, -1 for the function as a whole.
        pre_line: 1-based line of the instruction in the pre-RA text, 0 where there is none.
        post_line: likewise in the post-RA text.
        instruction: the post-RA instruction's text.
    """

    rule: str
    outcome: Outcome
    message: str
    block: int = -1
    pre_line: int = 0
    post_line: int = 0
    instruction: str = ""

    def render(self) -> str:
        """``rule: message``, the place and the instruction, for people."""
        where = (
            f" [block {self.block}, pre line {self.pre_line}, post line {self.post_line}]" if self.block >= 0 else ""
        )
        text = f"\n    {self.instruction}" if self.instruction else ""
        return f"{self.rule}: {self.message}{where}{text}"


@dataclass(frozen=True, slots=True)
class MoveCounts:
    """Copies and spill code in one function, by side.

    ``copies_before``/``copies_after`` count ``COPY`` between registers; ``saves``/``reloads`` count spill pseudo
    instructions of the post-RA side; ``rematerialised`` counts instructions that only the post-RA side has.
    """

    copies_before: int = 0
    copies_after: int = 0
    saves: int = 0
    reloads: int = 0
    rematerialised: int = 0


@dataclass(frozen=True, slots=True)
class FunctionAudit:
    """Verdict on one function. ``obligations`` counts the named goals and machine rules that were checked."""

    function: str
    outcome: Outcome
    obligations: int
    findings: tuple[Finding, ...]
    moves: MoveCounts


@dataclass(frozen=True, slots=True)
class AuditReport:
    """Verdicts on all functions of a file, in its order."""

    functions: tuple[FunctionAudit, ...]

    @property
    def outcome(self) -> Outcome:
        """The worst outcome of any function."""
        return combine(f.outcome for f in self.functions)

    @property
    def obligations(self) -> int:
        """Obligations of all functions."""
        return sum(f.obligations for f in self.functions)
