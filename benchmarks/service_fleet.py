"""Servers that are restarted one after the other and lose workers, while ``service_load.py`` has clients on them.

.venv/bin/python benchmarks/service_fleet.py ADDRESS... --seconds N     health, four times a second
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

REPOSITORY = Path(__file__).resolve().parent.parent
_HEALTH: Any = health_pb2_grpc
_START_SECONDS = 120.0
_PAUSE_SECONDS = 0.25
_HEALTH_SECONDS = 10.0


@dataclass
class Process:
    """A server: its process, and the file with its log."""

    process: subprocess.Popen[bytes]
    log: Path

    @property
    def listens(self) -> bool:
        return any(event["event"] == "listening" for event in self.events())

    def events(self) -> list[dict[str, Any]]:
        """Its log so far."""
        lines = self.log.read_text().splitlines(keepends=True)
        return [json.loads(line) for line in lines if line.startswith("{") and line.endswith("\n")]


@dataclass
class Fleet:
    """Servers on ports that stay the same.

    Attributes:
        ended: exit codes of those that were told to end.
        killed: worker processes that were killed.
    """

    ports: tuple[int, ...]
    options: tuple[str, ...]
    directory: Path
    running: list[Process] = field(default_factory=list[Process])
    logs: list[Process] = field(default_factory=list[Process])
    ended: list[int] = field(default_factory=list[int])
    killed: int = 0

    @property
    def target(self) -> str:
        """For a channel that goes to all of them in turns."""
        return "ipv4:" + ",".join(f"127.0.0.1:{port}" for port in self.ports)

    def start(self, number: int) -> Process:
        """Start the server of a port; return when it listens."""
        log = self.directory / f"{len(self.logs)}.log"
        command = [sys.executable, "-m", "verilocc_mlir.cli.main", "serve", f"--listen=127.0.0.1:{self.ports[number]}"]
        with log.open("wb") as stream:
            process = subprocess.Popen([*command, *self.options], cwd=REPOSITORY, stderr=stream)
        started = Process(process, log)
        self.logs.append(started)
        deadline = time.monotonic() + _START_SECONDS
        while not started.listens:
            if process.poll() is not None or time.monotonic() > deadline:
                raise SystemExit(f"a server did not start: {log.read_text()[-2000:]}")
            time.sleep(0.05)
        return started

    def restart(self, number: int) -> None:
        """Tell it to end, wait until it has, and start it again."""
        old = self.running[number]
        old.process.send_signal(signal.SIGTERM)
        self.ended.append(old.process.wait())
        self.running[number] = self.start(number)

    async def roll(self, end: float, every: float) -> None:
        """Restart one after the other until ``end``."""
        number = 0
        while time.monotonic() + every < end:
            await asyncio.sleep(every)
            await asyncio.to_thread(self.restart, number % len(self.ports))
            number += 1

    async def kill(self, end: float, every: float, seed: int) -> None:
        """Kill a worker of some server now and then, whatever it does."""
        chance = random.Random(seed)
        while time.monotonic() + every < end:
            await asyncio.sleep(every)
            workers = children(chance.choice(self.running).process.pid)
            if workers:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(chance.choice(workers), signal.SIGKILL)
                    self.killed += 1

    def stop(self) -> None:
        """End all; what they end with counts too."""
        for one in self.running:
            one.process.send_signal(signal.SIGTERM)
        self.ended += [one.process.wait() for one in self.running]

    def events(self) -> Counter[str]:
        """How often each thing stands in the logs; ``refused`` with its reason."""
        counted: Counter[str] = Counter()
        for one in self.logs:
            for event in one.events():
                counted[f"{event['event']} {event.get('reason', '')}".strip()] += 1
        return counted

    def unfinished(self) -> int:
        """Servers that gave up calls which they had accepted, or did not end as they should."""
        gave_up = sum(event.get("finished") is False for one in self.logs for event in one.events())
        return gave_up + sum(code != 0 for code in self.ended)


@contextlib.contextmanager
def fleet(count: int, *options: str) -> Generator[Fleet, None, None]:
    """So many servers, ended at the end."""
    with tempfile.TemporaryDirectory() as directory:
        with contextlib.ExitStack() as held:
            sockets = [held.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
            ports = tuple(int(one.getsockname()[1]) for one in sockets)
        servers = Fleet(ports, options, Path(directory))
        try:
            servers.running += [servers.start(number) for number in range(count)]
            yield servers
        finally:
            for one in servers.running:
                if one.process.poll() is None:
                    one.process.kill()
                    one.process.wait()


def children(pid: int) -> list[int]:
    """Processes that a process started itself."""
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            found += map(int, task.read_text().split())
    return found


# -- health, from a process of its own -------------------------------------------------------------------------------


def watch_health(addresses: Sequence[str], seconds: float) -> dict[str, Any]:
    """Ask every server in turn; the time of each answer, and whether ever none of them was serving."""
    channels = [grpc.insecure_channel(address, [("grpc.enable_http_proxy", 0)]) for address in addresses]
    stubs = [_HEALTH.HealthStub(channel) for channel in channels]
    answered: list[float] = []
    down = nobody = late = 0
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        serving = 0
        for stub in stubs:
            start = time.monotonic()
            try:
                answer = stub.Check(health_pb2.HealthCheckRequest(), timeout=_HEALTH_SECONDS)
            except grpc.RpcError as error:
                failed: Any = error
                if failed.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
                    late += 1
                down += 1
                continue
            answered.append(time.monotonic() - start)
            serving += answer.status == health_pb2.HealthCheckResponse.SERVING
        nobody += not serving
        time.sleep(_PAUSE_SECONDS)
    answered.sort()
    return {
        "answers": len(answered),
        "not_answered_in_ten_seconds": late,
        "server_was_away": down,
        "rounds_without_a_serving_server": nobody,
        "p50": round(answered[len(answered) // 2], 4),
        "p99": round(answered[int(0.99 * len(answered))], 4),
        "most": round(answered[-1], 4),
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("addresses", nargs="+")
    parser.add_argument("--seconds", type=float, required=True)
    given = parser.parse_args()
    print(json.dumps(watch_health(given.addresses, given.seconds)))
