"""Generated malformed input, in bulk: messages and machine IR for a server, and entries of a store.

    .venv/bin/python benchmarks/service_soak.py [--messages 50000] [--json 2000] [--texts 8000] [--entries 40000]

* messages: real requests of all methods with bits, bytes, tokens and spans damaged, and random nests of protobuf
  fields; over gRPC to all methods of all services, and as JSON over HTTP;
* texts: real machine IR with lines and tokens moved, cut and replaced, in messages that are well-formed. Every text
  that comes back as PROVED is audited here again;
* entries: files of a store, damaged, cut, under another name, or made with another key.

A crash is a server that ends, a worker that is lost, INTERNAL, or an exception here. A hang is a call without an answer
in a minute. An unproved object served is a text that the audit here does not prove, or parts from a store that are not
those that were put there. Ends with 1 if there is one of them.
"""

from __future__ import annotations

import asyncio
import hashlib
import http.client
import os
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
from common import command, machine, options, write
from google.protobuf import json_format
from google.protobuf.message import DecodeError
from service_fleet import fleet
from service_load import small_kernel

from smt_verifier.audit import audit
from smt_verifier.outcome import Outcome
from verilocc.v1 import allocation_service_pb2 as allocation
from verilocc.v1 import audit_service_pb2 as auditing
from verilocc.v1 import batch_service_pb2 as batching
from verilocc.v1 import problem_pb2, verdict_pb2
from verilocc_mlir.errors import VeriloccError
from verilocc_mlir.mir.parser import parse_mir
from verilocc_mlir.store import KEY_VARIABLE, Store
from verilocc_mlir.target.targets import target
from verilocc_mlir.toolchain.drivers.job import CompileOptions
from verilocc_mlir.toolchain.find import find_toolchain
from verilocc_mlir.toolchain.ir_compat import to_pre_ra
from verilocc_mlir.toolchain.staged import StagedCompiler

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))
from fuzz_mutate import mutate
from fuzz_targets import machine_ir_pair

SECONDS = 60.0
AT_ONCE = 8
CPU = "gfx942"
CRASHES = {"INTERNAL", "UNAVAILABLE", "UNKNOWN"}
"""Codes that no input may bring about."""
_SERVICE = "/verilocc.v1."


@dataclass
class Found:
    """What came of all inputs of one kind."""

    inputs: int = 0
    by_status: Counter[str] = field(default_factory=Counter[str])
    crashes: list[str] = field(default_factory=list[str])
    hangs: list[str] = field(default_factory=list[str])
    unproved: list[str] = field(default_factory=list[str])
    proved_and_audited_again: int = 0
    slowest: float = 0.0

    def record(self, seconds: float) -> dict[str, Any]:
        return {
            "inputs": self.inputs,
            "seconds": round(seconds, 1),
            "slowest_seconds": round(self.slowest, 3),
            "by_status": dict(self.by_status.most_common()),
            "proved_and_audited_again": self.proved_and_audited_again,
            "crashes": self.crashes,
            "hangs": self.hangs,
            "unproved_objects_served": self.unproved,
        }


# -- inputs ------------------------------------------------------------------------------------------


def real_messages(text: bytes) -> dict[str, bytes]:
    """A good request of every method."""
    mir = allocation.MachineIr(text=text, target=CPU, phase=problem_pb2.PHASE_SGPR, name="k")
    request = allocation.AllocateRequest(mir=mir, return_mir=True)
    messages: dict[str, Any] = {
        "AllocationService/Allocate": request,
        "AllocationService/GetCapabilities": allocation.GetCapabilitiesRequest(),
        "AuditService/Audit": auditing.AuditRequest(before=text, after=text, target=CPU),
        "BatchService/AddToBatch": batching.AddToBatchRequest(batch="b", id="x", request=request),
        "BatchService/GetBatch": batching.GetBatchRequest(batch="b"),
        "BatchService/ListBatchResults": batching.ListBatchResultsRequest(batch="b", after=1, max_results=2),
        "BatchService/CancelBatch": batching.CancelBatchRequest(batch="b"),
        "BatchService/DeleteBatch": batching.DeleteBatchRequest(batch="b"),
    }
    return {name: message.SerializeToString() for name, message in messages.items()}


def nest(chance: random.Random, depth: int = 0) -> bytes:
    """Random fields of protobuf in each other, some of them cut off."""
    data = b""
    for _ in range(chance.randrange(5)):
        number, kind = chance.choice((1, 1, 2, 3, 4, 5, 7, 15, 5000)), chance.choice((0, 1, 2, 2, 2, 3, 5, 6))
        body = (
            nest(chance, depth + 1) if kind == 2 and depth < 40 else chance.randbytes(chance.choice((0, 1, 4, 8, 20)))
        )
        size = chance.choice((len(body), len(body), len(body), len(body) + 1, 1 << 31, 0))
        data += _varint(number << 3 | kind) + (_varint(size) if kind == 2 else b"") + body
    return data


def _varint(number: int) -> bytes:
    data = b""
    while number > 127:
        data, number = data + bytes([number & 127 | 128]), number >> 7
    return data + bytes([number])


def damaged_message(real: dict[str, bytes], chance: random.Random) -> tuple[str, bytes]:
    name = chance.choice(list(real))
    if chance.randrange(3) == 0:
        return name, nest(chance)
    return name, mutate(real[name], chance.choice(list(real.values())), chance, chance.choice((1, 2, 4, 16)))


# -- a server ------------------------------------------------------------------------------------------


async def send(channel: grpc.aio.Channel, name: str, data: bytes, found: Found) -> bytes | None:
    """One call; its status counts, and its answer comes back."""
    untyped: Any = channel
    call = untyped.unary_unary(f"{_SERVICE}{name}")
    start, status, answer = time.monotonic(), "OK", None
    try:
        answer = await call(data, timeout=SECONDS)
    except grpc.aio.AioRpcError as error:
        status = error.code().name
        shown = f"{name} {hashlib.sha256(data).hexdigest()[:16]}: {status}: {error.details()}"
        if status in CRASHES:
            found.crashes.append(shown)
        if status == "DEADLINE_EXCEEDED":
            found.hangs.append(shown)
    found.inputs += 1
    found.by_status[f"{name.rpartition('/')[2]} {status}"] += 1
    found.slowest = max(found.slowest, time.monotonic() - start)
    return answer


async def messages(address: str, text: bytes, count: int, seed: int) -> Found:
    found, real, numbers = Found(), real_messages(text), iter(range(count))

    async def client(channel: grpc.aio.Channel) -> None:
        for number in numbers:
            name, data = damaged_message(real, random.Random(f"{seed} message {number}"))
            answer = await send(channel, name, data, found)
            if name == "AllocationService/Allocate" and answer is not None:
                await asyncio.to_thread(check_answer, data, answer, found)

    async with grpc.aio.insecure_channel(address, [("grpc.max_receive_message_length", -1)]) as channel:
        await asyncio.gather(*(client(channel) for _ in range(AT_ONCE)))
    return found


async def texts(address: str, real: tuple[bytes, ...], count: int, seed: int) -> Found:
    found, numbers = Found(), iter(range(count))

    async def client(channel: grpc.aio.Channel) -> None:
        for number in numbers:
            chance = random.Random(f"{seed} text {number}")
            data = mutate(chance.choice(real), chance.choice(real), chance, chance.choice((1, 1, 2, 4, 16)))
            mir = allocation.MachineIr(text=data, target=CPU, phase=problem_pb2.PHASE_SGPR)
            request = allocation.AllocateRequest(mir=mir, return_mir=True).SerializeToString()
            answer = await send(channel, "AllocationService/Allocate", request, found)
            if answer is not None:
                await asyncio.to_thread(check_answer, request, answer, found)

    async with grpc.aio.insecure_channel(address, [("grpc.max_receive_message_length", -1)]) as channel:
        await asyncio.gather(*(client(channel) for _ in range(AT_ONCE)))
    return found


def check_answer(request: bytes, data: bytes, found: Found) -> None:
    """Audit a text of which the server says that all of it is proved."""
    answer = allocation.AllocateResponse.FromString(data)
    proved = [f for f in answer.functions if f.outcome == verdict_pb2.OUTCOME_PROVED]
    if not proved or not answer.mir:
        return
    name = hashlib.sha256(request).hexdigest()[:16]
    try:
        given = allocation.AllocateRequest.FromString(request).mir
        report = audit(parse_mir(given.text.decode()), parse_mir(answer.mir.decode()), target(given.target or CPU))
    except (VeriloccError, DecodeError, UnicodeDecodeError) as error:
        found.unproved.append(f"{name}: {error}")
        return
    outcomes = {function.function: function.outcome for function in report.functions}
    found.proved_and_audited_again += len(proved)
    found.unproved += [f"{name}: {f.function}" for f in proved if outcomes.get(f.function) is not Outcome.PROVED]


def over_http(port: int, text: bytes, count: int, seed: int) -> Found:
    """JSON, damaged; one connection as long as it lasts."""
    found = Found()
    request = allocation.AllocateRequest.FromString(real_messages(text)["AllocationService/Allocate"])
    real = json_format.MessageToJson(request).encode()
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=SECONDS)
    for number in range(count):
        chance = random.Random(f"{seed} json {number}")
        data = mutate(real, b'{"problem": {"ranges": [{}, 1e999, null, "\\ud800"]}}', chance, chance.choice((1, 2, 4)))
        start = time.monotonic()
        try:
            connection.request(
                "POST", f"{_SERVICE}AllocationService/Allocate", data, {"content-type": "application/json"}
            )
            answer = connection.getresponse()
            body = answer.read()
        except TimeoutError:
            found.hangs.append(str(number))
            connection.close()
            continue
        except (OSError, http.client.HTTPException) as error:
            found.crashes.append(f"json {number}: {error!r}")
            connection.close()
            continue
        found.inputs += 1
        found.by_status[f"HTTP {answer.status}"] += 1
        found.slowest = max(found.slowest, time.monotonic() - start)
        if answer.status in (500, 503):
            found.crashes.append(f"json {number}: {body[:200]!r}")
        if answer.status == 504:
            found.hangs.append(f"json {number}")
    connection.close()
    return found


# -- a store -------------------------------------------------------------------------------------------


def entries(directory: Path, count: int, seed: int) -> Found:
    """Damage one of many entries, ask for it, and mend it."""
    found = Found()
    store = Store(directory / "store", lambda _: None)
    chance = random.Random(f"{seed} entries")
    kept: dict[str, dict[str, bytes]] = {}
    for number in range(20):
        key = hashlib.sha256(b"%d" % number).hexdigest()
        kept[key] = {"result": b"\x7fELF" + chance.randbytes(500), "report.json": b'{"outcome": "proved"}'}
        store.put(key, kept[key])
    whole = {key: store.path(key).read_bytes() for key in kept}
    forged = forgery(directory, kept)
    keys = list(kept)
    for number in range(count):
        chance = random.Random(f"{seed} entry {number}")
        key, other = chance.choice(keys), chance.choice(keys)
        path, start = store.path(key), time.monotonic()
        kind = chance.choice(("damaged", "damaged", "damaged", "another", "forged", "random", "special"))
        if kind == "special":
            special(path, chance)
        elif kind == "damaged":
            path.write_bytes(mutate(whole[key], whole[other], chance, chance.choice((1, 1, 2, 4))))
        elif kind == "random":
            path.write_bytes(chance.randbytes(chance.randrange(1000)))
        else:
            path.write_bytes({"another": whole[other], "forged": forged[key]}[kind])
        try:
            answer = store.get(key)
        except Exception as error:
            found.crashes.append(f"entry {number}: {error!r}")
            answer = None
        if answer is not None and answer != kept[key]:
            found.unproved.append(f"entry {number}: {kind}")
        found.inputs += 1
        found.by_status[f"{kind}: {'the entry as it was' if answer is not None else 'not taken'}"] += 1
        found.slowest = max(found.slowest, time.monotonic() - start)
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink(missing_ok=True)
        path.write_bytes(whole[key])
    return found


def forgery(directory: Path, kept: dict[str, dict[str, bytes]]) -> dict[str, bytes]:
    """The same entries with another result, well-formed, made with another key."""
    key = directory / "other.key"
    key.write_text("f" * 64 + "\n")
    key.chmod(0o600)
    os.environ[KEY_VARIABLE] = str(key)
    try:
        other = Store(directory / "forged", lambda _: None)
        for name, parts in kept.items():
            other.put(name, {**parts, "result": b"\x7fELF forged"})
        return {name: other.path(name).read_bytes() for name in kept}
    finally:
        del os.environ[KEY_VARIABLE]


def special(path: Path, chance: random.Random) -> None:
    """Something that is no file, in an entry's place."""
    path.unlink()
    kind = chance.randrange(4)
    if kind == 0:
        os.mkfifo(path)
    elif kind == 1:
        path.mkdir()
    elif kind == 2:
        path.symlink_to("/dev/zero")
    else:
        path.symlink_to(path)


# -- all of it -------------------------------------------------------------------------------------------


def main() -> int:
    """Run all, print and write what came of it."""
    parser = options(__doc__, "service_soak.json")
    parser.add_argument("--messages", type=int, default=50000)
    parser.add_argument("--json", type=int, default=2000, help="messages as JSON over HTTP")
    parser.add_argument("--texts", type=int, default=8000)
    parser.add_argument("--entries", type=int, default=40000)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    compiler = StagedCompiler(find_toolchain(), CompileOptions(CPU))
    small = to_pre_ra(compiler, small_kernel(3)).mir.encode()
    real = (small, machine_ir_pair()[0].encode())
    record: dict[str, Any] = {"command": command(), "machine": machine(), "seed": given.seed}
    kinds: dict[str, dict[str, Any]] = {}

    def add(name: str, found: Found, start: float) -> None:
        kinds[name] = found.record(time.monotonic() - start)
        print(f"{name}: {kinds[name]}", flush=True)

    with tempfile.TemporaryDirectory() as scratch:
        os.environ["XDG_CONFIG_HOME"] = scratch
        start = time.monotonic()
        add("entries", entries(Path(scratch), given.entries, given.seed), start)
        with fleet(1, "--workers=1", f"--batches={scratch}/batches", "--http=127.0.0.1:0") as servers:
            (server,) = servers.running
            address = f"127.0.0.1:{servers.ports[0]}"
            port = next(event["port"] for event in iter(server.events()) if event["event"] == "http")
            start = time.monotonic()
            add("messages", asyncio.run(messages(address, small, given.messages, given.seed)), start)
            start = time.monotonic()
            add("json", over_http(port, small, given.json, given.seed), start)
            start = time.monotonic()
            add("texts", asyncio.run(texts(address, real, given.texts, given.seed)), start)
            servers.stop()
            events = server.events()
    record["inputs"] = sum(kind["inputs"] for kind in kinds.values())
    defects = [event for event in events if event["event"] in ("defect", "worker not started")]
    for name in ("crashes", "hangs", "unproved_objects_served"):
        record[name] = sum(len(kind[name]) for kind in kinds.values())
    record["defects_in_the_servers_log"] = len(defects)
    record["server_ended_with"] = servers.ended
    record["kinds"] = kinds
    write(given.out, record)
    return (
        1
        if record["crashes"] or record["hangs"] or record["unproved_objects_served"] or defects or any(servers.ended)
        else 0
    )


if __name__ == "__main__":
    sys.exit(main())
