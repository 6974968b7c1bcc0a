"""Certificates written by hand: each checker alone refuses the wrong pair, and accepts the nearest right one.

Each is a file in ``tests/data/audit/forged``. Its first line says what is wrong or right, the second for which GPU and
by which rule it is refused: one of several, ``any``, or ``none`` where both checkers accept. Behind lines of ``======``
come the text before, the text after and the certificate, all of function ``f``.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from case_support import CASES
from checker_support import builds_the_second_checker, rule_of_first, rule_of_second
from support import TEST_DATA

from smt_verifier.certificate.verdict import certify_texts

FORGED = sorted((TEST_DATA / "audit" / "forged").glob("*.txt"))


def test_wrong_and_right_ones_are_there() -> None:
    assert min(sum(path.name.startswith(kind) for path in FORGED) for kind in ("right_", "wrong_")) > 50


@pytest.mark.parametrize("path", FORGED, ids=lambda path: path.stem)
def test_each_checker_answers_as_the_second_line_says(path: Path, tmp_path: Path) -> None:
    head, before, after, certificate = path.read_text().split("======\n")
    expected = re.fullmatch(r"# .+\n# rule: (?P<rule>[\w, -]+); target: (?P<cpu>\w+)\n", head)
    assert expected is not None
    texts, cpu = (before, after, certificate), expected["cpu"]
    answers = {rule_of_first(*texts, cpu)}
    if builds_the_second_checker():
        answers.add(rule_of_second(*texts, cpu, tmp_path))
    assert path.name.startswith("right_") == (expected["rule"] == "none")
    match expected["rule"]:
        case "none":
            assert answers == {""}
        case "any":
            assert all(answers)
        case rule:
            assert answers <= {*rule.split(", ")}


FIRST = "right_first_lane_where_what_exec_was_is_gone"
KILLS = "right_given_text_kills_before_the_next_block"
OF_ANOTHER = {
    "a mask of other threads": (FIRST, "lanes_first_lane_beside_another_mask", ("", ""), "relation"),
    "threads that a branch has lost": (
        FIRST, "lanes_first_lane_where_the_branch_lost_threads", ("steps 2=\n", "steps 3=\n"), "relation",
    ),
    "a slot where a dead register is live in the next block": (
        KILLS, "memory_save_before_the_next_block_where_given_text_kills", ("2- 5=", "2- 1= 2+ 4="), "value",
    ),
    "what the next block does not declare": (
        KILLS, "registers_not_live_in_where_given_text_kills", ("", ""), "value",
    ),
}  # fmt: skip
"""A right case whose certificate is shown for a wrong one, a change in it, and the rule that it breaks then."""


@pytest.mark.parametrize("name", OF_ANOTHER)
def test_each_checker_refuses_what_is_claimed_of_another_pair(name: str, tmp_path: Path) -> None:
    right, wrong, (old, new), rule = OF_ANOTHER[name]
    given, before, after = (
        (CASES / f"{case}.{side}.mir").read_text()
        for case, side in ((right, "before"), (wrong, "before"), (wrong, "after"))
    )
    of_right = (CASES / f"{right}.after.mir").read_text()
    certification = certify_texts(given, of_right, "k" if right == FIRST else "f", "gfx942")
    assert certification.accepted
    assert old in certification.text
    forged = certification.text.replace(old, new)
    answers = [rule_of_first(before, after, forged, "gfx942")]
    if builds_the_second_checker():
        answers.append(rule_of_second(before, after, forged, "gfx942", tmp_path))
    assert set(answers) == {rule}
