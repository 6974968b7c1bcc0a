"""What llc compiles, ``compile`` compiles: inputs that once ended in a crash, an error or LLVM's allocation."""

from __future__ import annotations

import pytest
from support import TEST_DATA, few

from smt_verifier.outcome import Outcome
from verilocc_mlir.pipeline.compile import Compiled, compile_module
from verilocc_mlir.pipeline.settings import Effort, Emit, Settings

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
