"""LLVM's machine verifier after allocation: a fault that a plain compile has too is noted, any other ends the run."""

from __future__ import annotations

import re
from functools import lru_cache

import pytest
from support import long
from toolchain_support import compiler, source

from smt_verifier.outcome import Outcome
from verilocc_mlir.pipeline.compile import compile_module
from verilocc_mlir.pipeline.events import Events
from verilocc_mlir.pipeline.finish import Finisher
from verilocc_mlir.pipeline.settings import Emit, Settings
from verilocc_mlir.toolchain.descriptor import read_code_object
from verilocc_mlir.toolchain.run import MAX_STDERR_BYTES, ToolFailure, run_tool
from verilocc_mlir.toolchain.staged import LlvmPhase
from verilocc_mlir.toolchain.verifier import VerifierFault, verifier_fault, verifier_faults, without_functions

pytestmark = pytest.mark.usefixtures("machine_verifier")

CPU = "gfx1100"
UNDEFINED = "Using an undefined physical register"
HALVES = VerifierFault("halves", "SI Insert Hard Clauses", frozenset({UNDEFINED}))


def both_halved() -> str:
    """The module with the other kernel's body replaced by that of ``halves``."""
    text = source("d16_loads.ll")
    head = text.index("define amdgpu_kernel void @halves")
    end = text.index("define amdgpu_kernel void @whole")
    return text[:end] + text[head:end].replace("@halves", "@whole")


@lru_cache(maxsize=4)
def allocated(ir: str) -> str:
    """LLVM's own allocation, as text to be finished."""
    staged = compiler(CPU)
    scalar = staged.llvm_allocate(staged.to_pre_ra(ir), LlvmPhase.SGPR)
    return staged.llvm_allocate(staged.resume(scalar, done=LlvmPhase.SGPR, until=LlvmPhase.VGPR), LlvmPhase.VGPR)


def finisher(ir: str) -> Finisher:
    staged = compiler(CPU)
    return Finisher(staged, lambda names: staged.direct(without_functions(ir, names), verify=True), Events())


def test_a_plain_compile_has_the_fault_and_says_so_only_when_it_is_asked() -> None:
    staged = compiler(CPU)
    staged.direct(source("d16_loads.ll"))
    with pytest.raises(ToolFailure) as failure:
        staged.direct(source("d16_loads.ll"), verify=True)
    assert verifier_fault(failure.value) == HALVES


@pytest.mark.parametrize("emit", [Emit.OBJ, *long(Emit.ASM)])
def test_such_a_kernel_is_compiled_and_the_fault_is_noted(emit: Emit) -> None:
    done = compile_module(source("d16_loads.ll").encode(), "k.ll", Settings(CPU, emit=emit))
    assert done.report.outcome is Outcome.PROVED
    assert done.data
    assert {p.allocator for f in done.report.functions for p in f.phases} == {"deterministic"}
    (note,) = [note for note in done.report.notes if "verifier" in note]
    assert f"{UNDEFINED} in halves after SI Insert Hard Clauses; it says the same of a plain compile" in note


@pytest.mark.long
def test_machine_ir_has_the_same_fault_in_llvms_own_result_of_it() -> None:
    pre = compiler(CPU).to_pre_ra(source("d16_loads.ll"))
    done = compile_module(pre.encode(), "k.mir", Settings(CPU, emit=Emit.OBJ))
    assert done.report.outcome is Outcome.PROVED
    assert any("LLVM's fault" in note for note in done.report.notes)


def test_a_fault_of_the_text_itself_is_an_error_whatever_a_plain_compile_has() -> None:
    text = allocated(source("d16_loads.ll"))
    at = text.rindex("    renamable $vgpr0 = ")
    broken = text[:at] + text[text.index("\n", at) + 1 :]
    with pytest.raises(ToolFailure, match="undefined physical register") as failure:
        finisher(source("d16_loads.ll")).finish(broken)
    found = verifier_fault(failure.value)
    assert found
    assert (found.function, found.after) == ("whole", "")


@pytest.mark.long
def test_a_later_fault_that_only_our_text_shows_is_an_error() -> None:
    """Also in a function behind one with a fault of LLVM's own, at which the verifier stops."""
    text, ours = source("d16_loads.ll"), allocated(both_halved())
    used = finisher(text)
    with pytest.raises(ToolFailure, match="undefined physical register"):
        used.finish(ours)
    assert used.events.notes == ()
    # Of the module that has both, a plain compile has both.
    used = finisher(both_halved())
    assert sorted(read_code_object(used.finish(ours)).kernels) == ["halves", "whole"]
    assert [re.findall(r" in (\w+) after", note) for note in used.events.notes] == [["halves"], ["whole"]]
    # A text that came through is not verified again.
    runs = len(used.compiler.runs)
    assert used.finish(ours, "asm")
    assert [run.stage for run in used.compiler.runs[runs:]] == ["finish"]
    assert "-verify-machineinstrs" not in used.compiler.runs[-1].command


def test_another_pass_or_message_is_another_fault() -> None:
    assert HALVES.within(HALVES)
    assert not HALVES.within(None)
    assert not HALVES.within(VerifierFault("halves", "another pass", HALVES.kinds))
    assert not VerifierFault("halves", HALVES.after, frozenset({UNDEFINED, "Bad"})).within(HALVES)
    assert HALVES.within(VerifierFault("halves", HALVES.after, frozenset({UNDEFINED, "Bad"})))


def test_a_function_left_out_is_neither_verified_nor_emitted() -> None:
    staged = compiler(CPU)
    text = allocated(both_halved())
    faults = verifier_faults(lambda names: staged.finish(without_functions(text, names)))
    assert list(faults) == ["halves", "whole"]
    rest = staged.finish(without_functions(allocated(source("d16_loads.ll")), ["halves"]))
    assert list(read_code_object(rest).kernels) == ["whole"]
    assert without_functions("define internal void @f(i32 %x)", ["f"]) == "define available_externally void @f(i32 %x)"
    assert without_functions('  define void @"f g"()', ["f g"]) == '  define available_externally void @"f g"()'
    assert without_functions("define void @fg()", ["f"]) == "define void @fg()"


def test_the_end_of_a_long_complaint_is_kept() -> None:
    script = f"yes '# dump' | head -c {2 * MAX_STDERR_BYTES} >&2; echo '*** Bad machine code: x ***' >&2; exit 1"
    with pytest.raises(ToolFailure) as failure:
        run_tool(["sh", "-c", script])
    assert failure.value.stderr.startswith("# dump")
    assert failure.value.stderr.endswith("*** Bad machine code: x ***\n")
    assert len(failure.value.stderr) <= MAX_STDERR_BYTES + 1
