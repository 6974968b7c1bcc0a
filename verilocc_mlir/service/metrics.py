"""Prometheus metrics of a server."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from verilocc_mlir.errors import InputError
from verilocc_mlir.service.pool import PoolCounts

_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)


@dataclass(frozen=True, eq=False)
class _PoolCollector(Collector):
    counts: PoolCounts

    def collect(self) -> Iterable[Metric]:
        """The counts as they are now."""
        counts = self.counts
        yield GaugeMetricFamily("verilocc_workers_busy", "Requests that are worked on.", counts.busy)
        yield GaugeMetricFamily("verilocc_workers_waiting", "Requests that wait for a worker.", counts.waiting)
        for name, description in (
            ("started", "Worker processes started."),
            ("lost", "Worker processes that ended by themselves."),
            ("killed", "Worker processes ended: time, cancellation, memory, age."),
        ):
            yield CounterMetricFamily(f"verilocc_workers_{name}", description, getattr(counts, name))


class Metrics:
    """What a server counts, in a registry of its own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter(
            "verilocc_requests_total", "Requests by method, status code and reason.", ("method", "code", "reason"),
            registry=self.registry,
        )  # fmt: skip
        self.seconds = Histogram(
            "verilocc_request_seconds", "Wall time of requests, waiting included.", ("method",), buckets=_SECONDS,
            registry=self.registry,
        )  # fmt: skip
        self.cpu_seconds = Counter(
            "verilocc_worker_cpu_seconds_total", "CPU time of workers.", ("method",), registry=self.registry
        )
        self.functions = Counter(
            "verilocc_functions_total", "Functions by outcome and by whose allocation was taken.",
            ("method", "outcome", "allocator"), registry=self.registry,
        )  # fmt: skip
        self.attempts = Counter(
            "verilocc_attempts_total", "Attempts of allocators, by the step that decided.", ("allocator", "ended"),
            registry=self.registry,
        )  # fmt: skip

        self.open_calls = Gauge("verilocc_open_calls", "Calls of all methods that are open.", registry=self.registry)

    def watch(self, counts: PoolCounts) -> None:
        """Show a pool's counts."""
        self.registry.register(_PoolCollector(counts))

    def serve(self, host: str, port: int) -> int:
        """Answer scrapes over HTTP in a thread; returns the port (another than given if that is 0).

        Raises:
            InputError: the address cannot be bound.
        """
        try:
            server, _ = start_http_server(port, addr=host, registry=self.registry)
        except (OSError, OverflowError) as error:
            raise InputError(f"metrics cannot be served at {host}:{port}: {error}") from error
        return int(server.server_port)
