"""Lane liveness: each rule by itself, and the whole against a slow reading of the definition."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

import pytest
from analysis_support import random_body
from builders import machine_function

from verilocc_mlir.analysis.cfg import control_flow
from verilocc_mlir.analysis.lanes import lane_mask, virtual_classes
from verilocc_mlir.analysis.liveness import LaneLiveness, lane_liveness, set_bits
from verilocc_mlir.errors import InputError
from verilocc_mlir.mir.model import MachineFunction


def live(body: str, *, implicit_def_holds: bool = False) -> LaneLiveness:
    function = machine_function(body)
    classes = virtual_classes(function)
    return lane_liveness(function, control_flow(function), classes, implicit_def_holds=implicit_def_holds)


def ranges(body: str, vreg: int = 0) -> list[tuple[int, list[tuple[int, int]]]]:
    return [(g.lanes, list(g.segments)) for g in live(body).ranges[vreg]]


@pytest.mark.parametrize("ones", [(), (0,), (700,), (3, 64, 65, 999), range(1000), range(0, 1000, 3)])
def test_the_ones_of_a_number_are_found_however_many_they_are(ones: Iterable[int]) -> None:
    assert set_bits(sum(1 << one for one in ones)) == [*ones]


def test_value_from_definition_to_last_read() -> None:
    body = """
  bb.0:
    %0:vgpr_32 = V_MOV_B32_e32 0, implicit $exec
    S_NOP 0
    S_NOP 0, implicit %0
    S_ENDPGM 0
"""
    assert ranges(body) == [(3, [(2, 10)])]


def test_dead_definition_holds_one_slot() -> None:
    assert ranges("  bb.0:\n    %0:vgpr_32 = V_MOV_B32_e32 0, implicit $exec\n    S_ENDPGM 0") == [(3, [(2, 3)])]


def test_early_clobber_starts_before_operands_are_read() -> None:
    body = """
  bb.0:
    %1:sreg_64 = S_MOV_B64 0
    early-clobber %0:sreg_64 = S_LOAD_DWORDX2_IMM_ec %1, 0, 0
    S_ENDPGM 0, implicit %0
"""
    assert ranges(body, 0) == [(15, [(5, 10)])]
    assert ranges(body, 1) == [(15, [(2, 6)])]


def test_undef_reads_nothing() -> None:
    body = """
  bb.0:
    %0:vgpr_32 = V_MOV_B32_e32 0, implicit $exec
    S_NOP 0, implicit undef %0
    S_ENDPGM 0
"""
    assert ranges(body) == [(3, [(2, 3)])]


def test_partial_definition_keeps_the_other_lanes() -> None:
    body = """
  bb.0:
    undef %0.sub0:vreg_64 = V_MOV_B32_e32 0, implicit $exec
    %0.sub1:vreg_64 = V_MOV_B32_e32 0, implicit $exec
    S_NOP 0, implicit %0
    S_ENDPGM 0
"""
    assert ranges(body) == [(3, [(2, 10)]), (12, [(6, 10)])]


def test_undef_partial_definition_starts_fresh() -> None:
    body = """
  bb.0:
    %0:vreg_64 = V_MOV_B64_PSEUDO 0, implicit $exec
    undef %0.sub0:vreg_64 = V_MOV_B32_e32 0, implicit $exec
    S_NOP 0, implicit %0
    S_ENDPGM 0
"""
    # sub1 is read at the end, but what it held was given up.
    assert ranges(body) == [(3, [(2, 3), (6, 10)]), (12, [(2, 3)])]


def test_halves_are_lanes_of_their_own() -> None:
    body = """
  bb.0:
    undef %0.lo16:vgpr_32 = V_MOV_B16_t16_e64 0, 0, 0, implicit $exec
    %0.hi16:vgpr_32 = V_MOV_B16_t16_e64 0, 0, 0, implicit $exec
    S_NOP 0, implicit %0.lo16
    S_NOP 0, implicit %0.hi16
    S_ENDPGM 0
"""
    assert ranges(body) == [(1, [(2, 10)]), (2, [(6, 14)])]


def test_tied_definition_continues_the_range() -> None:
    body = """
  bb.0:
    %0:vgpr_32 = V_MOV_B32_e32 0, implicit $exec
    %0:vgpr_32 = V_FMAC_F32_e32 %0, %0, %0, implicit $mode, implicit $exec
    S_ENDPGM 0, implicit %0
"""
    assert ranges(body) == [(3, [(2, 10)])]


LOOP = """
  bb.0:
    successors: %bb.1(0x80000000)

    %0:vgpr_32 = {start}
    S_NOP 0

  bb.1:
    successors: %bb.1(0x40000000), %bb.2(0x40000000)

    S_NOP 0, implicit %0
    %0:vgpr_32 = V_MOV_B32_e32 1, implicit $exec
    S_CBRANCH_SCC0 %bb.1, implicit undef $scc

  bb.2:
    S_ENDPGM 0
"""


def test_value_around_a_loop() -> None:
    assert ranges(LOOP.format(start="V_MOV_B32_e32 0, implicit $exec")) == [(3, [(2, 10), (14, 20)])]


def test_implicit_def_holds_no_register_until_the_join() -> None:
    """One slot for the instruction itself; in the loop the register is held, because the back edge brings a value."""
    body = LOOP.format(start="IMPLICIT_DEF")
    assert ranges(body) == [(3, [(2, 3), (8, 10), (14, 20)])]
    assert live(body, implicit_def_holds=True).ranges[0][0].segments == ((2, 10), (14, 20))


def test_implicit_def_over_an_old_value_holds_the_register() -> None:
    """Inactive lanes may still need the old value (SIOptimizeVGPRLiveRange)."""
    body = """
  bb.0:
    successors: %bb.1(0x40000000), %bb.2(0x40000000)

    %0:vgpr_32 = V_MOV_B32_e32 0, implicit $exec
    S_CBRANCH_EXECZ %bb.2, implicit $exec

  bb.1:
    successors: %bb.2(0x80000000)

    S_NOP 0
    %0:vgpr_32 = IMPLICIT_DEF
    S_NOP 0

  bb.2:
    S_ENDPGM 0, implicit %0
"""
    assert ranges(body) == [(3, [(2, 8), (14, 22)])]


def test_undefined_on_one_path_is_held_on_the_other_only() -> None:
    body = """
  bb.0:
    successors: %bb.1(0x40000000), %bb.2(0x40000000)

    S_CBRANCH_SCC0 %bb.2, implicit undef $scc

  bb.1:
    successors: %bb.2(0x80000000)

    %0:vgpr_32 = V_MOV_B32_e32 1, implicit $exec

  bb.2:
    S_NOP 0, implicit %0
    S_ENDPGM 0
"""
    assert ranges(body) == [(3, [(6, 10)])]


def test_bundle_members_count_one_by_one() -> None:
    body = """
  bb.0:
    BUNDLE implicit-def %0, implicit %1 {
      %0:vgpr_32 = V_MOV_B32_e32 1, implicit $exec
      S_NOP 0, implicit internal %0
    }
    S_ENDPGM 0
"""
    function = machine_function(body, registers={1: "vgpr_32"})
    found = lane_liveness(function, control_flow(function), virtual_classes(function))
    assert found.ranges[0][0].segments == ((6, 10),)
    assert found.ranges[1] == ()


def test_kill_is_a_read_and_debug_values_are_not() -> None:
    body = """
  bb.0:
    %0:vgpr_32 = V_MOV_B32_e32 0, implicit $exec
    %1:vgpr_32 = V_MOV_B32_e32 0, implicit $exec
    S_NOP 0
    KILL %0
    DBG_VALUE %1, $noreg, !1, !DIExpression()
    S_ENDPGM 0
"""
    assert ranges(body, 0) == [(3, [(2, 14)])]
    assert ranges(body, 1) == [(3, [(6, 7)])]


def test_subregister_outside_of_its_register_is_bad_input() -> None:
    with pytest.raises(InputError, match="outside of class vgpr_32"):
        live("  bb.0:\n    %0.sub1:vgpr_32 = V_MOV_B32_e32 0, implicit $exec\n    S_ENDPGM 0")


def test_two_classes_for_one_register_are_bad_input() -> None:
    with pytest.raises(InputError, match="of class vgpr_32 and of class sreg_32"):
        live("  bb.0:\n    %0:vgpr_32 = V_MOV_B32_e32 0, implicit $exec\n    %0:sreg_32 = S_MOV_B32 0\n    S_ENDPGM 0")


def slow_occupation(function: MachineFunction, vreg: int, lane: int) -> set[int]:
    """Slots that one lane occupies, by the definition, instruction by instruction, to a fixpoint of plain booleans."""
    cls = virtual_classes(function)[vreg]
    cfg = control_flow(function)
    code = [i for b in function.blocks for i in b.instructions]
    total = len(code)
    reads, early, writes, gives_up = ([False] * total for _ in range(4))
    for k, instruction in enumerate(code):
        for op in instruction.all_operands:
            if op.vreg != vreg:
                continue
            named = bool(lane_mask(op, cls) >> lane & 1)
            if not op.is_def:
                reads[k] |= named and not op.undef
            elif named:
                (early if op.early_clobber else writes)[k] = True
            elif op.undef and op.sub:
                gives_up[k] = True
    implicit = [code[k].opcode == "IMPLICIT_DEF" and writes[k] for k in range(total)]
    needed = [[False] * (total + 1) for _ in function.blocks]
    defined = [[False] * (total + 1) for _ in function.blocks]
    spans = [(cfg.first[b], cfg.first[b + 1]) for b in range(len(function.blocks))]
    for _ in range(2 * len(spans) + 2):
        for b, (first, last) in enumerate(spans):
            needed[b][last] = any(needed[s][spans[s][0]] for s in cfg.successors[b])
            defined[b][first] = any(defined[p][spans[p][1]] for p in cfg.predecessors[b])
            for k in range(first, last):
                real = early[k] or (writes[k] and not implicit[k])
                defined[b][k + 1] = real or (defined[b][k] and not gives_up[k])
            for k in range(last - 1, first - 1, -1):
                needed[b][k] = reads[k] or (needed[b][k + 1] and not (writes[k] or early[k] or gives_up[k]))
    slots: set[int] = set()
    for b, (first, last) in enumerate(spans):
        for k in range(first, last):
            before = needed[b][k] and defined[b][k]
            after = needed[b][k + 1] and defined[b][k + 1]
            if before:
                slots |= {4 * k, 4 * k + 1}
            if early[k]:
                slots |= {4 * k + 1, 4 * k + 2}
            if after or writes[k]:
                slots.add(4 * k + 2)
            if after:
                slots.add(4 * k + 3)
    return slots


@pytest.mark.parametrize("seed", range(60))
def test_against_the_definition(seed: int) -> None:
    function = machine_function(random_body(seed, blocks=2 + seed % 7))
    classes = virtual_classes(function)
    found = lane_liveness(function, control_flow(function), classes)
    for vreg, cls in classes.items():
        by_lane: dict[int, set[int]] = {lane: set() for lane in range(cls.lanes)}
        for lanes, segments in found.ranges[vreg]:
            assert all(a[1] < b[0] for a, b in pairwise(segments))
            for lane in by_lane:
                if lanes >> lane & 1:
                    assert not by_lane[lane], "a lane in two groups"
                    by_lane[lane] = {s for start, stop in segments for s in range(start, stop)}
        for lane, slots in by_lane.items():
            assert slots == slow_occupation(function, vreg, lane), (vreg, lane)


@pytest.mark.parametrize("seed", range(20))
def test_choosing_registers_does_not_change_their_ranges(seed: int) -> None:
    function = machine_function(random_body(seed))
    classes = virtual_classes(function)
    cfg = control_flow(function)
    whole = lane_liveness(function, cfg, classes)
    part = lane_liveness(function, cfg, classes, lambda v: v % 2 == 0)
    assert part.ranges == {v: r for v, r in whole.ranges.items() if v % 2 == 0}
    for block in range(len(function.blocks)):
        assert part.lanes_out(block) == {v: m for v, m in whole.lanes_out(block).items() if v % 2 == 0}
