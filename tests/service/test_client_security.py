"""Tokens and TLS of the client: a server that wants both, and ways to one that are wrong."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

pytest.importorskip("grpc")
pytest.importorskip("cryptography")

from batch_support import CPU, kernel
from certificate_support import Certificates, certificates
from client_support import NOWHERE, QUICK, answering, flat, honest, request, served
from service_support import token_line

from verilocc.v1 import allocation_service_pb2 as allocation
from verilocc.v1 import verdict_pb2
from verilocc_mlir.cli.main import run
from verilocc_mlir.errors import InputError
from verilocc_mlir.pipeline.settings import ServerAccess
from verilocc_mlir.problem.model import AllocationProblem
from verilocc_mlir.remote.client import Client, RemoteError

pytestmark = pytest.mark.usefixtures("no_token")

TOKEN = "a-token-of-tests"


@dataclass(frozen=True)
class Guarded:
    """A ``verilocc serve`` that wants a client certificate and a token."""

    address: str
    files: Certificates
    token: Path


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    directory = tmp_path_factory.mktemp("server")
    files = certificates(directory / "tls")
    tokens, token = directory / "tokens", directory / "token"
    tokens.write_text(token_line(TOKEN, "tests"))
    token.write_text(f"{TOKEN}\n")
    guard = (
        f"--tls-cert={files.server[0]}", f"--tls-key={files.server[1]}", f"--tls-client-ca={files.ca}",
        f"--tokens={tokens}",
    )  # fmt: skip
    with served(*guard, listen=["127.0.0.1:0"]) as (address,):
        yield Guarded(address, files, token)


@pytest.mark.long
def test_a_guarded_server_takes_certificate_and_token(
    guarded: Guarded, problem: AllocationProblem, monkeypatch: pytest.MonkeyPatch
) -> None:
    access = ServerAccess(guarded.files.ca, *guarded.files.client, guarded.token)
    with Client(guarded.address, access) as client:
        assert client.allocate(request(problem)).functions[0].outcome == verdict_pb2.OUTCOME_PROVED
    monkeypatch.setenv("VERILOCC_TOKEN", TOKEN)
    with Client(guarded.address, ServerAccess(guarded.files.ca, *guarded.files.client)) as client:
        assert client.capabilities().allocators[0].name == "deterministic"


@pytest.mark.long
def test_a_guarded_server_refuses_what_it_must(guarded: Guarded, tmp_path: Path) -> None:
    wrong = tmp_path / "wrong"
    wrong.write_text("another")
    stranger = certificates(tmp_path / "other")
    cases = [
        (ServerAccess(guarded.files.ca, *guarded.files.client), "UNAUTHENTICATED", "TOKEN_MISSING"),
        (ServerAccess(guarded.files.ca, *guarded.files.client, wrong), "UNAUTHENTICATED", "TOKEN_UNKNOWN"),
        (ServerAccess(guarded.files.ca, token=guarded.token), "UNAVAILABLE", ""),
        (ServerAccess(stranger.ca, *guarded.files.client, guarded.token), "UNAVAILABLE", ""),
        (ServerAccess(guarded.files.ca, *stranger.client, guarded.token), "UNAVAILABLE", ""),
    ]
    for access, code, reason in cases:
        with Client(guarded.address, access, QUICK) as client, pytest.raises(RemoteError) as caught:
            client.capabilities(20.0)
        assert (caught.value.code, caught.value.reason) == (code, reason)


@pytest.mark.long
def test_compile_with_tls_and_token(guarded: Guarded, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = tmp_path / "k.ll"
    source.write_text(kernel(3))
    command = [
        "compile", str(source), f"-mcpu={CPU}", f"--server={guarded.address}", f"--server-ca={guarded.files.ca}",
        f"--server-cert={guarded.files.client[0]}", f"--server-key={guarded.files.client[1]}",
    ]  # fmt: skip
    assert run([*command, f"--server-token={guarded.token}"]) == 0
    assert "remote:" not in capsys.readouterr().out
    assert run(command) == 0
    assert f"remote: times3, SGPR: {guarded.address}: UNAUTHENTICATED, TOKEN_MISSING: " in flat(capsys.readouterr().out)


def test_a_token_goes_nowhere_without_tls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    token = tmp_path / "token"
    token.write_text(TOKEN)
    with pytest.raises(InputError, match="not sent over the network without TLS"):
        Client("192.0.2.1:50551", ServerAccess(token=token, insecure=True))
    monkeypatch.setenv("VERILOCC_TOKEN", TOKEN)
    with pytest.raises(InputError, match=r"(?s)not sent over the network.*\$VERILOCC_TOKEN"):
        Client("192.0.2.1:50551", ServerAccess(insecure=True))
    # A proxy is no part of this machine, though the address behind it is.
    with answering(honest) as proxy, answering(honest) as asked:
        monkeypatch.setenv("http_proxy", f"http://{proxy.address}")
        with Client(asked.address) as client, pytest.raises(RemoteError, match="MALFORMED_REQUEST"):
            client.allocate(allocation.AllocateRequest())
    assert proxy.calls == []
    assert [h["authorization"] for h in asked.headers] == [f"Bearer {TOKEN}"]


@pytest.mark.parametrize("content", [b"", b"two words\n", b"two\nlines\n", b"\xff\xfe", "t\u00f6ken".encode()])
def test_what_is_no_token_is_said(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_bytes(content)
    with pytest.raises(InputError, match="token"):
        Client(NOWHERE, ServerAccess(token=path))
    with pytest.raises(InputError, match="cannot be read"):
        Client(NOWHERE, ServerAccess(token=tmp_path / "none"))


@pytest.mark.parametrize(
    ("address", "access", "message"),
    [
        ("localhost", ServerAccess(), "is not HOST:PORT"),
        ("localhost:70000", ServerAccess(), "is not HOST:PORT"),
        (NOWHERE, ServerAccess(certificate=Path("c.pem")), "needs its key"),
        (NOWHERE, ServerAccess(ca=Path("/no/ca.pem")), "cannot be read"),
        ("unix:/s", ServerAccess(ca=Path("ca.pem")), "TLS is not used there"),
        (NOWHERE, ServerAccess(ca=Path("ca.pem"), insecure=True), "TLS is not used there"),
    ],
)
def test_wrong_ways_to_a_server_are_bad_input(address: str, access: ServerAccess, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Client(address, access)
