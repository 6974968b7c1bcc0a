"""In-order issue: each rule by a few instructions and the cycles they take, and with the rule's cause taken away."""

from __future__ import annotations

import pytest

from verilocc_mlir.cost.compare import compare, latency_parts
from verilocc_mlir.cost.model import KernelCost, cost_of_assembly
from verilocc_mlir.cost.together import Pair
from verilocc_mlir.target.targets import target


def cost(cpu: str, *code: str) -> KernelCost:
    lines = [line if line.startswith(".LBB") else f"\t{line}" for line in (*code, "s_endpgm")]
    text = f'\t.amdgcn_target "amdgcn-amd-amdhsa--{cpu}"\n\t.type\tk,@function\nk:\n' + "\n".join(lines)
    return cost_of_assembly(f"{text}\n.Lfunc_end0:\n\t.size\tk, .Lfunc_end0-k\n", target(cpu))["k"]


ADD, READ, OTHER = "v_add_f32_e32 v0, v1, v2", "v_add_f32_e32 v3, v0, v2", "v_add_f32_e32 v3, v4, v2"


@pytest.mark.parametrize(
    ("cpu", "first", "then", "other", "stall"),
    [
        ("gfx1100", ADD, READ, OTHER, 4),
        ("gfx1201", ADD, READ, OTHER, 4),
        ("gfx942", ADD, READ, OTHER, 0),
        ("gfx1100", "v_exp_f32_e32 v0, v1", READ, "s_mov_b32 s0, 1", 9),
        ("gfx1250", "v_exp_f32_e32 v0, v1", READ, "s_mov_b32 s0, 1", 6),
        ("gfx1100", "s_add_u32 s0, s1, s2", "s_add_u32 s3, s0, s2", "s_add_u32 s3, s4, s2", 1),
        ("gfx1201", "s_add_co_u32 s0, s1, s2", "s_add_co_u32 s3, s0, s2", "s_add_co_u32 s3, s4, s2", 8),
    ],
)
def test_results_are_waited_for(cpu: str, first: str, then: str, other: str, stall: int) -> None:
    assert cost(cpu, first, then).dependencies == stall
    assert cost(cpu, first, other).dependencies == 0


def test_a_transcendental_holds_the_valu_of_cdna_for_sixteen_cycles() -> None:
    exp = "v_exp_f32_e32 v0, v1"
    assert cost("gfx942", exp, OTHER).busy == 12
    assert cost("gfx942", exp, "s_mov_b32 s0, 1").busy == 0
    assert cost("gfx942", exp).valu == 16
    assert cost("gfx1100", exp).valu == 4


def test_independent_mfmas_follow_at_the_pace_of_the_matrix_unit() -> None:
    first, second = (f"v_mfma_f32_32x32x8_f16 a[{k}:{k + 15}], v[0:1], v[2:3], a[{k}:{k + 15}]" for k in (0, 16))
    one = cost("gfx942", first, second)
    assert one.mfma == 2 * 8 * 4
    assert one.busy == 8 * 4 - 4
    assert one.dependencies == 0
    # The same accumulator again: no wait states, the unit's pace is the limit.
    assert cost("gfx942", first, first).busy == 8 * 4 - 4


def test_waits_hold_until_enough_loads_are_back() -> None:
    load, other = "global_load_dword v0, v[2:3], off", "global_load_dword v1, v[4:5], off"
    both = cost("gfx942", load, other, "s_waitcnt vmcnt(0)").waits
    one = cost("gfx942", load, other, "s_waitcnt vmcnt(1)").waits
    assert both > one > 0
    assert cost("gfx942", load, other, "s_waitcnt vmcnt(2)").waits == 0
    assert cost("gfx942", load, "s_waitcnt lgkmcnt(0)").waits == 0
    longer = cost("gfx942", load, "s_nop 7", "s_waitcnt vmcnt(0)").waits
    assert longer == cost("gfx942", load, "s_waitcnt vmcnt(0)").waits - 8 * 4


def test_lds_loads_wait_for_readers_of_their_destination_on_gfx11() -> None:
    read, load = "v_add_f32_e32 v3, v0, v2", "ds_load_b32 v0, v5"
    assert cost("gfx1100", read, load).dependencies == 17
    assert cost("gfx1100", read, "ds_load_b32 v7, v5").dependencies == 0
    assert cost("gfx1201", read, load).dependencies == 0


def test_padding_and_free_instructions() -> None:
    assert cost("gfx942", "s_nop 3").hazards == 16
    assert cost("gfx1100", "v_nop").hazards == 1
    plain, hinted = cost("gfx1100", ADD, READ), cost("gfx1100", ADD, "s_delay_alu instid0(VALU_DEP_1)", READ)
    assert plain.latency == hinted.latency


LOOP = ("s_mov_b32 s0, 0", ".LBB0_1:", ADD, "s_add_i32 s0, s0, 1", "s_cmp_lg_u32 s0, 5", "s_cbranch_scc1 .LBB0_1")


def test_loops_are_weighted_and_carry_their_state() -> None:
    found = cost("gfx942", *LOOP)
    assert found.valu == 5 * 4
    assert found.branches == 5 * 32
    assert found.instructions.static == 6
    assert found.instructions.weighted == 1 + 5 * 4 + 1
    # What the end of the body loads, its head waits for.
    load, wait = "global_load_dword v0, v[2:3], off", "s_waitcnt vmcnt(0)"
    body = (LOOP[0], LOOP[1], wait, load, *LOOP[3:])
    assert cost("gfx942", *body).waits > 0
    assert cost("gfx942", LOOP[0], LOOP[1], wait, *LOOP[3:]).waits == 0


def test_parts_make_up_the_latency_and_the_total() -> None:
    for cpu in ("gfx942", "gfx1100"):
        found = cost(cpu, *LOOP)
        assert sum(latency_parts(found).values()) == found.latency
        assert found.cycles == max(found.latency / found.occupancy, found.work)


def test_units_work_side_by_side_on_cdna_and_add_up_on_rdna() -> None:
    code = (ADD, ADD, "s_add_i32 s0, s0, 1", "ds_read_b32 v0, v5")
    side_by_side = cost("gfx942", *code)
    assert side_by_side.work == max(side_by_side.units.values())
    added = cost("gfx1100", *(c.replace("ds_read", "ds_load") for c in code))
    assert added.work == added.valu + added.lds == 2 + added.lds
    scalars = cost("gfx1100", ADD, *(9 * ("s_add_i32 s0, s0, 1",)))
    assert scalars.work == scalars.salu == 10


def test_what_a_branch_may_skip_is_not_waited_for_again() -> None:
    """Both sides of a diamond count in full: behind it the time of the body that may be skipped has passed."""
    load, wait, branch = "global_load_dword v0, v[2:3], off", "s_waitcnt vmcnt(0)", "s_cbranch_scc1 .LBB0_1"
    once = cost("gfx942", load, branch, wait, ".LBB0_1:", wait).waits
    assert once == cost("gfx942", load, branch, wait).waits > 0
    twice = (load, branch, wait, ".LBB0_1:", branch.replace("_1", "_2"), wait, ".LBB0_2:", wait)
    assert cost("gfx942", *twice).waits == once


def test_compare_explains() -> None:
    plain, padded = cost("gfx942", *LOOP), cost("gfx942", *LOOP[:3], "s_nop 9", *LOOP[3:])
    (row,) = compare({"k": Pair(plain, padded)})
    assert row.percent is not None
    assert row.percent > 0
    assert row.explanation.startswith("hazard padding 0 to 200")
    (same,) = compare({"k": Pair(plain, plain)})
    assert (same.percent, same.explanation) == (0.0, "")
    only, missing = compare({"a": Pair(plain, None), "b": Pair(None, plain)})
    assert (only.second, missing.first, only.percent) == (None, None, None)
