"""One server of a test process for all tests that cost it no more than a worker, and a problem to ask it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from builders import problem_of_text
from service_support import MIB, Client, Served, check_statuses, connected, serving_terms
from support import pre_ra

from verilocc_mlir.problem.model import AllocationProblem


@pytest.fixture(scope="session")
def noted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the allocators of ``served`` write."""
    return tmp_path_factory.mktemp("notes")


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory, noted: Path) -> Iterator[Served]:
    """One worker, nobody waits, messages of 8 MiB, 8 s for a call without a deadline. Whatever it refused to whatever
    test, the contract has the status.
    """
    with serving_terms(
        f"unix:{tmp_path_factory.mktemp('served')}/socket",
        limits={
            "workers": 1, "max_waiting": 1, "memory_mib": 700, "max_request_bytes": 8 * MIB, "default_seconds": 8.0,
        },
        http="127.0.0.1:0",
        metrics="127.0.0.1:0",
        environment={"VERILOCC_TEST_DIRECTORY": str(noted)},
    ) as found:  # fmt: skip
        yield found
        check_statuses(found)


@pytest.fixture(scope="module")
def client(served: Served) -> Iterator[Client]:
    """Of ``served``; no channel is left open for tests of other things, which may fork."""
    with connected(served.address) as found:
        yield found


@pytest.fixture
def notes(noted: Path) -> Path:
    """The directory of ``noted``, empty."""
    for path in noted.iterdir():
        path.unlink()
    return noted


@pytest.fixture
def no_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VERILOCC_TOKEN", raising=False)


@pytest.fixture(scope="session")
def problem(demo_kernels: Path) -> AllocationProblem:
    """The scalar registers of an attention kernel."""
    return problem_of_text(pre_ra(demo_kernels / "attn_d64.gfx942.opt.ll"), "gfx942", "sgpr")
