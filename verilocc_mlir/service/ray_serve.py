"""The contract on Ray Serve: replicas behind Serve's gRPC ingress, as many as the load asks for.

A replica is the front of ``server`` before a pool of worker processes of its own, so answers, errors, tokens and limits
are those of ``verilocc serve``. The ingress hands requests on as bytes. The ingress differs
(docs/guide/service-operate.md). It listens on every interface without TLS (see ``Options.listen``). It tells no
deadlines, but cancels calls whose deadline has passed. The calls of a replica that dies are answered with INTERNAL.
"""

from __future__ import annotations

import contextlib
import logging
import platform
import signal
import socket
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Generator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NoReturn

import grpc
from grpc import StatusCode
from grpc_status import rpc_status

from verilocc.v1 import allocation_service_pb2 as allocation
from verilocc_mlir.errors import InputError, UnsupportedError
from verilocc_mlir.pipeline.key import source_digest
from verilocc_mlir.ray_cluster import LOCAL, RUNTIME, Cluster, connected, load_ray
from verilocc_mlir.remote.access import host_and_port, is_loopback
from verilocc_mlir.service import logs, observed
from verilocc_mlir.service.limits import ServerLimits
from verilocc_mlir.service.logs import log
from verilocc_mlir.service.pool import WorkerPool
from verilocc_mlir.service.security import TokenBook
from verilocc_mlir.service.server import ALLOCATION, AUDIT, Front
from verilocc_mlir.service.status import ServiceError
from verilocc_mlir.service.worker import terms_called

APPLICATION = "verilocc"
"""The application's name; callers name it in the metadata ``application`` where Serve has others too."""

_SERVICES = "verilocc_mlir.service.ray_serve.add_services"
_CONTROLLER = "SERVE_CONTROLLER_ACTOR"
_READY_SECONDS = 60.0
_UPSCALE_SECONDS = 5.0
"""For so long there must be too many requests; a request may take minutes, and what waits in a replica stays there."""
_STATUS: Any = rpc_status
"""It has no types."""
_NEAR = ("127.", "[::1]", "[::ffff:127.")
_EVERYWHERE = ("0.0.0.0", "::")
_BIND = "add_port_to_grpc_server"
_NO_REASON = ""
"""Reason of errors that another server's transport gives. Serve sends no details with a stream's status anyway."""


@dataclass(frozen=True)
class Options:
    """What ``verilocc serve --ray`` is given.

    Attributes:
        ray_address: as for ``ray_cluster.connected``.
        listen: ``HOST:PORT``. The ingress has the port on every interface of every node with a replica; a loopback
            host says that callers on the ingress's own node alone are answered. Port 0 takes a free one.
        insecure: allow another host than loopback.
        limits: of one replica; a worker of it takes a CPU.
        replicas: fewest and most.
        target_requests: requests of a replica above which Serve starts another; None: as many as it has workers.
        attempts, drain_seconds, tokens, traces, log_level, terms: as in ``running.Options``; ``tokens`` is a file on
            every node.
    """

    limits: ServerLimits
    ray_address: str = LOCAL
    listen: str = "127.0.0.1:50551"
    insecure: bool = False
    replicas: tuple[int, int] = (1, 1)
    target_requests: float | None = None
    attempts: int = 4
    drain_seconds: float = 60.0
    tokens: Path | None = None
    traces: str = "none"
    log_level: str = "info"
    terms: str = ""

    @property
    def near_only(self) -> bool:
        """Whether callers of other machines are refused."""
        return is_loopback(host_and_port(self.listen)[0])


def serve(options: Options) -> int:
    """Serve until SIGTERM or SIGINT; the exit code.

    Raises:
        UnsupportedError: Ray is not installed. InputError: no such cluster, too few CPUs, a port that is in use, a
        Serve without this contract.
    """
    _check_address(options)
    if options.tokens is not None:
        TokenBook(options.tokens)
    logs.set_up(options.log_level)
    with connected(options.ray_address) as cluster, _signalled() as end, deployed(options, cluster) as port:
        log(
            "listening", address=f"{options.listen.rpartition(':')[0]}:{port}", nodes=cluster.node_addresses,
            replicas=options.replicas, tls=False, tokens=options.tokens is not None,
        )  # fmt: skip
        end.wait()
        log("draining", seconds=options.drain_seconds)
    log("ended")
    return 0


@contextlib.contextmanager
def deployed(options: Options, cluster: Cluster) -> Generator[int, None, None]:
    """Have the application on the cluster that this process is connected to; gives the port.

    At the end accepted requests are finished, within ``drain_seconds``. Serve itself is ended if it was started here.

    Raises:
        InputError: see ``serve``.
    """
    from ray import serve as serve_module  # pyright: ignore

    ray_serve: Any = serve_module
    logging.getLogger("ray.serve").setLevel(logging.WARNING)
    if cluster.started and options.replicas[0] * options.limits.workers > cluster.cpus:
        raise InputError(
            f"{options.replicas[0]} replicas of {options.limits.workers} workers need more than the {cluster.cpus} "
            "CPUs of this machine",
            hint="fewer --replicas or --workers",
        )
    starts_serve = not any(actor["name"] == _CONTROLLER for actor in load_ray().util.list_named_actors(True))
    port = host_and_port(options.listen)[1]
    if starts_serve:
        port = port or _free_port()
        _check_free(port)
        ray_serve.start(
            http_options={"port": _free_port()},
            grpc_options={"port": port, "grpc_servicer_functions": [_SERVICES], "enable_reflection": True},
        )
    elif APPLICATION in ray_serve.status().applications:
        raise InputError(
            f"Serve has an application {APPLICATION!r} already",
            hint="use that one, or end it: it would be replaced now, and taken away when this command ends",
        )
    try:
        try:
            # Without a route over HTTP Serve has none over gRPC either; over HTTP nothing is answered there.
            ray_serve.run(_application(ray_serve, options), name=APPLICATION, route_prefix=f"/{APPLICATION}")
            _check_ingress(cluster, port)
            yield port
        finally:
            # Also what did not come up: Serve would try again and again, for nobody.
            ray_serve.delete(APPLICATION)
    finally:
        if starts_serve and not cluster.started:
            ray_serve.shutdown()


def _check_address(options: Options) -> None:
    host, _ = host_and_port(options.listen)
    if options.near_only or (options.insecure and host in _EVERYWHERE):
        return
    raise InputError(
        "Ray Serve's ingress can be reached from the network, on every interface and without TLS",
        where=options.listen,
        hint="127.0.0.1:PORT answers callers on the same machine only; 0.0.0.0:PORT with --insecure everyone, if "
        "something else protects it",
    )


def _application(ray_serve: Any, options: Options) -> Any:
    limits = options.limits
    deployment = ray_serve.deployment(
        name="Replica",
        # Above what the pool lets wait, so that it is the pool that refuses, with the reason and a time to come back.
        max_ongoing_requests=limits.max_calls,
        autoscaling_config={
            "min_replicas": options.replicas[0],
            "max_replicas": options.replicas[1],
            "target_ongoing_requests": options.target_requests or limits.workers,
            "upscale_delay_s": _UPSCALE_SECONDS,
        },
        ray_actor_options={"num_cpus": limits.workers, "runtime_env": RUNTIME},
        graceful_shutdown_wait_loop_s=0.2,
        graceful_shutdown_timeout_s=options.drain_seconds,
    )(Replica)
    return deployment.bind(options, source_digest())


def _check_ingress(cluster: Cluster, port: int) -> None:
    """The contract is answered, by whatever status its own.

    Raises:
        InputError: by no node of the cluster.
    """
    end = time.monotonic() + _READY_SECONDS
    answer = ""
    while time.monotonic() < end:
        for address in cluster.node_addresses:
            answer = _ask(f"{address}:{port}")
            if not answer:
                return
        time.sleep(0.1)
    raise InputError(
        f"the gRPC ingress of Serve does not answer: {answer}",
        where=f"port {port}",
        hint=f"start Serve with --grpc-port {port} --grpc-servicer-functions {_SERVICES}, or not at all",
    )


def _ask(address: str) -> str:
    """What is wrong with the ingress there; "" for nothing."""
    with grpc.insecure_channel(address) as channel:
        ask: grpc.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(f"/{ALLOCATION}/GetCapabilities")
        try:
            ask(allocation.GetCapabilitiesRequest().SerializeToString(), metadata=(("application", APPLICATION),))
        except grpc.RpcError as error:
            failed: Any = error
            if _STATUS.from_call(failed) is None:
                return f"{failed.code().name}: {failed.details()}"
    return ""


@contextlib.contextmanager
def _signalled() -> Generator[threading.Event, None, None]:
    """An event that SIGTERM or SIGINT sets; a second signal ends the program at once."""
    end = threading.Event()

    def hear(number: int, _frame: object) -> None:
        if end.is_set():
            raise KeyboardInterrupt
        end.set()

    before = {number: signal.signal(number, hear) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield end
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _check_free(port: int) -> None:
    """Refuse a port that another process has: Serve would share it."""
    with socket.socket(socket.AF_INET6) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        try:
            probe.bind(("::", port))
        except OSError as error:
            raise InputError(f"port {port} cannot be bound: {error.strerror}", hint="give another one") from error


# -- in the ingress --------------------------------------------------------------------------------------------------


def add_services(_servicer: object, server: Any) -> None:
    """Both services for Serve's ingress, which replaces what is called; messages stay bytes on their way."""
    unary: grpc.RpcMethodHandler[bytes, bytes] = grpc.unary_unary_rpc_method_handler(_replaced)
    stream: grpc.RpcMethodHandler[bytes, bytes] = grpc.stream_stream_rpc_method_handler(_replaced)
    methods = {
        ALLOCATION: {"Allocate": unary, "AllocateStream": stream, "GetCapabilities": unary},
        AUDIT: {"Audit": unary},
    }
    for service, handlers in methods.items():
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, handlers),))


def _replaced(_request: object, _context: object) -> NoReturn:
    raise AssertionError


# -- in a replica ----------------------------------------------------------------------------------------------------


class Replica:
    """What Serve calls, by the methods' names.

    Args:
        options: of the deployment.
        sources: ``key.source_digest`` of where it was deployed; with other sources results would be other ones.
    """

    async def __init__(self, options: Options, sources: str) -> None:
        if source_digest() != sources:
            raise InputError(
                "this node has another version of verilocc-mlir than the one that deploys",
                where=f"node {platform.node()}",
                hint="install the same version on every node",
            )
        logs.set_up(options.log_level)
        if options.near_only:
            _listen_on_loopback()
        if options.traces != "none":
            observed.set_up(options.traces)
        limits = options.limits
        self._options = options
        self._pool = WorkerPool(
            limits.workers,
            limits.max_waiting,
            limits.caller,
            limits.memory_mib,
            attempts=options.attempts,
            terms=options.terms,
        )
        tokens = TokenBook(options.tokens) if options.tokens is not None else None
        terms = replace(terms_called(options.terms), attempts=options.attempts)
        self._front = Front(self._pool, limits, terms, tokens)
        await self._pool.start()

    async def __del__(self) -> None:
        """Serve calls this when the replica has finished its requests."""
        await self._pool.close()

    async def Allocate(self, request: bytes, grpc_context: Any) -> _Message:
        return await self._unary(self._front.allocate, request, grpc_context)

    async def Audit(self, request: bytes, grpc_context: Any) -> _Message:
        return await self._unary(self._front.audit, request, grpc_context)

    async def GetCapabilities(self, request: bytes, grpc_context: Any) -> _Message:
        """AllocationService.GetCapabilities, of one replica."""
        return await self._unary(self._front.get_capabilities, request, grpc_context)

    async def AllocateStream(self, requests: AsyncIterator[bytes], grpc_context: Any) -> AsyncIterator[_Message]:
        call = _Call(grpc_context)
        try:
            await self._admitted(call)
            async for answer in self._front.allocate_stream(self._bounded(requests), _as_context(call)):
                yield _Message(answer)
        except _EndedError:
            # Serve sends the code and the message of what is raised here; details go only with a message, and a
            # stream that is refused has none to send.
            raise RuntimeError(grpc_context.details()) from None

    async def _unary(
        self, method: Callable[[bytes, Any], Awaitable[bytes]], request: bytes, grpc_context: Any
    ) -> _Message:
        call = _Call(grpc_context)
        try:
            await self._admitted(call, len(request))
            return _Message(await method(request, _as_context(call)))
        except _EndedError:
            # With what is raised Serve sends no details; an answer is not sent with a status other than OK.
            return _Message(b"")

    async def _bounded(self, requests: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """The requests of a stream up to one that is too large, which ends it."""
        limit = self._options.limits.max_request_bytes
        async for request in requests:
            if len(request) > limit:
                raise ServiceError(
                    StatusCode.RESOURCE_EXHAUSTED,
                    _NO_REASON,
                    f"the request has {len(request)} bytes, {limit} are allowed",
                )
            yield request

    async def _admitted(self, call: _Call, size: int = 0) -> None:
        """Refuse callers of other machines where only near ones are allowed, and requests that are too large."""
        if self._options.near_only and not _is_near(call.context.peer()):
            error = ServiceError(
                StatusCode.PERMISSION_DENIED, "NOT_LOCAL", "this server answers callers of its own machine only"
            )
            log("refused", code=error.code.name, reason=error.reason)
            await call.abort_with_status(_STATUS.to_status(error.to_status()))
        limit = self._options.limits.max_request_bytes
        if size > limit:
            log("refused", code=StatusCode.RESOURCE_EXHAUSTED.name, request_bytes=size)
            call.end(StatusCode.RESOURCE_EXHAUSTED, f"the request has {size} bytes, {limit} are allowed")


def _listen_on_loopback() -> None:
    """Have the port that Serve gives this replica, for deployments that call each other, on loopback only.

    Serve binds it on every interface once ``Replica`` is there, and whoever reaches it can run code. Nobody calls it
    here: the ingress asks replicas over Ray itself.

    Raises:
        UnsupportedError: this Ray binds it otherwise.
    """
    from ray.serve._private import replica as replica_module  # pyright: ignore

    module: Any = replica_module
    bind = getattr(module, _BIND, None)
    if bind is None:
        raise UnsupportedError("this version of Ray is not known", hint="Ray 2.60; or --listen=0.0.0.0:PORT --insecure")

    def bind_here(server: Any, _address: str) -> int:
        return int(bind(server, "127.0.0.1:0"))

    setattr(module, _BIND, bind_here)


class _Message(bytes):
    """An answer that is serialised already."""

    def SerializeToString(self) -> bytes:
        """Itself; what Serve asks of an answer."""
        return bytes(self)


class _EndedError(Exception):
    """The call's status is set."""


@dataclass
class _Call:
    """What ``Front`` asks of a call's context, from Serve's."""

    context: Any

    def invocation_metadata(self) -> list[tuple[str, str]]:
        return [(str(key), value) for key, value in self.context.invocation_metadata()]

    def peer(self) -> str:
        return str(self.context.peer())

    def time_remaining(self) -> None:
        """Serve does not hand deadlines on; it cancels the call when one has passed."""

    async def abort_with_status(self, status: Any) -> NoReturn:
        self.context.set_trailing_metadata(list(status.trailing_metadata))
        self.end(status.code, status.details)

    def end(self, code: StatusCode, message: str) -> NoReturn:
        self.context.set_code(code)
        self.context.set_details(message)
        raise _EndedError


def _as_context(call: _Call) -> Any:
    return call


def _is_near(peer: str) -> bool:
    """Whether a gRPC peer ("ipv4:127.0.0.1:4711") is on this machine."""
    return peer.partition(":")[2].replace("%5B", "[").replace("%5D", "]").startswith(_NEAR)
