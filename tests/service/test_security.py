"""Tokens and TLS: who may call, and what is said of files that are none."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from pathlib import Path

import grpc
import pytest
from certificate_support import Authority, authority
from grpc import StatusCode
from grpc_health.v1 import health_pb2
from service_support import (
    SECONDS,
    Served,
    check_alive,
    connected,
    health,
    refusal,
    refused,
    serving,
    sgpr,
    small_mir,
    start_fails,
    token_line,
)

from verilocc.v1 import allocation_service_pb2 as allocation
from verilocc_mlir.errors import InputError
from verilocc_mlir.remote.access import read_bytes
from verilocc_mlir.service.security import TlsFiles, TokenBook


def test_tokens_are_asked_for_and_can_be_taken_away(tmp_path: Path) -> None:
    now = datetime.now(timezone.utc)
    path = tmp_path / "tokens"
    good, other = token_line("good", "ci"), token_line("other", "node")
    old = token_line("old", "old", (now - timedelta(days=1)).isoformat())
    new = token_line("new", "new", (now + timedelta(days=1)).isoformat())
    path.write_text(f"# who may call\n{good}{other}{old}{new}")
    with serving("--workers=1", "--tokens", path) as served, connected(served.address) as client:

        def call(authorization: str | None) -> str:
            """The reason for which a call is refused, "" if it is answered."""
            metadata = () if authorization is None else (("authorization", authorization),)
            for method in (
                lambda: client.allocation.Allocate(sgpr(small_mir()), timeout=SECONDS, metadata=metadata),
                lambda: client.allocation.GetCapabilities(
                    allocation.GetCapabilitiesRequest(), timeout=SECONDS, metadata=metadata
                ),
                lambda: list(client.allocation.AllocateStream(iter(()), timeout=SECONDS, metadata=metadata)),
            ):
                try:
                    method()
                except grpc.RpcError as error:
                    failed = refused(error)
                    assert failed.code is StatusCode.UNAUTHENTICATED
                    found = failed.reason
                else:
                    found = ""
            return found

        for authorization, expected in {
            None: "TOKEN_MISSING",
            "": "TOKEN_MISSING",
            "Basic good": "TOKEN_MISSING",
            "Bearer ": "TOKEN_MISSING",
            "Bearer wrong": "TOKEN_UNKNOWN",
            "Bearer " + good.split()[0]: "TOKEN_UNKNOWN",
            "Bearer old": "TOKEN_EXPIRED",
            "Bearer new": "",
            "bearer good": "",
            "Bearer other": "",
        }.items():
            assert call(authorization) == expected, authorization
        # One is taken away, one is given.
        path.write_text(good + token_line("fresh", "later"))
        assert (call("Bearer other"), call("Bearer good"), call("Bearer fresh")) == ("TOKEN_UNKNOWN", "", "")
        # A line that is none: what was known stays, and the log says that the change was not taken.
        path.write_text(good[:30])
        assert (call("Bearer good"), call("Bearer fresh")) == ("", "")
        assert served.event("tokens not read")["level"] == "error"
        # The last one is taken away.
        path.write_text("# nobody\n")
        assert (call("Bearer good"), call("Bearer fresh")) == ("TOKEN_UNKNOWN", "TOKEN_UNKNOWN")
        assert health(client.channel).Check(health_pb2.HealthCheckRequest()).status == 1
        assert {e.get("caller") for e in served.events() if e["event"] == "answered"} >= {"ci", "node"}
        assert not {"good", "fresh"} & set("".join(served.lines).replace('"', " ").split())


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (None, "cannot be read"),
        (b"", "no token in this file"),
        (b"# nothing\n", "no token in this file"),
        (b"\xff\xfe", "cannot be read"),
        (b"abc ci\n", "not a token's line"),
        (b"g" * 64 + b" ci\n", "not a token's line"),
        (b"a" * 64 + b"\n", "not a token's line"),
        (b"a" * 64 + b" ci tomorrow\n", "is not a time"),
        (b"a" * 64 + b" ci 2027-01-31T00:00:00\n", "has no offset"),
    ],
)
def test_a_bad_token_file(tmp_path: Path, text: bytes | None, words: str) -> None:
    path = tmp_path / "tokens"
    if text is not None:
        path.write_bytes(text)
    with pytest.raises(InputError, match=words) as error:
        TokenBook(path)
    assert str(path) in error.value.where


@pytest.mark.long
def test_a_bad_token_file_keeps_the_server_from_starting(tmp_path: Path) -> None:
    (tmp_path / "tokens").write_text("abc ci\n")
    assert "tokens:1: not a token's line" in start_fails("--listen=127.0.0.1:0", "--tokens", tmp_path / "tokens")


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return authority(tmp_path_factory.mktemp("tls"), "ours")


@pytest.fixture(scope="module")
def foreign(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return authority(tmp_path_factory.mktemp("foreign"), "foreign")


def tls(ca: Authority, pair: tuple[Path, Path] | None = None) -> grpc.ChannelCredentials:
    certificate, key = map(read_bytes, pair) if pair else (None, None)
    return grpc.ssl_channel_credentials(read_bytes(ca.path), key, certificate)


def check_unreachable(served: Served, credentials: grpc.ChannelCredentials | None) -> None:
    with connected(served.address, credentials) as client:
        failed = refusal(lambda: client.allocation.GetCapabilities(allocation.GetCapabilitiesRequest(), timeout=10))
        assert failed.code is StatusCode.UNAVAILABLE


def test_tls_and_clients_with_certificates(ours: Authority, foreign: Authority, tmp_path: Path) -> None:
    certificate, key = ours.sign("server")
    given = ("--workers=1", "--tls-cert", certificate, "--tls-key", key)
    with serving(*given, f"--listen=unix:{tmp_path}/s") as served, connected(served.address, tls(ours)) as client:
        check_alive(client)
        check_unreachable(served, tls(foreign))
        check_unreachable(served, None)
        with connected(f"unix:{tmp_path}/s") as local:
            check_alive(local)
        # Handshakes that fail say nothing that is not a line of the log's form.
        assert served.events()
    with serving(*given, "--tls-client-ca", ours.path) as served:
        with connected(served.address, tls(ours, ours.sign("client"))) as client:
            check_alive(client)
        check_unreachable(served, tls(ours))
        check_unreachable(served, tls(ours, foreign.sign("client")))
        check_unreachable(served, tls(ours, ours.sign("old client", (-2, -1))))
        assert served.events()


@pytest.mark.long
def test_a_certificate_that_expired(ours: Authority) -> None:
    certificate, key = ours.sign("expired", (-2, -1))
    with serving("--workers=1", "--tls-cert", certificate, "--tls-key", key) as served:
        check_unreachable(served, tls(ours))


@pytest.mark.long
def test_tls_files_that_are_none(ours: Authority, foreign: Authority, tmp_path: Path) -> None:
    certificate, key = ours.sign("server")
    junk = tmp_path / "junk.pem"
    junk.write_text("junk")
    for files, words in {
        (junk, key, None): "not a certificate chain and its key",
        (certificate, junk, None): "not a certificate chain and its key",
        (certificate, foreign.sign("other")[1], None): "not a certificate chain and its key",
        (certificate, key, junk): "no certificate in this file",
        (tmp_path / "none", key, None): "cannot be read",
    }.items():
        with pytest.raises(InputError, match=words):
            TlsFiles(*files).credentials()
    assert "not a certificate chain" in start_fails("--listen=127.0.0.1:0", "--tls-cert", junk, "--tls-key", key)
    assert "--tls-key" in start_fails("--listen=127.0.0.1:0", "--tls-cert", certificate)
    assert "--tls-cert" in start_fails("--listen=127.0.0.1:0", "--tls-client-ca", ours.path)
