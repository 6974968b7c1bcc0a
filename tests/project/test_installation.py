"""What `make test` installs is there, so that no test of a front end can skip unnoticed."""

from __future__ import annotations

import platform
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from support import REPOSITORY

_FRONT_ENDS = ("torch", "torch_mlir", "iree.compiler", "iree.runtime", "triton")
_WITH_WHEELS = (*sys.version_info[:2], sys.platform, platform.machine()) == (3, 11, "linux", "x86_64")
_OF_BOOTSTRAP = Path(sys.prefix) == REPOSITORY / ".venv" and (REPOSITORY / ".venv" / ".installed-dev").exists()


@pytest.mark.skipif(not _OF_BOOTSTRAP, reason="not the virtual environment that scripts/bootstrap made")
@pytest.mark.skipif(not _WITH_WHEELS, reason="the front ends have wheels for Python 3.11 on Linux x86-64 only")
@pytest.mark.parametrize("module", _FRONT_ENDS)
def test_front_ends_are_installed_where_they_have_wheels(module: str) -> None:
    assert find_spec(module) is not None


@pytest.mark.skipif(not _OF_BOOTSTRAP, reason="not the virtual environment that scripts/bootstrap made")
@pytest.mark.parametrize("module", ["cvc5", "bitwuzla", "z3"])
def test_solvers_are_installed(module: str) -> None:
    assert find_spec(module) is not None
