"""The nearest valid assignment to a refuted proposal: proved, with the fewest moves, the same every time."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations, product
from pathlib import Path

import pytest
from builders import live_of, problem_of
from hypothesis import HealthCheck, given, settings
from msgspec.structs import replace
from prove_support import SMALL, answered, brute_force, cases, moved, path_names, proposal
from support import few

from smt_verifier.outcome import Outcome
from smt_verifier.prove import Nearest, prove
from smt_verifier.prove import nearest as nearest_module
from smt_verifier.prove.nearest import Move, nearest
from smt_verifier.smt import Obligation, Verdict, default_solver
from verilocc_mlir.problem.model import AllocationProblem, FixedOccupation, Proposal
from verilocc_mlir.target.registers import physical_register


def nearest_of(asked: AllocationProblem, *registers: str) -> Nearest:
    answer = proposal(*registers)
    return nearest(asked, answer, prove(asked, answer))


def fewest_moves(asked: AllocationProblem, answer: Proposal, places: tuple[str, ...]) -> int | None:
    """Of how many live ranges the register must be another, by trying all; None where nothing helps."""
    ids = range(len(asked.ranges))
    for count in range(1, len(ids) + 1):
        for chosen in combinations(ids, count):
            for names in product(places, repeat=count):
                changed = answer
                for i, name in zip(chosen, names, strict=True):
                    changed = moved(changed, asked.ranges[i], name)
                if not brute_force(asked, changed):
                    return count
    return None


ONES = tuple(f"vgpr{n}" for n in range(4))
PAIRS = tuple(f"vgpr{n}_vgpr{n + 1}" for n in range(3))


def test_the_cheapest_way_out_is_one_move() -> None:
    """Two hold vgpr0; the third has vgpr1. One of the two goes to the register that is free."""
    asked = problem_of(*[live_of("vgpr_32")] * 3, vgprs=(0, 1, 2))
    near = nearest_of(asked, "vgpr0", "vgpr0", "vgpr1")
    (move,) = near.moves
    assert (move.id in (0, 1), move.register, near.fewest, near.reason) == (True, "vgpr2", True, "")
    assert str(near) == f"the nearest valid assignment moves %{move.id} to $vgpr2"


def test_what_is_in_the_way_is_freed_once() -> None:
    """A pair needs an even start, vgpr0 or vgpr2. What holds one half must move, though it breaks no rule itself."""
    asked = problem_of(live_of("vreg_64_align2"), live_of("vgpr_32"), live_of("vgpr_32"), vgprs=(0, 1, 2, 3), agprs=())
    answer = proposal("", "vgpr1", "vgpr2")
    near = nearest(asked, answer, prove(asked, answer))
    assert len(near.moves) == 2 == fewest_moves(asked, answer, ONES + PAIRS)
    assert near.fewest
    assert prove(asked, near.applied(answer)).outcome is Outcome.PROVED


@pytest.mark.parametrize(
    "registers", [("vgpr0",) * 4, ("vgpr0", "vgpr0", "vgpr1", "vgpr1"), ("", "vgpr9", "vgpr1", "vgpr1")]
)
def test_no_assignment_moves_fewer(registers: tuple[str, ...]) -> None:
    asked = problem_of(*[live_of("vgpr_32")] * 3, live_of("vgpr_32", (0b11, [(12, 20)])), vgprs=(0, 1, 2, 3), agprs=())
    answer = proposal(*registers)
    near = nearest(asked, answer, prove(asked, answer))
    assert len(near.moves) == fewest_moves(asked, answer, ONES)
    assert near.fewest
    assert not brute_force(asked, near.applied(answer))


def test_there_is_none_where_there_is_no_room() -> None:
    asked = problem_of(*[live_of("vgpr_32")] * 3, vgprs=(0, 1), agprs=())
    near = nearest_of(asked, "vgpr0", "vgpr0", "vgpr1")
    assert near == Nearest((), reason="none with the others where they are")
    assert str(near) == "no valid assignment is near: none with the others where they are"


def test_there_is_none_where_all_places_are_held_by_something_fixed() -> None:
    held = FixedOccupation(physical_register("vgpr0").units, ((0, 40),), "argument")
    asked = problem_of(live_of("vgpr_32"), vgprs=(0,), agprs=(), fixed=(held,))
    assert not nearest_of(asked, "vgpr0").moves


def test_too_much_is_wrong_to_look_for_one() -> None:
    asked = problem_of(*[live_of("vgpr_32")] * 40, vgprs=tuple(range(64)))
    assert not nearest_of(asked, *["vgpr0"] * 40).moves
    assert "more is wrong" in nearest_of(asked, *["vgpr0"] * 40).reason
    few_pairs = [f"vgpr{n // 2}" for n in range(40)]
    assert nearest_of(asked, *few_pairs).reason == "40 live ranges are in conflict, and 32 are freed at most"


class Changed:
    """The usual solver, whose verdicts on some questions are others."""

    def __init__(self, change: Callable[[Obligation, Verdict], Verdict]) -> None:
        self.change = change

    def check(self, obligation: Obligation, timeout_s: float = 30.0, *, consistent: bool = False) -> Verdict:
        verdict = default_solver().check(obligation, timeout_s, consistent=consistent)
        return self.change(obligation, verdict) if obligation.name.startswith("nearest/") else verdict


def test_what_is_not_proved_is_not_told() -> None:
    """Whatever the search says: here that the live range can be in each of its places, so in the first."""
    asked = problem_of(live_of("vgpr_32"), live_of("vgpr_32"), vgprs=(0, 1, 2), agprs=())
    answer = proposal("vgpr0", "vgpr0")

    def same(obligation: Obligation, verdict: Verdict) -> Verdict:
        return replace(verdict, violated=tuple(name for name, _ in obligation.goals if name.endswith("vgpr1")))

    near = nearest(asked, answer, prove(asked, answer), solver=Changed(same))
    assert near == Nearest((), reason="what was found is refuted")


def test_a_limit_is_no_answer() -> None:
    asked = problem_of(live_of("vgpr_32"), live_of("vgpr_32"), vgprs=(0, 1, 2), agprs=())
    answer = proposal("vgpr0", "vgpr0")
    gives_up = Changed(lambda *_: Verdict(Outcome.UNKNOWN, reason="limit"))
    near = nearest(asked, answer, prove(asked, answer), solver=gives_up)
    assert near == Nearest((), reason="none is found within the solver's limit")


def test_the_limit_is_one_of_resources(monkeypatch: pytest.MonkeyPatch) -> None:
    """So small that Z3 comes to nothing, and comes to the same every time."""
    monkeypatch.setattr(nearest_module, "RLIMIT", 10)
    asked = problem_of(*[live_of("vgpr_32")] * 4, vgprs=(0, 1, 2, 3), agprs=())
    nears = {nearest_of(asked, *["vgpr0"] * 4) for _ in range(3)}
    assert nears == {Nearest((), reason="none is found within the solver's limit")}


@pytest.mark.parametrize("path", few(SMALL[:1], SMALL), ids=path_names(SMALL))
def test_a_real_proposal_comes_right_in_one_step(path: Path) -> None:
    """A proved allocation with a few registers of others of the class: as many moves as were made, or fewer."""
    for asked, answer in answered(path):
        wrong, spoilt = answer, 0
        for i in range(0, len(asked.ranges), max(1, len(asked.ranges) // 4)):
            of_class = [r for r in asked.ranges if r.register_class == asked.ranges[i].register_class]
            wrong = moved(wrong, asked.ranges[i], answer.registers[of_class[-1].id])
            spoilt += wrong.registers[i] != answer.registers[i]
        proof = prove(asked, wrong)
        if proof.outcome is not Outcome.REFUTED:
            continue
        near = nearest(asked, wrong, proof)
        assert 1 <= len(near.moves) <= spoilt
        assert near.fewest
        assert near == nearest(asked, wrong, proof)
        right = near.applied(wrong)
        assert prove(asked, right).outcome is Outcome.PROVED
        changed = [i for i, pair in enumerate(zip(wrong.registers, right.registers, strict=True)) if pair[0] != pair[1]]
        assert near.moves == tuple(Move(i, asked.ranges[i].name, right.registers[i]) for i in changed)


@settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(cases(budgets=(3, 4, 6)))
def test_what_is_told_is_right_by_the_slow_checker_too(case: tuple[AllocationProblem, Proposal]) -> None:
    asked, answer = case
    proof = prove(asked, answer)
    if proof.outcome is Outcome.REFUTED:
        near = nearest(asked, answer, proof)
        assert bool(near.moves) == (not near.reason)
        assert not near.moves or not brute_force(asked, near.applied(answer))
