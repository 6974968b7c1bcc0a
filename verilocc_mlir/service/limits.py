"""Limits of a server, with their defaults."""

from __future__ import annotations

import asyncio
import math
import resource
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from grpc import StatusCode

from verilocc_mlir.service.status import ServiceError

OPEN_CALLS = 16
"""Calls of health and reflection, which need no token, that a connection may have open."""
_OTHER_CALLS = 64


@dataclass(frozen=True)
class ServerLimits:
    """Limits of requests; GetCapabilities shows them.

    Attributes:
        max_seconds: wall time of a call, however late its deadline.
        default_seconds: wall time of a call without a deadline.
        memory_mib: address space of a worker.
        streams: requests of one stream that are worked on at once.
        caller_workers, caller_waiting: as ``workers`` and ``max_waiting``, of one caller; None: all of them.
        caller_cpu: see ``CallerLimits``.
    """

    max_request_bytes: int = 32 << 20
    max_seconds: float = 600.0
    default_seconds: float = 120.0
    memory_mib: int = 2048
    workers: int = 2
    max_waiting: int = 64
    streams: int = 2
    caller_workers: int | None = None
    caller_waiting: int | None = None
    caller_cpu: float = 0.0

    @property
    def max_calls(self) -> int:
        """Calls of both services that may be open at once: twice as many as have a worker or wait for one, and some
        more that need no worker (capabilities, streams). So the pool is what refuses a call too many.
        """
        return 2 * (self.workers + self.max_waiting) + _OTHER_CALLS

    @property
    def caller_calls(self) -> int:
        """How many of them one caller may have."""
        return self.max_calls // 2

    @property
    def connection_streams(self) -> int:
        """Calls of all methods that a connection may have open; gRPC refuses more itself, and its clients wait."""
        return self.workers + self.max_waiting + OPEN_CALLS

    @property
    def connections(self) -> int:
        """Half of the files that the process may open: what the workers need stays."""
        return resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2

    @property
    def caller(self) -> CallerLimits:
        """What the pool gives one caller."""
        workers = self.workers if self.caller_workers is None else self.caller_workers
        waiting = self.max_waiting if self.caller_waiting is None else self.caller_waiting
        return CallerLimits(workers, waiting, self.caller_cpu)


# Whose request has the next worker: callers take turns, so that none of them holds all workers or the whole queue.


WINDOW_SECONDS = 600.0
"""Time constant in which what a caller has spent is forgotten."""
_MOST_ACCOUNTS = 1000
_LEAST_RETRY_SECONDS = 1.0


@dataclass(frozen=True)
class CallerLimits:
    """What one caller may have.

    Attributes:
        workers: requests that are worked on at once.
        waiting: requests that wait beyond those.
        cpu: CPU seconds a second, on average over ``WINDOW_SECONDS``; 0 for any.
    """

    workers: int
    waiting: int
    cpu: float = 0.0


@dataclass
class _Account:
    """What a caller has now, and has spent of late: CPU seconds, forgotten exponentially."""

    working: int = 0
    queue: deque[tuple[int, asyncio.Future[None]]] = field(default_factory=deque[tuple[int, "asyncio.Future[None]"]])
    _spent: float = 0.0
    _at: float = 0.0

    def spent(self, now: float) -> float:
        return self._spent * math.exp((self._at - now) / WINDOW_SECONDS)

    def spend(self, seconds: float, now: float) -> None:
        self._spent, self._at = self.spent(now) + seconds, now


class Turns:
    """Places of ``workers``. The next one goes to the caller that has the fewest, then to who has spent least."""

    def __init__(self, workers: int, each: CallerLimits, clock: Callable[[], float] = time.monotonic) -> None:
        self._free = workers
        self._each = each
        self._clock = clock
        self._arrivals = 0
        self._accounts: dict[str, _Account] = {}

    def check(self, caller: str) -> str:
        """Why the caller may not have a further request waiting, as things are; ``""`` if it may.

        Raises:
            ServiceError: QUOTA_EXCEEDED, with the time after which it may ask again.
        """
        account = self._account(caller)
        limit = self._each.cpu * WINDOW_SECONDS
        if limit and (over := account.spent(self._clock()) / limit) >= 1:
            raise ServiceError(
                StatusCode.RESOURCE_EXHAUSTED,
                "QUOTA_EXCEEDED",
                f"this caller has used {over * limit:.0f} CPU seconds of late, {limit:.0f} are allowed",
                max(WINDOW_SECONDS * math.log(over), _LEAST_RETRY_SECONDS),
            )
        if account.working + len(account.queue) >= self._each.workers + self._each.waiting:
            return f"{account.working} requests of this caller are worked on and {len(account.queue)} wait"
        return ""

    async def take(self, caller: str) -> None:
        """Wait for a place; cancelled, it takes none."""
        account = self._account(caller)
        self._arrivals += 1
        turn = (self._arrivals, asyncio.get_running_loop().create_future())
        account.queue.append(turn)
        self._hand_out()
        try:
            await turn[1]
        except BaseException:
            if turn in account.queue:
                account.queue.remove(turn)
            elif not turn[1].cancelled():
                self.give_back(caller, 0.0)
            raise

    def give_back(self, caller: str, cpu_seconds: float) -> None:
        """The caller's request is done, and cost so much."""
        account = self._account(caller)
        account.working -= 1
        account.spend(cpu_seconds, self._clock())
        self._free += 1
        self._hand_out()

    def _hand_out(self) -> None:
        while self._free:
            now = self._clock()
            able = [a for a in self._accounts.values() if a.queue and a.working < self._each.workers]
            if not able:
                return
            account = min(able, key=lambda a: (a.working, a.spent(now), a.queue[0][0]))
            _, turn = account.queue.popleft()
            if turn.done():  # cancelled just now
                continue
            account.working += 1
            self._free -= 1
            turn.set_result(None)

    def _account(self, caller: str) -> _Account:
        if caller not in self._accounts and len(self._accounts) >= _MOST_ACCOUNTS:
            self._accounts = {c: a for c, a in self._accounts.items() if a.working or a.queue}
        return self._accounts.setdefault(caller, _Account())
