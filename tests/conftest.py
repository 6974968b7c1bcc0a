"""Shared fixtures. Kernels: ``$VERILOCC_KERNELS``, else ``../shared/kernels``, else the ten of examples/kernels."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from builders import problem_of_text
from support import DEMO_KERNELS, kernel_directory, pre_ra

from verilocc_mlir.pipeline.settings import VERIFY_VARIABLE

if TYPE_CHECKING:
    from service_support import Client, Served

    from verilocc_mlir.problem.model import AllocationProblem
    from verilocc_mlir.ray_cluster import Cluster

collect_ignore_glob = [] if find_spec("transformers") and find_spec("peft") else ["model/*"]
"""The model's tests need its extra."""


_NUMBERS = count()


@pytest.fixture(scope="session", autouse=True)
def _cache_of_the_session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Fixtures that live longer than a test keep what they compile here."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        # llc's machine verifier is a second opinion on everything that is compiled here.
        patch.setenv(VERIFY_VARIABLE, "1")
        yield


@pytest.fixture(autouse=True)
def _cache_of_its_own(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test takes from the user's cache, or from another test's."""
    # Made by who needs it: to make one for each of thousands of tests takes time.
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.getbasetemp() / "caches" / str(next(_NUMBERS))))


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
    return DEMO_KERNELS


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small base that was trained from scratch; the directory of its run."""
    from training_support import train_small

    directory = tmp_path_factory.mktemp("trained")
    train_small(directory / "data", directory / "run")
    return directory / "run"


# One server of a test process for all tests of the service that cost it no more than a worker.


@pytest.fixture(scope="session")
def noted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the allocators of ``served`` write."""
    return tmp_path_factory.mktemp("notes")


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory, noted: Path) -> Iterator[Served]:
    """One worker, nobody waits, messages of 8 MiB, 8 s for a call without a deadline. Whatever it refused to whatever
    test, the contract has the status.
    """
    from service_support import MIB, check_statuses, serving_terms

    with serving_terms(
        f"unix:{tmp_path_factory.mktemp('served')}/socket",
        limits={
            "workers": 1, "max_waiting": 1, "memory_mib": 700, "max_request_bytes": 8 * MIB, "default_seconds": 8.0,
        },
        metrics="127.0.0.1:0",
        environment={"VERILOCC_TEST_DIRECTORY": str(noted)},
    ) as found:  # fmt: skip
        yield found
        check_statuses(found)


@pytest.fixture(scope="module")
def client(served: Served) -> Iterator[Client]:
    """Of ``served``; no channel is left open for tests of other things, which may fork."""
    from service_support import connected

    with connected(served.address) as found:
        yield found


@pytest.fixture
def notes(noted: Path) -> Path:
    """The directory of ``noted``, empty."""
    for path in noted.iterdir():
        path.unlink()
    return noted


# For the client.


@pytest.fixture
def no_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VERILOCC_TOKEN", raising=False)


@pytest.fixture(scope="session")
def problem(demo_kernels: Path) -> AllocationProblem:
    """The scalar registers of an attention kernel."""
    return problem_of_text(pre_ra(demo_kernels / "attn_d64.gfx942.opt.ll"), "gfx942", "sgpr")


# For Ray. Of a module, though it takes seconds: a cluster is too large to be there while other things are tested.


@pytest.fixture(scope="module")
def hold(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Directory of ``ray_support.Waiting``; the processes of the cluster know it."""
    from ray_support import DIRECTORY

    directory = tmp_path_factory.mktemp("hold")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(DIRECTORY, str(directory))
        yield directory


@pytest.fixture(scope="module")
def cluster(hold: Path) -> Iterator[Cluster]:
    from verilocc_mlir.ray_cluster import connected, load_ray

    with connected("local", 2) as found:
        yield found
    assert not load_ray().is_initialized()
