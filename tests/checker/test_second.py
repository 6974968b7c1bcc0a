"""The second checker's own tests, and that it is there where it can be built."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from checker_support import builds_the_second_checker
from support import REPOSITORY

from smt_verifier.certificate.second import second_program

pytestmark = pytest.mark.skipif(not builds_the_second_checker(), reason="no cargo to build it")


def test_where_cargo_is_the_program_is_built() -> None:
    assert second_program() is not None


def test_its_own_tests_pass(tmp_path: Path) -> None:
    manifest = REPOSITORY / "smt_verifier" / "second" / "Cargo.toml"
    command = ["cargo", "test", "--offline", "--locked", "--quiet", "--manifest-path", str(manifest)]
    environment = {**os.environ, "CARGO_TARGET_DIR": str(tmp_path)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
