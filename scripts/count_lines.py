#!/usr/bin/env python3
"""Lines of product code by package at some commits: no blank ones, comments, docstrings or generated modules."""

from __future__ import annotations

import io
import subprocess
import sys
import tarfile
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from trusted_base import lines_of_code  # noqa: E402

PACKAGES = ("verilocc_mlir", "smt_verifier", "model")


def by_package(commit: str) -> Counter[str]:
    archive = subprocess.run(["git", "archive", commit, *PACKAGES], cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout
    counts: Counter[str] = Counter()
    with TemporaryDirectory() as directory, tarfile.open(fileobj=io.BytesIO(archive)) as files:
        files.extractall(directory, [file for file in files if file.name.endswith(".py")], filter="data")
        for path in Path(directory).rglob("*.py"):
            parts = path.relative_to(directory).parts
            counts["/".join(parts[: min(2, len(parts) - 1)])] += 0 if "_pb2" in path.name else lines_of_code(path)
    return counts


if __name__ == "__main__":
    columns = [by_package(commit) for commit in sys.argv[1:]]
    for package in sorted(set().union(*columns)):
        print(f"{package:30}", *(f"{column[package]:7}" for column in columns))
    print(f"{'all':30}", *(f"{column.total():7}" for column in columns))
