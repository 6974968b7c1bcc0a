"""cvc5 and bitwuzla on SMT-LIB2 text; a test that needs one is skipped where it is not installed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from smt_verifier.outcome import Outcome
from smt_verifier.smt import Obligation, Verdict, Z3Solver

ANSWER = {Outcome.PROVED: "unsat", Outcome.REFUTED: "sat"}
"""What a solver prints for each verdict."""


def cvc5(text: str) -> str:
    """All that cvc5 prints."""
    module: Any = pytest.importorskip("cvc5", reason="cvc5 is not installed: pip install cvc5")
    solver = module.Solver()
    parser = module.InputParser(solver)
    parser.setStringInput(module.InputLanguage.SMT_LIB_2_6, text, "obligation")
    printed: list[str] = []
    while not (command := parser.nextCommand()).isNull():
        printed.append(str(command.invoke(solver, parser.getSymbolManager())))
    return "".join(printed).strip()


def bitwuzla(text: str) -> str:
    """bitwuzla's answer: ``sat``, ``unsat`` or ``unknown``."""
    module: Any = pytest.importorskip("bitwuzla", reason="bitwuzla is not installed: pip install bitwuzla")
    parser = module.Parser(module.TermManager(), module.Options())
    parser.parse(text, True, False)
    return str(parser.bitwuzla().check_sat()).rpartition(".")[2].lower()


BOTH: tuple[Callable[[str], str], ...] = (cvc5, bitwuzla)


class Recorder:
    """Z3, keeping what it was asked and what it answered."""

    def __init__(self) -> None:
        self.asked: list[tuple[Obligation, Verdict]] = []

    def check(self, obligation: Obligation, timeout_s: float = 30.0, *, consistent: bool = False) -> Verdict:
        verdict = Z3Solver().check(obligation, timeout_s, consistent=consistent)
        self.asked.append((obligation, verdict))
        return verdict
