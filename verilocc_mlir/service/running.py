"""A server as a process: bound, told when to end, drained."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import tempfile
import threading
from collections.abc import Generator
from concurrent.futures import Future
from dataclasses import dataclass, replace
from pathlib import Path

import grpc

from verilocc_mlir.errors import ExitCode, InputError
from verilocc_mlir.pipeline.learned import PlanModel
from verilocc_mlir.remote.access import SOCKET, host_and_port, is_loopback
from verilocc_mlir.service import logs, observed
from verilocc_mlir.service.batches import Book
from verilocc_mlir.service.jobs import Terms
from verilocc_mlir.service.limits import ServerLimits
from verilocc_mlir.service.logs import log
from verilocc_mlir.service.plans import Plans
from verilocc_mlir.service.pool import ThisProcess, WorkerPool
from verilocc_mlir.service.security import TlsFiles, TokenBook
from verilocc_mlir.service.server import Front, Server
from verilocc_mlir.service.worker import terms_called

DEFAULT_DRAIN_SECONDS = 60.0


@dataclass(frozen=True)
class Options:
    """What ``verilocc serve`` is given; see its help.

    Attributes:
        terms: ``module:attribute`` of a ``jobs.Terms``: other allocators than the usual ones.
    """

    addresses: tuple[str, ...]
    limits: ServerLimits
    attempts: int = 4
    drain_seconds: float = DEFAULT_DRAIN_SECONDS
    tls_certificate: Path | None = None
    tls_key: Path | None = None
    tls_client_ca: Path | None = None
    tokens: Path | None = None
    insecure: bool = False
    http: str = ""
    batches: Path | None = None
    batch_mib: int = 4096
    plan_model: Path | None = None
    metrics: str = ""
    traces: str = "none"
    log_level: str = "info"
    terms: str = ""


def serve(options: Options) -> int:
    """Serve until SIGTERM or SIGINT; a second signal does not wait for the calls that were accepted.

    Returns:
        0, or 130 if calls were given up: after ``drain_seconds``, or for a second signal.

    Raises:
        InputError: an address cannot be bound or is open to the world without TLS; a file cannot be read; there is no
            model of plans. UnsupportedError: the packages of a model of plans are missing.
    """
    files = _tls(options)
    tls = files.credentials() if files is not None else None
    for address in (*options.addresses, *filter(None, [options.http])):
        _check_address(address, secured=tls is not None or options.insecure)
    tokens = TokenBook(options.tokens) if options.tokens is not None else None
    plan_model = PlanModel.load(options.plan_model) if options.plan_model is not None else None
    logs.set_up(options.log_level)
    tracer = observed.set_up(options.traces) if options.traces != "none" else None
    try:
        with contextlib.redirect_stderr(logs.Printed()):
            return asyncio.run(_serve(options, files, tls, tokens, plan_model))
    finally:
        if tracer is not None:
            tracer.shutdown()


async def _serve(
    options: Options,
    files: TlsFiles | None,
    tls: grpc.ServerCredentials | None,
    tokens: TokenBook | None,
    plan_model: PlanModel | None,
) -> int:
    end, at_once = asyncio.Event(), asyncio.Event()

    def heard() -> None:
        (at_once if end.is_set() else end).set()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, heard)
    limits = options.limits
    terms = replace(terms_called(options.terms), attempts=options.attempts)
    pool = WorkerPool(
        limits.workers,
        limits.max_waiting,
        limits.caller,
        limits.memory_mib,
        attempts=options.attempts,
        terms=options.terms,
    )
    front = Front(pool, limits, terms, tokens, plans=Plans(plan_model))
    front.metrics.watch(pool.counts)
    server = Server(front, Book(options.batches, options.batch_mib << 20) if options.batches is not None else None)
    bound: list[tuple[str, int]] = []
    try:
        for address in options.addresses:
            bound.append((address, _bind(server, address, tls)))
        listener = _listener(options.http) if options.http else None
        metrics_port = front.metrics.serve(*host_and_port(options.metrics)) if options.metrics else None
        await pool.start()
        await server.start()
        if listener is not None:
            server.http.start(listener, files.context() if files is not None else None)
            log("http", port=listener.getsockname()[1], tls=tls is not None, tokens=tokens is not None)
        for address, port in bound:
            local = address.startswith(SOCKET)
            shown_address = address if local else f"{address.rpartition(':')[0]}:{port}"
            log("listening", address=shown_address, tls=tls is not None and not local, tokens=tokens is not None)
        if metrics_port is not None:
            log("metrics", port=metrics_port)
        await end.wait()
        log("draining", seconds=options.drain_seconds, busy=pool.counts.busy, waiting=pool.counts.waiting)
    finally:
        finished = await server.stop(options.drain_seconds, at_once)
        for address, _ in bound:
            if address.startswith(SOCKET):
                Path(address.removeprefix(SOCKET)).unlink(missing_ok=True)
    log("ended", finished=finished)
    return 0 if finished else ExitCode.INTERRUPTED


def _tls(options: Options) -> TlsFiles | None:
    if options.tls_certificate is None or options.tls_key is None:
        if options.tls_certificate or options.tls_key or options.tls_client_ca:
            raise InputError("TLS needs a certificate and its key", hint="give --tls-cert and --tls-key")
        return None
    return TlsFiles(options.tls_certificate, options.tls_key, options.tls_client_ca)


def _check_address(address: str, *, secured: bool) -> None:
    """Refuse what is no address, and what the network can reach without TLS."""
    if address.startswith(SOCKET):
        path = Path(address.removeprefix(SOCKET))
        if not path.parent.is_dir():
            raise InputError(f"there is no directory {path.parent}", where=address)
        if path.exists() and not path.is_socket():
            raise InputError(f"{path} is there and no socket", where=address)
        if _is_answered(path):
            raise InputError(f"{path} is in use by another server", where=address)
        return
    host, _ = host_and_port(address)
    if not secured and not is_loopback(host):
        raise InputError(
            f"{address} can be reached from the network, and there is no TLS",
            hint="give --tls-cert and --tls-key, or --insecure if something else protects it",
        )


def _listener(address: str) -> socket.socket:
    host, port = host_and_port(address)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=128)
    except OSError as error:
        raise InputError(f"{address} cannot be bound: it is in use, or not this machine's", where=address) from error


def _is_answered(path: Path) -> bool:
    """Whether a server listens there: gRPC would take its place without a word."""
    with socket.socket(socket.AF_UNIX) as probe, contextlib.suppress(OSError):
        probe.settimeout(1.0)
        probe.connect(str(path))
        return True
    return False


def _bind(server: Server, address: str, tls: grpc.ServerCredentials | None) -> int:
    # Over a Unix socket the file's permissions say who may call.
    try:
        return server.listen(address, None if address.startswith(SOCKET) else tls)
    except RuntimeError as error:
        raise InputError(f"{address} cannot be bound: it is in use, or not this machine's", where=address) from error


# A server in a thread of this process, on a Unix socket that nobody else can reach.


LIMITS = ServerLimits(max_request_bytes=256 << 20)
"""The client is this process itself: there is no reason to refuse what it can hold."""


@contextlib.contextmanager
def serving(terms: Terms | None = None, limits: ServerLimits = LIMITS) -> Generator[str, None, None]:
    """Serve while the block runs; gives the address, ``unix:PATH``, in a fresh directory of mode 700.

    Calls that are under way at its end are given up.
    """
    with tempfile.TemporaryDirectory(prefix="verilocc-") as directory:
        address = f"{SOCKET}{Path(directory) / 's'}"
        ready: Future[asyncio.AbstractEventLoop] = Future()
        ended = asyncio.Event()
        offered = terms or Terms()
        thread = threading.Thread(
            target=lambda: asyncio.run(
                _serve_here(address, Front(ThisProcess(offered), limits, offered), ready, ended)
            ),
            name="verilocc server",
            daemon=True,
        )
        thread.start()
        loop = ready.result()
        try:
            yield address
        finally:
            loop.call_soon_threadsafe(ended.set)
            thread.join()


async def _serve_here(
    address: str, front: Front, ready: Future[asyncio.AbstractEventLoop], ended: asyncio.Event
) -> None:
    try:
        server = Server(front)
        server.listen(address)
        await server.start()
    except BaseException as error:
        ready.set_exception(error)
        raise
    ready.set_result(asyncio.get_running_loop())
    await ended.wait()
    await server.stop(0)
