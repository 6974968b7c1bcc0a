"""Every pair of texts in ``tests/cases`` is judged as its first line says; cases/README.md says how to add one."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections import Counter
from functools import lru_cache
from pathlib import Path

import pytest
from case_support import ATTACKS, CASES, RIGHT, Case, all_cases, judge, llc_says, read_case
from support import LLVM_DIRECTORIES

from smt_verifier.audit import RULES

ALL = all_cases()
BY_NAME = [pytest.param(case, id=case.name) for case in ALL]
LEAST_ATTACKS, LEAST_RIGHT, LEAST_OF_A_CLASS = 80, 30, 3


@lru_cache(maxsize=1)
def llc_22() -> str:
    """An llc of major version 22, whose answers the files hold; ``""`` where there is none."""
    places = [shutil.which("llc-22"), *(f"{directory}/llc" for directory in LLVM_DIRECTORIES)]
    for tool in filter(None, places):
        if not Path(tool).exists():
            continue
        version = subprocess.run([tool, "--version"], capture_output=True, text=True, check=False).stdout
        if re.search(r"\bversion 22\.", version):
            return tool
    return ""


@pytest.mark.parametrize("case", BY_NAME)
def test_the_verdict_is_the_one_the_first_line_says(case: Case) -> None:
    judgement = judge(case.before, case.after, case.target)
    assert judgement.verdict == case.verdict, judgement.messages
    if case.rule != "-":
        assert case.rule in judgement.rules, judgement.messages


EQUAL = [case for case in ALL if case.equals_itself]
FIRST = {case.kind: case.name for case in reversed(EQUAL)}
"""Of each class of attacks one text, beside a quarter of the texts of what is right."""
QUICK = {*FIRST.values(), *[case.name for case in EQUAL if case.kind == RIGHT][::4]}


@pytest.mark.parametrize(
    "case",
    [pytest.param(c, id=c.name, marks=() if c.name in QUICK else pytest.mark.long) for c in EQUAL],
)
def test_a_text_against_itself_is_proved_or_not_followed(case: Case) -> None:
    """No rule may refute a text for what it is; where it is not followed, the answer is unknown for that reason. A text
    for another system stays bad input.
    """
    judgement = judge(case.before, case.before, case.target)
    if "amdgcn-amd-amdpal" in case.before.read_text():
        assert judgement.verdict == "invalid", judgement.messages
        return
    assert judgement.verdict in ("proved", "unknown"), judgement.messages
    if case.kind == RIGHT and case.verdict == "proved":
        assert judgement.verdict == "proved", judgement.messages


WITH_ASSEMBLY = [
    pytest.param(c, id=c.name)
    for c in ALL
    # LLVM 22, which is asked for long branches, does not read the other's words.
    if "attdialect" in c.before.read_text() and "_near_branch_" not in c.name
]


@pytest.mark.parametrize("case", WITH_ASSEMBLY)
def test_inline_assembly_in_the_words_of_llvm_24_is_judged_the_same(case: Case, tmp_path: Path) -> None:
    """LLVM 22 prints ``1245194 /* regdef:VGPR_32 */``, LLVM 24 ``regdef:VGPR_32``."""

    def in_words(text: Path) -> Path:
        written = tmp_path / text.name
        written.write_text(re.sub(r"\d+ /\* ([^*]*) \*/", r"\1", text.read_text()))
        assert "attdialect" not in text.read_text() or written.read_text() != text.read_text()
        return written

    judgement = judge(in_words(case.before), in_words(case.after), case.target)
    assert judgement.verdict == case.verdict, judgement.messages
    if case.rule != "-":
        assert case.rule in judgement.rules, judgement.messages


@pytest.mark.long
@pytest.mark.parametrize("case", [pytest.param(c, id=c.name) for c in ALL if c.llc])
def test_what_llc_says_of_the_second_text(case: Case) -> None:
    if not llc_22():
        pytest.skip("no llc of LLVM 22, whose answers the files hold")
    answer, printed = llc_says(llc_22(), case.after, case.target, case.resume)
    assert answer == case.llc, printed


def test_the_files_of_a_case_go_together() -> None:
    for case in ALL:
        assert case.after.exists(), case.name
        assert case.rule == "-" or case.rule in RULES, case.name
        assert case.kind == RIGHT or case.name.startswith(f"{case.kind}_"), "a case is named after its class"
        assert case.kind != RIGHT or case.rule in ("-", "certificate"), case.name


def test_every_second_text_has_a_first() -> None:
    names = {path.name.removesuffix(".after.mir") for path in CASES.glob("*.after.mir")}
    assert names == {case.name for case in ALL}


def test_there_are_enough_of_every_class() -> None:
    counts = Counter(case.kind for case in ALL)
    assert counts[RIGHT] >= LEAST_RIGHT
    assert counts.total() - counts[RIGHT] >= LEAST_ATTACKS
    assert not [kind for kind in ATTACKS if counts[kind] < LEAST_OF_A_CLASS]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("---", "no comment"),
        ("# verdict: proved; rule: -; target: gfx942", "class"),
        ("# verdict: fine; rule: -; target: gfx942; class: right", "cannot be 'fine'"),
        ("# verdict: proved; rule: -; target: gfx942; class: ties", "must be proved"),
        ("# verdict: refuted; rule: value; target: gfx942; class: right", "must be proved"),
        ("# verdict: proved; rule: -; target: gfx942; class: right; why: so", "no field 'why'"),
        ("# verdict: proved; verdict: proved; rule: -; target: gfx942; class: right", "there twice"),
    ],
)
def test_a_first_line_that_is_not_one_is_refused(line: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "some.before.mir"
    path.write_text(f"{line}\n# Why.\n---\n")
    with pytest.raises(ValueError, match=re.escape(message)):
        read_case(path)


def test_a_case_must_say_why(tmp_path: Path) -> None:
    path = tmp_path / "some.before.mir"
    path.write_text("# verdict: proved; rule: -; target: gfx942; class: right\n---\n")
    with pytest.raises(ValueError, match="second line"):
        read_case(path)
