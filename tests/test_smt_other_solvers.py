"""cvc5 and bitwuzla read the obligations as they are written and reach the same verdicts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from prove_support import live, problem, proposal

from smt_verifier.outcome import Outcome
from smt_verifier.prove import obligation_for
from smt_verifier.smt import Obligation, Z3Solver, to_smtlib, without_sorts

UNINTERPRETED = (
    "(declare-sort Value 0)\n(declare-fun add (Value Value) Value)\n"
    "(declare-const a Value)(declare-const b Value)(declare-const c Value)\n(assert (= a b))\n"
)
PROVED = Obligation("equal", "QF_UF", UNINTERPRETED, (("x", "(= (add a c) (add b c))"), ("y", "(= b a)")))
REFUTED = Obligation("unequal", "QF_UF", UNINTERPRETED, (("x", "(= (add a c) (add c b))"), ("y", "(= a b)")))

ASKED = problem(live("vreg_64_align2"), live("vgpr_32"), live("sreg_64"), live("av_32"), live("vgpr_16"))
GOOD = ("vgpr0_vgpr1", "vgpr2", "vcc", "agpr0", "vgpr3_hi16")
PROPOSALS = [
    GOOD,
    ("vgpr0_vgpr1", "vgpr1", *GOOD[2:]),
    ("vgpr5_vgpr6", *GOOD[1:]),
    (GOOD[0], "vgpr200", *GOOD[2:]),
    (*GOOD[:3], "sgpr2", GOOD[4]),
    (*GOOD[:4], ""),
]

ANSWER = {Outcome.PROVED: "unsat", Outcome.REFUTED: "sat"}


def cvc5(text: str) -> str:
    module: Any = pytest.importorskip("cvc5", reason="cvc5 is not installed: pip install cvc5")
    solver = module.Solver()
    parser = module.InputParser(solver)
    parser.setStringInput(module.InputLanguage.SMT_LIB_2_6, text, "obligation")
    printed: list[str] = []
    while not (command := parser.nextCommand()).isNull():
        printed.append(str(command.invoke(solver, parser.getSymbolManager())))
    return "".join(printed).strip()


def bitwuzla(text: str) -> str:
    module: Any = pytest.importorskip("bitwuzla", reason="bitwuzla is not installed: pip install bitwuzla")
    parser = module.Parser(module.TermManager(), module.Options())
    parser.parse(text, True, False)
    return str(parser.bitwuzla().check_sat()).rpartition(".")[2].lower()


@pytest.mark.parametrize("solve", [cvc5, bitwuzla])
@pytest.mark.parametrize("registers", PROPOSALS)
def test_constraint_checks(solve: Callable[[str], str], registers: tuple[str, ...]) -> None:
    obligation = obligation_for(ASKED, proposal(*registers))
    expected = ANSWER[Z3Solver().check(obligation).outcome]
    assert expected == ("unsat" if registers == GOOD else "sat")
    assert solve(to_smtlib(obligation, expected)) == expected


@pytest.mark.parametrize(("obligation", "outcome"), [(PROVED, Outcome.PROVED), (REFUTED, Outcome.REFUTED)])
def test_uninterpreted_sorts_in_cvc5(obligation: Obligation, outcome: Outcome) -> None:
    assert Z3Solver().check(obligation).outcome is outcome
    assert cvc5(to_smtlib(obligation, ANSWER[outcome])) == ANSWER[outcome]


@pytest.mark.parametrize(("obligation", "outcome"), [(PROVED, Outcome.PROVED), (REFUTED, Outcome.REFUTED)])
def test_bit_vectors_for_uninterpreted_sorts(obligation: Obligation, outcome: Outcome) -> None:
    """bitwuzla has no equality over uninterpreted sorts; over 32-bit vectors all three agree."""
    over_vectors = without_sorts(obligation)
    assert over_vectors.logic == "QF_UFBV"
    assert Z3Solver().check(over_vectors).outcome is outcome
    text = to_smtlib(over_vectors, ANSWER[outcome])
    assert cvc5(text) == ANSWER[outcome]
    assert bitwuzla(text) == ANSWER[outcome]


def test_bit_vector_obligations_are_left_alone() -> None:
    obligation = obligation_for(ASKED, proposal(*GOOD))
    assert without_sorts(obligation) is obligation


def test_a_wrong_expectation_is_noticed() -> None:
    assert "Expected result unsat" in cvc5(to_smtlib(REFUTED))
