"""What calls say that their callee keeps: proved of the callee's code, or refuted for the right reason."""

from __future__ import annotations

import pytest

from smt_verifier.audit import audit, check_calls, may_write
from smt_verifier.outcome import Outcome
from verilocc_mlir.errors import UnsupportedError
from verilocc_mlir.mir.parser import parse_mir
from verilocc_mlir.target.callingconv import calls_in, kept_for_callers, regmask
from verilocc_mlir.target.registers import physical_register
from verilocc_mlir.target.targets import target

TARGET = target("gfx942")
HEAD = """--- |
  declare void @elsewhere()
  define internal void @g() #0 {
    ret void
  }
  define internal void @h() #0 {
    ret void
  }
  define amdgpu_kernel void @f() #0 {
    ret void
  }
  @alias = internal alias void (), ptr @g
  attributes #0 = { "target-cpu"="gfx942" }
...
"""
DOCUMENT = """---
name:            {name}
tracksRegLiveness: true
noVRegs:         true
machineFunctionInfo:
  isEntryFunction: {entry}
  scratchRSrcReg:  '$private_rsrc_reg'
  stackPtrOffsetReg: '$sgpr32'
body:             |
  bb.0:
    liveins: $vgpr0, $vgpr1, $sgpr30_sgpr31, $sgpr34_sgpr35
{lines}
...
"""
CALL_G = "dead $sgpr30_sgpr31 = SI_CALL $sgpr34_sgpr35, @g, CustomRegMask($sgpr34,$sgpr35,$vgpr4,$vgpr5,$vgpr40)"
RETURN = "S_SETPC_B64_return undef $sgpr30_sgpr31"


def module(g: str = "S_NOP 0", h: str = "S_NOP 0", call: str = CALL_G, head: str = HEAD) -> str:
    """A kernel that calls ``g``, which keeps v4 and v5 for it."""
    bodies = {"f": ([call], "S_ENDPGM 0"), "g": (g.split("\n"), RETURN), "h": (h.split("\n"), RETURN)}
    return head + "".join(
        DOCUMENT.format(name=name, entry=str(name == "f").lower(), lines="\n".join(f"    {x}" for x in (*lines, end)))
        for name, (lines, end) in bodies.items()
    )


def messages(text: str, code: str | None = None) -> list[str]:
    """What is wrong with the calls of a module's text and code."""
    findings = check_calls(parse_mir(text), parse_mir(text if code is None else code), TARGET)
    assert all(f.rule == "call-mask" and f.outcome is Outcome.REFUTED and f.instruction for f in findings)
    return [f.message for f in findings]


@pytest.mark.parametrize(
    "g",
    [
        "S_NOP 0",
        "$vgpr3 = V_MOV_B32_e32 $vgpr4, implicit $exec",
        # By the convention a callee saves it; that is not what the mask adds.
        "$vgpr40 = V_MOV_B32_e32 $vgpr0, implicit $exec",
        "dead $sgpr30_sgpr31 = SI_CALL $sgpr34_sgpr35, @h, CustomRegMask($vgpr4,$vgpr5)",
        "dead $sgpr30_sgpr31 = SI_CALL $sgpr34_sgpr35, @h, CustomRegMask($vgpr4,$vgpr5,$vgpr6)",
    ],
)
def test_what_a_callee_leaves_alone_holds(g: str) -> None:
    assert messages(module(g)) == []


@pytest.mark.parametrize(
    ("g", "lost"),
    [
        ("$vgpr5 = V_MOV_B32_e32 $vgpr0, implicit $exec", "v5.lo"),
        ("dead $vgpr4 = V_MOV_B32_e32 $vgpr0, implicit $exec", "v4.lo"),
        ("$vgpr5_hi16 = COPY $vgpr0_hi16", "v5.hi"),
        ("$vgpr4_vgpr5 = V_MOV_B64_e32 0, implicit $exec", "v4.lo"),
        ("$vgpr0 = V_MOV_B32_e32 $vgpr1, implicit $exec, implicit-def $vgpr3_vgpr4", "v4.lo"),
        ("$vgpr5 = V_WRITELANE_B32 $sgpr30, 0, $vgpr5", "v5.lo"),
        ("$vgpr5 = SCRATCH_LOAD_DWORD_SADDR $sgpr33, 0, 0, implicit $exec, implicit $flat_scr", "v5.lo"),
        ('INLINEASM &"v_mov_b32 v4, 0", 1, 12, implicit-def early-clobber $vgpr4', "v4.lo"),
        ("BUNDLE implicit-def $vgpr0 {\n  $vgpr5 = V_MOV_B32_e32 $vgpr0, implicit $exec\n}", "v5.lo"),
        ("dead $sgpr30_sgpr31 = SI_CALL $sgpr34_sgpr35, @h, csr_amdgpu_gfx90ainsts", "v4.lo"),
        ("dead $sgpr30_sgpr31 = SI_CALL $sgpr34_sgpr35, @h, CustomRegMask($vgpr4)", "v5.lo"),
        ("dead $sgpr30_sgpr31 = SI_CALL $sgpr34_sgpr35, @elsewhere, csr_amdgpu_gfx90ainsts", "v4.lo"),
        ("dead $sgpr30_sgpr31 = SI_CALL $sgpr34_sgpr35, 0, csr_amdgpu_gfx90ainsts", "v4.lo"),
        ("dead $sgpr30_sgpr31 = SI_CALL $sgpr34_sgpr35, @g, csr_amdgpu_gfx90ainsts", "v4.lo"),
        ("dead $sgpr30_sgpr31 = S_SWAPPC_B64 $sgpr34_sgpr35", "v4.lo"),
        ("SI_TCRETURN $sgpr34_sgpr35, @h, 0, csr_amdgpu_gfx90ainsts", "v4.lo"),
    ],
)
def test_a_callee_that_overwrites_what_its_mask_keeps_is_refuted(g: str, lost: str) -> None:
    assert messages(module(g)) == [f"{lost} is written, and a call of g says that it is kept"]


def test_what_the_callee_of_a_callee_overwrites_is_refuted_where_it_is_promised() -> None:
    g = "dead $sgpr30_sgpr31 = SI_CALL $sgpr34_sgpr35, @h, CustomRegMask($vgpr4,$vgpr5)"
    h = "$vgpr5 = V_MOV_B32_e32 $vgpr0, implicit $exec"
    assert messages(module(g, h)) == ["v5.lo is written, and a call of h says that it is kept"]


@pytest.mark.parametrize(
    ("head", "call", "callee"),
    [
        (HEAD.replace("internal void @g", "void @g"), CALL_G, "g"),
        (HEAD.replace("internal void @g", "weak void @g"), CALL_G, "g"),
        (HEAD.replace("internal void @g", "linkonce_odr hidden void @g"), CALL_G, "g"),
        (HEAD, CALL_G.replace("@g", "@elsewhere"), "elsewhere"),
        (HEAD, CALL_G.replace("@g", "@alias"), "alias"),
        (HEAD, CALL_G.replace("@g", "0"), "what it calls"),
    ],
)
def test_only_a_function_that_no_linker_replaces_can_be_promised_for(head: str, call: str, callee: str) -> None:
    # Once of the text, once of the code.
    assert messages(module(call=call, head=head)) == [f"{callee} may be any function, of which nothing is known"] * 2


def test_private_functions_are_local_too() -> None:
    assert messages(module(head=HEAD.replace("internal void @g", "private void @g"))) == []


def test_the_calls_of_the_text_and_those_of_the_code_both_count() -> None:
    by_convention = module("$vgpr5 = V_MOV_B32_e32 $vgpr0, implicit $exec", call=CALL_G.replace(",$vgpr5", ""))
    assert messages(by_convention) == []
    written = ["v5.lo is written, and a call of g says that it is kept"]
    assert messages(module(), by_convention) == written
    assert messages(by_convention, module("$vgpr5 = V_MOV_B32_e32 $vgpr0, implicit $exec")) == written


def test_code_of_an_unknown_opcode_is_not_proved() -> None:
    with pytest.raises(UnsupportedError, match="V_NEW is not an instruction"):
        messages(module("$vgpr0 = V_NEW $vgpr1"))


def test_masks_are_read_off_the_calls() -> None:
    file = parse_mir(module())
    (call,) = calls_in(file.functions[0])
    assert (call.caller, call.callee) == ("f", "g")
    assert call.kept == regmask("CustomRegMask($sgpr34,$sgpr35,$vgpr4,$vgpr5,$vgpr40)")
    kept = frozenset(physical_register("vgpr4_vgpr5").units)
    assert kept_for_callers(file, "g", TARGET) == kept
    assert kept_for_callers(file, "h", TARGET) == kept_for_callers(file, "f", TARGET) == frozenset()
    assert may_write(file.functions[1], kept) == frozenset()


def test_every_phase_asks_it_of_the_callee() -> None:
    """Whoever audits two texts learns it without the final code, of what the allocator itself has done."""
    good = module("$vgpr3 = V_MOV_B32_e32 $vgpr0, implicit $exec\nS_NOP 0, implicit $vgpr3")
    virtual = good.replace("noVRegs:         true\n", "registers:\n  - { id: 0, class: vgpr_32 }\n")
    before = virtual.replace("$vgpr3 = V", "%0:vgpr_32 = V").replace("implicit $vgpr3", "implicit %0")
    assert audit(parse_mir(before), parse_mir(good), TARGET).outcome is Outcome.PROVED
    report = audit(parse_mir(before), parse_mir(good.replace("vgpr3", "vgpr5")), TARGET)
    (finding,) = report.functions[1].findings
    assert (report.outcome, finding.rule) == (Outcome.REFUTED, "call-mask")
