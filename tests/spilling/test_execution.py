"""Under which EXEC an instruction runs, as spilling sees it."""

from __future__ import annotations

import pytest
from builders import machine_function

from verilocc_mlir.analysis.cfg import control_flow
from verilocc_mlir.analysis.execution import (
    ExecMasks,
    exec_masks,
    has_inactive_lanes,
    is_terminator,
    writes_exec,
)
from verilocc_mlir.mir.model import MachineFunction

NARROW = "renamable $sgpr1 = S_AND_SAVEEXEC_B32 $sgpr0, implicit-def $exec, implicit-def dead $scc, implicit $exec"
WIDEN = "$exec_lo = S_OR_B32 $exec_lo, $sgpr1, implicit-def dead $scc"


def masks(function: MachineFunction) -> ExecMasks:
    return exec_masks(function, control_flow(function))


def branch(inside: str = "S_NOP 1") -> MachineFunction:
    """Instructions 0 to 2 before a branch, 3 and 4 inside, from 5 on behind it."""
    return machine_function(f"""
  bb.0:
    successors: %bb.1, %bb.2
    S_NOP 0
    {NARROW}
    S_CBRANCH_EXECZ %bb.2, implicit $exec

  bb.1:
    successors: %bb.2
    {inside}
    S_BRANCH %bb.2

  bb.2:
    S_NOP 2
    {WIDEN}
    S_NOP 3
    S_ENDPGM 0
""")


def test_without_a_write_there_is_one_mask() -> None:
    function = machine_function("""
  bb.0:
    successors: %bb.1
    S_NOP 0

  bb.1:
    successors: %bb.1, %bb.2
    S_NOP 1
    S_CBRANCH_SCC0 %bb.1, implicit undef $scc

  bb.2:
    S_ENDPGM 0
""")
    found = masks(function)
    assert set(found.before) == {0}
    assert found.leaving == (0, 0, 0)
    assert found.widest
    assert not has_inactive_lanes(function)


def test_a_write_makes_a_new_mask_and_a_join_of_different_ones_too() -> None:
    function = branch()
    before = masks(function).before
    assert before[0] == before[1] == 0
    assert before[2] == before[3] == before[4] != 0
    # One predecessor of bb.2 is bb.0, the other bb.1: both leave with the same mask.
    assert before[5] == before[3]
    assert before[7] not in {before[0], before[3]}
    assert has_inactive_lanes(function)
    turned = masks(branch("$exec_lo = S_AND_B32 $exec_lo, $sgpr2, implicit-def dead $scc"))
    assert turned.before[5] not in {turned.before[3], turned.leaving[0], turned.leaving[1], 0}


def test_a_loop_that_narrows_has_a_mask_of_its_own() -> None:
    function = machine_function("""
  bb.0:
    successors: %bb.1
    S_NOP 0

  bb.1:
    successors: %bb.1, %bb.2
    S_NOP 1
    $exec_lo = S_ANDN2_B32_term $exec_lo, $sgpr0, implicit-def $scc
    S_CBRANCH_EXECNZ %bb.1, implicit $exec
    S_BRANCH %bb.2

  bb.2:
    S_ENDPGM 0
""")
    found = masks(function)
    assert found.before[0] == 0
    assert found.before[1] not in {0, found.leaving[1]}
    assert found.before[-1] == found.leaving[1]


def test_what_covers_what() -> None:
    found = masks(branch())
    narrow = found.before[3]
    assert found.covers(0, narrow)
    assert found.covers(narrow, narrow)
    assert not found.covers(narrow, 0)
    assert not found.covers(narrow, found.before[7])


@pytest.mark.parametrize(
    "wide",
    [
        "$sgpr2 = S_OR_SAVEEXEC_B32 -1, implicit-def $exec, implicit-def dead $scc, implicit $exec",
        "$exec_lo = S_MOV_B32 -1",
        "$sgpr2 = ENTER_STRICT_WWM -1, implicit-def $exec, implicit-def $scc, implicit $exec",
    ],
)
def test_code_that_sets_exec_outright_takes_the_first_mask_its_rank(wide: str) -> None:
    """Then threads may be active that were not at function entry: a store there does not have theirs."""
    found = masks(branch(wide))
    assert not found.widest
    assert not found.covers(0, found.before[3])
    assert found.covers(0, 0)


def test_reading_exec_is_not_writing_it() -> None:
    function = branch("renamable $vgpr0 = V_MOV_B32_e32 1, implicit $exec")
    write = [i.opcode for b in function.blocks for i in b.instructions if writes_exec(i)]
    assert write == ["S_AND_SAVEEXEC_B32", "S_OR_B32"]


def test_terminators() -> None:
    function = machine_function("""
  bb.0:
    S_NOP 0
    $exec_lo = S_XOR_B32_term $exec_lo, $sgpr0, implicit-def $scc
    S_CBRANCH_EXECZ %bb.0, implicit $exec
    S_BRANCH %bb.0
""")
    assert [is_terminator(i) for i in function.blocks[0].instructions] == [False, True, True, True]
