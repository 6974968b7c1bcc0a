"""Registers that no wave needs are used to put off reuse, and nothing is given away for that."""

from __future__ import annotations

import math
import random
from itertools import pairwise

import pytest
from allocators_support import random_problem, violations
from builders import live, problem
from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from support import DEMO_KERNELS

from smt_verifier.outcome import Outcome
from verilocc_mlir.allocators import AllocationFailure, allocator
from verilocc_mlir.allocators.deterministic import DeterministicAllocator
from verilocc_mlir.allocators.exact import ExactAllocator
from verilocc_mlir.allocators.exact.frame import available
from verilocc_mlir.allocators.improve import Improving
from verilocc_mlir.allocators.packing import Packing
from verilocc_mlir.allocators.protocol import Allocator
from verilocc_mlir.allocators.spread import spread, spread_proposal
from verilocc_mlir.allocators.tables import HORIZON, SLOW_WEIGHT, Reuse, Tables
from verilocc_mlir.cost.compare import spill_traffic
from verilocc_mlir.cost.model import KernelCost, cost_of_assembly
from verilocc_mlir.pipeline.compile import compile_module
from verilocc_mlir.pipeline.settings import Emit, Settings
from verilocc_mlir.problem.model import (
    CALL_CLOBBERS,
    CHAIN,
    Affinity,
    AllocationProblem,
    BankBudget,
    FixedOccupation,
    Point,
    Preference,
    Proposal,
    Relation,
)
from verilocc_mlir.target.targets import target

ROW = tuple(live(k, (4 * k + 2, 4 * k + 6)) for k in range(4))
"""Four values, each dead when the next one starts."""


def registers(question: AllocationProblem) -> tuple[str, ...]:
    proposal = allocator("deterministic").allocate(question)
    assert violations(question, proposal) == []
    return proposal.registers


def packed(question: AllocationProblem) -> Proposal:
    return DeterministicAllocator(packed=True).allocate(question)


def dependencies(question: AllocationProblem, starts: list[int]) -> float:
    """The false dependencies of every range, each with all others in place."""
    tables = Tables(question)
    reuse, packing = Reuse(question, tables.timeline), Packing(tables.fixed)
    for item, start in zip(tables.singles, starts, strict=True):
        packing.place(item, start)
    total = 0.0
    for item in tables.singles:
        start = packing.remove(item)
        total += reuse.price(reuse.windows(item), start, packing.occupied, math.inf)
        packing.place(item, start)
    return total


class TestWhatIsPutOff:
    def test_a_register_is_not_reused_at_once(self) -> None:
        question = problem(*ROW, registers=64)
        assert len(set(packed(question).registers)) == 1
        assert len(set(registers(question))) == 4

    def test_where_registers_are_few_the_one_that_has_been_free_longest_is_taken(self) -> None:
        assert registers(problem(*ROW, registers=2)) in (("vgpr0", "vgpr1") * 2, ("vgpr1", "vgpr0") * 2)

    def test_values_of_different_blocks_do_not_meet(self) -> None:
        question = problem(*ROW, registers=64, block_starts=(0, 4, 8, 12), block_depths=(0, 0, 0, 0))
        apart = problem(*(live(k, (16 * k + 2, 16 * k + 10)) for k in range(4)), registers=64)
        apart = replace(apart, block_starts=(0, 16, 32, 48), block_depths=(0, 0, 0, 0))
        assert len(set(registers(apart))) == 1
        assert dependencies(question, [0, 0, 0, 0]) == 0

    def test_the_horizon(self) -> None:
        def price(distance: int) -> float:
            slot = 6 + 4 * distance
            return dependencies(problem(live(0, (2, 6)), live(1, (slot, slot + 4)), slots=400), [0, 0])

        # Seen from both values.
        assert price(0) == 2
        assert price(HORIZON // 2) == 1
        assert price(HORIZON) == 0

    def test_loads_and_inner_loops_weigh_more(self) -> None:
        load = Point(6, 3, "def", 0, "load")
        first, second = live(0, (2, 6)), live(1, (6, 10))
        slow = problem(first, replace(second, points=(load,)))
        assert dependencies(slow, [0, 0]) == 2 * SLOW_WEIGHT
        assert dependencies(replace(slow, block_depths=(2,)), [0, 0]) == 200 * SLOW_WEIGHT

    def test_the_innermost_loop_chooses_first(self) -> None:
        """Two registers: one is held throughout by a third value, so that only one block's pair can be put apart."""
        held = live(4, (0, 30), (60, 100))
        pairs = [live(k, (s, s + 4)) for k, s in enumerate((32, 36, 40, 44))]
        question = replace(problem(*pairs, held, registers=2), block_starts=(0, 32, 60), block_depths=(0, 1, 0))
        names = registers(question)
        assert [a != b for a, b in pairwise(names[:4])] == [True, True, True]

    def test_of_random_problems(self) -> None:
        """Not of each one: a value that leaves its register makes neighbours of those before and after it."""
        before = after = 0.0
        for seed in range(20):
            question = random_problem(seed)
            question = replace(question, budgets=tuple(replace(b, expensive=()) for b in question.budgets))
            tables = Tables(question)
            starts = tables.starts(packed(question))
            before += dependencies(question, starts)
            after += dependencies(question, spread(tables, starts))
        assert after < 0.8 * before


class TestNothingIsGivenAway:
    # There are fewer VGPRs than the waves leave.
    @example(seed=1882, halves=False, tight=False, grows=True)
    @settings(max_examples=25, deadline=None)
    @given(seed=st.integers(0, 10**6), halves=st.booleans(), tight=st.booleans(), grows=st.booleans())
    def test_of_random_problems(self, seed: int, halves: bool, tight: bool, grows: bool) -> None:
        question = random_problem(seed, halves=halves, tight=tight)
        if grows:
            question = replace(question, budgets=tuple(replace(b, expensive=()) for b in question.budgets))
        question = replace(question, preferences=_random_preferences(question, seed))
        try:
            before = packed(question)
        except AllocationFailure:
            return
        tables = Tables(question)
        old = tables.starts(before)
        new = spread(tables, old)
        assert violations(question, tables.proposal(new, "spread")) == []
        was, now = tables.cost.of(old), tables.cost.of(new)
        assert now.lost_waves == was.lost_waves
        assert now.saves_and_copies <= was.saves_and_copies + 1e-9
        for number in range(len(old)):
            assert tables.cells.register_of(old[number])[0] == tables.cells.register_of(new[number])[0]

    def test_no_wave(self) -> None:
        """64 registers are eight waves' on gfx942."""
        row = tuple(live(k, (4 * k + 2, 4 * k + 6)) for k in range(100))
        question = problem(*row, registers=512, slots=500)
        tables = Tables(question)
        assert tables.cost.of(tables.starts(allocator("deterministic").allocate(question))).lost_waves == 0

    def test_what_a_copy_joins_moves_as_one(self) -> None:
        question = problem(*ROW, live(4, (18, 22)), registers=64)
        copy = Affinity(3, 0, 4, 0, 2, 1.0, 18)
        names = registers(replace(question, affinities=(copy,)))
        assert names[3] == names[4]
        assert len(set(names)) == 4

    def test_a_range_in_the_register_of_its_copy_stays(self) -> None:
        copy = Affinity(3, 0, -1, 0, 2, 1.0, 18, "vgpr0")
        assert registers(replace(problem(*ROW, registers=64), affinities=(copy,)))[3] == "vgpr0"

    def test_a_range_that_copies_fill_stays(self) -> None:
        filled = [replace(r, points=(Point(r.groups[0].segments[0][0], 3, "def", 0, "copy"),)) for r in ROW]
        assert len(set(registers(problem(*filled, registers=64)))) == 1

    def test_pairs_that_can_issue_as_one_still_can(self) -> None:
        """Destinations of different parity: the fourth value may leave the register of the third, not its parity."""
        pair = Preference("vopd", (Relation(0, 0, 1, 0, 2),), 0.1, 4)
        question = replace(problem(*ROW, registers=64), preferences=(pair,))
        tables = Tables(question)
        starts = spread(tables, [0, 1, 0, 0])
        assert (starts[0] - starts[1]) % 2
        assert len(set(starts)) == 4

    def test_no_further_register_where_a_caller_or_callee_pays_too(self) -> None:
        call = FixedOccupation((800,), ((50, 51),), f"{CALL_CLOBBERS} at slot 48")
        question = problem(*ROW, registers=64)
        saved = BankBudget("vgpr", tuple(range(64)), tuple(range(40, 64)))
        for alone in (replace(question, fixed=(call,)), replace(question, budgets=(saved,))):
            assert len(set(registers(alone))) == 1

    def test_scalar_registers_stay(self) -> None:
        row = [replace(r, banks=("sgpr",), register_class="sgpr_32") for r in ROW]
        assert len(set(registers(problem(*row, registers=64, phase="sgpr")))) == 1

    def test_not_into_another_group_of_registers(self) -> None:
        """gfx1250: an instruction more names a register above 255."""
        row = tuple(live(k, (2 * k + 2, 2 * k + 4)) for k in range(400))
        question = replace(problem(*row, registers=512, slots=1000), target="gfx1250")
        assert max(int(name.removeprefix("vgpr")) for name in registers(question)) < 256

    def test_what_is_no_placement_stays_as_it_is(self) -> None:
        question = problem(live(0, (2, 20)), live(1, (10, 30)))
        for wrong in (("vgpr0", "vgpr0"), ("", "vgpr0"), ("vgpr0",)):
            given_one = Proposal(1, "given", wrong)
            assert spread_proposal(question, given_one) == given_one


def test_matrix_operations_are_chained() -> None:
    """The addend would be put into another register: a third value of the same length lies between them."""
    addend, other, result = live(0, (2, 10)), live(1, (2, 30)), live(2, (10, 30))
    chain = Preference(CHAIN, (Relation(0, 0, 2, 0, 0),), 0.25, 10)
    copy = Affinity(2, 0, -1, 0, 2, 0.0, 30, "vgpr5")
    question = replace(problem(addend, other, result), affinities=(copy,), preferences=(chain,))
    names = registers(question)
    assert names[0] == names[2]


@pytest.mark.long
def test_of_final_code_loads_are_no_longer_waited_for() -> None:
    """Fewer modelled cycles in as many waves, with as many copies and spills."""
    ir = (DEMO_KERNELS / "attn_d64.gfx1201.opt.ll").read_bytes()
    # Where a unit binds both, LLVM's allocation may be kept instead.
    settings = Settings("gfx1201", emit=Emit.ASM, fallback=False)

    def compiled(chosen: Allocator) -> KernelCost:
        done = compile_module(ir, "k.ll", settings, allocators=(chosen,))
        assert done.data is not None
        assert done.report.outcome is Outcome.PROVED
        return cost_of_assembly(done.data.decode(), target("gfx1201"))["attn"]

    before, after = compiled(DeterministicAllocator(packed=True)), compiled(DeterministicAllocator())
    assert after.latency < before.latency
    assert after.cycles <= before.cycles
    assert after.occupancy == before.occupancy
    assert after.copies.weighted <= before.copies.weighted
    assert spill_traffic(after) == spill_traffic(before) == 0


@pytest.mark.parametrize("which", ["improving", "exact"])
def test_every_allocator_of_ours_ends_with_it(which: str) -> None:
    if which == "exact" and not available():
        pytest.skip("OR-Tools is not installed")
    chosen: Allocator = (
        Improving(DeterministicAllocator(), 5.0) if which == "improving" else ExactAllocator(5.0, order="waves")
    )
    question = problem(*ROW, registers=64)
    proposal = chosen.allocate(question)
    assert violations(question, proposal) == []
    assert len(set(proposal.registers)) == 4


def _random_preferences(question: AllocationProblem, seed: int) -> tuple[Preference, ...]:
    rng = random.Random(seed)
    whole = [r for r in question.ranges if r.lanes % 2 == 0]
    if len(whole) < 2:
        return ()
    pairs = [rng.sample(whole, 2) for _ in range(rng.randrange(4))]
    return tuple(
        Preference("vopd", (Relation(a.id, 0, b.id, 0, rng.choice((2, 4))),), rng.choice((0.1, 1.0)), 0)
        for a, b in pairs
    )
