"""Both checkers on the cases: what is right is accepted with its certificate, no attack is, whoever checks."""

from __future__ import annotations

import functools
from pathlib import Path

import pytest
from case_support import RIGHT, Case, all_cases
from checker_support import needs_both
from support import REPOSITORY

from smt_verifier.certificate.second import second_checker
from smt_verifier.certificate.verdict import Certification, certify_texts
from smt_verifier.checker.outcome import Refused
from smt_verifier.checker.text import read
from verilocc_mlir.toolchain.long_branches import near_branches_on

CASES = all_cases()
_UNPAIRED = "verilocc-certificate 2\nfunction {}\nblock 0\nsteps 1=\nend\n"


@functools.lru_cache(maxsize=1)
def _functions(before: str) -> tuple[str, ...]:
    try:
        return tuple(f.name for f in read(before).functions)
    except Refused:
        return ()


@functools.cache
def _certifications(case: Case) -> list[Certification]:
    before, after = case.before.read_text(), case.after.read_text()
    made = [certify_texts(before, after, name, case.target) for name in _functions(before)]
    is_near = near_branches_on(after, case.target)
    return [
        certify_texts(before, after, name, case.target, near_branches=True)
        if certification.may_branch_far and is_near(name)
        else certification
        for name, certification in zip(_functions(before), made, strict=True)
    ]


@pytest.mark.parametrize("case", [c for c in CASES if c.kind != RIGHT], ids=lambda c: c.name)
def test_no_attack_is_accepted(case: Case) -> None:
    certifications = _certifications(case)
    assert not certifications or not all(c.accepted for c in certifications)


@pytest.mark.parametrize("case", [c for c in CASES if c.kind == RIGHT], ids=lambda c: c.name)
def test_what_is_right_is_accepted_by_every_checker_at_hand(case: Case) -> None:
    certifications = _certifications(case)
    assert [str(a) for c in certifications for a in c.answers if not a.accepted] == []
    assert certifications


@needs_both
@pytest.mark.parametrize("case", [c for c in CASES if c.kind != RIGHT], ids=lambda c: c.name)
def test_the_second_checker_refuses_attacks_alone(case: Case) -> None:
    """Also with the certificate that the first one has refused."""
    before, after = case.before.read_text(), case.after.read_text()
    names = _functions(before) or ("f",)
    verdicts: list[bool] = []
    for name, found in zip(names, _certifications(case) or (None,), strict=True):
        text = (found.text if found else "") or _UNPAIRED.format(name)
        answer = second_checker(before, after, text, case.target, name)
        assert answer is not None
        verdicts.append(answer[0])
    assert not all(verdicts)


SCALAR_PHASE = sorted((REPOSITORY / "tests" / "data" / "audit" / "scalar_phase").glob("*.before.mir"))


@needs_both
@pytest.mark.parametrize("path", SCALAR_PHASE, ids=lambda path: path.name.removesuffix(".before.mir"))
def test_what_llvm_restores_behind_the_scalar_phase_is_not_read(path: Path) -> None:
    """Texts of the scalar phase, behind which LLVM saves and restores: each checker refuses what reads it too late."""
    before, after = path.read_text(), path.with_name(path.name.replace(".before.mir", ".after.mir")).read_text()
    asked = before, after, "f", "gfx942"
    answers = certify_texts(*asked, saved_later=True).answers
    assert [(a.rule, a.accepted) for a in answers] == [("callee-saved", False)] * 2
    text = certify_texts(*asked).text
    answer = second_checker(before, after, text, "gfx942", "f", saved_later=True)
    assert answer is not None
    assert (answer[0], answer[2]) == (False, "callee-saved")
