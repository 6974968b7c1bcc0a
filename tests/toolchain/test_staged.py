"""The staged run against a plain llc, and each loss between the stages: that it is there, and that it is mended."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from support import cpu_of, each_kernel, few, long
from toolchain_support import TARGETS, compiler, source, tools

from verilocc_mlir.errors import InputError, ToolchainError, UnsupportedError
from verilocc_mlir.toolchain.checked import check_object
from verilocc_mlir.toolchain.descriptor import read_code_object
from verilocc_mlir.toolchain.drivers.job import CompileOptions, split_target_id
from verilocc_mlir.toolchain.elf import read_elf
from verilocc_mlir.toolchain.inputs import load_input
from verilocc_mlir.toolchain.mir_repairs import (
    declare_dynamic_lds,
    dynamic_lds_users,
    is_wave32,
    mend_implicit_vcc,
    strip_mmra,
    surviving_intrinsics,
)
from verilocc_mlir.toolchain.run import ToolFailure, run_tool
from verilocc_mlir.toolchain.staged import LlvmPhase, StagedCompiler, has_wwm_registers


def llc(cpu: str, text: str, *flags: str) -> str:
    """llc on MIR without any of the repairs under test."""
    command = [tools().llc, "-mtriple=amdgcn-amd-amdhsa", f"-mcpu={cpu}", "-O3", "-x", "mir", *flags, "-o", "-", "-"]
    return run_tool(command, stdin=text.encode()).stdout.decode()


def all_phases(staged: StagedCompiler, pre: str) -> str:
    """LLVM's own allocation, phase by phase, through text."""
    scalar = staged.llvm_allocate(pre, LlvmPhase.SGPR)
    return staged.llvm_allocate(staged.resume(scalar, done=LlvmPhase.SGPR, until=LlvmPhase.VGPR), LlvmPhase.VGPR)


@pytest.mark.parametrize("path", each_kernel())
def test_every_kernel_comes_through_and_equals_a_direct_compile(path: Path) -> None:
    text = path.read_text()
    cpu = cpu_of(path)
    staged = compiler(cpu, path.name)
    pre = staged.to_pre_ra(text)
    obj = staged.finish_from(pre, LlvmPhase.SGPR)
    checked = check_object(obj, mir=pre, cpu=cpu, reference=staged.direct(text))
    assert {difference.field for difference in checked.mended} <= {"user_sgpr_count"}
    assert bool(checked.mended) == (cpu == "gfx1100")
    # Without a reference, the machine code's own statement leads to the same bytes.
    assert check_object(obj, mir=pre, cpu=cpu).data == checked.data
    linked = read_code_object(staged.link(checked.data))
    assert linked.machine == cpu
    assert linked.kernels.keys() == read_code_object(checked.data).kernels.keys()


@pytest.mark.parametrize("cpu", few(("gfx942",), TARGETS))
@pytest.mark.parametrize("name", ["abi.ll", "wwm.ll", *long("callee_saved.ll", "sgpr_spills.ll")])
def test_three_phases_one_by_one(name: str, cpu: str) -> None:
    staged = compiler(cpu, name)
    pre = staged.to_pre_ra(source(name))
    assert "SI_SPILL" not in pre
    done = all_phases(staged, pre)
    assert "noVRegs:         true" in done
    checked = check_object(staged.finish(done), mir=pre, cpu=cpu, reference=staged.direct(source(name)))
    assert read_code_object(staged.link(checked.data)).machine == cpu
    stages = [run.stage for run in staged.runs]
    # No scalar is spilled there: LLVM has nothing to do between the phases.
    resumed = [] if (name, cpu) == ("sgpr_spills.ll", "gfx90a") else ["resume-vgpr"]
    assert stages == ["pre-ra", "greedy-sgpr", *resumed, "greedy-vgpr", "finish", "direct", "link"]
    assert all(run.cpu_seconds > 0 for run in staged.runs)


@pytest.mark.parametrize("cpu", few(("gfx1100",), ("gfx942", "gfx1100")))
@pytest.mark.parametrize("name", ["sgpr_spills.ll", "wwm.ll"])
def test_the_wwm_phase_shown_is_the_one_that_ran(name: str, cpu: str) -> None:
    staged = compiler(cpu, name)
    scalar = staged.llvm_allocate(staged.to_pre_ra(source(name)), LlvmPhase.SGPR)
    vector = staged.resume(scalar, done=LlvmPhase.SGPR, until=LlvmPhase.VGPR)
    assert has_wwm_registers(vector)
    shown = staged.wwm_phase(scalar)
    assert ("WWM_REG" in shown.before) == (name == "sgpr_spills.ll")
    assert staged.resume(shown.after, done=LlvmPhase.WWM, until=LlvmPhase.VGPR) == vector


def test_an_ordinary_kernel_has_no_wwm_registers() -> None:
    staged = compiler("gfx942")
    scalar = staged.llvm_allocate(staged.to_pre_ra(source("abi.ll")), LlvmPhase.SGPR)
    assert not has_wwm_registers(staged.resume(scalar, done=LlvmPhase.SGPR, until=LlvmPhase.VGPR))


def test_llvm_crashes_on_sgpr_spills_when_resumed_after_the_rewriter() -> None:
    # The reason for -start-before=virtregrewriter,0.
    staged = compiler("gfx942")
    scalar = staged.llvm_allocate(staged.to_pre_ra(source("sgpr_spills.ll")), LlvmPhase.SGPR)
    assert "SI_SPILL_S32_SAVE" in scalar
    if tools().version[0] == 22:
        with pytest.raises(ToolFailure, match="crashed with SIG"):
            llc("gfx942", scalar, "-start-after=virtregrewriter,0", "-stop-before=greedy,2")
    assert "SI_SPILL_S32_TO_VGPR" in staged.resume(scalar, done=LlvmPhase.SGPR, until=LlvmPhase.VGPR)


def saved_vgprs(asm: str) -> set[int]:
    """VGPRs that function ``helper`` stores, to scratch or in AGPRs, before it does anything else."""
    body = asm[asm.index("helper:") : asm.index("; writes")]
    return {
        int(n) for n in re.findall(r"(?:v_accvgpr_write_b32 a\d+,|scratch_store.* off,|buffer_store\w*) v(\d+)", body)
    }


@pytest.mark.parametrize("cpu", few(("gfx90a", "gfx1100"), TARGETS))
def test_local_functions_save_what_their_callers_keep(cpu: str) -> None:
    staged = compiler(cpu)
    pre = staged.to_pre_ra(source("callee_saved.ll"))
    assert re.search(r"SI_CALL .*csr_amdgpu", pre), "the call promises that v40 to v43 are preserved"
    assert saved_vgprs(staged.finish_from(pre, LlvmPhase.SGPR, "asm").decode()) >= {40, 41, 42, 43}
    # Without -enable-ipra=0 the function saves nothing.
    text = mend_implicit_vcc(pre) if is_wave32(cpu) else pre
    assert saved_vgprs(llc(cpu, text, "-start-before=greedy,0")) == set()


@pytest.mark.parametrize("cpu", ["gfx1100", "gfx1201", "gfx1250"])
def test_wave32_text_does_not_parse_as_printed_and_does_mended(cpu: str) -> None:
    staged = compiler(cpu)
    pre = staged.to_pre_ra(source("wwm.ll"))
    done = staged.finish_from(pre, LlvmPhase.SGPR)
    assert done.startswith(b"\x7fELF")
    condition = "    $vcc_lo = S_MOV_B32 0, implicit $exec\n    S_CBRANCH_VCCNZ %bb.1, implicit killed $vcc_lo\n"
    document = f"---\nname: k\nbody: |\n  bb.0:\n    successors: %bb.1\n{condition}  bb.1:\n    S_ENDPGM 0\n...\n"
    with pytest.raises(ToolFailure, match="missing implicit register operand"):
        llc(cpu, document, "-run-pass=none")
    again = llc(cpu, mend_implicit_vcc(document), "-run-pass=none")
    assert "S_CBRANCH_VCCNZ %bb.1, implicit killed $vcc_lo\n" in again


def test_only_implicit_vcc_is_mended() -> None:
    text = "V_ADD $vcc_lo, implicit-def dead $vcc_lo, implicit killed $vcc_lo, implicit $vcc_lo_hi, $vcc_lo"
    assert mend_implicit_vcc(text) == (
        "V_ADD $vcc_lo, implicit-def dead $vcc, implicit killed $vcc, implicit $vcc_lo_hi, $vcc_lo"
    )
    # In inline assembly LLVM reads both as they are: $vcc would be 64 bits, and its name another.
    assembly = 'INLINEASM &"s_mov_b32 $0, 0", 1, 10, implicit-def $vcc_lo'
    assert mend_implicit_vcc(f"{assembly}\n{text}").split("\n")[0] == assembly


@pytest.mark.parametrize(
    ("cpu", "mattr", "wave32"),
    [
        ("gfx90a", "", False),
        ("gfx942", "", False),
        ("gfx1030", "", True),
        ("gfx1100", "", True),
        ("gfx1250", "", True),
        ("gfx11-generic", "", True),
        ("gfx10-3-generic", "", True),
        ("gfx9-4-generic", "", False),
        ("gfx1100", "+wavefrontsize64", False),
        ("nonsense", "", False),
    ],
)
def test_wave_size(cpu: str, mattr: str, wave32: bool) -> None:
    assert is_wave32(cpu, mattr) is wave32


def test_wave64_on_gfx11_stays_as_it_is() -> None:
    staged = StagedCompiler(tools(), CompileOptions("gfx1100", "+wavefrontsize64"))
    pre = staged.to_pre_ra(source("wwm.ll"))
    assert "$vcc_lo" not in pre
    checked = check_object(
        staged.finish_from(pre, LlvmPhase.SGPR), mir=pre, cpu="gfx1100", reference=staged.direct(source("wwm.ll"))
    )
    assert read_code_object(checked.data).kernels["wwm"].wavefront_size == 64


def test_memory_annotations_are_left_off() -> None:
    printed = run_tool(
        [tools().llc, "-mtriple=amdgcn-amd-amdhsa", "-mcpu=gfx942", "-stop-before=greedy,0", "-o", "-", "-"],
        stdin=source("mmra.ll").encode(),
    ).stdout.decode()
    assert re.search(r"ATOMIC_FENCE 5, \d, mmra !\d", printed)
    if tools().version[0] == 22:
        with pytest.raises(ToolFailure, match=r"mmra|typed immediate"):
            llc("gfx942", printed, "-run-pass=none")
    assert re.search(r"ATOMIC_FENCE 5, \d\n", strip_mmra(printed))
    assert "fence syncscope" in strip_mmra(printed)
    assert ", !mmra !" in strip_mmra(printed), "the IR module is left alone"
    staged = compiler("gfx942")
    assert staged.finish_from(staged.to_pre_ra(source("mmra.ll")), LlvmPhase.SGPR)
    assert staged.finish_from(printed, LlvmPhase.SGPR), "a user's own text is mended too"


def test_annotations_between_other_attributes() -> None:
    head = "--- |\n  mmra !1\n---\nname: k\n"
    text = head + "    LOAD $a, mmra !12, debug-location !3 :: (load)\n    FENCE 5, mmra !1 :: (x)\n"
    assert strip_mmra(text) == head + "    LOAD $a, debug-location !3 :: (load)\n    FENCE 5 :: (x)\n"


def test_an_unknown_intrinsic_is_refused_by_name() -> None:
    staged = compiler("gfx950", "async.ll")
    with pytest.raises(UnsupportedError, match=r"does not know llvm\.amdgcn\.asyncmark") as caught:
        staged.to_pre_ra(source("unknown_intrinsic.ll"))
    assert caught.value.where == "async.ll"
    assert "VERILOCC_LLVM" in caught.value.hint
    obj = staged.direct(source("unknown_intrinsic.ll"))
    with pytest.raises(UnsupportedError, match="left as an external symbol"):
        check_object(obj, mir="", cpu="gfx950")
    with pytest.raises(ToolchainError, match="undefined symbol"):
        staged.link(obj)


def test_intrinsics_that_llvm_lowers_do_not_count() -> None:
    staged = compiler("gfx942")
    pre = staged.to_pre_ra(source("abi.ll"))
    assert "@llvm.amdgcn.workgroup.id.x" in pre
    assert "@llvm.amdgcn.kernel.calls.lds" in pre or "lds" in pre
    assert surviving_intrinsics(pre) == ()
    assert surviving_intrinsics("text") == ()


def test_target_ids() -> None:
    assert split_target_id("gfx942") == ("gfx942", "")
    assert split_target_id("gfx942:sramecc+:xnack-") == ("gfx942", "+sramecc,-xnack")
    assert split_target_id("gfx90a:xnack+") == ("gfx90a", "+xnack")
    for bad in ("", "gfx942:xnack", "GFX942;", "gfx942:+xnack"):
        with pytest.raises(InputError, match="not a target id"):
            split_target_id(bad)


def test_features_reach_the_code_object() -> None:
    staged = StagedCompiler(tools(), CompileOptions(*split_target_id("gfx942:sramecc+:xnack-")))
    pre = staged.to_pre_ra(source("wwm.ll"))
    checked = check_object(
        staged.finish_from(pre, LlvmPhase.SGPR), mir=pre, cpu="gfx942", reference=staged.direct(source("wwm.ll"))
    )
    assert read_code_object(checked.data).target.endswith("gfx942:sramecc+:xnack-")


@pytest.mark.parametrize(
    ("target", "kind"), [("gfx99", "processor gfx99"), ("gfx942:nonsense+", r"feature \+nonsense")]
)
def test_an_unknown_processor_or_feature_is_refused_not_ignored(target: str, kind: str) -> None:
    staged = StagedCompiler(tools(), CompileOptions(*split_target_id(target), input_name="k.ll"))
    with pytest.raises(InputError, match=kind):
        staged.to_pre_ra(source("wwm.ll"))


def test_a_phase_cannot_be_resumed_backwards() -> None:
    with pytest.raises(ValueError, match="cannot resume"):
        compiler("gfx942").resume("", done=LlvmPhase.VGPR, until=LlvmPhase.SGPR)


def passes(stderr: str) -> list[str]:
    """Passes that change code, from ``-debug-pass=Structure``; analyses and the set-up of a run left out."""
    left_out = (
        "[Aa]nalysis|Construction|Emitter|Virtual Register Map|Matrix|Slot index|Bundle|Print|Advisor|Arguments|"
        "[Ss]ummary|Information$|Information Storage|Cache|Manager|Free|Configuration|Metadata|Transform|Alias"
    )
    names = [line.strip() for line in stderr.splitlines()]
    return [name for name in names if name and not re.search(left_out, name)]


def test_the_stages_run_the_passes_of_a_direct_compile_in_order() -> None:
    staged = StagedCompiler(tools(), CompileOptions("gfx942", verify=False, llc_options=("-debug-pass=Structure",)))
    text = source("sgpr_spills.ll")
    pre = staged.to_pre_ra(text)
    scalar = staged.llvm_allocate(pre, LlvmPhase.SGPR)
    vector = staged.resume(scalar, done=LlvmPhase.SGPR, until=LlvmPhase.VGPR)
    staged.finish(staged.llvm_allocate(vector, LlvmPhase.VGPR))
    staged.direct(text)
    by_stage = {run.stage: passes(run.stderr) for run in staged.runs}
    # The rewriter that resuming starts with finds nothing to rewrite.
    assert by_stage["resume-vgpr"][0] == "Virtual Register Rewriter"
    joined = by_stage["greedy-sgpr"] + by_stage["resume-vgpr"][1:] + by_stage["greedy-vgpr"] + by_stage["finish"]
    start = by_stage["direct"].index("Greedy Register Allocator")
    wanted = by_stage["direct"][start:]
    # The one pass left out: interprocedural allocation is off (see staged.py).
    wanted.remove("Register Usage Information Collector Pass")
    assert joined == wanted


DYNAMIC = {"of_floats", "of bytes", "by_call"}
"""Kernels of dynamic_lds.ll that use LDS of a size known at launch only."""


def hidden_arguments(obj: bytes) -> dict[str, set[str]]:
    """The kinds of hidden argument of each kernel."""
    kernels = read_code_object(obj).kernels
    return {name: {a[".value_kind"] for a in kernel.raw[".args"]} for name, kernel in kernels.items()}


@pytest.mark.parametrize("cpu", few(("gfx942", "gfx1201"), TARGETS))
def test_the_size_of_dynamic_lds_is_passed_to_the_kernels_that_a_direct_compile_passes_it_to(cpu: str) -> None:
    staged = compiler(cpu)
    text = source("dynamic_lds.ll")
    pre, direct = staged.to_pre_ra(text), staged.direct(text)
    done = all_phases(staged, pre)
    for obj in (staged.finish(done), staged.finish_from(pre, LlvmPhase.SGPR)):
        arguments = hidden_arguments(check_object(obj, mir=pre, cpu=cpu, reference=direct).data)
        assert {name for name, kinds in arguments.items() if "hidden_dynamic_lds_size" in kinds} == DYNAMIC
        assert arguments == hidden_arguments(direct)
        assert read_elf(obj).symbols.keys() == read_elf(direct).symbols.keys(), "a declaration is no symbol"
    asm = staged.finish(done, "asm").decode()
    assert asm.count("hidden_dynamic_lds_size") == len(DYNAMIC)


def test_without_the_declaration_the_argument_is_lost_and_the_place_is_named() -> None:
    staged = compiler("gfx942")
    text = source("dynamic_lds.ll")
    pre, direct = staged.to_pre_ra(text), staged.direct(text)
    lost = llc("gfx942", pre, "-start-before=greedy,0", "-filetype=asm")
    assert lost.count("hidden_dynamic_lds_size") == 1, "by_call has LLVM's own declaration"
    without = pre.replace(
        "@floats = external addrspace(3) global [0 x float]", "@floats = addrspace(3) global [9 x float] poison"
    )
    without = re.sub(r"dynLDSAlign: +16", "dynLDSAlign:     1", without)
    with pytest.raises(ToolchainError) as refused:
        check_object(staged.finish_from(without, LlvmPhase.SGPR), mir=pre, cpu="gfx942", reference=direct)
    assert re.search(
        r"of_floats: \.args at offset 128 is absent, a direct compile has \{.*'hidden_dynamic_lds_size'\} \(unexp",
        refused.value.what,
    )
    assert len(refused.value.what) < 300


def test_an_argument_too_many_is_refused_as_well() -> None:
    staged = compiler("gfx942")
    text = source("dynamic_lds.ll")
    pre = staged.to_pre_ra(text)
    more = re.sub(r"dynLDSAlign: +1$", "dynLDSAlign:     4", pre, flags=re.MULTILINE)
    assert dynamic_lds_users(more) == DYNAMIC | {"of_known_size", "helper"}
    with pytest.raises(
        ToolchainError, match=r"of_known_size: \.args at offset \d+ is \{.*\}, a direct compile has absent"
    ):
        check_object(staged.finish_from(more, LlvmPhase.SGPR), mir=pre, cpu="gfx942", reference=staged.direct(text))


def test_a_debug_record_is_no_use_of_dynamic_lds() -> None:
    pre = compiler("gfx942").to_pre_ra(source("dynamic_lds.ll"))
    assert dynamic_lds_users(pre) == DYNAMIC
    named = re.sub(r"@of_known_size\(.*\{\n", r'\g<0>    #dbg_value(ptr addrspace(3) @"its bytes", !1, !2, !3)\n', pre)
    assert named != pre
    assert dynamic_lds_users(named) == DYNAMIC
    assert dynamic_lds_users(named.replace("#dbg_value(", "call void @f(")) == DYNAMIC | {"of_known_size"}
    assert declare_dynamic_lds("---\nname: k\nbody: |\n...\n") == "---\nname: k\nbody: |\n...\n"


UNCALLED = """
target triple = "amdgcn-amd-amdhsa"
define internal i32 @nobody(i32 %a) noinline {
  ret i32 %a
}
define amdgpu_kernel void @k(ptr addrspace(1) %p) {
  store i32 1, ptr addrspace(1) %p
  ret void
}
"""


def test_a_local_function_that_nothing_calls() -> None:
    staged = compiler("gfx942", "uncalled.ll")
    pre = staged.to_pre_ra(UNCALLED)
    assert "define available_externally i32 @nobody" in pre
    assert "name:            nobody" not in pre
    scalar = staged.llvm_allocate(pre, LlvmPhase.SGPR)
    vector = staged.resume(scalar, done=LlvmPhase.SGPR, until=LlvmPhase.VGPR)
    obj = staged.finish(staged.llvm_allocate(vector, LlvmPhase.VGPR))
    assert check_object(obj, mir=pre, cpu="gfx942", reference=staged.direct(UNCALLED)).data
    assert staged.direct_before(UNCALLED, LlvmPhase.SGPR) == pre
    # LLVM's passes read memory at random where they are given a function without blocks.
    with pytest.raises(InputError, match="defines 'nobody', which has no machine function"):
        load_input(pre.replace("available_externally", "internal").encode(), cpu="gfx942")
    assert load_input(pre.encode(), cpu="gfx942").kind == "mir"


def test_a_module_whose_functions_all_have_machine_code_is_as_printed() -> None:
    text = source("abi.ll")
    assert "available_externally" not in compiler("gfx942", "abi.ll").to_pre_ra(text)
