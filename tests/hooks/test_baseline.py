"""Ours beside the front end's own object: what is compared, and what of it decides."""

from __future__ import annotations

from dataclasses import replace

import pytest

from verilocc_mlir.allocators.registry import LLVM_ALLOCATOR
from verilocc_mlir.errors import InputError
from verilocc_mlir.hooks.baseline import Code, Comparison, Replace, Standing, compare_code
from verilocc_mlir.hooks.iree import _declined
from verilocc_mlir.pipeline.compile import compile_module
from verilocc_mlir.pipeline.options import member
from verilocc_mlir.pipeline.settings import Emit, Settings
from verilocc_mlir.toolchain.choice import ToolchainChoice
from verilocc_mlir.toolchain.metadata import read_code_object

_ADD = b"""target triple = "amdgcn-amd-amdhsa"
define amdgpu_kernel void @add(ptr addrspace(1) %p, i32 %n) {
  %i = call i32 @llvm.amdgcn.workitem.id.x()
  %a = getelementptr i32, ptr addrspace(1) %p, i32 %i
  %x = load i32, ptr addrspace(1) %a
  %y = add i32 %x, %n
  store i32 %y, ptr addrspace(1) %a
  ret void
}
"""

THEIRS = Standing(vgprs=24, sgprs=16, scratch_bytes=0, waves=8, spills=0.0, cycles=100.0)


def beside(ours: Standing) -> Comparison:
    return Comparison({"k": ours}, {"k": THEIRS})


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"waves": 7}, "k has 7 waves for 8"),
        ({"spills": 2.0}, "k spills more: 2 registers stored and reloaded for 0"),
        ({"cycles": 100.5}, "k is modelled at 100 cycles for 100"),
    ],
)
def test_fewer_waves_more_spills_and_more_cycles_are_worse(change: dict[str, float], why: str) -> None:
    comparison = beside(replace(THEIRS, **change))
    assert comparison.worse == why
    assert _declined(comparison, Replace.BETTER).endswith(why)
    assert _declined(comparison, Replace.ALWAYS) == ""


def test_the_same_or_better_is_not_worse() -> None:
    for ours in (THEIRS, replace(THEIRS, vgprs=30), replace(THEIRS, cycles=90.0), replace(THEIRS, waves=9)):
        assert beside(ours).worse == ""
        assert _declined(beside(ours), Replace.BETTER) == ""
        assert "replace=never" in _declined(beside(ours), Replace.NEVER)


@pytest.mark.long
def test_real_code_objects_are_read_from_their_machine_code(kernels: object) -> None:
    from support import kernel_paths

    path = next(p for p in kernel_paths() if "gfx942" in p.name)
    settings = Settings(cpu="gfx942")
    ours = compile_module(path.read_bytes(), path.name, settings).data
    llvms = compile_module(path.read_bytes(), path.name, replace(settings, allocator=LLVM_ALLOCATOR)).data
    assert ours is not None
    assert llvms is not None
    comparison = compare_code(Code(ours), Code(llvms), "gfx942", settings)
    assert comparison.reason == ""
    metadata = read_code_object(ours).kernels
    assert comparison.ours.keys() == comparison.theirs.keys() == metadata.keys()
    for name, standing in comparison.ours.items():
        assert standing.scratch_bytes == metadata[name].private_segment_fixed_size
        assert standing.cycles > 0
    assert compare_code(Code(ours), Code(ours), "gfx942", settings).worse == ""


def test_without_objdump_assembly_is_read() -> None:
    pytest.importorskip("triton")
    with_objdump = Settings(cpu="gfx942", also=(Emit.ASM,))
    settings = replace(with_objdump, toolchain=ToolchainChoice.TRITON)
    compiled = compile_module(_ADD, "add", settings)
    assert compiled.data is not None
    code = Code(compiled.data, compiled.also[Emit.ASM].decode())
    from_text = compare_code(code, code, "gfx942", settings)
    assert from_text.reason == ""
    assert from_text.ours == compare_code(code, code, "gfx942", with_objdump).ours
    without_text = compare_code(Code(compiled.data), code, "gfx942", settings)
    assert "llvm-objdump was not found" in without_text.worse


def test_what_cannot_be_read_has_no_standing_and_says_why() -> None:
    comparison = compare_code(None, Code(b"no ELF file"), "gfx942", Settings())
    assert not comparison.theirs
    assert comparison.reason.startswith("not modelled: ")
    assert comparison.worse == comparison.reason
    assert _declined(comparison, Replace.BETTER).endswith(comparison.reason)
    assert _declined(comparison, Replace.ALWAYS) == ""


def test_policies_by_name() -> None:
    assert [member(Replace, word, "replace") for word in ("always", "better", "measured", "never")] == list(Replace)
    with pytest.raises(InputError, match="replace=often is not always, better, measured or never"):
        member(Replace, "often", "replace")
