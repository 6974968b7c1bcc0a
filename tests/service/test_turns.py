"""Callers take turns: none holds all workers, the whole queue, or more CPU time than is its share."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from grpc import StatusCode
from service_support import (
    SECONDS,
    connected,
    numbers,
    refusal,
    serving_terms,
    sgpr,
    small_mir,
    token_line,
    wait_until_waiting,
)

from verilocc.v1 import allocation_service_pb2 as allocation
from verilocc_mlir.service.limits import WINDOW_SECONDS, CallerLimits, Turns
from verilocc_mlir.service.status import ServiceError

LIMITS = CallerLimits(workers=2, waiting=3)


class Clock:
    """Seconds that pass when they are told to."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Queue:
    """Requests that ask for a turn, and have had theirs in ``order``."""

    def __init__(self, turns: Turns) -> None:
        self.turns = turns
        self.order: list[str] = []
        self.tasks: dict[str, asyncio.Task[None]] = {}

    async def ask(self, *names: str) -> None:
        """Each name is the caller's, and a number."""
        for name in names:
            self.tasks[name] = asyncio.create_task(self._take(name))
            await _settled()

    async def done(self, caller: str, cpu_seconds: float = 0.0) -> None:
        self.turns.give_back(caller, cpu_seconds)
        await _settled()

    async def _take(self, name: str) -> None:
        await self.turns.take(name[0])
        self.order.append(name)


async def _settled() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def _run(test: Callable[[], Awaitable[None]]) -> None:
    async def whole() -> None:
        await test()

    asyncio.run(whole())


def test_one_caller_is_served_in_order_and_has_all_places() -> None:
    async def test() -> None:
        queue = Queue(Turns(2, LIMITS))
        await queue.ask("a1", "a2", "a3", "a4")
        assert queue.order == ["a1", "a2"]
        await queue.done("a")
        await queue.done("a")
        assert queue.order == ["a1", "a2", "a3", "a4"]

    _run(test)


def test_the_next_place_goes_to_who_has_the_fewest() -> None:
    async def test() -> None:
        queue = Queue(Turns(2, LIMITS))
        await queue.ask("a1", "a2", "a3", "a4", "b1", "b2")
        await queue.done("a")
        assert queue.order[2:] == ["b1"]
        await queue.done("a")
        assert queue.order[3:] == ["a3"]

    _run(test)


def test_of_two_with_as_many_it_goes_to_who_has_spent_less_of_late() -> None:
    async def test() -> None:
        clock = Clock()
        queue = Queue(Turns(1, LIMITS, clock))
        await queue.ask("a1", "a2", "b1")
        await queue.done("a", 10.0)
        assert queue.order == ["a1", "b1"]
        await queue.ask("b2")
        await queue.done("b", 20.0)
        assert queue.order[2:] == ["a2"]
        await queue.ask("a3")
        # What is long ago counts less: now b has spent less than a.
        clock.now = 10 * WINDOW_SECONDS
        await queue.done("a", 1.0)
        assert queue.order[3:] == ["b2"]

    _run(test)


def test_a_place_stays_free_for_others() -> None:
    async def test() -> None:
        queue = Queue(Turns(2, CallerLimits(workers=1, waiting=3)))
        await queue.ask("a1", "a2")
        assert queue.order == ["a1"]
        await queue.ask("b1")
        assert queue.order == ["a1", "b1"]
        await queue.done("b")
        assert queue.order == ["a1", "b1"]
        await queue.done("a")
        assert queue.order == ["a1", "b1", "a2"]

    _run(test)


def test_who_is_cancelled_takes_no_place() -> None:
    """Waiting, just handed a place, and both at once."""

    async def test() -> None:
        queue = Queue(Turns(1, LIMITS))
        await queue.ask("a1", "a2", "a3", "a4")
        queue.tasks["a2"].cancel()
        await queue.done("a")
        assert queue.order == ["a1", "a3"]
        queue.turns.give_back("a", 0.0)
        queue.tasks["a4"].cancel()
        await _settled()
        await queue.ask("b1")
        assert queue.order == ["a1", "a3", "b1"]
        await queue.ask("b2")
        queue.tasks["b2"].cancel()
        queue.turns.give_back("b", 0.0)
        await _settled()
        await queue.ask("b3")
        assert queue.order == ["a1", "a3", "b1", "b3"]

    _run(test)


def test_a_caller_fills_its_part_of_the_queue_and_no_more() -> None:
    async def test() -> None:
        queue = Queue(Turns(2, LIMITS))
        assert queue.turns.check("a") == ""
        await queue.ask("a1", "a2", "a3", "a4", "a5")
        assert queue.turns.check("a") == "2 requests of this caller are worked on and 3 wait"
        assert queue.turns.check("b") == ""
        for task in queue.tasks.values():
            task.cancel()

    _run(test)


def test_who_has_spent_its_share_is_told_when_to_come_back() -> None:
    async def test() -> None:
        clock = Clock()
        turns = Turns(1, CallerLimits(1, 1, cpu=0.5), clock)
        for _ in range(2):
            await turns.take("a")
            turns.give_back("a", WINDOW_SECONDS / 2)
        with pytest.raises(ServiceError, match="600 CPU seconds of late, 300 are allowed") as refused:
            turns.check("a")
        assert (refused.value.code, refused.value.reason) == (StatusCode.RESOURCE_EXHAUSTED, "QUOTA_EXCEEDED")
        assert turns.check("b") == ""
        assert refused.value.retry_seconds is not None
        clock.now += refused.value.retry_seconds * 1.001
        assert turns.check("a") == ""

    _run(test)


def test_a_slow_caller_does_not_hold_all_workers(tmp_path: Path) -> None:
    """One of two workers is left to others; and what a caller may use of them is bounded."""
    (tmp_path / "tokens").write_text(token_line("slow", "slow") + token_line("good", "good"))
    with (
        serving_terms(
            f"unix:{tmp_path}/s", limits={"workers": 2, "caller_workers": 1, "caller_waiting": 1, "caller_cpu": 1e-9},
            tokens=str(tmp_path / "tokens"), metrics="127.0.0.1:0",
            environment={"VERILOCC_TEST_DIRECTORY": str(tmp_path)},
        ) as served,
        connected(served.address) as client,
    ):  # fmt: skip
        slow, good = ((("authorization", f"Bearer {token}"),) for token in ("slow", "good"))
        hanging = [
            client.allocation.Allocate.future(sgpr(small_mir(), "hangs"), timeout=SECONDS, metadata=slow)
            for _ in range(2)
        ]
        numbers(tmp_path / "pids", 1)
        wait_until_waiting(served, 1)
        failed = refusal(lambda: client.allocation.Allocate(sgpr(small_mir()), timeout=SECONDS, metadata=slow))
        assert (failed.code, failed.reason) == (StatusCode.RESOURCE_EXHAUSTED, "OVERLOADED")
        assert client.allocation.Allocate(sgpr(small_mir()), timeout=SECONDS, metadata=good).functions
        assert not any(call.done() for call in hanging)
        failed = refusal(lambda: client.allocation.Allocate(sgpr(small_mir()), timeout=SECONDS, metadata=good))
        assert (failed.code, failed.reason) == (StatusCode.RESOURCE_EXHAUSTED, "QUOTA_EXCEEDED")
        assert failed.retry
        limits = client.allocation.GetCapabilities(allocation.GetCapabilitiesRequest(), metadata=good).limits
        assert (limits.caller_workers, limits.caller_waiting, limits.caller_cpu_share) == (1, 1, 1e-9)
        for call in hanging:
            call.cancel()
