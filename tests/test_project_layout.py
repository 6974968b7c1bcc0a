"""The project itself: import arrows, pins, bootstrap messages, lean start-up."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parent.parent


def lint_imports(directory: Path) -> subprocess.CompletedProcess[str]:
    tool = Path(sys.executable).with_name("lint-imports")
    if not tool.exists():
        pytest.skip("import-linter is not installed: make test installs it")
    return subprocess.run(
        [str(tool), "--no-cache", "--config", "pyproject.toml"],
        cwd=directory,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": f"{directory}{os.pathsep}{directory / 'model'}"},
    )


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The packages and their configuration, to be broken on purpose."""
    for package in ("verilocc_mlir", "smt_verifier"):
        shutil.copytree(REPOSITORY / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__"))
    ignore = shutil.ignore_patterns("__pycache__")
    shutil.copytree(REPOSITORY / "model" / "verilocc_model", tmp_path / "model" / "verilocc_model", ignore=ignore)
    shutil.copy(REPOSITORY / "pyproject.toml", tmp_path)
    return tmp_path


def test_import_arrows_hold() -> None:
    done = lint_imports(REPOSITORY)
    assert done.returncode == 0, done.stdout[-3000:]


@pytest.mark.parametrize(
    ("module", "line", "contract"),
    [
        ("smt_verifier/outcome.py", "import verilocc_mlir.analysis", "shares nothing with what it verifies"),
        ("smt_verifier/outcome.py", "import z3", "z3 is loaded by smt_verifier.smt alone"),
        ("smt_verifier/audit/core/check.py", "import smt_verifier.audit.explain", "imports nothing that does not"),
        ("verilocc_mlir/mir/model.py", "import verilocc_mlir.target", "mir imports errors only"),
        ("verilocc_mlir/problem/model.py", "import verilocc_mlir.mir", "problem.model is plain data"),
        ("verilocc_mlir/pipeline/settings.py", "import verilocc_mlir.cli", "pipeline does not know the command line"),
        ("verilocc_mlir/pipeline/recording.py", "import verilocc_mlir.report.page.html", "not how it is drawn"),
        ("verilocc_mlir/report/model.py", "import verilocc_mlir.hooks", "nothing but the command line knows them"),
        ("verilocc_mlir/hooks/vmfb.py", "import verilocc_mlir.cli", "hooks do not know the command line"),
        ("verilocc_mlir/hooks/vmfb.py", "import torch", "loaded when they are first needed"),
        ("verilocc_mlir/cost/model.py", "import verilocc_mlir.toolchain.run", "only cost.read drives tools"),
        ("verilocc_mlir/cost/flow.py", "import verilocc_mlir.pipeline", "cost is a model of text"),
        ("verilocc_mlir/spilling/plan.py", "import verilocc_mlir.allocators", "spilling knows the function"),
        ("verilocc_mlir/banks/mfma.py", "import verilocc_mlir.analysis.lanes", "banks imports mir and target only"),
        ("verilocc_mlir/pipeline/batch/run.py", "import ray", "Ray is loaded by the deployment"),
        ("model/verilocc_model/price.py", "import torch", "encoding and decoding need neither torch"),
        ("verilocc_mlir/pipeline/phase.py", "import verilocc_model", "nothing of the compiler but its command line"),
        ("model/verilocc_model/corpus/cells.py", "import verilocc_mlir.cli", "the corpus loads front ends"),
        ("verilocc_mlir/allocators/exact/solver.py", "import ortools", "OR-Tools is loaded by allocators.exact"),
        ("verilocc_mlir/allocators/search.py", "import verilocc_mlir.allocators.exact", "loaded by name only"),
    ],
)
def test_a_broken_arrow_is_caught(copy: Path, module: str, line: str, contract: str) -> None:
    path = copy / module
    path.write_text(path.read_text() + f"\n{line}\n")
    done = lint_imports(copy)
    assert done.returncode != 0
    assert re.search(rf"{re.escape(contract)}.* BROKEN", done.stdout), done.stdout[-3000:]


def test_only_the_solver_package_loads_z3() -> None:
    loaders = [
        path.relative_to(REPOSITORY)
        for package in ("verilocc_mlir", "smt_verifier")
        for path in (REPOSITORY / package).rglob("*.py")
        if re.search(r"""^\s*(import|from) z3|import_module\(.z3""", path.read_text(), re.MULTILINE)
    ]
    assert loaders
    assert {path.parent for path in loaders} == {Path("smt_verifier/smt")}


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
    assert {path: count for path, count in times.items() if count} == {"verilocc_mlir/mir/stages.py": 1}


def test_facts_of_gpus_stand_in_target_alone() -> None:
    """Elsewhere code asks a target for a named fact. Layouts of descriptors have the names of their first GPUs."""
    named: dict[str, set[str]] = {}
    for package in ("verilocc_mlir", "smt_verifier"):
        for path in sorted((REPOSITORY / package).rglob("*.py")):
            if path.parent.name == "target":
                continue
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Constant) and re.fullmatch(r"gfx\d\w+(-generic)?", str(node.value)):
                    named.setdefault(path.name, set()).add(str(node.value))
    assert named.pop("descriptor.py") == {"gfx90a", "gfx10", "gfx11", "gfx12", "gfx125"}
    assert named.pop("mlir_target.py") == {"gfx900"}  # what MLIR takes where none is named
    assert named.pop("semantics.py") == {"gfx90a"}  # any target with AGPRs: the tables ask for one
    assert not named
