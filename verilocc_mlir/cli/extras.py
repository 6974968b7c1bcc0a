"""Optional parts: whether they are installed, and what to install if not."""

from __future__ import annotations

from importlib.util import find_spec

from verilocc_mlir.errors import UnsupportedError

_SERVICE = (
    "grpc",
    "grpc_health",
    "grpc_reflection",
    "grpc_status",
    "google.protobuf",
    "opentelemetry",
    "prometheus_client",
)

_MODEL = ("numpy", "torch", "transformers", "peft", "safetensors")


def needs_service() -> None:
    """Raises UnsupportedError, naming the extra, if the gRPC service cannot run here."""
    missing = [name for name in _SERVICE if not _found(name)]
    if missing:
        raise UnsupportedError(
            f"this needs the gRPC service, and {', '.join(missing)} is not installed",
            hint="pip install 'verilocc-mlir[service]'",
        )


def has_ray() -> bool:
    return _found("ray")


def needs_ray() -> None:
    """Raises UnsupportedError, naming the extra, if Ray is not installed."""
    if not has_ray():
        raise UnsupportedError("this needs Ray, which is not installed", hint="pip install 'verilocc-mlir[ray]'")


def needs_model() -> None:
    """Raises UnsupportedError if the package ``verilocc_model`` is not installed."""
    if not _found("verilocc_model"):
        raise UnsupportedError(
            "this needs the package verilocc_model, which is not installed",
            hint="in a source tree: PYTHONPATH=model, or pip install -e .",
        )


def needs_language_model() -> None:
    """Raises UnsupportedError, naming the extra, if the language model cannot run here."""
    needs_model()
    missing = [name for name in _MODEL if not _found(name)]
    if missing:
        raise UnsupportedError(
            f"this needs the language model, and {', '.join(missing)} is not installed",
            hint="pip install 'verilocc-mlir[model]'",
        )


def _found(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except ModuleNotFoundError:
        return False
