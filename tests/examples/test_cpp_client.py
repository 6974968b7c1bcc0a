"""examples/cpp_client, built with the distribution's gRPC from proto/ alone, against a real server."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from support import REPOSITORY

pytest.importorskip("grpc", reason="the extra 'service' is not installed")

from service_support import SECONDS, mir_request, serving, small_mir, token_line

from verilocc.v1 import allocation_service_pb2 as allocation
from verilocc_mlir.service import jobs

EXAMPLE = REPOSITORY / "examples" / "cpp_client"
pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program, built where it changes nothing."""
    for tool in ("cmake", "c++", "protoc", "grpc_cpp_plugin", "pkg-config"):
        if shutil.which(tool) is None:
            pytest.skip(
                f"{tool} is not here: apt-get install g++ cmake pkg-config libgrpc++-dev protobuf-compiler-grpc"
            )
    if subprocess.run(["pkg-config", "--exists", "grpc++"], check=False).returncode:
        pytest.skip("libgrpc++-dev is not installed")
    build = tmp_path_factory.mktemp("cpp") / "build"
    for command in (["cmake", "-S", str(EXAMPLE), "-B", str(build)], ["cmake", "--build", str(build)]):
        done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return build / "client"


def run(client: Path, *arguments: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(client), *map(str, arguments)], capture_output=True, text=True, timeout=SECONDS, check=False,
        env={**os.environ, "no_grpc_proxy": "127.0.0.1", **environment},
    )  # fmt: skip


def test_it_allocates_audits_and_writes(client: Path, tmp_path: Path) -> None:
    given, out = tmp_path / "kernel.mir", tmp_path / "allocated.mir"
    given.write_text(small_mir())
    options = ("--target=gfx942", "--phase=sgpr", f"--out={out}")
    (tmp_path / "tokens").write_text(token_line("good", "cpp"))
    with serving("--workers=1", f"--tokens={tmp_path / 'tokens'}") as served:
        done = run(client, served.address, given, *options, VERILOCC_TOKEN="good")
        assert (done.returncode, done.stderr) == (0, ""), done
        assert "times3: OUTCOME_PROVED" in done.stdout
        assert "audit: OUTCOME_PROVED" in done.stdout
        request = mir_request(name=str(given), return_mir=True).SerializeToString()
        assert out.read_bytes() == allocation.AllocateResponse.FromString(jobs.run("Allocate", request, 60)).mir
        out.unlink()
        for token, reason in (("", "TOKEN_MISSING"), ("bad", "TOKEN_UNKNOWN")):
            done = run(client, served.address, given, *options, VERILOCC_TOKEN=token)
            assert (done.returncode, reason in done.stderr) == (2, True)
        given.write_text("no machine IR")
        done = run(client, served.address, given, *options, VERILOCC_TOKEN="good")
        assert (done.returncode, "MALFORMED_INPUT" in done.stderr, out.exists()) == (2, True, False)
        address = served.address
        assert served.stop() == 0
    done = run(client, address, given, *options)
    assert (done.returncode, "code 14" in done.stderr) == (3, True)


def test_usage(client: Path, tmp_path: Path) -> None:
    assert run(client).returncode == 2
    assert run(client, "127.0.0.1:1", tmp_path / "none", "--phase=sgpr").returncode == 2
