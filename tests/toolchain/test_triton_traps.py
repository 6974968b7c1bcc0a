"""The traps of Triton's interface, each with what the driver does about it. Skipped where there is no Triton."""

from __future__ import annotations

import re

import pytest
from toolchain_support import by_triton, instructions, source, tritons

from verilocc_mlir.errors import ToolchainError, UnsupportedError
from verilocc_mlir.mir.parser import parse_mir
from verilocc_mlir.mir.printer import print_mir
from verilocc_mlir.pipeline.compile import compile_module
from verilocc_mlir.pipeline.settings import Settings
from verilocc_mlir.toolchain import ToolchainChoice
from verilocc_mlir.toolchain.drivers import triton
from verilocc_mlir.toolchain.drivers.job import LlvmJob, Point
from verilocc_mlir.toolchain.drivers.triton import (
    first_difference,
    refuse_called_functions,
    with_lowered_spills,
    with_spill_field,
)
from verilocc_mlir.toolchain.drivers.undefined import define_everywhere, is_about_undefined
from verilocc_mlir.toolchain.run import RunningTools, ToolFailure
from verilocc_mlir.toolchain.staged import LlvmPhase


def test_functions_that_are_called() -> None:
    driven = by_triton("gfx942", "k.ll")
    pre = driven.to_pre_ra(source("callee_saved.ll"))
    with pytest.raises(UnsupportedError, match=r"k\.ll: helper is called, not a kernel.*\n.*--toolchain=llc"):
        driven.llvm_allocate(pre, LlvmPhase.SGPR)
    refuse_called_functions(driven.to_pre_ra(source("mmra.ll")))
    # Said before a text is read that has LLVM 24's notes of the lanes that hold saved scalars.
    with pytest.raises(UnsupportedError, match=r"k\.ll: helper is called, not a kernel"):
        compile_module(
            source("saved_in_lanes.ll").encode(), "k.ll", Settings("gfx942", toolchain=ToolchainChoice.TRITON)
        )


def test_whole_wave_code_that_a_pass_would_change_again() -> None:
    driven = by_triton("gfx942", "wwm.ll")
    done = driven.direct_after(source("wwm.ll"), LlvmPhase.VGPR)
    with pytest.raises(UnsupportedError, match=r"changes the text before it goes on.*V_SET_INACTIVE_B32.*COPY"):
        driven.finish(done)
    with pytest.raises(UnsupportedError, match=r"changes the text before it goes on.*V_SET_INACTIVE_B32.*COPY"):
        driven.llvm_allocate(driven.to_pre_ra(source("wwm.ll")), LlvmPhase.SGPR)


def test_the_first_difference() -> None:
    text = (
        "--- |\n  x\n...\n---\nname: k\nbody:             |\n  bb.0:\n    successors: %bb.2\n    liveins: $vgpr0\n"
        "    renamable $vgpr1 = COPY killed %5\n\n  bb.2:\n    S_ENDPGM 0, implicit %5, implicit %7\n...\n"
    )
    again = text.replace("%5", "%0").replace("%7", "%3").replace("bb.2", "bb.1").replace("killed ", "")
    assert first_difference(text, again.replace("liveins: $vgpr0", "liveins: $vgpr0, $vgpr1")) is None
    assert first_difference(text, again.replace("$vgpr1 =", "$vgpr2 =")) == ("$vgpr1 = COPY %v0", "$vgpr2 = COPY %v0")
    assert first_difference(text, again.replace("implicit %3", "implicit %0")) is not None
    assert first_difference(text, again.replace("%3\n", "%3\n    S_NOP 0\n")) == ("", "S_NOP 0")


def test_a_function_that_is_left_out_is_not_printed_again_and_any_other_is() -> None:
    bodies = [f"---\nname: {name}\nbody:             |\n  bb.0:\n    S_ENDPGM 0\n...\n" for name in "kl"]
    module = "--- |\n  define {}amdgpu_kernel void @k() {{\n  define amdgpu_kernel void @l() {{\n...\n"
    text, left_out = (module.format(linkage) + "".join(bodies) for linkage in ("", "available_externally "))
    assert first_difference(text, text) is None
    assert first_difference(text, bodies[1]) == ("name: k", "name: l")
    assert first_difference(left_out, bodies[1]) is None
    assert first_difference(left_out, bodies[0]) == ("name: l", "")


# Registers that are undefined on some path.

_UNDEFINED = """--- |
  define amdgpu_kernel void @k() { ret void }
...
---
name:            k
tracksRegLiveness: true
machineFunctionInfo:
  isEntryFunction: true
body:             |
  bb.0:
    successors: %bb.1, %bb.2
    liveins: $sgpr4

    S_CMP_EQ_U32 killed renamable $sgpr4, 0, implicit-def $scc
    S_CBRANCH_SCC1 %bb.2, implicit killed $scc

  bb.1:
    successors: %bb.2

    $sgpr6_sgpr7 = S_MOV_B64 5

  bb.2:
    successors: %bb.3

    S_NOP 0

  bb.3:
    liveins: $sgpr6_sgpr7

    S_NOP 0, implicit $sgpr6_sgpr7, implicit undef $sgpr9, implicit $exec
    S_ENDPGM 0
...
"""


def test_what_is_undefined_on_a_path_is_defined_without_code() -> None:
    text = define_everywhere(_UNDEFINED, wave32=False)
    blocks = parse_mir(text).functions[0].blocks
    assert [str(i) for i in blocks[0].instructions[:2]] == ["$sgpr6 = IMPLICIT_DEF", "$sgpr7 = IMPLICIT_DEF"]
    assert [[live.reg for live in block.liveins] for block in blocks] == [
        ["sgpr4"], [], ["sgpr6", "sgpr7"], ["sgpr6_sgpr7"],
    ]  # fmt: skip
    assert define_everywhere(text, wave32=False) == text, "once is enough"
    assert text.count("S_NOP") == 2
    defined = _UNDEFINED.replace("$sgpr6_sgpr7 = S_MOV_B64 5", "S_NOP 0").replace(
        "implicit $sgpr6_sgpr7", "implicit $vcc"
    )
    firsts = [
        [str(i) for i in parse_mir(define_everywhere(defined, wave32=wave32)).functions[0].blocks[0].instructions]
        for wave32 in (True, False)
    ]
    assert [f[0] for f in firsts] == ["$vcc_lo = IMPLICIT_DEF", "$vcc_hi = IMPLICIT_DEF"]
    assert "IMPLICIT_DEF" not in firsts[0][1]


def test_registers_of_the_frame_are_not_defined() -> None:
    """LLVM reserves them and asks for no definition; one would seem to overwrite the stack pointer."""
    frame = "  stackPtrOffsetReg: '$sgpr6'\n  scratchRSrcReg: '$private_rsrc_reg'\n"
    text = define_everywhere(_UNDEFINED.replace("body: ", frame + "body: "), wave32=False)
    blocks = parse_mir(text).functions[0].blocks
    assert [str(i) for i in blocks[0].instructions[:2]] == ["$sgpr7 = IMPLICIT_DEF", str(blocks[0].instructions[1])]
    assert text.count("IMPLICIT_DEF") == 1


def test_llvm_wants_it_so_and_the_driver_gives_it() -> None:
    driven = by_triton("gfx942", "k.mir")
    text = _UNDEFINED.replace("liveins: $sgpr4\n", "liveins: $sgpr4, $sgpr6_sgpr7\n")
    job = LlvmJob("finish", text.encode(), True, driven.options, Point("after", "virtregrewriter,2"), kind="asm")
    with pytest.raises(ToolFailure) as caught:
        triton.TritonDriver(tritons())._compile(job, RunningTools())
    assert is_about_undefined(caught.value.stderr)
    assembly = driven.finish(text, "asm").decode()
    assert assembly.count("s_nop 0") == 2
    assert instructions(assembly.encode())[:2] == ["s_cmp_eq_u32 s4, 0", "s_cbranch_scc1 .LBB0_2"]
    assert print_mir(parse_mir(_UNDEFINED)) == _UNDEFINED


# Scalar spills that are lowered before.

_LANE_SPILLS = """--- |
  define amdgpu_kernel void @k() { ret void }
...
---
name:            k
tracksRegLiveness: true
noVRegs:         true
stack:
  - { id: 0, type: spill-slot, size: 4, alignment: 4 }
machineFunctionInfo:
  isEntryFunction: true
  hasSpilledSGPRs: true
  hasSpilledVGPRs: true
  scratchRSrcReg:  '$sgpr0_sgpr1_sgpr2_sgpr3'
  stackPtrOffsetReg: '$sgpr32'
  wwmReservedRegs:
    - '$vgpr63'
body:             |
  bb.0:
    liveins: $sgpr4, $vgpr0

    $vgpr63 = IMPLICIT_DEF
    $vgpr63 = SI_SPILL_S32_TO_VGPR killed $sgpr4, 0, killed $vgpr63
    SI_SPILL_V32_SAVE killed $vgpr0, %stack.0, $sgpr32, 0, implicit $exec :: (store (s32) into %stack.0, addrspace 5)
    $sgpr4 = SI_RESTORE_S32_FROM_VGPR killed $vgpr63, 0
    $vgpr0 = SI_SPILL_V32_RESTORE %stack.0, $sgpr32, 0, implicit $exec :: (load (s32) from %stack.0, addrspace 5)
    S_NOP 0, implicit killed $sgpr4, implicit killed $vgpr0
    S_ENDPGM 0
...
"""


def _finished_as_it_is(text: str) -> bytes:
    options = by_triton("gfx1100", "k.mir").options
    job = LlvmJob("finish", text.encode(), True, options, Point("after", "virtregrewriter,2"), kind="asm")
    return triton.TritonDriver(tritons())._compile(job, RunningTools()).stdout


def test_scalar_saves_in_lanes_beside_saves_on_the_stack_are_finished() -> None:
    with pytest.raises(ToolchainError, match="SIGSEGV"):
        _finished_as_it_is(_LANE_SPILLS)
    done = instructions(by_triton("gfx1100", "k.mir").finish(_LANE_SPILLS, "asm"))
    assert {"v_writelane_b32 v0, s4, 0", "v_readlane_b32 s4, v0, 0"} <= {re.sub(r"v\d+", "v0", i) for i in done}
    assert [word.split()[0] for word in done if "scratch" in word] == [
        "scratch_store_b32", "scratch_load_b32",
    ]  # fmt: skip


def test_nothing_else_asks_for_scalar_spills_then() -> None:
    """Without stack objects LLVM finishes the text with and without the field: the code is the same."""
    code = re.sub(r"(?m)^(?:stack:|  - \{ id: 0,.*|.*SI_SPILL_V32.*|  hasSpilledVGPRs:.*)\n", "", _LANE_SPILLS)
    assert code.count("SI_") == 2
    assert _finished_as_it_is(code) == _finished_as_it_is(with_spill_field(code, frozenset({"k"}), False))


def test_only_functions_whose_scalar_spills_are_all_lowered() -> None:
    assert with_lowered_spills(_LANE_SPILLS) == {"k"}
    open_spill = _LANE_SPILLS.replace("    S_NOP 0,", "    $sgpr5 = SI_SPILL_S32_RESTORE %stack.0\n    S_NOP 0,")
    assert with_lowered_spills(open_spill) == set()
    without = with_spill_field(_LANE_SPILLS, frozenset({"k"}), False)
    assert with_lowered_spills(without) == set()
    assert with_spill_field(without, frozenset({"k"}), True) == _LANE_SPILLS
    assert with_spill_field(_LANE_SPILLS, frozenset({"l"}), False) == _LANE_SPILLS
