"""The exact allocator against enumeration, on kernels, and where there is nothing to find."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from allocators_support import compiled_kernel, violations
from builders import live, problem
from exact_support import best, placements, small_problem
from msgspec.structs import replace
from support import REPOSITORY, few, kernel_paths

pytest.importorskip("ortools", reason="OR-Tools is an extra: requirements/exact.txt")

from smt_verifier.outcome import Outcome
from smt_verifier.prove import prove
from verilocc_mlir.allocators import AllocationFailure, allocator
from verilocc_mlir.allocators.exact import ExactAllocator, ExactResult
from verilocc_mlir.allocators.exact.bound import PackingModel, counted_bound, shared_bound
from verilocc_mlir.allocators.exact.frame import Budget, Layout
from verilocc_mlir.allocators.tables import Tables
from verilocc_mlir.problem.model import Affinity, AllocationProblem, BankBudget, FixedOccupation

LARGEST = 120
"""Live ranges of the kernels that the quick tests solve."""


def solve(question: AllocationProblem, **options: object) -> ExactResult:
    """A result whose proposal violates nothing, by the checker of the tests and by the proof."""
    result = ExactAllocator(20, **options).solve(question)  # type: ignore[arg-type]
    assert violations(question, result.proposal) == []
    return result


class TestAgainstEnumeration:
    @pytest.mark.parametrize("seed", few(range(0, 40, 2), range(40)))
    def test_registers_then_copies(self, seed: int) -> None:
        question = small_problem(seed)
        known = best(question)
        if known is None:
            with pytest.raises(AllocationFailure) as failure:
                ExactAllocator(20).solve(question)
            assert failure.value.reason in ("pressure", "infeasible")
            return
        result = solve(question)
        assert (result.registers, result.registers_bound) == (known[0], known[0])
        assert result.copies == result.copies_bound == known[1]

    @pytest.mark.parametrize("seed", few(range(0, 40, 2), range(40)))
    def test_waves_then_copies(self, seed: int) -> None:
        question = small_problem(seed)
        known = best(question)
        if known is not None:
            cost = solve(question, order="waves").cost
            assert cost[:2] == known[2][:2]

    @pytest.mark.parametrize("seed", few(range(0, 40, 2), range(40)))
    def test_bounds_without_places_never_exceed_the_best(self, seed: int) -> None:
        question = small_problem(seed)
        layout = Layout(Tables(question))
        known = best(question)
        most = known[0] if known else layout.top + 1
        assert counted_bound(layout) <= most
        if layout.unified:
            assert shared_bound(layout, Budget(5, 5), 5) <= most

    @pytest.mark.parametrize("seed", range(20))
    def test_the_model_has_a_solution_exactly_where_there_is_a_placement(self, seed: int) -> None:
        question = small_problem(seed)
        tables = Tables(question)
        totals = {tables.cost.of(starts).registers for starts in placements(tables)}
        layout = Layout(tables)
        for total in range(1, layout.top + 1):
            answer = PackingModel(layout, total).ask(Budget(5, 5), 5)
            assert answer.has_solution == (min(totals, default=total + 1) <= total)
            assert answer.refuted == (not answer.has_solution)


class TestNoPlacement:
    def fragmented(self) -> AllocationProblem:
        """Two registers are always free, but never two neighbours that a pair may take."""
        fixed = tuple(FixedOccupation((2 * n, 2 * n + 1), ((0, 40),), f"held $vgpr{n}") for n in (1, 2))
        return replace(problem(live(0, (0, 40), width=2), registers=4), fixed=fixed)

    def test_it_is_proved_that_there_is_none(self) -> None:
        with pytest.raises(AllocationFailure, match="proved") as failure:
            ExactAllocator(20).solve(self.fragmented())
        assert failure.value.reason == "infeasible"

    def test_one_register_more_and_there_is_one(self) -> None:
        question = replace(self.fragmented(), budgets=(BankBudget("vgpr", tuple(range(5))),))
        assert solve(question).proposal.registers == ("vgpr3_vgpr4",)

    def test_pressure_is_said_as_by_the_others(self) -> None:
        with pytest.raises(AllocationFailure) as failure:
            ExactAllocator(20).solve(problem(*(live(n, (0, 40)) for n in range(5)), registers=4))
        assert failure.value.reason == "pressure"

    def test_out_of_time_nothing_is_claimed(self) -> None:
        question = replace(
            self.fragmented(), ranges=(live(0, (0, 40), width=2),), budgets=(BankBudget("vgpr", tuple(range(4))),)
        )
        with pytest.raises(AllocationFailure) as failure:
            ExactAllocator(1e-9).solve(question)
        assert failure.value.reason in ("fragmentation", "infeasible")


class TestResult:
    def test_a_copy_is_traded_for_registers_only_by_order(self) -> None:
        """%1 can stay in %0's register, or use one register less: a pair stands in the way."""
        ranges = (live(0, (0, 20)), live(1, (20, 40)), live(2, (0, 20), width=2, align=2), live(3, (20, 40), width=2))
        question = replace(problem(*ranges), affinities=(Affinity(0, 0, 1, 0, 2, 10.0, 20),))
        result = solve(question)
        assert (result.registers, result.copies, result.registers_bound) == (3, 0.0, 3)
        assert result.registers_optimal
        assert result.copies_optimal

    def test_callee_saved_registers_count(self) -> None:
        budget = BankBudget("vgpr", tuple(range(4)), (0, 1))
        result = solve(replace(problem(live(0, (0, 20))), budgets=(budget,)), order="waves")
        assert result.proposal.registers[0] in ("vgpr2", "vgpr3")
        assert result.copies == result.copies_bound == 0

    def test_equal_problems_get_equal_proposals(self) -> None:
        question = small_problem(7)
        assert solve(question).proposal == solve(question).proposal

    def test_steps_are_told(self) -> None:
        heard: list[str] = []
        fixed = (FixedOccupation((0, 1), ((0, 2),), "argument $vgpr0"),)
        question = next(
            q
            for seed in range(200)
            if best(q := replace(small_problem(seed), fixed=fixed)) is not None
            and counted_bound(Layout(Tables(q))) < Tables(q).cost.of(_first_fit(q)).registers
        )
        solve(question, progress=heard.append)
        assert all("registers" in line for line in heard)


def _first_fit(question: AllocationProblem) -> list[int]:
    return Tables(question).starts(allocator("deterministic").allocate(question))


SMALL = [path for path in kernel_paths() if "naive" in path.name or "lds" in path.name]


@pytest.mark.parametrize(
    "path", few([path for path in SMALL if path.stem == "gemm_naive.gfx1100.opt"], SMALL), ids=lambda path: path.stem
)
def test_kernels_are_closed_and_proved(path: Path) -> None:
    for runs in compiled_kernel(path).runs.values():
        for run in runs:
            if len(run.problem.ranges) > LARGEST or run.proposal is None:
                continue
            result = solve(run.problem)
            assert result.registers_optimal
            assert prove(run.problem, result.proposal).outcome is Outcome.PROVED
            tables = Tables(run.problem)
            assert result.registers <= tables.cost.of(tables.starts(run.proposal)).registers


def test_without_ortools_the_package_loads_and_the_error_names_the_extra() -> None:
    code = (
        "import sys; sys.modules['ortools'] = None\n"
        "from verilocc_mlir.allocators import allocator, allocator_names\n"
        "assert 'exact' in allocator_names()\n"
        "try:\n    allocator('exact')\n"
        "except Exception as error:\n    print(type(error).__name__, error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=REPOSITORY)
    assert done.stdout.startswith("UnsupportedError")
    assert "verilocc-mlir[exact]" in done.stdout
