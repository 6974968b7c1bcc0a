"""Whatever dies, hangs or goes away: a documented status in time, and the next request is answered."""

from __future__ import annotations

import os
import queue
import signal
from pathlib import Path
from typing import Any

import pytest
from grpc import StatusCode
from process_support import children, gone, until
from service_support import (
    EXHAUSTED,
    LATE,
    LOST,
    SECONDS,
    Client,
    Served,
    answered,
    check_alive,
    numbers,
    refusal,
    said,
    sgpr,
    small_mir,
)
from support import few, long

from verilocc.v1 import allocation_service_pb2 as allocation


@pytest.mark.long
def test_a_worker_killed_in_its_work_costs_no_answer(served: Served, client: Client, notes: Path) -> None:
    call = client.allocation.Allocate.future(sgpr(small_mir(), "waits"), timeout=SECONDS)
    (first,) = numbers(notes / "pids", 1)
    os.kill(first, signal.SIGKILL)
    _, second = numbers(notes / "pids", 2)
    assert second != first
    (notes / "go").touch()
    assert call.result().functions[0].allocator == "waits"
    check_alive(client)


@pytest.mark.long
def test_a_request_that_loses_two_workers_is_given_up(client: Client, notes: Path) -> None:
    call = client.allocation.Allocate.future(sgpr(small_mir(), "waits"), timeout=SECONDS)
    for tried in (1, 2):
        os.kill(numbers(notes / "pids", tried)[-1], signal.SIGKILL)
    failed = refusal(call.result)
    assert (failed.code, failed.reason) == LOST
    check_alive(client)


@pytest.mark.long
def test_an_idle_worker_that_died_is_not_missed(served: Served, client: Client, notes: Path) -> None:
    (notes / "go").touch()
    client.allocation.Allocate(sgpr(small_mir(), "waits"), timeout=SECONDS)
    (pid,) = numbers(notes / "pids", 1)
    os.kill(pid, signal.SIGKILL)
    assert gone(pid)
    check_alive(client)


@pytest.mark.parametrize(
    ("name", "expected"),
    few(
        [("crashes", LOST), ("eats-natively", EXHAUSTED)],
        [("exits", LOST), ("crashes", LOST), ("quits", LOST), ("interrupts", LOST), ("eats", EXHAUSTED),
         ("eats-natively", EXHAUSTED)],
    ),
)  # fmt: skip
def test_what_an_allocator_does_to_its_process_is_a_status(
    client: Client, name: str, expected: tuple[StatusCode, str]
) -> None:
    assert said(client, sgpr(small_mir(), name)) == expected
    check_alive(client)


@pytest.mark.parametrize("name", ["hangs", *long("spins")])
def test_a_worker_that_hangs_is_replaced_at_the_deadline(client: Client, notes: Path, name: str) -> None:
    assert said(client, sgpr(small_mir(), name)) == LATE
    (pid,) = numbers(notes / "pids", 1)
    assert gone(pid)
    check_alive(client)


def test_short_deadlines_do_not_keep_a_worker_from_starting(client: Client, notes: Path) -> None:
    """The worker gives each of these up."""
    for _ in range(3):
        failed = refusal(lambda: client.allocation.Allocate(sgpr(small_mir(), "hangs"), timeout=0.3))
        assert failed.code is StatusCode.DEADLINE_EXCEEDED
    until(lambda: answered(client, 0.5), "an answer within half a second")


def test_a_stuck_solver_costs_the_request_its_time_and_no_more(served: Served, client: Client) -> None:
    """The solver of the worker is stopped, as if it never came to an end; it is ended with its worker."""
    check_alive(client)
    (worker,) = children(served.pid)
    (solver,) = children(worker)
    os.kill(solver, signal.SIGSTOP)
    assert said(client, sgpr(small_mir(4))) == LATE
    assert gone(worker)
    assert gone(solver)
    check_alive(client)


@pytest.mark.parametrize("allocator", ["hangs", "spins"])
def test_a_worker_gives_up_what_nobody_waits_for_and_has_the_next_request(
    served: Served, client: Client, notes: Path, allocator: str
) -> None:
    call = client.allocation.Allocate.future(sgpr(small_mir(), allocator), timeout=SECONDS)
    (pid,) = numbers(notes / "pids", 1)
    solvers = children(pid)
    call.cancel()
    served.event("given up", pid=pid, kept=True)
    check_alive(client)
    # The very process, with the solver that it had.
    assert children(served.pid) == [pid]
    assert children(pid) == solvers


def test_a_worker_that_does_not_give_up_is_ended_and_the_wait_for_another_is_said(
    served: Served, client: Client, notes: Path
) -> None:
    call = client.allocation.Allocate.future(sgpr(small_mir(), "deaf"), timeout=SECONDS)
    (pid,) = numbers(notes / "pids", 1)
    call.cancel()
    answer = client.allocation.Allocate(sgpr(small_mir()), timeout=SECONDS)
    served.event("given up", pid=pid, kept=False)
    assert gone(pid)
    # No worker was ready: one had to start first, and both the answer and the log say so.
    waited = answer.queue_time.ToTimedelta().total_seconds()
    assert waited > 0.1
    served.event("answered", waited=pytest.approx(waited, abs=1e-4))  # the log rounds to four places


def test_a_client_that_goes_away_ends_the_work_and_all_it_started(client: Client, notes: Path) -> None:
    call = client.allocation.Allocate.future(sgpr(small_mir(), "spawns"), timeout=SECONDS)
    (pid,) = numbers(notes / "pids", 1)
    children = numbers(notes / "children", 2)
    call.cancel()
    assert all(map(gone, (pid, *children)))
    check_alive(client)


@pytest.mark.long
def test_a_client_of_a_stream_that_goes_away_ends_its_work(served: Served, client: Client, notes: Path) -> None:
    to_send: queue.Queue[Any] = queue.Queue()
    answers = client.allocation.AllocateStream(iter(to_send.get, None), timeout=SECONDS)
    to_send.put(allocation.AllocateStreamRequest(request=sgpr(small_mir(), "hangs")))
    (pid,) = numbers(notes / "pids", 1)
    answers.cancel()
    to_send.put(None)
    served.event("given up", pid=pid, kept=True)
    check_alive(client)
