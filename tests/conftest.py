"""Shared fixtures. Kernels: ``$VERILOCC_KERNELS``, else ``../shared/kernels``, else the ten of examples/kernels."""

from __future__ import annotations

from pathlib import Path

import pytest
from support import kernel_directory


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
