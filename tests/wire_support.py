"""What clients of a server put on the wire: a relay before it keeps the bytes, and reads requests out of them.

RFC 9113 (frames) and gRPC's own framing of messages: a flag for compression, a length, the message.
"""

from __future__ import annotations

import contextlib
import gzip
import socket
import threading
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

from verilocc.v1 import allocation_service_pb2 as allocation

_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_DATA, _PADDED = 0, 8


@dataclass(frozen=True)
class Sent:
    """An Allocate request as it was sent: its bytes on the wire, whether they are compressed, and what they say."""

    size: int
    compressed: bool
    request: allocation.AllocateRequest


@dataclass
class Wire:
    """The relay: clients call ``address``; what they send is in ``streams``, one for each connection."""

    address: str = ""
    streams: list[bytearray] = field(default_factory=list[bytearray])

    def allocations(self) -> list[Sent]:
        """The Allocate requests so far; other methods' requests here are empty messages, or none that is read so."""
        messages = (message for stream in self.streams for message in _messages(bytes(stream)))
        sent = [
            Sent(len(data), compressed, allocation.AllocateRequest.FromString(_unpacked(data, compressed)))
            for compressed, data in messages
            if data
        ]
        return [one for one in sent if one.request.WhichOneof("input") is not None]


@contextlib.contextmanager
def recorded(server: str) -> Iterator[Wire]:
    """A relay before the server at ``HOST:PORT``."""
    host, _, port = server.rpartition(":")
    wire = Wire()
    listener = socket.create_server(("127.0.0.1", 0))
    wire.address = f"127.0.0.1:{listener.getsockname()[1]}"
    opened: list[socket.socket] = [listener]

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = listener.accept()
                upstream = socket.create_connection((host, int(port)))
                opened.extend((client, upstream))
                kept = bytearray()
                wire.streams.append(kept)
                threading.Thread(target=_pass, args=(client, upstream, kept), daemon=True).start()
                threading.Thread(target=_pass, args=(upstream, client, None), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield wire
    finally:
        for one in opened:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()


def _pass(source: socket.socket, sink: socket.socket, kept: bytearray | None) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(1 << 16):
            if kept is not None:
                kept += data
            sink.sendall(data)
        sink.shutdown(socket.SHUT_WR)


def _messages(stream: bytes) -> Iterator[tuple[bool, bytes]]:
    """Compressed or not, and the bytes of each message that is complete, call by call."""
    assert stream.startswith(_PREFACE)
    bodies: dict[int, bytes] = defaultdict(bytes)
    at = len(_PREFACE)
    while at + 9 <= len(stream):
        length, kind, flags = int.from_bytes(stream[at : at + 3], "big"), stream[at + 3], stream[at + 4]
        call = int.from_bytes(stream[at + 5 : at + 9], "big") & 0x7FFFFFFF
        payload = stream[at + 9 : at + 9 + length]
        if kind == _DATA:
            bodies[call] += payload[1 : len(payload) - payload[0]] if flags & _PADDED else payload
        at += 9 + length
    for body in bodies.values():
        while len(body) >= 5 and len(body) >= 5 + (size := int.from_bytes(body[1:5], "big")):
            yield bool(body[0]), body[5 : 5 + size]
            body = body[5 + size :]


def _unpacked(data: bytes, compressed: bool) -> bytes:
    return gzip.decompress(data) if compressed else data
