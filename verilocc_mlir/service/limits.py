"""Limits of a server, with their defaults."""

from __future__ import annotations

import resource
from dataclasses import dataclass

from verilocc_mlir.service.turns import CallerLimits

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
