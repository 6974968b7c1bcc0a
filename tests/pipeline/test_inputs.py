"""What llc compiles, ``compile`` compiles: inputs that once ended in a crash, an error or LLVM's allocation."""

from __future__ import annotations

from unittest.mock import patch

import pytest
from support import TEST_DATA, few

from smt_verifier.outcome import Outcome
from verilocc_mlir.allocators import deterministic
from verilocc_mlir.allocators.tables import Tables
from verilocc_mlir.cost.model import cost_of_assembly
from verilocc_mlir.errors import InputError, ToolchainError
from verilocc_mlir.pipeline.compile import Compiled, compile_module
from verilocc_mlir.pipeline.events import Event, Tried
from verilocc_mlir.pipeline.settings import Effort, Emit, Settings
from verilocc_mlir.target.targets import target

INPUTS = TEST_DATA / "inputs"


def compiled(name: str, cpu: str, effort: Effort = Effort.FAST, emit: Emit = Emit.HSACO) -> Compiled:
    return compile_module((INPUTS / name).read_bytes(), name, Settings(cpu, effort=effort, emit=emit))


def is_ours(done: Compiled) -> bool:
    """Whether all is proved and our own; the whole-wave phase is LLVM's always."""
    phases = [phase for function in done.report.functions for phase in function.phases]
    return done.report.outcome is Outcome.PROVED and {p.allocator for p in phases if p.phase != "wwm"} == {
        "deterministic"
    }


@pytest.mark.parametrize(
    "name",
    [
        "kernel_without_scalars.ll",
        "asm_agpr_def_use.ll",
        "whole_wave_bracket_itself.mir",
        "kernel_unreachable.ll",
        "vgprs_clobbered_in_pieces.ll",
        "mir_without_ir.mir",
        "mir_simplified.mir",
        *few((), ("asm_clobbers_return_address.ll", "asm_clobbers_s33.ll", "csr.ll", "csr33.ll", "wwm.ll")),
    ],
)
def test_it_is_allocated_here_and_proved(name: str) -> None:
    """Without scalars to allocate, one text enters both phases; a kernel may have no instruction; an instruction may
    stand before all that is live; machine IR may leave out its module and whatever has its default.
    """
    done = compiled(name, "gfx942")
    assert is_ours(done), done.report.notes
    assert done.data


@pytest.mark.parametrize(("name", "cpu"), [("asm_writes_vcc_lo.ll", "gfx1100"), ("unnamed_kernel.ll", "gfx942")])
def test_what_the_text_says_in_a_way_of_its_own_is_read(name: str, cpu: str) -> None:
    """VCC in inline assembly of a wave of 32 lanes; functions and globals without a name."""
    done = compiled(name, cpu, emit=Emit.OBJ)
    assert is_ours(done), done.report.notes


def test_features_that_llvm_does_not_know_are_ignored_in_ir_and_refused_as_options() -> None:
    """llc warns and goes on; a misspelt option is said."""
    kernel = (
        "define amdgpu_kernel void @k(ptr addrspace(1) %p) #0 {\n  store i32 1, ptr addrspace(1) %p\n  ret void\n}\n"
    )
    text = f'{kernel}attributes #0 = {{ "target-features"="+fp64-fp16-denormals,-wavefrontsize64,+wavefrontsize32" }}\n'
    done = compile_module(text.encode(), "old.ll", Settings("gfx1100"))
    assert is_ours(done), done.report.notes
    assert any("ignores them: +fp64-fp16-denormals" in note for note in done.report.notes)
    with pytest.raises(InputError, match=r"does not know the feature \+fp64-fp16-denormals"):
        compile_module(text.encode(), "old.ll", Settings("gfx1100", features="+fp64-fp16-denormals"))


def test_a_layout_of_private_memory_alone_is_an_amd_gpu_s() -> None:
    """Old tests of LLVM have no triple, and of the data layout only that private memory is address space 5."""
    kernel = "define amdgpu_kernel void @k(ptr addrspace(1) %p) {\n  store i32 1, ptr addrspace(1) %p\n  ret void\n}\n"
    ir = f'target datalayout = "A5"\n{kernel}'
    assert is_ours(compile_module(ir.encode(), "k.ll", Settings("gfx942")))


@pytest.mark.long
@pytest.mark.parametrize("name", few(("c_calls3.gfx1100.ll",), ("c_calls2.gfx1100.ll", "c_calls3.gfx1100.ll")))
def test_a_better_effort_ends_no_worse(name: str) -> None:
    """What callees keep is kept in every effort: where the final code of one breaks a promise, the rest still holds."""
    cycles: list[float] = []
    for effort in (Effort.FAST, Effort.BALANCED):
        done = compiled(name, "gfx1100", effort, Emit.ASM)
        assert is_ours(done), done.report.notes
        assert any(note.startswith("callers use registers that these leave alone") for note in done.report.notes)
        assert done.data
        costs = cost_of_assembly(done.data.decode(), target("gfx1100"))
        cycles.append(sum(cost.cycles for cost in costs.values()))
    assert cycles[1] <= cycles[0]


@pytest.mark.long
@pytest.mark.usefixtures("machine_verifier")
def test_the_verifiers_false_alarm_at_an_early_clobber_is_noted() -> None:
    """A lane that no value reaches may be in the register that an early clobber writes: the audit proves that. One is,
    where arguments of calls are left as first fit puts them."""

    def as_they_are(_: Tables, starts: list[int]) -> list[int]:
        return starts

    with patch.object(deterministic, "nearer_to_calls", as_they_are):
        done = compiled("c_calls3.gfx1100.ll", "gfx1100", Effort.FAST, Emit.OBJ)
    assert is_ours(done)
    assert any("No live segment at use" in note and "a false alarm" in note for note in done.report.notes)


CALLS_ELSEWHERE = """
target triple = "amdgcn-amd-amdhsa"
declare {linkage} void @elsewhere()
define amdgpu_kernel void @kernel() {{
  call void @elsewhere()
  ret void
}}
"""


def test_what_cannot_be_linked_is_refused_before_anything_is_allocated() -> None:
    told: list[Event] = []
    module = CALLS_ELSEWHERE.format(linkage="").encode()
    with pytest.raises(ToolchainError, match=r"undefined.*symbol: elsewhere") as error:
        compile_module(module, "k.ll", Settings("gfx942"), listeners=(lambda event, _: told.append(event),))
    assert "--emit=obj" in str(error.value)
    assert not any(isinstance(event, Tried) or getattr(event, "step", "") == "allocate" for event in told)


@pytest.mark.parametrize(("linkage", "emit"), [("", Emit.OBJ), ("extern_weak", Emit.HSACO)])
def test_what_others_define_is_left_to_the_linker(linkage: str, emit: Emit) -> None:
    module = CALLS_ELSEWHERE.format(linkage=linkage).encode()
    assert is_ours(compile_module(module, "k.ll", Settings("gfx942", emit=emit)))
