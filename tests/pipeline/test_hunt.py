"""The parts of a hunt: variants, causes, groups, and a text made small."""

from __future__ import annotations

import re

import pytest
from audit_support import LLVM_FAULTS
from msgspec.structs import replace

from verilocc_mlir.errors import InputError
from verilocc_mlir.pipeline.hunt.reduce import minimise, reduce_mir
from verilocc_mlir.pipeline.hunt.run import VARIANTS, chosen_variants
from verilocc_mlir.pipeline.hunt.worker import failure, plain, shape
from verilocc_mlir.results.hunt import Case, Kind, Row, Suspect, Variant, data_of, group, row_from_data
from verilocc_mlir.toolchain.ir_compat import with_attributes
from verilocc_mlir.toolchain.run import ToolFailure

EARLY = (LLVM_FAULTS / "early_result_over_own_input.mir").read_text()


def test_variants_by_name_and_by_option() -> None:
    assert chosen_variants(()) == VARIANTS
    assert len({variant.name for variant in VARIANTS}) == len(VARIANTS)
    stress, own = chosen_variants(("stress-3",), ("-regalloc=basic -stress-regalloc=5",))
    assert stress.options == ("-stress-regalloc=3",)
    assert own == Variant("-regalloc=basic -stress-regalloc=5", ("-stress-regalloc=5",), (), "basic")
    assert own.size == 2
    with pytest.raises(InputError, match="no variant is called 'nothing'"):
        chosen_variants(("nothing",))
    with pytest.raises(InputError, match="'stress' is no option of LLVM"):
        chosen_variants((), ("stress",))


def test_attributes_replace_those_of_the_same_name() -> None:
    ir = 'define void @k(i32 %a) local_unnamed_addr #0 {\n}\nattributes #0 = { "amdgpu-num-vgpr"="9" "x"="1" }\n'
    text = with_attributes(ir, (("amdgpu-num-vgpr", "64"),))
    assert 'local_unnamed_addr "amdgpu-num-vgpr"="64" #0 {' in text
    assert 'attributes #0 = { "x"="1" }' in text
    assert '@k() "amdgpu-num-vgpr"="64" #0 {' in with_attributes(EARLY, (("amdgpu-num-vgpr", "64"),))
    assert with_attributes(ir, ()) == ir


@pytest.mark.parametrize(
    ("instruction", "expected"),
    [
        ("undef %804.sub7:vreg_256 = nofpexcept V_MUL_F32_e64 0, %1, 0, %4, 0, 0", "V_MUL"),
        ("%0.sub1:vreg_64 = COPY %0.sub0", "COPY of lanes"),
        ("$vgpr1 = COPY $vgpr2", "COPY"),
        ("SI_SPILL_V256_SAVE $vgpr0_vgpr1, %stack.0", "SI_SPILL_V_SAVE"),
        ("renamable $sgpr4 = SI_SPILL_S32_RESTORE %stack.1", "SI_SPILL_S_RESTORE"),
        ("S_BRANCH %bb.4", "S_BRANCH"),
        ("bb.3:", "block"),
    ],
)
def test_the_shape_of_an_instruction(instruction: str, expected: str) -> None:
    assert shape(instruction) == expected


def test_words_without_what_only_one_kernel_has() -> None:
    assert plain("%5.sub0 in bb.3 of 'gemm' has 12 lanes, not $vgpr3, v7") == "… in bb.… of … has … lanes, not …"


@pytest.mark.parametrize(
    ("stderr", "status", "kind", "cause"),
    [
        ("error: <unknown>:0:0: ran out of registers in function 'gemm'", 1, Kind.GAVE_UP, "ran out of registers"),
        (
            "# After Virtual Register Rewriter\n"
            "*** Bad machine code: Using an undefined physical register ***\n- function:    k\n\n",
            1,
            Kind.REJECTED,
            "Using an undefined physical register, after Virtual Register Rewriter",
        ),
        (
            "1.\tRunning pass 'Function Pass Manager' on x\n2.\tRunning pass 'Greedy Register Allocator' on f\n",
            -11,
            Kind.CRASH,
            "no message (status -…) in Greedy Register Allocator",
        ),
    ],
)
def test_what_llvm_does_instead_of_a_text(stderr: str, status: int, kind: Kind, cause: str) -> None:
    error = ToolFailure("llc failed", where="k.ll", hint="", status=status, line="no message", stderr=stderr)
    suspect = failure(error, "after sgpr")
    assert (suspect.kind, suspect.cause, suspect.phase) == (kind, cause, "after sgpr")


def test_an_unusable_input_is_no_fault_of_llvm_s() -> None:
    assert failure(InputError("LLVM 22 rejects it", where="k.ll"), "input").kind is Kind.UNUSABLE


def test_rows_are_grouped_by_kind_allocator_and_cause() -> None:
    wrong = Suspect(Kind.REFUTED, "vgpr", "value, lost at COPY", "k", "v1 must hold %3")
    small, stressed = Variant("default"), Variant("stress-3", ("-stress-regalloc=3",))
    rows = [
        Row("1", Case("a.ll", "gfx942", stressed), lines=10, phases=1, suspects=(wrong,)),
        Row("2", Case("b.ll", "gfx942", small), lines=90, phases=1, suspects=(wrong, wrong)),
        Row("3", Case("c.ll", "gfx1100", small), lines=70, phases=1, suspects=(wrong,)),
        Row("4", Case("d.ll", "gfx942", small), phases=1, suspects=(replace(wrong, kind=Kind.GAVE_UP),)),
        Row("5", Case("e.ll", "gfx942", Variant("fast", regalloc="fast")), phases=1, suspects=(wrong,)),
        Row("6", Case("f.ll", "gfx942", small), phases=3, proved=3),
    ]
    greedy, fast = group(rows)
    assert (greedy.cases, greedy.example.key, fast.regalloc) == (3, "3", "fast")  # fewest options, then the shortest
    assert greedy.targets == (("gfx942", 2), ("gfx1100", 1))
    assert [row_from_data(data_of(row)) for row in rows] == rows


def test_items_that_are_not_needed_are_left_out() -> None:
    tried: list[list[int]] = []

    def answer(kept: list[int]) -> bool:
        tried.append(kept)
        return {3, 17} <= set(kept)

    assert minimise(range(40), lambda kept: answer(list(kept))) == [3, 17]
    assert len(tried) < 40
    assert minimise([], lambda kept: True) == []


LOOP = """--- |
  define amdgpu_kernel void @k() #0 {
  entry:
    ret void
  }
...
---
name:            other
body:             |
  bb.0:
    S_ENDPGM 0
...
---
name:            k
tracksRegLiveness: true
registers:
  - { id: 0, class: vgpr_32 }
body:             |
  bb.0.entry:
    successors: %bb.1(0x80000000)
    liveins: $sgpr0, $vgpr0

    %0:vgpr_32 = COPY $vgpr0, debug-location !3
    S_BRANCH %bb.1

  bb.1.loop (%ir-block.3):
    successors: %bb.1(0x40000000), %bb.2(0x40000000)

    %1:vgpr_32 = V_ADD_U32_e32 %0, %0, implicit $exec
    KEEP_ME %1 :: (load (s32) from %ir.p, addrspace 1)
    S_CBRANCH_SCC1 %bb.1, implicit $scc
    S_BRANCH %bb.2

  bb.2:
    S_ENDPGM 0
...
"""


def test_machine_ir_is_reduced_to_what_the_question_needs() -> None:
    reduced = reduce_mir(LOOP, lambda text: bool(re.search(r"^name: +k$", text, re.M)) and "KEEP_ME" in text)
    assert reduced == "---\nname:            k\nbody:             |\n  bb.0:\n    KEEP_ME %1\n\n...\n"


def test_blocks_that_the_question_needs_are_kept() -> None:
    reduced = reduce_mir(LOOP, lambda text: all(word in text for word in ("KEEP_ME", "$vgpr0", "%bb.1(")))
    body = [line.strip() for line in reduced.partition("body:")[2].splitlines()[1:] if line.strip()]
    assert body == [
        "bb.0:",
        "successors: %bb.1(0x80000000)",
        "liveins: $vgpr0",
        "bb.1:",
        "KEEP_ME %1",
        "...",
    ]
