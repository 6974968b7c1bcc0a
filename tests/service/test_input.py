"""Whatever is sent: an answer or a documented status, and the next request is answered."""

from __future__ import annotations

import gzip
import random
from pathlib import Path
from typing import Any

import grpc
import pytest
from builders import problem_of_text
from grpc import StatusCode
from service_support import (
    BAD_INPUT,
    BAD_REQUEST,
    CPU,
    EXHAUSTED,
    LATE,
    MIB,
    SECONDS,
    Client,
    Served,
    check_alive,
    connected,
    documented,
    mir_request,
    refusal,
    refused,
    serving_terms,
    sgpr,
    small_mir,
)
from support import allocated_by_llvm, few

from verilocc.v1 import allocation_service_pb2 as allocation
from verilocc.v1 import problem_pb2, verdict_pb2
from verilocc_mlir.remote import wire


@pytest.mark.long
def test_a_message_over_the_limit(client: Client) -> None:
    failed = refusal(lambda: client.raw("Allocate", b"\0" * (100 * MIB)))
    assert failed.code is StatusCode.RESOURCE_EXHAUSTED
    packed = sgpr("\n" * (100 * MIB)).SerializeToString()
    failed = refusal(lambda: client.raw("Allocate", packed, compression=grpc.Compression.Gzip))
    assert failed.code is StatusCode.RESOURCE_EXHAUSTED
    check_alive(client)


@pytest.mark.parametrize("method", ["Allocate", "Audit", "GetCapabilities"])
@pytest.mark.parametrize(
    "data", [b"\xff" * 20, b"\x0a\xff\xff\xff\xff\x7f", gzip.compress(b"x" * 99, mtime=0)], ids=["ones", "long", "gzip"]
)
def test_bytes_that_are_no_message(client: Client, method: str, data: bytes) -> None:
    failed = refusal(lambda: client.raw(method, data))
    assert (failed.code, failed.reason) == BAD_REQUEST
    check_alive(client)


def test_a_stream_with_bytes_that_are_no_message_ends_with_what_was_accepted(client: Client) -> None:
    """Nothing says whose request that was: the stream is over, what was read before is answered."""
    stream: Any = client.channel.stream_stream("/verilocc.v1.AllocationService/AllocateStream")
    good = allocation.AllocateStreamRequest(id="good", request=sgpr(small_mir())).SerializeToString()
    answers = stream(iter([good, b"\xff" * 20, good]), timeout=SECONDS)
    assert allocation.AllocateStreamResponse.FromString(next(answers)).id == "good"
    failed = refusal(lambda: next(answers))
    assert (failed.code, failed.reason) == BAD_REQUEST
    check_alive(client)


@pytest.mark.long
def test_a_message_of_empty_entries_costs_a_worker_and_not_the_front(tmp_path: Path) -> None:
    """Each entry has two bytes, and a hundred once it is read: more than a worker may have."""
    entries = b"\x42\x00" * (15 * MIB // 2)  # live ranges
    problem = b"\x12" + _length(len(entries)) + entries
    limits = {"workers": 1, "memory_mib": 700, "max_request_bytes": 16 * MIB}
    with serving_terms(f"unix:{tmp_path}/s", limits=limits) as served, connected(served.address) as client:
        check_alive(client)
        before = _most_memory_mib(served)
        failed = refusal(lambda: client.raw("Allocate", problem))
        assert (failed.code, failed.reason) == EXHAUSTED
        stream: Any = client.channel.stream_stream("/verilocc.v1.AllocationService/AllocateStream")
        data = b"\x0a\x02it\x12" + _length(len(problem)) + problem
        answer = allocation.AllocateStreamResponse.FromString(next(stream(iter([data]), timeout=SECONDS)))
        assert (answer.id, answer.error.code, answer.error.reason) == ("it", 8, "MEMORY_LIMIT")
        # The message, as often as it is copied on its way; what protobuf makes of it takes 1 GiB.
        assert _most_memory_mib(served) - before < 16 * 16
        check_alive(client)


@pytest.mark.long
def test_refused_requests_leave_nothing_in_the_front(served: Served, client: Client) -> None:
    """Neither one that a worker refused nor the exception that ended its call: the collector need not come for them."""
    request = sgpr(b"x" * (7 * MIB)).SerializeToString()
    before = _memory_mib(served, "VmRSS")
    for _ in range(30):
        failed = refusal(lambda: client.raw("Allocate", request))
        assert (failed.code, failed.reason) == BAD_INPUT
    assert _memory_mib(served, "VmRSS") - before < 100


def _length(size: int) -> bytes:
    """As a varint."""
    head = b""
    while size > 127:
        head, size = head + bytes([size & 127 | 128]), size >> 7
    return head + bytes([size])


def _most_memory_mib(served: Served) -> int:
    """The most that the front has had."""
    return _memory_mib(served, "VmHWM")


def _memory_mib(served: Served, name: str) -> int:
    status = Path(f"/proc/{served.pid}/status").read_text()
    return int(status.partition(f"{name}:")[2].split()[0]) >> 10


@pytest.mark.parametrize("data", [b"\x0a\x00" * 2, b"\x12\x00" * 2, b"\x0a\x01\xff"], ids=["ids", "requests", "bytes"])
def test_a_request_of_a_stream_that_is_not_what_it_should_be_ends_it(client: Client, data: bytes) -> None:
    stream: Any = client.channel.stream_stream("/verilocc.v1.AllocationService/AllocateStream")
    failed = refusal(lambda: list(stream(iter([data]), timeout=SECONDS)))
    assert (failed.code, failed.reason) == BAD_REQUEST


def test_random_bytes_and_random_edits_of_a_problem(client: Client) -> None:
    """Field by field of the contract, each with another value now and then."""
    problem = problem_of_text(small_mir(), CPU, "sgpr")
    good = allocation.AllocateRequest(problem=wire.problem_message(problem)).SerializeToString()
    chosen = random.Random(5)
    for number in range(150):
        data = bytearray(good)
        for _ in range(chosen.randint(1, 4)):
            data[chosen.randrange(len(data))] = chosen.randrange(256)
        try:
            answer = allocation.AllocateResponse.FromString(client.raw("Allocate", bytes(data)))
        except grpc.RpcError as error:
            failed = refused(error)
            assert failed.reason in documented()[failed.code.name], (number, failed)
            assert failed.code is not StatusCode.INTERNAL, (number, failed, bytes(data).hex())
        else:
            proved = verdict_pb2.OUTCOME_PROVED
            assert all((f.outcome == proved) >= bool(f.assignments) for f in answer.functions)
    check_alive(client)


UNSUPPORTED = StatusCode.FAILED_PRECONDITION
LLVM_IR = b'target triple = "amdgcn-amd-amdhsa"\ndefine amdgpu_kernel void @f() { ret void }\n'


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        pytest.param(allocation.AllocateRequest(), BAD_REQUEST, id="nothing"),
        pytest.param(sgpr(b"", ""), BAD_INPUT, id="empty text"),
        pytest.param(sgpr(b"---\nname: \xff\xfe\n", ""), BAD_INPUT, id="not UTF-8"),
        pytest.param(sgpr(b"---\nname: x\0y\n", ""), BAD_INPUT, id="a zero"),
        pytest.param(sgpr(b" \n\t\n", ""), BAD_INPUT, id="white space"),
        pytest.param(sgpr(LLVM_IR, ""), BAD_INPUT, id="LLVM IR"),
        pytest.param(sgpr(b"BC\xc0\xde" + b"\0" * 100, ""), BAD_INPUT, id="bitcode"),
        pytest.param(sgpr(b"\x7fELF" + b"\0" * 100, ""), BAD_INPUT, id="ELF"),
        pytest.param(sgpr(b"module { func.func @f() { return } }\n", ""), BAD_INPUT, id="MLIR"),
        pytest.param(mir_request(target="gfx803"), (UNSUPPORTED, "TARGET_NOT_SUPPORTED"), id="gfx803"),
        pytest.param(mir_request(target="x" * 100_000), (UNSUPPORTED, "TARGET_NOT_SUPPORTED"), id="a long target"),
        pytest.param(mir_request(phase=problem_pb2.PHASE_WWM), (UNSUPPORTED, "PHASE_NOT_SUPPORTED"), id="WWM"),
        pytest.param(
            allocation.AllocateRequest(allocator=b"\xff".decode("latin-1"), mir=allocation.MachineIr()),
            (StatusCode.NOT_FOUND, "UNKNOWN_ALLOCATOR"), id="Latin-1",
        ),
        pytest.param(mir_request(phase=0), BAD_REQUEST, id="no phase"),
        pytest.param(mir_request(phase=77), BAD_REQUEST, id="unknown phase"),
        pytest.param(mir_request(allocator="no-such"), (StatusCode.NOT_FOUND, "UNKNOWN_ALLOCATOR"), id="allocator"),
        pytest.param(
            mir_request(allocator="ä" * MIB), (StatusCode.NOT_FOUND, "UNKNOWN_ALLOCATOR"), id="a long allocator"
        ),
        pytest.param(mir_request(max_attempts=-1), BAD_REQUEST, id="attempts below"),
        pytest.param(mir_request(max_attempts=33), BAD_REQUEST, id="attempts above"),
        pytest.param(mir_request(b"---\nname: f\n", name="n" * MIB), BAD_INPUT, id="a long name"),
        pytest.param(
            allocation.AllocateRequest(problem=problem_pb2.AllocationProblem()), BAD_INPUT, id="an empty problem"
        ),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_request(
    client: Client, request_: allocation.AllocateRequest, expected: tuple[StatusCode, str]
) -> None:
    failed = refusal(lambda: client.allocation.Allocate(request_))
    assert (failed.code, failed.reason) == expected, failed.message
    assert failed.message
    assert len(failed.message) < 1100


def test_a_processor_that_nothing_names(client: Client) -> None:
    text = small_mir().replace('"target-cpu"="gfx942"', "").encode()
    failed = refusal(lambda: client.allocation.Allocate(mir_request(text, target="")))
    assert (failed.code, failed.reason) == BAD_INPUT
    assert "processor" in failed.message


def test_text_that_is_allocated_already(client: Client) -> None:
    """No virtual register is left to place: nothing to do, or refused; never an error without a reason."""
    done = allocated_by_llvm(small_mir(), CPU, 0, 2).encode()
    failed = refusal(lambda: client.allocation.Allocate(mir_request(done)))
    assert (failed.code, failed.reason) == BAD_INPUT
    assert "allocated" in failed.message


def _with_body(lines: str, registers: str = "") -> bytes:
    head = f"---\nname: f\ntracksRegLiveness: true\n{registers}body: |\n"
    return f"{head}  bb.0:\n{lines}\n    S_ENDPGM 0\n...\n".encode()


def _blocks(count: int) -> bytes:
    body = "".join(
        f"  bb.{n}:\n    successors: %bb.{n + 1}\n    %{n}:sreg_32 = S_MOV_B32 {n}\n    S_BRANCH %bb.{n + 1}\n"
        for n in range(count)
    )
    return f"---\nname: f\ntracksRegLiveness: true\nbody: |\n{body}  bb.{count}:\n    S_ENDPGM 0\n...\n".encode()


BOMBS = {
    "braces": b"---\nname: f\nframeInfo: " + b"{" * 500_000,
    "brackets": b"---\nname: f\nliveins: " + b"[" * 500_000,
    "parentheses": _with_body("    S_NOP " + "(" * 200_000),
    "nested debug locations": _with_body("    S_NOP 0, debug-location !DILocation(line: " + "!D(" * 100_000),
    "operands": _with_body("    S_NOP " + "0, " * 1_000_000 + "0"),
    "operands of a bundle": _with_body("    BUNDLE " + "implicit %0:sreg_32, " * 100_000 + "implicit %0 {\n    }"),
    "blocks": _blocks(10_000),
    "a large register number": _with_body("    %99999999999999999999:sreg_32 = S_MOV_B32 0"),
    "a number of 10,000 digits": _with_body(f"    %{'9' * 10_000}:sreg_32 = S_MOV_B32 0"),
    "an immediate of 10,000 digits": _with_body(f"    %0:sreg_32 = S_MOV_B32 {'9' * 10_000}"),
    "a large frame offset": _with_body(
        "    S_NOP 0", f"stack:\n  - {{ id: 0, offset: {'9' * 5000}, size: {'9' * 5000}, alignment: 4 }}\n"
    ),
    "a large block number": _with_body(f"    S_BRANCH %bb.{'9' * 5000}"),
    "many registers": _with_body(
        "    S_NOP 0",
        "registers:\n" + "".join(f"  - {{ id: {n}, class: sreg_32 }}\n" for n in range(50_000)),
    ),
    "definitions": _with_body("\n".join(f"    %{n}:sreg_32 = S_MOV_B32 {n}" for n in range(20_000))),
    "quotes": b'---\nname: "' + b"\\" * 1_000_001 + b'"\nbody: |\n',
    "IR that does not end": b"--- |\n" + b"  @a = global i32 0\n" * 100_000,
    "documents": b"---\nname: f\n...\n" * 50_000,
    "an alias": b"---\nname: &a [*a, *a]\nbody: |\n  bb.0:\n...\n",
}  # fmt: skip


DEAR = ("blocks", "definitions", "many registers", "operands")


@pytest.mark.parametrize("name", few([name for name in BOMBS if name not in DEAR], BOMBS))
def test_a_bomb_is_an_answer_or_a_documented_status(client: Client, name: str) -> None:
    request = mir_request(BOMBS[name])
    try:
        answer = client.allocation.Allocate(request)
    except grpc.RpcError as error:
        failed = refused(error)
        assert (failed.code, failed.reason) in {BAD_INPUT, EXHAUSTED, LATE, (UNSUPPORTED, "NOT_SUPPORTED")}, failed
    else:
        assert all((f.outcome == verdict_pb2.OUTCOME_PROVED) or f.reason for f in answer.functions)
    check_alive(client)
