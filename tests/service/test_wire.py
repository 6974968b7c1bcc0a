"""With a server, hooks send the machine IR of a phase, compressed; its model answers, and the reports say so.

The bytes between client and server are read, and the server is a process with the model of the package.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from mlir_support import STORING_KERNEL
from service_support import Served, connected, serving
from support import REPOSITORY, late
from wire_support import Sent, Wire, recorded

from smt_verifier.outcome import Outcome
from verilocc.v1 import problem_pb2
from verilocc_mlir.mir.parser import parse_mir
from verilocc_mlir.pipeline.compile import compile_module
from verilocc_mlir.pipeline.options import with_options
from verilocc_mlir.results.compile import Report

pytest.importorskip("grpc", reason="grpc is not installed")
pytest.importorskip("tokenizers", reason="the extra model is not installed")
lora = late("lora_support")
triton_builders = late("triton_builders")

ADAPTER = "lora-cdna3"
BASE_NAME = "base-44677k"


@pytest.fixture(scope="module")
def model_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server whose model has a LoRA adapter for gfx942."""
    directory = lora.write_model(tmp_path_factory.mktemp("lora") / "model", "cdna3", ADAPTER, ("gfx942",))
    with serving(f"--model={directory}", "--workers=1") as served:
        yield served


@pytest.fixture
def wire(model_server: Served) -> Iterator[Wire]:
    """A relay before ``model_server`` that keeps what clients send."""
    with recorded(model_server.address) as found:
        yield found


def check_machine_ir(sent: list[Sent], target: str) -> None:
    """Both phases of a function were sent as machine IR, compressed, for an assignment alone."""
    phases = {one.request.mir.phase for one in sent}
    assert phases == {problem_pb2.PHASE_SGPR, problem_pb2.PHASE_VGPR}
    for one in sent:
        assert one.request.WhichOneof("input") == "mir"
        assert one.compressed
        assert one.size < len(one.request.mir.text) / 2
        assert one.request.mir.target == target
        assert one.request.assignment_only
        names = [f.name for f in parse_mir(one.request.mir.text.decode(), "sent").functions]
        assert one.request.mir.function in names


def check_report(report: Report, address: str, adapter: str = ADAPTER) -> None:
    """The report says which model and adapter the server asked, how often, and what it took."""
    assert report.server == ""
    (part,) = report.models
    assert (part.model, part.adapter, part.server) == (BASE_NAME, adapter, address)
    assert part.tries >= 1
    assert part.tokens > 0
    phases = [p for f in report.functions for p in f.phases if p.phase != "wwm"]
    assert phases
    for phase in phases:
        assert [one.ended for one in phase.attempts[-1].tries][-1:] == ["prove"]
        assert [one.outcome for one in phase.attempts[-1].tries][-1:] == ["proved"]


@pytest.mark.long
def test_the_mlir_pass(wire: Wire) -> None:
    ir = pytest.importorskip("torch_mlir.ir", reason="torch-mlir is not installed")
    passmanager = pytest.importorskip("torch_mlir.passmanager", reason="torch-mlir is not installed")
    from verilocc_mlir.hooks.mlir_pipeline import AllocatePass, PassOptions

    said: list[str] = []
    with ir.Context() as context:
        context.attach_diagnostic_handler(lambda diagnostic: said.append(diagnostic.message) or True)
        module = ir.Module.parse(STORING_KERNEL)
        allocate = AllocatePass(PassOptions(with_options(None, {"server": wire.address})))
        manager = passmanager.PassManager("builtin.module")
        allocate.add_to(manager)
        manager.run(module.operation)
        (result,) = allocate.results
    assert result.verdict == "proved"
    check_machine_ir(wire.allocations(), "gfx942")
    check_report(result.reports[0], wire.address)
    assert any(f"model {BASE_NAME}, adapter {ADAPTER} of {wire.address}: " in message for message in said)


@pytest.mark.long
def test_torch(wire: Wire) -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    pytest.importorskip("iree.compiler", reason="IREE is not installed")
    import verilocc_mlir

    inputs = (torch.ones(4), torch.ones(4))
    compiled = verilocc_mlir.compile(lambda a, b: a + b, inputs, target="gfx942", server=wire.address)
    assert compiled.proved
    check_machine_ir(wire.allocations(), "gfx942")
    (part,) = json.loads(compiled.result.to_json())["models"]
    assert (part["model"], part["adapter"], part["server"]) == (BASE_NAME, ADAPTER, wire.address)
    assert part["tries"] >= 1
    (kernel,) = compiled.result.kernels
    assert kernel.report["models"] == [part]
    tries = [one for f in kernel.report["functions"] for p in f["phases"] for a in p["attempts"] for one in a["tries"]]
    assert {(one["model"]["model"], one["model"]["adapter"]) for one in tries} == {(BASE_NAME, ADAPTER)}


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:TRITON_DEFAULT_FP_FUSION is unset")
def test_triton(wire: Wire, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("triton", reason="Triton is not installed")
    from verilocc_mlir.hooks import triton as hook

    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "cache"))
    hook.clear_reports()
    hook.install("gfx942", replace="always", server=wire.address)
    try:
        triton_builders.build_sum("gfx942", 64)
    finally:
        hook.uninstall()
    record = hook.reports()[-1]
    assert record.proved
    assert record.report is not None
    check_machine_ir(wire.allocations(), "gfx942")
    check_report(record.report, wire.address)
    assert any(note.startswith(f"model {BASE_NAME}, adapter {ADAPTER} of {wire.address}: ") for note in record.notes)


@pytest.mark.long
def test_a_gpu_without_an_adapter_gets_the_base_and_is_told(wire: Wire, demo_kernels: Path) -> None:
    source = demo_kernels / "gemm_mma_lds.gfx1100.opt.ll"
    done = compile_module(source.read_bytes(), source.name, with_options(None, {"server": wire.address}))
    check_machine_ir(wire.allocations(), "gfx1100")
    check_report(done.report, wire.address, adapter="")
    (part,) = done.report.models
    assert part.note == f"no adapter is applied for gfx1100: {ADAPTER} is for gfx942, gfx950, gfx9-4-generic"


@pytest.mark.long
def test_capabilities_and_answers_name_the_adapters(model_server: Served, demo_kernels: Path) -> None:
    with connected(model_server.address) as client, recorded(model_server.address) as relay:
        first = client.allocation.GetCapabilities(_empty(), timeout=60).allocators[0]
        assert (first.name, first.model) == ("model", f"{BASE_NAME}+{ADAPTER}")
        (adapter,) = first.adapters
        assert (adapter.name, list(adapter.targets)) == (ADAPTER, ["gfx942", "gfx950", "gfx9-4-generic"])
        assert list(adapter.trained_on) == ["gfx942"]
        source = demo_kernels / "gemm_mma_lds.gfx1100.opt.ll"
        compile_module(source.read_bytes(), source.name, with_options(None, {"server": relay.address}))
        request = relay.allocations()[0].request
        answer = client.allocation.Allocate(request, timeout=60)
    assert answer.versions.model == BASE_NAME
    assert [a.model.model for f in answer.functions for a in f.attempts] == [BASE_NAME]


@pytest.mark.long
def test_a_refuted_answer_is_asked_for_again_with_what_refuted_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    # As the demo shows it: the model's own words, which no mask holds to the constraints, and few registers.
    monkeypatch.syspath_prepend(str(REPOSITORY / "examples"))
    assert late("refuted").show(tmp_path) == (True, True)
    found = json.loads((tmp_path / "tightened.json").read_text())
    assert found["outcome"] == str(Outcome.PROVED)
    phases = {p["phase"]: p for f in found["functions"] for p in f["phases"]}
    attempt = phases["vgpr"]["attempts"][-1]  # behind the one before anything was spilled
    assert attempt["version"].startswith(f"model {BASE_NAME}, unmasked first")
    first, second = attempt["tries"]
    assert (first["allocator"], first["ended"], first["outcome"]) == ("model", "prove", "refuted")
    assert first["refuted"]
    assert re.match(r"complete: %\d+ is given no register", first["refuted"][0])
    assert (second["allocator"], second["outcome"], second["refuted"]) == ("model", "proved", [])
    assert all(one["model"]["tokens"] > 0 for one in (first, second))
    (part,) = found["models"]
    assert (part["refuted"], part["tries"]) == (1, 4)
    assert second["nearest"] is None
    shown = " ".join(capfd.readouterr().out.split())
    assert f"nearest: attn, VGPR: try 1 of {attempt['server']}: model: {first['nearest']}" in shown
    # With so few registers there may be none: most of the ranges around would have to move.
    assert first["nearest"].startswith(("the nearest valid assignment moves %", "no valid assignment is near: "))
    assert f"refuted: attn, VGPR: try 1 of {attempt['server']}: model: complete: %" in shown
    assert f"model: {BASE_NAME}, no adapter of {attempt['server']}: 4 tries, 1 refuted, " in shown


def _empty() -> object:
    from verilocc.v1 import allocation_service_pb2 as allocation

    return allocation.GetCapabilitiesRequest()
