"""Shared by the tests of the corpus: its cells, and tasks that misbehave."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import time
from pathlib import Path

import pytest

from verilocc_mlir.errors import InputError
from verilocc_model.corpus.sources import Cell
from verilocc_model.corpus.stream import cells

_PACKAGES = {"mlir": "torch_mlir", "triton": "triton", "iree": "iree.compiler"}


def needs(source: str) -> None:
    try:
        found = importlib.util.find_spec(_PACKAGES[source])
    except ModuleNotFoundError:
        found = None
    if found is None:
        pytest.skip(f"{_PACKAGES[source]} is not installed")


def first_cell(source: str, family: str, target: str, seed: int = 3) -> Cell:
    return next(cells(seed, targets=[target], sources=[source], families=[family]))


def task(what: str) -> str:
    if what == "crash":
        os._exit(7)
    if what == "hang":
        time.sleep(600)
    if what == "bad":
        raise InputError("not good", where="here")
    return what.upper()


def hold_once(what: str) -> str:
    """For a directory: the first process that has it starts another, says so in ``pids``, and stays."""
    pids = Path(what) / "pids"
    if Path(what).is_dir() and not pids.exists():
        tool = subprocess.Popen(["sleep", "600"], start_new_session=True)
        pids.write_text(f"{os.getpid()} {tool.pid}\n")
        time.sleep(600)
    return what
