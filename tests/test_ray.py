"""Batches and the service on a Ray cluster of this machine: several processes, some of them killed."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Generator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import pytest
from batch_support import CPU, VERILOCC, faulty_llc, gone, kernel, kernels, wait_for
from google.rpc.error_details_pb2 import ErrorInfo, RetryInfo
from grpc_status import rpc_status
from support import REPOSITORY, allocated_by_llvm, hear_interrupts, run_llc

from smt_verifier.outcome import Outcome
from verilocc.v1 import allocation_service_pb2 as allocation
from verilocc.v1 import audit_service_pb2 as auditing
from verilocc.v1 import problem_pb2, verdict_pb2
from verilocc_mlir.cli.extras import has_ray
from verilocc_mlir.cli.main import run
from verilocc_mlir.errors import InputError, ToolchainError
from verilocc_mlir.pipeline.batch.jobs import Job
from verilocc_mlir.pipeline.batch.local import LocalExecutor
from verilocc_mlir.pipeline.batch.on_ray import RayExecutor
from verilocc_mlir.pipeline.key import versions
from verilocc_mlir.pipeline.settings import Settings
from verilocc_mlir.ray_cluster import Cluster, connected, load_ray
from verilocc_mlir.service import jobs as service_jobs
from verilocc_mlir.toolchain.find import find_toolchain

# One worker of pytest-xdist has all of them, and so there is one cluster.
pytestmark = [
    pytest.mark.xdist_group("ray"),
    pytest.mark.filterwarnings("ignore:Using extra keyword arguments on `Field` is deprecated"),  # of Ray Serve's own
]

SETTINGS = Settings(cpu=CPU)
ALLOCATE = "/verilocc.v1.AllocationService/Allocate"
STREAM = "/verilocc.v1.AllocationService/AllocateStream"
CAPABILITIES = "/verilocc.v1.AllocationService/GetCapabilities"
AUDIT = "/verilocc.v1.AuditService/Audit"
needs_ray = pytest.mark.skipif(not has_ray(), reason="Ray is not installed")


@pytest.fixture(scope="module")
def hold(tmp_path_factory: pytest.TempPathFactory) -> Generator[Path, None, None]:
    """Directory of ``ray_support.Waiting``; the processes of the cluster know it."""
    from ray_support import DIRECTORY

    directory = tmp_path_factory.mktemp("hold")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(DIRECTORY, str(directory))
        yield directory


@pytest.fixture(scope="module")
def cluster(hold: Path) -> Generator[Cluster, None, None]:
    with connected("local", 2) as found:
        yield found
    assert not load_ray().is_initialized()


def job(number: int, factor: int, settings: Settings = SETTINGS) -> Job:
    return Job(number, f"k{factor}.ll", kernel(factor).encode(), settings)


def executor(seconds: float = 60) -> RayExecutor:
    return RayExecutor("local", 0, seconds, versions(find_toolchain()))


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])


# Batches.


@needs_ray
def test_compile_many_writes_what_it_writes_without_ray(cluster: Cluster, tmp_path: Path) -> None:
    kernels(tmp_path / "in", 6)
    (tmp_path / "in" / "bad.ll").write_text("this is no kernel\n")
    for out, options in (("here", []), ("ray", ["--ray"])):
        command = ["compile-many", str(tmp_path / "in"), "-o", str(tmp_path / out), f"-mcpu={CPU}", "-q", *options]
        assert run([*command, f"--cache={tmp_path / out}.store"]) == 2
    here, there = (
        {path.name: path.read_bytes() for path in (tmp_path / out).glob("*.hsaco")} for out in ("here", "ray")
    )
    assert len(here) == 6
    assert there == here
    stored = [sorted(p.name for p in (tmp_path / f"{out}.store").rglob("*") if p.is_file()) for out in ("here", "ray")]
    assert stored[0] == stored[1]


@pytest.mark.long
@needs_ray
def test_a_ray_worker_that_is_killed_costs_no_job(cluster: Cluster, tmp_path: Path) -> None:
    action = 'if [ ! -e "$0.log" ]; then echo $$ $PPID >> "$0.log"; sleep 600; fi'
    slow = faulty_llc(tmp_path / "llc", "times4", action)
    expected = {r.number: r.data for r in LocalExecutor(1, 60).run([job(n, 3 + n) for n in range(4)])}
    with ThreadPoolExecutor(1) as pool:
        given = [job(n, 3 + n, replace(SETTINGS, llvm=slow)) for n in range(4)]
        running = pool.submit(lambda: list(executor().run(given)))
        (line,) = wait_for(Path(f"{slow}.log"))
        tool, worker = map(int, line.split())
        os.kill(parent_of(worker), signal.SIGKILL)
        results = running.result(60)
    assert {r.number: r.outcome for r in results} == dict.fromkeys(range(4), Outcome.PROVED)
    assert {r.number: r.data for r in results} == expected
    # What worked for the Ray worker went with it.
    assert gone(worker)
    assert gone(tool)


@pytest.mark.long
@needs_ray
def test_a_job_over_its_time_is_unknown_and_the_next_one_is_done(cluster: Cluster, tmp_path: Path) -> None:
    slow = faulty_llc(tmp_path / "llc", "times4", 'echo $$ $PPID >> "$0.log"; sleep 600')
    given = [job(n, 3 + n, replace(SETTINGS, llvm=slow)) for n in range(3)]
    results = {r.number: r for r in executor(2).run(given)}
    assert {n: r.outcome for n, r in results.items()} == {0: Outcome.PROVED, 1: Outcome.UNKNOWN, 2: Outcome.PROVED}
    assert results[1].message == "not finished within 2 s"
    assert not results[1].final
    assert all(gone(int(pid)) for line in wait_for(Path(f"{slow}.log")) for pid in line.split())


@pytest.mark.long
@needs_ray
def test_closing_ends_what_is_running_on_the_cluster(cluster: Cluster, tmp_path: Path) -> None:
    slow = faulty_llc(tmp_path / "llc", "times4", 'echo $$ $PPID >> "$0.log"; sleep 600')
    taken: list[int] = []

    def given() -> Generator[Job, None, None]:
        for number in range(100):
            taken.append(number)
            yield job(number, 4 if number else 3, replace(SETTINGS, llvm=slow))

    with closing(executor().run(given())) as results:
        assert next(results).number == 0
        log = wait_for(Path(f"{slow}.log"))
    assert len(taken) <= 4
    assert all(gone(int(pid)) for line in log for pid in line.split())


@pytest.mark.long
@needs_ray
def test_a_node_with_other_versions_is_refused(cluster: Cluster) -> None:
    other = {**versions(find_toolchain()), "LLVM": "LLVM version 99"}
    with pytest.raises(ToolchainError, match=r"node .*: LLVM is '.*', not 'LLVM version 99'") as raised:
        list(RayExecutor("local", 1, 60, other).run([job(0, 3)]))
    assert "same versions" in raised.value.hint


@pytest.mark.long
@needs_ray
def test_no_cluster_to_join_is_one_error(tmp_path: Path) -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{nobody.getsockname()[1]}"
        kernels(tmp_path, 1)
        command = [*VERILOCC, "compile-many", str(tmp_path), f"-mcpu={CPU}", "--no-cache", "--ray"]
        done = subprocess.run(
            [*command, f"--ray-address={address}"], cwd=REPOSITORY, capture_output=True, text=True, check=False
        )
    assert done.returncode == 2
    said = f"verilocc: error: {address}: there is no Ray cluster: .*\n  hint: .*ray start.*\n"
    assert re.fullmatch(said, done.stderr)


@pytest.mark.parametrize("command", [["serve"], ["compile-many", "."]])
def test_without_ray_the_extra_is_named(command: list[str]) -> None:
    code = """
        import sys
        class Block:
            def find_spec(self, name, path=None, target=None):
                if name.split('.')[0] == 'ray':
                    raise ModuleNotFoundError(f'No module named {name!r}', name=name)
        sys.meta_path.insert(0, Block())
        from verilocc_mlir.cli.main import run
        sys.exit(run([*sys.argv[1:], '--ray']))
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), *command], cwd=REPOSITORY, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert done.stderr.startswith("verilocc: error: ")
    assert "pip install 'verilocc-mlir[ray]'" in done.stderr


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (["compile-many", ".", "--ray-address=auto"], "--ray-address needs --ray"),
        (["serve", "--replicas=2"], "--replicas needs --ray"),
        pytest.param(["serve", "--ray", "--metrics=127.0.0.1:0"], "--metrics is not possible", marks=needs_ray),
        pytest.param(["serve", "--ray", "--listen=0.0.0.0:0"], "can be reached from the network", marks=needs_ray),
        pytest.param(["serve", "--ray", "--replicas=3:2"], "is not MIN:MAX", marks=needs_ray),
    ],
)
def test_options_that_do_not_go_together(command: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(command) == 2
    assert message in " ".join(re.sub("[│╭╮╰╯─]", " ", capsys.readouterr().err).split())


# The service. It joins the cluster first, as another process; then this process deploys it.


def stopped(process: subprocess.Popen[str], seconds: float = 60) -> tuple[int, str]:
    """The exit code and what was said on standard error."""
    try:
        _, said = process.communicate(timeout=seconds)
    finally:
        if process.poll() is None:
            process.kill()
            process.communicate()
    return process.returncode, said


def listening(process: subprocess.Popen[str]) -> str:
    """The address that a server says it listens on."""
    assert process.stderr is not None
    said = ""
    for line in process.stderr:
        said += line
        if found := re.search(r'"event": "listening", "address": "(\S+)"', line):
            return found[1]
    raise AssertionError(said)


class Caller:
    """A plain client without stubs: bytes and messages, over one channel."""

    def __init__(self, address: str) -> None:
        self.channel = grpc.insecure_channel(address)

    def call(self, method: str, request: Any, timeout: float = 60) -> bytes:
        data = request if isinstance(request, bytes) else request.SerializeToString()
        return self.channel.unary_unary(method)(data, timeout=timeout)

    def allocate(self, request: allocation.AllocateRequest, timeout: float = 60) -> allocation.AllocateResponse:
        return allocation.AllocateResponse.FromString(self.call(ALLOCATE, request, timeout))


def reason(error: grpc.RpcError) -> tuple[grpc.StatusCode, str, float | None]:
    """Code, ErrorInfo.reason and RetryInfo in seconds."""
    call: Any = error
    info, retry, wait = ErrorInfo(), RetryInfo(), None
    status = rpc_status.from_call(call)
    for detail in status.details if status else ():
        detail.Unpack(info)
        if detail.Unpack(retry):
            wait = retry.retry_delay.ToTimedelta().total_seconds()
    return call.code(), info.reason, wait


def before() -> str:
    return run_llc(kernel(3), CPU, "-stop-before=greedy,0", mir=False)


def request(allocator: str = "") -> allocation.AllocateRequest:
    given = allocation.MachineIr(text=before().encode(), target=CPU, phase=problem_pb2.PHASE_SGPR, name="k3")
    return allocation.AllocateRequest(mir=given, return_mir=True, allocator=allocator)


@pytest.fixture
def held(hold: Path) -> Generator[Path, None, None]:
    """The allocator waits until the test removes this file; nobody has asked it yet."""
    (hold / "pids").unlink(missing_ok=True)
    (hold / "hold").touch()
    yield hold / "hold"
    (hold / "hold").unlink(missing_ok=True)


@pytest.mark.long
@needs_ray
def test_a_server_joins_a_cluster_grows_drains_and_leaves_it(cluster: Cluster, held: Path) -> None:
    ray = load_ray()
    code = """
        import sys
        from verilocc_mlir.service.ray_serve import Options, serve
        from verilocc_mlir.service.server import ServerLimits
        limits = ServerLimits(workers=1)
        sys.exit(serve(Options(limits, sys.argv[1], "127.0.0.1:0", replicas=(1, 2), terms="ray_support:TERMS")))
    """
    address = ray.get_runtime_context().gcs_address
    server = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code), address], cwd=REPOSITORY, stderr=subprocess.PIPE, text=True
    )
    try:
        caller = Caller(listening(server))
        pids = held.with_name("pids")
        with ThreadPoolExecutor(64) as pool:
            answers: list[Future[allocation.AllocateResponse]] = []

            def replicas() -> int:
                answers.append(pool.submit(caller.allocate, request("waiting"), 110))
                time.sleep(2)
                return len({parent_of(int(pid)) for pid in wait_for(pids)})

            until(replicas, lambda number: number == 2, 100)
            server.send_signal(signal.SIGTERM)
            time.sleep(1)
            held.unlink()
            outcomes = {answer.result(60).functions[0].outcome for answer in answers}
            assert outcomes == {verdict_pb2.OUTCOME_PROVED}
    finally:
        held.unlink(missing_ok=True)
        code_, said = stopped(server)
    assert code_ == 0, said
    assert '"event": "ended"' in said
    assert not [actor for actor in ray.util.list_named_actors(True) if actor["namespace"] == "serve"]
    assert ray.get(ray.remote(num_cpus=2)(lambda: 7).remote(), timeout=30) == 7


@pytest.fixture(scope="module")
def caller(cluster: Cluster) -> Generator[Caller, None, None]:
    from verilocc_mlir.service.ray_serve import Options, deployed
    from verilocc_mlir.service.server import ServerLimits

    limits = ServerLimits(max_request_bytes=1 << 20, workers=1, max_waiting=1, streams=1)
    with deployed(Options(limits, listen="127.0.0.1:0", terms="ray_support:TERMS"), cluster) as port:
        yield Caller(f"127.0.0.1:{port}")


@pytest.mark.long
@needs_ray
def test_a_client_allocates_and_audits_through_the_ingress(caller: Caller) -> None:
    offered = allocation.GetCapabilitiesResponse.FromString(caller.call(CAPABILITIES, b""))
    assert [a.name for a in offered.allocators] == ["deterministic", "waiting"]
    assert offered.limits.workers == 1
    found = caller.allocate(request())
    here = allocation.AllocateResponse.FromString(service_jobs.run("Allocate", request().SerializeToString(), 60))
    assert found.functions == here.functions
    assert found.mir == here.mir
    assert found.functions[0].outcome == verdict_pb2.OUTCOME_PROVED
    audit = auditing.AuditRequest(before=before().encode(), after=found.mir)
    assert auditing.AuditResponse.FromString(caller.call(AUDIT, audit)).outcome == verdict_pb2.OUTCOME_PROVED
    broken = allocated_by_llvm(before(), CPU, 0, 0).replace("$sgpr0_sgpr1", "$sgpr2_sgpr3", 1)
    wrong = auditing.AuditRequest(before=before().encode(), after=broken.encode())
    assert auditing.AuditResponse.FromString(caller.call(AUDIT, wrong)).outcome != verdict_pb2.OUTCOME_PROVED


@pytest.mark.long
@needs_ray
@pytest.mark.parametrize(
    ("method", "given", "code", "why"),
    [
        (ALLOCATE, b"\xff\xff", "INVALID_ARGUMENT", "MALFORMED_REQUEST"),
        (CAPABILITIES, b"\xff\xff", "INVALID_ARGUMENT", "MALFORMED_REQUEST"),
        (ALLOCATE, allocation.AllocateRequest(), "INVALID_ARGUMENT", "MALFORMED_REQUEST"),
        (AUDIT, auditing.AuditRequest(before=b"x", after=b"y", target=CPU), "INVALID_ARGUMENT", "MALFORMED_INPUT"),
        (ALLOCATE, allocation.AllocateRequest(allocator="none"), "NOT_FOUND", "UNKNOWN_ALLOCATOR"),
        (
            ALLOCATE,
            allocation.AllocateRequest(mir=allocation.MachineIr(text=b"x", target="gfx000")),
            "FAILED_PRECONDITION",
            "TARGET_NOT_SUPPORTED",
        ),
        (ALLOCATE, bytes((1 << 20) + 1), "RESOURCE_EXHAUSTED", ""),
    ],
)
def test_wrong_input_gets_its_status(caller: Caller, method: str, given: Any, code: str, why: str) -> None:
    with pytest.raises(grpc.RpcError) as raised:
        caller.call(method, given)
    assert reason(raised.value) == (grpc.StatusCode[code], why, None)


@pytest.mark.long
@needs_ray
def test_a_stream_is_answered_request_by_request(caller: Caller) -> None:
    asked = [allocation.AllocateStreamRequest(id=str(n), request=request()) for n in range(4)]
    asked[2].request.allocator = "none"
    open_stream = caller.channel.stream_stream(STREAM)
    answers = open_stream((one.SerializeToString() for one in asked), timeout=60)
    found = {a.id: a for a in map(allocation.AllocateStreamResponse.FromString, answers)}
    assert sorted(found) == ["0", "1", "2", "3"]
    assert found["2"].error.reason == "UNKNOWN_ALLOCATOR"
    assert {found[n].response.functions[0].outcome for n in "013"} == {verdict_pb2.OUTCOME_PROVED}
    with pytest.raises(grpc.RpcError) as raised:
        list(open_stream(iter([b"\xff\xff"]), timeout=60))
    # The ingress sends no details with a stream that fails.
    assert reason(raised.value) == (grpc.StatusCode.INVALID_ARGUMENT, "", None)


@pytest.mark.long
@needs_ray
def test_a_request_of_a_stream_that_is_too_large_ends_it(caller: Caller) -> None:
    good = allocation.AllocateStreamRequest(id="good", request=request()).SerializeToString()
    given = allocation.MachineIr(text=b"\n" * (1 << 20))
    large = allocation.AllocateStreamRequest(request=allocation.AllocateRequest(mir=given)).SerializeToString()
    answers = caller.channel.stream_stream(STREAM)(iter([good, large]), timeout=60)
    assert allocation.AllocateStreamResponse.FromString(next(answers)).id == "good"
    with pytest.raises(grpc.RpcError) as raised:
        list(answers)
    assert reason(raised.value) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "", None)


@pytest.mark.long
@needs_ray
def test_an_application_that_is_there_is_not_replaced(caller: Caller, cluster: Cluster) -> None:
    from verilocc_mlir.service.ray_serve import Options, deployed
    from verilocc_mlir.service.server import ServerLimits

    with (
        pytest.raises(InputError, match="has an application 'verilocc' already"),
        deployed(Options(ServerLimits(workers=1), listen="127.0.0.1:0"), cluster),
    ):
        raise AssertionError
    assert caller.allocate(request()).functions[0].outcome == verdict_pb2.OUTCOME_PROVED


@pytest.mark.long
@needs_ray
def test_a_worker_that_is_killed_costs_no_answer(caller: Caller, held: Path) -> None:
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(caller.allocate, request("waiting"))
        (pid,) = wait_for(held.with_name("pids"))
        os.kill(int(pid), signal.SIGKILL)
        assert wait_for(held.with_name("pids"), 2)[1] != pid
        held.unlink()
        assert answer.result(60).functions[0].allocator == "waiting"


@pytest.mark.long
@needs_ray
def test_what_cannot_wait_is_refused_with_a_time_to_come_back(caller: Caller, held: Path) -> None:
    with ThreadPoolExecutor(2) as pool:
        answers = [pool.submit(caller.allocate, request("waiting"))]
        wait_for(held.with_name("pids"))
        answers.append(pool.submit(caller.allocate, request("waiting")))
        refused = until(lambda: refusal(caller, 0.5), lambda found: found[0] is grpc.StatusCode.RESOURCE_EXHAUSTED)
        assert refused[1] == "OVERLOADED"
        assert refused[2]
        held.unlink()
        assert {a.result(60).functions[0].outcome for a in answers} == {verdict_pb2.OUTCOME_PROVED}


@pytest.mark.long
@needs_ray
def test_a_call_whose_deadline_passes_frees_its_worker(caller: Caller, held: Path) -> None:
    with pytest.raises(grpc.RpcError) as raised:
        caller.allocate(request("waiting"), timeout=1)
    assert reason(raised.value)[0] is grpc.StatusCode.DEADLINE_EXCEEDED
    (pid,) = wait_for(held.with_name("pids"))
    assert gone(int(pid))
    assert caller.allocate(request()).functions[0].outcome == verdict_pb2.OUTCOME_PROVED


@pytest.mark.long
@needs_ray
def test_a_replica_that_is_killed_is_replaced(caller: Caller, held: Path) -> None:
    with ThreadPoolExecutor(1) as pool:
        answer: Future[allocation.AllocateResponse] = pool.submit(caller.allocate, request("waiting"))
        (pid,) = wait_for(held.with_name("pids"))
        os.kill(parent_of(int(pid)), signal.SIGKILL)
        with pytest.raises(grpc.RpcError) as raised:
            answer.result(60)
    assert reason(raised.value)[0] in (grpc.StatusCode.INTERNAL, grpc.StatusCode.UNAVAILABLE)
    assert gone(int(pid))
    held.unlink()

    def ask() -> int:
        try:
            return caller.allocate(request(), timeout=10).functions[0].outcome
        except grpc.RpcError:
            return verdict_pb2.OUTCOME_UNSPECIFIED

    assert until(ask, lambda outcome: outcome != verdict_pb2.OUTCOME_UNSPECIFIED) == verdict_pb2.OUTCOME_PROVED


@pytest.mark.long
@needs_ray
def test_interrupted_the_cluster_of_the_command_is_gone(tmp_path: Path) -> None:
    slow = faulty_llc(tmp_path / "llc", "times4", 'echo $$ $PPID >> "$0.log"; sleep 600')
    kernels(tmp_path / "in", 4)
    command = [*VERILOCC, "compile-many", str(tmp_path / "in"), f"-mcpu={CPU}", "--no-cache", "--ray", "-j1"]
    process = subprocess.Popen(
        [*command, f"--llvm={slow}"], cwd=REPOSITORY, stderr=subprocess.PIPE, text=True, preexec_fn=hear_interrupts
    )
    (line,) = wait_for(Path(f"{slow}.log"))
    ray_worker = parent_of(int(line.split()[1]))
    raylet = parent_of(ray_worker)
    process.send_signal(signal.SIGINT)
    code, said = stopped(process)
    assert code == 130, said
    assert "interrupted; 1 of 4 are finished" in said
    assert all(gone(pid) for pid in (*map(int, line.split()), ray_worker, raylet))
    assert len(list((tmp_path / "in").glob("*.hsaco"))) == 1


@pytest.mark.long
@needs_ray
def test_a_server_with_a_cluster_of_its_own_ends_it() -> None:
    process = subprocess.Popen(
        [*VERILOCC, "serve", "--ray", "--listen=127.0.0.1:0", "--replicas=1:2", "--target-requests=1"],
        cwd=REPOSITORY, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        found = Caller(listening(process)).allocate(request())
        assert found.functions[0].outcome == verdict_pb2.OUTCOME_PROVED
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        assert children
    finally:
        process.terminate()
        code, said = stopped(process)
    assert code == 0, said
    assert all(gone(int(pid)) for pid in children)


@pytest.mark.long
@needs_ray
def test_more_replicas_than_the_machine_has_room_for() -> None:
    from verilocc_mlir.service.ray_serve import Options, deployed
    from verilocc_mlir.service.server import ServerLimits

    with (
        pytest.raises(InputError, match="need more than the"),
        deployed(Options(ServerLimits(workers=10_000)), Cluster(started=True)),
    ):
        raise AssertionError


def refusal(caller: Caller, timeout: float) -> tuple[grpc.StatusCode, str, float | None]:
    try:
        caller.allocate(request(), timeout)
    except grpc.RpcError as error:
        return reason(error)
    return grpc.StatusCode.OK, "", None


def until(ask: Callable[[], Any], good: Callable[[Any], bool], seconds: float = 60) -> Any:
    end = time.monotonic() + seconds
    while not good(found := ask()):
        assert time.monotonic() < end, f"{found} after {seconds} s"
        time.sleep(0.1)
    return found
