"""The second checker's own tests, and that it is there where it can be built."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from checker_support import needs_both
from support import REPOSITORY

from smt_verifier.certificate.second import second_program

pytestmark = needs_both


def test_where_cargo_is_the_program_is_built() -> None:
    assert second_program() is not None


def test_its_own_tests_pass(tmp_path: Path) -> None:
    manifest = REPOSITORY / "smt_verifier" / "second" / "Cargo.toml"
    command = ["cargo", "test", "--offline", "--locked", "--quiet", "--manifest-path", str(manifest)]
    environment = {**os.environ, "CARGO_TARGET_DIR": str(tmp_path)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
