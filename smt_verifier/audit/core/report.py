"""What an audit says: findings with their place, rule and explanation, and one outcome per function."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from enum import Enum

from msgspec import Struct

from smt_verifier.outcome import Outcome, combine
from verilocc_mlir.mir.model import MachineFunction


class Fault(Enum):
    """What kind of thing is wrong.

    ``COMPUTES``: the text after allocation computes something else. ``LIVENESS``: each value is right where the text
    stands, but it says something untrue about liveness, on which later passes rely. ``RULE``: a rule of the machine, or
    what must be kept for later passes, is broken. ``UNDECIDED``: the audit cannot tell. ``INVALID``: the input is not
    what it claims to be.
    """

    COMPUTES = "computes-otherwise"
    LIVENESS = "untrue-liveness"
    RULE = "breaks-rule"
    UNDECIDED = "undecided"
    INVALID = "invalid-input"

    def __str__(self) -> str:
        return self.value


FAULTS: dict[str, Fault] = {
    "value": Fault.COMPUTES,
    "inactive-lanes": Fault.UNDECIDED,
    # An undef operand reads any value, whatever its register holds (MachineOperand::isUndef).
    "undef-flag": Fault.COMPUTES,
    "kill-flag": Fault.LIVENESS,
    "dead-flag": Fault.LIVENESS,
    "live-in": Fault.LIVENESS,
    "early-clobber": Fault.COMPUTES,
    "instruction-sequence": Fault.COMPUTES,
    "instruction-flags": Fault.RULE,
    "memory-operands": Fault.RULE,
    "bundle": Fault.RULE,
    "operands": Fault.COMPUTES,
    "fixed-register": Fault.COMPUTES,
    "tied-operand": Fault.RULE,
    "width": Fault.RULE,
    "register-class": Fault.RULE,
    "reserved-register": Fault.RULE,
    "overlapping-definitions": Fault.RULE,
    "spill-slot": Fault.RULE,
    "callee-saved": Fault.COMPUTES,
    "call-mask": Fault.COMPUTES,
    "control-flow": Fault.COMPUTES,
    "header": Fault.RULE,
    "relation": Fault.UNDECIDED,
    "solver": Fault.UNDECIDED,
    "path-by-path": Fault.UNDECIDED,
    "undefined-input": Fault.UNDECIDED,
    "certificate": Fault.UNDECIDED,
    "unsupported": Fault.UNDECIDED,
}
"""Every rule that a finding can be about, with what it means that the rule is refuted."""

RULES = tuple(FAULTS)
"""Stable names of everything a finding can be about."""


class Site(Struct, frozen=True):
    """One instruction of one side.

    Attributes:
        side: ``"pre"`` or ``"post"``.
        block: layout position of its block.
        label: the block's name in that text, ``"bb.3"``.
        line: 1-based line in that text.
    """

    side: str
    block: int
    label: str
    line: int
    text: str


class Fact(Struct, frozen=True):
    """One step of an explanation: what happened to a value, and where (None: at function entry, or nowhere)."""

    what: str
    site: Site | None = None


class Value(Struct, frozen=True):
    """A value in a place: where it was made, and the moves that brought it there, oldest first.

    ``place`` is a lane of the pre-RA side (``%12.sub0``) or a register or spill slot of the post-RA side (``v7``).
    """

    place: str
    facts: tuple[Fact, ...]


class OperandPair(Struct, frozen=True):
    """The operand a finding is about: its number (LLVM's: definitions first) and its text on both sides."""

    number: int
    pre: str
    post: str


class Finding(Struct, frozen=True):
    """One thing that is wrong, or could not be decided.

    Attributes:
        rule: stable rule name, one of ``smt_verifier.audit.RULES``.
        outcome: ``REFUTED``, or ``UNKNOWN`` where the audit cannot decide.
        message: what was expected and what is there, in one sentence.
        block: layout position of the block, -1 for the function as a whole.
        pre_line: 1-based line of the instruction in the pre-RA text, 0 where there is none.
        post_line: likewise in the post-RA text.
        operand: the operand that reads the wrong value.
        lane: which lanes of it, ``"sub0"``; ``""`` where the finding is not about lanes.
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

    @property
    def fault(self) -> Fault:
        """What kind of thing is wrong; the rule decides it where something is refuted."""
        if self.outcome is Outcome.REFUTED:
            return FAULTS[self.rule]
        return Fault.INVALID if self.outcome is Outcome.INVALID else Fault.UNDECIDED


class MoveCounts(Struct, frozen=True):
    """Copies and spill code in one function, by side.

    ``copies_before``/``copies_after`` count ``COPY`` between registers; ``saves``/``reloads`` count spill pseudo
    instructions of the post-RA side; ``rematerialised`` counts instructions that only the post-RA side has.
    """

    copies_before: int = 0
    copies_after: int = 0
    saves: int = 0
    reloads: int = 0
    rematerialised: int = 0


def moves_between(pre: MachineFunction, post: MachineFunction, rematerialised: int) -> MoveCounts:
    """The copies and spill code of both sides; ``rematerialised``: instructions that only the post-RA side has."""
    before, after = (Counter(i.opcode for block in side.blocks for i in block.instructions) for side in (pre, post))
    saves, reloads = (
        sum(n for opcode, n in after.items() if opcode.startswith("SI_SPILL_") and opcode.endswith(way))
        for way in ("_SAVE", "_RESTORE")
    )
    return MoveCounts(before["COPY"], after["COPY"], saves, reloads, rematerialised)


class GoalCounts(Struct, frozen=True):
    """Goals about values.

    ``literal`` counts those that need no reasoning: ``t = t``, or a hypothesis of the same block word for word.
    ``decided`` counts all others: the solver is asked each of them. Goals that only the names of their terms tell
    apart are asked once and counted each.
    """

    literal: int = 0
    decided: int = 0

    def __add__(self, other: GoalCounts) -> GoalCounts:
        return GoalCounts(self.literal + other.literal, self.decided + other.decided)

    @property
    def total(self) -> int:
        return self.literal + self.decided


class FunctionAudit(Struct, frozen=True):
    """Verdict on one function.

    Attributes:
        obligations: goals about values, and checks of the machine's rules and of flags: one a step, flag and block.
        findings: what is wrong or could not be decided.
        checkers: names of the checkers that accepted a certificate of the function.
        operands: of the text after allocation, that each of them compared.
        certificate: the certificate, or ``""``.
        premises: what the checkers were told of LLVM behind the phase, by the names of their options.
    """

    function: str
    outcome: Outcome
    obligations: int
    findings: tuple[Finding, ...]
    moves: MoveCounts
    goals: GoalCounts = GoalCounts()
    checkers: tuple[str, ...] = ()
    operands: int = 0
    certificate: str = ""
    premises: tuple[str, ...] = ()

    @property
    def rule_checks(self) -> int:
        """The obligations that are no goals: checks of rules and flags."""
        return self.obligations - self.goals.total

    @property
    def faults(self) -> tuple[Fault, ...]:
        """The kinds of fault among the findings, gravest first."""
        return _gravest_first(f.fault for f in self.findings)


def _gravest_first(faults: Iterable[Fault]) -> tuple[Fault, ...]:
    kinds = set(faults)
    return tuple(kind for kind in Fault if kind in kinds)


class AuditReport(Struct, frozen=True):
    """Verdicts on all functions of a file, in its order."""

    functions: tuple[FunctionAudit, ...]

    @property
    def outcome(self) -> Outcome:
        return combine(f.outcome for f in self.functions)

    @property
    def faults(self) -> tuple[Fault, ...]:
        """The kinds of fault in all functions, gravest first."""
        return _gravest_first(kind for f in self.functions for kind in f.faults)

    @property
    def obligations(self) -> int:
        return sum(f.obligations for f in self.functions)
