"""The worker's own side: reads questions, answers each, and outlives nothing.

A thread listens, so that the end of the pipe, which comes with the parent's death however it died, ends this process in
the middle of its work.
"""

from __future__ import annotations

import os
import resource
import signal
import threading
from collections.abc import Callable, Mapping
from queue import SimpleQueue
from socket import socket
from typing import Any

from verilocc_mlir.crew.frames import Message, frame, receive

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
