"""Shared by the tests of the solver: small obligations, easy and hard."""

from __future__ import annotations

import itertools

from smt_verifier.smt import (
    Obligation,
)

EQUAL = (
    "(declare-sort V 0)(declare-fun f (V) V)\n"
    "(declare-const a V)(declare-const b V)(declare-const c V)(declare-const d V)\n"
    "(assert (= a b))"
)


def obligation(*goals: str, script: str = EQUAL, logic: str = "QF_UF") -> Obligation:
    return Obligation("test", logic, script, tuple((f"goal {term}", term) for term in goals))


def pigeons(holes: int) -> str:
    """So many pigeons and one more do not fit: short to say, exponential for resolution."""
    birds = range(holes + 1)
    lines = [f"(declare-const p{i}_{j} Bool)" for i in birds for j in range(holes)]
    lines += [f"(assert (or {' '.join(f'p{i}_{j}' for j in range(holes))}))" for i in birds]
    pairs = itertools.combinations(birds, 2)
    lines += [f"(assert (not (and p{a}_{j} p{b}_{j})))" for a, b in pairs for j in range(holes)]
    return "\n".join(lines)


EASY = obligation("(= a b)")


HARD = obligation("false", script=pigeons(14))
