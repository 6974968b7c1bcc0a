"""Numbers above zero on the command line: neither infinite nor no number."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from verilocc_mlir.cli.main import cli


@pytest.mark.parametrize("value", ["nan", "inf", "-inf", "0", "-1"])
@pytest.mark.parametrize("option", ["--seconds", "--solver-seconds", "--tool-seconds"])
def test_what_is_no_number_above_zero_is_bad_input(option: str, value: str) -> None:
    done = CliRunner().invoke(cli, ["compile", f"{option}={value}", "k.ll"])
    assert done.exit_code == 2
    assert f"Invalid value for '{option}'" in done.stderr
