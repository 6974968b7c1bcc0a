"""Values that are made again from a base where they are used, in place of a store and a load."""

from __future__ import annotations

import re

import pytest
from allocation import edited
from builders import machine_code, reads, uses
from spilling_support import Allocated, allocate, blocks_with, is_reload, is_save, object_of, proved

from smt_verifier.outcome import Outcome
from verilocc_mlir.analysis.lanes import virtual_classes
from verilocc_mlir.mir.parser import parse_mir
from verilocc_mlir.problem.build import build_problem
from verilocc_mlir.spilling.computed import bases
from verilocc_mlir.spilling.ground import writers
from verilocc_mlir.target.targets import target

CPU = "gfx1100"
VALUES = range(10, 18)


def addresses(steps: str, more: str = "", registers: int = 12) -> Allocated:
    """Eight values are made before a loop, in which they and six others are needed."""
    return allocate(machine_code(_body(steps, more), registers), CPU)


def _body(steps: str, more: str = "") -> str:
    made = "\n".join(steps.format(k=k, inner=k + 20, much=64 * k) for k in VALUES)
    return f"""
  bb.0:
    successors: %bb.1(0x80000000)
    liveins: $vgpr0
    %0:vgpr_32 = COPY $vgpr0
{reads([1])}
{made}

  bb.1:
    successors: %bb.1(0x7c000000), %bb.2(0x04000000)
{more}
{reads(range(2, 8))}
{uses([*VALUES])}
{uses(range(2, 8))}
    S_CBRANCH_SCC0 %bb.1, implicit undef $scc
    S_BRANCH %bb.2

  bb.2:
    S_ENDPGM 0
"""


ONE_STEP = "    %{k}:vgpr_32 = V_XOR_B32_e64 %1, {much}, implicit $exec"
TWO_STEPS = """    %{inner}:vgpr_32 = V_XOR_B32_e64 %1, {much}, implicit $exec
    %{k}:vgpr_32 = V_ADD_U32_e64 %{inner}, 7, 0, implicit $exec"""


@pytest.mark.parametrize("steps", [ONE_STEP, TWO_STEPS], ids=["one step", "two steps"])
def test_values_are_made_again_from_a_base_that_lives_on(steps: str) -> None:
    """Nothing else needs the base in the loop: its own register is worth the loads of all values."""
    done = addresses(steps)
    proved(done)
    kinds = {action.register: (action.kind, action.saves) for action in done.candidate.spills}
    assert set(kinds.values()) == {("rematerialise", ())}
    assert kinds.keys() <= {f"%{k}" for k in VALUES}
    assert not any(is_save(i) or is_reload(i) for b in done.function.blocks for i in b.instructions)
    assert blocks_with(done.function, "V_XOR_B32")[1] == len(kinds)
    assert object_of(done)


@pytest.mark.parametrize(
    ("more", "is_base"),
    [
        ("", True),
        ("    %1:vgpr_32 = V_ADD_U32_e64 %1, 1, 0, implicit $exec", False),
        ("    %1:vgpr_32 = V_ADD_U32_e64 %0, 1, 0, implicit $exec", False),
    ],
    ids=["kept", "changed", "overwritten"],
)
def test_a_base_is_written_once(more: str, *, is_base: bool) -> None:
    assert (1 in _bases(_body(ONE_STEP, more))) is is_base
    done = addresses(ONE_STEP, more)
    proved(done)
    assert any(action.kind == "rematerialise" for action in done.candidate.spills) is is_base


def test_a_base_is_not_written_while_a_value_is_live() -> None:
    """What the turn before made of the base is needed behind the next turn's base."""

    def turn(*code: str) -> str:
        body = "\n".join(code)
        return f"""
  bb.0:
    successors: %bb.1(0x80000000)
    liveins: $vgpr0
    %0:vgpr_32 = COPY $vgpr0
    %2:vgpr_32 = IMPLICIT_DEF
    %3:vgpr_32 = IMPLICIT_DEF

  bb.1:
    successors: %bb.1(0x7c000000), %bb.2(0x04000000)
{body}
    S_CBRANCH_SCC0 %bb.1, implicit undef $scc
    S_BRANCH %bb.2

  bb.2:
    S_ENDPGM 0
"""

    made = "\n".join(f"    %{k}:vgpr_32 = V_OR_B32_e64 %1, {k}, implicit $exec" for k in (2, 3))
    assert 1 in _bases(turn(uses([2, 3]), reads([1]), made))
    assert 1 not in _bases(turn(reads([1]), uses([2, 3]), made))


@pytest.mark.parametrize(
    "instruction",
    [
        "V_XOR_B32_e64 %1, %0, implicit $exec",  # Of two registers.
        "V_ADD_F32_e64 0, %1, 0, 1065353216, 0, 0, implicit $mode, implicit $exec",  # MODE may change.
        "V_MBCNT_LO_U32_B32_e64 %1, 0, implicit $exec",  # The thread counts.
    ],
)
def test_other_instructions_make_nothing_again(instruction: str) -> None:
    assert not _bases(_body(f"    %{{k}}:vgpr_32 = {instruction}"))


def _bases(body: str) -> set[int]:
    file = parse_mir(machine_code(body, 12))
    (function,) = file.functions
    classes = virtual_classes(function)
    members = {int(r.name[1:]): r for r in build_problem(file, function, target(CPU), "vgpr").ranges}
    return {base.vreg for base in bases(writers(function, classes), classes, members)}


def test_another_constant_is_refuted() -> None:
    done = addresses(ONE_STEP)
    block = done.after.index("bb.1:")
    constant = re.search(r"V_XOR_B32_e64 (?:killed )?(?:renamable )?\$vgpr\d+, (\d+)", done.after[block:])
    assert constant is not None
    wrong = edited(done.pair, rf"(bb\.1:(?:.*\n)*?.*V_XOR.*), {constant[1]}, ", rf"\g<1>, {64 * 30}, ")
    report = wrong.audit()
    assert report.outcome is Outcome.REFUTED


def test_another_register_for_the_base_is_refuted() -> None:
    done = addresses(ONE_STEP)
    wrong = edited(
        done.pair, r"(bb\.1:(?:.*\n)*?.*V_XOR_B32_e64 (?:killed )?(?:renamable )?)\$vgpr\d+", r"\g<1>$vgpr11"
    )
    report = wrong.audit()
    assert report.outcome is Outcome.REFUTED
    assert "value" in wrong.rules()
