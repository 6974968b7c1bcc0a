"""Fixtures of all tests; those of one package are in its own conftest.py.

Kernels: ``$VERILOCC_KERNELS``, else ``../shared/kernels``, else the ten of examples/kernels.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Generator, Iterator
from importlib import import_module
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from typing import Any, NoReturn

import pytest
from llvm_support import Asked
from support import DEMO_KERNELS, kernel_directory, llc_at_hand

from verilocc_mlir.errors import ToolchainError
from verilocc_mlir.pipeline.settings import VERIFY_VARIABLE
from verilocc_mlir.toolchain import staged

os.environ.setdefault("OMP_NUM_THREADS", "1")
"""Read by NumPy and Torch as they load, in what tests start too: each core has a process of tests, and threads that
wait for one another cost more than they give on matrices of this size.
"""

collect_ignore_glob = [] if find_spec("transformers") and find_spec("peft") else ["model/*"]
"""The model's tests need its extra."""


_NUMBERS = count()
TOGETHER = ("tests/ray_cluster", "tests/service", "tests/target")
"""Packages whose tests share what takes long: a cluster, a server, the tables of LLVM."""
WITH_TORCH = (
    "tests/hooks/test_torch", "tests/hooks/test_triton", "tests/measure/test_triton", "tests/model",
    "tests/pipeline/test_options", "tests/pipeline/test_store",
)  # fmt: skip
"""Tests that load Torch or the language model, which takes seconds, or share one that is trained: one process does."""


def pytest_collection() -> None:
    """What is loaded for the tests stays: to look at it a dozen times takes the collector a quarter of the CPU."""
    gc.disable()


def pytest_collection_finish() -> None:
    """The collector need not look again at what is loaded by now, Torch and all tests, and seldom at the rest."""
    gc.collect()
    gc.freeze()
    gc.enable()
    gc.set_threshold(10_000, 20, 100)


def pytest_unconfigure() -> None:
    """Libraries that look for leaks at the end find none."""
    gc.unfreeze()


def _needs_llc(error: ToolchainError) -> NoReturn:
    if llc_at_hand() or not error.what.startswith("no suitable llc found"):
        raise error
    pytest.skip("no llc 22 at hand: 'make llvm' installs it")


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call() -> Generator[None, object, object]:
    """Without an llc, a test that asks for one says so; every other failure stays one."""
    try:
        return (yield)
    except ToolchainError as error:
        _needs_llc(error)


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup() -> Generator[None, object, object]:
    """As ``pytest_pyfunc_call``, for what a fixture compiles."""
    try:
        return (yield)
    except ToolchainError as error:
        _needs_llc(error)


@pytest.fixture(scope="session", autouse=True)
def _cache_of_the_session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Fixtures that live longer than a test keep what they compile here."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        patch.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.mktemp("config")))
        yield


@pytest.fixture(scope="session", autouse=True)
def _llvm_is_asked_once(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """See ``llvm_support``."""
    with pytest.MonkeyPatch.context() as patch:
        if os.environ.get(VERIFY_VARIABLE) != "1":
            base = tmp_path_factory.getbasetemp()
            shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
            patch.setattr(staged, "run_tool", Asked(shared / "llvm"))
        yield


@pytest.fixture(autouse=True)
def _cache_of_its_own(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test takes from the user's cache, or from another test's."""
    # Made by who needs it: to make one for each of thousands of tests takes time.
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.getbasetemp() / "caches" / str(next(_NUMBERS))))


@pytest.hookimpl(tryfirst=True, optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """What a fixture makes for a module, or for one of ``TOGETHER``, is made once: one process runs all its tests.

    pytest-xdist 3.8 finds the groups of its own ``loadgroup`` in a field that pytest 9.2 no longer reads.
    """
    scheduling = import_module("xdist.scheduler").LoadScopeScheduling(config, log)
    scheduling._split_scope = scope_of
    return scheduling


def scope_of(test: str) -> str:
    """The package, the file or ``WITH_TORCH``, whose tests one process runs."""
    file = test.partition("::")[0]
    if file.startswith(WITH_TORCH):
        return "with Torch"
    return next((package for package in TOGETHER if file.startswith(f"{package}/")), file)


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
