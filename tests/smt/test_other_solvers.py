"""cvc5 and bitwuzla read the obligations as they are written and reach the same verdicts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from allocation import phases_of_kernel
from builders import live_of, problem_of
from other_solvers import ANSWER, BOTH, Recorder, bitwuzla, cvc5
from prove_support import proposal
from support import cpu_of, each_kernel

from smt_verifier.audit import audit
from smt_verifier.outcome import Outcome
from smt_verifier.prove import obligation_for, prove
from smt_verifier.smt import Obligation, Z3Solver, to_smtlib, without_sorts
from verilocc_mlir.allocators import allocator
from verilocc_mlir.mir.parser import parse_mir
from verilocc_mlir.problem.build import Phase, build_problem
from verilocc_mlir.target.targets import target

UNINTERPRETED = (
    "(declare-sort Value 0)\n(declare-fun add (Value Value) Value)\n"
    "(declare-const a Value)(declare-const b Value)(declare-const c Value)\n(assert (= a b))\n"
)
PROVED = Obligation("equal", "QF_UF", UNINTERPRETED, (("x", "(= (add a c) (add b c))"), ("y", "(= b a)")))
REFUTED = Obligation("unequal", "QF_UF", UNINTERPRETED, (("x", "(= (add a c) (add c b))"), ("y", "(= a b)")))

ASKED = problem_of(
    live_of("vreg_64_align2"), live_of("vgpr_32"), live_of("sreg_64"), live_of("av_32"), live_of("vgpr_16")
)
GOOD = ("vgpr0_vgpr1", "vgpr2", "vcc", "agpr0", "vgpr3_hi16")
PROPOSALS = [
    GOOD,
    ("vgpr0_vgpr1", "vgpr1", *GOOD[2:]),
    ("vgpr5_vgpr6", *GOOD[1:]),
    (GOOD[0], "vgpr200", *GOOD[2:]),
    (*GOOD[:3], "sgpr2", GOOD[4]),
    (*GOOD[:4], ""),
]


@pytest.mark.parametrize("solve", BOTH)
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


@pytest.mark.parametrize("path", each_kernel(lambda name: name.startswith("gemm") and name.endswith("opt.ll")))
def test_obligations_of_a_kernel(path: Path) -> None:
    """What both theorems ask about real allocations: LLVM's own, and the deterministic allocator's."""
    cpu = cpu_of(path)
    recorder = Recorder()
    phases: tuple[Phase, Phase] = ("sgpr", "vgpr")
    for phase, pair in zip(phases, phases_of_kernel(path), strict=True):
        audit(parse_mir(pair.pre), parse_mir(pair.post), target(cpu), solver=recorder)
        file = parse_mir(pair.pre)
        for function in file.functions:
            asked = build_problem(file, function, target(cpu), phase)
            prove(asked, allocator("deterministic").allocate(asked), solver=recorder)
    assert {obligation.logic for obligation, _ in recorder.asked} == {"QF_UF", "QF_BV"}
    for obligation, verdict in recorder.asked:
        expected = ANSWER[verdict.outcome]
        assert cvc5(to_smtlib(obligation, expected)) == expected
        assert bitwuzla(to_smtlib(without_sorts(obligation), expected)) == expected
