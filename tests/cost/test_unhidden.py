"""What no other wave hides: each kind by a few instructions, and what more waves make of it."""

from __future__ import annotations

import pytest

from verilocc_mlir.cost.compare import compare
from verilocc_mlir.cost.model import KernelCost, cost_of_assembly
from verilocc_mlir.cost.rates import rates
from verilocc_mlir.cost.together import Pair
from verilocc_mlir.target.targets import TARGETS, target

RELOAD = {"gfx942": "scratch_load_dword v0, off, s0", "gfx1100": "scratch_load_b32 v0, off, s0"}
STORE = {"gfx942": "scratch_store_dword off, v0, s0", "gfx1100": "scratch_store_b32 off, v0, s0"}
WAIT = {"gfx942": "s_waitcnt vmcnt(0)", "gfx1100": "s_waitcnt vmcnt(0)"}
ADD = "v_add_f32_e32 v3, v1, v2"


def cost(cpu: str, *code: str, scratch: int = 4, registers: int = 0) -> KernelCost:
    """Of a function with so many bytes of scratch, whose waves take so many registers."""
    figures = f"; ScratchSize: {scratch}\n; NumVgprs: {registers or target(cpu).vgpr_total // 2}\n"
    text = f'\t.amdgcn_target "amdgcn-amd-amdhsa--{cpu}"\n\t.type\tk,@function\nk:\n'
    text += "".join(f"\t{line}\n" for line in (*code, "s_endpgm"))
    return cost_of_assembly(f"{text}.Lfunc_end0:\n\t.size\tk, .Lfunc_end0-k\n{figures}", target(cpu))["k"]


@pytest.mark.parametrize("cpu", RELOAD)
def test_private_memory_is_added_and_in_no_other_term(cpu: str) -> None:
    speed, bytes_of_a_register = rates(target(cpu)), 4 * target(cpu).wave_size
    spilled, plain = cost(cpu, STORE[cpu], ADD, RELOAD[cpu], WAIT[cpu]), cost(cpu, ADD)
    load = bytes_of_a_register / speed.vmem_bytes_per_cycle
    store = bytes_of_a_register / speed.l2_store_bytes_per_cycle
    assert spilled.unhidden == pytest.approx(load + store)
    assert spilled.memory == plain.memory == plain.unhidden == 0
    assert spilled.cycles == spilled.unhidden + max(spilled.bounds["latency"], spilled.work)
    assert plain.cycles == max(plain.bounds["latency"], plain.work)


@pytest.mark.parametrize("cpu", RELOAD)
def test_more_waves_make_each_access_dearer(cpu: str) -> None:
    """As soon as what all hold in private memory is more than the first cache holds, and again with the second."""
    code = (STORE[cpu], RELOAD[cpu], WAIT[cpu])
    full = target(cpu).vgpr_total
    small = [cost(cpu, *code, scratch=4, registers=full // waves) for waves in (2, 8)]
    large = [cost(cpu, *code, scratch=800, registers=full // waves) for waves in (2, 4, 8)]
    assert [c.occupancy for c in large] == [2, 4, 8]
    assert small[0].unhidden == small[1].unhidden < large[0].unhidden < large[1].unhidden < large[2].unhidden
    assert small[0].waits == small[1].waits < large[0].waits < large[1].waits < large[2].waits


def test_an_access_costs_no_less_with_more_waves_on_any_target() -> None:
    for cpu, gpu in TARGETS.items():
        reload = RELOAD["gfx942" if gpu.major == 9 else "gfx1100"] if cpu != "gfx90a" else ""
        if reload:
            costs = [
                cost(cpu, reload, scratch=100, registers=gpu.vgpr_total // waves).unhidden for waves in range(1, 9)
            ]
            assert costs == sorted(costs)


def test_copies_between_files_are_added_and_constants_are_not() -> None:
    copy, constant = "v_accvgpr_write_b32 a0, v1", "v_accvgpr_write_b32 a0, 0"
    assert (cost("gfx942", copy).unhidden, cost("gfx942", copy).valu) == (4, 0)
    assert (cost("gfx942", constant).unhidden, cost("gfx942", constant).valu) == (0, 4)


def test_changes_of_the_register_group_are_added() -> None:
    changed = cost("gfx1250", "s_set_vgpr_msb 64", "v_mov_b32_e32 v0 /*v256*/, 0")
    assert changed.unhidden == 1
    assert changed.group_changes.static == 1
    assert changed.salu == 1  # s_endpgm


@pytest.mark.parametrize(
    ("size", "value"),
    [
        ("16+max(.Lg.private_seg_size, h.private_seg_size)", 64),
        ("k.private_seg_size", 80),
        ("16+max(.Lloop.private_seg_size)", 0),
        ("16+max(elsewhere.private_seg_size)", 0),
    ],
)
def test_frames_of_callees_further_down_count(size: str, value: int) -> None:
    """llc writes them as a sum of symbols; 0 where it is not known (recursion, another file)."""
    text = f"""\t.amdgcn_target "amdgcn-amd-amdhsa--gfx942"
\t.type\tk,@function
k:
\ts_endpgm
.Lfunc_end0:
\t.size\tk, .Lfunc_end0-k
\t.set k.private_seg_size, 32+max(.Lg.private_seg_size)
\t.set .Lg.private_seg_size, 48
\t.set h.private_seg_size, 16+max(0)
\t.set .Lloop.private_seg_size, 16+max(.Lloop.private_seg_size)
; ScratchSize: {size}
"""
    assert cost_of_assembly(text, target("gfx942"))["k"].scratch_bytes == value


def test_compare_names_them() -> None:
    copies = ["v_accvgpr_write_b32 a0, v1"] * 9
    (row,) = compare({"k": Pair(cost("gfx942", ADD), cost("gfx942", ADD, *copies))})
    assert row.explanation.startswith("scratch, copies from and to AGPRs 0 to 36")
    assert "accumulator copies 0 to 9" in row.explanation
