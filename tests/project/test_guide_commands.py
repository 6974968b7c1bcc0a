"""Commands of README and the guide: every option that a page names is one, and what can be run here is, as written."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from functools import lru_cache
from pathlib import Path

import pytest
from click.testing import CliRunner
from support import REPOSITORY, llc

from verilocc_mlir.cli.main import cli

PAGES = (REPOSITORY / "README.md", *sorted((REPOSITORY / "docs" / "guide").glob("*.md")))
_BLOCK = re.compile(r"^```\n(.*?)^```", re.M | re.S)
_COMMAND = re.compile(r"^(?:\$ )?verilocc ((?:train |corpus )?[a-z][a-z-]*)(.*)$", re.M)
_OPTION = re.compile(r"(?<![\w-])--[a-z][\w-]*")


@lru_cache(maxsize=None)
def _help(command: str) -> str:
    done = CliRunner().invoke(cli, [*command.split(), "--help"], env={"COLUMNS": "200", "TERM": "dumb"})
    assert done.exit_code == 0, (command, done.output)
    return done.output


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_option_of_a_command_is_one(page: Path) -> None:
    for block in _BLOCK.findall(page.read_text()):
        for command, rest in _COMMAND.findall(block):
            named = rest.split(" # ")[0].split(" -- ")[0]
            for option in _OPTION.findall(named):
                assert option in _help(command), f"{page.name}: verilocc {command} has no {option}"


def _transcripts() -> list[tuple[Path, list[tuple[str, list[str]]]]]:
    """Blocks whose commands name files of this repository alone, or what an earlier one of the block made."""
    found: list[tuple[Path, list[tuple[str, list[str]]]]] = []
    for page in PAGES:
        for block in _BLOCK.findall(page.read_text()):
            steps: list[tuple[str, list[str]]] = []
            for line in block.splitlines():
                if line.startswith("$ "):
                    steps.append((line[2:], []))
                elif steps:
                    steps[-1][1].append(line)
            inputs = re.findall(r"(?:examples|tests)/\S+", steps[0][0]) if steps else []
            if inputs and all((REPOSITORY / name.rstrip("',")).exists() for name in inputs):
                found.append((page, steps))
    return found


def _shape(line: str) -> str:
    """A line without its figures and without the padding of tables: times and costs differ from machine to machine."""
    return re.sub(r"[\s─│]+|[\d,.]+", "", line)


@pytest.mark.long
@pytest.mark.parametrize(
    ("page", "steps"), [pytest.param(*row, id=f"{row[0].stem}-{n}") for n, row in enumerate(_transcripts())]
)
def test_a_transcript_is_what_is_printed(page: Path, steps: list[tuple[str, list[str]]], tmp_path: Path) -> None:
    llc()
    for name in ("examples", "tests"):
        (tmp_path / name).symlink_to(REPOSITORY / name)
    (tmp_path / "bin").mkdir()
    tool = shutil.which("verilocc", path=str(Path(sys.executable).parent)) or shutil.which("verilocc")
    assert tool is not None
    (tmp_path / "bin" / "verilocc").symlink_to(tool)
    environment = {**os.environ, "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}", "COLUMNS": "116", "TERM": "dumb"}
    code = 0
    for command, expected in steps:
        if command == "echo $?":
            assert [str(code)] == [line for line in expected if line], command
            continue
        done = subprocess.run(
            ["bash", "-c", command], capture_output=True, text=True, check=False, cwd=tmp_path, env=environment
        )
        code, said = done.returncode, {_shape(line) for line in (done.stdout + done.stderr).splitlines()}
        whole = "".join(_shape(line) for line in (done.stdout + done.stderr).splitlines())
        timed = False
        for line in expected:
            if timed or line.startswith("time:"):
                timed = not line.endswith(")")
                continue  # The steps come by their times, in one line or two.
            # A page may shorten a line, or leave lines out.
            parts = [part for part in map(_shape, line.split("…")) if part]
            assert all(p in said or p in whole for p in parts), f"{page.name}: {command}: not printed: {line}"
