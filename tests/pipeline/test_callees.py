"""Callees first: callers use the registers that they leave alone, and the final code is proved to keep the promise."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from unittest.mock import Mock, patch

import pytest
from support import TEST_DATA, few
from toolchain_support import TARGETS, compiler

from smt_verifier.audit import audit
from smt_verifier.outcome import Outcome
from verilocc_mlir.allocators import AllocationFailure
from verilocc_mlir.allocators.deterministic import DeterministicAllocator
from verilocc_mlir.cost.model import KernelCost, cost_of_assembly
from verilocc_mlir.mir.parser import parse_mir
from verilocc_mlir.pipeline import attempt
from verilocc_mlir.pipeline import compile as compile_module_of
from verilocc_mlir.pipeline.callees import (
    Broken,
    Promises,
    callees_first,
    check_promises,
    custom_mask,
    to_withhold,
)
from verilocc_mlir.pipeline.compile import Compiled, compile_module
from verilocc_mlir.pipeline.guard import spill_traffic
from verilocc_mlir.pipeline.opened import Work
from verilocc_mlir.pipeline.phase import PhaseRunner
from verilocc_mlir.pipeline.portfolio import Kept, Portfolio
from verilocc_mlir.pipeline.settings import Effort, Emit, Settings
from verilocc_mlir.problem.build import build_problem
from verilocc_mlir.problem.model import AllocationProblem, Phase, Proposal
from verilocc_mlir.rewrite import arguments
from verilocc_mlir.target.callingconv import callee_saved, calls_in, kept_for_callers, regmask
from verilocc_mlir.target.frame import file_units
from verilocc_mlir.target.registers import Bank, physical_register, unit_bank
from verilocc_mlir.target.targets import target
from verilocc_mlir.toolchain.mir_repairs import close_masks, shorten_masks
from verilocc_mlir.toolchain.staged import StagedCompiler

ROWS = (TEST_DATA / "callees" / "two_levels.ll").read_text()
HANDED_ON = (TEST_DATA / "callees" / "handed_on.ll").read_text()
LOADED = (TEST_DATA / "callees" / "loaded_arguments.ll").read_text()
CONVENTION = (TEST_DATA / "callees" / "by_convention.ll").read_text()
KEPT = "callers use registers that these leave alone, as is proved of their final code: "


def promised(ir: str, cpu: str) -> Promises:
    staged = compiler(cpu)
    return callees_first(staged.to_pre_ra(ir), "calls.ll", staged, target(cpu), {})


def compiled(ir: str, cpu: str, *, effort: Effort = Effort.FAST, emit: Emit = Emit.ASM) -> Compiled:
    return compile_module(ir.encode(), "calls.ll", Settings(cpu=cpu, effort=effort, emit=emit))


@lru_cache(maxsize=None)
def rows_compiled(emit: Emit) -> Compiled:
    """``ROWS`` as it comes, for the tests that only look at it."""
    return compiled(ROWS, "gfx942", emit=emit)


def accumulators(count: int, callee: str = "half") -> str:
    """A kernel of 1,024 threads that keeps ``count`` values while a local function is called in a loop."""
    numbers = range(count)
    lines = ["define internal float @half(float %a) noinline {", "  %h = fmul float %a, 0.5", "  ret float %h", "}"]
    lines += ["define internal float @quarter(float %a) noinline {", "  %h = call float @half(float %a)"]
    lines += ["  %q = call float @half(float %h)", "  %s = fadd float %q, 1.0", "  ret float %s", "}"]
    lines += ["define amdgpu_kernel void @tile(ptr addrspace(1) %x, ptr addrspace(1) %o, i32 %n) #0 {", "entry:"]
    lines += [
        "  %id = call i32 @llvm.amdgcn.workitem.id.x()",
        "  %p = getelementptr float, ptr addrspace(1) %x, i32 %id",
    ]
    for k in numbers:
        lines += [f"  %p{k} = getelementptr float, ptr addrspace(1) %p, i32 {4096 * k}"]
        lines += [f"  %v{k} = load float, ptr addrspace(1) %p{k}"]
    lines += ["  br label %loop", "loop:", "  %i = phi i32 [ 0, %entry ], [ %j, %loop ]"]
    lines += [f"  %a{k} = phi float [ %v{k}, %entry ], [ %b{k}, %loop ]" for k in numbers]
    lines += [f"  %c = call float @{callee}(float %a0)"]
    lines += [f"  %m{k} = fmul float %a{k}, %c\n  %b{k} = fadd float %m{k}, %a{(k + 1) % count}" for k in numbers]
    lines += [
        "  %j = add i32 %i, 1",
        "  %more = icmp slt i32 %j, %n",
        "  br i1 %more, label %loop, label %done",
        "done:",
    ]
    for k in numbers:
        lines += [f"  %q{k} = getelementptr float, ptr addrspace(1) %o, i32 {4096 * k}"]
        lines += [f"  store float %b{k}, ptr addrspace(1) %q{k}"]
    lines += ["  ret void", "}", "declare i32 @llvm.amdgcn.workitem.id.x()"]
    lines += ['attributes #0 = { "amdgpu-flat-work-group-size"="1024,1024" }']
    return "\n".join(['target triple = "amdgcn-amd-amdhsa"', *lines, ""])


TAIL = """target triple = "amdgcn-amd-amdhsa"
define internal float @half(float %a) noinline {
  %h = fmul float %a, 0.5
  ret float %h
}
define internal float @quarter(float %a) noinline {
  %h = call float @half(float %a)
  %q = tail call float @half(float %h)
  ret float %q
}
define amdgpu_kernel void @k(ptr addrspace(1) %x) {
  %v = load float, ptr addrspace(1) %x
  %q = call float @quarter(float %v)
  store float %q, ptr addrspace(1) %x
  ret void
}
"""


def by_convention(text: str, *_: object) -> Promises:
    return Promises(text)


def costs(assembly: bytes | None, cpu: str) -> dict[str, KernelCost]:
    assert assembly is not None
    return cost_of_assembly(assembly.decode(), target(cpu))


def kept_without(name: str) -> Callable[[Portfolio], Kept | None]:
    """What a portfolio keeps, or nothing where callers count on what the function ``name`` leaves alone."""
    kept = Portfolio.kept
    return lambda portfolio: None if name in portfolio.given.promised else kept(portfolio)


@pytest.mark.parametrize("cpu", few(("gfx942",), TARGETS))
def test_what_is_loaded_for_a_call_is_loaded_to_where_the_call_wants_it(cpu: str) -> None:
    """The addresses come first. In the arguments' registers they would cost a copy and a wait for each load."""
    result = compiled(LOADED, cpu)
    assert result.report.outcome is Outcome.PROVED
    ours, llvms = costs(result.data, cpu)["volumes"], costs(compiler(cpu).direct(LOADED, "asm"), cpu)["volumes"]
    assert ours.issued <= llvms.issued
    assert ours.latency <= 1.1 * llvms.latency


@pytest.mark.long
@pytest.mark.parametrize("cpu", few(("gfx942",), ("gfx90a", "gfx942", "gfx950")))
def test_a_caller_that_spills_keeps_the_accumulators_that_its_callee_leaves_alone(cpu: str) -> None:
    ir = accumulators(136)
    result = compiled(ir, cpu)
    assert result.report.outcome is Outcome.PROVED
    assert f"{KEPT}half" in result.report.notes or f"{KEPT}half, quarter" in result.report.notes
    ours, llvms = costs(result.data, cpu)["tile"], costs(compiler(cpu).direct(ir, "asm"), cpu)["tile"]
    assert 0 < ours.scratch.weighted < llvms.scratch.weighted


def test_a_callee_with_a_frame_that_saves_no_vector_register_leaves_accumulators_alone() -> None:
    promises = promised(accumulators(136, "quarter"), "gfx942")
    caller_saved = frozenset(file_units(Bank.AGPR)) - callee_saved("ccc", target("gfx942"))
    assert promises.kept["half"] >= caller_saved
    assert promises.kept["quarter"] >= caller_saved


@pytest.mark.parametrize("cpu", few(("gfx942",), TARGETS))
def test_the_address_of_a_tail_call_is_put_only_where_it_may_be(cpu: str) -> None:
    """It is used by a call before, so it would live best in a callee-saved register."""
    with patch.object(compile_module_of, "callees_first", by_convention):
        report = compiled(TAIL, cpu).report
    assert report.outcome is Outcome.PROVED
    (function,) = (f for f in report.functions if f.name == "quarter")
    scalar = next(phase for phase in function.phases if phase.phase == "sgpr")
    assert not any("class-membership" in attempt.reason for attempt in scalar.attempts)


@pytest.mark.parametrize("cpu", few(("gfx942",), TARGETS))
def test_what_callers_keep_is_no_longer_saved(cpu: str) -> None:
    result = compiled(ROWS, cpu)
    assert result.report.outcome is Outcome.PROVED
    assert f"{KEPT}step1, step2" in result.report.notes
    ours = costs(result.data, cpu)
    with patch.object(compile_module_of, "callees_first", by_convention):
        before = costs(compiled(ROWS, cpu).data, cpu)
    direct = costs(compiler(cpu).direct(ROWS, "asm"), cpu)
    assert spill_traffic(before["step2"]) > spill_traffic(ours["step2"])
    assert before["rows"].vectors > 1.5 * ours["rows"].vectors
    for name, llvms in direct.items():
        assert ours[name].occupancy >= llvms.occupancy
        assert spill_traffic(ours[name]) <= spill_traffic(llvms)


@pytest.mark.long
@pytest.mark.parametrize("cpu", [cpu for cpu in TARGETS if cpu != "gfx90a"])
@patch.object(StagedCompiler, "inferred", Mock(return_value=None))
def test_arguments_that_callees_keep_are_not_made_again(cpu: str) -> None:
    """The kernel is no dearer than in LLVM's own compile, which allocates interprocedurally; a callee between may be by
    the scalars that LLVM may take for its frame, which nobody counts on here. All of it where there is no opt. On
    gfx90a LLVM hands such an argument over the scratch descriptor (tests/audit/test_llvm.py).
    """
    result = compiled(HANDED_ON, cpu)
    assert result.report.outcome is Outcome.PROVED
    assert f"{KEPT}inner, outer" in result.report.notes
    ours, direct = costs(result.data, cpu), costs(compiler(cpu).direct(HANDED_ON, "asm"), cpu)
    with patch.object(attempt, "arguments_in_place", return_value=None):
        before = costs(compiled(HANDED_ON, cpu).data, cpu)
    copies = {name: cost.scalar_copies.weighted + cost.copies.weighted for name, cost in ours.items()}
    assert copies["handed_on"] < before["handed_on"].scalar_copies.weighted + before["handed_on"].copies.weighted
    for name, llvms in direct.items():
        if llvms.is_kernel:
            assert ours[name].cycles <= llvms.cycles
            assert ours[name].scalar_copies.weighted <= llvms.scalar_copies.weighted
        assert ours[name].scratch_bytes == llvms.scratch_bytes
        assert spill_traffic(ours[name]) <= spill_traffic(llvms)


@pytest.mark.parametrize(("cpu", "first"), [("gfx90a", 4), ("gfx942", 0)])
def test_a_callee_takes_other_registers_than_those_that_hold_arguments(cpu: str, first: int) -> None:
    """The lowest are free for it, and whoever calls it would make the arguments again that were in them."""
    inner, gpu = promised(HANDED_ON, cpu).kept["inner"], target(cpu)
    arguments_of_callers = frozenset(
        unit for n in (first, *range(4, 16)) for unit in physical_register(f"sgpr{n}").units
    )
    assert inner >= arguments_of_callers - callee_saved("ccc", gpu)


PAIRS = """target triple = "amdgcn-amd-amdhsa"
define internal i64 @step(i64 %a, i64 %b) noinline {
  %c = add i64 %a, %b
  %d = shl i64 %c, 2
  %e = add i64 %d, %b
  ret i64 %e
}
define amdgpu_kernel void @k(ptr addrspace(1) %x, i64 %n) {
  %id = call i32 @llvm.amdgcn.workitem.id.x()
  %p = getelementptr i64, ptr addrspace(1) %x, i32 %id
  %v = load i64, ptr addrspace(1) %p
  %a = call i64 @step(i64 %n, i64 %v)
  %b = call i64 @step(i64 %a, i64 %v)
  store i64 %b, ptr addrspace(1) %p
  ret void
}
declare i32 @llvm.amdgcn.workitem.id.x()
"""


def test_a_tuple_whose_parts_are_arguments_that_callers_keep_is_not_moved() -> None:
    result = compiled(PAIRS, "gfx942")
    assert result.report.outcome is Outcome.PROVED
    assert f"{KEPT}step" in result.report.notes
    assert costs(result.data, "gfx942")["step"].copies.weighted == 0


STACK_OBJECT = """target triple = "amdgcn-amd-amdhsa"
define internal float @inner(float %a, ptr addrspace(5) %p) noinline {
  store float %a, ptr addrspace(5) %p
  %h = fmul float %a, 0.5
  ret float %h
}
define internal float @outer(float %a) noinline {
  %p = alloca float, addrspace(5)
  %h = call float @inner(float %a, ptr addrspace(5) %p)
  ret float %h
}
define amdgpu_kernel void @k(ptr addrspace(1) %x, i32 %n) {
entry:
  br label %loop
loop:
  %i = phi i32 [ 0, %entry ], [ %j, %loop ]
  %p = getelementptr float, ptr addrspace(1) %x, i32 %i
  %v = load float, ptr addrspace(1) %p
  %a = call float @outer(float %v)
  %b = call float @outer(float %a)
  store float %b, ptr addrspace(1) %p
  %j = add i32 %i, 1
  %more = icmp slt i32 %j, %n
  br i1 %more, label %loop, label %done
done:
  ret void
}
"""


@pytest.mark.parametrize("cpu", few(("gfx942",), TARGETS))
def test_arguments_that_no_callee_reads_are_not_made_again_before_each_call(cpu: str) -> None:
    """LLVM may take any scalar where a stack object is addressed, so nobody counts on those with arguments."""
    result = compiled(STACK_OBJECT, cpu)
    assert result.report.outcome is Outcome.PROVED
    assert f"{KEPT}inner, outer" in result.report.notes
    ours, llvms = costs(result.data, cpu)["k"], costs(compiler(cpu).direct(STACK_OBJECT, "asm"), cpu)["k"]
    assert ours.issued <= llvms.issued
    with patch.object(StagedCompiler, "inferred", return_value=None):
        assert costs(compiled(STACK_OBJECT, cpu).data, cpu)["k"].issued > llvms.issued


def test_a_value_in_the_place_of_another_is_refuted() -> None:
    """What keeps arguments in place is not trusted: without its own check of what else is there, the audit objects."""
    before, gpu = promised(HANDED_ON, "gfx942").text, target("gfx942")

    def outcomes() -> set[Outcome]:
        runner = PhaseRunner(Work("calls.ll", Settings(), compiler("gfx942"), gpu, (DeterministicAllocator(),)))
        after = runner.draft(before, "sgpr").after
        return {f.outcome for f in audit(parse_mir(before), parse_mir(after), gpu).functions}

    assert outcomes() == {Outcome.PROVED}
    with patch.object(arguments._Places, "_has_its_value", return_value=True):
        assert Outcome.REFUTED in outcomes()


@pytest.mark.long
@pytest.mark.parametrize("effort", [Effort.BALANCED])
def test_the_promise_holds_of_whatever_is_kept(effort: Effort) -> None:
    result = compiled(ROWS, "gfx942", effort=effort, emit=Emit.MIR)
    assert result.report.outcome is Outcome.PROVED
    assert result.data is not None
    assert ("CustomRegMask" in result.data.decode()) == (f"{KEPT}step1, step2" in result.report.notes)


def test_calls_that_keep_to_the_convention() -> None:
    promises = promised(CONVENTION, "gfx942")
    assert tuple(promises.kept) == ("local",)
    file = parse_mir(promises.text)
    calls = {call.callee: call for f in file.functions for call in calls_in(f) if f.name == "f"}
    assert {name for name, call in calls.items() if call.is_written_out} == {"local"}
    assert set(calls) == {"recursive", "replaceable", "seen", "elsewhere", "", "local"}
    by_name = [call for f in file.functions for call in calls_in(f) if call.callee == "recursive"]
    assert len(by_name) == 2
    assert not any(call.is_written_out for call in by_name)


def test_only_the_masks_are_others() -> None:
    staged = compiler("gfx942")
    before = staged.to_pre_ra(ROWS)
    promises = callees_first(before, "calls.ll", staged, target("gfx942"), {})
    assert re.sub(r"CustomRegMask\([^)]*\)", "csr_amdgpu_gfx90ainsts", promises.text) == before
    again = callees_first(promises.text, "calls.ll", staged, target("gfx942"), {})
    assert again == Promises(promises.text), "masks that are written out are somebody else's"


def test_masks_say_more_than_the_convention_and_callees_are_asked_to_keep_it() -> None:
    file = parse_mir(promised(ROWS, "gfx942").text)
    convention = regmask("csr_amdgpu_gfx90ainsts")
    for function in file.functions:
        for call in calls_in(function):
            beyond = call.kept - convention
            assert beyond
            assert custom_mask(call.kept) == call.masks[0]
            assert kept_for_callers(file, call.callee, target("gfx942")) >= beyond
    for function in file.functions:
        kept = kept_for_callers(file, function.name, target("gfx942"))
        scalars = frozenset(unit for unit in kept if unit_bank(unit) is Bank.SGPR)
        phases: dict[Phase, frozenset[int]] = {"sgpr": scalars, "vgpr": kept - scalars}
        for phase, of_phase in phases.items():
            problem = build_problem(file, function, target("gfx942"), phase)
            occupied = [f for f in problem.fixed if f.reason == "kept for callers"]
            assert bool(occupied) == bool(of_phase), function.name
            assert all(f.segments == ((0, problem.slots),) for f in occupied)


def test_a_function_that_needs_no_frame_is_not_given_one_to_save_registers() -> None:
    """LLVM would take registers for it that callers count on."""
    file, gpu = parse_mir(promised(ROWS, "gfx942").text), target("gfx942")
    for function in file.functions:
        if not kept_for_callers(file, function.name, gpu):
            continue
        problem = build_problem(file, function, gpu, "vgpr")
        barred = {unit for f in problem.fixed if f.reason == "kept for callers" for unit in f.units}
        saved = {unit for unit in callee_saved("ccc", gpu) if unit_bank(unit) is Bank.VGPR}
        assert bool(barred & saved) == (not any(calls_in(function))), function.name


@pytest.mark.parametrize(
    ("unproved", "withheld"),
    [(["step2"], {"step2"}), (["rows"], {"step2"}), (["step1", "rows"], {"step1", "step2"}), ([], set())],
)
def test_what_is_not_proved_withholds_its_own_promise_or_those_that_it_counts_on(
    unproved: list[str], withheld: set[str]
) -> None:
    promises = promised(ROWS, "gfx942")
    doubtful = to_withhold(promises, parse_mir(promises.text), unproved)
    assert set(doubtful) == withheld
    assert all(doubtful[name] >= promises.kept[name] for name in withheld)


@pytest.mark.long
def test_one_function_that_is_not_proved_does_not_cost_the_others_their_promises() -> None:
    """Nothing is kept of a compile in which callers count on ``step2``."""
    with patch.object(Portfolio, "unproved", ["step2"]), patch.object(Portfolio, "kept", kept_without("step2")):
        result = compiled(ROWS, "gfx942", emit=Emit.MIR)
    assert result.report.outcome is Outcome.PROVED
    assert f"{KEPT}step1" in result.report.notes


def test_a_module_without_internal_calls_is_as_it_was() -> None:
    ir = (TEST_DATA / "toolchain" / "abi.ll").read_text()
    staged = compiler("gfx942")
    alone = re.sub(r"define internal.*?\n}\n", "", ir, flags=re.DOTALL).replace("@helper", "@other")
    alone += "\ndeclare i32 @other(i32, i32)\n"
    before = staged.to_pre_ra(alone)
    assert callees_first(before, "calls.ll", staged, target("gfx942"), {}) == Promises(before)


def test_final_code_that_breaks_the_promise_is_not_shipped() -> None:
    cpu = "gfx942"
    text = rows_compiled(Emit.MIR).data
    assert text is not None
    allocated, staged = text.decode(), compiler(cpu)
    assert check_promises(allocated, staged.finish(allocated), "calls.ll", staged, target(cpu)) is None
    kept = kept_for_callers(parse_mir(allocated), "step1", target(cpu))
    register = f"$vgpr{min(kept) // 2}"
    begin = allocated.index("body:", allocated.index("\nname:            step1\n"))
    line = allocated.index("\n    ", allocated.index("liveins:", begin)) + 1
    broken = f"{allocated[:line]}    {register} = V_MOV_B32_e32 0, implicit $exec\n{allocated[line:]}"
    overwritten = check_promises(broken, staged.finish(broken), "calls.ll", staged, target(cpu))
    assert overwritten is not None
    assert re.match(r"v\d+\.lo is written, and a call of step1 says that it is kept", overwritten.why)
    assert {*overwritten.doubtful} >= {"step1"}
    other = check_promises(allocated, staged.finish(broken), "calls.ll", staged, target(cpu))
    assert other is not None
    assert other.why.startswith("the object is not the one that LLVM makes")


def test_what_is_written_for_others_has_masks_as_llvm_reads_them() -> None:
    result = rows_compiled(Emit.MIR)
    assert result.data is not None
    for text in (result.before, result.data.decode()):
        assert close_masks(text) == text != shorten_masks(text)
    report = audit(parse_mir(result.before), parse_mir(result.data.decode()), target("gfx942"))
    assert "operands" not in {f.rule for function in report.functions for f in function.findings}


def test_a_broken_promise_ends_in_calls_by_the_convention() -> None:
    with patch.object(compile_module_of, "check_promises", return_value=Broken("v5.lo is written")):
        result = compiled(ROWS, "gfx942", emit=Emit.MIR)
    assert result.report.outcome is Outcome.PROVED
    assert "calls keep to the calling convention: v5.lo is written" in result.report.notes
    assert result.data is not None
    assert "CustomRegMask" not in result.data.decode()


@pytest.mark.long
@pytest.mark.parametrize(
    ("convention", "masks"),
    few([((1, 9.0), True)], [((0, 9.0), False), ((1, 8.0), False), ((1, 9.0), True)]),
)
def test_what_falls_short_is_compared_with_calls_by_the_convention(convention: tuple[int, float], masks: bool) -> None:
    with patch.object(Portfolio, "standing", side_effect=[(1, 9.0), convention]):
        result = compiled(CONVENTION, "gfx942", emit=Emit.MIR)
    assert result.report.outcome is Outcome.PROVED
    assert result.data is not None
    assert ("CustomRegMask" in result.data.decode()) is masks
    assert any(note.startswith("calls keep to the calling convention") for note in result.report.notes) is not masks


class Never:
    """An allocator without answers: LLVM's allocation is taken, which knows of no promise."""

    name = "never"
    version = "1"

    def allocate(self, problem: AllocationProblem) -> Proposal:
        raise AllocationFailure("never", reason="defect")


@pytest.mark.long
def test_an_allocation_of_llvms_is_checked_the_same() -> None:
    settings = Settings(cpu="gfx942", effort=Effort.FAST, emit=Emit.MIR)
    result = compile_module(ROWS.encode(), "calls.ll", settings, allocators=(Never(),))
    assert result.report.outcome is Outcome.PROVED
    assert result.data is not None
    masks = "CustomRegMask" in result.data.decode()
    assert masks == any(note.startswith(KEPT) for note in result.report.notes)
