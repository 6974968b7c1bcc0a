"""The worker's own side: reads questions, answers each, and outlives nothing.

A thread listens, so that the end of the pipe, which comes with the parent's death however it died, ends this process in
the middle of its work. What the two sides say to each other are frames.
"""

from __future__ import annotations

import json
import os
import re
import resource
import signal
import threading
import time
from collections.abc import Callable, Mapping
from queue import SimpleQueue
from socket import socket
from typing import Any

# Messages between a process and its worker: the body's length in decimal, a newline, the body.
#
# A body is a header, one line of JSON with an object, and, after a newline, bytes that go with it, where there are any.
# Neither side sends a second message before it has an answer to the first.


_LENGTH = re.compile(rb"(\d{1,9})\n")
_CHUNK = 1 << 20

Message = tuple[dict[str, Any], bytes]


def frame(header: Mapping[str, object], data: bytes = b"") -> bytes:
    body = json.dumps(header).encode() + (b"\n" + data if data else b"")
    return b"%d\n%b" % (len(body), body)


def receive(pipe: socket, deadline: float | None = None) -> Message:
    """The next message; waits for it, until ``time.monotonic()`` is ``deadline``.

    Raises:
        TimeoutError: it did not come in time. EOFError: the other side ended. ValueError: what came is no message.
    """
    data, start, end = bytearray(), 0, 0
    while not start or len(data) < end:
        pipe.settimeout(None if deadline is None else max(deadline - time.monotonic(), 1e-3))
        part = pipe.recv(_CHUNK)
        if not part:
            raise EOFError
        data += part
        if head := _LENGTH.match(bytes(data[:10])):
            start, end = head.end(), head.end() + int(head[1])
        elif len(data) >= 10:
            raise ValueError("no length of a message")
    line, _, rest = data[start:].partition(b"\n")
    header: dict[str, Any] = json.loads(line)
    if type(header) is not dict:
        raise ValueError("no header")
    return header, bytes(rest)


_CPU_MARGIN_S = 30

Answer = Callable[[dict[str, Any], bytes], tuple[Mapping[str, object], bytes]]
"""Makes header and bytes of an answer; after one whose header has ``last`` the process ends."""


def serve(
    load: Callable[[], Answer], memory_mib: int, *, ready: bool = True, ended: Callable[[], None] = lambda: None
) -> None:
    """Answer questions until the other side ends.

    Args:
        load: called first; gives what answers. A question with ``seconds`` limits the CPU time of this process.
        memory_mib: limit of this process's address space, and of what it starts; 0 for none.
        ready: say so when it is loaded.
        ended: called before this process ends because the other side did.
    """
    if memory_mib:
        limit(resource.RLIMIT_AS, memory_mib << 20)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent hears it, and ends this process
    pipe = socket(fileno=os.dup(0))
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)  # what is started here holds no end of the pipe
    os.dup2(2, 1)  # what anything prints is not an answer
    questions: SimpleQueue[Message] = SimpleQueue()
    threading.Thread(target=_listen, args=(pipe, questions, ended), daemon=True).start()
    answer = load()
    if ready:
        pipe.sendall(frame({}))
    while True:
        question, data = questions.get()
        if "seconds" in question:
            # What never lets the listening thread run still ends some time after a parent that is gone.
            used = resource.getrusage(resource.RUSAGE_SELF)
            seconds = used.ru_utime + used.ru_stime + 2 * float(question["seconds"])
            limit(resource.RLIMIT_CPU, int(min(seconds, 1e9)) + _CPU_MARGIN_S)
        header, data = answer(question, data)
        pipe.sendall(frame({**header, "id": question["id"]}, data))
        if header.get("last"):
            # What is left of the heap after a failed allocation is nobody's business.
            os._exit(0)


def limit(what: int, value: int) -> None:
    """Set a limit of this process, no higher than the user's own."""
    most = resource.getrlimit(what)[1]
    resource.setrlimit(what, (value if most == resource.RLIM_INFINITY else min(value, most), most))


def _listen(pipe: socket, questions: SimpleQueue[Message], ended: Callable[[], None]) -> None:
    try:
        while True:
            questions.put(receive(pipe))
    finally:
        ended()
        os._exit(0)
