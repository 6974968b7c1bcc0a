"""A proof obligation is text in SMT-LIB 2.6, so that any solver can be asked, and a person can read what was asked."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from smt_verifier.outcome import Outcome


@dataclass(frozen=True)
class Obligation:
    """Show that every goal follows from the hypotheses.

    Attributes:
        name: stable, unique in its proof; it names the file when the obligation is written out.
        logic: SMT-LIB logic that the script stays within (``QF_UF``, ``QF_LIA`` …).
        script: declarations, definitions and ``assert``s of the hypotheses; no ``set-logic``, no ``check-sat``.
        goals: ``(name, Boolean term)``; names are unique. No goals: nothing to show, PROVED.
    """

    name: str
    logic: str
    script: str
    goals: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Verdict:
    """The answer to one obligation.

    Attributes:
        outcome: PROVED (hypotheses and negated goals unsatisfiable), REFUTED (a model makes a goal false), UNKNOWN
            (limit or solver failure), INVALID (the text does not parse, or its hypotheses contradict each other).
        violated: names of the goals that are false in the counterexample, in the obligation's order.
        reason: why, for UNKNOWN and INVALID; else empty.
    """

    outcome: Outcome
    violated: tuple[str, ...] = ()
    reason: str = ""


def conjunction(terms: Sequence[str]) -> str:
    """The conjunction of any number of terms (SMT-LIB's ``and`` wants two or more)."""
    if len(terms) > 1:
        return "(and\n " + "\n ".join(terms) + ")"
    return terms[0] if terms else "true"


def negated_goals(obligation: Obligation) -> str:
    """The one assertion that turns validity of the goals into unsatisfiability."""
    return f"(assert (not {conjunction([term for _, term in obligation.goals])}))\n"


def to_smtlib(obligation: Obligation, expected: str = "unsat") -> str:
    """A file on its own: ``unsat`` means proved. cvc5 reads it as it is, bitwuzla too where it is of bit-vectors.

    Args:
        expected: ``unsat``, ``sat`` or ``unknown``; cvc5 reports an error where its answer is another.
    """
    goals = (
        "".join(f"; goal {' '.join(name.split())}\n" for name, _ in obligation.goals)
        if len(obligation.goals) <= 64
        else ""
    )
    return (
        "(set-info :smt-lib-version 2.6)\n"
        f'(set-info :source "VeriLocc-MLIR obligation {obligation.name.replace(chr(34), chr(39))}")\n'
        f"(set-info :status {expected})\n"
        f"(set-logic {obligation.logic})\n"
        f"{obligation.script.rstrip()}\n{goals}{negated_goals(obligation)}(check-sat)\n"
    )


_SORT = re.compile(r"\(declare-sort (\S+) 0\)")


def without_sorts(obligation: Obligation) -> Obligation:
    """The same obligation over 32-bit vectors instead of uninterpreted sorts: bitwuzla has no equality on those.

    Equisatisfiable: a model over bit-vectors is a model; and a quantifier-free formula of uninterpreted functions and
    equality with a model has one in which a sort has no more elements than the formula has terms, fewer than 2**32.
    """
    script, count = _SORT.subn(r"(define-sort \1 () (_ BitVec 32))", obligation.script)
    return replace(obligation, logic="QF_UFBV", script=script) if count else obligation
