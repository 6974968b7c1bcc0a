"""The contract: buf's rules, no change that breaks a client, and a table that has every error the server makes."""

from __future__ import annotations

import ast
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from service_support import documented
from support import REPOSITORY

PROTO = REPOSITORY / "proto"
SERVICE = PROTO / "verilocc" / "v1" / "allocation_service.proto"


def run(*command: str | Path, cwd: Path = REPOSITORY) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(part) for part in command], cwd=cwd, capture_output=True, text=True, check=False)


def buf(*arguments: str | Path, cwd: Path = REPOSITORY) -> subprocess.CompletedProcess[str]:
    tool = Path(sys.executable).with_name("buf")
    if not tool.exists():
        pytest.skip("buf is not installed: make test installs it")
    return run(tool, *arguments, cwd=cwd)


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The contract, to be broken on purpose."""
    return Path(shutil.copytree(PROTO, tmp_path / "proto"))


@pytest.fixture(scope="module")
def committed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The contract as it was last committed on the main line."""
    for line in ("origin/main", "main", "HEAD"):
        found = run("git", "log", "-1", "--format=%H", line, "--", "proto/verilocc")
        if found.returncode == 0 and found.stdout.strip():
            break
    else:
        pytest.skip("no git history with the contract in it, to compare with")
    directory = tmp_path_factory.mktemp("committed")
    archive = directory / "proto.tar"
    done = run("git", "archive", f"--output={archive}", found.stdout.strip(), "proto")
    assert done.returncode == 0, done.stderr
    shutil.unpack_archive(archive, directory)
    return directory / "proto"


def breaking(contract: Path, than: Path) -> subprocess.CompletedProcess[str]:
    return buf("breaking", contract, "--against", than)


def test_lint() -> None:
    done = buf("lint", PROTO)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_field_without_comment_is_caught(copy: Path) -> None:
    path = copy / SERVICE.relative_to(PROTO)
    path.write_text(path.read_text().replace("  // Name of the text, for messages.\n", "", 1))
    done = buf("lint", copy)
    assert done.returncode != 0
    assert 'Field "name" should have a non-empty comment' in done.stdout


def test_the_contract_breaks_no_client(committed: Path) -> None:
    done = breaking(PROTO, committed)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("old", "new", "rule"),
    [
        ("  bool return_mir = 5;", "  bool return_mir = 15;", "return_mir"),
        ("  string allocator = 3;", "  bytes allocator = 3;", "type"),
        ("  rpc GetCapabilities(", "  rpc GetAbilities(", "GetCapabilities"),
        ("  int32 max_attempts = 7;\n", "  reserved 99;\n", "max_attempts"),
    ],
)
def test_a_breaking_edit_is_caught(copy: Path, old: str, new: str, rule: str) -> None:
    path = copy / SERVICE.relative_to(PROTO)
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    done = breaking(copy, PROTO)
    assert done.returncode != 0
    assert rule in done.stdout


def made() -> set[tuple[str, str]]:
    """Code and reason of every ServiceError in the service's code, found in its text."""
    found: set[tuple[str, str]] = set()
    for path in sorted((REPOSITORY / "verilocc_mlir" / "service").rglob("*.py")):
        tree = ast.parse(path.read_text())
        for node in ast.walk(tree):
            if not isinstance(node, ast.Call):
                continue
            name = getattr(node.func, "id", "")
            if name == "ServiceError" and isinstance(code := node.args[0], ast.Attribute):
                # One reason, or one of two: MALFORMED_REQUEST if … else MALFORMED_INPUT.
                found |= {(code.attr, reason) for reason in _texts(node.args[1])}
            elif name == "_refused" and path.name == "security.py":
                found |= {("UNAUTHENTICATED", reason) for reason in _texts(node.args[0])}
    return found


def _texts(node: ast.expr) -> set[str]:
    return {n.value for n in ast.walk(node) if isinstance(n, ast.Constant) and isinstance(n.value, str)}


def test_the_documentation_has_every_error_and_no_other() -> None:
    text = (REPOSITORY / "docs" / "guide" / "service.md").read_text()
    codes = {code for code, _ in made()}
    rows = [[cell.strip() for cell in line.split("|")] for line in text.splitlines() if line.startswith("| ")]
    listed = {(row[1], word.strip(",")) for row in rows if row[1] in codes for word in row[2].split()}
    assert {(code, word) for code, word in listed if word.isupper()} == made()


def test_the_table_has_every_error_and_no_other() -> None:
    reasons = made()
    assert len(reasons) >= 10
    assert reasons == {(code, reason) for code, listed in documented().items() for reason in listed}
