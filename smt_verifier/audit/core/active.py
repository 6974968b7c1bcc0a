"""What is known of thread masks besides which classes are in them, and of scalars that number threads.

V_READLANE and V_WRITELANE do not ask EXEC (ISA manuals). AMDGPUAtomicOptimizer.cpp gives them the first set bit of a
copy of EXEC as their lane, or of what a loop has left of that copy: then they touch an active thread, and no other.
V_READFIRSTLANE takes lane 0, active or not, where EXEC is 0.

These facts are followed: a mask is not empty, a mask is part of EXEC, a mask holds the first active thread, a scalar is
the number of an active thread. A mask or number is named by the terms that hold it. The value of a term never changes,
so "not empty" stays true. The others speak of EXEC as it is now: they are forgotten where EXEC is written, unless all
threads in it stay in it (the first of them may be another one then).

The first set bit of a mask that is part of EXEC and not empty numbers an active thread; of an empty one it is -1. Where
V_CMP_EQ compares a register with what V_READFIRSTLANE took from it, the first active thread finds them equal: waterfall
loops are never without a thread (SIInstrInfo::legalizeOperands).

Assumed: a function is entered with some thread active. A wave starts so, and LLVM branches around calls where no
thread is active (SIInstrInfo::hasUnwantedEffectsWhenEXECEmpty).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from smt_verifier.audit.core.state import EXEC, Known, Mask, Trait

LANE_OPERAND = 1
"""Number of the lane among the operands of V_READLANE and V_WRITELANE."""

Truth = bool | None
"""Membership of a class in a mask: in, out, or not known."""


@dataclass(frozen=True, slots=True)
class Source:
    """What an operand holds before its instruction writes: a constant mask, a named one (known or not), or neither."""

    constant: Truth = None
    name: Mask | None = None

    def has(self, fact: Trait, known: set[Known]) -> bool:
        """Whether a fact about this operand is known."""
        if self.constant is not None:
            return fact is (Trait.NOT_EMPTY if self.constant else Trait.PART_OF_EXEC)
        return (fact is Trait.PART_OF_EXEC and self.name == EXEC) or (fact, self.name) in known


def facts_of_result(operation: str, sources: list[Source], known: set[Known]) -> set[Trait]:
    """Facts about the result of a mask operation. Threads in ``a AND b`` are in both, in ``a ANDN2 b`` in ``a``, in
    ``a OR b`` and ``a XOR b`` in one of them. Nothing is known of other operations.
    """
    in_exec = [s.has(Trait.PART_OF_EXEC, known) for s in sources]
    not_empty = [s.has(Trait.NOT_EMPTY, known) for s in sources]
    with_first = [s.has(Trait.FIRST_THREAD, known) for s in sources]
    facts: set[Trait] = set()
    part_of_exec = {"AND": any(in_exec), "ANDN2": in_exec[0], "OR": all(in_exec), "XOR": all(in_exec)}
    if part_of_exec.get(operation, False):
        facts.add(Trait.PART_OF_EXEC)
    if operation == "OR" and any(not_empty):
        facts.add(Trait.NOT_EMPTY)
    if (operation == "AND" and all(with_first)) or (operation == "OR" and any(with_first)):
        facts.add(Trait.FIRST_THREAD)
    return facts


def facts_of_move(source: Source, known: set[Known]) -> set[Trait]:
    """A copy of a mask has its facts."""
    return {f for f in (Trait.NOT_EMPTY, Trait.PART_OF_EXEC, Trait.FIRST_THREAD) if source.has(f, known)}


def after_exec_changed(known: Iterable[Known], *, grown: bool) -> set[Known]:
    """What is still known where EXEC has got another value; ``grown``: all threads that were in it still are."""
    lasting = {Trait.NOT_EMPTY, Trait.PART_OF_EXEC, Trait.ACTIVE_THREAD} if grown else {Trait.NOT_EMPTY}
    return {k for k in known if k[0] in lasting}
