"""The improver: valid, never worse, the same for the same steps, and as good as enumeration on small problems."""

from __future__ import annotations

from importlib.util import find_spec

import pytest
from allocators_support import compiled_kernel, random_problem, violations
from builders import live, problem
from exact_support import best, placements, small_problem
from msgspec.structs import replace
from support import few, kernel_directory, long

from smt_verifier.outcome import Outcome
from smt_verifier.prove import prove
from verilocc_mlir.allocators import AllocationFailure, allocator
from verilocc_mlir.allocators.cost import Cost
from verilocc_mlir.allocators.improve import Improved, improve
from verilocc_mlir.allocators.tables import Tables
from verilocc_mlir.errors import InputError
from verilocc_mlir.problem.model import Affinity, AllocationProblem, Proposal

PLENTY = 600.0
"""Seconds that no test uses: the steps end it."""

WAYS = [
    pytest.param(False, id="moves"),
    pytest.param(True, id="regions", marks=pytest.mark.skipif(find_spec("ortools") is None, reason="needs OR-Tools")),
]


def worst(question: AllocationProblem) -> Proposal | None:
    """The dearest placement there is."""
    tables = Tables(question)
    found = max(placements(tables), key=lambda starts: (tables.cost.of(starts), starts), default=None)
    return None if found is None else tables.proposal(found, "worst")


@pytest.mark.parametrize("solver", WAYS)
@pytest.mark.parametrize("seed", few(range(0, 12, 2), range(12)))
def test_from_the_worst_to_the_best(seed: int, solver: bool) -> None:
    question = small_problem(seed)
    known = best(question)
    given = worst(question)
    if known is None or given is None:
        return
    found = improve(question, given, PLENTY, seed, steps=60, solver=solver)
    assert violations(question, found.proposal) == []
    assert found.cost_after == known[2]


@pytest.mark.parametrize("solver", WAYS)
@pytest.mark.parametrize("phase", ["vgpr", "sgpr"])
@pytest.mark.parametrize("seed", [1, 2, 4, 7, *long(0, 3, 5, 6)])
def test_random_problems_stay_valid_and_get_no_worse(seed: int, phase: str, solver: bool) -> None:
    question = random_problem(seed, phase=phase, halves=seed % 2 == 0)
    try:
        given = allocator("deterministic").allocate(question)
    except AllocationFailure:
        return
    tables = Tables(question)
    found = improve(question, given, PLENTY, seed, steps=6, solver=solver)
    assert violations(question, found.proposal) == []
    assert found.cost_before == tables.cost.of(tables.starts(given))
    assert found.cost_after == tables.cost.of(tables.starts(found.proposal)) <= found.cost_before


@pytest.mark.parametrize("solver", WAYS)
def test_equal_steps_and_seed_give_equal_answers(solver: bool) -> None:
    question = random_problem(3)
    given = allocator("deterministic").allocate(question)
    again = [improve(question, given, PLENTY, 5, steps=8, solver=solver) for _ in range(2)]
    assert again[0] == again[1]


def test_a_kernel_gets_cheaper_and_is_proved() -> None:
    path = kernel_directory() / "gemm_mma_lds.gfx942.ll"
    if not path.exists():
        pytest.skip("no kernels: set VERILOCC_KERNELS to a directory of .ll files")
    run = compiled_kernel(path).runs["vgpr"][0]
    assert run.proposal is not None
    found = improve(run.problem, run.proposal, PLENTY, 1, steps=150, solver=False)
    assert found.cost_after < found.cost_before
    assert prove(run.problem, found.proposal).outcome is Outcome.PROVED


class TestLoop:
    question = replace(problem(live(0, (0, 20)), live(1, (20, 40))), affinities=(Affinity(0, 0, 1, 0, 2, 10.0, 20),))
    given = Proposal(1, "given", ("vgpr0", "vgpr3"))

    def run(self, seconds: float = PLENTY, **options: object) -> Improved:
        return improve(self.question, self.given, seconds, solver=False, **options)  # type: ignore[arg-type]

    def test_the_copy_goes(self) -> None:
        found = self.run(steps=20)
        assert (found.cost_before.saves_and_copies, found.cost_after.saves_and_copies) == (10.0, 0.0)
        assert found.proposal.allocator == "given+improve/1"

    def test_no_time_no_change(self) -> None:
        found = self.run(0.0)
        assert (found.proposal, found.steps) == (self.given, 0)

    def test_progress_is_told_and_may_stop_it(self) -> None:
        heard: list[tuple[int, Cost]] = []

        def told(steps: int, cost: Cost) -> bool:
            heard.append((steps, cost))
            return steps == 3

        assert self.run(progress=told).steps == 3
        assert [steps for steps, _ in heard] == [1, 2, 3]

    @pytest.mark.parametrize(
        ("registers", "what"),
        [
            (("vgpr0",), "1 registers for 2 ranges"),
            (("vgpr0", ""), "%1 cannot be in no register"),
            (("vgpr0", "vgpr9"), "%1 cannot be in \\$vgpr9"),
        ],
    )
    def test_what_is_no_placement_is_refused(self, registers: tuple[str, ...], what: str) -> None:
        with pytest.raises(InputError, match=what):
            improve(self.question, Proposal(1, "given", registers), 1.0)

    def test_values_in_one_place_are_refused(self) -> None:
        question = replace(self.question, ranges=(live(0, (0, 20)), live(1, (10, 40))))
        with pytest.raises(InputError, match="%1 has no room"):
            improve(question, Proposal(1, "given", ("vgpr0", "vgpr0")), 1.0)
