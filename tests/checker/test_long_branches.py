"""Branches over more code than they reach: LLVM takes a pair of SGPRs for one (specification 13.4)."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from case_support import CASES
from checker_support import needs_both

from smt_verifier.audit import AuditReport, audit
from smt_verifier.certificate.second import second_checker
from smt_verifier.certificate.verdict import certify_texts
from smt_verifier.checker.check import check
from smt_verifier.checker.outcome import Refused
from smt_verifier.outcome import Outcome
from verilocc_mlir.mir.parser import parse_mir
from verilocc_mlir.pipeline.native import NativeKernel, audit_native, named
from verilocc_mlir.target.targets import target
from verilocc_mlir.toolchain.choose import choose_tools
from verilocc_mlir.toolchain.drivers.job import CompileOptions
from verilocc_mlir.toolchain.long_branches import has_long_branch, near_branches_on
from verilocc_mlir.toolchain.staged import LlvmPhase, StagedCompiler

CPU = "gfx942"
STATEMENTS = 16_500
"""Of assembly, which LLVM takes for 8 bytes each: more than 128 KB."""
SCALARS = """--- |
  define void @f() {{
    ret void
  }}
...
---
name:            f
tracksRegLiveness: true
noVRegs: true
machineFunctionInfo:
  isEntryFunction: false
  stackPtrOffsetReg: '$sgpr32'
  frameOffsetReg:  '$sgpr33'
  scratchRSrcReg:  '$private_rsrc_reg'
body:             |
  bb.0:
    successors: %bb.1, %bb.2
    liveins: $sgpr4, $sgpr30_sgpr31
    S_CMP_LG_U32 $sgpr4, 0, implicit-def $scc
    S_CBRANCH_SCC1 %bb.2, implicit killed $scc

  bb.1:
    liveins: $sgpr30_sgpr31
{}    INLINEASM &"{}", 1
    SI_RETURN

  bb.2:
    S_ENDPGM 0
...
"""
"""A called function of the scalar phase with one return."""
_ASSEMBLY = re.compile(r'(?<=INLINEASM &")[^"]*')


def _with(statements: int, name: str) -> tuple[str, str]:
    """The texts of a case with so many statements of assembly."""
    before, after = ((CASES / f"{name}.{side}.mir").read_text() for side in ("before", "after"))
    code = "s_nop 0\\\\0A" * statements
    return _ASSEMBLY.sub(code, before), _ASSEMBLY.sub(code, after)


def _rules(texts: tuple[str, str]) -> set[str]:
    return {answer.rule for answer in certify_texts(*texts, "f", CPU).answers}


def _audited(texts: tuple[str, str], is_near: Callable[[str], bool] | None) -> AuditReport:
    before, after = map(parse_mir, texts)
    return audit(before, after, target(CPU), near_branches=is_near)


@needs_both
def test_no_pair_is_free_for_a_long_branch() -> None:
    long = _with(STATEMENTS, "memory_long_branch_without_free_scalars")
    assert _rules(long) == {"far-branch"}
    assert not near_branches_on(long[1], CPU)("f")
    report = _audited(long, near_branches_on(long[1], CPU))
    assert report.outcome is Outcome.UNKNOWN
    (finding,) = report.functions[0].findings
    assert finding.rule == "certificate"
    assert "far-branch" in finding.message


@needs_both
def test_a_jump_of_the_texts_own_hides_no_long_branch() -> None:
    """LLVM deletes a block that nothing leads to: there are as many jumps by a register as before."""
    long = _with(STATEMENTS, "memory_long_branch_without_free_scalars")
    own = "  bb.3:\n    successors: %bb.2\n    liveins: $sgpr4_sgpr5\n\n    S_SETPC_B64 $sgpr4_sgpr5\n\n..."
    texts = long[0].removesuffix("...\n") + own, long[1].removesuffix("...\n") + own
    assert not near_branches_on(texts[1], CPU)("f")
    assert _audited(texts, near_branches_on(texts[1], CPU)).outcome is Outcome.UNKNOWN


def test_what_has_almost_the_same_name_says_nothing() -> None:
    """A function whose name is ``f`` between quotes has a near branch, and ``f`` a far one."""
    module, _, long = _with(STATEMENTS, "memory_long_branch_without_free_scalars")[1].partition("...\n")
    _, _, near = _with(1, "memory_long_branch_without_free_scalars")[1].partition("...\n")
    other = near.replace("name:            f", "name: '''f'''")
    both = module.replace(
        "  attributes", "  define amdgpu_kernel void @\"'f'\"() #0 {\n    ret void\n  }\n  attributes"
    )
    is_near = near_branches_on(f"{both}...\n{long}{other}", CPU)
    assert not is_near("f")
    assert not is_near("'f'")


def test_behind_the_scalar_phase_llvm_saves_more() -> None:
    """36 scalars, restored in the block that a branch leads over: LLVM is asked from behind the text's own phase on."""
    named = (n for first in (32, 48, 64, 80, 96) for n in range(first, first + 8) if 33 < n < 102)
    definitions = "".join(f"    dead $sgpr{n} = S_MOV_B32 {n}\n" for n in named)
    text = SCALARS.format(definitions, "s_nop 0\\0A" * 16_346)
    assert near_branches_on(text, CPU)("f")
    assert not near_branches_on(text, CPU, done=LlvmPhase.SGPR)("f")


@needs_both
def test_so_little_code_needs_none() -> None:
    assert _rules(_with(100, "memory_long_branch_without_free_scalars")) == {""}


@needs_both
def test_llvm_is_asked_whether_there_is_one() -> None:
    """Over code that may be too long by the checkers' count."""
    texts = _with(1_000, "memory_long_branch_without_free_scalars")
    asked = list[str]()

    def is_near(name: str) -> bool:
        asked.append(name)
        return near_branches_on(texts[1], CPU)(name)

    report = _audited(texts, is_near)
    (proved,) = report.functions
    assert (proved.outcome, proved.premises, asked) == (Outcome.PROVED, ("near-branches",), ["f"])
    assert _audited(texts, None).outcome is Outcome.UNKNOWN
    with pytest.raises(Refused, match="long branch"):
        check(*texts, proved.certificate, CPU)
    assert check(*texts, proved.certificate, CPU, near_branches=True).operands == proved.operands
    refused = second_checker(*texts, proved.certificate, CPU, "f")
    assert refused is not None
    assert refused[2] == "far-branch"
    accepted = second_checker(*texts, proved.certificate, CPU, "f", near_branches=True)
    assert accepted is not None
    assert accepted[:2] == (True, proved.operands)


def test_assembly_says_whether_there_is_one() -> None:
    """An order behind allocation that brings one is not taken: it was not asked of (spec 16)."""
    compiler = StagedCompiler(choose_tools(), CompileOptions(CPU, verify=False))
    answers = [
        has_long_branch(compiler.finish(_with(n, "memory_long_branch_without_free_scalars")[1], "asm"))
        for n in (1, STATEMENTS)
    ]
    assert answers == [False, True]


@needs_both
@pytest.mark.parametrize(
    ("statements", "is_known", "outcome"),
    [(1_000, True, Outcome.PROVED), (STATEMENTS, True, Outcome.UNKNOWN), (1_000, False, Outcome.UNKNOWN)],
    ids=["none", "one", "not known"],
)
def test_the_assembly_that_ships_says_it_of_another_compilers_code(
    statements: int, outcome: Outcome, *, is_known: bool
) -> None:
    """The LLVM at hand is another one than IREE's or Triton's."""
    before, after = _with(statements, "memory_long_branch_without_free_scalars")
    compiler = StagedCompiler(choose_tools(), CompileOptions(CPU, verify=False))
    assembly = compiler.finish(after, "asm").decode() if is_known else ""
    kernel = NativeKernel("f", CPU, "another", "greedy", (named("f", "all", before, after),), assembly)
    assert audit_native([kernel]).outcome is outcome


@needs_both
def test_four_pairs_that_nothing_names_are_enough() -> None:
    """LLVM may take two for the scratch descriptor, and one for EXEC."""
    texts = _with(STATEMENTS, "right_long_branch_by_free_scalars")
    assert _rules(texts) == {""}
    named = "    dead $sgpr16_sgpr17 = S_MOV_B64 0\n    S_CMP_EQ"
    before, after = (text.replace("    S_CMP_EQ", named, 1) for text in texts)
    assert _rules((before, after)) == {"far-branch"}
