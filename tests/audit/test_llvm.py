"""LLVM's own allocations are proved: no false refutation on any shared kernel, divergent code or call."""

from __future__ import annotations

import os
import re
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from allocation import (
    ALLOCATORS,
    FORCED,
    Pair,
    allocated,
    phases_of_ir,
    phases_of_kernel,
    with_attributes,
    without_lane_copies,
)
from audit_support import CALLS, DIVERGENT, LLVM_FAULTS, MIXED, repeated_undefined_input
from support import TEST_DATA, cpu_of, each_kernel, kernel_paths, llc, long, run_llc

from smt_verifier.audit.wording import render
from smt_verifier.outcome import Outcome
from verilocc_mlir.pipeline.compile import compile_module
from verilocc_mlir.pipeline.settings import Settings
from verilocc_mlir.toolchain.mir_repairs import state_early_clobbers

TARGETS = ["gfx1250", *long("gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1201")]

"""16-bit values, f64 division, scratch, atomics, wide arguments and an empty kernel."""


def proved(pair: Pair) -> None:
    report = pair.audit()
    assert [render(f) for done in report.functions for f in done.findings] == []
    assert report.outcome is Outcome.PROVED
    assert report.obligations > 50


@pytest.mark.parametrize("path", each_kernel())
def test_kernels(path: Path) -> None:
    for pair in phases_of_kernel(path):
        proved(pair)


@pytest.mark.parametrize("cpu", TARGETS)
@pytest.mark.parametrize("text", [DIVERGENT, CALLS, MIXED], ids=["divergent", "calls", "mixed"])
def test_divergent_code_calls_and_mixed_widths(text: str, cpu: str) -> None:
    for pair in phases_of_ir(text, cpu):
        proved(pair)


@pytest.mark.parametrize("cpu", TARGETS)
@pytest.mark.parametrize("name", ["undefined_lanes", "undefined_nested", "halves", "inline_asm"])
def test_undefined_lanes_halves_and_inline_assembly(name: str, cpu: str) -> None:
    text = (TEST_DATA / "rewrite" / f"{name}.ll").read_text()
    for pair in phases_of_ir(text, cpu):
        proved(pair)


@pytest.mark.parametrize("path", each_kernel(lambda name: "gemm_mma_lds" in name))
def test_identity_is_proved(path: Path) -> None:
    scalar, _ = phases_of_kernel(path)
    proved(Pair(scalar.cpu, scalar.post, scalar.post))


def pressing(values: int, scalar: bool) -> str:
    """IR that keeps ``values`` loaded values alive at once, in a loop, with few registers to hold them."""
    space, kind = ("4", "s") if scalar else ("1", "v")
    limit = '"amdgpu-num-sgpr"="32"' if scalar else '"amdgpu-num-vgpr"="24" "amdgpu-agpr-alloc"="0"'
    load = "load i32" if scalar else "load volatile i32"
    loads = "".join(
        f"  %q{k} = getelementptr i32, ptr addrspace({space}) %p, i32 {k * 3}\n"
        f"  %{kind}{k} = {load}, ptr addrspace({space}) %q{k}\n"
        for k in range(values)
    )
    uses = "".join(
        f'  call void asm sideeffect "; use $0", "{kind}"(i32 %{kind}{k})\n' for k in reversed(range(values))
    )
    return (
        'target triple = "amdgcn-amd-amdhsa"\n'
        f"define amdgpu_kernel void @press(ptr addrspace({space}) %p, ptr addrspace(1) %o, i32 %n) {limit} {{\n"
        f"entry:\n{loads}  br label %loop\nloop:\n  %i = phi i32 [0, %entry], [%i2, %loop]\n"
        f"  fence seq_cst\n{uses}  %i2 = add i32 %i, 1\n  %c = icmp ult i32 %i2, %n\n"
        "  br i1 %c, label %loop, label %exit\nexit:\n  ret void\n}\n"
    )


@pytest.mark.parametrize("cpu", ["gfx1201", *long("gfx90a", "gfx942", "gfx1100")])
def test_vector_spills_and_reloads_are_proved(cpu: str) -> None:
    _, vector = phases_of_ir(pressing(300, scalar=False), cpu)
    proved(vector)
    moves = vector.audit().functions[0].moves
    assert moves.saves > 0
    assert moves.reloads > 0


@pytest.mark.parametrize("cpu", ["gfx942", *long("gfx1100")])
def test_scalar_spills_and_reloads_are_proved(cpu: str) -> None:
    scalar, vector = phases_of_ir(pressing(100, scalar=True), cpu)
    proved(scalar)
    proved(vector)
    moves = scalar.audit().functions[0].moves
    assert moves.saves > 0
    assert moves.reloads > 0


@pytest.mark.parametrize("allocator", ALLOCATORS)
@pytest.mark.parametrize("forced", sorted(FORCED))
@pytest.mark.parametrize("path", [p for p in kernel_paths() if "gemm_mma_lds" in p.name], ids=lambda p: p.name)
@pytest.mark.long
def test_other_allocators_and_forced_spilling(path: Path, forced: str, allocator: str) -> None:
    """All kernels are in benchmarks/llvm_sweep.py."""
    cpu = cpu_of(path)
    ir = with_attributes(path.read_text(), FORCED[forced])
    pre = without_lane_copies(run_llc(ir, cpu, "-stop-before=greedy,0", "-enable-ipra=0", mir=False))
    for phase in (0, 2):
        proved(allocated(pre, cpu, phase, allocator))


@pytest.mark.parametrize("allocator", ALLOCATORS)
@pytest.mark.parametrize("cpu", ["gfx1100", *long("gfx90a")])
@pytest.mark.parametrize("text", [DIVERGENT, *long(MIXED)], ids=["divergent", "mixed"])
def test_divergent_code_by_every_allocator(text: str, cpu: str, allocator: str) -> None:
    pre = without_lane_copies(run_llc(text, cpu, "-stop-before=greedy,0", "-enable-ipra=0", mir=False))
    for phase in (0, 2):
        pair = allocated(pre, cpu, phase, allocator)
        if allocator == "fast" and pair.rules() == {"certificate"}:
            continue  # RegAllocFast says of restored scalars that nobody reads them: the search takes no note of it.
        proved(pair)


def test_a_copy_between_lanes_that_llvm_deletes_is_refuted() -> None:
    """A fault of LLVM 22.1: RegAllocFast takes ``%0.sub1 = COPY %0.sub0`` for an identity copy."""
    pre = (LLVM_FAULTS / "fast_drops_lane_copy.mir").read_text()
    assert allocated(pre, "gfx1100", 0, "fast").rules() == {"value"}
    proved_small = allocated(without_lane_copies(pre), "gfx1100", 0, "fast").audit()
    assert proved_small.outcome is Outcome.PROVED


def test_an_early_result_that_llvm_lays_over_its_operand_is_refuted() -> None:
    """A fault of LLVM 22.1: RegAllocFast forgets early-clobber where the result is some lanes of a tuple and unused."""
    pre = (LLVM_FAULTS / "fast_overlaps_early_lanes.mir").read_text()
    assert allocated(pre, "gfx942", 0, "fast").rules() == {"early-clobber"}
    assert allocated(pre, "gfx942", 0, "basic").audit().outcome is Outcome.PROVED


def test_a_tied_part_of_a_tuple_that_llvm_parts_is_refuted() -> None:
    """A fault of LLVM 22.1: where a tied early-clobber result is some lanes of a tuple and marked undef, though it is
    read, RegAllocFast gives it other registers than its operand (LLVM: "Tied physical registers must match").
    """
    pre = (LLVM_FAULTS / "fast_unties_part_of_tuple.mir").read_text()
    assert allocated(pre, "gfx1100", 2, "fast").rules() == {"tied-operand"}
    assert allocated(pre, "gfx1100", 2, "basic").audit().outcome is Outcome.PROVED


def test_tied_parts_of_one_tuple_that_llvm_parts_are_refuted() -> None:
    """A fault of LLVM 22.1: RegAllocFast gives the two results of a swap, which are parts of one tuple, other registers
    than the operands that they are tied to (LLVM: "Tied physical registers must match"). It is what -O0 runs.
    """
    pre = (LLVM_FAULTS / "fast_unties_swapped_parts.mir").read_text()
    assert allocated(pre, "gfx950", 2, "fast").rules() == {"tied-operand"}
    assert allocated(pre, "gfx950", 2, "basic").audit().outcome is Outcome.PROVED


def test_a_tied_undefined_operand_that_llvm_parts_is_refuted() -> None:
    """A fault of LLVM 22.1: RegAllocFast gives an undefined operand the first register of its class, even where it is
    tied to a result (LLVM: "Tied physical registers must match").
    """
    pre = (LLVM_FAULTS / "fast_unties_undefined.mir").read_text()
    assert allocated(pre, "gfx1201", 2, "fast").rules() == {"tied-operand"}
    assert allocated(pre, "gfx1201", 2, "basic").audit().outcome is Outcome.PROVED


@pytest.mark.parametrize("allocator", ALLOCATORS)
def test_an_early_result_of_its_own_input_that_llvm_separates_is_refuted(allocator: str) -> None:
    """Machine IR that no compiler makes: where an early-clobber result is the register that the instruction reads, the
    two values are taken for unconnected, and the definition is renamed but not its read (LLVM's verifier: "No live
    segment at use"; LiveInterval.cpp, ConnectedVNInfoEqClasses).
    """
    pre = (LLVM_FAULTS / "early_result_over_own_input.mir").read_text()
    pair = allocated(pre, "gfx942", 0, allocator)
    assert pair.rules() == {"undef-flag"}
    assert "is read, but not defined on every path" in pair.audit().functions[0].findings[0].message
    row = "  - { id: 1, class: vgpr_32, preferred-register: '', flags: [  ] }\n"
    apart = pre.replace(row, row + row.replace("1", "2", 1)).replace("early-clobber %1", "early-clobber %2")
    assert apart.count("%2") == 1
    assert allocated(apart, "gfx942", 0, allocator).audit().outcome is Outcome.PROVED


def test_a_dead_copy_that_becomes_a_reload_is_proved_and_llvm_s_verifier_stops() -> None:
    """A small fault of LLVM 22.1: where greedy or basic spills the source of a copy that nothing reads, it becomes
    a reload that nothing reads, without a dead flag. The code is right; LLVM's own verifier refuses it.
    """
    pre = (LLVM_FAULTS / "dead_copy_becomes_reload.mir").read_text()
    before = run_llc(pre, "gfx942", "-run-pass=none")
    pair = allocated(before, "gfx942", 0, "greedy", "-stress-regalloc=3")
    assert pair.audit().outcome is Outcome.PROVED
    stages = ("-start-before=greedy,0", "-stop-after=virtregrewriter,0", "-stress-regalloc=3", "-verify-machineinstrs")
    command = [llc(), "-mtriple=amdgcn-amd-amdhsa", "-mcpu=gfx942", "-O3", "-x", "mir", *stages, "-o", os.devnull, "-"]
    done = subprocess.run(command, input=before, capture_output=True, text=True, check=False)
    assert "Instruction ending live segment on dead slot has no dead flag" in done.stderr


def test_a_save_above_the_restored_exec_is_refuted() -> None:
    """A fault of LLVM 22.1's machine IR: the mark of copies that split live ranges is not in the text. Resumed from it,
    greedy saves a vector register for the threads of the branch alone. A compile in one go keeps the mark.
    """
    llc()
    ir = (LLVM_FAULTS / "resumed_without_split_marks.ll").read_text()
    scalar, resumed = phases_of_ir(ir, "gfx1100")
    assert scalar.audit().outcome is Outcome.PROVED
    assert resumed.rules() == {"value"}
    lost = resumed.audit().functions[0].findings[0].lost
    assert lost is not None
    assert "for the threads active there only" in lost.what
    before, after = (
        run_llc(ir, "gfx1100", "-enable-ipra=0", point, mir=False)
        for point in ("-stop-before=greedy,2", "-stop-after=virtregrewriter,2")
    )
    assert Pair("gfx1100", before, after).audit().outcome is Outcome.PROVED


def test_lanes_of_scalars_that_llvm_gives_up_in_a_loop_are_refuted() -> None:
    """A fault of LLVM 22.1, mended by pull request 186348: where all spills and reloads of a lane register are in a
    loop, SILowerSGPRSpills defines it there (IMPLICIT_DEF), so what the iteration before saved counts as lost. The
    checkers refuse the scalar phase for what LLVM makes of it; all together is refuted.
    """
    llc()
    pre = (LLVM_FAULTS / "lane_register_defined_in_loop.mir").read_text()
    scalar = allocated(pre, "gfx1100", 0, "greedy", "-stress-regalloc=3")
    (refused,) = scalar.audit().functions[0].findings
    assert "python: spill-slot" in refused.message
    vector = allocated(pre, "gfx1100", 2, "greedy", "-stress-regalloc=3")
    assert vector.audit().outcome is Outcome.PROVED
    every = Pair("gfx1100", scalar.pre, vector.post)
    assert every.rules() == {"value"}
    lost = every.audit().functions[0].findings[0].lost
    assert lost is not None
    assert lost.site is not None
    definition = f"    {lost.site.text}\n"
    assert re.fullmatch(r" +\$vgpr\d+ = IMPLICIT_DEF\n", definition)
    above, loop = every.post.split("\n  bb.1:", 1)
    loop = loop.replace(definition, "", 1).replace("    liveins: ", f"    liveins: {lost.site.text.split()[0]}, ", 1)
    mended = replace(every, post=f"{above.rstrip()}\n{definition}\n  bb.1:{loop}")
    assert mended.audit().outcome is Outcome.PROVED


@pytest.mark.parametrize("allocator", ["greedy", "basic"])
def test_a_reload_for_all_threads_in_whole_wave_code_is_refuted(allocator: str) -> None:
    """A fault of LLVM 22.1, all allocators that spill: in a called function, what whole-wave code reads is reloaded
    there, for all threads. Of that register nobody saves the lanes that are not active (SIFrameLowering.cpp saves those
    of whole-wave registers alone).
    """
    pre = (LLVM_FAULTS / "reload_in_whole_wave_code.mir").read_text()
    pair = allocated(pre, "gfx1100", 2, allocator, "-stress-regalloc=3")
    assert pair.rules() == {"callee-saved"}
    (found,) = pair.audit().functions[0].findings
    assert "SI_SPILL_V32_RESTORE" in found.instruction
    assert allocated(pre, "gfx1100", 2, allocator).audit().outcome is Outcome.PROVED


def test_an_instruction_with_an_undefined_input_that_llvm_repeats_is_not_proved() -> None:
    (done,) = repeated_undefined_input().audit().functions
    assert done.outcome is Outcome.UNKNOWN
    assert [f.rule for f in done.findings] == ["undefined-input"]
    assert "executed more than once" in done.findings[0].message


def test_the_undefined_input_excuses_nothing_else() -> None:
    pair = repeated_undefined_input()
    at = pair.post.rindex("V_XOR_B32_e32 20")
    wrong = replace(pair, post=pair.post[:at] + pair.post[at:].replace("V_XOR_B32_e32 20", "V_XOR_B32_e32 21", 1))
    assert wrong.rules() == {"instruction-sequence"}
    store = re.search(r"GLOBAL_STORE_DWORD_SADDR .*\$(vgpr\d+), renamable \$sgpr4_sgpr5, 40,", pair.post)
    assert store is not None
    assert "value" in pair.with_post(store[0], store[0].replace(f"${store[1]},", "$vgpr63,")).rules()


def test_the_same_with_a_defined_input_is_proved() -> None:
    pre = (LLVM_FAULTS / "repeats_undefined_input.mir").read_text()
    assert "undef %3:vgpr_32" in pre
    assert allocated(pre.replace("undef %3:vgpr_32", "%0"), "gfx942", 2).audit().outcome is Outcome.PROVED


@pytest.mark.parametrize("allocator", ["greedy", "basic"])
def test_an_argument_beyond_the_budget_that_llvm_reads_after_a_call_is_refuted(allocator: str) -> None:
    """A fault of LLVM 22.1, all allocators that spill: the packed work-item ids arrive in v31; where the budget ends
    below, v31 is reserved, MachineRegisterInfo::isConstantPhysReg takes it for a constant, and what is computed from it
    is computed again after a call that may overwrite it.
    """
    ir = (LLVM_FAULTS / "argument_beyond_budget.ll").read_text()
    pre = run_llc(ir, "gfx942", "-stop-before=greedy,0", "-enable-ipra=0", mir=False)
    assert allocated(pre, "gfx942", 2, allocator).rules() == {"value"}
    wide = run_llc(
        ir.replace('"amdgpu-num-vgpr"="12"', ""), "gfx942", "-stop-before=greedy,0", "-enable-ipra=0", mir=False
    )
    proved(allocated(wide, "gfx942", 2, allocator))


def test_a_conversion_that_llvm_lays_over_its_sources_is_refuted() -> None:
    """A fault of LLVM 22.1, all allocators: v_cvt_scalef32_2xpk16_* writes its result before it has read everything,
    which LLVM's tables say since pull request 188809 only. What is compiled here is told (toolchain/mir_repairs.py).
    """
    llc()
    ir = (LLVM_FAULTS / "conversion_over_its_sources.ll").read_text()
    pre = run_llc(ir, "gfx950", "-stop-before=greedy,2", mir=False)
    assert allocated(pre, "gfx950", 2).rules() == {"early-clobber"}
    told = state_early_clobbers(pre)
    assert told.count("early-clobber %") == 1
    proved(allocated(told, "gfx950", 2))
    ours = compile_module(ir.encode(), "conversion", Settings(cpu="gfx950"))
    assert ours.report.outcome is Outcome.PROVED
    assert state_early_clobbers(ours.before) == ours.before


@pytest.mark.parametrize(("cpu", "outcome"), [("gfx90a", Outcome.UNKNOWN), ("gfx942", Outcome.PROVED)])
def test_an_argument_that_llvm_hands_over_the_scratch_descriptor_is_not_proved(cpu: str, outcome: Outcome) -> None:
    """A fault of LLVM 22.1's instruction selection without flat scratch: an ``inreg`` argument is handed on in s0,
    where the scratch descriptor is, by which the caller then reloads what it saved.
    """
    ir = (LLVM_FAULTS / "inreg_argument_over_descriptor.ll").read_text()
    report = compile_module(ir.encode(), "outer", Settings(cpu=cpu)).report
    assert report.outcome is outcome
    (outer,) = (f for f in report.functions if f.name == "outer")
    reasons = [attempt.reason for phase in outer.phases for attempt in phase.attempts]
    assert any("callee-saved" in reason or "moves the frame" in reason for reason in reasons) == (
        outcome is Outcome.UNKNOWN
    )


LOST_ON_THE_PATH = pytest.mark.xfail(
    strict=True,
    raises=AssertionError,
    reason="11.3 has a virtual register that is dead on the path lost, though the text before has the same one: the "
    "scalar phase of a matrix loop that threads leave one by one has no certificate",
)


@pytest.mark.parametrize("cpu", ["gfx942", *long("gfx90a", "gfx950")])
def test_a_matrix_result_that_llvm_lays_over_what_waiting_threads_hold_is_refuted(cpu: str) -> None:
    """A fault of LLVM 22.1, greedy: matrix instructions ignore EXEC, so the accumulator of a loop that some threads
    skip may not lie over a value with which these wait.
    """
    llc()
    ir = (LLVM_FAULTS / "matrix_result_over_waiting_value.ll").read_text()
    assert allocated(run_llc(ir, cpu, "-stop-before=greedy,2", mir=False), cpu, 2).rules() == {"value"}


@pytest.mark.long
@LOST_ON_THE_PATH
@pytest.mark.parametrize("cpu", ["gfx942", *long("gfx90a", "gfx950")])
def test_ours_lies_beside_what_waiting_threads_hold(cpu: str) -> None:
    """The same, by our allocator (analysis/waiting.py): proved."""
    ir = (LLVM_FAULTS / "matrix_result_over_waiting_value.ll").read_text()
    ours = compile_module(ir.encode(), "tile", Settings(cpu=cpu))
    assert ours.report.outcome is Outcome.PROVED
    assert not any(phase.attempts[-1].allocator == "llvm" for f in ours.report.functions for phase in f.phases)


def _tiles(count: int, columns: int) -> str:
    """A function with ``count`` accumulators of 32x32 in a loop that threads of one wave leave one by one."""
    rows = -(-count // columns)
    text = [
        'target triple = "amdgcn-amd-amdhsa"',
        "declare <16 x float> @llvm.amdgcn.mfma.f32.32x32x8f16(<4 x half>, <4 x half>, <16 x float>, i32, i32, i32)",
        "define void @tile(ptr %p, ptr %q, ptr %r, i32 %n) #0 {",
        "e:\n  %z = icmp sgt i32 %n, 0\n  br i1 %z, label %l, label %x",
        "l:\n  %i = phi i32 [ 0, %e ], [ %j, %l ]",
        *(f"  %c{k} = phi <16 x float> [ zeroinitializer, %e ], [ %m{k}_1, %l ]" for k in range(count)),
        "  %ap = getelementptr <4 x half>, ptr %q, i32 %i\n  %bp = getelementptr <4 x half>, ptr %r, i32 %i",
    ]
    for step, accumulator in enumerate(("%c{}", "%m{}_0")):
        for name, number in (("a", rows), ("b", columns)):
            for k in range(number):
                pointer = f"%{name}p, i32 {256 * k + 64 * step}"
                text.append(f"  %g{name}{k}_{step} = getelementptr <4 x half>, ptr {pointer}")
                text.append(f"  %{name}{k}_{step} = load <4 x half>, ptr %g{name}{k}_{step}")
        for k in range(count):
            operands = f"<4 x half> %a{k // columns}_{step}, <4 x half> %b{k % columns}_{step}"
            operands += f", <16 x float> {accumulator.format(k)}, i32 0, i32 0, i32 0"
            text.append(f"  %m{k}_{step} = call <16 x float> @llvm.amdgcn.mfma.f32.32x32x8f16({operands})")
    text.append("  %j = add i32 %i, 32\n  %d = icmp slt i32 %j, %n\n  br i1 %d, label %l, label %x\nx:")
    text += (f"  %o{k} = phi <16 x float> [ zeroinitializer, %e ], [ %m{k}_1, %l ]" for k in range(count))
    for k in range(count):
        text.append(f"  %h{k} = getelementptr <16 x float>, ptr %p, i32 {k}\n  store <16 x float> %o{k}, ptr %h{k}")
    return "\n".join([*text, "  ret void\n}", 'attributes #0 = { "amdgpu-flat-work-group-size"="256,256" }\n'])


@pytest.mark.long
@pytest.mark.parametrize(
    ("count", "columns"),
    [
        pytest.param(1, 1, marks=LOST_ON_THE_PATH),
        pytest.param(4, 2, marks=LOST_ON_THE_PATH),
        pytest.param(16, 4, marks=LOST_ON_THE_PATH),
    ],
)
def test_what_matrix_operations_read_for_threads_that_left_the_loop_stays(count: int, columns: int) -> None:
    """A thread that has left a loop waits with what the operands held in its last iteration, and the matrix
    instructions of the others' iterations read it again. With 16 accumulators, and 256 registers in which threads wait
    that skip the loop, those wait in memory; LLVM's default text needs two registers for each accumulator, and another
    plan's one.
    """
    done = compile_module(_tiles(count, columns).encode(), "tiles", Settings(cpu="gfx942"))
    assert done.report.outcome is Outcome.PROVED, done.report.notes
    (function,) = done.report.functions
    assert function.phases[-1].attempts[-1].allocator == "deterministic"
    assert any(a.kind == "spill" for a in function.phases[-1].spills) is (count == 16)
    assert (function.plan == "whole-phis") is (count == 16)


ONCE_WRONG = TEST_DATA / "audit" / "once_wrong"
"""Allocations of LLVM that an earlier audit refuted by mistake; the campaign found them (docs/results/campaign.md)."""


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("wrong_pair", id="one of two equal instructions is the repeated one, and not the first"),
        pytest.param("argument_of_argument", id="what is repeated reads what is repeated"),
        pytest.param("copy_of_undefined", id="a copy of an undefined register leaves its target undefined"),
        pytest.param("kill_of_undefined", id="and so does KILL"),
    ],
)
def test_what_was_once_refuted_by_mistake_is_proved(name: str) -> None:
    before, after = ((ONCE_WRONG / f"{name}.{side}.mir").read_text() for side in ("pre", "post"))
    proved(Pair("gfx90a", before, after))
