"""A server in a thread of this process, on a Unix socket that nobody else can reach."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
import threading
from collections.abc import Generator
from concurrent.futures import Future
from pathlib import Path

from verilocc_mlir.remote.addresses import SOCKET
from verilocc_mlir.service.jobs import Terms
from verilocc_mlir.service.limits import ServerLimits
from verilocc_mlir.service.pool import ThisProcess
from verilocc_mlir.service.server import Front, Server

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
            target=lambda: asyncio.run(_serve(address, Front(ThisProcess(offered), limits, offered), ready, ended)),
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


async def _serve(address: str, front: Front, ready: Future[asyncio.AbstractEventLoop], ended: asyncio.Event) -> None:
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
