"""What a refutation says: minimal violations, a minimal correction set, and why no register is free."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from builders import live_of, problem_of
from hypothesis import HealthCheck, given, settings
from msgspec.structs import replace
from prove_support import SMALL, answered, brute_force, cases, moved, path_names, proposal, restricted
from support import few

import smt_verifier.prove
from smt_verifier.outcome import Outcome
from smt_verifier.prove import Diagnosis, Relocation, diagnose, prove
from smt_verifier.prove.diagnosis import Blocked, lanes_text, point
from smt_verifier.prove.forms import to_json, to_text
from verilocc_mlir.problem.model import AllocationProblem, FixedOccupation, Proposal
from verilocc_mlir.target.registers import physical_register, subregister_lanes, tuple_name

WHOLE = 0b11


def diagnosis(asked: AllocationProblem, *registers: str) -> Diagnosis:
    answer = proposal(*registers)
    return diagnose(asked, answer, prove(asked, answer))


def proved(asked: AllocationProblem, answer: Proposal, keep: Iterable[int]) -> bool:
    """Whether the proposal is right for the live ranges ``keep`` alone."""
    return prove(*restricted(asked, answer, keep)).outcome is Outcome.PROVED


Holds = Callable[[AllocationProblem, Proposal, Iterable[int]], bool]


def check_correction_set(asked: AllocationProblem, answer: Proposal, found: Diagnosis, holds: Holds) -> None:
    """All others can stay where they are; none of these can; each free register offered is one."""
    moves = {move.range_id for move in found.moves}
    staying = {r.id for r in asked.ranges} - moves
    assert holds(asked, answer, staying)
    for move in found.moves:
        assert not holds(asked, answer, {*staying, move.range_id})
        for name in move.free:
            registers = list(answer.registers)
            registers[move.range_id] = name
            assert holds(asked, replace(answer, registers=tuple(registers)), {*staying, move.range_id})
        assert (move.blocked is None) == bool(move.free)
        assert set(move.because) <= {v.name for v in found.core}
        assert move.because or found.result.truncated


def allowed(asked: AllocationProblem, answer: Proposal, keep: Iterable[int]) -> bool:
    """The same by the slow checker of the tests, which is the faster one on problems as small as these."""
    return not brute_force(*restricted(asked, answer, keep))


def some_place(asked: AllocationProblem, answer: Proposal, range_id: int, others: Iterable[int]) -> bool:
    """Whether there is a register for a live range beside some others, by trying every register there is."""
    width = asked.ranges[range_id].width
    every = [
        *(tuple_name(bank, first, width) for bank in asked_banks() for first in range(0, 15 - width)),
        *(f"vgpr{n}_{half}" for n in range(15) for half in ("lo16", "hi16")),
        *("vcc", "vcc_lo", "vcc_hi"),
    ]
    keep = {*others, range_id}
    for name in every:
        registers = list(answer.registers)
        registers[range_id] = name
        if allowed(asked, replace(answer, registers=tuple(registers)), keep):
            return True
    return False


def asked_banks() -> list[Any]:
    return [physical_register(f"{bank}0").bank for bank in ("vgpr", "agpr", "sgpr")]


@pytest.mark.long
@settings(max_examples=150, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(cases())
def test_correction_sets_are_minimal(case: tuple[AllocationProblem, Proposal]) -> None:
    asked, answer = case
    result = prove(asked, answer)
    found = diagnose(asked, answer, result)
    assert bool(found.moves) == (result.outcome is Outcome.REFUTED)
    check_correction_set(asked, answer, found, allowed)
    # Minimal sets of placements: none contains another, and each implied one contains one.
    of_core = [set(v.ranges) for v in found.core]
    assert not any(a < b for a in of_core for b in of_core)
    implied = [v for v in result.violations if v.name in found.implied]
    assert len(found.core) + len(implied) == len(result.violations)
    assert all(any(a < set(v.ranges) for a in of_core) for v in implied)
    assert len({v.name for v in result.violations}) == len(result.violations)
    jsonschema.validate(json.loads(json.dumps(to_json(found))), SCHEMA)
    assert to_text(found)


SCHEMA = json.loads(Path(smt_verifier.prove.__file__).with_name("diagnosis.schema.json").read_text())


def test_a_right_proposal_has_nothing_to_say() -> None:
    found = diagnosis(problem_of(live_of("vgpr_32")), "vgpr0")
    assert (found.core, found.implied, found.moves) == ((), (), ())
    assert to_text(found) == "f, phase vgpr: proved, 7 constraints"


def test_what_follows_from_a_register_that_cannot_stay_is_not_a_core() -> None:
    """%0 must move because it is misaligned; that it also meets %1 says nothing more. %1 and %2 are another matter."""
    found = diagnosis(
        problem_of(live_of("vreg_64_align2", weight=9.0), live_of("vgpr_32", weight=5.0), live_of("vgpr_32")),
        "vgpr1_vgpr2", "vgpr2", "vgpr2",
    )  # fmt: skip
    assert [v.name for v in found.core] == ["alignment/0", "interference/1-2"]
    assert found.implied == ("interference/0-1", "interference/0-2")
    assert [(m.range_id, m.because) for m in found.moves] == [(0, ("alignment/0",)), (2, ("interference/1-2",))]


def test_the_range_that_is_cheap_to_move_moves() -> None:
    """Three light ranges in a heavy one's way: one heavy move would do, but the weights say otherwise."""
    light = [live_of("vgpr_32", (WHOLE, [(start, start + 2)]), weight=1.0) for start in (2, 4, 6)]
    asked = problem_of(live_of("vgpr_32", weight=10.0), *light)
    assert [m.range_id for m in diagnosis(asked, *["vgpr0"] * 4).moves] == [1, 2, 3]
    asked = problem_of(live_of("vgpr_32", weight=0.5), *light)
    assert [m.range_id for m in diagnosis(asked, *["vgpr0"] * 4).moves] == [0]


def test_more_violations_than_are_listed_do_not_hide_a_move() -> None:
    found = diagnosis(problem_of(*[live_of("vgpr_32")] * 40, vgprs=tuple(range(64))), *["vgpr0"] * 40)
    assert found.result.truncated
    assert [m.range_id for m in found.moves] == list(range(1, 40))


def test_blocked_names_a_smallest_set() -> None:
    """Of three registers an argument holds one, and %1 and %2 one each; %3 is in nobody's way."""
    argument = FixedOccupation(physical_register("vgpr0").units, ((0, 40),), "argument $vgpr0")
    late = live_of("vgpr_32", (WHOLE, [(20, 30)]))
    asked = problem_of(
        live_of("vgpr_32", weight=0.5), live_of("vgpr_32", weight=7.0), live_of("vgpr_32", weight=3.0), late,
        fixed=(argument,), vgprs=(0, 1, 2),
    )  # fmt: skip
    (move,) = diagnosis(asked, "vgpr1", "vgpr1", "vgpr2", "vgpr1").moves
    assert move == Relocation(0, "vgpr1", ("interference/0-1",), (), Blocked(3, 1, (1, 2), "vgpr2", (2,)))
    (row,) = to_json(diagnosis(asked, "vgpr1", "vgpr1", "vgpr2", "vgpr1"))["moves"]
    assert row["blocked"] == {"candidates": 3, "fixed": 1, "core": [1, 2], "cheapest": "vgpr2", "evict": [2]}
    text = to_text(diagnosis(asked, "vgpr1", "vgpr1", "vgpr2", "vgpr1"))
    assert "none is free: %1, %2 block 2 registers, 1 more are held by something fixed" in text
    assert "moving %2 as well would free $vgpr2" in text


def test_blocked_by_what_cannot_move() -> None:
    argument = FixedOccupation(physical_register("vgpr0").units, ((0, 40),), "argument $vgpr0")
    asked = problem_of(live_of("vgpr_32"), fixed=(argument,), vgprs=(0,))
    (move,) = diagnosis(asked, "vgpr0").moves
    assert move.blocked == Blocked(1, 1, (), "", ())
    assert "all 1 registers it could have are held by something fixed" in to_text(diagnosis(asked, "vgpr0"))


def test_blocked_without_a_candidate() -> None:
    asked = problem_of(live_of("vreg_64_align2"), vgprs=(1, 2, 4))
    (move,) = diagnosis(asked, "vgpr1_vgpr2").moves
    assert move.blocked == Blocked(0, 0, (), "", ())
    assert "no register of its class is handed out in this function" in to_text(diagnosis(asked, "vgpr1_vgpr2"))


def check_blocking_cores(asked: AllocationProblem, answer: Proposal) -> None:
    found = diagnose(asked, answer, prove(asked, answer))
    staying = {r.id for r in asked.ranges} - {move.range_id for move in found.moves}
    for move in found.moves:
        if move.blocked is None:
            continue
        core = set(move.blocked.core)
        assert core <= staying
        assert not some_place(asked, answer, move.range_id, core)
        for i in core:
            assert some_place(asked, answer, move.range_id, core - {i})
        if move.blocked.cheapest:
            registers = list(answer.registers)
            registers[move.range_id] = move.blocked.cheapest
            keep = {*staying, move.range_id} - set(move.blocked.evict)
            assert proved(asked, replace(answer, registers=tuple(registers)), keep)
        else:
            assert not core


@settings(max_examples=40, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(cases(budgets=(2, 3, 4)))
def test_a_few_blocking_cores_are_unsatisfiable_and_irreducible(case: tuple[AllocationProblem, Proposal]) -> None:
    check_blocking_cores(*case)


@pytest.mark.long
@settings(max_examples=150, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(cases(budgets=(2, 3, 4)))
def test_blocking_cores_are_unsatisfiable_and_irreducible(case: tuple[AllocationProblem, Proposal]) -> None:
    check_blocking_cores(*case)


@pytest.mark.parametrize("path", few(SMALL[:1], SMALL), ids=path_names(SMALL))
def test_a_real_proposal_comes_right_when_it_is_told_how(path: Path) -> None:
    """Damage a few live ranges of a proved allocation, then follow the advice, one round after the other."""
    for asked, answer in answered(path):
        damaged = answer
        for i in range(0, len(asked.ranges), max(1, len(asked.ranges) // 5)):
            of_class = [r for r in asked.ranges if r.register_class == asked.ranges[i].register_class]
            damaged = moved(damaged, asked.ranges[i], answer.registers[of_class[-1].id])
        for _ in range(8):
            found = diagnose(asked, damaged, prove(asked, damaged))
            check_correction_set(asked, damaged, found, proved)
            jsonschema.validate(json.loads(json.dumps(to_json(found))), SCHEMA)
            if not found.moves:
                break
            for move in found.moves:
                if move.free:
                    damaged = moved(damaged, asked.ranges[move.range_id], move.free[move.range_id % len(move.free)])
        # Where room is tight the first free register may be another's only one: what is left must be said to be so.
        left = diagnose(asked, damaged, prove(asked, damaged))
        assert all(move.blocked for move in left.moves)


def test_text_for_people() -> None:
    asked = replace(
        problem_of(
            live_of("vreg_64", (0b0011, [(2, 10)]), (0b1100, [(6, 10)])), live_of("vgpr_32", (WHOLE, [(9, 18)]))
        ),
        block_starts=(0, 4),
        block_depths=(0, 0),
    )
    assert to_text(diagnosis(asked, "vgpr0_vgpr1", "vgpr1")) == (
        "f, phase vgpr: refuted, 15 constraints\n"
        "  interference/0-1 at instruction 1 of block 1 (early-clobber definitions): "
        "%0 in $vgpr0_vgpr1 (lanes 0xc) and %1 in $vgpr1 (lanes 0x3) are both live at slot 9\n"
        "    %0.sub1 in $vgpr0_vgpr1: kept during [6, 10)\n"
        "    %1 in $vgpr1: kept during [9, 18)\n"
        "  move %1 from $vgpr1: free are $vgpr2, $vgpr3, $vgpr4, $vgpr5, $vgpr6, $vgpr7 and 8 more\n"
        "  the nearest valid assignment moves %1 to $vgpr2"
    )


def test_json_of_a_refutation() -> None:
    asked = problem_of(live_of("vreg_64_align2"), live_of("vgpr_32"), vgprs=(0, 1, 2, 3))
    found = to_json(diagnosis(asked, "vgpr0_vgpr1", "vgpr1"))
    jsonschema.validate(found, SCHEMA)
    (violation,) = found["violations"]
    assert violation["name"] == "interference/0-1"
    assert violation["point"] == {
        "slot": 2, "block": 0, "instruction": 0, "stage": "operands read, results defined",
    }  # fmt: skip
    assert [(r["name"], r["subregister"], r["register"]) for r in violation["ranges"]] == [
        ("%0", "sub1", "vgpr0_vgpr1"),
        ("%1", "", "vgpr1"),
    ]
    assert violation["free"] == ["vgpr2_vgpr3"]
    assert found["moves"] == [
        {
            "id": 1, "name": "%1", "register": "vgpr1", "because": ["interference/0-1"],
            "free": ["vgpr2", "vgpr3"], "blocked": None,
        }
    ]  # fmt: skip
    assert found["nearest"] == {
        "moves": [{"id": 1, "name": "%1", "register": "vgpr2"}], "fewest": True, "reason": None,
    }  # fmt: skip


def test_an_invalid_proposal_is_diagnosed_as_such() -> None:
    found = diagnosis(problem_of(live_of("vgpr_32")))
    assert "invalid" in to_text(found)
    assert "1 live ranges" in to_text(found)
    jsonschema.validate(to_json(found), SCHEMA)


def test_points() -> None:
    asked = replace(problem_of(slots=40), block_starts=(0, 0, 16), block_depths=(0, 0, 0))
    assert point(asked, -1) is None
    found = [point(asked, slot) for slot in (0, 9, 15, 16, 39)]
    assert [(p.block, p.instruction, p.stage[:5]) for p in found if p] == [
        (1, 0, "block"), (1, 2, "early"), (1, 3, "dead "), (2, 0, "block"), (2, 5, "dead "),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("lanes", "count", "text"),
    [
        (0b1111, 4, ""), (1, 1, ""), (0b1100, 4, "sub1"), (0b10, 2, "hi16"), (0b01, 2, "lo16"),
        (0b111100, 8, "sub1_sub2"), (0b0110, 4, "sub0_hi16_sub1_lo16"),
    ],
)  # fmt: skip
def test_lanes_are_named_as_llvm_does(lanes: int, count: int, text: str) -> None:
    assert lanes_text(lanes, count) == text
    assert not text or subregister_lanes(text) == lanes
