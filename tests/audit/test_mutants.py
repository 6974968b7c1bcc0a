"""A sample of the mutation campaign (benchmarks/audit_campaign.py): every class on a few functions and targets."""

from __future__ import annotations

import random
import re

import pytest
from mutants import CLASSES
from mutants.judge import Judge
from mutants.samples import samples
from support import long

from smt_verifier.audit import RULES
from smt_verifier.outcome import Outcome
from verilocc_mlir.errors import VeriloccError

PER_CLASS = [1, *long(4)]
DEAR = {
    "lost back-edge copy", "KILL or IMPLICIT_DEF added", "KILL or IMPLICIT_DEF changed", "wrong register read",
    "header: stack object", "dead flag added", "wrong lane", "spill slots mixed up", "live-in dropped",
    "early-clobber overlap", "dropped memory operand", "dropped save", "undef flag added", "wrong rematerialisation",
}  # fmt: skip
"""Classes of which many mutants are equivalent; each rule they break has a refuted text in tests/cases."""
MOST = 24
"""Edits made of a class while all of them turn out equivalent."""
REFUSED = {Outcome.REFUTED, Outcome.INVALID}
"""A text that LLVM's parser would not take is INVALID, from the reader or from the audit."""
UNREADABLE = re.compile("unknown physical register|is not an instruction of the LLVM")
"""Of texts that name what LLVM does not have."""
NEVER_FOLLOWED = {"whole-wave clobber"}
"""Classes whose code the audit may answer UNKNOWN."""


@pytest.fixture(scope="module")
def judges() -> list[Judge]:
    return [Judge(subject) for subject in samples()]


@pytest.mark.parametrize("most", [2, *long(1000)])
def test_the_samples_are_proved_and_make_no_difference(judges: list[Judge], most: int) -> None:
    for judge in judges[:most]:
        judged = judge.unchanged()
        assert judged.outcome is Outcome.PROVED, judged.message
        assert judged.answer.supported
        assert not judged.answer.differs, judged.answer.where


def test_classes_expect_rules_that_exist() -> None:
    assert set().union(*(c.rules for c in CLASSES.values())) <= {*RULES}
    assert all(bool(c.rules) != c.equivalent for c in CLASSES.values())


@pytest.mark.parametrize("least", PER_CLASS)
@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.long) if n in DEAR else n for n in CLASSES if not CLASSES[n].equivalent]
)
def test_a_mutant_is_refuted_for_the_right_reason_or_changes_nothing(
    name: str, least: int, judges: list[Judge]
) -> None:
    """None is proved that concrete runs tell from the original; some are refuted, each with a rule of the class."""
    mutation = CLASSES[name]
    outcomes: list[Outcome] = []
    rng = random.Random(name)
    streams = [(judge, mutation.edits(judge.subject, rng)) for judge in judges]
    rng.shuffle(streams)
    while streams and (len(outcomes) < least or (not REFUSED & {*outcomes} and len(outcomes) < MOST)):
        judge, edits = streams.pop(0)
        edit = next(edits, None)
        if edit is None:
            continue
        streams.append((judge, edits))
        try:
            judged = judge.mutant(mutation, edit, rng.randrange(1 << 30))
        except VeriloccError:
            outcomes.append(Outcome.INVALID)
            continue
        assert not judged.fault, (edit.what, judged.message, judged.answer.where)
        unreadable = judged.outcome is Outcome.UNKNOWN and bool(UNREADABLE.search(judged.message))
        stricter = judged.rules == {"certificate"}  # What the search lets pass, and no checker does.
        assert judged.outcome is not Outcome.UNKNOWN or unreadable or stricter or name in NEVER_FOLLOWED, judged.message
        outcomes.append(Outcome.INVALID if unreadable else judged.outcome)
    assert REFUSED & {*outcomes} or name in NEVER_FOLLOWED


@pytest.mark.parametrize("most", [1, *long(1000)])
@pytest.mark.parametrize("name", [c.name for c in CLASSES.values() if c.equivalent])
def test_an_equivalent_edit_is_proved(name: str, most: int, judges: list[Judge]) -> None:
    """One in each sample, in so many samples."""
    made = 0
    for number, judge in enumerate(judges):
        rng = random.Random(number)
        for _, edit in zip(range(1), CLASSES[name].edits(judge.subject, rng), strict=False):
            judged = judge.mutant(CLASSES[name], edit)
            assert judged.outcome is Outcome.PROVED, (edit.what, judged.message)
            assert not judged.answer.differs
            made += 1
        if made == most:
            break
    assert made
