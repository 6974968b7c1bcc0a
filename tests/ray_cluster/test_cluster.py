"""Clusters that commands have of their own, cannot have, or cannot join; and options of Ray."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
from batch_support import CPU, VERILOCC, faulty_llc, kernels
from cluster_support import MARKS, listening, needs_ray, stopped
from process_support import children, gone, lines_of, parent_of
from service_support import SECONDS, sgpr, small_mir
from service_support import connected as connected_to
from support import HEARING, REPOSITORY

from verilocc.v1 import verdict_pb2
from verilocc_mlir.cli.main import run
from verilocc_mlir.errors import InputError
from verilocc_mlir.ray_cluster import connected, load_ray

pytestmark = MARKS


@pytest.mark.long
@needs_ray
def test_no_cluster_to_join_is_one_error(tmp_path: Path) -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{nobody.getsockname()[1]}"
        kernels(tmp_path, 1)
        command = [*VERILOCC, "compile-many", str(tmp_path), f"-mcpu={CPU}", "--no-cache", "--ray"]
        done = subprocess.run(
            [*command, f"--ray-address={address}"], cwd=REPOSITORY, capture_output=True, text=True, check=False
        )
    assert done.returncode == 2
    said = f"verilocc: error: {address}: there is no Ray cluster: .*\n  hint: .*ray start.*\n"
    assert re.fullmatch(said, done.stderr)


@pytest.mark.parametrize("command", [["serve"], ["compile-many", "."], ["corpus", "make", "--out", "."]])
def test_without_ray_the_extra_is_named(command: list[str]) -> None:
    code = """
        import sys
        class Block:
            def find_spec(self, name, path=None, target=None):
                if name.split('.')[0] == 'ray':
                    raise ModuleNotFoundError(f'No module named {name!r}', name=name)
        sys.meta_path.insert(0, Block())
        from verilocc_mlir.cli.main import run
        sys.exit(run([*sys.argv[1:], '--ray']))
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), *command], cwd=REPOSITORY, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert done.stderr.startswith("verilocc: error: ")
    assert "pip install 'verilocc-mlir[ray]'" in done.stderr


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (["compile-many", ".", "--ray-address=auto"], "--ray-address needs --ray"),
        (["corpus", "make", "--out", ".", "--ray-address=auto"], "--ray-address needs --ray"),
        (["serve", "--replicas=2"], "--replicas needs --ray"),
        pytest.param(["serve", "--ray", "--metrics=127.0.0.1:0"], "--metrics is not possible", marks=needs_ray),
        pytest.param(["serve", "--ray", "--listen=0.0.0.0:0"], "can be reached from the network", marks=needs_ray),
        pytest.param(["serve", "--ray", "--replicas=3:2"], "is not MIN:MAX", marks=needs_ray),
    ],
)
def test_options_that_do_not_go_together(command: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(command) == 2
    assert message in " ".join(re.sub("[│╭╮╰╯─]", " ", capsys.readouterr().err).split())


@needs_ray
def test_a_local_cluster_that_is_not_up_in_time_is_begun_once_more(monkeypatch: pytest.MonkeyPatch) -> None:
    ray = load_ray()
    tried: list[Any] = []

    def late(**given: Any) -> None:
        tried.append(given)
        raise RuntimeError("Timed out waiting for file\nand more")

    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", late)
    monkeypatch.setattr(ray, "shutdown", lambda: None)
    with pytest.raises(InputError, match="Ray cannot be started: Timed out waiting for file"), connected("local", 1):
        pass
    assert len(tried) == 2


@pytest.mark.long
@needs_ray
def test_interrupted_the_cluster_of_the_command_is_gone(tmp_path: Path) -> None:
    slow = faulty_llc(tmp_path / "llc", "times4", 'echo $$ $PPID >> "$0.log"; sleep 600')
    kernels(tmp_path / "in", 4)
    command = [*VERILOCC, "compile-many", str(tmp_path / "in"), f"-mcpu={CPU}", "--no-cache", "--ray", "-j1"]
    process = subprocess.Popen(
        [*HEARING, *command, f"--llvm={slow}"], cwd=REPOSITORY, stderr=subprocess.PIPE, text=True
    )
    (line,) = lines_of(Path(f"{slow}.log"))
    ray_worker = parent_of(int(line.split()[1]))
    raylet = parent_of(ray_worker)
    process.send_signal(signal.SIGINT)
    code, said = stopped(process)
    assert code == 130, said
    assert "interrupted; 1 of 4 are finished" in said
    assert all(gone(pid) for pid in (*map(int, line.split()), ray_worker, raylet))
    assert len(list((tmp_path / "in").glob("*.hsaco"))) == 1


@pytest.mark.long
@needs_ray
def test_a_server_with_a_cluster_of_its_own_ends_it() -> None:
    process = subprocess.Popen(
        [*VERILOCC, "serve", "--ray", "--listen=127.0.0.1:0", "--replicas=1:2", "--target-requests=1"],
        cwd=REPOSITORY, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        with connected_to(listening(process)) as client:
            found = client.allocation.Allocate(sgpr(small_mir()), timeout=SECONDS)
        assert found.functions[0].outcome == verdict_pb2.OUTCOME_PROVED
        started = children(process.pid)
        assert started
    finally:
        process.terminate()
        code, said = stopped(process)
    assert code == 0, said
    assert all(gone(pid) for pid in started)
