"""``verilocc compile`` and ``compile-many`` with ``--server``: options, allocators by name, and what is kept."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("grpc")

from batch_support import CPU, kernel, kernels
from client_support import DETERMINISTIC, flat, served

from smt_verifier.outcome import Outcome
from verilocc_mlir.allocators import allocator
from verilocc_mlir.cli.main import run
from verilocc_mlir.pipeline.batch.executors import LocalExecutor
from verilocc_mlir.pipeline.batch.run import BatchOptions, compile_batch, plan
from verilocc_mlir.pipeline.compile import compile_module
from verilocc_mlir.pipeline.key import Keys
from verilocc_mlir.pipeline.settings import Emit, Settings
from verilocc_mlir.problem.model import AllocationProblem, Proposal
from verilocc_mlir.remote.allocator import RemoteAllocator
from verilocc_mlir.remote.client import Client
from verilocc_mlir.service.jobs import Terms
from verilocc_mlir.service.running import serving
from verilocc_mlir.store import Store
from verilocc_mlir.toolchain.find import find_toolchain

pytestmark = pytest.mark.usefixtures("no_token")


def test_a_library_call_asks_the_server_that_its_settings_name() -> None:
    with serving() as address:
        report = compile_module(kernel(3).encode(), "k.ll", Settings(cpu=CPU, server=address)).report
        assert {p.allocator for f in report.functions for p in f.phases} == {f"remote({address})"}
    # The server is gone: the local allocator follows.
    report = compile_module(kernel(4).encode(), "k.ll", Settings(cpu=CPU, server=address)).report
    assert {p.allocator for f in report.functions for p in f.phases} == {"deterministic"}
    assert all(p.forsaken for f in report.functions for p in f.phases)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--server=nonsense"], "is not HOST:PORT"),
        (["--server=127.0.0.1:1", "--allocator=llvm"], "leave one of the two out"),
        (["--server=127.0.0.1:1", "--server-cert=c.pem"], "needs its key"),
    ],
)
def test_wrong_options_are_one_error(
    options: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = tmp_path / "k.ll"
    source.write_text(kernel(3))
    assert run(["compile", str(source), f"-mcpu={CPU}", *options]) == 2
    assert message in capsys.readouterr().err
    assert [p.name for p in tmp_path.iterdir()] == ["k.ll"]


@dataclass(frozen=True)
class Another:
    """The deterministic allocator under a name that is known to a server alone."""

    name: str = "another"
    version: str = "7"

    def allocate(self, problem: AllocationProblem) -> Proposal:
        return allocator("deterministic").allocate(problem)


ANOTHER = Another()


def test_compile_asks_a_server_for_the_allocator_that_it_lists(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    offers = Terms(("another", "deterministic"), factory=lambda n: ANOTHER if n == "another" else allocator(n))
    source, report = tmp_path / "k.ll", tmp_path / "r.json"
    source.write_text(kernel(3))
    with serving(offers) as address, Client(address) as client:
        for name, version in (("", "another 7"), ("another", "another 7"), ("deterministic", DETERMINISTIC)):
            assert RemoteAllocator(client, allocator=name).version == version

        def compiled(server: str, *options: str) -> tuple[str, set[str], str]:
            command = ["compile", str(source), f"-mcpu={CPU}", f"--server={server}", f"--report={report}", *options]
            assert run(command) == 0
            found = json.loads(report.read_text())
            used = {p["allocator"] for f in found["functions"] for p in f["phases"]}
            return found["allocator"], used, flat(capsys.readouterr().out)

        assert compiled(address, "--allocator=another")[:2] == ("another", {f"remote({address})"})
        for name in ("another", "nonsense"):
            asked, used, shown = compiled("local", f"--allocator={name}")
            assert (asked, used) == (name, {"deterministic"})
            said = f"it has no allocator called '{name}'; it has: deterministic"
            assert f"remote: times3, SGPR: local: {said}; local allocation instead" in shown


def many(tmp_path: Path, *options: str) -> dict[str, Any]:
    """The summary of compile-many over the kernels in ``in``."""
    summary = tmp_path / "summary.json"
    command = ["compile-many", str(tmp_path / "in"), "-o", str(tmp_path / "out"), f"-mcpu={CPU}", "-q", "-j1"]
    assert run([*command, f"--cache={tmp_path / 'store'}", f"--report={summary}", "--reports", *options]) == 0
    return json.loads(summary.read_text())


@pytest.mark.long
def test_a_batch_keeps_results_of_a_server_apart_from_local_ones(tmp_path: Path) -> None:
    kernels(tmp_path / "in", 2)
    journal = tmp_path / "out" / "verilocc-batch.jsonl"

    def origins(*options: str) -> tuple[set[str], set[str | None]]:
        found = many(tmp_path, *options)
        reports = [json.loads(p.read_text()) for p in sorted((tmp_path / "out").glob("*.report.json"))]
        used = {p["allocator"] for r in reports for f in r["functions"] for p in f["phases"]}
        return {i["origin"] for i in found["inputs"]}, used

    address = f"unix:{tmp_path}/s"
    with served(listen=[address]):
        remote = {f"remote({address})"}
        assert origins() == ({"compiled"}, {"deterministic"})
        assert origins(f"--server={address}") == ({"compiled"}, remote)
        assert origins(f"--server={address}") == ({"journal"}, remote)
        journal.unlink()
        assert origins(f"--server={address}") == ({"cache"}, remote)
        assert origins() == ({"cache"}, {"deterministic"})
    journal.unlink()
    # The server is gone: what it made cannot be had under the name of what it is now, nor is it made up for.
    for _ in range(2):
        assert origins(f"--server={address}") == ({"compiled"}, {"deterministic"})
    with served(listen=[address]):
        assert origins(f"--server={address}") == ({"cache"}, remote)


@pytest.mark.long
def test_a_server_that_comes_while_a_batch_runs_has_its_results_under_its_own_name(tmp_path: Path) -> None:
    kernels(tmp_path / "in", 2)
    address = f"unix:{tmp_path}/s"
    settings = Settings(cpu=CPU, server=address)
    store, inputs = Store(tmp_path / "store"), plan([tmp_path / "in"], tmp_path / "out", Emit.HSACO)
    toolchain = find_toolchain()

    def keys(version: str) -> Keys:
        return Keys(settings, toolchain, version)

    def began_with(version: str) -> set[tuple[str, bool]]:
        """Origins, and whether the key is that of the server that allocated."""
        executor = LocalExecutor(1, 60)
        items = list(compile_batch(inputs, executor, BatchOptions(settings, keys(version), store)))
        assert {i.outcome for i in items} == {Outcome.PROVED}
        return {(i.origin.value, i.key == keys(DETERMINISTIC).of(i.input_sha256)) for i in items}

    (tmp_path / "out").mkdir()
    # It was down when the run began, and nobody allocates in its name: nothing is kept.
    assert began_with("unknown") == {("compiled", False)}
    assert [p for p in (tmp_path / "store").rglob("*") if p.is_file()] == []
    with served(listen=[address]):
        # Down at the start, or another one, and there when it was asked.
        assert began_with("unknown") == {("compiled", True)}
        assert began_with("unknown") == {("compiled", True)}
        assert began_with("deterministic 0") == {("compiled", True)}
        assert began_with(DETERMINISTIC) == {("journal", True)}
        assert began_with("deterministic 0") == {("compiled", True)}


def test_a_batch_has_no_server_of_its_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kernels(tmp_path / "in", 1)
    assert run(["compile-many", str(tmp_path / "in"), "--server=local"]) == 2
    assert "verilocc serve" in capsys.readouterr().err
