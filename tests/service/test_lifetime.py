"""The start of a server, its end, and what must not outlive it."""

from __future__ import annotations

import queue
import signal
from pathlib import Path
from typing import Any

import pytest
from grpc import StatusCode
from grpc_health.v1 import health_pb2
from process_support import children, gone
from service_support import (
    LOST,
    SECONDS,
    check_alive,
    connected,
    health,
    numbers,
    refusal,
    serving,
    serving_terms,
    sgpr,
    small_mir,
    start_fails,
    wait_until_waiting,
)

from verilocc.v1 import allocation_service_pb2 as allocation


@pytest.mark.long
def test_an_address_in_use(tmp_path: Path) -> None:
    with serving("--metrics=127.0.0.1:0", listen=f"unix:{tmp_path}/s") as served, connected(served.address) as client:
        assert "in use" in start_fails(f"--listen=unix:{tmp_path}/s")
        check_alive(client)
        port = served.event("metrics")["port"]
        assert f"127.0.0.1:{port}" in start_fails(f"--listen=127.0.0.1:{port}")
        assert f"127.0.0.1:{port}" in start_fails(f"--listen=unix:{tmp_path}/t", f"--metrics=127.0.0.1:{port}")
        assert not (tmp_path / "t").exists()
        assert served.stop() == 0


@pytest.mark.long
def test_bad_addresses(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("kept")
    for address, words in {
        "0.0.0.0:0": "there is no TLS",
        "[::]:0": "there is no TLS",
        "nonsense": "is not HOST:PORT",
        "127.0.0.1:99999": "is not HOST:PORT",
        f"unix:{tmp_path}/none/s": "there is no directory",
        f"unix:{tmp_path}/file": "is there and no socket",
    }.items():
        assert words in start_fails(f"--listen={address}")
    assert (tmp_path / "file").read_text() == "kept"


def test_what_says_that_it_is_ready_has_its_solvers(tmp_path: Path) -> None:
    """Nobody has asked anything yet."""
    with serving(listen=f"unix:{tmp_path}/s") as served, connected(served.address) as client:
        assert health(client.channel).Check(health_pb2.HealthCheckRequest()).status == 1
        workers = children(served.pid)
        assert [len(children(worker)) for worker in workers] == [1, 1]
        solvers = [children(worker) for worker in workers]
        check_alive(client)
        assert [children(worker) for worker in workers] == solvers


@pytest.mark.long
def test_a_server_whose_solver_does_not_load_is_not_ready(tmp_path: Path) -> None:
    (tmp_path / "z3").mkdir()
    (tmp_path / "z3" / "__init__.py").write_text("raise ImportError('a library that is not there')\n")
    said = start_fails(f"--listen=unix:{tmp_path}/s", PYTHONPATH=str(tmp_path))
    assert "the solver does not answer: " in said
    assert "a library that is not there" in said
    assert not (tmp_path / "s").exists()


@pytest.mark.long
def test_terms_that_cannot_be_loaded_are_one_message(tmp_path: Path) -> None:
    with serving_terms(f"unix:{tmp_path}/s", terms="no_such_module:TERMS") as served:
        assert served.process.wait(SECONDS) != 0
        assert not (tmp_path / "s").exists()


def test_the_end_waits_for_what_was_accepted(tmp_path: Path) -> None:
    """Under load, after it had nothing to do: two in work, two waiting, a stream; new ones are told to go elsewhere;
    nothing is left.
    """
    path = tmp_path / "socket"
    environment = {"VERILOCC_TEST_DIRECTORY": str(tmp_path)}
    limits = {"workers": 2, "max_waiting": 8}
    with serving_terms(f"unix:{path}", limits=limits, environment=environment, metrics="127.0.0.1:0") as served:
        with connected(served.address) as client:
            watching = health(client.channel).Watch(health_pb2.HealthCheckRequest(service="verilocc.v1.AuditService"))
            assert next(watching).status == health_pb2.HealthCheckResponse.SERVING
            check_alive(client)
            to_send: queue.Queue[Any] = queue.Queue()
            answers = client.allocation.AllocateStream(iter(to_send.get, None), timeout=SECONDS)
            to_send.put(allocation.AllocateStreamRequest(id="one", request=sgpr(small_mir(), "waits")))
            pids = numbers(tmp_path / "pids", 1)
            calls = [client.allocation.Allocate.future(sgpr(small_mir(), "waits"), timeout=SECONDS) for _ in range(3)]
            pids = numbers(tmp_path / "pids", 2)
            wait_until_waiting(served, 2)
            left = served.descendants()
            assert set(pids) <= left
            served.process.send_signal(signal.SIGTERM)
            draining = served.event("draining")
            assert (draining["busy"], draining["waiting"]) == (2, 2)
            assert next(watching).status == health_pb2.HealthCheckResponse.NOT_SERVING
            failed = refusal(lambda: client.allocation.Allocate(sgpr(small_mir()), timeout=SECONDS))
            assert (failed.code, failed.reason) == (StatusCode.UNAVAILABLE, "DRAINING")
            to_send.put(allocation.AllocateStreamRequest(id="late", request=sgpr(small_mir())))
            (tmp_path / "go").touch()
            assert [c.result().functions[0].allocator for c in calls] == ["waits"] * 3
            assert next(answers).id == "one"
            ended = refusal(lambda: next(answers))
            assert (ended.code, ended.reason) == (StatusCode.UNAVAILABLE, "DRAINING")
            to_send.put(None)
            assert served.process.wait(SECONDS) == 0
        assert all(map(gone, left))
        assert not path.exists()
        assert served.event("ended")["finished"] is True


@pytest.mark.long
def test_a_second_signal_does_not_wait(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    environment = {"VERILOCC_TEST_DIRECTORY": str(tmp_path)}
    with (
        serving_terms(f"unix:{path}", limits={"workers": 1}, environment=environment, metrics="127.0.0.1:0") as served,
        connected(served.address) as client,
    ):
        calls = [client.allocation.Allocate.future(sgpr(small_mir(), "spawns"), timeout=SECONDS) for _ in range(2)]
        (pid,) = numbers(tmp_path / "pids", 1)
        wait_until_waiting(served, 1)
        left = {pid, *numbers(tmp_path / "children", 2), *served.descendants()}
        served.process.send_signal(signal.SIGTERM)
        served.event("draining")
        assert served.stop() == 130
        failures = [refusal(c.result) for c in calls]
        assert {f.code for f in failures} == {StatusCode.UNAVAILABLE}
        assert {f.reason for f in failures} <= {"WORKER_LOST", "DRAINING"}
        assert all(map(gone, left))
        assert not path.exists()
        assert served.event("ended")["finished"] is False


@pytest.mark.long
def test_calls_that_outlast_the_time_to_drain_are_given_up(tmp_path: Path) -> None:
    environment = {"VERILOCC_TEST_DIRECTORY": str(tmp_path)}
    with (
        serving_terms(f"unix:{tmp_path}/s", environment=environment, drain_seconds=0.2) as served,
        connected(served.address) as client,
    ):
        call = client.allocation.Allocate.future(sgpr(small_mir(), "hangs"), timeout=SECONDS)
        numbers(tmp_path / "pids", 1)
        assert served.stop() == 130
        failed = refusal(call.result)
        assert (failed.code, failed.reason) == LOST


@pytest.mark.long
def test_nothing_outlives_a_server_that_is_killed(tmp_path: Path) -> None:
    environment = {"VERILOCC_TEST_DIRECTORY": str(tmp_path)}
    with (
        serving_terms(f"unix:{tmp_path}/s", environment=environment) as served,
        connected(served.address) as client,
    ):
        check_alive(client)
        call = client.allocation.Allocate.future(sgpr(small_mir(), "spawns"), timeout=SECONDS)
        left = {*numbers(tmp_path / "pids", 1), *numbers(tmp_path / "children", 2), *served.descendants()}
        served.stop(signal.SIGKILL)
        assert all(map(gone, left))
        assert refusal(call.result).code is StatusCode.UNAVAILABLE
        # The socket that it left is no obstacle.
        with serving(listen=f"unix:{tmp_path}/s") as again, connected(again.address) as next_client:
            check_alive(next_client)
