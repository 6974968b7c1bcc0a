"""Ranges without a register for the whole of them are laid over several, and the audit proves it."""

from __future__ import annotations

import re

import pytest
from allocation import Pair, edited
from builders import machine_code, uses
from spilling_support import NOTHING_SPILLED, Allocated, allocate, is_save, object_of

from smt_verifier.outcome import Outcome
from verilocc_mlir.spilling.code import runs
from verilocc_mlir.target.classes import contains, register_class
from verilocc_mlir.target.registers import Bank, physical_register, tuple_name

CPU = "gfx1100"
_READ = "    %{}:{} = DS_READ_B{}_gfx9 %0, {}, 0, implicit $exec :: (load (s{}), addrspace 3)"
_QUADS = "\n".join(_READ.format(k, "vreg_128", 128, 16 * k, 128) for k in (1, 2))
_PAIR = _READ.format(3, "vreg_64", 64, 128, 64)
_EVEN = uses([f"%{k}.sub{part}" for k in (1, 2) for part in (0, 2)])
_ODD = uses([f"%{k}.sub{part}" for k in (1, 2) for part in (1, 3)])
_COPY = r"^    renamable \$vgpr\d+ = COPY renamable \$vgpr[^\n]*\n"


_BEFORE = f"""
  bb.0:
    successors: %bb.1(0x40000000), %bb.2(0x40000000)
    liveins: $vgpr0, $sgpr0
    %0:vgpr_32 = COPY $vgpr0
{_QUADS}
{_EVEN}
"""
_INSIDE = f"{_PAIR}\n{uses(['%3.sub0', '%3.sub1'])}"


def split_holes(cpu: str = CPU) -> Allocated:
    """Of two tuples every other part dies. Four registers are free then, no two of them side by side, for a pair."""
    body = _BEFORE.replace("    successors: %bb.1(0x40000000), %bb.2(0x40000000)\n", "").replace(", $sgpr0", "")
    return allocate(machine_code(f"{body}{_INSIDE}\n{_ODD}\n    S_ENDPGM 0\n", 9), cpu)


_LOWER = """
    {2}%{0}.sub0_lo16:vreg_128 = DS_READ_U16_t16 %0, {1}, 0, implicit $exec :: (load (s16), addrspace 3)"""
_UPPER = """
    %{0}.sub0:vreg_128 = DS_READ_U16_D16_HI %0, {1}, 0, %{0}.sub0, implicit $exec :: (load (s16), addrspace 3)"""
_USE_LOWER = """
    DS_WRITE_B16_t16 %0, %{0}.sub0_lo16, 0, 0, implicit $exec :: (store (s16), addrspace 3)"""


def split_before_halves() -> Allocated:
    """Three registers side by side for the pair, and a part of each tuple is loaded half by half behind it. The load of
    the upper half keeps the lower one, and so is said to read the upper one, which nobody wrote.
    """
    inside = f"{_READ.format(3, 'vreg_96', 96, 64, 96)}\n{uses(['%3.sub0', '%3.sub1', '%3.sub2'])}"
    parts = "".join(
        f"\n    %{k}.sub{part}:vreg_128 = DS_READ_B32_gfx9 %0, {64 * k + 4 * part}, 0, implicit $exec "
        ":: (load (s32), addrspace 3)"
        for k in (1, 2)
        for part in (1, 2, 3)
    )
    lower = "".join(_LOWER.format(k, 200 + 4 * k, "undef ") for k in (1, 2))
    halves = "".join(_LOWER.format(k, 220 + 4 * k, "") + _UPPER.format(k, 222 + 4 * k) for k in (1, 2))
    body = f"""
  bb.0:
    liveins: $vgpr0
    %0:vgpr_32 = COPY $vgpr0{lower}{parts}{"".join(map(_USE_LOWER.format, (1, 2)))}
{uses(["%1.sub2", "%2.sub2"])}
{inside}{halves}
{_ODD}
{uses(["%1.sub0", "%2.sub0"])}
    S_ENDPGM 0
"""
    return allocate(machine_code(body, 9), CPU)


def split_in_narrow_exec() -> Allocated:
    """The same with the pair in a branch that narrows EXEC; all threads read the tuples behind it."""
    body = f"""{_BEFORE}
    renamable $sgpr1 = S_AND_SAVEEXEC_B32 renamable $sgpr0, implicit-def $exec, implicit-def dead $scc, implicit $exec
    S_CBRANCH_EXECZ %bb.2, implicit $exec

  bb.1:
    successors: %bb.2(0x80000000)
    liveins: $sgpr1
{_INSIDE}

  bb.2:
    liveins: $sgpr1
    $exec_lo = S_OR_B32 $exec_lo, killed renamable $sgpr1, implicit-def dead $scc
{_ODD}
    S_ENDPGM 0
"""
    return allocate(machine_code(body, 9), CPU)


def split_around_a_loop() -> Allocated:
    """The same with the pair in a loop."""
    body = f"""{_BEFORE.replace("%bb.1(0x40000000), %bb.2(0x40000000)", "%bb.1(0x80000000)")}
  bb.1:
    successors: %bb.1(0x7c000000), %bb.2(0x04000000)
{_INSIDE}
    S_CBRANCH_SCC0 %bb.1, implicit undef $scc
    S_BRANCH %bb.2

  bb.2:
{_ODD}
    S_ENDPGM 0
"""
    return allocate(machine_code(body, 9), CPU)


def copies(done: Allocated) -> list[int]:
    """The copies of each block; the first one of the function is that of its argument."""
    counts = [sum(i.opcode == "COPY" for i in block.instructions) for block in done.function.blocks]
    return [counts[0] - 1, *counts[1:]]


@pytest.mark.parametrize("cpu", ["gfx1100", "gfx1201"])
def test_a_tuple_finds_room_without_spilling(cpu: str) -> None:
    done = split_holes(cpu)
    assert done.candidate.attempts[0].cause == "fragmentation"
    assert {action.kind for action in done.candidate.spills} == {"split"}
    assert not any(is_save(i) for block in done.function.blocks for i in block.instructions)
    assert done.pair.audit().outcome is Outcome.PROVED
    assert object_of(done)


def test_a_part_that_nobody_wrote_is_not_live_where_a_tuple_was_split() -> None:
    done = split_before_halves()
    assert {action.kind for action in done.candidate.spills} == {"split"}
    assert not any(is_save(i) for block in done.function.blocks for i in block.instructions)
    assert [a.ended for a in done.candidate.attempts] == ["allocate", "audit"]
    assert done.pair.audit().outcome is Outcome.PROVED


def test_the_report_says_what_was_split_and_where() -> None:
    (action,) = split_holes().candidate.spills
    assert (action.register, action.parts, action.saves) == ("%2", 4, ())
    assert action.reloads == ("before instruction 7",)
    assert (action.point, action.cost) == (28, 2.0)


def test_nothing_is_split_where_nothing_may_be_spilled() -> None:
    assert allocate(split_holes().before, CPU, spills=NOTHING_SPILLED).candidate.function is None


def test_equal_functions_are_split_alike() -> None:
    first = split_holes()
    allocate.cache_clear()
    assert split_holes().after == first.after


def test_the_copy_stands_where_all_threads_that_read_the_value_are_active() -> None:
    done = split_in_narrow_exec()
    assert {action.kind for action in done.candidate.spills} == {"split"}
    assert copies(done)[0] > 0
    assert copies(done)[1:] == [0, 0]
    assert done.pair.audit().outcome is Outcome.PROVED


def test_the_copy_stands_outside_of_the_loop() -> None:
    done = split_around_a_loop()
    assert {action.kind for action in done.candidate.spills} == {"split"}
    assert copies(done)[1] == 0
    assert done.pair.audit().outcome is Outcome.PROVED
    assert object_of(done)


def test_a_copy_dropped_is_refuted() -> None:
    assert "value" in edited(split_holes().pair, _COPY, "").rules()


def test_a_copy_of_another_register_is_refuted() -> None:
    other = edited(split_holes().pair, r"(    renamable \$vgpr\d+ = COPY renamable \$vgpr)\d+", r"\g<1>8")
    assert "value" in other.rules()


def test_a_copy_under_a_narrower_exec_is_refuted() -> None:
    pair = split_in_narrow_exec().pair
    line = re.search(_COPY, pair.post, re.MULTILINE)
    assert line
    inside = re.sub(
        r"(bb\.1:\n(?:    .*\n)*?)(?=    renamable)", rf"\g<1>{line[0]}", pair.post.replace(line[0], ""), count=1
    )
    assert {"value", "live-in"} & Pair(pair.cpu, pair.pre, inside).rules()


@pytest.mark.parametrize("name", ["sgpr_{}", "vreg_{}", "vreg_{}_align2"])
def test_every_piece_that_is_copied_is_a_register(name: str) -> None:
    """Parts of a tuple need not make one: s[70:79] of s[64:79] is none, because ten scalars start at a multiple of four
    (SIRegisterInfo.td). llc said 'unknown register name'.
    """
    cls = register_class(name.format(512))
    bank = Bank.SGPR if cls.is_scalar else Bank.VGPR
    for first in range(cls.width):
        for stop in range(first + 1, cls.width + 1):
            pieces = runs((1 << stop) - (1 << first), cls, even="align2" in name)
            assert [part for start, size in pieces for part in range(start, start + size)] == [*range(first, stop)]
            for start, size in pieces:
                one = "sgpr_32" if cls.is_scalar else "vgpr_32"
                inner = register_class(name.format(32 * size) if size > 1 else one)
                assert contains(inner, physical_register(tuple_name(bank, 64 + start, size)))
