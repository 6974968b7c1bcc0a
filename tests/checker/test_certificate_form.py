"""The form of a certificate (specification 15): each checker refuses what is out of order, twice, or about nothing."""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path

import pytest
from case_support import CASES
from checker_support import needs_both, rule_of_first, rule_of_second
from support import REPOSITORY

from smt_verifier.certificate.verdict import certify_texts

pytestmark = needs_both
_CASE = "right_dpp_made_anew_after_a_branch"
_CPU = "gfx1100"


@lru_cache(maxsize=1)
def _right() -> tuple[str, str, str]:
    before, after = ((CASES / f"{_CASE}.{side}.mir").read_text() for side in ("before", "after"))
    certification = certify_texts(before, after, "k", _CPU)
    assert certification.accepted
    return before, after, certification.text


def _answers(certificate: str, directory: Path) -> list[str]:
    before, after, _ = _right()
    return [
        rule_of_first(before, after, certificate, _CPU),
        rule_of_second(before, after, certificate, _CPU, directory),
    ]


def _steps_before_the_entry(text: str) -> str:
    return re.sub(r"\n(entry\n.*?)(steps [^\n]*\n)", r"\n\2\1", text, count=1, flags=re.DOTALL)


CHANGES = {
    "a run of nothing": lambda t: t.replace("steps ", "steps 0= ", 1),
    "steps twice": lambda t: re.sub(r"(steps [^\n]*\n)", r"\1\1", t, count=1),
    "no steps": lambda t: re.sub(r"steps [^\n]*\n", "", t, count=1),
    "a split at nothing": lambda t: t.replace("\nblock 1\n", "\nsplit 99\nblock 1\n", 1),
    "a repeat at nothing": lambda t: t.replace("\nblock 1\n", "\nrepeat 99 0 2\nblock 1\n", 1),
    "a repeat twice": lambda t: re.sub(r"(\nrepeat [^\n]*)", r"\1\1", t, count=1),
    "steps before the entry": _steps_before_the_entry,
    "a class behind what it holds": lambda t: re.sub(
        r"(\nclass 0 [^\n]*)(.*?)(\nsteps )", r"\2\1\3", t, count=1, flags=re.DOTALL
    ),
    "a claim of nobody": lambda t: re.sub(r"\nin [^\n]*", "\nin", t, count=1),
    "members of a class twice": lambda t: re.sub(r"(\nmember [^\n]*)", r"\1\1", t, count=1),
    "a span of one": lambda t: t.replace("in 0-2\n", "in 0-0 1-2\n"),
    "a span downwards": lambda t: t.replace("in 0-2\n", "in 2-0\n"),
    "a span beyond the classes": lambda t: t.replace("in 0-2\n", "in 0-9\n"),
    "a span beyond the masks": lambda t: t.replace("+0-1", "+0-999999999"),
    "an older version": lambda t: t.replace("certificate 2", "certificate 1"),
    "no end": lambda t: t.removesuffix("end\n"),
    "a word that is none": lambda t: t.replace("\nentry\n", "\nentry\nthere\n", 1),
}


def test_unchanged_it_is_accepted(tmp_path: Path) -> None:
    assert _answers(_right()[2], tmp_path) == ["", ""]


@pytest.mark.parametrize("change", CHANGES)
def test_each_checker_refuses_another_form(change: str, tmp_path: Path) -> None:
    text = CHANGES[change](_right()[2])
    assert text != _right()[2]
    assert _answers(text, tmp_path) == ["certificate", "certificate"]


@pytest.mark.parametrize("character", ["\x85", "\x0c", "\x7f"])
def test_each_checker_refuses_characters_that_llvm_does_not_print(character: str, tmp_path: Path) -> None:
    before, after, certificate = _right()
    after = after.replace("body: ", f"# a{character}b\nbody: ", 1)
    answers = [
        rule_of_first(before, after, certificate, _CPU),
        rule_of_second(before, after, certificate, _CPU, tmp_path),
    ]
    assert answers == ["text", "text"]


def test_each_checker_accepts_spans_that_are_written_out(tmp_path: Path) -> None:
    text = _right()[2].replace("in 0-2\n", "in 0 1 2\n").replace("+0-1", "+0 +1")
    assert text != _right()[2]
    assert _answers(text, tmp_path) == ["", ""]


def test_both_count_the_same_operands() -> None:
    _, _, certificate = _right()
    assert "+" in certificate  # Something of Q stands alone, which both count.
    before, after, _ = _right()
    first, second = certify_texts(before, after, "k", _CPU).answers
    assert first.operands == second.operands > 0


def test_nothing_that_mypyc_works_out_at_every_use() -> None:
    """mypyc takes ``cached_property`` for ``property``: compiled code works the value out again at every use."""
    sources = [p for part in ("checker", "certificate") for p in (REPOSITORY / "smt_verifier" / part).glob("*.py")]
    assert sources
    assert [p.name for p in sources if "@cached_property" in p.read_text()] == []
