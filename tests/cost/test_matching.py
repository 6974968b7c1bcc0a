"""Two codes of one kernel are costed with one count of iterations for each loop, or they do not compare."""

from __future__ import annotations

import re

import pytest
from support import run_llc

from verilocc_mlir.cost.assembly import parse_assembly
from verilocc_mlir.cost.compare import compare
from verilocc_mlir.cost.model import KernelCost
from verilocc_mlir.cost.together import Pair, Reference, costs_together, match
from verilocc_mlir.target.targets import target

CPU = "gfx942"
MFMA = "v_mfma_f32_16x16x16_f16 v[0:3], v[4:5], v[6:7], v[0:3]"
STORE = "ds_write_b32 v8, v0"
LOAD = "global_load_dword v9, v[10:11], off"


def function(*code: str) -> str:
    text = f'\t.amdgcn_target "amdgcn-amd-amdhsa--{CPU}"\n\t.type\tk,@function\nk:\n'
    text += "".join(f"{line}\n" if line.endswith(":") else f"\t{line}\n" for line in (*code, "s_endpgm"))
    return f"{text}.Lfunc_end0:\n\t.size\tk, .Lfunc_end0-k\n"


def loop(number: int, *body: str, trips: int | None = None, step: int = 1) -> list[str]:
    """A loop that runs ``trips`` times, which its counter shows; None: the bound is in a register."""
    bound, label = f"0x{trips * step:x}" if trips is not None else "s9", f".LBB0_{number}"
    counter = f"s{number}"
    ends = [f"s_add_i32 {counter}, {counter}, {step}", f"s_cmp_lg_u32 {counter}, {bound}", f"s_cbranch_scc1 {label}"]
    return [f"s_mov_b32 {counter}, 0", f"{label}:", *body, *ends]


def pair(first: str, second: str) -> Pair:
    gpu = target(CPU)
    (found,) = costs_together(parse_assembly(first, gpu), parse_assembly(second, gpu), gpu).values()
    return found


def trips(cost: KernelCost | None) -> list[tuple[int, str]]:
    assert cost is not None
    return [(found.trips, found.source) for found in cost.loops]


def test_a_counter_that_one_code_shows_counts_for_both() -> None:
    """Whether the code shows it depends on the order of its instructions, not on how often the loop runs."""
    shown, hidden = function(*loop(1, MFMA, STORE, trips=32)), function(*loop(1, MFMA, STORE))
    for first, second in ((shown, hidden), (hidden, shown)):
        found = pair(first, second)
        assert not found.problem
        assert [count for count, _ in (*trips(found.first), *trips(found.second))] == [32, 32]
        assert found.first is not None
        assert found.second is not None
        assert found.first.cycles == found.second.cycles
    assert trips(pair(shown, hidden).second) == [(32, "other")]
    assert trips(pair(hidden, hidden).first) == trips(pair(hidden, hidden).second) == [(10, "default")]


def test_a_file_beside_itself_with_another_counter() -> None:
    """LLVM's code, and the same with the bound in a register that nothing sets."""
    ir = """target triple = "amdgcn-amd-amdhsa"
define amdgpu_kernel void @k(ptr addrspace(1) %p) {
entry:
  br label %loop
loop:
  %n = phi i32 [ 0, %entry ], [ %m, %loop ]
  %at = getelementptr i32, ptr addrspace(1) %p, i32 %n
  store volatile i32 %n, ptr addrspace(1) %at
  %m = add i32 %n, 1
  %more = icmp ult i32 %m, 24
  br i1 %more, label %loop, label %end
end:
  ret void
}
"""
    shown = run_llc(ir, CPU, mir=False)
    hidden, changed = re.subn(r"(s_cmp_\w+ \S+) (?:24|0x18|0)$", r"\1 s90", shown, flags=re.MULTILINE)
    assert changed == 1
    found = pair(shown, hidden)
    assert not found.problem
    assert [count for count, _ in trips(found.second)] == [24]


@pytest.mark.parametrize(("counts", "known"), [((32, None), 32), ((None, 16), 32), ((None, None), 20), ((32, 16), 32)])
def test_a_loop_unrolled_twice_runs_half_as_often(counts: tuple[int | None, int | None], known: int) -> None:
    once = function(*loop(1, MFMA, STORE, trips=counts[0]))
    twice = function(*loop(1, MFMA, STORE, MFMA, STORE, trips=counts[1]))
    found = pair(once, twice)
    assert not found.problem
    assert [count for count, _ in trips(found.first)] == [known]
    assert [count for count, _ in trips(found.second)] == [known // 2]


def test_without_matrix_operations_and_stores_loads_show_the_unrolling() -> None:
    once, twice = function(*loop(1, LOAD, trips=32), STORE), function(*loop(1, LOAD, LOAD), STORE)
    found = pair(once, twice)
    assert not found.problem
    assert [count for count, _ in trips(found.second)] == [16]


@pytest.mark.parametrize(("trip_count", "rest"), [(33, 1), (32, 0), (35, 3)])
def test_what_unrolling_leaves_behind_is_matched(trip_count: int, rest: int) -> None:
    body = (MFMA, STORE)
    plain = function(*loop(1, *body, trips=trip_count))
    unrolled = function(*loop(1, *(4 * body)), *loop(2, *body))
    found = pair(plain, unrolled)
    assert not found.problem
    assert [count for count, _ in trips(found.second)] == [8, rest]


def test_an_iteration_that_is_peeled_off_is_one_less_in_the_loop() -> None:
    body = (MFMA, STORE)
    found = pair(function(*loop(1, *body, trips=32)), function(*body, *loop(1, *body)))
    assert not found.problem
    assert [count for count, _ in trips(found.second)] == [31]


def test_loops_that_cannot_be_matched_do_not_compare() -> None:
    """The answer names the loops, and nothing is said of the cycles."""
    first, second = function(*loop(1, MFMA, STORE)), function(*loop(1, MFMA), *loop(2, STORE, STORE))
    found = pair(first, second)
    assert "their loops cannot be matched: .LBB0_1 in the first, .LBB0_1, .LBB0_2 in the second" in found.problem
    (row,) = compare({"k": found})
    assert (row.percent, row.judgement, row.explanation) == (None, None, "")
    assert row.problem == found.problem


@pytest.mark.parametrize(
    ("body", "what"),
    [
        ((MFMA, MFMA, STORE), "v_mfma_f32_16x16x16_f16: 8 and 16"),
        ((MFMA, "ds_write_b64 v8, v[0:1]"), "bytes stored to LDS: 32 and 64"),
        ((MFMA, STORE, "global_atomic_add v0, v1, s[0:1]"), "atomics: 0 and 8"),
        ((MFMA, STORE, "global_store_short v0, v1, s[0:1]"), "bytes stored to global memory: 0 and 16"),
        ((MFMA, STORE, LOAD), "bytes loaded: 0 and 32"),
    ],
)
def test_other_work_does_not_compare(body: tuple[str, ...], what: str) -> None:
    found = pair(function(*loop(1, MFMA, STORE, trips=8)), function(*loop(1, *body, trips=8)))
    assert what in found.problem
    assert "loops with their trips: .LBB0_1 8 in the first, .LBB0_1 8 in the second" in found.problem


def test_one_wide_store_does_the_work_of_two_narrow_ones() -> None:
    wide = ("ds_write_b64 v8, v[0:1]", "global_store_dwordx2 v0, v[2:3], s[0:1]")
    narrow = (STORE, STORE, "global_store_dword v0, v1, s[0:1]", "global_store_dword v0, v2, s[0:1] offset:4")
    assert not pair(function(*wide), function(*narrow)).problem


def test_a_reference_keeps_its_counts() -> None:
    """Candidates are compared with the code that was costed first."""
    reference = Reference.of_assembly(function(*loop(1, MFMA, STORE)), target(CPU))
    for code in (loop(1, MFMA, STORE, trips=64), loop(1, MFMA, STORE)):
        (again,) = reference.costs_of_assembly(function(*code)).values()
        assert trips(again) == trips(reference.costs["k"]) == [(10, "default")]
        assert again.cycles == reference.costs["k"].cycles
    (twice,) = reference.costs_of_assembly(function(*loop(1, MFMA, STORE, MFMA, STORE))).values()
    assert trips(twice) == [(5, "default")]
    assert reference.costs_of_assembly(function(*loop(1, MFMA))) == {}
    assert reference.costs_of_assembly(function(*loop(1, *(4 * (MFMA, STORE))))) == {}


def test_private_memory_is_no_work_of_the_kernel() -> None:
    spilled = ("scratch_store_dword off, v0, s0", "scratch_load_dword v0, off, s0")
    plain, other = function(MFMA, STORE), function(MFMA, *spilled, STORE)
    gpu = target(CPU)
    (a,), (b,) = parse_assembly(plain, gpu), parse_assembly(other, gpu)
    assert match(a, b, target("gfx942")).problem == ""
