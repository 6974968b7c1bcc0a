"""``verilocc audit`` on LLVM's own allocation, as it is and with one register changed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from support import allocated_by_llvm, readable, run_llc

from verilocc_mlir.cli.main import run

IR = """
declare i32 @llvm.amdgcn.workitem.id.x()
define amdgpu_kernel void @k(ptr addrspace(1) %p, i32 %n) {
  %id = call i32 @llvm.amdgcn.workitem.id.x()
  %q = getelementptr i32, ptr addrspace(1) %p, i32 %id
  %v = load i32, ptr addrspace(1) %q
  %w = mul i32 %v, %n
  %x = xor i32 %w, %v
  store i32 %x, ptr addrspace(1) %q
  ret void
}
"""


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path]:
    """The VGPR phase: text before and after."""
    pre = readable(run_llc(IR, "gfx942", "-stop-before=greedy,2", mir=False))
    before, after = tmp_path / "before.mir", tmp_path / "after.mir"
    before.write_text(pre)
    after.write_text(allocated_by_llvm(pre, "gfx942", 2, 2))
    return before, after


def test_llvms_allocation_is_proved(pair: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["audit", *map(str, pair), "-mcpu=gfx942"]) == 0
    assert re.match(r"k: proved, \d+ obligations\nproved\n", capsys.readouterr().out)


def test_one_changed_register_is_refuted(pair: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    text = pair[1].read_text()
    line = next(line for line in text.splitlines() if "V_XOR_B32" in line)
    operand = re.findall(r"\$vgpr\d+", line)[-1]
    pair[1].write_text(text.replace(line, line[::-1].replace(operand[::-1], "$vgpr9"[::-1], 1)[::-1]))
    assert run(["audit", *map(str, pair), "-mcpu=gfx942"]) == 1
    shown = capsys.readouterr().out
    assert "refuted: value: " in shown
    assert "V_XOR_B32" in shown


def test_ir_is_not_machine_ir(pair: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = tmp_path / "k.ll"
    source.write_text(IR)
    assert run(["audit", str(source), str(pair[1]), "-mcpu=gfx942"]) == 2
    assert "not machine IR" in capsys.readouterr().err
    assert run(["audit", str(tmp_path / "absent"), str(pair[1]), "-mcpu=gfx942"]) == 2
