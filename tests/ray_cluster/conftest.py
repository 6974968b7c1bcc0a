"""A cluster for a module: it takes seconds, and is too large to be there while other things are tested."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from ray_support import DIRECTORY

from verilocc_mlir.ray_cluster import Cluster, connected, load_ray


@pytest.fixture(scope="module")
def hold(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Directory of ``ray_support.Waiting``; the processes of the cluster know it."""
    directory = tmp_path_factory.mktemp("hold")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(DIRECTORY, str(directory))
        yield directory


@pytest.fixture(scope="module")
def cluster(hold: Path) -> Iterator[Cluster]:
    with connected("local", 2) as found:
        yield found
    assert not load_ray().is_initialized()
