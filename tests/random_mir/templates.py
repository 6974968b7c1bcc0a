"""Instructions the generator writes, as llc prints them before register allocation.

In a template ``{d v2}`` defines a register of two lanes in the vector file, ``{e ...}`` does so early (early-clobber),
``{t ...}`` is a tied definition whose use is ``{=}``, ``{u ...}`` is a use; ``{i}`` is an inline constant, ``{k}`` a
literal, ``{o}`` an offset. Banks: ``s`` scalar, ``z`` scalar that cannot be M0, EXEC or null, ``m`` a mask of the wave,
``v`` vector, ``a`` accumulation, ``w`` vector or accumulation, ``x`` vector, scalar or constant, ``h`` 16-bit.
Each target's own names: ``MASK`` is B64 or B32, ``VCC``, ``EXEC``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

from random_mir.features import Features
from random_mir.machine import Machine


@dataclass(frozen=True)
class Template:
    """One instruction, or several in a row, the features it needs, and how often it is chosen."""

    text: str
    needs: tuple[str, ...] = ()
    weight: int = 4
    fits: Callable[[Machine], bool] = lambda machine: True
    reach: str = ""
    """What it does beyond the active threads: ``reads`` or ``writes`` registers of inactive ones."""


def _gfx9(machine: Machine) -> bool:
    return machine.wave64


def _gfx11(machine: Machine) -> bool:
    return machine.cpu == "gfx1100"


def _gfx12(machine: Machine) -> bool:
    return machine.cpu == "gfx1201"


def _gfx125(machine: Machine) -> bool:
    return machine.cpu == "gfx1250"


def _packed(machine: Machine) -> bool:
    return machine.aligned


def _halves(machine: Machine) -> bool:
    return machine.halves


def _d16_kept(machine: Machine) -> bool:
    return machine.cpu != "gfx1250"


def _vopd(machine: Machine) -> bool:
    return machine.cpu in ("gfx942", "gfx950", "gfx1250")


_VALU = ", implicit $exec"
_FLOAT = ", implicit $mode, implicit $exec"
_SCC = ", implicit-def dead $scc"

PLAIN = (
    Template("{d v1} = V_ADD_U32_e32 {u x1}, {u v1}" + _VALU, weight=8),
    Template("{d v1} = V_XOR_B32_e32 {u x1}, {u v1}" + _VALU, weight=8),
    Template("{d v1} = V_AND_B32_e64 {u x1}, {u v1}" + _VALU),
    Template("{d v1} = V_LSHLREV_B32_e32 {i}, {u v1}" + _VALU),
    Template("{d v1} = V_MUL_LO_U32_e64 {u v1}, {u x1}" + _VALU),
    Template("{d v1} = nofpexcept V_ADD_F32_e32 {u x1}, {u v1}" + _FLOAT),
    Template("{d v1} = nofpexcept V_FMA_F32_e64 0, {u v1}, 1, {u v1}, 0, {u x1}, 0, 0" + _FLOAT),
    Template("{d v1} = V_ADD3_U32_e64 {u v1}, {u x1}, {u v1}" + _VALU),
    Template("{d z1} = V_READFIRSTLANE_B32 {u v1}" + _VALU, weight=2),
    Template("{d z1} = V_READLANE_B32 {u v1}, {i}", weight=2, reach="reads"),
    Template("{d s1} = S_ADD_I32 {u s1}, {u s1}" + _SCC, weight=6),
    Template("{d s1} = S_MUL_I32 {u s1}, {u s1}"),
    Template("{d s1} = S_XOR_B32 {u s1}, {i}" + _SCC),
    Template("{d s1} = S_LSHL_B32 {u s1}, {i}" + _SCC),
    Template(
        "{d m} = V_CMP_GT_I32_e64 {u x1}, {u v1}"
        + _VALU
        + "\n{d v1} = V_CNDMASK_B32_e64 0, {u v1}, 0, {u v1}, {0}"
        + _VALU
    ),
)

CONSTANTS = (
    Template("{d v1} = V_MOV_B32_e32 {k}" + _VALU, ("constants",), 6),
    Template("{d s1} = S_MOV_B32 {k}", ("constants",), 6),
    Template("{d s2} = S_MOV_B64 {i}", ("constants", "tuples"), 2),
    Template("{d w1} = AV_MOV_B32_IMM_PSEUDO {i}" + _VALU, ("constants", "agprs"), 4, _gfx9),
    Template("{d v2} = V_MOV_B64_PSEUDO {k}" + _VALU, ("constants", "tuples"), 2),
)

TUPLES = (
    Template("{d s2} = S_LSHL_B64 {u s2}, {i}" + _SCC, ("tuples",)),
    Template("{d v2} = V_LSHLREV_B64_e64 {i}, {u v2}" + _VALU, ("tuples",), 4, _gfx9),
    Template("{d v2} = V_LSHLREV_B64_e64 {i}, {u v2}" + _VALU, ("tuples",), 4, _gfx11),
    Template("{d v2} = nofpexcept V_FMA_F64_e64 0, {u v2}, 1, {u v2}, 0, {u v2}, 0, 0" + _FLOAT, ("tuples",)),
    Template(
        "{d v2} = nofpexcept V_PK_FMA_F32 8, {u v2}, 8, {u v2}, 8, {u v2}, 0, 0, 0, 0, 0" + _FLOAT,
        ("tuples",),
        4,
        _packed,
    ),
    Template("{d v2} = V_LSHL_ADD_U64_e64 {u v2}, {i}, {u v2}" + _VALU, ("tuples",), 4, _vopd),
    Template(
        "{d v1}, {d m} = V_ADD_CO_U32_e64 {u v1}, {u v1}, 0"
        + _VALU
        + "\n{d v1}, dead {d m} = V_ADDC_U32_e64 {u v1}, {u v1}, {1}, 0"
        + _VALU,
        ("tuples",),
    ),
    Template(
        "{d s1} = S_ADD_U32 {u s1}, {u s1}, implicit-def $scc\n"
        "{d s1} = S_ADDC_U32 {u s1}, {u s1}, implicit-def dead $scc, implicit $scc",
        ("tuples", "fixed"),
    ),
    Template("{d v2}, dead {d m} = V_MAD_U64_U32_e64 {u v1}, {u v1}, {u v2}, 0" + _VALU, ("tuples",), 4, _gfx9),
)

EARLY = (
    Template(
        "{e v2}, dead {d m} = V_MAD_U64_U32_gfx11_e64 {u v1}, {u x1}, {u v2}, 0" + _VALU,
        ("tuples", "early_clobber"),
        8,
        _gfx11,
    ),
    Template(
        "{e s4} = S_LOAD_DWORDX4_IMM_ec {u z2}, {o}, 0 :: (load (s128), addrspace 4)",
        ("tuples", "early_clobber", "memory"),
        9,
    ),
    Template(
        "{e s8} = S_LOAD_DWORDX8_IMM_ec {u z2}, {o}, 0 :: (load (s256), addrspace 4)",
        ("tuples", "early_clobber", "memory"),
        6,
    ),
)

TIED = (
    Template("{t v1} = nofpexcept V_FMAC_F32_e32 {u x1}, {u v1}, {=}" + _FLOAT, ("tied",), 6),
    Template("{t v1} = nofpexcept V_FMAC_F32_e64 0, {u v1}, 1, {u v1}, 0, {=}, 0, 0" + _FLOAT, ("tied",), 4),
    Template("{t v2} = nofpexcept V_FMAC_F64_e32 {u v2}, {u v2}, {=}" + _FLOAT, ("tied", "tuples"), 4, _gfx9),
    Template("{t v1} = V_MOV_B32_dpp {=}, {u v1}, 273, 15, 15, 0" + _VALU, ("tied",), 3, reach="reads"),
    Template("{t v1} = V_WRITELANE_B32 {u z1}, {i}, {=}", ("tied",), 3, reach="writes"),
    Template(
        "{t v1} = GLOBAL_LOAD_SHORT_D16_HI_SADDR {u z2}, {u v1}, {o}, 0, {=}" + _VALU + " :: (load (s16), addrspace 1)",
        ("tied", "memory", "tuples"),
        4,
        _d16_kept,
    ),
    Template(
        "{t v1} = DS_READ_U16_D16 {u v1}, {o}, 0, {=}" + _VALU + " :: (load (s16), addrspace 3)",
        ("tied", "memory"),
        3,
        _gfx9,
    ),
)

MEMORY = (
    Template(
        "{d w1} = GLOBAL_LOAD_DWORD_SADDR {u z2}, {u v1}, {o}, 0" + _VALU + " :: (load (s32), addrspace 1)",
        ("memory", "tuples"),
        5,
    ),
    Template(
        "GLOBAL_STORE_DWORD_SADDR {u v1}, {u w1}, {u z2}, {o}, 0" + _VALU + " :: (store (s32), addrspace 1)",
        ("memory", "tuples"),
        5,
    ),
    Template(
        "{d w2} = GLOBAL_LOAD_DWORDX2 {u v2}, {o}, 0" + _VALU + " :: (load (s64), addrspace 1)", ("memory", "tuples"), 3
    ),
    Template(
        "{d w3} = GLOBAL_LOAD_DWORDX3 {u v2}, {o}, 0" + _VALU + " :: (load (s96), align 4, addrspace 1)",
        ("memory", "tuples"),
        2,
    ),
    Template(
        "{d w4} = GLOBAL_LOAD_DWORDX4 {u v2}, {o}, 0" + _VALU + " :: (load (s128), addrspace 1)",
        ("memory", "tuples"),
        3,
    ),
    Template(
        "GLOBAL_STORE_DWORDX2 {u v2}, {u w2}, {o}, 0" + _VALU + " :: (store (s64), addrspace 1)",
        ("memory", "tuples"),
        2,
    ),
    Template(
        "GLOBAL_STORE_DWORDX4 {u v2}, {u w4}, {o}, 0" + _VALU + " :: (store (s128), addrspace 1)",
        ("memory", "tuples"),
        2,
    ),
    Template("{d w1} = DS_READ_B32_gfx9 {u v1}, {o}, 0" + _VALU + " :: (load (s32), addrspace 3)", ("memory",), 4),
    Template("DS_WRITE_B32_gfx9 {u v1}, {u w1}, {o}, 0" + _VALU + " :: (store (s32), addrspace 3)", ("memory",), 4),
    Template(
        "{d w4} = DS_READ_B128_gfx9 {u v1}, {o}, 0" + _VALU + " :: (load (s128), addrspace 3)", ("memory", "tuples"), 2
    ),
    Template("{d v1} = DS_BPERMUTE_B32 {u v1}, {u v1}, 0" + _VALU, ("memory",), 2, reach="reads"),
    Template(
        "{d v1} = GLOBAL_ATOMIC_ADD_SADDR_RTN {u v1}, {u v1}, {u z2}, {o}, 1"
        + _VALU
        + " :: (load store monotonic (s32), addrspace 1)",
        ("memory", "tuples"),
        2,
    ),
    Template("{d z1} = S_LOAD_DWORD_IMM {u z2}, {o}, 0 :: (load (s32), addrspace 4)", ("memory", "tuples"), 4),
    Template("{d z2} = S_LOAD_DWORDX2_IMM {u z2}, {o}, 0 :: (load (s64), addrspace 4)", ("memory", "tuples"), 3),
    Template("{d z4} = S_LOAD_DWORDX4_IMM {u z2}, {o}, 0 :: (load (s128), addrspace 4)", ("memory", "tuples"), 2),
    Template("{d z8} = S_LOAD_DWORDX8_IMM {u z2}, {o}, 0 :: (load (s256), addrspace 4)", ("memory", "tuples"), 1),
    Template("{d z16} = S_LOAD_DWORDX16_IMM {u z2}, {o}, 0 :: (load (s512), addrspace 4)", ("memory", "tuples"), 1),
    Template("{d z1} = S_BUFFER_LOAD_DWORD_IMM {u z4}, {o}, 0 :: (load (s32), addrspace 4)", ("memory", "tuples"), 1),
    Template(
        "{d w4} = BUFFER_LOAD_DWORDX4_OFFEN {u v1}, {u z4}, {u s1}, {o}, 0, 0"
        + _VALU
        + " :: (load (s128), align 1, addrspace 8)",
        ("memory", "tuples"),
        1,
        lambda machine: machine.cpu not in ("gfx1201", "gfx1250"),
    ),
)

AGPRS = (
    Template("{d a1} = V_ACCVGPR_WRITE_B32_e64 {u v1}" + _VALU, ("agprs",), 4, _gfx9),
    Template("{d v1} = V_ACCVGPR_READ_B32_e64 {u a1}" + _VALU, ("agprs",), 4, _gfx9),
    Template("{d a1} = COPY {u v1}", ("agprs", "copies"), 3, _gfx9),
    Template("{d v1} = COPY {u a1}", ("agprs", "copies"), 3, _gfx9),
    Template("{d w1} = COPY {u w1}", ("agprs", "copies"), 3, _gfx9),
    Template("{d w2} = COPY {u w2}", ("agprs", "copies", "tuples"), 2, _gfx9),
)

COPIES = (
    Template("{d v1} = COPY {u v1}", ("copies",), 5),
    Template("{d v1} = COPY {u s1}", ("copies",), 4),
    Template("{d s1} = COPY {u s1}", ("copies",), 4),
    Template("{d v2} = COPY {u v2}", ("copies", "tuples"), 3),
    Template("{d v4} = COPY {u v4}", ("copies", "tuples"), 2),
    Template("{d v2} = COPY {u s2}", ("copies", "tuples"), 2),
    Template("{d s2} = COPY {u s2}", ("copies", "tuples"), 3),
    Template("{d s4} = COPY {u s4}", ("copies", "tuples"), 2),
)

HALVES = (
    Template("{d h} = COPY {u h}", ("halves", "copies"), 3, _halves),
    Template("{d h} = V_MOV_B16_t16_e64 0, {u h}, 0" + _VALU, ("halves",), 3, _halves),
    Template("{d h} = V_ADD_F16_t16_e64 0, {u h}, 0, {u h}, 0, 0, 0" + _FLOAT, ("halves",), 5, _halves),
    Template("{d h} = V_MUL_LO_U16_t16_e64 0, {u h}, 0, {u h}, 0" + _VALU, ("halves",), 4, _halves),
    Template("{d v1} = nofpexcept V_CVT_F32_F16_t16_e64 0, {u h}, 0, 0, 0" + _FLOAT, ("halves",), 3, _halves),
    Template("{d h} = nofpexcept V_CVT_F16_F32_t16_e64 0, {u v1}, 0, 0, 0" + _FLOAT, ("halves",), 3, _halves),
    Template(
        "{d h} = DS_READ_U16_t16 {u v1}, {o}, 0" + _VALU + " :: (load (s16), addrspace 3)",
        ("halves", "memory"),
        3,
        _halves,
    ),
    Template(
        "DS_WRITE_B16_t16 {u v1}, {u h}, {o}, 0" + _VALU + " :: (store (s16), addrspace 3)",
        ("halves", "memory"),
        3,
        _halves,
    ),
)

FIXED = (
    Template(
        "V_CMP_LT_U32_e32 {u x1}, {u v1}, implicit-def VCC, implicit $exec\n{*}\n"
        "{d v1} = V_CNDMASK_B32_e32 {u v1}, {u v1}, implicit VCC, implicit $exec",
        ("fixed",),
        4,
    ),
    Template(
        "S_CMP_LT_I32 {u s1}, {u s1}, implicit-def $scc\n{d s1} = S_CSELECT_B32 {u s1}, {i}, implicit $scc",
        ("fixed",),
        4,
    ),
    Template("$m0 = COPY {u s1}\n{*}\nS_SENDMSG 1, implicit $exec, implicit $m0", ("fixed",), 2),
    Template(
        "VCC = COPY {u m}\n{*}\n{*}\n{d v1} = V_CNDMASK_B32_e32 {u v1}, {u v1}, implicit VCC, implicit $exec",
        ("fixed",),
        3,
    ),
)

MATRIX = (
    Template(
        "{d a4} = V_MFMA_F32_16X16X16F16_e64 {u w2}, {u w2}, {u a4}, 0, 0, 0" + _FLOAT,
        ("matrix", "agprs", "tuples"),
        4,
        _gfx9,
        "writes",
    ),
    Template(
        "{d v4} = V_MFMA_F32_16X16X16F16_vgprcd_e64 {u w2}, {u w2}, {u v4}, 0, 0, 0" + _FLOAT,
        ("matrix", "tuples"),
        4,
        _gfx9,
        "writes",
    ),
    Template(
        "{d v4} = V_MFMA_F32_16X16X16F16_vgprcd_e64 {u w2}, {u w2}, 0, 0, 0, 0" + _FLOAT,
        ("matrix", "tuples"),
        3,
        _gfx9,
        "writes",
    ),
    Template(
        "{e a16} = V_MFMA_F32_32X32X8F16_e64 {u w2}, {u w2}, {u a16}, 0, 0, 0" + _FLOAT,
        ("matrix", "agprs", "early_clobber", "tuples"),
        3,
        _gfx9,
        "writes",
    ),
    Template(
        "{e v16} = V_MFMA_F32_32X32X8F16_vgprcd_e64 {u w2}, {u w2}, 0, 0, 0, 0" + _FLOAT,
        ("matrix", "early_clobber", "tuples"),
        3,
        _gfx9,
        "writes",
    ),
    Template(
        "{t a16} = V_MFMA_F32_32X32X8F16_mac_e64 {u w2}, {u w2}, {=}, 0, 0, 0" + _FLOAT,
        ("matrix", "agprs", "tied", "tuples"),
        3,
        _gfx9,
        "writes",
    ),
    Template(
        "{t v16} = V_MFMA_F32_32X32X8F16_mac_vgprcd_e64 {u w2}, {u w2}, {=}, 0, 0, 0" + _FLOAT,
        ("matrix", "tied", "tuples"),
        3,
        _gfx9,
        "writes",
    ),
    Template(
        "{t a32} = V_MFMA_F32_32X32X1F32_mac_e64 {u w1}, {u w1}, {=}, 0, 0, 0" + _FLOAT,
        ("matrix", "agprs", "tied", "tuples"),
        1,
        _gfx9,
        "writes",
    ),
    Template(
        "{t v32} = V_MFMA_F32_32X32X1F32_mac_vgprcd_e64 {u w1}, {u w1}, {=}, 0, 0, 0" + _FLOAT,
        ("matrix", "tied", "tuples"),
        1,
        _gfx9,
        "writes",
    ),
    Template(
        "{e v8} = V_WMMA_F32_16X16X16_F16_threeaddr_w32 8, {u v8}, 8, {u v8}, 8, {u v8}, 0, 0" + _VALU,
        ("matrix", "early_clobber", "tuples"),
        4,
        _gfx11,
        "writes",
    ),
    Template(
        "{et v8} = V_WMMA_F32_16X16X16_F16_twoaddr_w32 8, {u v8}, 8, {u v8}, 8, {=}, 0, 0" + _VALU,
        ("matrix", "early_clobber", "tied", "tuples"),
        4,
        _gfx11,
        "writes",
    ),
    Template(
        "{e v8} = V_WMMA_F32_16X16X16_F16_w32_threeaddr 8, {u v4}, 8, {u v4}, 8, {u v8}, 0, 0" + _VALU,
        ("matrix", "early_clobber", "tuples"),
        4,
        _gfx12,
        "writes",
    ),
    Template(
        "{et v8} = V_WMMA_F32_16X16X16_F16_w32_twoaddr 8, {u v4}, 8, {u v4}, 8, {=}, 0, 0" + _VALU,
        ("matrix", "early_clobber", "tied", "tuples"),
        4,
        _gfx12,
        "writes",
    ),
    Template(
        "{et v8} = V_SWMMAC_F32_16X16X32_F16_w32_twoaddr 8, {u v4}, 8, {u v8}, {=}, {u v1}, 0, 0, 0" + _VALU,
        ("matrix", "early_clobber", "tied", "tuples"),
        3,
        _gfx12,
        "writes",
    ),
    Template(
        "{et v8} = V_WMMA_F32_16X16X32_F16_w32_twoaddr 8, {u v8}, 8, {u v8}, 8, {=}, 0, 0, 0, 0" + _VALU,
        ("matrix", "early_clobber", "tied", "tuples"),
        4,
        _gfx125,
        "writes",
    ),
    Template(
        "{e v8} = V_WMMA_F32_16X16X32_F16_w32_threeaddr 8, {u v8}, 8, {u v8}, 8, {u v8}, 0, 0, 0, 0" + _VALU,
        ("matrix", "early_clobber", "tuples"),
        4,
        _gfx125,
        "writes",
    ),
    Template(
        "{et v8} = V_SWMMAC_F32_16X16X64_F16_w32_twoaddr 8, {u v8}, 8, {u v16}, {=}, {u v1}, 0, 0, 0, 0, 0" + _VALU,
        ("matrix", "early_clobber", "tied", "tuples"),
        3,
        _gfx125,
        "writes",
    ),
)

_ASM = 'INLINEASM &"; $0 $1 $2", 1 /* sideeffect attdialect */, '
ASSEMBLY = (
    Template(_ASM + "1245194 /* regdef:VGPR_32 */, def {d v1}, 1245193 /* reguse:VGPR_32 */, {u v1}", ("assembly",), 8),
    Template(
        _ASM + "1245195 /* regdef-ec:VGPR_32 */, def {e v1}, 1245193 /* reguse:VGPR_32 */, {u v1}, "
        "1245193 /* reguse:VGPR_32 */, {u v1}",
        ("assembly", "early_clobber"),
        3,
    ),
    Template(
        _ASM + "1245194 /* regdef:VGPR_32 */, def {t v1}, 1245193 /* reguse:VGPR_32 */, {u v1}, "
        "2147483657 /* reguse tiedto:$0 */, {=}(tied-def 3)",
        ("assembly", "tied"),
        3,
    ),
    Template(
        _ASM + "1245193 /* reguse:VGPR_32 */, {u v1}, 12 /* clobber */, implicit-def dead early-clobber $vgpr5, "
        "12 /* clobber */, implicit-def dead early-clobber $sgpr9",
        ("assembly", "early_clobber"),
        2,
    ),
)

MIXED = tuple(
    Template(
        f"{{t v1}} = nofpexcept V_FMA_MIX{half}_F16 8, {{u v1}}, 0, {{u v1}}, 8, {{u v1}}, 0, {{=}}, 0, 0" + _FLOAT,
        ("mixed", "tied"),
        4,
    )
    for half in ("LO", "HI")
)

REPEATS = (
    Template(
        "{d v1} = GLOBAL_LOAD_DWORD_SADDR {u z2}, {u v1}, {o}, 0" + _VALU + " :: (volatile load (s32), addrspace 1)",
        ("repeats", "tuples"),
        8,
    ),
    Template("{d z2} = S_MEMTIME", ("repeats", "tuples"), 8, _gfx9),
    Template(
        "{d z1} = S_LOAD_DWORD_IMM {u z2}, {o}, 0 :: (dereferenceable invariant load (s32), addrspace 4)",
        ("repeats", "tuples"),
        8,
    ),
    Template(
        "{d z1} = S_LOAD_DWORD_IMM {u z2}, {o}, 0 :: (invariant load (s32), addrspace 4)", ("repeats", "tuples"), 8
    ),
    Template("KILL {u v1}, {u s1}", ("repeats",), 8),
)

ALL = (
    *PLAIN,
    *CONSTANTS,
    *TUPLES,
    *EARLY,
    *TIED,
    *MEMORY,
    *AGPRS,
    *COPIES,
    *HALVES,
    *FIXED,
    *MATRIX,
    *ASSEMBLY,
    *MIXED,
    *REPEATS,
)


@lru_cache(maxsize=None)
def available(machine: Machine, features: Features) -> tuple[Template, ...]:
    """Templates that this target has and these features allow."""
    on = set(features.on())
    return tuple(t for t in ALL if t.fits(machine) and on >= set(t.needs))
