"""A sample of the campaign by table (benchmarks/checker_campaign.py): every part, every column of a few rows."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from campaign.groups import groups
from campaign.judge import Judge
from campaign.replacements import SPECIALS, mutants
from campaign.shapes import Skipped, all_shapes, opcodes_by_shape, shaped
from campaign.subject import PROCESSORS
from campaign.units import PARTS, Row, run
from support import REPOSITORY, few

ROWS = {"operands": 2, "moves": 2, "header": 6, "certificate": 1}
"""Of each part, so many rows."""


@pytest.fixture(scope="module")
def judge() -> Judge:
    return Judge()


def _rows(part: str, count: int) -> list[str]:
    names = PARTS[part][0]()
    return names[:: max(1, len(names) // count)][:count]


@pytest.mark.parametrize(("times", "most"), few([(1, 8)], [(1, 8), (10, 50)]))
@pytest.mark.parametrize("part", ROWS)
def test_a_mutant_is_refused_by_each_checker_or_changes_nothing(part: str, times: int, most: int, judge: Judge) -> None:
    rows = [run(part, name, 0, judge, most=most, seed=1) for name in _rows(part, ROWS[part] * times)]
    found = [row for row in rows if not row.skipped]
    assert len(found) > len(rows) // 2, [row.skipped for row in rows]
    for row in found:
        assert not row.faults, row.faults[0]
        assert all(cell[0] for cell in row.cells.values())
    assert _sum(found, 1) > _sum(found, 2), "most mutants are wrong"


def _sum(rows: list[Row], which: int) -> int:
    return sum(cell[which] for row in rows for cell in row.cells.values())


def test_equivalent_changes_are_accepted(judge: Judge) -> None:
    """The judge can tell: what only says the same again is no fault, and is mostly accepted."""
    found = shaped(next(n for n, names in opcodes_by_shape().items() if "V_ADD_U32_e64" in names), "gfx942")
    judge.take(found.subject)
    chosen = [m for m in mutants(found) if m.column in ("use: flag renamable", "added: implicit-def of a free one")]
    answers = list(judge.ask(chosen))
    assert len(answers) >= 3
    assert all(answer.accepts("python") for answer in answers)


def test_shapes_are_all_in_a_group() -> None:
    assert sorted(shape for group in groups() for shape in group) == all_shapes()
    assert len(groups()) > 500


def test_a_shape_without_a_subject_says_why() -> None:
    reasons: set[str] = set()
    for group in groups()[::40]:
        try:
            shaped(group[0], PROCESSORS[0])
        except Skipped as error:
            reasons.add(str(error))
    assert all(reasons)


def test_special_registers_stand_once() -> None:
    assert len(SPECIALS) == len(set(SPECIALS))


@pytest.mark.long
def test_the_campaign_goes_on_where_it_stopped(tmp_path: Path) -> None:
    """The same command judges no row a second time, and writes the same result."""
    out = tmp_path / "result.json"
    program = [sys.executable, str(REPOSITORY / "benchmarks" / "checker_campaign.py"), "--quiet"]
    options = ["--count=60", "--rows=1", "--parts=header", "--scratch", str(tmp_path), "--out", str(out)]
    results: list[dict[str, object]] = []
    for _ in range(2):
        subprocess.run([*program, *options], check=True, capture_output=True, env=os.environ, timeout=600)
        results.append(json.loads(out.read_text()))
    assert results[0] == results[1]
    assert results[0]["empty cells of the rows reached"] == 0
    assert not results[0]["faults"]
