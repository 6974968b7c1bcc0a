"""The tests of the tools run them each time."""

from __future__ import annotations

import pytest

from verilocc_mlir.toolchain import staged
from verilocc_mlir.toolchain.run import run_tool


@pytest.fixture(autouse=True)
def _llvm_is_asked_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staged, "run_tool", run_tool)
