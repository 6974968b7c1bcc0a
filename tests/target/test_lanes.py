"""Lane masks: ours, LLVM's, and how the two are numbered."""

from __future__ import annotations

import pytest
from support import run_llc

from verilocc_mlir.errors import UnsupportedError
from verilocc_mlir.mir.parser import parse_mir
from verilocc_mlir.target.registers import full_lanes, lane_list, llvm_lane_mask, subregister_lanes

PARTLY_LIVE = """--- |
  target triple = "amdgcn-amd-amdhsa"
  define amdgpu_kernel void @f() {{ ret void }}
...
---
name: f
tracksRegLiveness: true
machineFunctionInfo:
  isEntryFunction: true
  scratchRSrcReg: '$private_rsrc_reg'
  frameOffsetReg: '$fp_reg'
  stackPtrOffsetReg: '$sgpr32'
body: |
  bb.0:
    successors: %bb.1
    liveins: $vgpr0

    undef %0.{sub}:vreg_128 = COPY $vgpr0_lo16
    S_BRANCH %bb.1

  bb.1:
    S_NOP 0
    $vgpr5_lo16 = COPY %0.{sub}
    S_ENDPGM 0, implicit $vgpr5_lo16
...
"""


@pytest.mark.parametrize("sub", ["lo16", "hi16", "sub1_lo16", "sub1_hi16", "sub3_lo16", "sub3_hi16"])
def test_halves_are_numbered_as_llvm_prints_them(sub: str) -> None:
    stages = ("-start-before=greedy,0", "-stop-after=virtregrewriter,2")
    (function,) = parse_mir(run_llc(PARTLY_LIVE.format(sub=sub), "gfx1100", *stages)).functions
    (live,) = function.blocks[1].liveins
    assert llvm_lane_mask(live.mask) == subregister_lanes(sub)
    assert live.mask == llvm_lane_mask(subregister_lanes(sub))


def test_whole_registers_have_one_mask() -> None:
    for index in ("sub0", "sub1_sub2", "sub0_sub1_sub2_sub3"):
        assert llvm_lane_mask(subregister_lanes(index)) == subregister_lanes(index)
    assert lane_list(subregister_lanes("sub1_sub2")) == (2, 3, 4, 5)
    assert full_lanes(128) == 0xFF


@pytest.mark.parametrize("index", ["sub", "lo32", "sub0_lo", "low16"])
def test_what_is_no_index_is_refused(index: str) -> None:
    with pytest.raises(UnsupportedError, match="unknown subregister index"):
        subregister_lanes(index)
