"""Forms of moves: a value is moved out of where it lies to a place, and moved back from there."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Form:
    """A way to move a value. ``{s}`` is its register, ``{r}`` that in which it is read, both of ``bits`` bits.

    Attributes:
        out: Q's lines that move it to a place; without ``back`` the place is ``{r}``.
        back: Q's lines that move it to ``{r}``.
        define: P's line that gives ``%1`` the value.
        vector: it has one value a thread, and its moves run for active threads only.
        place: what a call or a write of the scratch descriptor may destroy: ``registers``, ``kept``, ``slot``.
        again: ``out`` computes the value anew, from nothing that changes.
    """

    name: str
    cls: str
    source: str
    result: str
    out: tuple[str, ...]
    back: tuple[str, ...] = ()
    define: str = "%1:{cls} = COPY ${s}"
    first: tuple[str, ...] = ()
    vector: bool = True
    place: str = "kept"
    again: bool = False
    stack: tuple[str, ...] = ()
    spilled: bool = False
    processors: tuple[str, ...] = ("gfx942", "gfx1201")


def _slot(size: int) -> tuple[str, ...]:
    return (
        f"  - {{ id: 0, name: '', type: spill-slot, offset: 0, size: {size}, alignment: 4 }}",
        f"  - {{ id: 1, name: '', type: spill-slot, offset: 0, size: {size}, alignment: 4 }}",
    )


def _spill(kind: str, bits: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
    align = "" if bits == 32 else ", align 4"
    rest = "implicit $exec, implicit $sgpr32" if kind == "S" else "$sgpr32, 0, implicit $exec"
    store = f":: (store (s{bits}) into %stack.0{align}, addrspace 5)"
    load = f":: (load (s{bits}) from %stack.0{align}, addrspace 5)"
    return (
        (f"SI_SPILL_{kind}{bits}_SAVE ${{s}}, %stack.0, {rest} {store}",),
        (f"renamable ${{r}} = SI_SPILL_{kind}{bits}_RESTORE %stack.0, {rest} {load}",),
    )


def _spills() -> Iterator[Form]:
    for kind, bits, cls, source, result, processors in (
        ("V", 32, "vgpr_32", "vgpr0", "vgpr40", ("gfx1201",)),
        ("V", 64, "vreg_64_align2", "vgpr0_vgpr1", "vgpr40_vgpr41", ("gfx942",)),
        ("V", 128, "vreg_128_align2", "vgpr0_vgpr1_vgpr2_vgpr3", "vgpr40_vgpr41_vgpr42_vgpr43", ("gfx942", "gfx1201")),
        ("AV", 32, "av_32", "vgpr0", "vgpr40", ("gfx942",)),
        ("AV", 64, "av_64_align2", "agpr0_agpr1", "vgpr40_vgpr41", ("gfx942",)),
        ("A", 32, "agpr_32", "agpr0", "agpr40", ("gfx942",)),
        ("S", 32, "sreg_32", "sgpr0", "sgpr40", ("gfx942", "gfx1201")),
        ("S", 64, "sreg_64", "sgpr0_sgpr1", "sgpr40_sgpr41", ("gfx942", "gfx1201")),
        ("S", 64, "sreg_64", "sgpr0_sgpr1", "vcc", ("gfx942",)),
        ("S", 128, "sgpr_128", "sgpr0_sgpr1_sgpr2_sgpr3", "sgpr40_sgpr41_sgpr42_sgpr43", ("gfx942", "gfx1201")),
    ):
        out, back = _spill(kind, bits)
        of = "" if result != "vcc" else " into vcc"
        yield Form(
            f"spill {kind}{bits}{of}",
            cls,
            source,
            result,
            out,
            back,
            vector=kind != "S",
            place="slot",
            stack=_slot(bits // 8),
            spilled=kind == "S",
            processors=processors,
        )


_LOAD = "S_LOAD_DWORD_IMM ${s}, 4, 0 :: (dereferenceable invariant load (s32) from %ir.p, addrspace 4)"
_LANE = "renamable $vgpr44 = SI_SPILL_S32_TO_VGPR"
FORMS: tuple[Form, ...] = (
    Form("COPY v to v", "vgpr_32", "vgpr0", "vgpr40", ("renamable ${r} = COPY ${s}",)),
    Form("COPY v to v, renamable", "vgpr_32", "vgpr0", "vgpr40", ("renamable ${r} = COPY renamable ${s}",)),
    Form("COPY v to v, 64", "vreg_64_align2", "vgpr0_vgpr1", "vgpr40_vgpr41", ("renamable ${r} = COPY ${s}",)),
    Form(
        "COPY v to v, 96",
        "vreg_96_align2",
        "vgpr0_vgpr1_vgpr2",
        "vgpr40_vgpr41_vgpr42",
        ("renamable ${r} = COPY ${s}",),
    ),
    Form(
        "COPY v to v, halves",
        "vgpr_16",
        "vgpr0_lo16",
        "vgpr40_hi16",
        ("renamable ${r} = COPY ${s}",),
        processors=("gfx1201",),
    ),
    Form(
        "COPY v to v by parts",
        "vreg_64_align2",
        "vgpr0_vgpr1",
        "vgpr40_vgpr41",
        ("renamable $vgpr40 = COPY $vgpr0, implicit-def ${r}", "renamable $vgpr41 = COPY $vgpr1, implicit ${s}"),
    ),
    Form(
        "COPY v to a and back",
        "vgpr_32",
        "vgpr0",
        "vgpr40",
        ("$agpr40 = COPY ${s}",),
        ("renamable ${r} = COPY $agpr40",),
        processors=("gfx942",),
    ),
    Form("COPY v to a", "av_32", "vgpr0", "agpr40", ("renamable ${r} = COPY ${s}",), processors=("gfx942",)),
    Form("COPY a to v", "av_32", "agpr0", "vgpr40", ("renamable ${r} = COPY ${s}",), processors=("gfx942",)),
    Form(
        "COPY a to a, 64",
        "areg_64_align2",
        "agpr0_agpr1",
        "agpr40_agpr41",
        ("renamable ${r} = COPY ${s}",),
        processors=("gfx942",),
    ),
    Form(
        "COPY v to v, round", "vgpr_32", "vgpr0", "vgpr41", ("$vgpr40 = COPY ${s}",), ("renamable ${r} = COPY $vgpr40",)
    ),
    Form("COPY s to v", "vgpr_32", "sgpr0", "vgpr40", ("renamable ${r} = COPY ${s}",)),
    Form("COPY s to v, 64", "vreg_64_align2", "sgpr0_sgpr1", "vgpr40_vgpr41", ("renamable ${r} = COPY ${s}",)),
    Form("COPY s to s", "sreg_32", "sgpr0", "sgpr40", ("renamable ${r} = COPY ${s}",), vector=False),
    Form("COPY s to s, 64", "sreg_64", "sgpr0_sgpr1", "sgpr40_sgpr41", ("renamable ${r} = COPY ${s}",), vector=False),
    Form(
        "COPY s to s, 256",
        "sgpr_256",
        "sgpr0_sgpr1_sgpr2_sgpr3_sgpr4_sgpr5_sgpr6_sgpr7",
        "sgpr40_sgpr41_sgpr42_sgpr43_sgpr44_sgpr45_sgpr46_sgpr47",
        ("renamable ${r} = COPY ${s}",),
        vector=False,
    ),
    Form(
        "COPY s to vcc",
        "sreg_64",
        "sgpr0_sgpr1",
        "vcc",
        ("renamable ${r} = COPY ${s}",),
        vector=False,
        place="registers",
        processors=("gfx942",),
    ),
    Form(
        "COPY s to vcc and back",
        "sreg_64",
        "sgpr0_sgpr1",
        "sgpr40_sgpr41",
        ("$vcc = COPY ${s}",),
        ("renamable ${r} = COPY $vcc",),
        vector=False,
        place="registers",
        processors=("gfx942",),
    ),
    Form("COPY v, lr-split", "vgpr_32", "vgpr0", "vgpr40", ("renamable ${r} = lr-split COPY ${s}",)),
    *_spills(),
    Form(
        "spill WWM_V32",
        "vgpr_32",
        "vgpr0",
        "vgpr40",
        *_spill("WWM_V", 32),
        place="slot",
        stack=_slot(4),
        processors=("gfx1201",),
        vector=False,
    ),
    Form(
        "spill WWM_AV32",
        "vgpr_32",
        "vgpr0",
        "vgpr40",
        *_spill("WWM_AV", 32),
        place="slot",
        stack=_slot(4),
        processors=("gfx942",),
        vector=False,
    ),
    Form(
        "lane",
        "sreg_32",
        "sgpr0",
        "sgpr40",
        ("renamable $vgpr44 = SI_SPILL_S32_TO_VGPR ${s}, 3, killed $vgpr44(tied-def 0)",),
        ("${r} = SI_RESTORE_S32_FROM_VGPR $vgpr44, 3",),
        vector=False,
        first=("renamable $vgpr44 = IMPLICIT_DEF",),
    ),
    Form(
        "two lanes",
        "sreg_64",
        "sgpr0_sgpr1",
        "sgpr40_sgpr41",
        (
            f"{_LANE} $sgpr0, 3, killed $vgpr44(tied-def 0), implicit-def ${{s}}, implicit ${{s}}",
            "renamable $vgpr44 = SI_SPILL_S32_TO_VGPR $sgpr1, 4, killed $vgpr44(tied-def 0), implicit ${s}",
        ),
        (
            "$sgpr40 = SI_RESTORE_S32_FROM_VGPR $vgpr44, 3, implicit-def ${r}",
            "$sgpr41 = SI_RESTORE_S32_FROM_VGPR $vgpr44, 4",
        ),
        vector=False,
        first=("renamable $vgpr44 = IMPLICIT_DEF",),
    ),
    Form(
        "V_MOV again",
        "vgpr_32",
        "vgpr0",
        "vgpr40",
        ("renamable ${r} = V_MOV_B32_e32 7, implicit $exec",),
        define="%1:{cls} = V_MOV_B32_e32 7, implicit $exec",
        again=True,
    ),
    Form(
        "S_MOV again",
        "sreg_32",
        "sgpr0",
        "sgpr40",
        ("renamable ${r} = S_MOV_B32 7",),
        define="%1:{cls} = S_MOV_B32 7",
        vector=False,
        again=True,
    ),
    Form(
        "V_LSHL_ADD again",
        "vgpr_32",
        "vgpr0",
        "vgpr40",
        ("renamable ${r} = V_LSHL_ADD_U32_e64 ${s}, 7, ${s}, implicit $exec",),
        define="%1:{cls} = V_LSHL_ADD_U32_e64 ${s}, 7, ${s}, implicit $exec",
        place="source",
    ),
    Form(
        "S_BFM again",
        "sreg_32",
        "sgpr0",
        "sgpr40",
        ("renamable ${r} = S_BFM_B32 ${s}, 7",),
        define="%1:{cls} = S_BFM_B32 ${s}, 7",
        vector=False,
        place="source",
    ),
    Form(
        "V_MOV of a scalar again",
        "vgpr_32",
        "sgpr0",
        "vgpr40",
        ("renamable ${r} = V_MOV_B32_e32 ${s}, implicit $exec",),
        define="%1:{cls} = V_MOV_B32_e32 ${s}, implicit $exec",
        place="source",
    ),
    Form(
        "S_LOAD again",
        "sreg_32_xm0_xexec",
        "sgpr0_sgpr1",
        "sgpr40",
        (f"renamable ${{r}} = {_LOAD}",),
        define=f"%1:{{cls}} = {_LOAD}",
        vector=False,
        place="source",
    ),
)
"""By name: each pair of files and width of COPY, spill code of each kind, lanes, whole-wave moves, and repeats."""
