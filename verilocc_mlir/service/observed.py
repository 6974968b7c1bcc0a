"""What a server shows of itself: Prometheus metrics, and OpenTelemetry traces."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from opentelemetry import trace
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter, SpanExporter
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from verilocc_mlir.errors import InputError
from verilocc_mlir.remote.wire import number
from verilocc_mlir.service.pool import PoolCounts
from verilocc_mlir.service.status import ServiceError
from verilocc_mlir.version import __version__

# Prometheus metrics of a server.


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


# OpenTelemetry traces: one span a request, continued from the caller's where it sends ``traceparent``.
#
# The API does nothing until an SDK is set up: by the program around the server, or here for ``verilocc serve
# --traces``.


_PROPAGATOR = TraceContextTextMapPropagator()


def set_up(exporter: str) -> TracerProvider:
    """Export spans: ``"console"``, or ``"otlp"`` as the OTEL_EXPORTER_OTLP_* variables say.

    Raises:
        InputError: the exporter is not installed.
    """
    provider = TracerProvider(resource=Resource.create({"service.name": "verilocc", "service.version": __version__}))
    provider.add_span_processor(BatchSpanProcessor(_exporter(exporter)))
    trace.set_tracer_provider(provider)
    return provider


def _exporter(name: str) -> SpanExporter:
    if name == "console":
        return ConsoleSpanExporter()
    try:
        from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import (  # pyright: ignore
            OTLPSpanExporter,  # pyright: ignore
        )
    except ImportError as error:
        raise InputError(
            "the OTLP exporter is not installed", hint="pip install opentelemetry-exporter-otlp-proto-grpc"
        ) from error
    return OTLPSpanExporter()  # pyright: ignore


@contextmanager
def request_span(method: str, metadata: Mapping[str, str]) -> Generator[trace.Span, None, None]:
    """A server span around one request."""
    parent = _PROPAGATOR.extract(dict(metadata))
    tracer = trace.get_tracer("verilocc.service", __version__)
    # A refusal says itself what it is (see ``refused``); the exception that ends the call says nothing of it.
    with tracer.start_as_current_span(
        method, parent, kind=trace.SpanKind.SERVER, record_exception=False, set_status_on_exception=False
    ) as span:
        yield span


def refused(error: ServiceError) -> None:
    """Have the current span say with which code and reason its request was refused."""
    span = trace.get_current_span()
    span.set_attributes({"rpc.grpc.status_code": number(error.code), "verilocc.reason": error.reason})
    span.set_status(trace.Status(trace.StatusCode.ERROR, error.message))
