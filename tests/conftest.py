"""Fixtures of all tests; those of one package are in its own conftest.py.

Kernels: ``$VERILOCC_KERNELS``, else ``../shared/kernels``, else the ten of examples/kernels.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from itertools import count
from pathlib import Path

import pytest
from support import DEMO_KERNELS, kernel_directory

from verilocc_mlir.pipeline.settings import VERIFY_VARIABLE

collect_ignore_glob = [] if find_spec("transformers") and find_spec("peft") else ["model/*"]
"""The model's tests need its extra."""


_NUMBERS = count()


@pytest.fixture(scope="session", autouse=True)
def _cache_of_the_session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Fixtures that live longer than a test keep what they compile here."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(autouse=True)
def _cache_of_its_own(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test takes from the user's cache, or from another test's."""
    # Made by who needs it: to make one for each of thousands of tests takes time.
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.getbasetemp() / "caches" / str(next(_NUMBERS))))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What a fixture makes for a module or a package is made once: one process runs all tests that use it."""
    for item in items:
        if (group := _shared(item)) and item.get_closest_marker("xdist_group") is None:
            item.add_marker(pytest.mark.xdist_group(group))


def _shared(item: pytest.Item) -> str:
    """The package or else the module whose fixtures a test shares with others."""
    known = item._fixtureinfo.name2fixturedefs if isinstance(item, pytest.Function) else {}
    fixtures = [definitions[-1] for definitions in known.values() if definitions]
    packages = [f.baseid for f in fixtures if f.scope == "session" and f.baseid.count("/") == 1]
    modules = [item.nodeid.partition("::")[0] for f in fixtures if f.scope == "module"]
    return (packages + modules + [""])[0]


@pytest.fixture
def machine_verifier(monkeypatch: pytest.MonkeyPatch) -> None:
    """llc's machine verifier as a second opinion on what the test compiles; ``make test-all`` has it for every test."""
    monkeypatch.setenv(VERIFY_VARIABLE, "1")


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
