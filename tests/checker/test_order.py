# ruff: noqa: E501 (a case in a line reads best)
"""Another order of instructions (docs/trust/spec.md, section 16): each rule is kept by a right order, and its violation
is refused by both checkers, each alone.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from checker_support import builds_the_second_checker

from smt_verifier.certificate.second import second_program
from smt_verifier.checker.order import check_order
from smt_verifier.checker.outcome import Refused

HEADER = """--- |
  define amdgpu_kernel void @k(ptr addrspace(1) %p, ptr addrspace(1) %q) {{ ret void }}
...
---
name:            k
tracksRegLiveness: true
registers:
{registers}
stack:
  - {{ id: 0, type: spill-slot, size: 16, alignment: 4 }}
  - {{ id: 1, type: spill-slot, size: 16, alignment: 4 }}
body:             |
  bb.0:
    liveins: $sgpr0_sgpr1, $vgpr0, $vgpr1, $vgpr2
{body}
  bb.1:
    S_ENDPGM 0
...
"""
VIRTUAL = "  - { id: 0, class: vgpr_32 }\n  - { id: 1, class: vreg_64 }\n  - { id: 2, class: vgpr_32 }"

ADD = "$vgpr{} = V_ADD_U32_e32 $vgpr{}, $vgpr{}, implicit $exec"
LOAD = "$vgpr{} = GLOBAL_LOAD_DWORD_SADDR $sgpr0_sgpr1, $vgpr0, {}, 0, implicit $exec :: ({})"
STORE = "GLOBAL_STORE_DWORD_SADDR $vgpr0, $vgpr{}, $sgpr0_sgpr1, {}, 0, implicit $exec :: ({})"
LDS_LOAD = "$vgpr{} = DS_READ_B32_gfx9 $vgpr0, {}, 0, implicit $exec :: ({})"
LDS_STORE = "DS_WRITE_B32_gfx9 $vgpr0, $vgpr{}, {}, 0, implicit $exec :: ({})"
PRIVATE_STORE = "SCRATCH_STORE_DWORD_SADDR $vgpr{}, $sgpr32, {}, 0, implicit $exec, implicit $flat_scr :: ({})"
PRIVATE_LOAD = "$vgpr{} = SCRATCH_LOAD_DWORD_SADDR $sgpr32, {}, 0, implicit $exec, implicit $flat_scr :: ({})"
SCALAR = "$sgpr{} = S_ADD_I32 $sgpr{}, {}, implicit-def dead $scc"
P, Q = "%ir.p", "%ir.q"
FROM = "load (s32) from {}, addrspace {}"
INTO = "store (s32) into {}, addrspace {}"


def add(to: int, a: int, b: int) -> str:
    return ADD.format(to, a, b)


def load(to: int, memory: str = FROM.format(P, 1), offset: int = 0) -> str:
    return LOAD.format(to, offset, memory)


def store(of: int, memory: str = INTO.format(Q, 1), offset: int = 0) -> str:
    return STORE.format(of, offset, memory)


MFMA = (
    "$vgpr{0}_vgpr{1}_vgpr{2}_vgpr{3} = V_MFMA_F32_16X16X16F16_vgprcd_e64 $vgpr20_vgpr21, $vgpr22_vgpr23, "
    "$vgpr{0}_vgpr{1}_vgpr{2}_vgpr{3}, 0, 0, 0, implicit $mode, implicit $exec"
)
PRODUCT = (
    "$vgpr{0}_vgpr{1}_vgpr{2}_vgpr{3} = V_WMMA_F16_16X16X32_F16_w32_twoaddr 8, $vgpr24_vgpr25_vgpr26_vgpr27_vgpr28_vgpr29_vgpr30_vgpr31, "
    "8, $vgpr32_vgpr33_vgpr34_vgpr35_vgpr36_vgpr37_vgpr38_vgpr39, 8, $vgpr{0}_vgpr{1}_vgpr{2}_vgpr{3}(tied-def 0), {4}, 0, 0, 0, implicit $exec"
)
ONTO_ZERO = (
    "$vgpr{0}_vgpr{1}_vgpr{2}_vgpr{3} = V_WMMA_F16_16X16X32_F16_w32_threeaddr 8, $vgpr24_vgpr25_vgpr26_vgpr27_vgpr28_vgpr29_vgpr30_vgpr31, "
    "8, $vgpr32_vgpr33_vgpr34_vgpr35_vgpr36_vgpr37_vgpr38_vgpr39, 8, 0, 0, 0, 0, 0, implicit $exec"
)
FIRST = MFMA.format(4, 5, 6, 7)
SECOND = MFMA.format(8, 9, 10, 11)
READLANE = "$sgpr{} = V_READFIRSTLANE_B32 $vgpr{}, implicit $exec"
SAVE_EXEC = "$sgpr4_sgpr5 = S_AND_SAVEEXEC_B64 $vcc, implicit-def $exec, implicit-def $scc, implicit $exec"
COMPARE = "V_CMP_EQ_U32_e32 $vgpr{}, $vgpr{}, implicit-def $vcc, implicit $exec"
SELECT = "$vgpr{} = V_CNDMASK_B32_e32 $vgpr{}, $vgpr{}, implicit $vcc, implicit $exec"
FENCE = "ATOMIC_FENCE 5, 3"
BARRIER = "S_BARRIER"
WAIT = "S_WAITCNT 0"
SETREG = "S_SETREG_IMM32_B32 0, 2177, implicit-def $mode, implicit $mode"
FLOAT = "$vgpr{} = nofpexcept V_ADD_F32_e32 $vgpr{}, $vgpr{}, implicit $mode, implicit $exec"
CLOCK = "$sgpr8_sgpr9 = S_MEMTIME"
HARDWARE = "$sgpr8 = S_GETREG_B32 1, implicit $mode"
PC = "$sgpr8_sgpr9 = S_GETPC_B64"
WIDER = "$exec = S_OR_B64 $exec, $sgpr8_sgpr9, implicit-def dead $scc"
TO_LDS = (
    "BUFFER_LOAD_DWORD_LDS_OFFEN $vgpr0, $sgpr8_sgpr9_sgpr10_sgpr11, 0, 0, 0, 0, implicit $exec, implicit $m0 "
    ":: (load (s32), addrspace 8), (store (s32), addrspace 3)"
)
COUNTED = "S_WAITCNT 3953"
SWAP = [1, 0]

WRONG: dict[str, tuple[list[str], list[int], str]] = {
    # Registers.
    "read_before_written": ([add(3, 1, 2), add(4, 3, 1)], SWAP, "order-registers"),
    "written_before_read": ([add(4, 3, 1), add(3, 1, 2)], SWAP, "order-registers"),
    "two_writes": ([add(3, 1, 2), add(3, 2, 2)], SWAP, "order-registers"),
    "part_of_a_tuple_read": ([FIRST, add(3, 6, 1)], SWAP, "order-registers"),
    "part_of_a_tuple_written": ([add(21, 1, 2), FIRST], SWAP, "order-registers"),
    "accumulated_twice": ([FIRST, FIRST.replace("$vgpr20_vgpr21", "$vgpr24_vgpr25")], SWAP, "order-registers"),
    "read_by_one_and_written_by_the_next": ([FIRST, add(22, 1, 2)], SWAP, "order-registers"),
    "matrix_of_the_product_before": (
        [PRODUCT.format(4, 5, 6, 7, 0), PRODUCT.format(8, 9, 10, 11, 1), add(3, 1, 2), add(12, 1, 2)], [0, 1, 3, 2], "order-stays",
    ),
    "half_written": (["$vgpr3_lo16 = V_MOV_B16_t16_e64 0, 1, 0, implicit $exec", add(4, 3, 1)], SWAP, "order-registers"),
    "other_half_of_the_same_register": (
        ["$vgpr3_lo16 = V_MOV_B16_t16_e64 0, 1, 0, implicit $exec", "$vgpr3_hi16 = V_MOV_B16_t16_e64 0, 1, 0, implicit $exec"],
        SWAP, "order-registers",
    ),
    "undefined_use": ([add(3, 1, 2), "$vgpr4 = V_ADD_U32_e32 undef $vgpr3, $vgpr1, implicit $exec"], SWAP, "order-registers"),
    "dead_definition_is_believed": (
        ["dead $vgpr3 = V_ADD_U32_e32 $vgpr1, $vgpr2, implicit $exec", add(3, 2, 2)], SWAP, "order-registers",
    ),
    "implicit_use_of_a_tuple": (
        [add(3, 1, 2), "$vgpr4 = V_MOV_B32_e32 $vgpr1, implicit $exec, implicit $vgpr3_vgpr4"], SWAP, "order-registers",
    ),
    "implicit_definition_of_a_tuple": (
        [add(5, 3, 2), "$vgpr4 = V_MOV_B32_e32 $vgpr1, implicit $exec, implicit-def $vgpr3_vgpr4"], SWAP, "order-registers",
    ),
    "copy_under_another_exec": (["$vgpr3 = COPY $vgpr1", WIDER], SWAP, "order-registers"),
    "copy_of_a_virtual_register_under_another_exec": (["%2:vgpr_32 = COPY %0", WIDER], SWAP, "order-registers"),
    "undefined_value_under_another_exec": ([WIDER, "%2:vgpr_32 = IMPLICIT_DEF"], SWAP, "order-registers"),
    "scalar": ([SCALAR.format(6, 7, 4), SCALAR.format(8, 6, 4)], SWAP, "order-registers"),
    "scc_read_before_written": (
        ["S_CMP_EQ_U32 $sgpr6, 0, implicit-def $scc", "$sgpr8 = S_CSELECT_B32 1, 0, implicit $scc"], SWAP, "order-registers",
    ),
    "scc_written_between": (
        [
            "S_CMP_EQ_U32 $sgpr6, 0, implicit-def $scc", "$sgpr8 = S_CSELECT_B32 1, 0, implicit $scc",
            SCALAR.format(9, 7, 4),
        ],
        [0, 2, 1], "order-registers",
    ),
    "scc_of_another_comparison": (
        [
            "S_CMP_EQ_U32 $sgpr6, 0, implicit-def $scc", "S_CMP_EQ_U32 $sgpr7, 0, implicit-def $scc",
            "$sgpr8 = S_CSELECT_B32 1, 0, implicit $scc",
        ],
        [1, 0, 2], "order-registers",
    ),
    "last_scc_of_the_block": (
        [SCALAR.format(6, 7, 4), "S_CMP_EQ_U32 $sgpr9, 0, implicit-def $scc"], SWAP, "order-registers",
    ),
    "scc_kept_by_an_addition_with_carry": (
        [
            "$sgpr6 = S_ADD_U32 $sgpr7, 1, implicit-def $scc",
            "$sgpr8 = S_ADDC_U32 $sgpr9, 0, implicit-def $scc, implicit $scc", SCALAR.format(10, 11, 4),
        ],
        [0, 2, 1], "order-registers",
    ),
    "vcc_read_before_written": ([COMPARE.format(1, 2), SELECT.format(3, 1, 2)], SWAP, "order-registers"),
    "vcc_of_another_comparison": (
        [COMPARE.format(1, 2), COMPARE.format(1, 1), SELECT.format(3, 1, 2)], [1, 0, 2], "order-registers",
    ),
    "half_of_vcc": ([COMPARE.format(1, 2), "$sgpr8 = S_MOV_B32 $vcc_lo"], SWAP, "order-registers"),
    "exec_narrowed_later": ([SAVE_EXEC, add(3, 1, 2)], SWAP, "order-stays"),
    "exec_narrowed_earlier": ([add(3, 1, 2), SAVE_EXEC], SWAP, "order-stays"),
    "exec_restored_later": (["$exec = S_OR_B64 $exec, $sgpr4_sgpr5, implicit-def $scc", add(3, 1, 2)], SWAP, "order-registers"),
    "half_of_exec": (["$exec_lo = S_MOV_B32 -1", add(3, 1, 2)], SWAP, "order-registers"),
    "exec_of_the_first_active_thread": (["$exec = S_MOV_B64 1", READLANE.format(8, 1)], SWAP, "order-registers"),
    "m0": (["$m0 = S_MOV_B32 7", "DS_WRITE_B32 $vgpr0, $vgpr1, 0, 0, implicit $m0, implicit $exec"], SWAP, "order-registers"),
    "implicit_exec_that_the_table_knows": (["$exec = S_MOV_B64 1", add(3, 1, 2).replace(", implicit $exec", "")], SWAP, "order-registers"),
    "killed_before_another_use": (
        [add(3, 1, 2), "$vgpr4 = V_ADD_U32_e32 killed $vgpr1, $vgpr2, implicit $exec"], SWAP, "order-registers",
    ),
    "lane_written": (["$vgpr3 = V_WRITELANE_B32 $sgpr8, 3, $vgpr3", add(4, 3, 1)], SWAP, "order-registers"),
    "two_lanes_written": (
        ["$vgpr3 = V_WRITELANE_B32 $sgpr8, 3, $vgpr3", "$vgpr3 = V_WRITELANE_B32 $sgpr9, 4, $vgpr3"], SWAP, "order-registers",
    ),
    "virtual_register": (
        ["%0:vgpr_32 = V_ADD_U32_e32 $vgpr1, $vgpr2, implicit $exec", "$vgpr4 = V_ADD_U32_e32 %0, $vgpr1, implicit $exec"],
        SWAP, "order-registers",
    ),
    "part_of_a_virtual_register": (
        [
            "undef %1.sub0:vreg_64 = V_ADD_U32_e32 $vgpr1, $vgpr2, implicit $exec",
            "%1.sub1:vreg_64 = V_ADD_U32_e32 $vgpr2, $vgpr2, implicit $exec",
        ],
        SWAP, "order-registers",
    ),
    "address_of_a_stack_object": (
        ["$sgpr32 = S_ADD_I32 $sgpr32, 1024, implicit-def dead $scc", "$vgpr3 = V_MOV_B32_e32 %stack.0, implicit $exec"],
        SWAP, "order-registers",
    ),
    "stack_pointer": (
        ["$sgpr32 = S_ADD_I32 $sgpr32, 1024, implicit-def dead $scc", PRIVATE_LOAD.format(3, 0, FROM.format("%stack.0", 5))],
        SWAP, "order-registers",
    ),
    # Memory.
    "load_of_what_is_stored": ([store(1, INTO.format(P, 1)), load(3)], SWAP, "order-memory"),
    "store_before_the_load": ([load(3), store(1, INTO.format(P, 1))], SWAP, "order-memory"),
    "two_stores": ([store(1), store(2)], SWAP, "order-memory"),
    "accesses_that_a_wait_counts": ([TO_LDS, load(3), COUNTED, BARRIER], [1, 0, 2, 3], "order-memory"),
    "accesses_that_assembly_counts": (
        [TO_LDS, load(3), 'INLINEASM &"s_waitcnt vmcnt(1)", 1 /* sideeffect attdialect */'], [1, 0, 2], "order-memory",
    ),
    "swizzle_that_a_wait_counts": (
        [LDS_STORE.format(1, 0, INTO.format(P, 3)), "$vgpr3 = DS_SWIZZLE_B32 $vgpr2, 0, 0, implicit $exec", COUNTED],
        [1, 0, 2], "order-memory",
    ),
    "other_names": ([store(1, INTO.format(P, 1)), load(3, FROM.format(Q, 1))], SWAP, "order-memory"),
    "overlapping_offsets": (
        [store(1, INTO.format(P, 1)), load(3, "load (s32) from %ir.p + 2, addrspace 1", 2)], SWAP, "order-memory",
    ),
    "wider_than_the_distance": (
        [
            "GLOBAL_STORE_DWORDX2_SADDR $vgpr0, $vgpr1_vgpr2, $sgpr0_sgpr1, 0, 0, implicit $exec :: (store (s64) into %ir.p, addrspace 1)",
            load(3, "load (s32) from %ir.p + 4, addrspace 1", 4),
        ],
        SWAP, "order-memory",
    ),
    "size_not_known": (
        [store(1, "store unknown-size into %ir.p, addrspace 1"), load(3, "load (s32) from %ir.p + 64, addrspace 1", 64)],
        SWAP, "order-memory",
    ),
    "pointers_size_not_said": (
        [store(1, "store (p0) into %ir.p, addrspace 1"), load(3, "load (s32) from %ir.p + 4, addrspace 1", 4)],
        SWAP, "order-memory",
    ),
    "copied_to_lds_for_each_thread": (
        [
            "GLOBAL_LOAD_LDS_DWORD $vgpr0_vgpr1, 0, 0, 0, implicit $m0, implicit $exec :: (load (s32) from %ir.p, addrspace 1), (store (s32) into %ir.q, addrspace 3)",
            LDS_LOAD.format(4, 4, "load (s32) from %ir.q + 4, addrspace 3"),
        ],
        SWAP, "order-memory",
    ),
    "no_pointer": ([store(1, "store (s32), addrspace 1"), load(3)], SWAP, "order-memory"),
    "no_memory_operand": ([store(1).partition(" ::")[0], load(3)], SWAP, "order-memory"),
    "no_memory_operand_of_a_load": ([load(3).partition(" ::")[0], load(4)], SWAP, "order-memory"),
    "memory_operand_that_does_not_store": ([store(1, FROM.format(P, 1)), load(3)], SWAP, "order-memory"),
    "flat_and_lds": (
        [
            "FLAT_STORE_DWORD $vgpr1_vgpr2, $vgpr0, 0, 0, implicit $exec, implicit $flat_scr :: (store (s32) into %ir.p)",
            LDS_LOAD.format(3, 0, FROM.format(Q, 3)),
        ],
        SWAP, "order-memory",
    ),
    "flat_and_private": (
        [
            "FLAT_STORE_DWORD $vgpr1_vgpr2, $vgpr0, 0, 0, implicit $exec, implicit $flat_scr :: (store (s32) into %ir.p)",
            PRIVATE_LOAD.format(3, 0, FROM.format("%stack.0", 5)),
        ],
        SWAP, "order-memory",
    ),
    "global_and_constant": ([store(1, INTO.format(P, 1)), load(3, FROM.format(Q, 4))], SWAP, "order-memory"),
    "global_and_buffer": ([store(1, INTO.format(P, 1)), load(3, FROM.format(Q, 8))], SWAP, "order-memory"),
    "unknown_address_space": ([store(1, INTO.format(P, 2)), LDS_LOAD.format(3, 0, FROM.format(Q, 3))], SWAP, "order-memory"),
    "lds": ([LDS_STORE.format(1, 0, INTO.format(P, 3)), LDS_LOAD.format(3, 0, FROM.format(Q, 3))], SWAP, "order-memory"),
    "same_slot": (
        [PRIVATE_STORE.format(1, 0, INTO.format("%stack.0", 5)), PRIVATE_LOAD.format(3, 0, FROM.format("%stack.0", 5))],
        SWAP, "order-memory",
    ),
    "slot_and_unknown_private_memory": (
        [PRIVATE_STORE.format(1, 0, INTO.format("%stack.0", 5)), PRIVATE_LOAD.format(3, 0, FROM.format(P, 5))],
        SWAP, "order-memory",
    ),
    "offset_below": (
        [store(1, "store (s64) into %ir.p - 4, addrspace 1"), load(3, FROM.format(P, 1))], SWAP, "order-memory",
    ),
    # What stays.
    "volatile": ([load(3, "volatile load (s32) from %ir.p, addrspace 1"), add(4, 1, 2)], SWAP, "order-stays"),
    "passes_a_volatile_store": (
        [add(4, 1, 2), store(1, "volatile store (s32) into %ir.p, addrspace 1")], SWAP, "order-stays",
    ),
    "atomic": (
        [load(3, 'load syncscope("agent") monotonic (s32) from %ir.p, addrspace 1'), load(4)], SWAP, "order-stays",
    ),
    "fence": ([FENCE, load(3)], SWAP, "order-stays"),
    "passes_a_fence": ([add(4, 1, 2), FENCE], SWAP, "order-stays"),
    "barrier": ([BARRIER, LDS_LOAD.format(3, 0, FROM.format(P, 3))], SWAP, "order-stays"),
    "wait": ([WAIT, add(3, 1, 2)], SWAP, "order-stays"),
    "rounding_mode": ([SETREG, FLOAT.format(3, 1, 2)], SWAP, "order-stays"),
    "rounding_mode_earlier": ([FLOAT.format(3, 1, 2), SETREG], SWAP, "order-stays"),
    "denormal_mode": (["S_DENORM_MODE 3, implicit-def $mode, implicit $mode", FLOAT.format(3, 1, 2)], SWAP, "order-stays"),
    "clock": ([CLOCK, add(3, 1, 2)], SWAP, "order-stays"),
    "passes_a_clock": ([add(3, 1, 2), CLOCK], SWAP, "order-stays"),
    "hardware_register": ([HARDWARE, add(3, 1, 2)], SWAP, "order-stays"),
    "program_counter": ([PC, "$sgpr6 = S_MOV_B32 1"], SWAP, "order-stays"),
    "address_relative_to_itself": (
        ["$sgpr6_sgpr7 = S_MOV_B64_IMM_PSEUDO target-flags(amdgpu-rel64) &there", "$sgpr8 = S_MOV_B32 1"],
        SWAP, "order-stays",
    ),
    "offset_apart_from_the_program_counter": (
        ["$sgpr8 = S_MOV_B32 target-flags(amdgpu-rel32-lo) @k + 4", "$sgpr6 = S_MOV_B32 1"], SWAP, "order-stays",
    ),
    "register_chosen_by_m0": (
        ["$vgpr3 = V_MOVRELS_B32_e32 $vgpr1, implicit $m0, implicit $exec", add(2, 0, 0)], SWAP, "order-stays",
    ),
    "hazard": (["S_WAITCNT_DEPCTR 4095", add(3, 1, 2)], SWAP, "order-stays"),
    "exceptions_cleared": ([FLOAT.format(3, 1, 2), "V_CLREXCP_e32 implicit $exec"], SWAP, "order-stays"),
    "scheduling_barrier": (["SCHED_BARRIER 0", add(3, 1, 2)], SWAP, "order-stays"),
    "priority": (["S_SETPRIO 1", add(3, 1, 2)], SWAP, "order-stays"),
    "message": (["S_SENDMSG 1, implicit $exec, implicit $m0", store(1)], SWAP, "order-stays"),
    "sleep": (["S_SLEEP 1", add(3, 1, 2)], SWAP, "order-stays"),
    "assembly": (['INLINEASM &"s_nop 0", 1 /* sideeffect attdialect */', add(3, 1, 2)], SWAP, "order-stays"),
    "prologue": (["$sgpr8 = frame-setup S_MOV_B32 $sgpr33", "$sgpr9 = S_MOV_B32 1"], SWAP, "order-stays"),
    "label": (["$vgpr3 = V_MOV_B32_e32 1, implicit $exec, pre-instr-symbol <mcsymbol a>", add(4, 1, 2)], SWAP, "order-stays"),
    "register_indexing": (["S_SET_GPR_IDX_OFF implicit-def $mode, implicit $mode", add(3, 1, 2)], SWAP, "order-stays"),
    "alias_of_scc": (["$sgpr8 = S_MOV_B32 $src_scc", SCALAR.format(6, 7, 4)], SWAP, "order-stays"),
    "passes_a_branch": ([add(3, 1, 2), "S_BRANCH %bb.1"], SWAP, "order-stays"),
}  # fmt: skip
RIGHT: dict[str, tuple[list[str], list[int]]] = {
    "independent": ([add(3, 1, 2), add(4, 1, 2)], SWAP),
    "reads_of_one_register": ([add(3, 1, 1), add(4, 1, 1), add(5, 1, 1)], [2, 0, 1]),
    "two_accumulators": ([FIRST, SECOND], SWAP),
    "arithmetic_over_what_a_wait_counts": ([load(3), add(4, 1, 2), COUNTED], [1, 0, 2]),
    "two_loads": ([load(3), load(4, FROM.format(Q, 1))], SWAP),
    "offsets_that_do_not_overlap": (
        [store(1, INTO.format(P, 1)), load(3, "load (s32) from %ir.p + 4, addrspace 1", 4)],
        SWAP,
    ),
    "offset_below_that_does_not_overlap": (
        [store(1, "store (s32) into %ir.p - 4, addrspace 1"), load(3, FROM.format(P, 1))],
        SWAP,
    ),
    "lds_and_global": ([LDS_STORE.format(1, 0, INTO.format(P, 3)), load(3, FROM.format(Q, 1))], SWAP),
    "private_and_buffer": (
        [PRIVATE_STORE.format(1, 0, INTO.format("%stack.0", 5)), load(3, FROM.format(Q, 8))],
        SWAP,
    ),
    "two_slots": (
        [PRIVATE_STORE.format(1, 0, INTO.format("%stack.0", 5)), PRIVATE_LOAD.format(3, 0, FROM.format("%stack.1", 5))],
        SWAP,
    ),
    "invariant_load": ([store(1), load(3, "dereferenceable invariant load (s32) from %ir.p, addrspace 4")], SWAP),
    "constant_of_64_bits": (["$sgpr6_sgpr7 = S_MOV_B64_IMM_PSEUDO 12884901888", "$sgpr8 = S_MOV_B32 1"], SWAP),
    "scc_that_nobody_reads": (
        [SCALAR.format(6, 7, 4), SCALAR.format(8, 9, 4), "S_CMP_EQ_U32 $sgpr6, 0, implicit-def $scc"],
        [1, 0, 2],
    ),
    "arithmetic_over_memory": ([load(3), add(4, 1, 2), store(5), add(6, 1, 2)], [1, 3, 0, 2]),
    "between_what_stays": ([add(3, 1, 2), add(4, 1, 2), BARRIER, add(5, 1, 2), add(6, 1, 2)], [1, 0, 2, 4, 3]),
    "products_of_their_own": ([PRODUCT.format(4, 5, 6, 7, 0), PRODUCT.format(8, 9, 10, 11, 0)], SWAP),
    "products_onto_a_constant": ([ONTO_ZERO.format(4, 5, 6, 7), ONTO_ZERO.format(8, 9, 10, 11)], SWAP),
    "lds_load_over_a_matrix_operation": ([FIRST, LDS_LOAD.format(3, 0, FROM.format(P, 3))], SWAP),
}


def texts(lines: list[str], order: list[int]) -> tuple[str, str, str]:
    """P, Q and the certificate."""
    after = [lines[of] for of in order]
    registers = VIRTUAL
    before, changed = (
        HEADER.format(registers=registers, body="".join(f"    {line}\n" for line in rows)) for rows in (lines, after)
    )
    return before, changed, f"verilocc-order 1\nfunction k\nblock 0 {' '.join(map(str, order))}\nend\n"


def first(before: str, after: str, certificate: str) -> str:
    try:
        check_order(before, after, certificate, "gfx942")
    except Refused as refused:
        return refused.rule
    return ""


def second(before: str, after: str, certificate: str, directory: Path) -> str:
    names = [directory / name for name in ("before.mir", "after.mir", "certificate")]
    for path, text in zip(names, (before, after, certificate), strict=True):
        path.write_text(text)
    done = subprocess.run(
        [str(second_program()), *map(str, names), "--mcpu=gfx942", "--order"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode in (0, 1), done.stderr
    return "" if done.returncode == 0 else done.stdout.split(": ")[1]


def both(before: str, after: str, certificate: str, directory: Path) -> set[str]:
    answers = {first(before, after, certificate)}
    return answers | {second(before, after, certificate, directory)} if builds_the_second_checker() else answers


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_order_is_refused(name: str, tmp_path: Path) -> None:
    lines, order, rule = WRONG[name]
    given = texts(lines, list(range(len(lines))))
    assert both(given[0], given[0], "verilocc-order 1\nfunction k\nend\n", tmp_path) == {""}
    assert both(*texts(lines, order), tmp_path) == {rule}


@pytest.mark.parametrize("name", RIGHT)
def test_a_right_order_is_accepted(name: str, tmp_path: Path) -> None:
    assert both(*texts(*RIGHT[name]), tmp_path) == {""}


LINES = [add(3, 1, 2), add(4, 1, 2), add(5, 1, 2)]


@pytest.mark.parametrize(
    ("of", "to"),
    [
        ("block 0 1 0 2", "block 0 1 0"), ("block 0 1 0 2", "block 0 1 0 2 2"), ("block 0 1 0 2", "block 0 1 0 0"),
        ("block 0 1 0 2", "block 0 1 0 3"), ("block 0 1 0 2", "block 0 0 1 2"), ("block 0 1 0 2", "block 1 1 0 2"),
        ("block 0 1 0 2", "block 7 1 0 2"), ("block 0 1 0 2\n", ""), ("block 0 1 0 2", "block 0"),
        ("block 0 1 0 2", "block 0 1 0 2\nblock 0 1 0 2"), ("block 0 1 0 2", "block 0 1 0 02"),
        ("block 0 1 0 2", "block 0 1 0-0 2"), ("block 0 1 0 2", "block 0 1 0 2-999999999"), ("order 1", "order 2"),
        ("function k", "function j"), ("end\n", ""), ("end\n", "end"), ("end\n", "end\nend\n"),
        ("block 0 1 0 2", "block 0 1 0 -2"), ("block 0 1 0 2", "block  0 1 0 2"), ("block 0 1 0 2", "steps 3="),
    ],
)  # fmt: skip
def test_another_certificate_is_refused(of: str, to: str, tmp_path: Path) -> None:
    before, after, certificate = texts(LINES, [1, 0, 2])
    assert both(before, after, certificate, tmp_path) == {""}
    assert of in certificate
    assert both(before, after, certificate.replace(of, to), tmp_path) == {"order"}


@pytest.mark.parametrize(
    ("of", "to"),
    [
        ("$vgpr1, $vgpr2, implicit", "$vgpr2, $vgpr1, implicit"), ("$vgpr4 = ", "$vgpr7 = "),
        ("V_ADD_U32_e32", "V_SUB_U32_e32"), ("$vgpr3 = V", "dead $vgpr3 = V"), ("$vgpr3 = V", "renamable $vgpr3 = V"),
        ("$vgpr1, $vgpr2, implicit", "undef $vgpr1, $vgpr2, implicit"),
        ("$vgpr1, $vgpr2, implicit", "killed $vgpr1, $vgpr2, implicit"),
        ("    $vgpr3 = ", "    nofpexcept $vgpr3 = "), ("liveins: $sgpr0_sgpr1, ", "liveins: "),
        ("size: 16", "size: 32"), ("tracksRegLiveness: true", "tracksRegLiveness: false"),
        ("ret void", "unreachable"), ("class: vreg_64", "class: vreg_64_align2"), ("bb.1:", "bb.2:"),
        ("    S_ENDPGM 0", "    S_ENDPGM 1"), ("implicit $exec\n", "implicit $exec, mmra !0\n"),
    ],
)  # fmt: skip
def test_another_text_is_refused(of: str, to: str, tmp_path: Path) -> None:
    before, after, certificate = texts(LINES, [1, 0, 2])
    assert of in after
    if "nofpexcept" in to:
        of, to = "$vgpr3 = V", "$vgpr3 = nofpexcept V"
    answers = both(before, after.replace(of, to, 1), certificate, tmp_path)
    assert "" not in answers, answers


def test_a_death_that_is_not_said_any_more_is_right(tmp_path: Path) -> None:
    lines = [add(3, 1, 2), "$vgpr4 = V_ADD_U32_e32 killed $vgpr1, $vgpr2, implicit $exec"]
    before, after, certificate = texts(lines, SWAP)
    assert both(before, after, certificate, tmp_path) == {"order-registers"}
    assert both(before, after.replace("killed ", ""), certificate, tmp_path) == {""}


def test_a_death_that_only_the_second_text_says_is_wrong(tmp_path: Path) -> None:
    """The order is the same, and the register is read again behind its death."""
    before, _, _ = texts([add(3, 1, 2), add(4, 1, 3)], [0, 1])
    certificate = "verilocc-order 1\nfunction k\nend\n"
    assert both(before, before, certificate, tmp_path) == {""}
    assert both(
        before, before.replace("$vgpr3 = V_ADD_U32_e32 $", "$vgpr3 = V_ADD_U32_e32 killed $"), certificate, tmp_path
    ) == {"order"}


def test_bundles_move_as_one(tmp_path: Path) -> None:
    lines = [
        add(3, 1, 2),
        "BUNDLE implicit-def $vgpr5, implicit-def $vgpr6, implicit $vgpr1, implicit $exec {\n"
        f"      {add(5, 1, 1)}\n      {add(6, 5, 1)}\n    }}",
    ]
    before, after, certificate = texts(lines, SWAP)
    assert both(before, after, certificate, tmp_path) == {""}
    torn = after.replace(
        f"      {add(5, 1, 1)}\n      {add(6, 5, 1)}\n", f"      {add(6, 5, 1)}\n      {add(5, 1, 1)}\n"
    )
    assert torn != after
    assert both(before, torn, certificate, tmp_path) == {"order"}
    assert both(*texts([add(7, 6, 6), lines[1]], SWAP), tmp_path) == {"order-registers"}


def test_there_are_enough_attacks() -> None:
    assert len(WRONG) >= 60
