"""The service answers: allocations of all targets and phases, problems, streams, audits; all as the library does."""

from __future__ import annotations

import hashlib
import json
import queue
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from allocators_support import as_read
from audit_support import repeated_undefined_input
from builders import MFMA, machine_code, problem_of_text
from grpc_health.v1 import health_pb2
from service_support import (
    BAD_REQUEST,
    CPU,
    SECONDS,
    TWO_FUNCTIONS,
    Client,
    connected,
    health,
    refusal,
    serving_terms,
    sgpr,
    small_mir,
)
from support import allocated_by_llvm, cpu_of, few, long, pre_ra, readable, run_llc

import verilocc_model
from smt_verifier.audit import audit
from smt_verifier.audit.wording import render
from smt_verifier.outcome import Outcome
from verilocc.v1 import allocation_service_pb2 as allocation
from verilocc.v1 import audit_service_pb2 as auditing
from verilocc.v1 import problem_pb2, verdict_pb2
from verilocc_mlir.allocators import allocator
from verilocc_mlir.cli.main import run as verilocc
from verilocc_mlir.mir.parser import parse_mir
from verilocc_mlir.mir.printer import print_function
from verilocc_mlir.problem.build import Phase, build_problem
from verilocc_mlir.problem.model import AllocationProblem
from verilocc_mlir.remote import wire
from verilocc_mlir.target.targets import TARGETS, target
from verilocc_model.card import read_card

PROVED = verdict_pb2.OUTCOME_PROVED
_LOADS = "\n".join(f"  %v{n} = load volatile <4 x i32>, ptr addrspace(1) %q" for n in range(40))
_STORES = "\n".join(f"  store volatile <4 x i32> %v{n}, ptr addrspace(1) %q" for n in range(40))
CROWDED = f"""
target triple = "amdgcn-amd-amdhsa"
declare i32 @llvm.amdgcn.workitem.id.x()
define amdgpu_kernel void @crowded(ptr addrspace(1) %p) #0 {{
  %id = call i32 @llvm.amdgcn.workitem.id.x()
  %q = getelementptr <4 x i32>, ptr addrspace(1) %p, i32 %id
{_LOADS}
{_STORES}
  ret void
}}
attributes #0 = {{ "target-cpu"="gfx942" "amdgpu-flat-work-group-size"="1,1024" }}
"""
"""Needs 160 vector registers; of the 128 that a work-group of 1024 leaves there are not so many."""


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """Of a server with two workers and allocators that err, over a Unix socket."""
    address = f"unix:{tmp_path_factory.mktemp('service')}/socket"
    with serving_terms(address, limits={"memory_mib": 1024}) as served, connected(served.address) as found:
        yield found


@pytest.fixture(scope="module")
def two() -> str:
    return readable(run_llc(TWO_FUNCTIONS, CPU, "-stop-before=greedy,0", mir=False))


def before_vectors(after_scalars: str, cpu: str) -> str:
    """What our allocator gets for the VGPR phase: LLVM went on from the text of our SGPR phase."""
    return readable(run_llc(after_scalars, cpu, "-start-after=virtregrewriter,0", "-stop-before=greedy,2"))


def request_of(text: str, cpu: str, phase: Phase, **fields: Any) -> allocation.AllocateRequest:
    mir = allocation.MachineIr(text=text.encode(), target=cpu, phase=wire.PHASES[phase], name="k.mir")
    return allocation.AllocateRequest(mir=mir, return_mir=True, **fields)


def check_against_the_library(
    answer: allocation.AllocateResponse, text: str, cpu: str, phase: Phase, chosen: str = "deterministic"
) -> None:
    """An answer is what the library gives, and its text passes an audit here."""
    file = parse_mir(text)
    assert [f.function for f in answer.functions] == [f.name for f in file.functions]
    for function, found in zip(file.functions, answer.functions, strict=True):
        assert (found.outcome, found.allocator, found.reason) == (PROVED, chosen, "")
        problem = build_problem(file, function, target(cpu), phase)
        expected = allocator("deterministic").allocate(problem).registers
        assert [a.physical_register for a in found.assignments] == list(expected)
        assert [(a.range, a.virtual_register) for a in found.assignments] == [(r.id, r.name) for r in problem.ranges]
        last = found.attempts[-1]
        assert (last.allocator, last.ended, last.reason) == (chosen, "audit", "")
        assert last.proof.outcome == last.audit.outcome == PROVED
        assert last.proof.checked > 0
        assert last.audit.checked > 0
        assert found.HasField("cost")
        assert found.cost.waves > 0
    check_audit(answer.mir.decode(), text, cpu)


def check_audit(after: str, before: str, cpu: str) -> None:
    report = audit(parse_mir(before), parse_mir(after), target(cpu))
    assert report.outcome is Outcome.PROVED, [render(f) for one in report.functions for f in one.findings]


@pytest.mark.parametrize("cpu", few(("gfx1201",), ("gfx90a", "gfx942", "gfx1100", "gfx1201")))
def test_both_phases_are_allocated_as_the_library_does(client: Client, demo_kernels: Path, cpu: str) -> None:
    path = demo_kernels / f"gemm_mma_lds.{cpu}.opt.ll"
    assert cpu_of(path) == cpu
    scalar = readable(pre_ra(path))
    answer = client.allocation.Allocate(request_of(scalar, cpu, "sgpr"), timeout=SECONDS)
    check_against_the_library(answer, scalar, cpu, "sgpr")
    vector = before_vectors(answer.mir.decode(), cpu)
    last = client.allocation.Allocate(request_of(vector, cpu, "vgpr"), timeout=SECONDS)
    check_against_the_library(last, vector, cpu, "vgpr")
    run_llc(last.mir.decode(), cpu, "-verify-machineinstrs", "-start-after=virtregrewriter,2")


def test_all_functions_of_a_file_are_allocated(client: Client, two: str) -> None:
    answer = client.allocation.Allocate(request_of(two, "", "sgpr"), timeout=SECONDS)
    check_against_the_library(answer, two, CPU, "sgpr")
    assert [f.function for f in answer.functions] == ["first", "second"]
    steps = {s.name: s.cpu_time.ToTimedelta().total_seconds() for s in answer.steps}
    assert {"parse", "build", "allocate", "prove", "rewrite", "print", "audit"} <= set(steps)
    assert sum(steps.values()) > 0
    assert answer.wall_time.ToTimedelta().total_seconds() > 0
    assert answer.versions.verilocc
    assert answer.versions.solver.startswith("z3")
    assert answer.versions.allocator == f"deterministic {allocator('deterministic').version}"
    vector = before_vectors(answer.mir.decode(), CPU)
    check_against_the_library(
        client.allocation.Allocate(request_of(vector, CPU, "vgpr"), timeout=SECONDS), vector, CPU, "vgpr"
    )


def test_the_text_is_sent_only_if_it_is_asked_for(client: Client, two: str) -> None:
    request = request_of(two, CPU, "sgpr")
    request.return_mir = False
    answer = client.allocation.Allocate(request, timeout=SECONDS)
    assert answer.mir == b""
    assert answer.functions[0].assignments


def test_a_text_of_the_scalar_phase_is_none_of_the_vector_phase(client: Client, two: str) -> None:
    """It is bad input, and no allocation of ours that is refuted."""
    request = sgpr(two)
    request.mir.phase = problem_pb2.PHASE_VGPR
    refused = refusal(lambda: client.allocation.Allocate(request, timeout=SECONDS))
    assert (refused.code, refused.reason) == (grpc.StatusCode.INVALID_ARGUMENT, "MALFORMED_INPUT")
    assert "is a scalar register that has no place yet" in refused.message
    assert "PHASE_SGPR" in refused.message


@pytest.mark.parametrize(
    ("phase", "message"), [(0, "phase is not set"), (77, "phase is 77, and there is none of that number; there are")]
)
def test_a_phase_that_there_is_not(client: Client, two: str, phase: Any, message: str) -> None:
    request = sgpr(two)
    request.mir.phase = phase
    refused = refusal(lambda: client.allocation.Allocate(request, timeout=SECONDS))
    assert (refused.code, refused.reason) == (grpc.StatusCode.INVALID_ARGUMENT, "MALFORMED_REQUEST")
    assert refused.message.startswith(message)


@pytest.mark.parametrize("phase", ["sgpr", "vgpr"])
def test_a_structured_problem_is_answered_with_its_proof(client: Client, two: str, phase: Phase) -> None:
    text = two
    if phase == "vgpr":
        text = before_vectors(client.allocation.Allocate(request_of(two, CPU, "sgpr")).mir.decode(), CPU)
    problem = problem_of_text(text, CPU, phase)
    request = allocation.AllocateRequest(problem=wire.problem_message(problem), return_obligations=True)
    answer = client.allocation.Allocate(request, timeout=SECONDS)
    (found,) = answer.functions
    assert found.outcome == PROVED
    assert [a.physical_register for a in found.assignments] == list(
        allocator("deterministic").allocate(problem).registers
    )
    (attempt,) = found.attempts
    assert attempt.ended == "prove"
    assert attempt.proof.outcome == PROVED
    assert not attempt.HasField("audit")
    assert [o.outcome for o in attempt.proof.obligations] == [PROVED]
    assert answer.mir == b""


# -- obligations -------------------------------------------------------------------------------------


def test_obligations_are_those_that_the_command_line_writes(client: Client, two: str, tmp_path: Path) -> None:
    answer = client.allocation.Allocate(request_of(two, CPU, "sgpr", return_obligations=True), timeout=SECONDS)
    (tmp_path / "before.mir").write_text(two)
    (tmp_path / "after.mir").write_bytes(answer.mir)
    command = ["audit", "before.mir", "after.mir", f"--mcpu={CPU}", "--smt-dir=smt", "-q", "--report=report.json"]
    assert verilocc([str(tmp_path / a) if a.endswith(".mir") else _below(tmp_path, a) for a in command]) == 0
    rows = json.loads((tmp_path / "smt" / "manifest.json").read_bytes())["obligations"]
    written = [(r["name"], hashlib.sha256((tmp_path / "smt" / r["file"]).read_bytes()).digest()) for r in rows]
    sent = [(o.name, o.sha256) for f in answer.functions for o in f.attempts[-1].audit.obligations]
    assert sent == written
    request = auditing.AuditRequest(before=two.encode(), after=answer.mir, return_obligations=True)
    audited = client.audit.Audit(request, timeout=SECONDS)
    assert [(o.name, o.sha256) for f in audited.functions for o in f.verdict.obligations] == written


def _below(directory: Path, argument: str) -> str:
    option, is_option, value = argument.partition("=")
    return f"{option}={directory / value}" if is_option and option != "--mcpu" else argument


def test_no_obligations_unless_asked_for(client: Client, two: str) -> None:
    answer = client.allocation.Allocate(request_of(two, CPU, "sgpr"), timeout=SECONDS)
    attempts = [a for f in answer.functions for a in f.attempts]
    assert not any(v.obligations for a in attempts for v in (a.proof, a.audit))


# -- audits ------------------------------------------------------------------------------------------


def test_an_audit_proves_what_llvm_did(client: Client, two: str) -> None:
    after = allocated_by_llvm(two, CPU, 0, 0)
    answer = client.audit.Audit(auditing.AuditRequest(before=two.encode(), after=after.encode()), timeout=SECONDS)
    assert answer.outcome == PROVED
    assert [(f.function, f.verdict.outcome) for f in answer.functions] == [("first", PROVED), ("second", PROVED)]
    assert answer.versions.solver.startswith("z3")


def test_an_audit_refutes_an_edit(client: Client, two: str) -> None:
    after = allocated_by_llvm(two, CPU, 0, 0)
    body = after.index("V_MUL_LO_U32")
    line = after[after.rindex("\n", 0, body) + 1 : after.index("\n", body)]
    wrong = after.replace(line, line.replace("$sgpr", "$sgpr1", 1) if "$sgpr" in line else "", 1)
    assert wrong != after
    answer = client.audit.Audit(auditing.AuditRequest(before=two.encode(), after=wrong.encode()), timeout=SECONDS)
    outcomes = {f.function: f.verdict for f in answer.functions}
    assert answer.outcome == verdict_pb2.OUTCOME_REFUTED
    assert outcomes["second"].outcome == PROVED
    assert outcomes["first"].outcome == verdict_pb2.OUTCOME_REFUTED
    finding = outcomes["first"].findings[0]
    assert finding.rule
    assert finding.message
    assert finding.outcome == verdict_pb2.OUTCOME_REFUTED
    assert finding.line_before > 0
    assert finding.line_after > 0


def test_an_audit_that_cannot_decide_says_why(client: Client, two: str) -> None:
    """LLVM repeats an instruction whose input is undefined: nothing says that it gives the same twice."""
    pair = repeated_undefined_input()
    request = auditing.AuditRequest(before=pair.pre.encode(), after=pair.post.encode(), target=pair.cpu)
    answer = client.audit.Audit(request, timeout=SECONDS)
    assert answer.outcome == verdict_pb2.OUTCOME_UNKNOWN
    (found,) = answer.functions
    assert [(f.rule, f.outcome) for f in found.verdict.findings] == [("undefined-input", verdict_pb2.OUTCOME_UNKNOWN)]


def test_an_audit_of_texts_for_two_targets_is_refused(client: Client, two: str) -> None:
    after = allocated_by_llvm(two, CPU, 0, 0).replace("gfx942", "gfx90a")
    request = auditing.AuditRequest(before=two.encode(), after=after.encode())
    failed = refusal(lambda: client.audit.Audit(request, timeout=SECONDS))
    assert (failed.code, failed.reason) == (grpc.StatusCode.INVALID_ARGUMENT, "MALFORMED_INPUT")
    assert "gfx90a" in failed.message


# -- what the server says of itself ----------------------------------------------------------------------


def test_capabilities(client: Client) -> None:
    found = client.allocation.GetCapabilities(allocation.GetCapabilitiesRequest(), timeout=SECONDS)
    assert list(found.targets) == list(TARGETS)
    assert list(found.phases) == [problem_pb2.PHASE_SGPR, problem_pb2.PHASE_VGPR]
    assert found.allocators[0].name == "deterministic"
    assert {a.name for a in found.allocators} >= {"learns", "stubborn"}
    assert all(a.version for a in found.allocators)
    assert found.limits.max_memory_bytes == 1024 << 20
    assert found.limits.workers == 2
    assert found.limits.max_request_bytes > 0
    assert found.limits.max_attempts >= 4
    assert found.limits.max_time.seconds >= found.limits.default_time.seconds > 0
    assert found.versions.solver.startswith("z3")


def test_an_assignment_alone_is_that_of_the_whole_answer_without_text_and_audit(client: Client, two: str) -> None:
    whole = client.allocation.Allocate(request_of(two, CPU, "sgpr"), timeout=SECONDS)
    request = request_of(two, CPU, "sgpr", assignment_only=True)
    failed = refusal(lambda: client.allocation.Allocate(request, timeout=SECONDS))
    assert (failed.code, failed.reason) == BAD_REQUEST
    request.return_mir = False
    alone = client.allocation.Allocate(request, timeout=SECONDS)
    assert alone.mir == b""
    assert [f.assignments for f in alone.functions] == [f.assignments for f in whole.functions]
    for function in alone.functions:
        assert (function.outcome, function.attempts[-1].ended) == (PROVED, "prove")
        assert not function.attempts[-1].HasField("audit")


def test_one_function_of_a_text(client: Client, two: str) -> None:
    whole = client.allocation.Allocate(request_of(two, CPU, "sgpr"), timeout=SECONDS)
    request = request_of(two, CPU, "sgpr")
    request.mir.function = "second"
    one = client.allocation.Allocate(request, timeout=SECONDS)
    assert [f.function for f in one.functions] == ["second"]
    assert one.functions[0].assignments == whole.functions[1].assignments
    # The text has the other one as it was.
    first, second = map(print_function, parse_mir(one.mir.decode()).functions)
    assert first == print_function(parse_mir(two).functions[0])
    assert second == print_function(parse_mir(whole.mir.decode()).functions[1])
    request.mir.function = "third"
    failed = refusal(lambda: client.allocation.Allocate(request, timeout=SECONDS))
    assert (failed.code, failed.reason) == BAD_REQUEST
    assert "'third'" in failed.message


@pytest.mark.long
def test_a_server_names_its_model(tmp_path: Path, problem: AllocationProblem, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VERILOCC_MODEL", raising=False)
    terms = "verilocc_mlir.service.jobs:WITH_MODEL"
    limits = {"workers": 1, "memory_mib": 4096}
    with serving_terms(f"unix:{tmp_path}/socket", terms, limits=limits) as served, connected(served.address) as asked:
        found = asked.allocation.GetCapabilities(allocation.GetCapabilitiesRequest(), timeout=SECONDS)
        names = {a.name: a.model for a in found.allocators}
        for name, model in names.items():
            request = allocation.AllocateRequest(problem=wire.problem_message(problem), allocator=name)
            assert asked.allocation.Allocate(request, timeout=SECONDS).versions.model == model
    card = read_card(Path(verilocc_model.__file__).parent / "weights" / "base")
    assert names == {"model": card["name"], "deterministic": ""}
    assert found.versions.model == card["name"]


@pytest.mark.parametrize("service", ["", "verilocc.v1.AllocationService", "verilocc.v1.AuditService"])
def test_it_says_that_it_serves(client: Client, service: str) -> None:
    answer = health(client.channel).Check(health_pb2.HealthCheckRequest(service=service), timeout=SECONDS)
    assert answer.status == health_pb2.HealthCheckResponse.SERVING


def test_reflection(client: Client) -> None:
    reflection: Any = pytest.importorskip("grpc_reflection.v1alpha.proto_reflection_descriptor_database")
    found = reflection.ProtoReflectionDescriptorDatabase(client.channel)
    services = set(found.get_services())
    assert {"verilocc.v1.AllocationService", "verilocc.v1.AuditService", "grpc.health.v1.Health"} <= services
    descriptor_pool: Any = pytest.importorskip("google.protobuf.descriptor_pool")
    pool = descriptor_pool.DescriptorPool(found)
    method = pool.FindServiceByName("verilocc.v1.AllocationService").FindMethodByName("AllocateStream")
    assert method.input_type.full_name == "verilocc.v1.AllocateStreamRequest"
    assert method.output_type.fields_by_name["response"].message_type.full_name == "verilocc.v1.AllocateResponse"


def test_reflection_v1_says_the_same(client: Client) -> None:
    """Its messages are those of v1alpha."""
    messages: Any = pytest.importorskip("grpc_reflection.v1alpha.reflection_pb2")

    def ask(version: str, **request: str) -> Any:
        call: Any = client.channel.stream_stream(f"/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo")
        data = messages.ServerReflectionRequest(**request).SerializeToString()
        (answer,) = call(iter([data]), timeout=SECONDS)
        return messages.ServerReflectionResponse.FromString(answer)

    listed = ask("v1", list_services="")
    assert listed == ask("v1alpha", list_services="")
    names = {service.name for service in listed.list_services_response.service}
    assert {"grpc.reflection.v1.ServerReflection", "verilocc.v1.AuditService"} <= names
    for name in names:
        described = ask("v1", file_containing_symbol=name).file_descriptor_response.file_descriptor_proto
        assert any(name.rpartition(".")[0].encode() in data for data in described), name


# -- streams -------------------------------------------------------------------------------------------


def test_a_stream_answers_all_whatever_becomes_of_one(client: Client) -> None:
    requests = {f"r{n}": sgpr(small_mir(n)) for n in range(3, 13)}
    requests["bad"] = sgpr("---\nname: x\nbody: |\n  nonsense\n...\n")
    requests["none"] = allocation.AllocateRequest()
    requests["unknown"] = sgpr(small_mir(), "no-such")
    sent = (allocation.AllocateStreamRequest(id=name, request=r) for name, r in requests.items())
    answers = {a.id: a for a in client.allocation.AllocateStream(sent, timeout=SECONDS)}
    assert set(answers) == set(requests)
    for name, answer in answers.items():
        if name.startswith("r"):
            (found,) = answer.response.functions
            assert (found.function, found.outcome) == (f"times{name[1:]}", PROVED)
    said = {name: (answers[name].error.code, answers[name].error.reason) for name in ("bad", "none", "unknown")}
    assert said == {
        "bad": (3, "MALFORMED_INPUT"), "none": (3, "MALFORMED_REQUEST"), "unknown": (5, "UNKNOWN_ALLOCATOR"),
    }  # fmt: skip


def test_a_stream_answers_in_the_order_in_which_answers_are_ready(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    environment = {"VERILOCC_TEST_DIRECTORY": str(tmp_path)}
    address = f"unix:{tmp_path_factory.mktemp('stream')}/socket"
    with serving_terms(address, environment=environment) as served, connected(served.address) as client:
        to_send: queue.Queue[allocation.AllocateStreamRequest | None] = queue.Queue()
        answers = client.allocation.AllocateStream(iter(to_send.get, None), timeout=SECONDS)
        to_send.put(allocation.AllocateStreamRequest(id="slow", request=sgpr(small_mir(), "waits")))
        to_send.put(allocation.AllocateStreamRequest(id="quick", request=sgpr(small_mir())))
        assert next(answers).id == "quick"
        (tmp_path / "go").touch()
        last = next(answers)
        assert (last.id, last.response.functions[0].outcome) == ("slow", PROVED)
        to_send.put(None)
        assert list(answers) == []


# -- regeneration --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def vectors(client: Client, demo_kernels: Path) -> str:
    """Text before the VGPR phase with many ranges that meet."""
    text = readable(pre_ra(demo_kernels / "gemm_mma_lds.gfx942.opt.ll"))
    answer = client.allocation.Allocate(request_of(text, CPU, "sgpr"), timeout=SECONDS)
    return before_vectors(answer.mir.decode(), CPU)


def test_counterexamples_come_back_to_the_allocator(client: Client, vectors: str) -> None:
    request = request_of(vectors, CPU, "vgpr", allocator="learns", return_obligations=True)
    answer = client.allocation.Allocate(request, timeout=SECONDS)
    check_against_the_library(answer, vectors, CPU, "vgpr", "learns")
    (found,) = answer.functions
    assert [(a.allocator, a.ended) for a in found.attempts] == [("learns", "prove")] * 2 + [("learns", "audit")]
    for attempt in found.attempts[:-1]:
        assert attempt.proof.outcome == verdict_pb2.OUTCOME_REFUTED
        assert attempt.reason
        rules = {f.rule for f in attempt.proof.findings}
        assert "interference" in rules
        assert all(f.registers for f in attempt.proof.findings)
    # Each attempt has the obligation of its own proof, and no other's.
    digests = [[o.sha256 for o in a.proof.obligations] for a in found.attempts]
    assert [len(d) for d in digests] == [1, 1, 1]
    assert len({d[0] for d in digests}) == 3


def test_the_nearest_assignment_comes_back_to_the_allocator_and_to_the_client(client: Client, vectors: str) -> None:
    """Two ranges were displaced: two moves mend it, in the answer as in the next attempt."""
    answer = client.allocation.Allocate(request_of(vectors, CPU, "vgpr", allocator="follows"), timeout=SECONDS)
    (found,) = answer.functions
    assert [(a.allocator, a.ended) for a in found.attempts] == [("follows", "prove"), ("follows", "audit")]
    refuted, proved = found.attempts
    assert not proved.HasField("nearest")
    near = refuted.nearest
    assert (len(near.moves), near.fewest, near.reason) == (2, True, "")
    given = {(a.range, a.virtual_register, a.physical_register) for a in found.assignments}
    assert {(m.range, m.virtual_register, m.physical_register) for m in near.moves} <= given


def test_a_client_is_told_why_no_assignment_is_near(client: Client, vectors: str) -> None:
    answer = client.allocation.Allocate(request_of(vectors, CPU, "vgpr", allocator="spoilt"), timeout=SECONDS)
    first = answer.functions[0].attempts[0]
    assert first.proof.outcome == verdict_pb2.OUTCOME_REFUTED
    assert not first.nearest.moves
    assert first.nearest.reason


@pytest.mark.long
def test_what_cannot_be_learnt_falls_back_after_so_many_attempts(client: Client, vectors: str) -> None:
    request = request_of(vectors, CPU, "vgpr", allocator="stubborn", max_attempts=3)
    answer = client.allocation.Allocate(request, timeout=SECONDS)
    check_against_the_library(answer, vectors, CPU, "vgpr")
    attempts = [a.allocator for a in answer.functions[0].attempts]
    assert attempts == ["stubborn"] * 3 + ["deterministic"]
    assert answer.versions.allocator == "stubborn 1"


def test_too_many_registers_are_spilled_where_the_text_is_wanted(client: Client) -> None:
    text = readable(run_llc(CROWDED, CPU, "-stop-before=greedy,2", mir=False))
    answer = client.allocation.Allocate(request_of(text, CPU, "vgpr"), timeout=SECONDS)
    (found,) = answer.functions
    assert (found.outcome, found.allocator) == (PROVED, "deterministic")
    assert found.spills
    assert all(s.registers and s.reason for s in found.spills)
    check_audit(answer.mir.decode(), text, CPU)


def test_too_many_registers_is_a_result_with_a_reason(client: Client) -> None:
    text = readable(run_llc(CROWDED, CPU, "-stop-before=greedy,2", mir=False))
    request = request_of(text, CPU, "vgpr")
    request.return_mir = False
    answer = client.allocation.Allocate(request, timeout=SECONDS)
    (found,) = answer.functions
    assert found.outcome == verdict_pb2.OUTCOME_UNKNOWN
    assert "161 AGPRs and VGPRs are needed at once, 128 are free" in found.reason
    assert (found.allocator, list(found.assignments), found.HasField("cost")) == ("", [], False)
    assert [(a.ended, a.HasField("proof")) for a in found.attempts] == [("allocate", False)]
    assert (answer.mir, list(found.spills)) == (b"", [])


def test_what_cannot_be_spilled_leaves_the_text_as_it_was(client: Client) -> None:
    """One MFMA reads and writes 16 registers each; there are 16 in all."""
    text = as_read(machine_code(f"\n{MFMA}\n", 8), CPU)
    answer = client.allocation.Allocate(request_of(text, CPU, "vgpr"), timeout=SECONDS)
    (found,) = answer.functions
    assert (found.outcome, found.allocator) == (verdict_pb2.OUTCOME_UNKNOWN, "")
    assert "at once" in found.reason
    # Other functions of the text would have had their registers.
    assert parse_mir(answer.mir.decode()).functions[0] == parse_mir(text).functions[0]


@pytest.mark.parametrize("name", ["too-few", *long("spoilt", "gives-up", "unknown-registers", "prints")])
def test_what_an_allocator_does_never_gets_past_the_proof(client: Client, vectors: str, name: str) -> None:
    answer = client.allocation.Allocate(request_of(vectors, CPU, "vgpr", allocator=name), timeout=SECONDS)
    own = name == "prints"
    check_against_the_library(answer, vectors, CPU, "vgpr", name if own else "deterministic")
    problem = allocation.AllocateRequest(
        problem=wire.problem_message(problem_of_text(vectors, CPU, "vgpr")), allocator=name
    )
    (found,) = client.allocation.Allocate(problem, timeout=SECONDS).functions
    assert (found.outcome, found.allocator) == (PROVED, name if own else "deterministic")
    assert [a.allocator for a in found.attempts] == ([name] if own else [name, "deterministic"])


DEFECTS = {
    "raises": r"a defect of the allocator: ValueError at service_allocators\.py:\d+",
    "recurses": r"a defect of the allocator: RecursionError at service_allocators\.py:\d+",
    "none": "it gave no Proposal: NoneType",
    "no-tuple": "its registers are no tuple: NoneType",
    "numbers": "its registers are no names: int",
}


@pytest.mark.parametrize("name", DEFECTS)
def test_a_defect_of_an_allocator_costs_its_attempt(client: Client, name: str) -> None:
    text = small_mir()
    given = wire.problem_message(problem_of_text(text, CPU, "sgpr"))
    for request in (sgpr(text, name, return_mir=True), allocation.AllocateRequest(problem=given, allocator=name)):
        answer = client.allocation.Allocate(request, timeout=SECONDS)
        (found,) = answer.functions
        assert (found.outcome, found.allocator) == (PROVED, "deterministic")
        first, last = found.attempts
        assert (first.allocator, first.ended, first.HasField("proof")) == (name, "allocate", False)
        assert re.fullmatch(DEFECTS[name], first.reason)
        assert (last.allocator, last.reason, last.proof.outcome) == ("deterministic", "", PROVED)
        if answer.mir:
            check_audit(answer.mir.decode(), text, CPU)


def test_a_defect_in_trying_again_ends_the_attempts(client: Client, vectors: str) -> None:
    answer = client.allocation.Allocate(request_of(vectors, CPU, "vgpr", allocator="trips"), timeout=SECONDS)
    check_against_the_library(answer, vectors, CPU, "vgpr")
    said = [(a.allocator, a.ended, a.reason) for a in answer.functions[0].attempts]
    assert [one[:2] for one in said] == [("trips", "prove"), ("trips", "allocate"), ("deterministic", "audit")]
    assert said[1][2].startswith("a defect of the allocator: IndexError at ")


MALFORMED = {
    "too-few": (verdict_pb2.OUTCOME_INVALID, "registers, the problem"),
    "unknown-registers": (verdict_pb2.OUTCOME_REFUTED, "well-formed"),
    "other-spelling": (verdict_pb2.OUTCOME_REFUTED, "well-formed"),
    "endless-number": (verdict_pb2.OUTCOME_REFUTED, "well-formed"),
    "wrong-sizes": (verdict_pb2.OUTCOME_REFUTED, "width"),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_a_malformed_proposal_is_refuted_with_the_reason(client: Client, name: str) -> None:
    answer = client.allocation.Allocate(sgpr(small_mir(), name), timeout=SECONDS)
    (found,) = answer.functions
    assert (found.outcome, found.allocator) == (PROVED, "deterministic")
    first = found.attempts[0]
    outcome, why = MALFORMED[name]
    assert (first.allocator, first.ended, first.proof.outcome) == (name, "prove", outcome)
    assert why in first.reason
