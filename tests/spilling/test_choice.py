"""What is spilled and where: around loops, the furthest next use, constants computed anew, narrow EXEC."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import count

import pytest
from builders import kernel, loads, loop, machine_code, reads, stores, uses, waiting
from spilling_support import (
    CONSTANTS,
    NOTHING_SPILLED,
    PRESSED,
    TARGETS,
    Allocated,
    allocate,
    before_phase,
    blocks_with,
    in_narrow_exec,
    is_reload,
    is_save,
    object_of,
    proved,
)
from support import few

from verilocc_mlir.analysis.lanes import virtual_classes
from verilocc_mlir.budget import OutOfSecondsError, within
from verilocc_mlir.mir.model import MachineFunction
from verilocc_mlir.mir.parser import parse_mir
from verilocc_mlir.pipeline.attempt import SpillLimits
from verilocc_mlir.problem.build import build_problem, build_with_liveness
from verilocc_mlir.problem.model import LiveRange
from verilocc_mlir.spilling import SpillAction
from verilocc_mlir.spilling.choose import LOAD_AHEAD
from verilocc_mlir.spilling.ground import constants, writers
from verilocc_mlir.spilling.relieve import Relieved, Spiller
from verilocc_mlir.target.targets import target

CPU = "gfx1100"


def around(cpu: str, used: int) -> Allocated:
    """24 values from before a loop to behind it, of which the loop reads the first ``used``."""
    body = [*loads(24), *loop(stores(waiting(used))), *stores(waiting(24))]
    return allocate(before_phase(kernel(body, 8 if cpu in TARGETS[:3] else 16), cpu), cpu)


def registers_in(text: str, block: int) -> set[str]:
    (function,) = parse_mir(text).functions
    (found,) = (b for b in function.blocks if b.number == block)
    return {f"%{op.vreg}" for i in found.instructions for op in i.all_operands if op.vreg >= 0}


def spilled(done: Allocated) -> dict[str, SpillAction]:
    return {a.register: a for a in done.candidate.spills}


@pytest.mark.parametrize("cpu", few(("gfx90a", "gfx1201"), TARGETS))
def test_what_a_loop_does_not_use_waits_around_it(cpu: str) -> None:
    done = around(cpu, 5)
    proved(done)
    assert object_of(done)
    for kind, place in (("_SAVE", 0), ("_RESTORE", 2)):
        assert set(blocks_with(done.function, kind)) == {place}
    in_memory = {r for r, a in spilled(done).items() if a.kind == "spill"}
    assert in_memory
    assert not in_memory & registers_in(done.before, 1)


def test_what_the_loop_uses_is_spilled_only_where_it_must_be() -> None:
    """With all 24 of 16 read in the loop some have to be loaded in it; none is stored there."""
    done = around(CPU, 24)
    proved(done)
    assert 1 in blocks_with(done.function, "_RESTORE")
    assert 1 not in blocks_with(done.function, "_SAVE")
    in_loop = sum(len(a.reloads) for a in done.candidate.spills if "before" in a.reloads[0])
    assert in_loop < 24


def test_without_spilling_nothing_comes_of_it() -> None:
    body = [*loads(24), *loop(stores(waiting(5))), *stores(waiting(24))]
    done = allocate(before_phase(kernel(body, 16), CPU), CPU, spills=NOTHING_SPILLED)
    assert done.candidate.function is None
    assert done.candidate.lacks_room
    assert done.candidate.attempts[-1].reason.endswith("VGPRs are needed at once, 16 are free there")


def test_every_action_says_what_and_why() -> None:
    done = around(CPU, 5)
    (function,) = parse_mir(done.before).functions
    instructions = sum(len(b.instructions) for b in function.blocks)
    for action in done.candidate.spills:
        assert action.register in done.before
        assert action.kind in ("spill", "rematerialise")
        assert action.parts >= 1
        assert action.reloads
        assert bool(action.saves) == (action.kind == "spill")
        assert 0 <= action.point < 4 * instructions
        assert action.cost > 0
        assert "VGPRs too many at instruction " in action.reason
    # One store and one load a register, neither in a loop.
    assert {a.cost for a in done.candidate.spills if a.kind == "spill"} == {2.0}


def test_the_furthest_next_use_waits() -> None:
    """Registers 1 to 5 are read again and again, 6 to 10 only at the end: of those some are stored."""
    near, far, others = range(1, 6), range(6, 11), range(11, 14)
    body = f"""
  bb.0:
    liveins: $vgpr0
    %0:vgpr_32 = COPY $vgpr0
{reads([*near, *far])}
{uses(near)}
{reads(others)}
{uses([*near, *others])}
{uses([*near, *far])}
    S_ENDPGM 0
"""
    done = allocate(machine_code(body, 10), CPU)
    proved(done)
    assert spilled(done)
    assert set(spilled(done)) <= {f"%{k}" for k in far}


def test_a_constant_is_computed_anew_only_where_its_instruction_may_write() -> None:
    """``V_MOV_B32_e32`` cannot write an AGPR, so its constant copied to ``av_32`` is stored and loaded."""
    body = """
  bb.0:
    %0:vgpr_32 = V_MOV_B32_e32 32856, implicit $exec
    %1:vgpr_32 = COPY %0
    %2:av_32 = COPY %0
    S_ENDPGM 0
"""
    (function,) = parse_mir(machine_code(body, 10)).functions
    classes = virtual_classes(function)
    assert {vreg for vreg, _ in constants(writers(function, classes), classes)} == {0, 1}


def test_constants_are_computed_anew_and_not_stored() -> None:
    done = allocate(machine_code(CONSTANTS, 7), CPU)
    proved(done)
    assert {a.register: (a.kind, a.saves) for a in done.candidate.spills} == {
        "%1": ("rematerialise", ()),
        "%2": ("rematerialise", ()),
    }
    assert not any(is_save(i) or is_reload(i) for b in done.function.blocks for i in b.instructions)
    assert not done.function.stack
    # Their first definition is gone, since nothing reads it.
    assert set(blocks_with(done.function, "V_MOV_B32")) == {2}
    assert object_of(done)


def test_a_value_that_is_no_constant_is_stored() -> None:
    """The same with a second definition of the constants' registers: which one arrives depends on the path."""
    other = "    %1:vgpr_32 = DS_READ_B32_gfx9 %0, 4, 0, implicit $exec :: (load (s32), addrspace 3)\n"
    body = CONSTANTS.replace("1076754516, implicit $exec\n", f"1076754516, implicit $exec\n{other}")
    done = allocate(machine_code(body, 7), CPU)
    proved(done)
    assert spilled(done)["%1"].kind == "spill"


NOPS = "\n".join(["    S_NOP 0"] * 20)


def test_what_is_loaded_under_a_narrow_exec_is_loaded_again_for_all_threads() -> None:
    """Every value is read inside and behind: what the narrow block loads has only that block's threads."""
    done = allocate(machine_code(in_narrow_exec(f"{PRESSED}\n{uses(range(1, 9))}", uses(range(1, 9))), 9), CPU)
    proved(done)
    from_before = [a for a in done.candidate.spills if int(a.register[1:]) < 9]
    assert from_before
    for action in from_before:
        assert [_block_of(done, place) for place in (*action.saves, *action.reloads)] == [0, 1, 2]
    # What is made inside has no more threads than it is stored with there.
    made_inside = [a for a in done.candidate.spills if int(a.register[1:]) >= 9]
    assert made_inside
    for action in made_inside:
        assert {_block_of(done, place) for place in (*action.saves, *action.reloads)} == {1}


def _block_of(done: Allocated, place: str) -> int:
    """Number of the block of ``after instruction 17``."""
    (function,) = parse_mir(done.before).functions
    owners = [b.number for b in function.blocks for _ in b.instructions]
    return owners[int(place.rpartition(" ")[2])]


def test_code_behind_a_branch_comes_after_exec_is_restored() -> None:
    done = allocate(machine_code(in_narrow_exec(PRESSED, uses(range(1, 9))), 9), CPU)
    proved(done)
    (last,) = (b for b in done.function.blocks if b.number == 2)
    assert last.instructions[0].opcode == "S_OR_B32"
    assert any(is_reload(i) for i in last.instructions)
    assert set(blocks_with(done.function, "_SAVE")) == {0}


BUNDLE = """
    BUNDLE implicit-def $sgpr2, implicit %1, implicit %2, implicit $exec {
      $sgpr2 = V_READFIRSTLANE_B32 %1, implicit $exec
      $sgpr2 = V_READFIRSTLANE_B32 %2, implicit $exec
    }
"""


def test_registers_in_bundles_stay() -> None:
    """Nothing can be put into a bundle: 1 and 2 would be the first choice otherwise."""

    def text(read: str) -> str:
        return machine_code(
            f"""
  bb.0:
    liveins: $vgpr0
    %0:vgpr_32 = COPY $vgpr0
{reads(range(1, 9))}
{uses(range(3, 9))}
{reads(range(9, 12))}
{uses(range(3, 12))}
{read}
    S_ENDPGM 0
""",
            9,
        )

    bundled, free = allocate(text(BUNDLE), CPU), allocate(text(uses([1, 2])), CPU)
    assert {"%1", "%2"} <= set(spilled(free))
    assert spilled(bundled)
    assert not {"%1", "%2"} & set(spilled(bundled))
    proved(bundled)


def test_what_a_terminator_defines_stays() -> None:
    """No store can stand behind a terminator."""
    many = range(2, 12)

    def text(define: str) -> str:
        made = "\n".join(f"    %{k}:sreg_32 = S_LOAD_DWORD_IMM $sgpr4_sgpr5, {4 * k}, 0" for k in many)
        read = "\n".join(f"    S_NOP 0, implicit %{k}" for k in many)
        return machine_code(
            f"""
  bb.0:
    successors: %bb.1(0x80000000)
    liveins: $sgpr4_sgpr5
    {define}
    S_BRANCH %bb.1

  bb.1:
    liveins: $sgpr4_sgpr5
{made}
{read}
    S_NOP 0, implicit %1
    S_ENDPGM 0
""",
            9,
        )

    fixed = allocate(text("%1:sreg_32 = S_MOV_B32_term $sgpr4"), CPU, "sgpr")
    free = allocate(text("%1:sreg_32 = S_OR_B32 $sgpr4, 1, implicit-def dead $scc"), CPU, "sgpr")
    assert "%1" in spilled(free)
    assert spilled(fixed)
    assert "%1" not in spilled(fixed)
    proved(fixed)
    proved(free)


def test_spill_code_stands_before_the_terminators() -> None:
    done = around(CPU, 24)
    for block in done.function.blocks:
        opcodes = [i.opcode for i in block.instructions]
        ends = [k for k, o in enumerate(opcodes) if o.startswith(("S_CBRANCH", "S_BRANCH", "S_ENDPGM"))]
        moves = [k for k, i in enumerate(block.instructions) if is_save(i) or is_reload(i)]
        assert not ends or all(k < ends[0] for k in moves)


@pytest.mark.parametrize("cpu", TARGETS)
def test_where_everything_fits_nothing_is_changed(cpu: str) -> None:
    body = [*loads(6), *loop(stores(waiting(5))), *stores(waiting(6))]
    text = before_phase(kernel(body, 32), cpu)
    done = allocate(text, cpu)
    assert done.candidate.spills == ()
    assert done.after == allocate(text, cpu, spills=NOTHING_SPILLED).after
    (function,) = (file := parse_mir(done.before)).functions
    problem = build_problem(file, function, target(cpu), "vgpr")
    relieved = Spiller(function, problem, target(cpu)).relieve()
    assert relieved is not None
    assert relieved.function is function


def restore_to_use(function: MachineFunction, block: int) -> list[int]:
    """For each reload in a block, how many instructions stand between it and the first use."""
    (found,) = (b for b in function.blocks if b.number == block)
    distances: list[int] = []
    for k, instruction in enumerate(found.instructions):
        if is_reload(instruction):
            name = instruction.defs[0].phys
            later = found.instructions[k + 1 :]
            distances.append(next(n for n, i in enumerate(later) if any(op.phys == name for op in i.operands)))
    return distances


def ahead_of_use(pause: int, more: str = "") -> str:
    """Two of nine values wait while others are needed, then come ``pause`` instructions, then their uses."""
    nops = "    S_NOP 0\n" * pause
    return machine_code(
        f"""
  bb.0:
    liveins: $vgpr0, $sgpr0
    %0:vgpr_32 = COPY $vgpr0
{reads(range(1, 9))}
{uses(range(3, 9))}
{reads(range(9, 12))}
{uses(range(3, 12))}
{more}{nops}{uses([1, 2])}
    S_ENDPGM 0
""",
        9,
    )


def test_loads_stand_ahead_of_their_use_where_registers_are_free() -> None:
    early = allocate(ahead_of_use(20), CPU)
    beside = allocate(ahead_of_use(20), CPU, spills=SpillLimits(load_ahead=False))
    proved(early)
    proved(beside)
    assert {"%1", "%2"} <= set(spilled(early))
    assert set(restore_to_use(beside.function, 0)) == {0}
    assert sum(d >= 20 for d in restore_to_use(early.function, 0)) == 2


def test_but_not_further_than_a_load_takes() -> None:
    far = restore_to_use(allocate(ahead_of_use(3 * LOAD_AHEAD), CPU).function, 0)
    assert sum(LOAD_AHEAD - 2 <= d <= LOAD_AHEAD + 2 for d in far) == 2
    assert max(far) <= LOAD_AHEAD + 2


def test_nor_past_a_change_of_exec() -> None:
    """Where a load stands, its threads are those of its use."""
    turn = "    $exec_lo = S_AND_B32 $exec_lo, renamable $sgpr0, implicit-def dead $scc\n"
    text = ahead_of_use(5, "    S_NOP 0\n" * 5 + turn)
    done = allocate(text, CPU)
    proved(done)
    opcodes = [i.opcode for i in done.function.blocks[0].instructions]
    assert max(k for k, o in enumerate(opcodes) if o.endswith("_RESTORE")) > opcodes.index("S_AND_B32")
    assert len([o for o in opcodes[opcodes.index("S_AND_B32") :] if o.endswith("_RESTORE")]) == 2


def test_nor_where_registers_are_taken() -> None:
    """Six others and the address stay live up to the uses; with eight registers there is room for one load."""
    body = f"""
  bb.0:
    liveins: $vgpr0
    %0:vgpr_32 = COPY $vgpr0
{reads(range(1, 9))}
{uses(range(3, 9))}
{reads(range(9, 13))}
{uses(range(9, 13))}
{NOPS}
{uses([1, 2, *range(3, 9)])}
    S_ENDPGM 0
"""
    done = allocate(machine_code(body, 9), CPU)
    tight = allocate(machine_code(body, 8), CPU)
    for found in (done, tight):
        proved(found)
        assert spilled(found)
    assert min(restore_to_use(tight.function, 0)) < 20 <= min(restore_to_use(done.function, 0))


def test_equal_questions_get_equal_answers() -> None:
    text = around(CPU, 24).before
    again = [allocate.__wrapped__(text, CPU) for _ in range(2)]
    assert again[0].after == again[1].after == around(CPU, 24).after
    assert again[0].candidate.spills == again[1].candidate.spills
    (function,) = (file := parse_mir(text)).functions
    problem = build_problem(file, function, target(CPU), "vgpr")
    spiller = Spiller(function, problem, target(CPU))
    first = spiller.relieve(4)
    spiller.relieve(8)
    assert spiller.relieve(4) == first


def test_room_to_spare_is_left_at_every_point() -> None:
    (function,) = (file := parse_mir(around(CPU, 5).before)).functions
    problem = build_problem(file, function, target(CPU), "vgpr")
    peaks: list[int] = []
    for spare in (0, 2, 4):
        relieved = Spiller(function, problem, target(CPU)).relieve(spare)
        assert relieved is not None
        peaks.append(_peak(build_problem(file, relieved.function, target(CPU), "vgpr").ranges))
    assert all(peak <= 16 - spare for peak, spare in zip(peaks, (0, 2, 4), strict=True))
    assert Spiller(function, problem, target(CPU)).relieve(15) is None


def test_what_room_costs_is_known_before_it_is_made() -> None:
    (function,) = (file := parse_mir(around(CPU, 24).before)).functions
    problem, waits = build_with_liveness(file, function, target(CPU), "vgpr", pressure_alone=True)
    spiller = Spiller(function, problem, target(CPU), waits)
    whole = Spiller(function, build_problem(file, function, target(CPU), "vgpr"), target(CPU))
    costs = [spiller.cost(spare) for spare in (0, 2, 4)]
    assert costs == sorted(costs)
    assert 0 < costs[0] < costs[-1] < math.inf
    for spare, cost in zip((0, 2, 4), costs, strict=True):
        relieved = whole.relieve(spare)
        assert relieved is not None
        assert relieved.cost == cost
    assert spiller.cost(15) == math.inf


def test_a_choice_is_left_where_the_seconds_are_over_and_one_that_is_made_stands() -> None:
    (function,) = (file := parse_mir(around(CPU, 24).before)).functions
    problem = build_problem(file, function, target(CPU), "vgpr")

    def relieved_after(questions: float) -> tuple[Relieved | None, int]:
        """What is chosen if the seconds are over at so many questions, and how often was asked."""
        asked = count(1)
        with within(lambda: next(asked) > questions):
            return Spiller(function, problem, target(CPU)).relieve(), next(asked) - 1

    at_leisure, questions = relieved_after(math.inf)
    brief, _ = relieved_after(questions - 1)
    assert brief is not None
    assert at_leisure is not None
    assert at_leisure.cost <= brief.cost
    with pytest.raises(OutOfSecondsError):
        relieved_after(0)


def _peak(ranges: Sequence[LiveRange]) -> int:
    """Most registers live at once."""
    changes: dict[int, int] = {}
    for live_range in ranges:
        for group in live_range.groups:
            for start, stop in group.segments:
                changes[start] = changes.get(start, 0) + group.lanes.bit_count()
                changes[stop] = changes.get(stop, 0) - group.lanes.bit_count()
    live = most = 0
    for slot in sorted(changes):
        live += changes[slot]
        most = max(most, live)
    return most // 2
