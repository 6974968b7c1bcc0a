"""OpenTelemetry traces: one span a request, continued from the caller's where it sends ``traceparent``.

The API does nothing until an SDK is set up: by the program around the server, or here for ``verilocc serve --traces``.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager

from opentelemetry import trace
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter, SpanExporter
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from verilocc_mlir.errors import InputError
from verilocc_mlir.remote.tries import number
from verilocc_mlir.service.status import ServiceError
from verilocc_mlir.version import __version__

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
