"""Messages between a process and its worker: the body's length in decimal, a newline, the body.

A body is a header, one line of JSON with an object, and, after a newline, bytes that go with it, where there are any.
Neither side sends a second message before it has an answer to the first.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping
from socket import socket
from typing import Any

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
