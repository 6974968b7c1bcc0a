"""The deterministic allocator on synthetic problems, every answer checked slot by slot by ``violations``."""

from __future__ import annotations

from typing import Any

import pytest
from allocators_support import random_problem, violations
from builders import live, problem
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from verilocc_mlir.allocators import AllocationFailure, allocator, allocator_names, deterministic
from verilocc_mlir.errors import InputError
from verilocc_mlir.problem.model import (
    Affinity,
    AllocationProblem,
    BankBudget,
    FixedOccupation,
    LaneGroup,
    Proposal,
)
from verilocc_mlir.target.registers import physical_register


def solve(question: AllocationProblem) -> Proposal:
    """A proposal without violations."""
    proposal = allocator("deterministic").allocate(question)
    assert violations(question, proposal) == []
    return proposal


def attempt(question: AllocationProblem) -> tuple[Proposal | None, str]:
    """A proposal, or the kind of failure."""
    try:
        return allocator("deterministic").allocate(question), ""
    except AllocationFailure as failure:
        return None, failure.reason


RANDOM = {
    "seed": st.integers(0, 10**6),
    "phase": st.sampled_from(["vgpr", "sgpr"]),
    "halves": st.booleans(),
    "tight": st.booleans(),
}


def answer_violates_nothing(**random: Any) -> None:
    question = random_problem(**random)
    proposal, reason = attempt(question)
    if proposal is None:
        assert reason in ("pressure", "fragmentation")
    else:
        assert violations(question, proposal) == []
        assert all(proposal.registers)


class TestRandom:
    @settings(max_examples=30, deadline=None)
    @given(**RANDOM)
    def test_answers_violate_nothing(self, **random: Any) -> None:
        answer_violates_nothing(**random)

    @pytest.mark.long
    @settings(max_examples=150, deadline=None)
    @given(**RANDOM)
    def test_more_answers_violate_nothing(self, **random: Any) -> None:
        answer_violates_nothing(**random)

    @pytest.mark.parametrize("seed", range(5))
    def test_equal_problems_get_equal_proposals(self, seed: int) -> None:
        assert solve(random_problem(seed)) == solve(random_problem(seed))

    def test_the_checker_refutes_a_moved_range(self) -> None:
        question = problem(live(0, (0, 20)), live(1, (10, 30)))
        good = solve(question)
        assert violations(question, replace(good, registers=(good.registers[0],) * 2))

    @pytest.mark.parametrize(("seeds", "most"), [(15, 1), pytest.param(60, 6, marks=pytest.mark.long)])
    def test_hardly_any_roomy_problem_fails(self, seeds: int, most: int) -> None:
        assert sum(attempt(random_problem(seed))[0] is None for seed in range(seeds)) <= most


class TestPlacement:
    def test_register_is_shared_between_a_last_read_and_a_definition(self) -> None:
        assert solve(problem(live(0, (2, 10)), live(1, (10, 18)), registers=1)).registers == ("vgpr0", "vgpr0")

    def test_early_clobber_keeps_off_what_is_read(self) -> None:
        assert len(set(solve(problem(live(0, (2, 10)), live(1, (9, 18)))).registers)) == 2

    def test_values_share_a_tuple_lane_by_lane(self) -> None:
        partly = live(0, width=2, groups=(LaneGroup(0b0011, ((0, 20),)), LaneGroup(0b1100, ((0, 4), (16, 20)))))
        solve(problem(partly, live(1, (6, 12)), registers=2))

    def test_a_range_never_live_still_gets_a_register_of_its_shape(self) -> None:
        question = problem(live(0, width=2, align=2, groups=()), live(1, (0, 9)), registers=2)
        assert solve(question).registers == ("vgpr0_vgpr1", "vgpr0")

    def test_tuples_are_aligned(self) -> None:
        proposal = solve(problem(live(0, (0, 9)), live(1, (0, 9), width=2, align=2), live(2, (0, 9)), registers=4))
        assert physical_register(proposal.registers[1]).first % 2 == 0

    def test_class_limit_holds(self) -> None:
        proposal = solve(problem(live(0, (0, 9)), live(1, (0, 9), limit=1), registers=2))
        assert proposal.registers == ("vgpr1", "vgpr0")

    def test_halves_are_packed_where_room_is_short(self) -> None:
        half: dict[str, Any] = {"lanes": 1, "groups": (LaneGroup(1, ((0, 9),)),)}
        question = problem(live(0, **half), live(1, **half), registers=1)
        assert sorted(solve(question).registers) == ["vgpr0_hi16", "vgpr0_lo16"]

    def test_fixed_ranges_are_left_alone(self) -> None:
        fixed = FixedOccupation(physical_register("vgpr0").units, ((4, 8),), "argument $vgpr0")
        question = problem(live(0, (2, 10)), live(1, (8, 10)), registers=2, fixed=(fixed,))
        assert solve(question).registers == ("vgpr1", "vgpr0")

    def test_a_hole_in_the_budget_is_not_used(self) -> None:
        budget = BankBudget("vgpr", (0, 2, 3))
        question = problem(live(0, (0, 9), width=2), budgets=(budget,))
        assert solve(question).registers == ("vgpr2_vgpr3",)

    @pytest.mark.parametrize("seed", [430, 598, 776, 1864, 2840])
    def test_eviction_mends_fragmentation(self, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
        question = random_problem(seed, tight=True, halves=seed % 3 == 0)
        solve(question)
        monkeypatch.setattr(deterministic, "REPAIR_STEPS", 0)
        monkeypatch.setattr(deterministic, "LAST_REPAIR_STEPS", 0)
        with pytest.raises(AllocationFailure) as caught:
            solve(question)
        assert caught.value.reason == "fragmentation"

    def test_where_the_closest_placement_is_not_mended_others_are(self, monkeypatch: pytest.MonkeyPatch) -> None:
        question = random_problem(15240, tight=True, halves=True)
        solve(question)
        monkeypatch.setattr(deterministic, "OTHER_REPAIR_STEPS", -1)
        with pytest.raises(AllocationFailure) as caught:
            solve(question)
        assert caught.value.reason == "fragmentation"


class TestChoice:
    def test_a_copy_is_removed(self) -> None:
        copied = Affinity(0, 0, 1, 0, 2, 10.0, 20)
        question = problem(live(0, (4, 22)), live(1, (22, 40)), live(2, (0, 6)), affinities=(copied,))
        first, second, _ = solve(question).registers
        assert first == second

    def test_a_copy_into_a_part_of_a_tuple_is_removed(self) -> None:
        question = problem(live(0, (4, 22)), live(1, (22, 40), width=4), affinities=(Affinity(0, 0, 1, 4, 2, 1.0, 20),))
        first, second = (physical_register(r).units for r in solve(question).registers)
        assert first == second[4:6]

    def test_a_copy_from_an_argument_is_removed(self) -> None:
        question = problem(live(0, (4, 22)), affinities=(Affinity(0, 0, -1, 0, 2, 1.0, 0, "vgpr5"),))
        assert solve(question).registers == ("vgpr5",)

    def test_the_heavier_of_two_copies_is_removed(self) -> None:
        question = problem(
            live(0, (0, 20)),
            live(1, (20, 40)),
            live(2, (20, 40)),
            affinities=(Affinity(0, 0, 1, 0, 2, 1.0, 16), Affinity(0, 0, 2, 0, 2, 100.0, 16)),
        )
        registers = solve(question).registers
        assert registers[0] == registers[2]

    def test_a_hint_is_honoured(self) -> None:
        wish = live(0, (0, 9), width=2, align=2, banks=("sgpr", "special"), hint="vcc")
        question = problem(wish, phase="sgpr", special=("vcc", "vcc_lo", "vcc_hi"))
        assert solve(question).registers == ("vcc",)

    def test_vcc_is_the_last_resort_without_a_hint(self) -> None:
        either: dict[str, Any] = {"banks": ("sgpr", "special")}
        question = problem(
            *(live(k, (0, 9), **either) for k in range(3)), registers=2, phase="sgpr", special=("vcc_lo",)
        )
        assert sorted(solve(question).registers) == ["sgpr0", "sgpr1", "vcc_lo"]

    def test_parts_of_vcc_alias_the_whole(self) -> None:
        low = live(1, (4, 6), banks=("special",), hint="vcc_lo")
        whole = live(0, (0, 9), width=2, banks=("special",))
        question = problem(whole, low, phase="sgpr", special=("vcc", "vcc_lo", "vcc_hi"))
        with pytest.raises(AllocationFailure):
            allocator("deterministic").allocate(question)

    def test_callee_saved_registers_come_last(self) -> None:
        budget = BankBudget("vgpr", tuple(range(6)), expensive=(0, 1))
        question = problem(live(0, (0, 9)), live(1, (0, 9)), budgets=(budget,))
        assert solve(question).registers == ("vgpr2", "vgpr3")

    def test_agprs_take_what_vgprs_cannot_hold(self) -> None:
        both: dict[str, Any] = {"banks": ("agpr", "vgpr")}
        question = problem(
            *(live(k, (0, 9), **both) for k in range(6)),
            budgets=(BankBudget("vgpr", tuple(range(4))), BankBudget("agpr", tuple(range(4)))),
        )
        assert sum(r.startswith("agpr") for r in solve(question).registers) == 2

    def test_no_agpr_is_used_without_need(self) -> None:
        both: dict[str, Any] = {"banks": ("agpr", "vgpr")}
        question = problem(
            *(live(k, (0, 9), **both) for k in range(4)),
            budgets=(BankBudget("vgpr", tuple(range(256))), BankBudget("agpr", tuple(range(256)))),
        )
        assert all(r.startswith("vgpr") for r in solve(question).registers)

    def test_a_wave_is_worth_more_than_a_copy(self) -> None:
        # Keeping %0 in $vgpr200 would remove a copy and cost six waves.
        question = problem(live(0, (0, 9)), registers=256, affinities=(Affinity(0, 0, -1, 0, 2, 1e6, 0, "vgpr200"),))
        assert solve(question).registers == ("vgpr0",)


class TestFailure:
    def test_pressure_names_the_numbers_and_the_slot(self) -> None:
        question = problem(*(live(k, (4, 9)) for k in range(5)), registers=4)
        with pytest.raises(AllocationFailure, match="5 VGPRs are needed at once, 4 are free there") as caught:
            allocator("deterministic").allocate(question)
        assert caught.value.reason == "pressure"
        assert caught.value.where == "function f, slot 4"

    def test_pressure_counts_what_fixed_ranges_hold(self) -> None:
        fixed = FixedOccupation(physical_register("vgpr0").units, ((0, 50),), "argument $vgpr0")
        question = problem(live(0, (10, 20)), live(1, (10, 20)), registers=2, fixed=(fixed,))
        with pytest.raises(AllocationFailure, match="2 VGPRs are needed at once, 1 are free there"):
            allocator("deterministic").allocate(question)

    def test_fragmentation_is_told_from_pressure(self) -> None:
        # Three registers are free, but not two that start at an even number.
        budget = BankBudget("vgpr", (1, 3, 5))
        question = problem(live(0, (0, 9), width=2, align=2), budgets=(budget,))
        with pytest.raises(AllocationFailure, match="no place found for %0") as caught:
            allocator("deterministic").allocate(question)
        assert caught.value.reason == "fragmentation"

    def test_an_empty_problem_is_answered(self) -> None:
        assert solve(problem()).registers == ()


def test_allocators_go_by_name() -> None:
    assert "deterministic" in allocator_names()
    assert solve(problem(live(0, (0, 9)))).allocator.startswith("deterministic/")
    with pytest.raises(InputError, match="no allocator called 'greed'"):
        allocator("greed")
