"""Batches: added, polled, read on, cancelled; kept over the end of clients and servers; never another's or forged."""

from __future__ import annotations

import contextlib
import hashlib
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("grpc", reason="the extra 'service' is not installed")

from grpc import StatusCode
from process_support import gone, until
from service_support import (
    SECONDS,
    Client,
    Served,
    check_alive,
    check_statuses,
    connected,
    given_up,
    metrics,
    mir_request,
    numbers,
    refusal,
    serving,
    serving_terms,
    sgpr,
    small_mir,
    start_fails,
    token_line,
)
from support import REPOSITORY

from verilocc.v1 import batch_service_pb2 as batching
from verilocc.v1 import batch_service_pb2_grpc as batch_grpc
from verilocc.v1 import verdict_pb2
from verilocc_mlir.service import batches
from verilocc_mlir.service.batches import Book
from verilocc_mlir.service.status import ServiceError

OK = 'verilocc_requests_total{code="OK",method="Batch",reason=""}'


@pytest.fixture(autouse=True)
def own_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv("VERILOCC_STORE_KEY", raising=False)


class Caller:
    """The methods, with a deadline and perhaps a token."""

    def __init__(self, client: Client, token: str = "") -> None:
        self._stub: Any = batch_grpc.BatchServiceStub(client.channel)
        self._metadata = [("authorization", f"Bearer {token}")] if token else []

    def __getattr__(self, method: str) -> Any:
        name, of = method.split("_")
        full = {"add": "AddToBatch", "get": "GetBatch", "list": "ListBatchResults"}.get(name, f"{name.title()}Batch")
        request = getattr(batching, f"{full}Request")
        assert of == "batch"
        return lambda batch, **fields: getattr(self._stub, full)(
            request(batch=batch, **fields), timeout=SECONDS, metadata=self._metadata
        )

    def results(self, batch: str, count: int) -> list[batching.BatchResult]:
        """So many, in order, when they are there."""
        until(lambda: self.get_batch(batch).batch.finished >= count, f"{count} results")
        return list(self.list_batch(batch).results)


@contextlib.contextmanager
def batching_server(tmp_path: Path, *arguments: str | Path) -> Iterator[tuple[Served, Client]]:
    given = ("--metrics=127.0.0.1:0", f"--batches={tmp_path / 'batches'}", *arguments)
    with serving(*given, listen=f"unix:{tmp_path}/s") as served, connected(served.address) as client:
        yield served, client


def _with_allocators(directory: Path) -> dict[str, Any]:
    """Options of a server with one worker, and allocators that wait."""
    environment = {"VERILOCC_TEST_DIRECTORY": str(directory)}
    return {"batches": str(directory / "batches"), "environment": environment, "limits": {"workers": 1}}


def proved(result: batching.BatchResult) -> bool:
    functions = result.response.functions
    return bool(functions) and all(f.outcome == verdict_pb2.OUTCOME_PROVED for f in functions)


def test_a_batch_from_start_to_end(tmp_path: Path) -> None:
    """Answers are those of calls; equal requests are worked on once; a repeated one is not added again."""
    with batching_server(tmp_path) as (served, client):
        caller = Caller(client)
        requests = {f"k{n}": mir_request(small_mir(n), return_mir=True) for n in (3, 5, 7)}
        requests |= {"again": requests["k3"], "bad": sgpr(b"")}
        row = batching.Batch()
        for id_, request in [*requests.items(), *requests.items()]:
            row = caller.add_batch("nightly", id=id_, request=request).batch
        assert (row.name, row.requests) == ("nightly", 5)
        results = caller.results("nightly", 5)
        assert {r.id for r in results} == set(requests)
        assert [r.place for r in results] == sorted({r.place for r in results})
        for result in results:
            data = requests[result.id].SerializeToString()
            assert result.request_sha256 == hashlib.sha256(data).digest()
            if result.id == "bad":
                assert (result.error.code, result.error.reason) == (3, "MALFORMED_INPUT")
            else:
                expected = client.allocation.Allocate(requests[result.id], timeout=SECONDS)
                assert proved(result)
                assert result.response.mir == expected.mir
        assert caller.get_batch("nightly").batch.state == batching.BATCH_STATE_DONE
        assert caller.cancel_batch("nightly").batch.state == batching.BATCH_STATE_DONE
        done = metrics(served)[OK]
        # In pages, from any place on.
        place, pages = 0, []
        while page := caller.list_batch("nightly", after=place, max_results=2).results:
            place = page[-1].place
            pages.append([r.id for r in page])
        assert [id_ for page in pages for id_ in page] == [r.id for r in results]
        assert [len(page) for page in pages] == [2, 2, 1]
        # Another batch of the same requests takes no worker.
        caller.add_batch("second", id="x", request=requests["k5"])
        (result,) = caller.results("second", 1)
        assert proved(result)
        assert metrics(served)[OK] == done <= 4
        caller.delete_batch("nightly")
        for method in (caller.get_batch, caller.list_batch, caller.cancel_batch, caller.delete_batch):
            failed = refusal(lambda method=method: method("nightly"))
            assert (failed.code, failed.reason) == (StatusCode.NOT_FOUND, "UNKNOWN_BATCH")
        (result,) = caller.list_batch("second").results
        assert proved(result)
        caller.delete_batch("second")
        content = tmp_path / "batches" / "content"
        assert not [path for path in content.rglob("*") if path.is_file()]
        check_statuses(served)


@pytest.mark.long
def test_a_killed_server_loses_nothing(tmp_path: Path) -> None:
    """SIGKILL in the middle of the work; the next server goes on without being asked to."""
    options = _with_allocators(tmp_path)
    with serving_terms(f"unix:{tmp_path}/s", **options) as served, connected(served.address) as client:
        caller = Caller(client)
        caller.add_batch("b", id="first", request=sgpr(small_mir()))
        caller.results("b", 1)
        caller.add_batch("b", id="waits", request=sgpr(small_mir(5), "waits"))
        caller.add_batch("b", id="last", request=sgpr(small_mir(7)))
        (pid,) = numbers(tmp_path / "pids", 1)
        served.process.send_signal(signal.SIGKILL)
        assert served.process.wait(SECONDS) == -signal.SIGKILL
        assert gone(pid)
    (tmp_path / "go").touch()
    with serving_terms(f"unix:{tmp_path}/t", **options) as served, connected(served.address) as client:
        caller = Caller(client)
        results = caller.results("b", 3)
        assert [r.id for r in results] == ["first", "waits", "last"]
        assert all(map(proved, results))
        assert [r.id for r in caller.list_batch("b", after=results[0].place).results] == ["waits", "last"]
        # What is worked on is given up for a drain, which does not wait for it.
        (tmp_path / "go").unlink()
        (tmp_path / "pids").unlink()
        caller.add_batch("b", id="later", request=sgpr(small_mir(9), "waits"))
        numbers(tmp_path / "pids", 1)
        assert served.stop() == 0
    (tmp_path / "go").touch()
    with serving_terms(f"unix:{tmp_path}/u", **options) as served, connected(served.address) as client:
        assert proved(Caller(client).results("b", 4)[-1])


def test_cancelling_ends_the_work(tmp_path: Path) -> None:
    options = _with_allocators(tmp_path)
    with serving_terms(f"unix:{tmp_path}/s", **options) as served, connected(served.address) as client:
        caller = Caller(client)
        for id_ in ("one", "two"):
            caller.add_batch("b", id=id_, request=sgpr(small_mir(), "waits"))
        (pid,) = numbers(tmp_path / "pids", 1)
        assert caller.cancel_batch("b").batch.state == batching.BATCH_STATE_CANCELLED
        served.event("given up", pid=pid, kept=True)
        failed = refusal(lambda: caller.add_batch("b", id="three", request=sgpr(small_mir())))
        assert (failed.code, failed.reason) == (StatusCode.FAILED_PRECONDITION, "BATCH_CANCELLED")
        assert caller.add_batch("b", id="two", request=sgpr(small_mir(), "waits")).batch.requests == 2
        assert not caller.list_batch("b").results
        check_alive(client)
        caller.add_batch("c", id="x", request=sgpr(small_mir()))
        assert proved(caller.results("c", 1)[0])
        # One that is deleted in the middle of its work.
        caller.add_batch("d", id="x", request=sgpr(small_mir(5), "waits"))
        before = given_up(served)
        numbers(tmp_path / "pids", 2)
        caller.delete_batch("d")
        until(lambda: given_up(served) > before, "the work given up")
        check_alive(client)


def test_a_batch_is_its_callers(tmp_path: Path) -> None:
    (tmp_path / "tokens").write_text(token_line("a", "anna") + token_line("b", "bert"))
    with batching_server(tmp_path, f"--tokens={tmp_path / 'tokens'}") as (served, client):
        anna, bert = Caller(client, "a"), Caller(client, "b")
        anna.add_batch("b", id="x", request=sgpr(small_mir()))
        assert proved(anna.results("b", 1)[0])
        for method in (bert.get_batch, bert.list_batch, bert.cancel_batch, bert.delete_batch):
            assert refusal(lambda method=method: method("b")).reason == "UNKNOWN_BATCH"
        assert refusal(lambda: Caller(client).get_batch("b")).reason == "TOKEN_MISSING"
        done = metrics(served)[OK]
        bert.add_batch("b", id="x", request=sgpr(small_mir()))
        assert proved(bert.results("b", 1)[0])
        assert metrics(served)[OK] == done + 1, "bert can see what anna has asked"


def test_what_is_no_request_is_refused(tmp_path: Path) -> None:
    with batching_server(tmp_path) as (served, client):
        caller = Caller(client)
        for batch, id_ in (("", "x"), ("../x", "x"), ("x" * 65, "x"), ("a b", "x"), ("b", ""), ("b", "x" * 257)):
            failed = refusal(lambda batch=batch, id_=id_: caller.add_batch(batch, id=id_, request=sgpr(small_mir())))
            assert failed.reason == "MALFORMED_REQUEST", (batch, id_)
        caller.add_batch("b", id="x", request=sgpr(small_mir()))
        failed = refusal(lambda: caller.add_batch("b", id="x", request=sgpr(small_mir(5))))
        assert (failed.code, failed.reason) == (StatusCode.ALREADY_EXISTS, "ID_TAKEN")
        for after, most in ((-1, 0), (0, -1)):
            failed = refusal(lambda after=after, most=most: caller.list_batch("b", after=after, max_results=most))
            assert failed.reason == "MALFORMED_REQUEST"
        for method, data in (
            ("AddToBatch", b"\xff"), ("AddToBatch", b"\x0a\x01b\x0a\x01b"),
            ("AddToBatch", b"\x0a\x02\xff\xfe\x12\x01x"),
            ("GetBatch", b"\xff"), ("GetBatch", b"\x0a\xff\x7f" + b"b" * 5000), ("ListBatchResults", b"\x12"),
        ):  # fmt: skip
            call: Any = client.channel.unary_unary(f"/verilocc.v1.BatchService/{method}")
            assert refusal(lambda call=call, data=data: call(data, timeout=SECONDS)).reason == "MALFORMED_REQUEST"
        # A request of millions of empty entries is a worker's to read.
        bomb = batching.AddToBatchRequest(batch="b", id="bomb").SerializeToString()
        entries = b"\x12\x00" * (4 << 20)
        inner = b"\x12" + _varint(len(entries)) + entries
        add: Any = client.channel.unary_unary("/verilocc.v1.BatchService/AddToBatch")
        add(bomb + b"\x1a" + _varint(len(inner)) + inner, timeout=SECONDS)
        results = caller.results("b", 2)
        assert {r.id for r in results} == {"x", "bomb"}
        check_statuses(served)


def _varint(number: int) -> bytes:
    data = b""
    while number > 127:
        data, number = data + bytes([number & 127 | 128]), number >> 7
    return data + bytes([number])


@pytest.mark.long
def test_an_answer_that_was_changed_is_made_again(tmp_path: Path) -> None:
    """Forged, damaged, swapped, a pipe, or gone: none is served, and the batch ends with proved answers."""
    batches = tmp_path / "batches"
    with batching_server(tmp_path) as (served, client):
        for n in (3, 5, 7):
            Caller(client).add_batch("b", id=str(n), request=mir_request(small_mir(n), return_mir=True))
        before = {r.id: r.response.mir for r in Caller(client).results("b", 3)}
        assert served.stop() == 0
    with contextlib.closing(sqlite3.connect(batches / "book.sqlite")) as book:
        keys = [row[0] for row in book.execute("SELECT answer FROM requests ORDER BY number")]
    paths = [batches / "content" / key[:2] / key for key in keys]
    data = paths[0].read_bytes()
    paths[0].write_bytes(data.replace(b"s_", b"v_", 1) if b"s_" in data else data[:-1] + bytes([data[-1] ^ 1]))
    paths[1].write_bytes(paths[2].read_bytes())
    paths[2].unlink()
    with batching_server(tmp_path) as (served, client):
        caller = Caller(client)
        assert not caller.list_batch("b").results
        assert {r.id: r.response.mir for r in caller.results("b", 3)} == before
        assert any("is not used" in e.get("message", "") for e in served.events())
        assert served.stop() == 0
    # A request that is lost is a result too.
    with contextlib.closing(sqlite3.connect(batches / "book.sqlite")) as book:
        (key, answer) = book.execute("SELECT request, answer FROM requests ORDER BY number").fetchone()
    for lost in (key, answer):
        (batches / "content" / lost[:2] / lost).unlink()
    with batching_server(tmp_path) as (served, client):
        caller = Caller(client)
        caller.list_batch("b")
        lost = next(r for r in caller.results("b", 3) if r.id == "3")
        assert (lost.error.code, lost.error.reason) == (15, "REQUEST_LOST")


@pytest.mark.long
def test_a_directory_that_others_may_write_or_another_server_has(tmp_path: Path) -> None:
    with batching_server(tmp_path):
        assert "another server has these batches" in start_fails(
            "--listen=127.0.0.1:0", f"--batches={tmp_path / 'batches'}"
        )
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    assert "others may write" in start_fails("--listen=127.0.0.1:0", f"--batches={shared}")
    (tmp_path / "file").touch()
    assert "cannot be kept there" in start_fails("--listen=127.0.0.1:0", f"--batches={tmp_path / 'file' / 'b'}")


def test_limits_and_age(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1e9
    book = Book(tmp_path / "b", 1000, lambda: now)
    book.add("me", "old", "x", b"1" * 600)
    with pytest.raises(ServiceError, match="BATCHES_FULL"):
        book.add("me", "old", "y", b"2" * 600)
    book.add("you", "old", "y", b"2" * 600)
    monkeypatch.setattr(batches, "MOST_REQUESTS", 2)
    book.add("me", "old", "y", b"2")
    with pytest.raises(ServiceError, match="BATCHES_FULL"):
        book.add("me", "old", "z", b"3")
    now += batches.KEEP_SECONDS + 1
    book.add("me", "new", "x", b"1" * 600)
    with pytest.raises(ServiceError, match="UNKNOWN_BATCH"):
        book.batch("me", "old")
    assert book.batch("me", "new").requests == 1
    book.close()


@pytest.mark.long
def test_the_example(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for n in (3, 5):
        (tmp_path / "in" / f"k{n}.mir").write_text(small_mir(n))
    (tmp_path / "in" / "bad.mir").write_text("nothing")
    files = sorted((tmp_path / "in").iterdir())
    with batching_server(tmp_path) as (served, _):
        example = REPOSITORY / "examples" / "service" / "batch.py"
        done = subprocess.run(
            [sys.executable, str(example), served.address, "b", *map(str, files),
             "--target=gfx942", "--phase=sgpr", f"--into={tmp_path / 'out'}"],
            capture_output=True, text=True, check=False, timeout=SECONDS, cwd=REPOSITORY,
        )  # fmt: skip
    assert (done.returncode, done.stdout) == (1, "2 of 3 proved\n"), done
    assert done.stderr.startswith("bad.mir: ")
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"k3.mir", "k5.mir"}
    request = mir_request(small_mir(3), name="k3.mir", return_mir=True)
    with batching_server(tmp_path) as (_, client):
        assert (tmp_path / "out" / "k3.mir").read_bytes() == client.allocation.Allocate(request, timeout=SECONDS).mir


def test_without_a_directory_there_is_no_such_service(served: Served, client: Client) -> None:
    refused = refusal(lambda: Caller(client).get_batch("b"))
    assert (refused.code, refused.reason) == (StatusCode.UNIMPLEMENTED, "NO_BATCHES")
    assert "started without --batches=DIR" in refused.message
