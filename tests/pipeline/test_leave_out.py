"""A function that nobody proves is left out of the result, with those that need it; the rest is compiled and proved."""

from __future__ import annotations

from pathlib import Path

import pytest
from support import TEST_DATA, long
from toolchain_support import compiler

from smt_verifier.outcome import Outcome
from verilocc_mlir.cli.main import run
from verilocc_mlir.errors import ExitCode
from verilocc_mlir.pipeline.compile import compile_module
from verilocc_mlir.pipeline.guard import anything_left, rest_without, with_callers
from verilocc_mlir.pipeline.settings import Emit, Settings
from verilocc_mlir.toolchain.descriptor import read_code_object
from verilocc_mlir.toolchain.elf import read_elf
from verilocc_mlir.toolchain.mir_repairs import trapped, traps_apart

TRAPS = TEST_DATA / "inputs" / "lds_address_in_function.ll"
UNPROVED = TEST_DATA / "inputs" / "writes_exec.ll"
GPU = "gfx1100"
MODULE = """
define void @a() {
  ret void
}
define internal void @"b c"() {
  call void @a()
  ret void
}
define void @d() {
  call void @"b c"()
  ret void
}
define void @e() {
  ret void
}
"""


def test_what_needs_a_function_goes_with_it() -> None:
    assert with_callers(MODULE, ["a"]) == {"a", "b c", "d"}
    assert with_callers(MODULE, ["d"]) == {"d"}
    assert anything_left(MODULE, ["a", "b c", "d"])
    assert not anything_left(MODULE, ["a", "b c", "d", "e"])
    assert rest_without(MODULE, ["e"]).count("define available_externally void @e()") == 1


def test_a_function_that_nobody_proves_costs_itself(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "k.hsaco"
    assert run(["compile", str(UNPROVED), f"-mcpu={GPU}", "-o", str(output)]) == ExitCode.UNKNOWN
    assert list(read_code_object(output.read_bytes()).kernels) == ["k"]
    said = capsys.readouterr().out
    assert "sets EXEC in a way the audit does not follow" in " ".join(said.split())
    assert f"unknown; wrote {output} without f, which nobody proves" in " ".join(said.split())


def test_with_nothing_left_it_is_one_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, output = tmp_path / "f.ll", tmp_path / "f.hsaco"
    text = UNPROVED.read_text()
    source.write_text(text[: text.index("define amdgpu_kernel")] + text[text.index("declare") :])
    assert run(["compile", str(source), f"-mcpu={GPU}", "-o", str(output)]) == ExitCode.UNKNOWN
    assert "nothing was written" in capsys.readouterr().out
    assert not output.exists()


@pytest.mark.parametrize("cpu", ["gfx942", "gfx1100", "gfx1201"])
@pytest.mark.parametrize("effort", ["fast", *long("balanced")])
def test_a_trap_behind_a_return_gets_a_block_of_its_own(
    effort: str, cpu: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """LLVM's verifier refuses LLVM's own compile for it; for gfx11 the trap is a sequence. LLVM deletes that block."""
    output = tmp_path / "k.hsaco"
    assert run(["compile", str(TRAPS), f"-mcpu={cpu}", f"-O={effort}", "-o", str(output)]) == ExitCode.PROVED
    said = " ".join(capsys.readouterr().out.split())
    assert "note: LLVM puts a trap behind the return of f, which takes LDS and is no kernel" in said
    assert "left out" not in said
    assert read_elf(output.read_bytes()).symbols["f"].defined
    assert run(["audit", "--llvm", str(TRAPS), f"-mcpu={cpu}"]) == ExitCode.PROVED


def test_the_trap_of_a_branch_stays_where_it_is() -> None:
    text = TRAPS.read_text()
    trapping = """define void @t(i1 %c) {
  br i1 %c, label %a, label %b
a:
  call void @llvm.trap()
  unreachable
b:
  ret void
}
"""
    both = compiler("gfx942").to_pre_ra(text + trapping)
    assert trapped(both) == ("f",)
    assert traps_apart(both) == both
    assert trapped(compiler("gfx942").to_pre_ra(trapping)) == ()


def test_callers_of_what_is_left_out_are_left_out() -> None:
    text = UNPROVED.read_text() + "define void @g() {\n  call void @f()\n  ret void\n}\n"
    done = compile_module(text.encode(), "k.ll", Settings(GPU, emit=Emit.HSACO))
    assert done.report.left_out == ("f", "g")
    assert done.report.outcome is Outcome.UNKNOWN
    assert "g is left out: it needs f" in done.report.notes
    assert list(read_code_object(done.data or b"").kernels) == ["k"]
