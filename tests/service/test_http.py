"""HTTP and JSON in front of the same service, over real sockets: the same answers, errors, limits and turns."""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("grpc", reason="the extra 'service' is not installed")

from certificate_support import authority
from google.protobuf import json_format
from google.rpc.error_details_pb2 import ErrorInfo, RetryInfo
from process_support import until
from service_support import (
    MIB,
    SECONDS,
    Client,
    Served,
    check_alive,
    check_statuses,
    given_up,
    metrics,
    mir_request,
    numbers,
    serving,
    serving_terms,
    sgpr,
    small_mir,
    start_fails,
    token_line,
    wait_until_waiting,
)

from verilocc.v1 import allocation_service_pb2 as allocation
from verilocc.v1 import audit_service_pb2 as auditing
from verilocc.v1 import verdict_pb2

ALLOCATE = "/verilocc.v1.AllocationService/Allocate"
CAPABILITIES = "/verilocc.v1.AllocationService/GetCapabilities"
AUDIT = "/verilocc.v1.AuditService/Audit"
JSON = {"content-type": "application/json"}


@contextlib.contextmanager
def opened(served: Served) -> Iterator[http.client.HTTPConnection]:
    connection = http.client.HTTPConnection("127.0.0.1", served.event("http")["port"], timeout=SECONDS)
    try:
        yield connection
    finally:
        connection.close()


def ask(
    served: Served, path: str, body: bytes | str, headers: dict[str, str] = JSON, method: str = "POST"
) -> tuple[int, dict[str, str], Any]:
    """Status, headers and the body's JSON, of a connection of its own."""
    with opened(served) as connection:
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        return answer.status, {k.lower(): v for k, v in answer.getheaders()}, json.loads(answer.read())


@contextlib.contextmanager
def raw(served: Served) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", served.event("http")["port"]), SECONDS) as connection:
        yield connection


def received(connection: socket.socket) -> bytes:
    """All until the server closes."""
    data = b""
    with contextlib.suppress(ConnectionResetError):
        while more := connection.recv(1 << 16):
            data += more
    return data


def json_of(message: Any) -> str:
    return json_format.MessageToJson(message)


def _answer_of(connection: http.client.HTTPConnection) -> http.client.HTTPResponse:
    connection.request("POST", CAPABILITIES, "{}", JSON)
    return connection.getresponse()


def error_of(status: int, code: str, answer: tuple[int, dict[str, str], Any]) -> str:
    """The reason of an error of that code, which the details say twice; one that HTTP refuses has none."""
    assert (answer[0], answer[2]["code"]) == (status, code), answer
    assert answer[2]["message"]
    for detail in answer[2].get("details", ()):
        kind = {"google.rpc.ErrorInfo": ErrorInfo, "google.rpc.RetryInfo": RetryInfo}[detail["type"]]
        packed = kind.FromString(base64.b64decode(detail["value"] + "=" * (-len(detail["value"]) % 4)))
        assert json_format.MessageToDict(packed) == detail["debug"]
        if isinstance(packed, ErrorInfo):
            assert packed.domain == "verilocc"
            return packed.reason
        assert int(answer[1]["retry-after"]) >= 1
    return ""


def test_the_answers_are_those_over_grpc(served: Served, client: Client) -> None:
    request = mir_request(return_mir=True)
    expected = client.allocation.Allocate(request, timeout=SECONDS)
    status, headers, answer = ask(served, ALLOCATE, json_of(request))
    assert (status, headers["content-type"]) == (200, "application/json")
    given = json_format.ParseDict(answer, allocation.AllocateResponse())
    assert given.functions[0].outcome == verdict_pb2.OUTCOME_PROVED
    assert (given.mir, given.functions, given.versions) == (expected.mir, expected.functions, expected.versions)
    audit = auditing.AuditRequest(before=request.mir.text, after=expected.mir, target=request.mir.target)
    status, _, answer = ask(served, AUDIT, json_of(audit))
    assert (status, answer["outcome"]) == (200, "OUTCOME_PROVED")
    status, _, answer = ask(served, CAPABILITIES, "{}")
    assert (status, answer["allocators"][0]["name"], answer["limits"]["workers"]) == (200, "deterministic", 1)


def test_protobuf_and_more_than_one_request_of_a_connection(served: Served) -> None:
    request = mir_request(return_mir=True)
    with opened(served) as connection:
        for _ in range(2):
            connection.request("POST", ALLOCATE, request.SerializeToString(), {"content-type": "application/proto"})
            answer = connection.getresponse()
            assert (answer.status, answer.getheader("content-type")) == (200, "application/proto")
            message = allocation.AllocateResponse.FromString(answer.read())
            assert message.functions[0].outcome == verdict_pb2.OUTCOME_PROVED
            connection.request("GET", "/healthz")
            answer = connection.getresponse()
            assert (answer.status, answer.read()) == (200, b"SERVING")


def test_errors_have_grpcs_code_and_reason(served: Served) -> None:
    text = base64.b64encode(small_mir().encode()).decode()
    known = {"mir": {"text": text, "target": "gfx942", "phase": "PHASE_SGPR"}}
    for body, status, code, reason in (
        ("", 400, "invalid_argument", "MALFORMED_REQUEST"),
        ("[]", 400, "invalid_argument", "MALFORMED_REQUEST"),
        ("{", 400, "invalid_argument", "MALFORMED_REQUEST"),
        (b'{"allocator": "\xff"}', 400, "invalid_argument", "MALFORMED_REQUEST"),
        ('{"mir": {"txt": ""}}', 400, "invalid_argument", "MALFORMED_REQUEST"),
        ('{"mir": {"text": 5}}', 400, "invalid_argument", "MALFORMED_REQUEST"),
        ('{"maxAttempts": 1e400}', 400, "invalid_argument", "MALFORMED_REQUEST"),
        ('{"maxAttempts": ' + "9" * 10000 + "}", 400, "invalid_argument", "MALFORMED_REQUEST"),
        ('{"mir": ' * 5000 + "}" * 5000, 400, "invalid_argument", "MALFORMED_REQUEST"),
        ("[" * MIB, 400, "invalid_argument", "MALFORMED_REQUEST"),
        ("{}", 400, "invalid_argument", "MALFORMED_REQUEST"),
        (json.dumps({"mir": {"text": ""}}), 400, "invalid_argument", "MALFORMED_INPUT"),
        (json.dumps({**known, "allocator": "no-such"}), 404, "not_found", "UNKNOWN_ALLOCATOR"),
        (json.dumps({"mir": {**known["mir"], "target": "gfx803"}}), 400, "failed_precondition", "TARGET_NOT_SUPPORTED"),
        (json.dumps({**known, "allocator": "exits"}), 503, "unavailable", "WORKER_LOST"),
        (json.dumps({**known, "allocator": "eats"}), 429, "resource_exhausted", "MEMORY_LIMIT"),
    ):
        assert error_of(status, code, ask(served, ALLOCATE, body)) == reason, body[:80]
    check_statuses(served)


def test_what_is_no_call_is_refused_by_http(served: Served) -> None:
    for path, headers, method, status in (
        ("/", JSON, "POST", 404),
        ("/verilocc.v1.AllocationService/AllocateStream", JSON, "POST", 404),
        ("/grpc.health.v1.Health/Check", JSON, "POST", 404),
        (ALLOCATE, JSON, "GET", 405),
        (ALLOCATE, JSON, "OPTIONS", 405),
        ("/healthz", JSON, "POST", 404),
        (ALLOCATE, {"content-type": "text/plain"}, "POST", 415),
        (ALLOCATE, {}, "POST", 415),
        (ALLOCATE, {**JSON, "content-encoding": "gzip"}, "POST", 415),
        (ALLOCATE, {**JSON, "origin": "https://example.com"}, "POST", 403),
        (ALLOCATE, {**JSON, "connect-timeout-ms": "-1"}, "POST", 400),
        (ALLOCATE, {**JSON, "connect-timeout-ms": "9" * 11}, "POST", 400),
    ):
        answered, _, answer = ask(served, path, "{}", headers, method)
        assert answered == status, (path, headers, method)
        assert "details" not in answer


def test_a_body_is_bounded_however_it_comes(served: Served, client: Client) -> None:
    """The server's messages have 8 MiB at most; that of capabilities has nothing in it."""
    head = f"POST {ALLOCATE} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n".encode()
    with raw(served) as connection:
        connection.sendall(head + b"transfer-encoding: chunked\r\n\r\n")
        chunk = b"100000\r\n" + b" " * MIB + b"\r\n"
        with contextlib.suppress(ConnectionError):
            for _ in range(9):
                connection.sendall(chunk)
        assert received(connection).startswith(b"HTTP/1.1 413 ")
    with raw(served) as connection:
        connection.sendall(head + f"content-length: {1 << 40}\r\n\r\n".encode())
        with contextlib.suppress(ConnectionError):
            for _ in range(9):
                connection.sendall(b" " * MIB)
        assert received(connection).startswith(b"HTTP/1.1 413 ")
    status, _, answer = ask(served, CAPABILITIES, " " * 5000)
    assert (status, answer["code"]) == (413, "resource_exhausted")
    check_alive(client)


@pytest.mark.long
def test_a_memory_bomb_costs_a_worker_its_memory_and_the_front_nothing(served: Served, client: Client) -> None:
    """Eight MiB of JSON that are a hundred times as many once they are read."""
    entries = "[" + "{}," * (2 * MIB) + "{}]"
    answer = ask(served, ALLOCATE, '{"problem": {"ranges": ' + entries + "}}")
    assert (answer[0], answer[2]["code"]) in ((429, "resource_exhausted"), (504, "deadline_exceeded")), answer
    most = next(x for x in Path(f"/proc/{served.pid}/status").read_text().splitlines() if x.startswith("VmHWM"))
    assert int(most.split()[1]) < 400 * 1024
    check_alive(client)


@pytest.mark.parametrize(
    "data",
    [
        b"\0" * 100,
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"GET / HTTP/9.9\r\nhost: x\r\n\r\n",
        b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: -1\r\n\r\n",
        b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n",
        b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: gzip, chunked\r\n\r\n",
        b"GET / HTTP/1.1\r\nhost: x\r\n" + b"a: " + b"b" * 70000 + b"\r\n\r\n",
        b"GET / HTTP/1.1\r\nhost: x\r\n" + b"a: b\r\n" * 9000 + b"\r\n",
        b"GET /" + b"x" * 70000,
        f"POST {ALLOCATE} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n".encode()
        + b"transfer-encoding: chunked\r\n\r\nnonsense\r\n",
    ],
    ids=lambda data: repr(data[:30]),
)  # fmt: skip
def test_what_is_no_http_is_refused_and_costs_one_connection(served: Served, data: bytes) -> None:
    with raw(served) as connection:
        connection.sendall(data)
        answer = received(connection)
        assert answer.split(b" ")[1][:1] in (b"4", b"5"), answer[:100]
    assert ask(served, CAPABILITIES, "{}")[0] == 200


def test_half_a_request_keeps_nobody_out(served: Served, client: Client) -> None:
    """Half a head, half a body, none at all, many times: they have as many places as one caller has, no more."""
    head = f"POST {ALLOCATE} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n".encode()
    with contextlib.ExitStack() as stack:
        for data in (b"", head, head + b"content-length: 10\r\n\r\n{"):
            for _ in range(10):
                stack.enter_context(raw(served)).sendall(data)
        check_alive(client)
        assert ask(served, CAPABILITIES, "{}")[0] == 200


def test_calls_of_both_ways_are_counted_together(served: Served, client: Client) -> None:
    """Bodies that never come take the caller's places; the next one is told so before it sends its own."""
    head = f"POST {ALLOCATE} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: 10\r\n\r\n{{"
    with contextlib.ExitStack() as stack:
        for _ in range(40):
            stack.enter_context(raw(served)).sendall(head.encode())
        until(lambda: ask(served, ALLOCATE, "{}")[0] == 429, "a refusal")
        answer = ask(served, ALLOCATE, "{}")
        assert error_of(429, "resource_exhausted", answer) == "TOO_MANY_CALLS"
        assert int(answer[1]["retry-after"]) >= 1
        # The socket of this server is another caller than the host.
        check_alive(client)
    until(lambda: ask(served, CAPABILITIES, "{}")[0] == 200, "places")


def test_deadlines_and_overload(served: Served, client: Client, notes: Path) -> None:
    busy = client.allocation.Allocate.future(sgpr(small_mir(), "waits"), timeout=SECONDS)
    numbers(notes / "pids", 1)
    answer = ask(served, ALLOCATE, json_of(sgpr(small_mir())), {**JSON, "connect-timeout-ms": "100"})
    assert error_of(504, "deadline_exceeded", answer) == "DEADLINE"
    waiting = client.allocation.Allocate.future(sgpr(small_mir()), timeout=SECONDS)
    wait_until_waiting(served, 1)
    answer = ask(served, ALLOCATE, json_of(sgpr(small_mir())))
    assert error_of(429, "resource_exhausted", answer) == "OVERLOADED"
    (notes / "go").touch()
    assert busy.result().functions[0].allocator == "waits"
    waiting.result()


def test_a_client_that_goes_away_ends_the_work(served: Served, client: Client, notes: Path) -> None:
    body = json_of(sgpr(small_mir(), "waits")).encode()
    with raw(served) as connection:
        connection.sendall(
            f"POST {ALLOCATE} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n".encode()
            + f"content-length: {len(body)}\r\n\r\n".encode() + body
        )  # fmt: skip
        numbers(notes / "pids", 1)
        before = given_up(served)
    until(lambda: given_up(served) > before, "the work given up")
    check_alive(client)


def test_expect_continue(served: Served) -> None:
    with raw(served) as connection:
        head = f"POST {CAPABILITIES} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\nconnection: close\r\n"
        connection.sendall(f"{head}content-length: 2\r\nexpect: 100-continue\r\n\r\n".encode())
        assert connection.recv(100).startswith(b"HTTP/1.1 100 ")
        connection.sendall(b"{}")
        assert received(connection).startswith(b"HTTP/1.1 200 ")


@pytest.mark.long
def test_tokens_are_asked_for_before_the_body(tmp_path: Path) -> None:
    (tmp_path / "tokens").write_text(token_line("good", "ci"))
    arguments = ("--workers=1", "--http=127.0.0.1:0", "--metrics=127.0.0.1:0", f"--tokens={tmp_path / 'tokens'}")
    with serving(*arguments) as served:
        body = json_of(sgpr(small_mir()))
        for header, reason in (("", "TOKEN_MISSING"), ("Bearer bad", "TOKEN_UNKNOWN")):
            answer = ask(served, ALLOCATE, body, {**JSON, **({"authorization": header} if header else {})})
            assert error_of(401, "unauthenticated", answer) == reason
            assert answer[1]["www-authenticate"] == "Bearer"
        with raw(served) as connection:
            head = f"POST {ALLOCATE} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
            connection.sendall(f"{head}content-length: 1000000\r\n\r\n".encode())
            assert b"TOKEN_MISSING" in received(connection)
        status, _, answer = ask(served, ALLOCATE, body, {**JSON, "authorization": "Bearer good"})
        assert (status, answer["functions"][0]["outcome"]) == (200, "OUTCOME_PROVED")
        served.event("answered", method="Allocate", caller="ci")
        counted = metrics(served)
        name = 'verilocc_requests_total{code="UNAUTHENTICATED",method="Allocate",reason="TOKEN_MISSING"}'
        assert counted[name] == 2
        with opened(served) as connection:
            connection.request("GET", "/healthz")
            assert connection.getresponse().read() == b"SERVING"
        assert served.stop() == 0


@pytest.mark.long
def test_tls(tmp_path: Path) -> None:
    ours = authority(tmp_path, "ours")
    certificate, key = ours.sign("server")
    mine = ours.sign("client")
    files = (f"--tls-cert={certificate}", f"--tls-key={key}", f"--tls-client-ca={ours.path}")
    with serving("--workers=1", "--http=127.0.0.1:0", *files) as served:
        port = served.event("http")["port"]
        context = ssl.create_default_context(cafile=str(ours.path))
        context.load_cert_chain(*mine)
        connection = http.client.HTTPSConnection("localhost", port, timeout=SECONDS, context=context)
        for _ in range(2):
            connection.request("POST", CAPABILITIES, "{}", JSON)
            answer = connection.getresponse()
            assert answer.status == 200
            answer.read()
        connection.close()
        stranger = http.client.HTTPSConnection(
            "localhost", port, timeout=SECONDS, context=ssl.create_default_context(cafile=str(ours.path))
        )
        with pytest.raises((ssl.SSLError, ConnectionError)):
            _answer_of(stranger)
        with raw(served) as plain:
            plain.sendall(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n")
            assert b"SERVING" not in received(plain)


@pytest.mark.long
def test_a_drain_finishes_what_was_accepted(tmp_path: Path) -> None:
    environment = {"VERILOCC_TEST_DIRECTORY": str(tmp_path)}
    with serving_terms(f"unix:{tmp_path}/s", environment=environment, http="127.0.0.1:0") as served, raw(served) as one:
        body = json_of(sgpr(small_mir(), "waits"))
        head = f"POST {ALLOCATE} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
        one.sendall(f"{head}content-length: {len(body)}\r\n\r\n{body}".encode())
        numbers(tmp_path / "pids", 1)
        with opened(served) as other:
            served.process.terminate()
            served.event("draining")
            other.request("GET", "/healthz")
            answer = other.getresponse()
            assert (answer.status, answer.read()) == (503, b"NOT_SERVING")
            other.request("POST", ALLOCATE, body, JSON)
            answer = other.getresponse()
            assert (answer.status, json.loads(answer.read())["code"]) == (503, "unavailable")
        (tmp_path / "go").touch()
        assert received(one).startswith(b"HTTP/1.1 200 ")
        assert served.process.wait(SECONDS) == 0


@pytest.mark.long
def test_addresses_that_are_refused() -> None:
    assert "there is no TLS" in start_fails("--http=0.0.0.0:0")
    assert "is not HOST:PORT" in start_fails("--http=nonsense")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert "cannot be bound" in start_fails("--listen=127.0.0.1:0", f"--http=127.0.0.1:{port}")
