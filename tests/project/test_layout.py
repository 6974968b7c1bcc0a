"""The project itself: pins, bootstrap messages, lean start-up."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from support import REPOSITORY, llc


def test_everything_installed_is_pinned() -> None:
    pins = {
        match[1].lower().replace("_", "-")
        for path in (REPOSITORY / "requirements").glob("*.txt")
        for line in path.read_text().splitlines()
        if (match := re.match(r"([\w.-]+)==[\w.]+", line))
    }
    project = (REPOSITORY / "pyproject.toml").read_text()
    sections = re.search(r"^dependencies = .*?^\[project.scripts\]", project, re.MULTILINE | re.DOTALL)
    assert sections
    lists = re.findall(r"^[\w-]+ = \[(.*?)\]\n", sections[0], re.MULTILINE | re.DOTALL)
    names = {name.lower() for block in lists for name in re.findall(r'"([\w-]+)', block)}
    assert len(lists) > 5
    assert names
    assert names - {"verilocc-mlir"} <= pins


@pytest.mark.parametrize("what", ["llvm"])
def test_bootstrap_says_what_is_wrong_with_a_named_llvm(tmp_path: Path, what: str) -> None:
    done = subprocess.run(
        [str(REPOSITORY / "scripts" / "bootstrap"), what],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "VERILOCC_LLVM": str(tmp_path)},
    )
    assert done.returncode == 2
    assert f"VERILOCC_LLVM={tmp_path}" in done.stderr
    assert "llc" in done.stderr


def test_bootstrap_finds_llvm_and_installs_nothing() -> None:
    llc()
    done = subprocess.run(
        [str(REPOSITORY / "scripts" / "bootstrap"), "llvm"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "bootstrap: llc: " in done.stderr
    assert "apt-get" not in done.stderr


def test_start_up_loads_neither_solver_nor_table() -> None:
    code = (
        "import sys, verilocc_mlir.cli.main as m; m.run(['--version']);"
        "print([n for n in ('z3', 'rich.table', 'elftools', 'verilocc_mlir.mir.parser') if n in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=REPOSITORY)
    assert done.stdout.splitlines()[-1] == "[]"


def test_where_llc_stops_is_spelt_once() -> None:
    flag = "-stop-before=" + "greedy"
    packages = ("verilocc_mlir", "smt_verifier", "model/verilocc_model", "scripts")
    files = [path for package in packages for path in (REPOSITORY / package).rglob("*.py")]
    times = {str(path.relative_to(REPOSITORY)): path.read_text().count(flag) for path in files}
    assert {path: count for path, count in times.items() if count} == {"verilocc_mlir/mir/model.py": 1}


def test_facts_of_gpus_stand_in_target_alone() -> None:
    """Elsewhere code asks a target for a named fact. Layouts of descriptors have the names of their first GPUs."""
    named: dict[str, set[str]] = {}
    for package in ("verilocc_mlir", "smt_verifier"):
        for path in sorted((REPOSITORY / package).rglob("*.py")):
            if path.parent.name == "target":
                continue
            text = path.read_text()
            for node in ast.walk(ast.parse(text)) if "gfx" in text else ():
                if isinstance(node, ast.Constant) and re.fullmatch(r"gfx\d\w+(-generic)?", str(node.value)):
                    named.setdefault(path.name, set()).add(str(node.value))
    assert named.pop("descriptor.py") == {"gfx90a", "gfx10", "gfx11", "gfx12", "gfx125"}
    assert named.pop("mlir_target.py") == {"gfx900"}  # what MLIR takes where none is named
    assert named.pop("semantics.py") == {"gfx90a"}  # any target with AGPRs: the tables ask for one
    assert not named
