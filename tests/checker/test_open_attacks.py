"""Wrong pairs that both checkers still accept (docs/trust/passes.md): whoever mends one moves it to tests/cases."""

from __future__ import annotations

from pathlib import Path

import pytest

from smt_verifier.certificate.verdict import certify_texts

OPEN = Path(__file__).resolve().parent.parent / "data" / "audit" / "open"


@pytest.mark.xfail(strict=True, raises=AssertionError, reason="a false proof that is known, and open")
@pytest.mark.parametrize("before", sorted(OPEN.glob("*.before.mir")), ids=lambda path: path.name.partition(".")[0])
def test_it_is_refused(before: Path) -> None:
    text = before.read_text()
    target = text.splitlines()[0].removeprefix("# target: ")
    after = before.with_name(before.name.replace(".before.", ".after.")).read_text()
    certification = certify_texts(text, after, "f", target)
    assert not any(answer.accepted for answer in certification.answers)
