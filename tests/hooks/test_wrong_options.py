"""Wrong options of ``verilocc iree`` and ``torch``, and of the calls behind them: one error, before any work."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from support import few

import verilocc_mlir
from verilocc_mlir.cli.main import run
from verilocc_mlir.errors import ExitCode, InputError, VeriloccError
from verilocc_mlir.hooks.iree import compile_mlir

pytest.importorskip("iree.compiler", reason="iree-base-compiler is not installed (Python 3.11 on Linux x86-64 has it)")

ADD = """
func.func @add(%a: tensor<64xf32>, %b: tensor<64xf32>) -> tensor<64xf32> {
  %c = arith.addf %a, %b : tensor<64xf32>
  return %c : tensor<64xf32>
}
"""
PROGRAM = """
from pathlib import Path
Path(__file__).with_suffix(".ran").touch()
def make():
    import torch
    return torch.nn.ReLU(), (torch.ones(4),)
"""
WRONG: dict[str, tuple[list[str], str]] = {
    "plan": (["--plan=garbage"], "there is no word 'garbage' of a plan"),
    "plan model": (["--plan-model={folder}"], "no model of plans is there"),
    "allocator": (["--allocator=nope"], "no allocator called 'nope'"),
    "model": (["--model={folder}"], "has no allocation model"),
    "llvm": (["--llvm={folder}"], "no suitable llc found"),
    "unknown flag of llc": (["--llc=-no-such-flag"], "does not take -no-such-flag"),
    "value of a flag of llc": (["--llc=-fp-contract=maybe"], "does not take -fp-contract=maybe"),
    "address": (["--server=nonsense"], "is not HOST:PORT"),
    "token": (["--server=127.0.0.1:1", "--server-token={folder}/none"], "the token cannot be read"),
    "certificates": (["--server=unix:x", "--server-ca={folder}/none"], "certificates are given"),
    "ca": (["--server=127.0.0.1:1", "--server-ca={folder}/none"], "cannot be read"),
    "server and llvm": (["--server=unix:x", "--allocator=llvm"], "LLVM's allocation is wanted"),
    "required": (["--server-required"], "needs --server"),
    "pages": (["--html={file}"], "is no directory"),
    "kept texts": (["--save-temps={file}/below"], "is no directory"),
    "cache": (["--cache={file}"], "is no directory"),
    "flag of iree-compile": (["--", "--iree-bogus"], "iree-compile does not know --iree-bogus"),
    "value of one": (["--", "--iree-opt-level=O9"], "'O9' value not a valid optimization level"),
    "two inputs": (["--", "more.mlir"], "Too many positional arguments"),
    "help of iree-compile": (["--", "--help"], "compiled nothing"),
    "no iree-compile": (["--iree={folder}/none"], "is no program that can be run"),
    "another program": (["--iree={true}"], "compiled nothing"),
}
GPUS = {
    "gfx9999": "IREE knows no GPU 'gfx9999'",
    "gfx906": "IREE knows no GPU 'gfx906'",
    "mi100": "no allocation for mi100 (gfx908) can be proved here",
}


@pytest.fixture
def said(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> Any:
    """What a command line says; it ends with 2, says one error, and leaves nothing behind."""
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    # Torch makes it where a test is the first to load it.
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path_factory.mktemp("torch")))
    (tmp_path / "file").touch()

    def says(argv: list[str]) -> str:
        places = {"folder": str(tmp_path / "tmp"), "file": str(tmp_path / "file"), "true": shutil.which("true")}
        before = sorted(tmp_path.rglob("*"))
        assert run([argument.format(**places) for argument in argv]) == ExitCode.BAD_INPUT
        shown = capsys.readouterr()
        assert shown.err.count("rror: ") == 1, shown.err
        assert "Traceback" not in shown.err
        assert "[1/1]" not in shown.err
        assert sorted(tmp_path.rglob("*")) == before
        return shown.err

    return says


@pytest.mark.parametrize("name", WRONG)
def test_iree(name: str, said: Any, tmp_path: Path) -> None:
    options, words = WRONG[name]
    source = tmp_path / "m.mlir"
    source.write_text(ADD)
    argv = ["iree", str(source), "--iree-rocm-target=gfx942", "-o", str(tmp_path / "m.vmfb"), *options]
    assert words in said(argv)


@pytest.mark.parametrize("name", few(("plan", "value of one", "address"), WRONG))
def test_torch_says_it_before_the_program_runs(name: str, said: Any, tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="torch is not installed")
    options, words = WRONG[name]
    (tmp_path / "program.py").write_text(PROGRAM)
    argv = ["torch", f"{tmp_path}/program.py:make", "--target=gfx942", "-o", str(tmp_path / "m.vmfb"), *options]
    assert words in said(argv)


def test_a_gpu_that_this_project_has_no_model_of_is_said(said: Any, tmp_path: Path) -> None:
    (tmp_path / "m.mlir").write_text(ADD)
    assert GPUS["mi100"] in said(["hunt", f"{tmp_path}/m.mlir", "-mcpu=mi100", f"--out={tmp_path}/hunt"])


@pytest.mark.long
@pytest.mark.parametrize("gpu", few(("gfx9999",), GPUS))
def test_a_gpu_that_is_not_known_is_said_with_those_that_are(gpu: str, said: Any, tmp_path: Path) -> None:
    (tmp_path / "m.mlir").write_text(ADD)
    (tmp_path / "program.py").write_text(PROGRAM)
    out = ["-o", str(tmp_path / "m.vmfb")]
    commands = [["iree", f"{tmp_path}/m.mlir", f"--iree-rocm-target={gpu}", *out]]
    commands += [["torch", f"{tmp_path}/program.py:make", f"--target={gpu}", *out]]
    commands += [["hunt", f"{tmp_path}/m.mlir", f"-mcpu={gpu}", f"--out={tmp_path}/hunt"]]
    commands += [["audit", "--native", f"{tmp_path}/m.mlir", f"-mcpu={gpu}"]]
    for argv in commands:
        shown = said(argv)
        assert GPUS[gpu] in shown
        # IREE 3.13 does not know gfx1102, which this project does.
        assert "gfx90a, gfx942, gfx950, gfx1100, gfx1101, gfx1103" in shown


def test_the_calls_say_it_too(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no word 'garbage'"):
        compile_mlir(ADD, target="gfx942", plan="garbage")
    with pytest.raises(InputError, match="is not HOST:PORT"):
        compile_mlir(ADD, target="gfx942", server="nonsense")
    with pytest.raises(InputError, match="no model of plans is there"):
        verilocc_mlir.compile(None, (), target="gfx942", plan_model=str(tmp_path))


@pytest.mark.parametrize("option", [{"plan": "garbage"}, {"server": "nonsense"}, {"llc": "-no-such-flag"}])
def test_triton_says_it_when_the_hook_is_installed(option: dict[str, Any]) -> None:
    pytest.importorskip("triton", reason="Triton is not installed")
    from verilocc_mlir.hooks import triton as hook

    with pytest.raises(VeriloccError, match=r"garbage|nonsense|no-such-flag"):
        hook.install("gfx942", **option)
    assert not hook.installed()


def test_a_pipeline_of_mlir_says_it() -> None:
    from verilocc_mlir.hooks.mlir_pipeline import parse_options

    with pytest.raises(InputError, match="verilocc-allocate: there is no word 'garbage'"):
        parse_options("plan=garbage")
