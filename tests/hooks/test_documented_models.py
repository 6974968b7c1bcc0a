"""Every model of examples/models.py by the command line, as users run it: imported, compiled, every kernel proved."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from support import REPOSITORY

MODELS = re.findall(r"^@model\ndef (\w+)\(", (REPOSITORY / "examples" / "models.py").read_text(), re.MULTILINE)


def test_all_documented_models_are_there() -> None:
    assert len(MODELS) == 15


@pytest.mark.long
@pytest.mark.parametrize("name", MODELS)
def test_the_command_compiles_it(name: str, tmp_path: Path) -> None:
    """In a process of its own: what this project does there must not disturb the import of transformers."""
    for package in ("torch", "transformers", "iree.compiler"):
        pytest.importorskip(package, reason=f"{package} is not installed")
    report = tmp_path / "report.json"
    argv = [f"examples/models.py:{name}", "--target=gfx942", "-o", tmp_path / "model.vmfb", f"--report={report}", "-q"]
    command = [sys.executable, "-m", "verilocc_mlir.cli.main", "torch", *map(str, argv)]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    counts = json.loads(report.read_text())["counts"]
    assert counts["proved"] == counts["kernels"] > 0
