"""``verilocc serve``, on this machine or on a Ray cluster."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from verilocc_mlir.allocators.registry import (
    MODEL,
    MODEL_VARIABLE,
    MOST_SAMPLES,
    SAMPLES_VARIABLE,
    UNMASKED_VARIABLE,
    allocator,
    packaged_model,
)
from verilocc_mlir.cli.given import POSITIVE, Command, given_as, needs_ray, needs_service
from verilocc_mlir.cli.options import ray_options

_PATH = click.Path(path_type=Path, dir_okay=False)
_SECONDS = POSITIVE
PACKAGED = "packaged"
"""The name of the model in the package ``verilocc_model``."""
_DEFAULT_ADDRESS = "127.0.0.1:50551"


class _Replicas(click.ParamType[tuple[int, int]]):
    """``MIN:MAX``, or one number for both."""

    name = "MIN:MAX"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, int]:
        fewest, _, most = str(value).partition(":")
        if fewest.isdecimal() and (most or fewest).isdecimal() and 1 <= int(fewest) <= int(most or fewest):
            return int(fewest), int(most or fewest)
        self.fail(f"{value!r} is not MIN:MAX with 1 <= MIN <= MAX", param, ctx)


@dataclass(frozen=True)
class _ServeGiven:
    addresses: tuple[str, ...]
    workers: int | None
    model: Path | None
    model_samples: int | None
    model_unmasked: bool
    plan_model: Path | None
    max_waiting: int
    caller_workers: int | None
    caller_waiting: int | None
    caller_cpu: float
    max_request_mib: int
    max_seconds: float
    default_seconds: float
    memory_mib: int | None
    attempts: int
    drain_seconds: float
    tls_cert: Path | None
    tls_key: Path | None
    tls_client_ca: Path | None
    tokens: Path | None
    insecure: bool
    http: str
    batches: Path | None
    batch_mib: int
    metrics: str
    traces: str
    log_level: str
    ray: bool
    ray_address: str
    replicas: tuple[int, int] | None
    target_requests: float | None


@click.command("serve", cls=Command)
@click.option(
    "--listen", "addresses", multiple=True, metavar="ADDR",
    help=f"HOST:PORT or unix:PATH; may be given again. [default: {_DEFAULT_ADDRESS}]",
)  # fmt: skip
@click.option(
    "--workers", type=click.IntRange(1), default=None, metavar="N", help="[default: cores; with --ray 1 a replica]"
)
@click.option(
    "--model", type=click.Path(path_type=Path, file_okay=False), default=None, metavar="DIR",
    help="Offer the language model there, as the default; 'packaged': the one of the package.",
)  # fmt: skip
@click.option(
    "--model-samples", type=click.IntRange(1, MOST_SAMPLES), default=None, metavar="N",
    help="Answers of the model that are compared. [default: 1]",
)  # fmt: skip
@click.option(
    "--model-unmasked", is_flag=True,
    help="Its first answer is its own: nothing but the proof holds it to the constraints.",
)  # fmt: skip
@click.option(
    "--plan-model", type=click.Path(path_type=Path, file_okay=False), default=None, metavar="DIR",
    help="Offer the model of plans there.",
)  # fmt: skip
@click.option("--max-waiting", type=click.IntRange(0), default=64, show_default=True, help="Calls that may wait.")
@click.option(
    "--caller-workers", type=click.IntRange(1), default=None, metavar="N",
    help="For one caller at once. [default: all; with --tokens all but one]",
)  # fmt: skip
@click.option(
    "--caller-waiting", type=click.IntRange(0), default=None, metavar="N",
    help="Calls of one caller that may wait. [default: all; with --tokens half of them]",
)  # fmt: skip
@click.option(
    "--caller-cpu", type=click.FloatRange(0), default=0.0, metavar="N",
    help="CPU seconds a second for one caller, on average over ten minutes. [default: any]",
)  # fmt: skip
@click.option("--max-request-mib", type=click.IntRange(1, 2047), default=32, show_default=True)
@click.option("--max-seconds", type=_SECONDS, default=600.0, show_default=True, help="For one call, at most.")
@click.option("--default-seconds", type=_SECONDS, default=120.0, show_default=True, help="For a call without deadline.")
@click.option(
    "--memory-mib", type=click.IntRange(512), default=None, metavar="N",
    help="Address space of one worker. [default: 2048; with --model 4096]",
)  # fmt: skip
@click.option("--attempts", type=click.IntRange(1, 32), default=4, show_default=True, help="Proposals before fallback.")
@click.option("--drain-seconds", type=click.FloatRange(0), default=60.0, show_default=True, help="After SIGTERM.")
@click.option("--tls-cert", type=_PATH, default=None, metavar="FILE", help="Certificate chain, PEM.")
@click.option("--tls-key", type=_PATH, default=None, metavar="FILE", help="Its key, PEM.")
@click.option("--tls-client-ca", type=_PATH, default=None, metavar="FILE", help="Clients must have its certificate.")
@click.option("--tokens", type=_PATH, default=None, metavar="FILE", help="Bearer tokens; lines: SHA256 NAME [EXPIRES].")
@click.option("--insecure", is_flag=True, help="Allow an address other than loopback without TLS.")
@click.option("--http", default="", metavar="HOST:PORT", help="HTTP/1.1 with JSON there too.")
@click.option(
    "--batches", type=click.Path(path_type=Path, file_okay=False), default=None, metavar="DIR",
    help="Offer batches, which are kept there.",
)  # fmt: skip
@click.option(
    "--batch-mib", type=click.IntRange(1), default=4096, show_default=True, help="Of one caller's batches on disk."
)
@click.option("--metrics", default="", metavar="HOST:PORT", help="Serve Prometheus metrics there.")
@click.option("--traces", type=click.Choice(["none", "console", "otlp"]), default="none", show_default=True)
@click.option(
    "--log-level", type=click.Choice(["debug", "info", "warning", "error"]), default="info", show_default=True
)
@ray_options
@click.option("--replicas", type=_Replicas(), default=None, help="With --ray: fewest and most. [default: 1:1]")
@click.option(
    "--target-requests", type=_SECONDS, default=None, metavar="N",
    help="With --ray: of a replica, above which there are more. [default: its workers]",
)  # fmt: skip
@given_as(_ServeGiven)
def serve_command(given: _ServeGiven) -> int:
    """Serve allocation and audit over gRPC until SIGTERM or Ctrl-C; docs/guide/service-operate.md has the limits.

    Loopback unless another address is given. Ends with 0 once accepted calls are done. With --ray, replicas of the
    service on a Ray cluster: docs/guide/service-operate.md.
    """
    needs_service()
    if given.ray:
        needs_ray()
        _refuse(
            {
                "--tls-cert": given.tls_cert,
                "--tls-key": given.tls_key,
                "--tls-client-ca": given.tls_client_ca,
                "--metrics": given.metrics,
            },
            "is not possible with --ray: Ray Serve's ingress has no TLS, and Ray has its own metrics",
        )
        models = {"--model": given.model, "--plan-model": given.plan_model}
        _refuse({"--http": given.http, "--batches": given.batches, **models}, "is not possible with --ray yet")
    else:
        needing = {
            "--ray-address": given.ray_address,
            "--replicas": given.replicas,
            "--target-requests": given.target_requests,
        }
        _refuse(needing, "needs --ray")
    workers = given.workers or (1 if given.ray else os.cpu_count() or 1)
    if given.model is None:
        _refuse(
            {"--model-samples": given.model_samples, "--model-unmasked": given.model_unmasked or None}, "needs --model"
        )
    elif given.model_unmasked:
        _refuse({"--model-samples": given.model_samples}, "is not possible with --model-unmasked: that is one answer")
    terms = _terms(given.model, given.model_samples, unmasked=given.model_unmasked)
    # It reads this when it is loaded; the log has lines of one form only.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    from verilocc_mlir.service.limits import ServerLimits

    limits = ServerLimits(
        max_request_bytes=given.max_request_mib << 20,
        max_seconds=given.max_seconds,
        default_seconds=given.default_seconds,
        memory_mib=given.memory_mib or (4096 if terms else 2048),
        workers=workers,
        max_waiting=given.max_waiting,
        streams=workers,
        caller_workers=given.caller_workers or (max(1, workers - 1) if given.tokens else None),
        caller_waiting=(given.max_waiting + 1) // 2
        if given.tokens and given.caller_waiting is None
        else given.caller_waiting,
        caller_cpu=given.caller_cpu,
    )
    if given.ray:
        from verilocc_mlir.service import ray_serve

        return ray_serve.serve(
            ray_serve.Options(
                limits,
                ray_address=given.ray_address or "local",
                listen=_only(given.addresses),
                insecure=given.insecure,
                replicas=given.replicas or (1, 1),
                target_requests=given.target_requests,
                attempts=given.attempts,
                drain_seconds=given.drain_seconds,
                tokens=given.tokens,
                traces=given.traces,
                log_level=given.log_level,
            )
        )
    from verilocc_mlir.service.running import Options, serve

    return serve(
        Options(
            addresses=given.addresses or (_DEFAULT_ADDRESS,),
            limits=limits,
            attempts=given.attempts,
            drain_seconds=given.drain_seconds,
            tls_certificate=given.tls_cert,
            tls_key=given.tls_key,
            tls_client_ca=given.tls_client_ca,
            tokens=given.tokens,
            insecure=given.insecure,
            http=given.http,
            batches=given.batches,
            batch_mib=given.batch_mib,
            plan_model=given.plan_model,
            metrics=given.metrics,
            traces=given.traces,
            log_level=given.log_level,
            terms=terms,
        )
    )


def _terms(model: Path | None, samples: int | None, *, unmasked: bool) -> str:
    """The terms of a server with a model, which its processes find by the environment; ``""`` without one.

    Raises:
        InputError: there is no model. UnsupportedError: its packages are not installed.
    """
    if model is None:
        return ""
    packaged = str(model) == PACKAGED and not model.is_dir()
    os.environ[MODEL_VARIABLE] = str(packaged_model() if packaged else model.resolve())
    os.environ[UNMASKED_VARIABLE] = "1" if unmasked else ""
    if samples is not None:
        os.environ[SAMPLES_VARIABLE] = str(samples)
    allocator(MODEL)
    return "verilocc_mlir.service.jobs:WITH_MODEL"


def _refuse(given: Mapping[str, object], why: str) -> None:
    for name, value in given.items():
        if value:
            raise click.UsageError(f"{name} {why}")


def _only(addresses: tuple[str, ...]) -> str:
    if len(addresses) > 1:
        raise click.UsageError("--listen is given once with --ray: Ray Serve's ingress has one port")
    return addresses[0] if addresses else _DEFAULT_ADDRESS
