"""``verilocc serve``."""

from __future__ import annotations

import os
from pathlib import Path

import click
from rich_click import RichCommand

from verilocc_mlir.cli.extras import needs_service

_PATH = click.Path(path_type=Path, dir_okay=False)
_SECONDS = click.FloatRange(0, min_open=True)


@click.command("serve", cls=RichCommand)
@click.option(
    "--listen", "addresses", multiple=True, metavar="ADDR",
    help="HOST:PORT or unix:PATH; may be given again. [default: 127.0.0.1:50551]",
)  # fmt: skip
@click.option("--workers", type=click.IntRange(1), default=os.cpu_count() or 1, show_default="cores", metavar="N")
@click.option("--max-waiting", type=click.IntRange(0), default=64, show_default=True, help="Calls that may wait.")
@click.option("--max-request-mib", type=click.IntRange(1, 2047), default=32, show_default=True)
@click.option("--max-seconds", type=_SECONDS, default=600.0, show_default=True, help="For one call, at most.")
@click.option("--default-seconds", type=_SECONDS, default=120.0, show_default=True, help="For a call without deadline.")
@click.option("--memory-mib", type=click.IntRange(512), default=2048, show_default=True, help="For one worker.")
@click.option("--attempts", type=click.IntRange(1, 32), default=4, show_default=True, help="Proposals before fallback.")
@click.option("--drain-seconds", type=click.FloatRange(0), default=60.0, show_default=True, help="After SIGTERM.")
@click.option("--tls-cert", type=_PATH, default=None, metavar="FILE", help="Certificate chain, PEM.")
@click.option("--tls-key", type=_PATH, default=None, metavar="FILE", help="Its key, PEM.")
@click.option("--tls-client-ca", type=_PATH, default=None, metavar="FILE", help="Clients must have its certificate.")
@click.option("--tokens", type=_PATH, default=None, metavar="FILE", help="Bearer tokens; lines: SHA256 NAME [EXPIRES].")
@click.option("--insecure", is_flag=True, help="Allow an address other than loopback without TLS.")
@click.option("--metrics", default="", metavar="HOST:PORT", help="Serve Prometheus metrics there.")
@click.option("--traces", type=click.Choice(["none", "console", "otlp"]), default="none", show_default=True)
@click.option(
    "--log-level", type=click.Choice(["debug", "info", "warning", "error"]), default="info", show_default=True
)
def serve_command(
    addresses: tuple[str, ...],
    workers: int,
    max_waiting: int,
    max_request_mib: int,
    max_seconds: float,
    default_seconds: float,
    memory_mib: int,
    attempts: int,
    drain_seconds: float,
    tls_cert: Path | None,
    tls_key: Path | None,
    tls_client_ca: Path | None,
    tokens: Path | None,
    insecure: bool,
    metrics: str,
    traces: str,
    log_level: str,
) -> int:
    """Serve allocation and audit over gRPC until SIGTERM or Ctrl-C; docs/service.md has the contract.

    Loopback unless another address is given. Ends with 0 once accepted calls are done.
    """
    needs_service()
    # It reads this when it is loaded; the log has lines of one form only.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    from verilocc_mlir.service.running import Options, serve
    from verilocc_mlir.service.server import ServerLimits

    limits = ServerLimits(
        max_request_bytes=max_request_mib << 20,
        max_seconds=max_seconds,
        default_seconds=default_seconds,
        memory_mib=memory_mib,
        workers=workers,
        max_waiting=max_waiting,
        streams=workers,
    )
    return serve(
        Options(
            addresses=addresses or ("127.0.0.1:50551",),
            limits=limits,
            attempts=attempts,
            drain_seconds=drain_seconds,
            tls_certificate=tls_cert,
            tls_key=tls_key,
            tls_client_ca=tls_client_ca,
            tokens=tokens,
            insecure=insecure,
            metrics=metrics,
            traces=traces,
            log_level=log_level,
        )
    )
