"""The first example of README.md, run: it shows what is printed, but for times."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from support import REPOSITORY, llc

from smt_verifier.certificate.second import second_program
from verilocc_mlir.cli.main import run


def without_times(text: str) -> list[str]:
    """Its lines without blanks, rules and times; the version of LLVM is the machine's."""
    lines = [line for line in text.splitlines() if line.strip(" -") and not line.startswith(("time: ", "0.", "finish"))]
    return [re.sub(r" +\d+\.\d\d *$", "", re.sub(r", Debian LLVM.*", "", line)).rstrip() for line in lines]


def test_its_figures_are_those_of_today(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    llc()
    readme = (REPOSITORY / "README.md").read_text()
    command, shown = re.findall(r"^\$ verilocc (compile .*)\n((?:.*\n)*?)```", readme, re.MULTILINE)[0]
    monkeypatch.chdir(REPOSITORY)
    output = tmp_path / "attn.hsaco"
    assert run(command.replace("attn.hsaco", str(output)).split()) == 0
    printed = capsys.readouterr().out.replace(str(output), "attn.hsaco")
    printed = re.sub(r"time: [^)]*\)\n", "", printed)
    if second_program() is None:  # Then the search is asked too, and has obligations of its own.
        printed, shown = (re.sub(r"(proved) +\d+ ", r"\1 ", text) for text in (printed, shown))
    assert without_times(printed) == without_times(shown)
