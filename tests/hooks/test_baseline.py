"""Ours beside the front end's own object: what is compared, and what of it decides."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from verilocc_mlir.allocators.registry import LLVM_ALLOCATOR
from verilocc_mlir.cost.compare import Ground
from verilocc_mlir.cost.model import Count, KernelCost, cost_of_assembly
from verilocc_mlir.cost.together import Pair
from verilocc_mlir.errors import InputError
from verilocc_mlir.hooks.baseline import Code, Comparison, Replace, compare_code, decide
from verilocc_mlir.hooks.iree import _declined
from verilocc_mlir.pipeline.compile import compile_module
from verilocc_mlir.pipeline.options import member
from verilocc_mlir.pipeline.settings import Emit, Settings
from verilocc_mlir.target.targets import target
from verilocc_mlir.toolchain import ToolchainChoice
from verilocc_mlir.toolchain.descriptor import read_code_object

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


def costed(body: str) -> KernelCost:
    """Of a small function."""
    text = f'\t.amdgcn_target "amdgcn-amd-amdhsa--gfx942"\n\t.type\tk,@function\nk:\n{body}\ts_endpgm\n'
    return cost_of_assembly(f"{text}.Lfunc_end0:\n\t.size\tk, .Lfunc_end0-k\n", target("gfx942"))["k"]


THEIRS = replace(costed(100 * "\tv_add_f32_e32 v3, v1, v2\n"), cycles=400.0)
MORE = Count(2, 2.0)


def beside(ours: KernelCost, problem: str = "") -> Comparison:
    made = decide(Pair(THEIRS, ours, problem))
    assert made is not None
    return Comparison({}, {}, decisions={"k": made})


@pytest.mark.parametrize(
    ("change", "by", "why"),
    [
        ({"occupancy": 7}, Ground.WAVES, "k has 7 waves for 8; modelled cycles do not decide (1.0000 of its modelled"),
        ({"spill_stores": MORE}, Ground.SPILLS, "k stores and reloads 2 registers for 0"),
        ({"cycles": 500.0}, Ground.CYCLES, "k takes 1.2500 of its modelled cycles, more than the error bar of 10%"),
        (
            {"cycles": 420.0, "issued": 150.0},
            Ground.INSTRUCTIONS,
            "k executes 150 instructions for 101",
        ),
        ({"cycles": 440.0}, Ground.NOTHING, "k takes 1.1000 of its modelled cycles, and nothing else tells them apart"),
    ],
)
def test_fewer_waves_more_spills_and_more_cycles_are_worse(change: dict[str, Any], by: Ground, why: str) -> None:
    comparison = beside(replace(THEIRS, **change))
    assert comparison.worse.startswith(why)
    assert comparison.decisions["k"].by == by.value
    assert comparison.tied is (by is Ground.NOTHING)
    assert comparison.worse in _declined(comparison, Replace.BETTER)
    assert _declined(comparison, Replace.ALWAYS) == ""


def test_the_same_or_better_is_not_worse() -> None:
    better = (
        {},
        {"vectors": 30},
        {"cycles": 90.0},
        {"occupancy": 9},
        {"occupancy": 7, "cycles": 300.0},
    )
    for change in better:
        comparison = beside(replace(THEIRS, **change))
        assert (comparison.worse, comparison.tied) == ("", True)
        assert _declined(comparison, Replace.BETTER) == ""
        assert "replace=never" in _declined(comparison, Replace.NEVER)


def test_where_cycles_do_not_compare_they_do_not_decide() -> None:
    dear = replace(THEIRS, cycles=9000.0)
    comparison = beside(dear, "their loops cannot be matched")
    assert comparison.worse == ""
    assert comparison.decisions["k"].problem == "their loops cannot be matched"
    assert "cycles" not in comparison.decisions["k"].by
    for change, why in (
        ({"occupancy": 7}, "has 7 waves for 8"),
        ({"scratch_bytes": 8}, "takes 8 bytes of private memory for 0"),
        ({"spill_reloads": MORE}, "spills more: 2 stores and reloads in the code for 0"),
    ):
        assert beside(replace(dear, **change), "their loops differ").worse == f"k {why}"


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
    from_code = compare_code(code, code, "gfx942", with_objdump)
    assert from_text.ours == from_code.ours
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
