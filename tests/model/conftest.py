"""A base that the tests of the model share."""

from __future__ import annotations

from pathlib import Path

import pytest
from training_support import train_small


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small base that was trained from scratch; the directory of its run."""
    directory = tmp_path_factory.mktemp("trained")
    train_small(directory / "data", directory / "run")
    return directory / "run"
