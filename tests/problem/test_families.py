"""Opcode families."""

from __future__ import annotations

from collections import Counter

import pytest
from support import kernel_paths, pre_ra

from verilocc_mlir.mir.parser import parse_mir
from verilocc_mlir.problem.preferences import FAMILIES, opcode_family


@pytest.mark.parametrize(
    ("opcode", "family"),
    [
        ("V_MFMA_F32_16X16X16F16_vgprcd_e64", "mfma"),
        ("V_SMFMAC_F32_16X16X32_F16_e64", "mfma"),
        ("V_WMMA_F32_16X16X16_F16_twoaddr_w32", "wmma"),
        ("V_SWMMAC_F32_16X16X32_F16_w32_twoaddr", "wmma"),
        ("V_FMA_F32_e64", "valu"),
        ("V_READFIRSTLANE_B32", "valu"),
        ("AV_MOV_B32_IMM_PSEUDO", "valu"),
        ("V_EXP_F32_e32", "trans"),
        ("V_S_RCP_F32_e64", "trans"),
        ("V_EXP_LEGACY", "trans"),
        ("V_LOG_F16_e64", "trans"),
        ("GLOBAL_LOAD_DWORDX4", "load"),
        ("GLOBAL_ATOMIC_ADD_RTN", "load"),
        ("GLOBAL_ATOMIC_ADD", "store"),
        ("BUFFER_STORE_DWORD_OFFEN", "store"),
        ("SCRATCH_STORE_DWORD_SVS", "store"),
        ("BUFFER_WBL2", "store"),
        ("DS_WRITE_B128_gfx9", "lds"),
        ("DS_BPERMUTE_B32", "lds"),
        ("S_ADD_U32", "salu"),
        ("S_CMP_LT_U32", "salu"),
        ("S_CSELECT_B32", "salu"),
        ("S_LOAD_DWORDX8_IMM_ec", "smem"),
        ("S_BUFFER_LOAD_DWORD_IMM", "smem"),
        ("COPY", "copy"),
        ("S_CBRANCH_VCCNZ", "branch"),
        ("S_ENDPGM", "branch"),
        ("SI_RETURN", "branch"),
        ("SI_CALL", "call"),
        ("S_BARRIER_WAIT", "other"),
        ("S_WAITCNT", "other"),
        ("ATOMIC_FENCE", "other"),
        ("IMPLICIT_DEF", "other"),
        ("KILL", "other"),
        ("INLINEASM", "other"),
    ],
)
def test_family(opcode: str, family: str) -> None:
    assert opcode_family(opcode) == family


@pytest.mark.long
def test_hardly_anything_in_real_kernels_is_other() -> None:
    found: Counter[str] = Counter()
    for path in kernel_paths()[:12]:
        for function in parse_mir(pre_ra(path)).functions:
            for block in function.blocks:
                found.update(i.opcode for i in block.instructions if opcode_family(i.opcode) == "other")
    assert set(found) <= {
        "IMPLICIT_DEF", "KILL", "ATOMIC_FENCE", "S_BARRIER", "S_BARRIER_WAIT", "S_BARRIER_SIGNAL_IMM",
    }  # fmt: skip


def test_families_are_listed() -> None:
    assert {opcode_family(o) for o in ("COPY", "V_RCP_F32_e32", "S_NOP", "X")} <= set(FAMILIES)
