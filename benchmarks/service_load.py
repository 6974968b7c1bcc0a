"""The service under load, beside the same work without it.

    .venv/bin/python benchmarks/service_load.py [--kernels DIR] [--minutes 3] [--clients 64] [--workers N] [--seed 0]
        [--jobs N] [--out benchmarks/results/service_load.json] [--rolling]

A job is one phase (SGPR or VGPR) of one kernel: machine IR that the real llc stopped at, for ``Allocate`` with the text
returned. Three measurements on one machine in one run:

* in process: every job through ``service.jobs.run``, one after the other. Jobs whose allocation is not proved there
  are named and left out, so that any answer of the load which is not PROVED is a fault.
* overhead: the jobs of more than 500 instructions by turns in this process and in a server with one worker and one
  client. CPU seconds, solvers included; "front" is the process that speaks gRPC, "client" what the calls cost on this
  side.
* load: so many clients with a channel each, every one going through the jobs in an order of its own, against a server
  with fewer places to wait than clients. OVERLOADED is tried again as RetryInfo says. Answers must be PROVED, and the
  machine IR in them that which was made in process. Meanwhile the memory of front and workers is sampled, with a line
  fitted by least squares, and GetCapabilities is asked once a second.

``--rolling`` is another load: ``--servers`` of ``--workers`` each behind one name, one of which is told to end and
started again every ``--restart-seconds``, while every ``--kill-seconds`` some worker is killed. Clients try again what
is OVERLOADED, TOO_MANY_CALLS or UNAVAILABLE, or CANCELLED as gRPC says it of a call that reaches a closing server. A
call is lost if its server gave it up: a server that did not finish what it had accepted, or a connection that ended
under a call. A process of its own asks for health four times a second.

Ends with 1 if an answer was not proved or another text, or an error was none of the documented limits.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import platform
import random
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

import grpc
from common import command, kernel_directory, options
from google.rpc.error_details_pb2 import ErrorInfo, RetryInfo
from google.rpc.status_pb2 import Status
from service_fleet import Fleet, fleet

from verilocc.v1 import allocation_service_pb2 as allocation
from verilocc.v1 import problem_pb2, verdict_pb2
from verilocc_mlir.errors import VeriloccError
from verilocc_mlir.mir.parser import parse_mir
from verilocc_mlir.service import jobs
from verilocc_mlir.toolchain.drivers.job import CompileOptions
from verilocc_mlir.toolchain.find import Toolchain, find_toolchain
from verilocc_mlir.toolchain.ir_compat import to_pre_ra
from verilocc_mlir.toolchain.staged import LlvmPhase, StagedCompiler
from verilocc_mlir.version import __version__

REPOSITORY = Path(__file__).resolve().parent.parent
LARGE = 500
CALL_SECONDS = 300.0
LIMITS = {
    ("RESOURCE_EXHAUSTED", "OVERLOADED"),
    ("RESOURCE_EXHAUSTED", "TOO_MANY_CALLS"),
    ("RESOURCE_EXHAUSTED", "MEMORY_LIMIT"),
    ("DEADLINE_EXCEEDED", "DEADLINE"),
    ("DEADLINE_EXCEEDED", ""),
}
"""Documented limits; a deadline that passes on the client's side has no reason."""
AGAIN = {"OVERLOADED", "TOO_MANY_CALLS"}
"""Reasons that are tried again as RetryInfo says."""
_TICKS = os.sysconf("SC_CLK_TCK")
_PHASES = {"sgpr": problem_pb2.PHASE_SGPR, "vgpr": problem_pb2.PHASE_VGPR}


@dataclass(frozen=True)
class Job:
    """One request: the message, serialised; ``instructions`` of its functions before the phase."""

    name: str
    instructions: int
    payload: bytes


@dataclass(frozen=True)
class InProcess:
    """A job done here: wall seconds of each time, and the text that came of it."""

    seconds: tuple[float, ...]
    mir: bytes


# -- jobs ------------------------------------------------------------------------------------------


def small_kernel(factor: int) -> str:
    """LLVM IR of a kernel of some ten instructions."""
    return f"""declare i32 @llvm.amdgcn.workitem.id.x()
define amdgpu_kernel void @times{factor}(ptr addrspace(1) %p) {{
  %id = call i32 @llvm.amdgcn.workitem.id.x()
  %q = getelementptr i32, ptr addrspace(1) %p, i32 %id
  %v = load i32, ptr addrspace(1) %q
  %w = mul i32 %v, {factor}
  store i32 %w, ptr addrspace(1) %q
  ret void
}}
"""


def make_jobs(kernels: Sequence[Path], toolchain: Toolchain) -> list[Job]:
    """Both phases of every kernel, and of a few small ones for each target."""
    cpus = [_cpu_of(path) for path in kernels]
    sources = [(path.name, cpu, path.read_text()) for path, cpu in zip(kernels, cpus, strict=True)]
    sources += [(f"times{k}.{cpu}", cpu, small_kernel(k)) for cpu in sorted(set(cpus)) for k in (3, 5, 7)]
    found: list[Job] = []
    for name, cpu, text in sources:
        compiler = StagedCompiler(toolchain, CompileOptions(cpu))
        scalar = to_pre_ra(compiler, text).mir
        allocated = compiler.llvm_allocate(scalar, LlvmPhase.SGPR)
        vector = compiler.resume(allocated, done=LlvmPhase.SGPR, until=LlvmPhase.VGPR)
        found += [_job(name, cpu, phase, mir) for phase, mir in (("sgpr", scalar), ("vgpr", vector))]
    return found


def _cpu_of(path: Path) -> str:
    match = re.search(r"gfx[0-9a-f]+", path.name)
    if match is None:
        raise SystemExit(f"{path}: the name of a kernel says its target: kernel.gfx942.ll")
    return match[0]


def _job(name: str, cpu: str, phase: str, text: str) -> Job:
    mir = allocation.MachineIr(text=text.encode(), target=cpu, phase=_PHASES[phase], name=name)
    request = allocation.AllocateRequest(mir=mir, return_mir=True)
    count = sum(function.instruction_count for function in parse_mir(text, name).functions)
    return Job(f"{name} {phase}", count, request.SerializeToString())


def not_proved(answer: allocation.AllocateResponse) -> str:
    """Why an answer is not PROVED throughout; ``""`` if it is."""
    return "; ".join(
        f"{f.function}: {f.reason or f.outcome}" for f in answer.functions if f.outcome != verdict_pb2.OUTCOME_PROVED
    )


def do_in_process(found: Sequence[Job], rounds: int) -> tuple[dict[Job, InProcess], dict[str, str]]:
    """Every job done here, and the reasons of those that are left out."""
    done: dict[Job, InProcess] = {}
    left_out: dict[str, str] = {}
    for job in found:
        times: list[float] = []
        mir = b""
        for _ in range(rounds):
            start = time.monotonic()
            data = jobs.run("Allocate", job.payload, CALL_SECONDS)
            times.append(time.monotonic() - start)
            answer = allocation.AllocateResponse.FromString(data)
            mir = answer.mir
            if reason := not_proved(answer):
                left_out[job.name] = reason
                break
        else:
            done[job] = InProcess(tuple(times), mir)
    return done, left_out


# -- processes -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Server:
    """A server of its own process."""

    pid: int
    address: str


@contextlib.contextmanager
def serving(*options: str) -> Generator[Server, None, None]:
    """``verilocc serve`` until the end of the block."""
    command = [sys.executable, "-m", "verilocc_mlir.cli.main", "serve", "--listen=127.0.0.1:0", *options]
    with tempfile.TemporaryFile("w+") as said:
        process = subprocess.Popen(command, cwd=REPOSITORY, stderr=said)
        try:
            yield Server(process.pid, _address(process, lambda: _all_of(said)))
            process.send_signal(signal.SIGTERM)
            process.wait(timeout=CALL_SECONDS)
        finally:
            process.kill()
            process.wait()


def _all_of(file: Any) -> str:
    return os.pread(file.fileno(), 1 << 16, 0).decode()


def _address(process: subprocess.Popen[bytes], said: Callable[[], str]) -> str:
    while process.poll() is None:
        for line in said().splitlines(keepends=True):
            if line.endswith("\n") and json.loads(line)["event"] == "listening":
                return str(json.loads(line)["address"])
        time.sleep(0.05)
    raise SystemExit(f"the server did not start: {said()}")


def family(pid: int) -> list[int]:
    """A process and all below it, itself first."""
    found = [pid]
    for one in found:
        with contextlib.suppress(OSError):
            for task in Path(f"/proc/{one}/task").iterdir():
                found += map(int, (task / "children").read_text().split())
    return found


def cpu_seconds(pids: Sequence[int]) -> float:
    """CPU time of some processes, and of those below them that ended; from /proc, in steps of a clock tick."""
    ticks = 0
    for pid in pids:
        with contextlib.suppress(OSError):
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            ticks += sum(map(int, fields[11:15]))
    return ticks / _TICKS


def resident_mib(pids: Sequence[int]) -> float:
    """Resident memory of some processes."""
    total = 0
    for pid in pids:
        with contextlib.suppress(OSError):
            found = re.search(r"^VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
            total += int(found[1]) if found else 0
    return total / 1024


# -- clients ---------------------------------------------------------------------------------------


def _channel(server: Server) -> grpc.aio.Channel:
    options: list[tuple[str, str | int]] = [
        ("grpc.max_receive_message_length", -1),
        # A connection of its own, as clients on different machines have.
        ("grpc.use_local_subchannel_pool", 1),
        ("grpc.enable_http_proxy", 0),
        ("grpc.lb_policy_name", "round_robin"),
    ]
    return grpc.aio.insecure_channel(server.address, options=options)


def _method(channel: Any, name: str) -> Any:
    """A method from bytes to bytes: the load is to cost the clients little."""
    return channel.unary_unary(f"/verilocc.v1.AllocationService/{name}")


def _reason_of(error: grpc.aio.AioRpcError) -> tuple[str, float]:
    """``ErrorInfo.reason`` and seconds to wait, -1 where waiting does not help."""
    reason, wait = "", -1.0
    for key, value in error.trailing_metadata() or ():
        if key == "grpc-status-details-bin" and isinstance(value, bytes):
            for detail in Status.FromString(value).details:
                info, retry = ErrorInfo(), RetryInfo()
                if detail.Unpack(info):
                    reason = info.reason
                elif detail.Unpack(retry):
                    wait = retry.retry_delay.ToTimedelta().total_seconds()
    return reason, wait


_BACKOFF_SECONDS = 0.5


def _was_not_accepted(reason: str, error: grpc.aio.AioRpcError) -> bool:
    """Of UNAVAILABLE: the server refused the call because it ends, there was none, or it lost two workers and said so.

    gRPC has no details where it did not reach a server; a call on a connection that broke is another thing.
    """
    return reason in ("DRAINING", "WORKER_LOST") or "failed to connect" in str(error.details())


@dataclass
class Load:
    """What the clients saw."""

    expected: dict[Job, InProcess]
    counts: Counter[str] = field(default_factory=Counter[str])
    retries: int = 0
    rolling: bool = False
    seconds: list[float] = field(default_factory=list[float])
    waited: list[float] = field(default_factory=list[float])
    worked: list[float] = field(default_factory=list[float])
    capabilities: list[float] = field(default_factory=list[float])
    served: Counter[str] = field(default_factory=Counter[str])
    faults: list[str] = field(default_factory=list[str])

    async def client(self, server: Server, seed: str, end: float) -> None:
        """One client: jobs in an order of its own until ``end``."""
        order = list(self.expected)
        random.Random(seed).shuffle(order)
        async with _channel(server) as channel:
            ask: Any = _method(channel, "Allocate")
            while True:
                for job in order:
                    if time.monotonic() >= end:
                        return
                    await self._one(ask, job, end)

    async def _one(self, ask: Any, job: Job, end: float) -> None:
        while True:
            start = time.monotonic()
            try:
                data = await ask(job.payload, timeout=CALL_SECONDS)
            except grpc.aio.AioRpcError as error:
                reason, wait = _reason_of(error)
                code = error.code().name
                self.counts[f"{code} {reason}".strip()] += 1
                closing = code == "CANCELLED" and not reason  # which no handler has seen
                away = self.rolling and (closing or (code == "UNAVAILABLE" and _was_not_accepted(reason, error)))
                if (code, reason) not in LIMITS and not away:
                    self.faults.append(f"{job.name}: {code} {reason}: {error.details()}")
                left = end - time.monotonic()
                wait = max(wait, _BACKOFF_SECONDS) if away else wait
                await asyncio.sleep(max(0.0, min(wait, left)))
                if not (away or reason in AGAIN) or wait >= left:
                    return
                self.retries += 1
                continue
            self.seconds.append(time.monotonic() - start)
            self._answered(job, allocation.AllocateResponse.FromString(data))
            return

    def _answered(self, job: Job, answer: allocation.AllocateResponse) -> None:
        self.counts["OK"] += 1
        self.served[job.name] += 1
        self.waited.append(answer.queue_time.ToTimedelta().total_seconds())
        self.worked.append(answer.wall_time.ToTimedelta().total_seconds())
        if reason := not_proved(answer):
            self.faults.append(f"{job.name}: not proved: {reason}")
        elif answer.mir != self.expected[job].mir:
            self.faults.append(f"{job.name}: another text than in process")

    async def ask_capabilities(self, server: Server, end: float) -> None:
        """Once a second; needs no worker."""
        async with _channel(server) as channel:
            ask: Any = _method(channel, "GetCapabilities")
            while time.monotonic() < end:
                start = time.monotonic()
                await ask(b"", timeout=CALL_SECONDS)
                self.capabilities.append(time.monotonic() - start)
                await asyncio.sleep(1.0)


@dataclass
class Memory:
    """Resident memory over time: seconds since the load began, MiB of the front and of all workers with solvers."""

    rows: list[tuple[float, float, float]] = field(default_factory=list[tuple[float, float, float]])

    async def watch(self, server: Server, end: float) -> None:
        """A sample a second."""
        start = time.monotonic()
        while time.monotonic() < end:
            front, *workers = family(server.pid)
            self.rows.append((time.monotonic() - start, resident_mib([front]), resident_mib(workers)))
            await asyncio.sleep(1.0)

    def summary(self) -> dict[str, Any]:
        """Growth of the front, and of workers, over all samples and over the second half, when all have warmed up."""
        seconds = [row[0] for row in self.rows]
        window = min(60.0, seconds[-1] / 3)
        first = [n for n, s in enumerate(seconds) if s <= window]
        last = [n for n, s in enumerate(seconds) if s >= seconds[-1] - window]
        half = len(seconds) // 2
        found: dict[str, Any] = {"samples": len(seconds), "window_seconds": round(window, 1)}
        for column, name in ((1, "front"), (2, "workers_and_solvers")):
            values = [row[column] for row in self.rows]
            begun, ended = (statistics.mean(values[n] for n in window_) for window_ in (first, last))
            found[name] = {
                "mib_first_window": round(begun, 1),
                "mib_last_window": round(ended, 1),
                "mib_most": round(max(values), 1),
                "last_to_first_ratio": round(ended / begun, 3),
                "growth_mib_per_hour": _slope_per_hour(seconds, values),
                "growth_mib_per_hour_second_half": _slope_per_hour(seconds[half:], values[half:]),
            }
        return found


def _slope_per_hour(seconds: Sequence[float], values: Sequence[float]) -> float:
    return round(3600 * statistics.linear_regression(seconds, values).slope, 1)


async def put_under_load(
    server: Server, expected: dict[Job, InProcess], clients: int, minutes: float, seed: int
) -> tuple[Load, Memory, float]:
    """The load and the samples; and how long it took until the last answer."""
    load, memory = Load(expected), Memory()
    start = time.monotonic()
    end = start + 60 * minutes
    await asyncio.gather(
        load.ask_capabilities(server, end),
        memory.watch(server, end),
        *(load.client(server, f"{seed}/{number}", end) for number in range(clients)),
    )
    return load, memory, time.monotonic() - start


# -- overhead --------------------------------------------------------------------------------------


def overhead(chosen: Sequence[Job], rounds: int) -> dict[str, Any]:
    """CPU seconds of the same requests here and in a server with one worker, by turns."""
    with serving("--workers=1") as server:
        return asyncio.run(_overhead(server, chosen, rounds))


async def _overhead(server: Server, chosen: Sequence[Job], rounds: int) -> dict[str, Any]:
    rows: list[tuple[float, ...]] = []
    async with _channel(server) as channel:
        ask: Any = _method(channel, "Allocate")
        # The first round is for what is loaded and cached once.
        for number in range(rounds + 1):
            for job in chosen:
                there = await _timed_there(server, ask, job)
                here = _timed_here(server, job)
                if number:
                    rows.append((*there, *here))
    front, workers, client, service_seconds, here_cpu, here_seconds = (
        statistics.mean(c) for c in zip(*rows, strict=True)
    )
    return {
        "requests": len(rows),
        "jobs": len(chosen),
        "cpu_seconds_per_request": {
            "in_process": round(here_cpu, 4),
            "front": round(front, 4),
            "worker_and_solver": round(workers, 4),
            "client": round(client, 4),
        },
        "seconds_per_request": {"in_process": round(here_seconds, 4), "service": round(service_seconds, 4)},
        "front_percent": round(100 * front / here_cpu, 2),
        "server_overhead_percent": round(100 * ((front + workers) / here_cpu - 1), 2),
        "server_and_client_overhead_percent": round(100 * ((front + workers + client) / here_cpu - 1), 2),
    }


async def _timed_there(server: Server, ask: Any, job: Job) -> tuple[float, float, float, float]:
    """CPU seconds of the front, of worker and solver, of the client; wall seconds."""
    front, *workers = family(server.pid)
    before_front, before_workers = cpu_seconds([front]), cpu_seconds(workers)
    mine, start = time.process_time(), time.monotonic()
    await ask(job.payload, timeout=CALL_SECONDS)
    client, elapsed = time.process_time() - mine, time.monotonic() - start
    workers = family(server.pid)[1:]
    return cpu_seconds([front]) - before_front, cpu_seconds(workers) - before_workers, client, elapsed


def _timed_here(server: Server, job: Job) -> tuple[float, float]:
    """CPU seconds of this process and its solver; wall seconds."""
    others = {os.getpid(), *family(server.pid)}
    solvers = [pid for pid in family(os.getpid()) if pid not in others]
    before = cpu_seconds(solvers)
    mine, start = time.process_time(), time.monotonic()
    jobs.run("Allocate", job.payload, CALL_SECONDS)
    own, elapsed = time.process_time() - mine, time.monotonic() - start
    return own + cpu_seconds(solvers) - before, elapsed


# -- rolling -------------------------------------------------------------------------------------------


def roll(arguments: argparse.Namespace, expected: dict[Job, InProcess]) -> tuple[dict[str, Any], list[str]]:
    """The load on servers that come and go: what is recorded, and the faults."""
    options = (f"--workers={arguments.workers}", f"--max-waiting={arguments.max_waiting}", "--drain-seconds=300")
    seconds = 60 * arguments.minutes
    with fleet(arguments.servers, *options) as servers:
        addresses = [f"127.0.0.1:{port}" for port in servers.ports]
        command = [
            sys.executable,
            str(Path(__file__).with_name("service_fleet.py")),
            *addresses,
            f"--seconds={seconds}",
        ]
        watching = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        load, rows, elapsed = asyncio.run(_roll(arguments, servers, expected))
        servers.stop()
        health = json.loads(watching.communicate()[0])
        unfinished, log_events = servers.unfinished(), servers.events()
    fronts, workers = [row[1] for row in rows], [row[2] for row in rows]
    faults = list(load.faults)
    if unfinished:
        faults.append(f"{unfinished} servers gave up accepted calls")
    if health["most"] >= 1.0 or health["not_answered_in_ten_seconds"]:
        faults.append("health took a second or more")
    half = len(rows) // 2
    return {
        "servers": arguments.servers,
        "clients": arguments.clients,
        "workers_of_each": arguments.workers,
        "max_waiting_of_each": arguments.max_waiting,
        "minutes": arguments.minutes,
        "restarts": len(servers.ended) - arguments.servers,
        "exit_codes": sorted(set(servers.ended)),
        "workers_killed": servers.killed,
        "seconds_to_last_answer": round(elapsed, 1),
        "answers_per_second": round(load.counts["OK"] / elapsed, 2),
        "by_status": dict(sorted(load.counts.items())),
        "tried_again": load.retries,
        "jobs_served": len(load.served),
        "call_seconds": quantiles(load.seconds),
        "waited_seconds": quantiles(load.waited),
        "worked_seconds": quantiles(load.worked),
        "health_seconds": health,
        "accepted_calls_lost": unfinished + sum("UNAVAILABLE" in fault for fault in load.faults),
        "wrong_answers": sum("UNAVAILABLE" not in fault for fault in load.faults),
        "memory_mib": {
            "largest_front_median": round(statistics.median(fronts), 1),
            "largest_front_median_second_half": round(statistics.median(fronts[half:]), 1),
            "largest_front_most": round(max(fronts), 1),
            "workers_and_solvers_median": round(statistics.median(workers), 1),
            "workers_and_solvers_median_second_half": round(statistics.median(workers[half:]), 1),
            "workers_and_solvers_most": round(max(workers), 1),
        },
        "log_events": dict(sorted(log_events.items())),
        "faults": faults,
    }, faults  # fmt: skip


async def _roll(
    arguments: argparse.Namespace, servers: Fleet, expected: dict[Job, InProcess]
) -> tuple[Load, list[tuple[float, float, float]], float]:
    load = Load(expected, rolling=True)
    rows: list[tuple[float, float, float]] = []
    behind = Server(0, servers.target)
    start = time.monotonic()
    end = start + 60 * arguments.minutes

    async def sample() -> None:
        while time.monotonic() < end:
            families = [family(one.process.pid) for one in servers.running]
            largest = max(resident_mib([front]) for front, *_ in families)
            rows.append((time.monotonic() - start, largest, resident_mib([p for _, *all_ in families for p in all_])))
            await asyncio.sleep(1.0)

    await asyncio.gather(
        servers.roll(end, arguments.restart_seconds),
        servers.kill(end, arguments.kill_seconds, arguments.seed),
        sample(),
        *(load.client(behind, f"{arguments.seed}/{number}", end) for number in range(arguments.clients)),
    )
    return load, rows, time.monotonic() - start


# -- all of it -------------------------------------------------------------------------------------


def quantiles(values: Sequence[float]) -> dict[str, float]:
    """Median, 99th percentile and mean, in seconds."""
    if not values:
        return {}
    ordered = sorted(values)
    at = {"p50": 0.5, "p99": 0.99}
    found = {name: round(ordered[min(len(ordered) - 1, int(q * len(ordered)))], 4) for name, q in at.items()}
    return {**found, "mean": round(statistics.mean(values), 4), "most": round(ordered[-1], 4)}


def _arguments() -> argparse.Namespace:
    parser = options(__doc__, "service_load.json", kernels=kernel_directory())
    parser.add_argument("--minutes", type=float, default=3.0, help="of load")
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--max-waiting", type=int, default=48, help="fewer than clients, so that some are refused")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=0, help="a sample of so many jobs; 0: all")
    parser.add_argument("--rounds", type=int, default=2, help="of the in-process and the overhead measurement")
    parser.add_argument("--rolling", action="store_true", help="restart servers and kill workers meanwhile")
    parser.add_argument("--servers", type=int, default=2, help="with --rolling")
    parser.add_argument("--restart-seconds", type=float, default=45.0, help="with --rolling: between two restarts")
    parser.add_argument("--kill-seconds", type=float, default=7.0, help="with --rolling: between two kills")
    parser.add_argument("--overhead-jobs", type=int, default=16, help="a sample of so many jobs; 0: all")
    return parser.parse_args()


def write_result(path: Path, record: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(record, indent=1) + "\n")


def _about(arguments: argparse.Namespace, toolchain: Toolchain) -> dict[str, Any]:
    return {
        "command": command(),
        "seed": arguments.seed,
        "machine": {"python": platform.python_version(), "cores": os.cpu_count(), "architecture": platform.machine()},
        "versions": {
            "verilocc": __version__,
            "llvm": toolchain.version_text,
            **{name: version(name) for name in ("grpcio", "protobuf", "z3-solver")},
        },
    }


def _sample(found: Sequence[Job], count: int, seed: int) -> list[Job]:
    return list(found) if count <= 0 or count >= len(found) else random.Random(seed).sample(list(found), count)


def main() -> int:
    """Run all three, print them, write the JSON file."""
    arguments = _arguments()
    kernels = sorted(arguments.kernels.glob("*.ll"))
    if not kernels:
        print(f"no kernels in {arguments.kernels}; give --kernels DIR", file=sys.stderr)
        return 2
    toolchain = find_toolchain()
    found = _sample(make_jobs(kernels, toolchain), arguments.jobs, arguments.seed)
    expected, left_out = do_in_process(found, arguments.rounds)
    here = quantiles([s for done in expected.values() for s in done.seconds])
    if arguments.rolling:
        rolled, faults = roll(arguments, expected)
        record: dict[str, Any] = {
            **_about(arguments, toolchain),
            "in_process": {"seconds": here, "requests": arguments.rounds * len(expected), "jobs": len(expected)},
            "rolling": rolled,
        }
        print(json.dumps(rolled, indent=1))
        write_result(arguments.out, record)
        return 1 if faults or not rolled["jobs_served"] else 0
    large = [job for job in expected if job.instructions > LARGE]
    print(f"{len(expected)} jobs ({len(large)} of more than {LARGE} instructions), {len(left_out)} left out")
    print(f"in process: p50 {here['p50']} s, p99 {here['p99']} s")
    cost = overhead(_sample(large, arguments.overhead_jobs, arguments.seed), arguments.rounds) if large else None
    print(f"overhead: {json.dumps(cost)}")
    with serving(f"--workers={arguments.workers}", f"--max-waiting={arguments.max_waiting}") as server:
        load, memory, elapsed = asyncio.run(
            put_under_load(server, expected, arguments.clients, arguments.minutes, arguments.seed)
        )
    print(f"load: {dict(load.counts)}, {load.retries} tried again, {len(load.faults)} faults")
    record = {
        **_about(arguments, toolchain),
        "jobs": {
            "count": len(expected),
            "instructions_least": min(job.instructions for job in expected),
            "instructions_most": max(job.instructions for job in expected),
            "large": len(large),
            "large_means_instructions_over": LARGE,
            "left_out": left_out,
        },
        "in_process": {"seconds": here, "requests": arguments.rounds * len(expected)},
        "overhead_one_client_one_worker": cost,
        "load": {
            "clients": arguments.clients,
            "workers": arguments.workers,
            "max_waiting": arguments.max_waiting,
            "minutes": arguments.minutes,
            "seconds_to_last_answer": round(elapsed, 1),
            "answers_per_second": round(load.counts["OK"] / elapsed, 2),
            "by_status": dict(sorted(load.counts.items())),
            "overloaded_tried_again": load.retries,
            "jobs_served": len(load.served),
            "call_seconds": quantiles(load.seconds),
            "waited_seconds": quantiles(load.waited),
            "worked_seconds": quantiles(load.worked),
            "get_capabilities_seconds": quantiles(load.capabilities),
            "memory": memory.summary(),
            "faults": load.faults,
        },
    }  # fmt: skip
    print(json.dumps(record["load"], indent=1))
    write_result(arguments.out, record)
    return 1 if load.faults or not load.counts["OK"] else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except VeriloccError as error:
        print(f"error: {error.render()}", file=sys.stderr)
        sys.exit(2)
