"""Both checkers follow docs/trust/spec.md: each of its sections is named by the code of each, and each rule by it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from support import REPOSITORY

SPECIFICATION = (REPOSITORY / "docs" / "trust" / "spec.md").read_text()
SECTIONS = sorted(set(re.findall(r"^\*\*(\d+\.\d+)", SPECIFICATION, re.M)))
PYTHON = REPOSITORY / "smt_verifier" / "checker"
RUST = REPOSITORY / "smt_verifier" / "second" / "src"


def _code(directory: Path, suffix: str) -> str:
    return "\n".join(path.read_text() for path in sorted(directory.glob(f"*{suffix}")))


@pytest.mark.parametrize(("directory", "suffix"), [(PYTHON, ".py"), (RUST, ".rs")], ids=["python", "rust"])
def test_every_section_is_named_where_it_is_decided(directory: Path, suffix: str) -> None:
    named = set(re.findall(r"(?<![\d.])\d+\.\d+(?![\d.]*\d)", _code(directory, suffix)))
    assert [section for section in SECTIONS if section not in named] == []


def test_every_rule_that_refuses_is_on_the_page() -> None:
    rules = set(re.findall(r"Refused\(\s*\"([a-z-]+)\"", _code(PYTHON, ".py")))
    assert rules
    assert [rule for rule in sorted(rules) if f"`{rule}`" not in SPECIFICATION] == []


def test_the_page_names_no_section_twice() -> None:
    headings = re.findall(r"^\*\*(\d+\.\d+)", SPECIFICATION, re.M)
    assert len(headings) == len(set(headings))
