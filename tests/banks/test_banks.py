"""Accumulators of MFMA in VGPRs: where every instruction allows it, in forms that LLVM knows, and no copies left."""

from __future__ import annotations

import re

import pytest
from allocation import with_attributes
from builders import machine_code, machine_function
from msgspec.structs import replace
from spilling_support import Allocated, allocate, before_phase, blocks_with, object_of
from support import DEMO_KERNELS, run_llc

from smt_verifier.outcome import Outcome
from verilocc_mlir.analysis.lanes import virtual_classes
from verilocc_mlir.banks import in_vgprs
from verilocc_mlir.mir.model import MachineFunction
from verilocc_mlir.mir.parser import parse_mir
from verilocc_mlir.mir.printer import print_mir

GEMM = DEMO_KERNELS / "gemm_mma_lds.gfx942.opt.ll"
MODE = "implicit $mode, implicit $exec"


def mfma(d: str, c: str, *, name: str = "F32_16X16X16F16", a: str = "%1", early: str = "") -> str:
    return f"    {early}{d} = V_MFMA_{name}_e64 {a}, {a}, {c}, 0, 0, 0, {MODE}"


def chain(more: str = "", *, accumulator: str = "%10") -> str:
    """A sum of three products; ``more`` stands in the middle and may name %10 and %11."""
    return f"""
  bb.0:
    liveins: $vgpr0
    %0:vgpr_32 = COPY $vgpr0
    %1:vreg_64_align2 = DS_READ_B64_gfx9 %0, 0, 0, implicit $exec :: (load (s64), addrspace 3)
    %10:areg_128_align2 = DS_READ_B128_gfx9 %0, 64, 0, implicit $exec :: (load (s128), addrspace 3)
{mfma("%11:areg_128_align2", accumulator)}
{more}
{mfma("%12:areg_128_align2", "%11")}
    DS_WRITE_B128_gfx9 %0, %12, 0, 0, implicit $exec :: (store (s128), addrspace 3)
    S_ENDPGM 0
"""


def moved(function: MachineFunction) -> set[int]:
    """Registers that get another class."""
    found = in_vgprs(function, virtual_classes(function))
    if found is None:
        return set()
    before, after = virtual_classes(function), virtual_classes(found)
    return {v for v in before if before[v].name != after[v].name}


def test_a_chain_moves_with_its_loads_and_stores() -> None:
    function = machine_function(chain())
    found = in_vgprs(function, virtual_classes(function))
    assert found is not None
    assert moved(function) == {10, 11, 12}
    opcodes = [i.opcode for i in found.blocks[0].instructions]
    assert opcodes.count("V_MFMA_F32_16X16X16F16_vgprcd_e64") == 2
    assert {virtual_classes(found)[v].name for v in (10, 11, 12)} == {"vreg_128_align2"}
    # Registers named in the text, in the table, and nothing else.
    assert "areg" not in "\n".join(str(i) for i in found.blocks[0].instructions)
    assert "S_ENDPGM 0" in [str(i) for i in found.blocks[0].instructions]


@pytest.mark.parametrize(
    "more",
    [
        "    %20:vgpr_32 = V_ACCVGPR_READ_B32_e64 %11.sub0, implicit $exec",
        '    INLINEASM &"; $0", 1 /* sideeffect */, 8912905 /* reguse:AReg_128_Align2 */, %11',
        "    $agpr4 = V_ACCVGPR_MOV_B32 %11.sub1, implicit $exec",
    ],
    ids=["read", "inline assembly", "move"],
)
def test_one_instruction_that_wants_an_accumulator_holds_the_chain(more: str) -> None:
    """The MFMA before and behind it have C and D in one file; what only they need stays with them."""
    assert moved(machine_function(chain(more))) == set()
    assert moved(machine_function(chain("    S_NOP 0"))) != set()


def test_a_fixed_accumulator_holds_it_too() -> None:
    fixed = chain().replace("%10:areg_128_align2 =", "$agpr0_agpr1_agpr2_agpr3 =")
    assert moved(machine_function(fixed.replace(", %10,", ", $agpr0_agpr1_agpr2_agpr3,"))) == set()


def test_a_bundle_is_left_alone() -> None:
    bundle = """    BUNDLE implicit %11, implicit $exec {
      S_NOP 0, implicit %11
      S_NOP 0
    }"""
    assert moved(machine_function(chain(bundle))) == set()


def test_chains_move_on_their_own() -> None:
    """Another sum in the same function has nothing to do with the one that must stay."""
    other = (
        "    %30:areg_128_align2 = DS_READ_B128_gfx9 %0, 128, 0, implicit $exec :: (load (s128), addrspace 3)\n"
        + mfma("%31:areg_128_align2", "%30")
        + "\n    DS_WRITE_B128_gfx9 %0, %31, 16, 0, implicit $exec :: (store (s128), addrspace 3)\n"
        "    %20:vgpr_32 = V_ACCVGPR_READ_B32_e64 %11.sub0, implicit $exec"
    )
    assert moved(machine_function(chain(other))) == {30, 31}


def test_a_constant_addend_is_no_register() -> None:
    assert moved(machine_function(chain(accumulator="0"))) == {10, 11, 12}


def test_where_there_is_no_accumulator_nothing_changes() -> None:
    text = "\n  bb.0:\n    %0:vgpr_32 = V_MOV_B32_e32 0, implicit $exec\n    %1:vgpr_32 = COPY %0\n    S_ENDPGM 0\n"
    function = machine_function(text)
    assert in_vgprs(function, virtual_classes(function)) is None


SAMPLE = {
    "gfx90a": [
        ("F32_32X32X2F32", 32, 512), ("F32_16X16X4F32", 32, 128), ("F32_4X4X4F16", 64, 128),
        ("F32_32X32X8F16", 64, 512), ("F32_32X32X1F32", 32, 1024), ("I32_16X16X16I8", 32, 128),
        ("F64_16X16X4F64", 64, 256), ("F64_4X4X4F64", 64, 64), ("F32_16X16X16BF16_1K", 64, 128),
        ("F32_32X32X2BF16", 32, 1024),
    ],
    "gfx942": [
        ("F32_16X16X16F16", 64, 128), ("F32_32X32X8F16", 64, 512), ("I32_16X16X32I8", 64, 128),
        ("I32_32X32X16I8", 64, 512), ("F32_16X16X8XF32", 64, 128), ("F32_32X32X4XF32", 64, 512),
        ("F32_16X16X32_FP8_FP8", 64, 128), ("F32_32X32X16_BF8_FP8", 64, 512), ("F64_16X16X4F64", 64, 256),
    ],
    "gfx950": [
        ("F32_16X16X32_F16", 128, 128), ("F32_32X32X16_BF16", 128, 512), ("I32_16X16X64_I8", 128, 128),
        ("I32_32X32X32_I8", 128, 512), ("F32_16X16X128_F8F6F4_f8_f8", 256, 128),
        ("F32_32X32X64_F8F6F4_f4_f4", 128, 512), ("F32_16X16X128_F8F6F4_f6_f6", 192, 128),
    ],
}  # fmt: skip
"""Opcodes, with the bits of A and B, and of C and D."""


@pytest.mark.parametrize("cpu", sorted(SAMPLE))
def test_llvm_knows_both_forms(cpu: str) -> None:
    """Its machine verifier takes the text with AGPRs, the text that ``in_vgprs`` makes of it, and no mixture."""
    lines: list[str] = []
    numbers = iter(range(10, 1000))
    for name, factor, sum_bits in SAMPLE[cpu]:
        a, c, d = next(numbers), next(numbers), next(numbers)
        factors = "vgpr_32" if factor == 32 else f"vreg_{factor}_align2"
        lines.append(f"    %{a}:{factors} = IMPLICIT_DEF")
        lines.append(f"    %{c}:areg_{sum_bits}_align2 = IMPLICIT_DEF")
        form = _operands(name)
        early = "" if sum_bits <= 128 or name.startswith("F64") else "early-clobber "
        lines.append(f"    {early}%{d}:areg_{sum_bits}_align2 = V_MFMA_{name}_e64 %{a}, %{a}, %{c}, {form}, {MODE}")
    text = machine_code("\n  bb.0:\n" + "\n".join(lines) + "\n    S_ENDPGM 0\n", 256)
    (function,) = (file := parse_mir(text)).functions
    found = in_vgprs(function, virtual_classes(function))
    assert found is not None
    # The rows of the header go when registers are assigned; llc reads them.
    header = tuple(line.replace("class: areg_", "class: vreg_") for line in found.header_lines)
    after = print_mir(replace(file, functions=(replace(found, header_lines=header),)))
    assert after.count("_vgprcd_e64") == len(SAMPLE[cpu])
    assert "areg" not in after
    for version in (text, after):
        assert "V_MFMA" in run_llc(version, cpu, "-run-pass=none", "-verify-machineinstrs")
    with pytest.raises(AssertionError, match="llc failed"):
        run_llc(after.replace("_vgprcd_e64", "_e64"), cpu, "-run-pass=none", "-verify-machineinstrs")
    with pytest.raises(AssertionError, match="unknown machine instruction name"):
        run_llc(after.replace("_vgprcd_e64", "_vgprxy_e64"), cpu, "-run-pass=none", "-verify-machineinstrs")


def _operands(name: str) -> str:
    """cbsz, abid and blgp; the formats of F8F6F4 have no abid."""
    return "0, 0" if "F8F6F4" in name else "0, 0, 0"


def gemm(**attributes: str) -> str:
    """The kernel without the attribute that keeps LLVM off AGPRs."""
    ir, count = re.subn(r'"amdgpu-agpr-alloc"="0" ?', "", GEMM.read_text())
    assert count
    return before_phase(with_attributes(ir, attributes), "gfx942")


def between_files(done: Allocated) -> dict[int, int]:
    """Copies between VGPRs and AGPRs by block."""
    found: dict[int, int] = {}
    for block in done.function.blocks:
        for i in block.instructions:
            named = {op.phys[:4] for op in i.all_operands if op.phys.startswith(("vgpr", "agpr"))}
            if (i.opcode == "COPY" and len(named) == 2) or "ACCVGPR" in i.opcode:
                found[block.number] = found.get(block.number, 0) + 1
    return found


def test_no_copy_between_the_files_is_left_in_a_gemm() -> None:
    done = allocate(gemm(), "gfx942")
    assert set(blocks_with(parse_mir(done.before).functions[0], "_vgprcd")) == set()
    assert sum(blocks_with(parse_mir(done.before).functions[0], "V_MFMA").values()) == 32
    assert sum(blocks_with(done.function, "_vgprcd").values()) == 32
    assert between_files(done) == {}
    assert done.pair.audit().outcome is Outcome.PROVED
    assert "v_accvgpr" not in object_of(done)
    # LLVM leaves some.
    llvm = run_llc(done.before, "gfx942", "-start-before=greedy,2", "-stop-after=virtregrewriter,2")
    assert between_files(Allocated("gfx942", "vgpr", done.before, (), llvm))


def test_where_vgprs_do_not_suffice_both_files_are_used() -> None:
    """48 VGPRs are wanted where 40 and as many AGPRs are: nothing is spilled for it."""
    attributes = {"amdgpu-num-vgpr": "40"}
    done = allocate(gemm(**attributes), "gfx942")
    assert [a.ended for a in done.candidate.attempts] == ["allocate", "audit"]
    assert done.candidate.attempts[0].reason == "48 VGPRs are needed at once, 40 are free there"
    assert done.candidate.spills == ()
    assert not blocks_with(done.function, "_vgprcd")
    assert "agpr" in done.after
    assert done.pair.audit().outcome is Outcome.PROVED


def test_the_form_must_fit_the_file() -> None:
    """The audit does not take the form with VGPRs for registers that are AGPRs, nor the other way."""
    both = allocate(gemm(**{"amdgpu-num-vgpr": "40"}), "gfx942")
    vgprs = allocate(gemm(), "gfx942")
    for done, old, new in ((both, r"(V_MFMA\w+)_e64", r"\1_vgprcd_e64"), (vgprs, r"_vgprcd_e64", "_e64")):
        at = done.after.index("body:")
        text, count = re.subn(old, new, done.after[at:], count=1)
        assert count
        broken = done.pair.with_post(done.after[at:], text)
        assert broken.audit().outcome is Outcome.REFUTED
