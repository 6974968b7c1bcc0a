"""Random small problems: ``prove`` names the same violated rules and live ranges as a checker that looks at every unit
at every slot."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from prove_support import brute_force, cases

from smt_verifier.outcome import Outcome
from smt_verifier.prove import prove
from verilocc_mlir.problem.model import AllocationProblem, Proposal


def agrees_with_brute_force(asked: AllocationProblem, answer: Proposal) -> None:
    expected = brute_force(asked, answer)
    result = prove(asked, answer)
    assert result.outcome is (Outcome.REFUTED if expected else Outcome.PROVED)
    assert {(v.rule, tuple(sorted(v.ranges))) for v in result.violations} == expected
    for violation in result.violations:
        for name in violation.free:
            moved = list(answer.registers)
            moved[violation.ranges[0]] = name
            left = brute_force(asked, Proposal(1, "moved", tuple(moved)))
            assert not any(violation.ranges[0] in ranges for _, ranges in left), (violation, name)


@settings(max_examples=40, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(cases())
def test_a_few_agree_with_brute_force(case: tuple[AllocationProblem, Proposal]) -> None:
    agrees_with_brute_force(*case)


@pytest.mark.long
@settings(max_examples=300, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(cases())
def test_agrees_with_brute_force(case: tuple[AllocationProblem, Proposal]) -> None:
    agrees_with_brute_force(*case)
