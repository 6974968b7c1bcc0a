"""The trusted base is what docs/trust/base.md says, and reaches nothing that searches or explains."""

from __future__ import annotations

from trusted_base import ROOT, checkers, table, trusted_modules

PAGE = ROOT / "docs" / "trust" / "base.md"


def test_the_page_lists_what_the_core_imports() -> None:
    """Where this fails, `python tests/trusted_base.py` prints the table to put there."""
    assert table() in PAGE.read_text()


def test_the_page_lists_the_checkers() -> None:
    """Where this fails, `python tests/trusted_base.py` prints the table to put there."""
    assert checkers() in PAGE.read_text()


def test_nothing_that_searches_or_explains_is_trusted() -> None:
    outside = [name for name in trusted_modules() if name.startswith("smt_verifier/audit/") and "/core/" not in name]
    # The package's own __init__ is imported with any of its modules; the core takes nothing from it.
    assert outside == []


def test_readme_and_audit_page_send_to_the_page() -> None:
    for page, link in (("README.md", "(docs/trust/base.md)"), ("docs/trust/audit.md", "(base.md)")):
        assert link in (ROOT / page).read_text()
