"""Plans over the service: answers of a model that the server has, bad requests, and ``-O=learned`` with a server."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import pytest
from msgspec.structs import replace

pytest.importorskip("tokenizers", reason="the extra 'model' is not installed")

from client_support import NOWHERE, flat
from google.protobuf import json_format
from grpc import StatusCode
from grpc_health.v1 import health_pb2
from service_support import (
    BAD_REQUEST,
    SECONDS,
    Client,
    Served,
    check_statuses,
    connected,
    health,
    metrics,
    refusal,
    serving_terms,
    start_fails,
    token_line,
)
from support import REPOSITORY

from verilocc.v1 import allocation_service_pb2 as allocation
from verilocc.v1 import plan_service_pb2 as planning
from verilocc.v1 import plan_service_pb2_grpc as planning_grpc
from verilocc_mlir.allocators.protocol import AllocationFailure
from verilocc_mlir.cli.main import run
from verilocc_mlir.pipeline.candidates import Answer
from verilocc_mlir.pipeline.key import allocator_versions
from verilocc_mlir.pipeline.learned import PlanModel, model_directory, model_version, stated
from verilocc_mlir.pipeline.plans import DEFAULT, Planned, planned
from verilocc_mlir.pipeline.settings import Effort, Settings
from verilocc_mlir.remote import RankedPlans
from verilocc_mlir.service.plans import MOST_BYTES, Plans
from verilocc_mlir.service.status import ServiceError
from verilocc_model.corpus.sources import Cell
from verilocc_model.plans import choose
from verilocc_model.plans.data import Labels
from verilocc_model.plans.policies import Nearest

pytestmark = pytest.mark.usefixtures("no_token")
RANK = "/verilocc.v1.PlanService/RankPlans"
KERNEL = REPOSITORY / "tests" / "data" / "plans" / "gemm_naive.gfx1201.opt.ll"
"""A kernel in which another order of the instructions promises something."""
METADATA = (("authorization", "Bearer good"),)
COSTS = {"cycles": 100.0, "waves": 4.0, "spills": 0.0}


@dataclass(frozen=True)
class Kernel:
    """A kernel that was read, LLVM's own code of it, and its facts."""

    given: Planned
    code: bytes
    facts: Mapping[str, float]


@pytest.fixture(scope="module")
def kernel() -> Kernel:
    given = planned(KERNEL.read_bytes(), KERNEL.name, Settings(effort=Effort.LEARNED))
    code = given.work.compiler.direct(given.ir, "asm")
    facts = choose.facts_of(given, DEFAULT, code)
    assert facts is not None
    return Kernel(given, code, facts)


@pytest.fixture(scope="module")
def model(kernel: Kernel, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny one, of a few kernels."""

    def labels(number: int) -> Labels:
        tried = ("max-memory-clause", "iterative-ilp", "packed")
        plans = {name: {**COSTS, "cycles": 100.0 - place} for place, name in enumerate(tried)}
        cell = Cell.of("mlir", "gemm", ("gfx942", "gfx1201")[number % 2], {"number": number}, {})
        facts = {name: value * number / 8 for name, value in kernel.facts.items()}
        return Labels(cell, facts, COSTS, {"default": COSTS, **plans})

    kernels = [labels(number) for number in range(16)]
    nearest = Nearest()
    nearest.fit(kernels)
    directory = tmp_path_factory.mktemp("models") / "tiny"
    nearest.save(directory)
    return directory


@pytest.fixture(scope="module")
def offering(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server with that model, which asks for tokens."""
    directory = tmp_path_factory.mktemp("offering")
    (directory / "tokens").write_text(token_line("good", "ci"))
    (directory / "token").write_text("good\n")
    with serving_terms(
        f"unix:{directory}/s",
        terms="",
        limits={"workers": 1},
        tokens=str(directory / "tokens"),
        plan_model=str(model),
        http="127.0.0.1:0",
        metrics="127.0.0.1:0",
    ) as found:
        yield found
        check_statuses(found)


@pytest.fixture(scope="module")
def channel(offering: Served) -> Iterator[grpc.Channel]:
    with connected(offering.address) as client:
        yield client.channel


def rank(channel: grpc.Channel, request: planning.RankPlansRequest, **options: Any) -> planning.RankPlansResponse:
    stub: Any = planning_grpc.PlanServiceStub(channel)
    return stub.RankPlans(request, timeout=SECONDS, **{"metadata": METADATA, **options})


def over_http(served: Served, body: bytes, token: str = "good") -> tuple[int, Any]:
    """Status and JSON of an answer."""
    address = f"http://127.0.0.1:{served.event('http')['port']}{RANK}"
    headers = {"content-type": "application/json", "authorization": f"Bearer {token}"}
    try:
        with urllib.request.urlopen(urllib.request.Request(address, body, headers), timeout=SECONDS) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.loads(error.read())


def test_the_contract_names_every_fact(kernel: Kernel) -> None:
    text = (REPOSITORY / "proto" / "verilocc" / "v1" / "plan_service.proto").read_text()
    comment = text[text.index("// Its facts by name") : text.index("map<string, double> facts")]
    names = re.findall(r"^  //   (\S+(?: \S+)*)  +\S", comment, re.MULTILINE)
    assert len(names) == len(set(names))
    assert set(names) == set(kernel.facts)
    packaged = PlanModel.load(model_directory(None))
    assert packaged.facts == set(names)


@pytest.mark.parametrize("target", ["gfx942", "gfx1201", "gfx1100"])
def test_the_answers_are_those_of_the_model(
    offering: Served, channel: grpc.Channel, kernel: Kernel, model: Path, target: str
) -> None:
    expected = [str(answer) for answer in Nearest.load(model).ranked(target, kernel.facts)]
    assert len(expected) == 4
    request = planning.RankPlansRequest(target=target, facts=kernel.facts)
    answer = rank(channel, request)
    assert (answer.model, answer.version) == ("tiny", model_version(model))
    assert list(answer.answers) == expected
    status, shown = over_http(offering, json_format.MessageToJson(request).encode())
    assert status == 200
    assert json_format.ParseDict(shown, planning.RankPlansResponse()) == answer
    request.count = 2
    assert list(rank(channel, request).answers) == expected[:2]
    request.count = 1000
    assert list(rank(channel, request).answers) == expected


def bad(facts: Mapping[str, float], target: str = "gfx942", count: int = 0, **more: float) -> planning.RankPlansRequest:
    return planning.RankPlansRequest(target=target, count=count, facts={**facts, **more})


@pytest.mark.parametrize(
    ("fault", "reason", "said"),
    [
        ("no target", "UNKNOWN_TARGET", "''"),
        ("unknown target", "UNKNOWN_TARGET", "'gfx906'"),
        ("long target", "UNKNOWN_TARGET", "'xxx"),
        ("no facts", "OTHER_FACTS", "missing"),
        ("missing", "OTHER_FACTS", "1 missing: 'cycles'"),
        ("unknown", "OTHER_FACTS", "1 not known: 'novelty'"),
        ("many", "OTHER_FACTS", "3000 not known"),
        ("nan", "MALFORMED_REQUEST", "'cycles'"),
        ("infinite", "MALFORMED_REQUEST", "'cycles'"),
        ("negative count", "MALFORMED_REQUEST", "count"),
    ],
)
def test_a_bad_request_is_refused_with_the_reason(
    offering: Served, channel: grpc.Channel, kernel: Kernel, fault: str, reason: str, said: str
) -> None:
    facts = kernel.facts
    request = {
        "no target": bad(facts, ""),
        "unknown target": bad(facts, "gfx906"),
        "long target": bad(facts, "x" * 2000),
        "no facts": bad({}),
        "missing": bad({name: value for name, value in facts.items() if name != "cycles"}),
        "unknown": bad(facts, novelty=1.0),
        "many": bad({**facts, **{f"f{n}": 1.0 for n in range(3000)}}),
        "nan": bad(facts, cycles=float("nan")),
        "infinite": bad(facts, cycles=float("-inf")),
        "negative count": bad(facts, count=-1),
    }[fault]
    failed = refusal(lambda: rank(channel, request))
    assert (failed.code, failed.reason) == (StatusCode.INVALID_ARGUMENT, reason)
    assert said in failed.message
    status, error = over_http(offering, json_format.MessageToJson(request).encode())
    assert (status, error["code"], error["message"]) == (400, "invalid_argument", failed.message)


def test_what_is_no_request_is_refused(offering: Served, channel: grpc.Channel) -> None:
    call: Any = channel.unary_unary(RANK)
    failed = refusal(lambda: call(b"\xff" * 20, timeout=SECONDS, metadata=METADATA))
    assert (failed.code, failed.reason) == BAD_REQUEST
    failed = refusal(lambda: call(b"\x12\x00" * MOST_BYTES, timeout=SECONDS, metadata=METADATA))
    assert (failed.code, failed.reason) == (StatusCode.RESOURCE_EXHAUSTED, "TOO_LARGE")
    for body, expected in {b'{"facts": [1]}': 400, b'{"novelty": 1}': 400, b" " * (MOST_BYTES + 1): 413}.items():
        assert over_http(offering, body)[0] == expected


def test_tokens_metrics_health_and_capabilities_are_those_of_the_other_methods(
    offering: Served, channel: grpc.Channel, kernel: Kernel, model: Path
) -> None:
    request = bad(kernel.facts)
    failed = refusal(lambda: rank(channel, request, metadata=()))
    assert (failed.code, failed.reason) == (StatusCode.UNAUTHENTICATED, "TOKEN_MISSING")
    assert over_http(offering, b"{}", token="wrong")[0] == 401
    counted = 'verilocc_requests_total{code="OK",method="RankPlans",reason=""}'
    before = metrics(offering).get(counted, 0.0)
    rank(channel, request)
    assert metrics(offering)[counted] == before + 1
    wanted = health_pb2.HealthCheckRequest(service="verilocc.v1.PlanService")
    assert health(channel).Check(wanted, timeout=SECONDS).status == health_pb2.HealthCheckResponse.SERVING
    call: Any = channel.unary_unary(
        "/verilocc.v1.AllocationService/GetCapabilities", None, allocation.GetCapabilitiesResponse.FromString
    )
    assert call(b"", timeout=SECONDS, metadata=METADATA).plan_model == model_version(model)


def test_a_server_without_a_model_says_so(client: Client, kernel: Kernel) -> None:
    failed = refusal(lambda: rank(client.channel, bad(kernel.facts)))
    assert (failed.code, failed.reason) == (StatusCode.FAILED_PRECONDITION, "NO_PLAN_MODEL")
    assert "--plan-model" in failed.message
    assert client.allocation.GetCapabilities(allocation.GetCapabilitiesRequest(), timeout=SECONDS).plan_model == ""


def test_a_directory_without_a_model_ends_the_start_with_one_error(tmp_path: Path) -> None:
    # Whatever else is there is not looked at.
    (tmp_path / "any.json").mkdir()
    assert "no model of plans is there" in start_fails("--plan-model", tmp_path, "--listen=127.0.0.1:0")


def test_a_server_on_ray_refuses_a_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("ray", reason="the extra 'ray' is not installed")
    assert run(["serve", "--ray", f"--plan-model={tmp_path}"]) == 2
    assert "--plan-model is not possible with --ray" in flat(capsys.readouterr().err)


class Slow:
    """Answers when it is let; ``at_once`` is the most calls that it was in."""

    def __init__(self) -> None:
        self.names = ["size"]
        self.begun, self.go = threading.Event(), threading.Event()
        self.inside = self.at_once = 0

    def ranked(self, _target: str, _facts: Mapping[str, float]) -> Sequence[Answer]:
        self.inside += 1
        self.at_once = max(self.at_once, self.inside)
        self.begun.set()
        assert self.go.wait(SECONDS)
        self.inside -= 1
        return [Answer()]


def test_the_event_loop_goes_on_while_the_model_is_asked_and_one_question_is_asked_at_a_time() -> None:
    slow = Slow()
    request = bad({"size": 1.0}).SerializeToString()

    async def asked() -> list[planning.RankPlansResponse]:
        plans = Plans(PlanModel("slow 1", "slow", slow))
        waiting = [asyncio.create_task(plans.rank(request, as_json=False)) for _ in range(3)]
        while not slow.begun.is_set():
            await asyncio.sleep(0.01)
        # What is refused waits for nobody.
        with pytest.raises(ServiceError, match="MALFORMED_REQUEST"):
            await plans.rank(b"\xff", as_json=False)
        slow.go.set()
        return await asyncio.gather(*waiting)

    answers = asyncio.run(asked())
    assert [list(answer.answers) for answer in answers] == [["default"]] * 3
    assert slow.at_once == 1


def compiled(source: Path, into: Path, server: str, *options: str) -> list[str]:
    """The notes of a compile with ``-O=learned``, which is proved."""
    report = into / "report.json"
    command = ["compile", str(source), "-q", "-O=learned", "--plans=2", f"--server={server}", f"--report={report}"]
    assert run([*command, "-o", str(into / "kernel.hsaco"), *options]) == 0
    data = json.loads(report.read_text())
    assert data["outcome"] == "proved"
    assert (into / "kernel.hsaco").read_bytes().startswith(b"\x7fELF")
    return data["notes"]


def about_plans(notes: Sequence[str]) -> list[str]:
    return [note for note in notes if note.startswith("plans: ") or " plans to try: " in note]


def test_a_compile_gets_its_plans_from_the_server_and_is_proved(
    offering: Served, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = Path(offering.address.removeprefix("unix:")).parent / "token"
    # The model here is none: what is tried is the server's.
    monkeypatch.setenv("VERILOCC_PLAN_MODEL", str(tmp_path / "nothing"))
    notes = compiled(KERNEL, tmp_path, offering.address, f"--server-token={token}")
    (there,) = about_plans(notes)
    assert there.startswith(f"tiny of {offering.address} stated 2 plans to try: ")
    (here,) = about_plans(compiled(KERNEL, tmp_path, "none", f"--plan-model={model}"))
    assert here == there.replace(f" of {offering.address}", "")


@pytest.mark.long
def test_where_the_server_has_no_model_the_one_here_is_asked_and_the_notes_say_so(
    served: Served, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    notes = about_plans(compiled(KERNEL, tmp_path, served.address, f"--plan-model={model}"))
    assert notes[0] == f"plans: {served.address}: it has no model of plans; the model here is asked instead"
    assert notes[1].startswith("tiny stated 2 plans to try: ")
    nothing = tmp_path / "nothing"
    monkeypatch.setenv("VERILOCC_PLAN_MODEL", str(nothing))
    notes = about_plans(compiled(KERNEL, tmp_path, served.address))
    assert len(notes) == 2
    assert notes[1].startswith(f"plans: none of a model is tried: {nothing}: no model of plans is there")


def test_where_there_is_no_server_the_model_here_is_asked(model: Path, tmp_path: Path) -> None:
    notes = about_plans(compiled(KERNEL, tmp_path, NOWHERE, f"--plan-model={model}"))
    assert notes[0].startswith(f"plans: {NOWHERE}: UNAVAILABLE")
    assert notes[1].startswith("tiny stated 2 plans to try: ")


@dataclass(frozen=True)
class There:
    """A server that gives these answers, or fails."""

    answers: tuple[str, ...] = ()
    fails: bool = False
    address: str = "there"
    name: str = "remote(there)"
    version: str = "1"

    def allocate(self, problem: Any) -> Any:
        raise AssertionError(problem)

    def rank_plans(self, target: str, facts: Mapping[str, float]) -> RankedPlans:
        assert (target, len(facts) > 10) == ("gfx1201", True)
        if self.fails:
            raise AllocationFailure("there: it is late", reason="remote")
        return RankedPlans("big+RDNA", "big 1", self.answers)


@pytest.mark.parametrize(
    ("there", "name", "answers", "notes"),
    [
        (There(("novelty", "max-ilp + packed", "default")), "big+RDNA of there", ["max-ilp + packed", "default"], 0),
        (There(("novelty", "")), "tiny", None, 1),
        (There(()), "tiny", None, 1),
        (There(fails=True), "tiny", None, 1),
    ],
    ids=["words of a later version", "no word that is known", "nothing", "late"],
)
def test_answers_of_a_server_are_read_and_the_model_here_follows(
    kernel: Kernel, model: Path, there: There, name: str, answers: list[str] | None, notes: int
) -> None:
    settings = replace(kernel.given.work.settings, plan_model=model)
    work = replace(kernel.given.work, allocators=(there,), settings=settings)
    said = stated(replace(kernel.given, work=work), DEFAULT, kernel.code)
    expected = answers or [str(answer) for answer in Nearest.load(model).ranked("gfx1201", kernel.facts)]
    assert (said.model, [str(answer) for answer in said.answers], len(said.notes)) == (name, expected, notes)


@pytest.mark.long
def test_a_batch_keeps_no_result_for_which_a_server_was_asked_for_plans(
    served: Served, model: Path, tmp_path: Path
) -> None:
    (tmp_path / "in").mkdir()
    shutil.copy(KERNEL, tmp_path / "in")
    summary = tmp_path / "summary.json"
    command = ["compile-many", str(tmp_path / "in"), "-o", str(tmp_path / "out"), "-q", "-j1", f"--report={summary}"]
    command += ["-O=learned", f"--plan-model={model}", f"--cache={tmp_path / 'store'}"]

    def origin(*options: str) -> str:
        assert run([*command, *options]) == 0
        (one,) = json.loads(summary.read_text())["inputs"]
        return one["origin"]

    assert [origin(f"--server={served.address}") for _ in range(2)] == ["compiled"] * 2
    assert [origin() for _ in range(2)] == ["compiled", "journal"]


@pytest.mark.long
def test_the_example_goes_the_whole_way(model: Path, tmp_path: Path) -> None:
    command = [sys.executable, "examples/service/plans.py", f"--plan-model={model}", f"--into={tmp_path}"]
    paths = os.pathsep.join((str(REPOSITORY), str(REPOSITORY / "model")))
    done = subprocess.run(
        command, cwd=REPOSITORY, capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": paths}
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"tiny (version {model_version(model)}) ranks first: " in done.stdout
    assert "attn_d64.gfx1201.opt.ll: proved" in done.stdout
    assert "note: the model of plans is not asked: no order promises anything here" in done.stdout
    assert len(json.loads((tmp_path / "request.json").read_text())["facts"]) > 10


def test_without_facts_no_server_is_asked(kernel: Kernel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choose, "facts_of", lambda *_: None)
    work = replace(kernel.given.work, allocators=(There(fails=True),))
    said = stated(replace(kernel.given, work=work), DEFAULT, kernel.code)
    why = "the allocation problem of the dearest function cannot be stated"
    assert (said.model, said.answers, said.notes) == ("", (), (f"plans: none of a model is tried: {why}",))


def test_results_with_plans_of_a_server_need_no_model_here_to_be_named(model: Path) -> None:
    learned = Settings("gfx1201", effort=Effort.LEARNED, plan_model=model)
    assert allocator_versions(learned)["plans"] == model_version(model)
    assert "plans" not in allocator_versions(replace(learned, server="127.0.0.1:1", plan_model=Path("/nowhere")))
