"""Register masks that are written out: what LLVM makes of them, and the code behind its last pass."""

from __future__ import annotations

import re

import pytest
from support import TEST_DATA, few, long, run_llc
from toolchain_support import TARGETS, compiler

from verilocc_mlir.mir.parser import parse_mir
from verilocc_mlir.target.callingconv import regmask
from verilocc_mlir.toolchain.mir_repairs import close_masks, shorten_masks
from verilocc_mlir.toolchain.staged import LlvmPhase

ROWS = (TEST_DATA / "callees" / "two_levels.ll").read_text()
MASK = "CustomRegMask($agpr2,$agpr3,$sgpr3,$sgpr4,$sgpr5,$sgpr6,$sgpr7,$vgpr4,$vgpr5,$vgpr6,$vgpr255)"


def printed_masks(mask: str, cpu: str = "gfx942") -> set[str]:
    """What LLVM prints of a mask."""
    text = PAIR.replace("MASK", mask).replace("gfx942", cpu)
    return set(re.findall(r"CustomRegMask\([^)]*\)", run_llc(text, cpu, "-run-pass=none")))


@pytest.mark.parametrize("cpu", few(("gfx942", "gfx1100"), TARGETS))
def test_a_closed_mask_names_what_llvm_has_and_is_short_again(cpu: str) -> None:
    closed = close_masks(MASK)
    for name in ("$vgpr4_vgpr5_vgpr6", "$vgpr255_lo16", "$sgpr4_sgpr5_sgpr6_sgpr7", "$sgpr6_sgpr7", "$agpr2_hi16"):
        assert f",{name}" in closed
    for name in ("$sgpr5_sgpr6", "$sgpr3_sgpr4", "$vgpr6_vgpr7", "$vgpr3"):
        assert f"{name}," not in closed
    (printed,) = printed_masks(closed, cpu)
    assert set(printed[14:-1].split(",")) == set(closed[14:-1].split(","))
    assert shorten_masks(printed) == shorten_masks(closed) == MASK
    assert close_masks(closed) == closed
    assert regmask(closed) == regmask(MASK)


def test_every_tuple_that_llvm_knows_is_made() -> None:
    """LLVM refuses a name that it does not have."""
    every = ",".join(
        f"${bank}{n}" for bank, count in (("agpr", 256), ("sgpr", 106), ("vgpr", 256)) for n in range(count)
    )
    closed = close_masks(f"CustomRegMask({every})")
    (printed,) = printed_masks(closed)
    assert set(printed[14:-1].split(",")) == set(closed[14:-1].split(","))


def test_other_text_and_lone_halves_and_tuples_stay() -> None:
    text = "a CustomRegMask($vgpr1_lo16,$vgpr2_vgpr3,$vcc) csr_amdgpu CustomRegMask()"
    assert close_masks(text) == shorten_masks(text) == text


def test_llvm_takes_a_tuple_for_overwritten_whose_parts_alone_are_named() -> None:
    """The fault: LLVM has no register for a pair across the call, and spills it. Closed, it has."""
    kept = ",".join(f"$vgpr{n}" for n in range(2, 40))
    text = PAIR.replace("MASK", f"CustomRegMask({kept})")
    arguments = ("-start-before=greedy,2", "-stop-after=virtregrewriter,2")
    assert "type: spill-slot" in run_llc(text, "gfx942", *arguments)
    assert "type: spill-slot" not in run_llc(close_masks(text), "gfx942", *arguments)


PAIR = """--- |
  target triple = "amdgcn-amd-amdhsa"
  define internal void @g() #0 {
    ret void
  }
  define amdgpu_kernel void @f() #0 {
    ret void
  }
  attributes #0 = { "target-cpu"="gfx942" }
...
---
name:            f
tracksRegLiveness: true
registers:
  - { id: 0, class: vreg_64_align2 }
frameInfo:
  hasCalls:        true
machineFunctionInfo:
  isEntryFunction: true
  scratchRSrcReg:  '$sgpr96_sgpr97_sgpr98_sgpr99'
  stackPtrOffsetReg: '$sgpr32'
body:             |
  bb.0:
    liveins: $vgpr0_vgpr1, $sgpr40_sgpr41
    %0:vreg_64_align2 = COPY $vgpr0_vgpr1
    ADJCALLSTACKUP 0, 0, implicit-def dead $scc, implicit-def $sgpr32, implicit $sgpr32
    dead $sgpr30_sgpr31 = SI_CALL $sgpr40_sgpr41, @g, MASK
    ADJCALLSTACKDOWN 0, 0, implicit-def dead $scc, implicit-def $sgpr32, implicit $sgpr32
    GLOBAL_STORE_DWORDX2 %0, %0, 0, 0, implicit $exec :: (store (s64), addrspace 1)
    S_ENDPGM 0
...
---
name:            g
tracksRegLiveness: true
body:             |
  bb.0:
    liveins: $sgpr30_sgpr31
    S_SETPC_B64_return $sgpr30_sgpr31
...
"""


@pytest.mark.parametrize("cpu", ["gfx942", *long("gfx1100")])
@pytest.mark.parametrize("name", ["callees/two_levels.ll", "callees/by_convention.ll", "toolchain/callee_saved.ll"])
def test_the_object_of_the_code_behind_the_last_pass_is_the_one_that_is_finished(name: str, cpu: str) -> None:
    staged = compiler(cpu, name)
    text = staged.direct_after((TEST_DATA / name).read_text(), LlvmPhase.VGPR)
    late = staged.late(text)
    assert staged.emit(late) == staged.finish(text)
    assert {f.name for f in parse_mir(late).functions} == {f.name for f in parse_mir(text).functions}
    returns = ("S_SETPC_B64_return", "S_ENDPGM", "SI_TCRETURN")
    assert all(f.blocks[-1].instructions[-1].opcode.startswith(returns) for f in parse_mir(late).functions)


def test_other_code_is_another_object() -> None:
    staged = compiler("gfx942")
    text = staged.direct_after(ROWS, LlvmPhase.VGPR)
    late = staged.late(text)
    other = late.replace("S_WAITCNT 0", "S_WAITCNT 1", 1)
    assert other != late
    assert staged.emit(other) != staged.finish(text)
