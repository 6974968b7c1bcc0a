"""``verilocc allocate`` end to end: texts of a server that is real, and of one that lies, judged here."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("grpc")

from client_support import NOWHERE, answering, honest, served
from grpc import StatusCode
from support import few, pre_ra, run_llc

from verilocc.v1 import allocation_service_pb2 as allocation
from verilocc.v1 import verdict_pb2
from verilocc_mlir.cli.main import run
from verilocc_mlir.results.allocate import schema
from verilocc_mlir.service.status import ServiceError

jsonschema = pytest.importorskip("jsonschema")

KERNELS = ("attn_d64.gfx942.opt.ll", "gemm_mma_lds.gfx1100.opt.ll")


@pytest.fixture
def sources(demo_kernels: Path, tmp_path: Path) -> list[Path]:
    """Two texts before allocation, of two GPUs."""
    paths = [(tmp_path / name).with_suffix(".mir") for name in KERNELS]
    for path in paths:
        path.write_text(pre_ra(demo_kernels / path.with_suffix(".ll").name))
    return paths


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    address = f"unix:{tmp_path_factory.mktemp('server')}/s"
    with served(listen=[address]):
        yield address


def allocate(sources: list[Path], server: str, *options: str) -> tuple[int, dict[str, Any]]:
    """The exit code and the report."""
    report = sources[0].parent / "report.json"
    command = ["allocate", *map(str, sources), f"--server={server}", "--phase=sgpr", f"--report={report}", *options]
    code = run(command)
    found = json.loads(report.read_text())
    jsonschema.validate(found, schema())
    assert found["exit_code"] == code
    return code, found


def test_a_text_comes_back_allocated_and_llvm_goes_on_from_it(
    sources: list[Path], server: str, capsys: pytest.CaptureFixture[str]
) -> None:
    out = sources[0].with_name("out.mir")
    code, found = allocate(sources[:1], server, "-o", str(out))
    assert code == 0
    (file,) = found["files"]
    assert (file["outcome"], file["output"], file["reason"]) == ("proved", str(out), None)
    assert file["input_sha256"] == hashlib.sha256(sources[0].read_bytes()).hexdigest()
    (function,) = file["functions"]
    assert (function["name"], function["allocator"], len(function["attempts"])) == ("attn", "deterministic", 1)
    assert function["registers"]["sgprs"] > 20
    assert re.search(r"attn +proved +deterministic +\d+ +\d+ S +1", capsys.readouterr().out)
    resumed = run_llc(out.read_text(), "gfx942", "-start-after=virtregrewriter,0", "-stop-before=greedy,2")
    vector, done = out.with_name("vector.mir"), out.with_name("done.mir")
    vector.write_text(resumed)
    assert run(["allocate", str(vector), f"--server={server}", "--phase=vgpr", "-q", "-o", str(done)]) == 0
    assert not re.search(r"%\d+:", done.read_text())
    run_llc(done.read_text(), "gfx942", "-start-after=virtregrewriter,2", "-verify-machineinstrs")


@pytest.mark.long
def test_several_files_go_in_one_stream(sources: list[Path], server: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    code, found = allocate(sources, server, "-q", "-o", str(out))
    assert code == 0
    assert [f["input"] for f in found["files"]] == [str(s) for s in sources]
    assert sorted(p.name for p in out.iterdir()) == sorted(s.name for s in sources)
    for source in sources:
        alone = tmp_path / "alone.mir"
        assert allocate([source], server, "-q", "-o", str(alone))[0] == 0
        assert (out / source.name).read_bytes() == alone.read_bytes()
    with answering(honest) as asked:
        assert allocate(sources, asked.address, "-q")[0] == 0
        assert asked.calls == ["AllocateStream"] * 2


def test_a_text_to_standard_output(
    sources: list[Path], server: str, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    assert run(["allocate", str(sources[0]), f"--server={server}", "--phase=sgpr", "-o", "-"]) == 0
    shown = capsysbinary.readouterr()
    assert shown.out.startswith(b"---")
    assert b"proved" in shown.err


def test_a_server_that_is_not_there_is_exit_code_3(sources: list[Path], tmp_path: Path) -> None:
    before = sorted(tmp_path.iterdir())
    for given in (sources[:1], sources):
        code, found = allocate(given, NOWHERE, "-q", "--server-seconds=2", "-o", str(tmp_path / "o"))
        assert code == 3
        for file in found["files"]:
            assert (file["outcome"], file["functions"]) == ("unknown", [])
            assert "UNAVAILABLE" in file["reason"]
    assert sorted(p for p in tmp_path.iterdir() if p.name != "o") == sorted([*before, tmp_path / "report.json"])
    assert list((tmp_path / "o").iterdir()) == []


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ServiceError(StatusCode.NOT_FOUND, "UNKNOWN_ALLOCATOR", "no"), 2),
        (ServiceError(StatusCode.RESOURCE_EXHAUSTED, "MEMORY_LIMIT", "no"), 3),
    ],
)
def test_what_a_server_refuses(sources: list[Path], error: ServiceError, code: int) -> None:
    def refuse(request: allocation.AllocateRequest) -> allocation.AllocateResponse:
        assert (request.allocator, request.max_attempts) == ("guess", 7)
        raise error

    with answering(refuse) as asked:
        for given in (sources[:1], sources):
            found, report = allocate(given, asked.address, "-q", "--allocator=guess", "--attempts=7")
            assert found == code
            assert error.reason in report["files"][0]["reason"]


# A server that lies.


def registers_swapped(answer: Any) -> None:
    """An instruction that reads a pair reads one that another instruction has defined."""
    defined = re.findall(rb"^    (?:renamable )?(\$sgpr\d+_sgpr\d+) = ", answer.mir, re.MULTILINE)
    for pair in defined:
        read = re.search(rb"^    .* = .*" + re.escape(pair) + rb"(?!_)", answer.mir, re.MULTILINE)
        another = next((name for name in defined if name != pair and read and name in answer.mir[: read.start()]), b"")
        if read and another:
            answer.mir = answer.mir[: read.end() - len(pair)] + another + answer.mir[read.end() :]
            return
    raise AssertionError("no instruction reads a pair after two are defined")


def without_allocation(answer: Any) -> None:
    answer.mir = ORIGINAL[0]


def another_module(answer: Any) -> None:
    answer.mir = answer.mir.replace(b"source_filename", b"; source_filename", 1)


def other_budget(answer: Any) -> None:
    answer.mir = answer.mir.replace(b'"amdgpu-flat-work-group-size"="', b'"amdgpu-flat-work-group-size"="1', 1)


def declined(answer: Any) -> None:
    answer.functions[0].outcome = verdict_pb2.OUTCOME_UNKNOWN
    answer.functions[0].reason = "too\x1b[2J many"


ORIGINAL: list[bytes] = []
LIES: dict[str, tuple[Callable[[Any], None], int, str]] = {
    "a register swapped": (registers_swapped, 1, "value"),
    "nothing allocated": (without_allocation, 1, "still, or newly, a virtual register"),
    "another IR module": (another_module, 1, "changed the IR module"),
    "other attributes": (other_budget, 1, "changed the IR module"),
    "no text": (lambda a: a.ClearField("mir"), 3, "no machine IR"),
    "no UTF-8": (lambda a: setattr(a, "mir", b"\xff"), 3, "no machine IR"),
    "cut text": (lambda a: setattr(a, "mir", a.mir[: len(a.mir) // 2]), 3, ""),
    "other names": (lambda a: setattr(a.functions[0], "function", "f"), 3, "for other functions"),
    "no function": (lambda a: a.functions.pop(), 3, "for other functions"),
    "declined": (declined, 3, "too [2J many"),
}


@pytest.mark.parametrize("lie", few(list(LIES)[::4], LIES))
def test_a_lie_is_not_written(lie: str, sources: list[Path], tmp_path: Path) -> None:
    change, code, told = LIES[lie]
    ORIGINAL[:] = [sources[0].read_bytes()]

    def answer(request: allocation.AllocateRequest) -> allocation.AllocateResponse:
        found = honest(request)
        assert b"source_filename" in found.mir
        change(found)
        return found

    out = tmp_path / "out.mir"
    with answering(answer) as asked:
        given, report = allocate(sources[:1], asked.address, "-q", "-o", str(out))
    (file,) = report["files"]
    said = " ".join(str(text) for text in (file["reason"], *(f["reason"] for f in file["functions"])))
    assert told in said
    assert given == code, said
    assert not out.exists()


# Usage.


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--server=none"], "for servers"),
        (["--server=nonsense"], "is not HOST:PORT"),
        ([f"--server={NOWHERE}", "--attempts=0"], "attempts"),
        ([f"--server={NOWHERE}", "-o", "-", "--report=-"], "standard output"),
        ([f"--server={NOWHERE}", "-o", "IN"], "overwrite"),
        ([f"--server={NOWHERE}", "-mcpu=gfx1"], "gfx1"),
        (["-mcpu=gfx942"], "--server"),
    ],
)
def test_wrong_usage_is_one_error(
    options: list[str], message: str, sources: list[Path], capsys: pytest.CaptureFixture[str]
) -> None:
    source = str(sources[0])
    command = ["allocate", source, "--phase=sgpr", *(o.replace("IN", source) if o == "IN" else o for o in options)]
    assert run(command) == 2
    shown = capsys.readouterr()
    assert message in shown.err
    assert shown.out == ""


def test_wrong_input_is_said_before_any_server_is_asked(
    demo_kernels: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = {"a.mir": b"", "b.mir": b"\xff", "c.mir": b"--- |\n", "d.mir": (demo_kernels / KERNELS[0]).read_bytes()}
    with answering(honest) as asked:
        for name, data in wrong.items():
            path = tmp_path / name
            path.write_bytes(data)
            assert run(["allocate", str(path), f"--server={asked.address}", "--phase=sgpr"]) == 2
            error = capsys.readouterr().err
            assert error.startswith(f"verilocc: error: {path}")
        assert run(["allocate", str(tmp_path / "none"), f"--server={asked.address}", "--phase=sgpr"]) == 2
        assert asked.calls == []
