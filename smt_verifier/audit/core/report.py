"""What an audit says: findings with their place, rule and explanation, and one outcome per function."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from smt_verifier.outcome import Outcome, combine


@dataclass(frozen=True, slots=True)
class Site:
    """One instruction of one side.

    Attributes:
        side: ``"pre"`` or ``"post"``.
        block: layout position of its block.
        label: the block's name in that text, ``"bb.3"``.
        line: 1-based line in that text.
        text: the instruction.
    """

    side: str
    block: int
    label: str
    line: int
    text: str

    def render(self) -> str:
        """``post line 12, bb.3: the instruction``."""
        return f"{self.side} line {self.line}, {self.label}: {self.text}"


@dataclass(frozen=True, slots=True)
class Fact:
    """One step of an explanation: what happened to a value, and where (None: at function entry, or nowhere)."""

    what: str
    site: Site | None = None

    def render(self) -> str:
        """``what: site``."""
        return f"{self.what}: {self.site.render()}" if self.site else self.what


@dataclass(frozen=True, slots=True)
class Value:
    """A value in a place: where it was made, and the moves that brought it there, oldest first.

    ``place`` is a lane of the pre-RA side (``%12.sub0``) or a register or spill slot of the post-RA side (``v7``).
    """

    place: str
    facts: tuple[Fact, ...]


@dataclass(frozen=True, slots=True)
class OperandPair:
    """The operand a finding is about: its number (LLVM's: definitions first) and its text on both sides."""

    number: int
    pre: str
    post: str


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong, or could not be decided.

    Attributes:
        rule: stable rule name, one of ``smt_verifier.audit.RULES``.
        outcome: ``REFUTED``, or ``UNKNOWN`` where the audit cannot decide.
        message: what was expected and what is there, in one sentence.
        block: layout position of the block, -1 for the function as a whole.
        pre_line: 1-based line of the instruction in the pre-RA text, 0 where there is none.
        post_line: likewise in the post-RA text.
        instruction: the post-RA instruction's text.
        operand: the operand that reads the wrong value.
        lane: which lanes of it, ``"sub0"``; ``""`` where the finding is not about lanes.
        expected: the value that must be there.
        found: the value that is there.
        lost: where the two parted: what overwrote the value, or what should have been followed by a move and was not.
        elsewhere: places of the post-RA side that do hold the expected value there.
        path: blocks of the post-RA text from the expected value's definition to the instruction, ``("bb.1", "bb.3")``:
            control flow along which it is wrong. Empty where no such path was found; then the finding rests on what
            the relation at the block's start says.
        more: further operands that are wrong for the same cause and have no finding of their own.
    """

    rule: str
    outcome: Outcome
    message: str
    block: int = -1
    pre_line: int = 0
    post_line: int = 0
    instruction: str = ""
    operand: OperandPair | None = None
    lane: str = ""
    expected: Value | None = None
    found: Value | None = None
    lost: Fact | None = None
    elsewhere: tuple[str, ...] = ()
    path: tuple[str, ...] = ()
    more: int = 0

    def render(self) -> str:
        """``rule: message``, the place and the instruction, and the explanation, one fact a line, for people."""
        where = (
            f" [block {self.block}, pre line {self.pre_line}, post line {self.post_line}]" if self.block >= 0 else ""
        )
        lines = [f"{self.rule}: {self.message}{where}"]
        if self.instruction:
            lines.append(f"    {self.instruction}")
        lines += [f"    {line}" for line in self.details()]
        return "\n".join(lines)

    def details(self) -> Iterator[str]:
        """The explanation, a line for each fact."""
        if self.operand is not None:
            lane = f", {self.lane}" if self.lane else ""
            yield f"operand {self.operand.number}: {self.operand.post}, before allocation {self.operand.pre}{lane}"
        if self.expected is not None:
            for fact in self.expected.facts:
                yield f"expected: {fact.render()}"
        if self.found is not None:
            for fact in self.found.facts:
                yield f"found: {fact.render()}"
        if self.lost is not None:
            yield f"lost: {self.lost.render()}"
        if self.elsewhere:
            yield f"the expected value is in {', '.join(self.elsewhere)} there"
        if self.path:
            yield f"path: {path_text(self.path)}"
        if self.more:
            yield f"and {self.more} more {'use' if self.more == 1 else 'uses'} that this makes wrong"


def path_text(path: tuple[str, ...]) -> str:
    """``bb.1 -> bb.3 -> bb.1``, or ``within bb.1``."""
    return " -> ".join(path) if len(path) != 1 else f"within {''.join(path)}"


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
