"""A server that is down is said by each way in, in its own way, and is an error where it is required."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest
from mlir_support import STORING_KERNEL
from support import few, late

from smt_verifier.outcome import Outcome
from verilocc_mlir.cli.main import run
from verilocc_mlir.errors import ExitCode, InputError, ToolchainError
from verilocc_mlir.pipeline.compile import compile_module
from verilocc_mlir.pipeline.options import with_options

pytest.importorskip("grpc", reason="grpc is not installed")
triton_builders = late("triton_builders")

KERNEL = """
define amdgpu_kernel void @k(ptr addrspace(1) %p, i32 %x) {
  store i32 %x, ptr addrspace(1) %p
  ret void
}
"""
PROGRAM = """
import torch
def make():
    return torch.nn.Linear(4, 4).eval(), (torch.ones(2, 4),)
"""
ADD = """
func.func @add(%a: tensor<64xf32>, %b: tensor<64xf32>) -> tensor<64xf32> {
  %c = arith.addf %a, %b : tensor<64xf32>
  return %c : tensor<64xf32>
}
"""


@pytest.fixture
def nobody(tmp_path: Path) -> str:
    """An address where nobody listens."""
    return f"unix:{tmp_path}/nobody"


def said_of(address: str) -> str:
    return f"{address}: UNAVAILABLE"


def test_the_report_says_why_it_had_no_part(nobody: str) -> None:
    settings = with_options(None, {"server": nobody})
    done = compile_module(KERNEL.replace("{\n", '"target-cpu"="gfx942" {\n', 1).encode(), "k.ll", settings)
    assert done.report.outcome is Outcome.PROVED
    assert done.report.server.startswith(said_of(nobody))
    assert done.report.server.endswith("; the local allocation stands in 2 of 2 phases")


def test_a_server_that_is_required_is_an_error_that_says_why(nobody: str) -> None:
    kernel = KERNEL.replace("{\n", '"target-cpu"="gfx942" {\n', 1).encode()
    with pytest.raises(ToolchainError, match="required to have: ") as failure:
        compile_module(kernel, "k.ll", with_options(None, {"server": nobody, "server_required": True}))
    assert said_of(nobody) in failure.value.what
    with pytest.raises(InputError, match="none is named"):
        compile_module(kernel, "k.ll", with_options(None, {"server_required": True}))


@pytest.mark.parametrize("required", [False, True])
def test_compile(nobody: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], required: bool) -> None:
    source, report = tmp_path / "k.ll", tmp_path / "k.json"
    source.write_text(KERNEL)
    argv = ["compile", str(source), "-mcpu=gfx942", f"--server={nobody}", f"--report={report}"]
    status = run([*argv, *(["--server-required"] if required else [])])
    shown = capsys.readouterr()
    assert status == (ExitCode.BAD_INPUT if required else ExitCode.PROVED)
    assert said_of(nobody) in " ".join((shown.err if required else shown.out).split())
    assert source.with_suffix(".hsaco").exists() is not required
    if not required:
        assert json.loads(report.read_text())["server"].startswith(said_of(nobody))


@pytest.mark.parametrize("command", few(("compile",), ("compile", "report", "compile-many")))
def test_without_a_table_it_is_said_as_well(
    command: str, nobody: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, out = tmp_path / "k.ll", tmp_path / "out"
    source.write_text(KERNEL)
    more = ["--no-cache"] if command == "compile-many" else []
    assert run([command, str(source), "-mcpu=gfx942", f"--server={nobody}", "-o", str(out), "-q", *more]) == 0
    said = capsys.readouterr().err
    assert said.count("verilocc: warning: the allocation server had not its part: ") == 1
    assert said_of(nobody) in said


@pytest.mark.parametrize("required", few((True,), (False, True)))
def test_iree(nobody: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], required: bool) -> None:
    pytest.importorskip("iree.compiler", reason="IREE is not installed")
    source, out = tmp_path / "m.mlir", tmp_path / "m.vmfb"
    source.write_text(ADD)
    argv = ["iree", str(source), "--iree-rocm-target=gfx942", "-o", str(out), f"--server={nobody}"]
    status = run([*argv, *(["--server-required"] if required else [])])
    shown = capsys.readouterr()
    assert status == (ExitCode.BAD_INPUT if required else ExitCode.PROVED)
    said = " ".join((shown.err if required else shown.out).split())
    assert (said_of(nobody) if required else f"server: in 1 of 1 kernels: {said_of(nobody)}") in said
    assert out.exists() is not required
    if required:
        check_one_error(shown.err)
    else:
        assert run([*argv, "-q"]) == ExitCode.PROVED
        assert f"had not its part: in 1 of 1 kernels: {said_of(nobody)}" in capsys.readouterr().err


def check_one_error(said: str) -> None:
    """Of the first kernel, which ends it: none is compiled again by another LLVM, and the advice stands once."""
    for words in ("verilocc: error: ", "UNAVAILABLE: failed to connect", "hint"):
        assert said.count(words) == 1, said
    assert "again by" not in said


@pytest.mark.long
def test_the_command_for_torch(nobody: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("torch", reason="torch is not installed")
    pytest.importorskip("iree.compiler", reason="IREE is not installed")
    (tmp_path / "program.py").write_text(PROGRAM)
    out = tmp_path / "m.vmfb"
    argv = ["torch", f"{tmp_path}/program.py:make", "--target=gfx942", "-o", str(out), f"--server={nobody}"]
    assert run([*argv, "--server-required"]) == ExitCode.BAD_INPUT
    said = capsys.readouterr().err
    assert said_of(nobody) in said
    check_one_error(said)
    assert not out.exists()


@pytest.mark.long
@pytest.mark.parametrize("required", [False, True])
def test_torch(nobody: str, caplog: pytest.LogCaptureFixture, required: bool) -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    pytest.importorskip("iree.compiler", reason="IREE is not installed")
    import verilocc_mlir

    def compiled() -> object:
        inputs = (torch.ones(4), torch.ones(4))
        options = {"server": nobody, "server_required": required}
        return verilocc_mlir.compile(lambda a, b: a + b, inputs, target="gfx942", **options)

    if required:
        with pytest.raises(ToolchainError, match="required to have"):
            compiled()
        return
    with caplog.at_level(logging.WARNING, "verilocc_mlir.hooks"):
        compiled()
    (line,) = [record.getMessage() for record in caplog.records]
    assert f"the allocation server had not its part in 1 of 1 kernels: {said_of(nobody)}" in line


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:TRITON_DEFAULT_FP_FUSION is unset")
@pytest.mark.parametrize("required", [False, True])
def test_triton(
    nobody: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, required: bool
) -> None:
    pytest.importorskip("triton", reason="Triton is not installed")
    from verilocc_mlir.hooks import triton as hook

    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "cache"))
    hook.clear_reports()
    hook.install("gfx942", replace="always", server=nobody, server_required=required)
    try:
        if required:
            with pytest.raises(ToolchainError, match="required to have"):
                triton_builders.build_sum("gfx942", 64)
            return
        with caplog.at_level(logging.WARNING, "verilocc_mlir.hooks.triton"):
            triton_builders.build_sum("gfx942", 64)
    finally:
        hook.uninstall()
    note = f"the allocation server had not its part: {said_of(nobody)}"
    assert any(note in kept for kept in hook.reports()[-1].notes)
    assert note in caplog.text


@pytest.mark.parametrize("required", [False, True])
def test_the_mlir_pass(nobody: str, required: bool) -> None:
    ir = pytest.importorskip("torch_mlir.ir", reason="torch-mlir is not installed")
    passmanager = pytest.importorskip("torch_mlir.passmanager", reason="torch-mlir is not installed")
    from verilocc_mlir.hooks.mlir_pipeline import AllocatePass, PassOptions

    said: list[str] = []
    settings = with_options(None, {"server": nobody, "server_required": required})
    with ir.Context() as context:
        context.attach_diagnostic_handler(lambda diagnostic: said.append(diagnostic.message) or True)
        module = ir.Module.parse(STORING_KERNEL)
        allocate = AllocatePass(PassOptions(settings))
        manager = passmanager.PassManager("builtin.module")
        allocate.add_to(manager)
        try:
            manager.run(module.operation)
        except ir.MLIRError:
            assert required
        (result,) = allocate.results
    assert result.verdict == ("failed" if required else "proved")
    assert any(said_of(nobody) in message for message in [*said, result.reason])
