"""Register masks and callee-saved sets, against the machine verifier and the masks llc prints."""

from __future__ import annotations

import re

import pytest
from msgspec.structs import replace
from support import few, run_llc
from target_oracles import undefined_uses

from verilocc_mlir.errors import UnsupportedError
from verilocc_mlir.mir.parser import parse_mir
from verilocc_mlir.target.callingconv import REGMASKS, callee_saved, regmask
from verilocc_mlir.target.registers import physical_register
from verilocc_mlir.target.targets import TARGETS, target

KERNEL = """\
target triple = "amdgcn-amd-amdhsa"
define amdgpu_kernel void @k() #0 {
  ret void
}
attributes #0 = { "amdgpu-agpr-alloc"="256" "amdgpu-waves-per-eu"="1" "amdgpu-flat-work-group-size"="64,64" }
"""


def preserved(mask: str, cpu: str, agprs: int, stack: str, exec_copy: str) -> tuple[set[str], set[str]]:
    """Registers asked about, and those that LLVM thinks still hold a value after the mask.

    The registers that the header sets aside are put out of the way: the verifier says nothing about reserved ones.
    """
    file = parse_mir(run_llc(KERNEL, cpu, "-stop-before=greedy,0", mir=False))
    header = "\n".join(file.functions[0].header_lines)
    header = re.sub(r"(stackPtrOffsetReg: +)'.*'", rf"\1'${stack}'", header)
    header = re.sub(r"(sgprForEXECCopy: +)'.*'", rf"\1'${exec_copy}'", header)
    header = re.sub(r"(scratchRSrcReg: +)'.*'", r"\1'$private_rsrc_reg'", header)
    function = replace(file.functions[0], header_lines=tuple(header.split("\n")))
    sgprs = target(cpu).addressable_sgprs
    names = [f"{bank}{n}" for bank, size in (("vgpr", 256), ("agpr", agprs), ("sgpr", sgprs)) for n in range(size)]
    names += ["vcc_lo", "vcc_hi"]
    names = [n for n in names if n not in (stack, *exec_copy.split("_"))]
    live = ", ".join(f"${n}" for n in names)
    before = f"    liveins: {live}\n\n    S_NOP 0, {mask}\n"
    return set(names), set(names) - undefined_uses(file.preamble, function, cpu, names, before)


@pytest.mark.parametrize("mask", few(("csr_amdgpu_si_gfx",), REGMASKS))
def test_named_masks(mask: str) -> None:
    """Every register under every named mask, on a target with AGPRs and on one with all SGPRs."""
    for cpu, agprs in (("gfx90a", 256), ("gfx1100", 0)):
        for stack, exec_copy in (("sgpr0", "sgpr2_sgpr3"), ("sgpr40", "sgpr42_sgpr43")):
            asked, theirs = preserved(mask, cpu, agprs, stack, exec_copy if agprs else exec_copy.split("_")[0])
            ours = {n for n in asked if set(physical_register(n).units) <= regmask(mask)}
            assert ours == theirs, cpu


def test_custom_mask() -> None:
    text = "CustomRegMask($vgpr3,$sgpr4_sgpr5,$vgpr7_lo16)"
    units = regmask(text)
    assert units == {*physical_register("vgpr3").units, *physical_register("vgpr7_lo16").units}
    asked, theirs = preserved(text, "gfx90a", 256, "sgpr0", "sgpr2_sgpr3")
    # The verifier accepts a use where any half is live; whole registers are what it settles.
    assert {n for n in asked if set(physical_register(n).units) <= units} == theirs - {"vgpr7"}


def test_unknown_mask_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="csr_other"):
        regmask("csr_other")


CALLS = """\
target triple = "{triple}"
declare {cc} void @g()
define {cc} void @f() {{
  call {cc} void @g()
  ret void
}}
"""


@pytest.mark.parametrize("cpu", TARGETS)
@pytest.mark.parametrize("cc", ["", "fastcc", "coldcc"])
def test_callee_saved_is_what_calls_preserve(cpu: str, cc: str) -> None:
    """The mask on a call of a convention is the callee-saved set of that convention."""
    ir = CALLS.format(triple="amdgcn-amd-amdhsa", cc=cc)
    masks = re.findall(r"SI_CALL [^\n]*?\b(csr_amdgpu\w*)", run_llc(ir, cpu, "-stop-before=greedy,0", mir=False))
    assert len(masks) == 1
    assert callee_saved(cc or "ccc", target(cpu)) == regmask(masks[0])


def test_entry_functions_save_nothing() -> None:
    assert callee_saved("amdgpu_kernel", target("gfx942")) == frozenset()
    assert callee_saved("amdgpu_cs", target("gfx1100")) == frozenset()


def test_gfx_convention() -> None:
    assert callee_saved("amdgpu_gfx", target("gfx1100")) == regmask("csr_amdgpu_si_gfx")
    with pytest.raises(UnsupportedError):
        callee_saved("amdgpu_gfx_whole_wave", target("gfx1100"))
