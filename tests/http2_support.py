"""A client that speaks HTTP/2 in raw frames, as no gRPC library would: it opens calls and sends nothing more.

RFC 9113 (frames) and RFC 7541 (headers; each is a literal without indexing).
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections import Counter
from collections.abc import Iterator

from process_support import until

SECONDS = 60.0
_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY = 0, 1, 3, 4, 6, 7
_ACK, _END_STREAM, _END_HEADERS = 1, 1, 4


class RawConnection:
    """One connection; what comes back is counted, and pings are answered.

    Attributes:
        received: frames by type.
    """

    def __init__(self, address: str) -> None:
        if address.startswith("unix:"):
            self._socket = socket.socket(socket.AF_UNIX)
            self._socket.connect(address.removeprefix("unix:"))
        else:
            host, _, port = address.rpartition(":")
            self._socket = socket.create_connection((host, int(port)), SECONDS)
        self.received: Counter[int] = Counter()
        self._pongs = 0
        self._stream = 1
        self._sending = threading.Lock()
        self._send(_PREFACE + _frame(SETTINGS))
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def open(self, path: str, count: int, message: bytes | None = None, authorization: str = "") -> None:
        """Begin so many calls of a method; return when the server has read that. ``message``: and send it, no more."""
        fields = {
            ":method": "POST", ":scheme": "http", ":path": path, ":authority": "test", "te": "trailers",
            "content-type": "application/grpc",
        }  # fmt: skip
        if authorization:
            fields["authorization"] = authorization
        block = b"".join(b"\0" + _string(name) + _string(value) for name, value in fields.items())
        frames = b""
        for _ in range(count):
            frames += _frame(HEADERS, _END_HEADERS, self._stream, block)
            if message is not None:
                frames += _frame(DATA, _END_STREAM, self._stream, struct.pack(">BI", 0, len(message)) + message)
            self._stream += 2
        pongs = self._pongs
        self._send(frames + _frame(PING, 0, 0, bytes(8)))
        until(lambda: self._pongs > pongs, "the answer to a ping")

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._reader.join(SECONDS)
        self._socket.close()

    def _send(self, data: bytes) -> None:
        with self._sending:
            self._socket.sendall(data)

    def _read(self) -> None:
        with contextlib.suppress(OSError), self._socket.makefile("rb") as stream:
            while len(head := stream.read(9)) == 9:
                kind, flags = head[3], head[4]
                body = stream.read(int.from_bytes(head[:3], "big"))
                self.received[kind] += 1
                if kind == SETTINGS and not flags & _ACK:
                    self._send(_frame(SETTINGS, _ACK))
                elif kind == PING and flags & _ACK:
                    self._pongs += 1
                elif kind == PING:
                    self._send(_frame(PING, _ACK, 0, body))


@contextlib.contextmanager
def raw_connection(address: str) -> Iterator[RawConnection]:
    connection = RawConnection(address)
    try:
        yield connection
    finally:
        connection.close()


def _frame(kind: int, flags: int = 0, stream: int = 0, body: bytes = b"") -> bytes:
    return len(body).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + body


def _string(text: str) -> bytes:
    assert len(text) < 127
    return bytes([len(text)]) + text.encode()
