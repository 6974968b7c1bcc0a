"""Shared fixtures. Kernels: ``$VERILOCC_KERNELS``, else ``../shared/kernels``, else the ten of examples/kernels."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest
from support import kernel_directory

collect_ignore_glob = [] if find_spec("transformers") and find_spec("peft") else ["test_model_*"]
"""The model's tests need its extra."""


@pytest.fixture(scope="session")
def kernels() -> Path:
    """Directory of the kernels at hand; skips where there are none."""
    directory = kernel_directory()
    if not any(directory.glob("*.ll")):
        pytest.skip("no kernels: set VERILOCC_KERNELS to a directory of .ll files")
    return directory


@pytest.fixture(scope="session")
def demo_kernels() -> Path:
    """The kernels that come with the repository."""
    return Path(__file__).resolve().parent.parent / "examples" / "kernels"
