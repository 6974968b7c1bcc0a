"""Exit code and result agree, whatever becomes of what else is written: 0 where all of it is there, else no result."""

from __future__ import annotations

import os
import shlex
import subprocess
from pathlib import Path

import pytest
from batch_support import CPU, VERILOCC, kernel
from support import REPOSITORY, few, llc

FULL = "cannot be written: No space left on device"


def _run(arguments: str, directory: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run it by a shell, with its redirections."""
    (directory / "k.ll").write_text(kernel(3))
    paths = os.pathsep.join((str(REPOSITORY), str(REPOSITORY / "tests")))
    return subprocess.run(
        ["bash", "-c", f"{shlex.join(VERILOCC)} {arguments}; exit ${{PIPESTATUS[0]}}"],
        cwd=directory, env={**os.environ, "PYTHONPATH": paths, **environment}, capture_output=True, text=True,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("what", "code", "error"),
    few(
        [("--report=/dev/full", 2, f"/dev/full: {FULL}"), (">&-", 0, "")],
        [
            ("--report=/dev/full", 2, f"/dev/full: {FULL}"),
            ("--html=/dev/full -q", 2, f"/dev/full: {FULL}"),
            ("-q --report=- >/dev/full", 2, f"standard output: {FULL}"),
            ("-q --report=- >&-", 2, "standard output is closed"),
            (">/dev/full", 2, "No space left on device"),
            (">&-", 0, ""),
            ("<&- >&- 2>&-", 0, ""),
            ("| true", 0, ""),
        ],
    ),
)
def test_the_result_is_there_if_the_exit_code_says_so(what: str, code: int, error: str, tmp_path: Path) -> None:
    done = _run(f"compile k.ll -mcpu={CPU} -o k.hsaco {what}", tmp_path)
    assert (done.returncode, (tmp_path / "k.hsaco").exists()) == (code, not code), done.stderr
    assert error in done.stderr
    assert "Traceback" not in done.stderr
    assert {path.name for path in tmp_path.iterdir()} <= {"k.ll", "k.hsaco"}


@pytest.mark.long
@pytest.mark.parametrize(("where", "error"), [(">/dev/full", FULL), (">&-", "is closed")])
def test_a_result_that_standard_output_does_not_take_is_an_error(where: str, error: str, tmp_path: Path) -> None:
    done = _run(f"compile k.ll -mcpu={CPU} -o - -q {where}", tmp_path)
    assert done.returncode == 2
    assert f"standard output{' ' if 'closed' in error else ': '}{error}" in done.stderr


@pytest.mark.long
def test_an_old_result_stays_where_the_new_one_is_not_written(tmp_path: Path) -> None:
    (tmp_path / "k.hsaco").write_text("before")
    assert _run(f"compile k.ll -mcpu={CPU} -o k.hsaco --report=/dev/full", tmp_path).returncode == 2
    assert (tmp_path / "k.hsaco").read_text() == "before"


@pytest.mark.long
def test_characters_that_the_terminal_does_not_have_are_written_otherwise(tmp_path: Path) -> None:
    (tmp_path / "ké.ll").write_text(kernel(3))
    done = _run(f"compile ké.ll -mcpu={CPU} -o k.hsaco", tmp_path, PYTHONIOENCODING="ascii")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("k\\xe9.ll for gfx942")
    assert (tmp_path / "k.hsaco").exists()


@pytest.mark.parametrize(
    "arguments",
    few(
        ["compile -mattr=help"],
        ["compile -mattr=help", "compile -mcpu=help", "compile-many . -mattr=help", "report --mattr=+xnack,help"],
    ),
)
def test_help_about_targets_is_llcs(arguments: str, tmp_path: Path) -> None:
    llc()
    done = _run(arguments, tmp_path)
    assert done.returncode == 0, done.stderr
    assert "Available CPUs for this target:" in done.stdout
    assert "Available features for this target:" in done.stdout
    assert "gfx942 " in done.stdout
    assert "xnack " in done.stdout
