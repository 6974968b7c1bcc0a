"""The second checker's own tests, and that it is there where it can be built."""

from __future__ import annotations

import pytest
from checker_support import needs_both, own_tests_pass
from support import long

from smt_verifier.certificate.second import second_program

pytestmark = needs_both
ALL_BUT_THE_FUZZERS = ("--lib", "--tests", "--", "--skip=nothing_panics")


def test_where_cargo_is_the_program_is_built() -> None:
    assert second_program() is not None


@pytest.mark.parametrize("options", [ALL_BUT_THE_FUZZERS, *long(())])
def test_its_own_tests_pass(options: tuple[str, ...]) -> None:
    own_tests_pass("second", *options)
