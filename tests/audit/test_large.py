"""Functions of so many instructions that nothing is searched for in them in Python."""

from __future__ import annotations

import pytest
from checker_support import needs_both
from support import REPOSITORY

from smt_verifier.audit import driver
from smt_verifier.outcome import Outcome
from verilocc_mlir.mir.parser import parse_mir
from verilocc_mlir.target.targets import target

NAME = "places_exec_copy_early"


@needs_both
def test_what_is_wrong_is_said_by_the_checkers_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wrong pair is refuted by the search; of a large function the audit says which rule no certificate meets."""
    before, after = (
        parse_mir((REPOSITORY / "tests" / "cases" / f"{NAME}.{side}.mir").read_text()) for side in ("before", "after")
    )
    pair = before, before.functions[0], after.functions[0], target("gfx942")
    assert driver.audit_function(*pair, after=after).outcome is Outcome.REFUTED
    monkeypatch.setattr(driver, "LARGE", 0)
    audit = driver.audit_function(*pair, after=after)
    (finding,) = audit.findings
    assert (audit.outcome, finding.rule) == (Outcome.UNKNOWN, "certificate")
    assert "not searched for" in finding.message
    assert driver.audit_function(*pair, after=after, third=True).outcome is Outcome.REFUTED
