"""What the machine prefers: which pairs are stated, what they cost, and who heeds them."""

from __future__ import annotations

from importlib.util import find_spec

import pytest
from allocators_support import violations
from builders import live, problem, problem_of_body, problem_of_text
from exact_support import best, small_problem
from msgspec.structs import replace
from support import few, kernel_directory, pre_ra

from verilocc_mlir.allocators.exact import ExactAllocator
from verilocc_mlir.allocators.improve import improve
from verilocc_mlir.allocators.tables import Tables
from verilocc_mlir.errors import InputError
from verilocc_mlir.problem.model import AllocationProblem, Preference, Proposal, Relation
from verilocc_mlir.problem.schema import problem_from_json, to_json

wire = pytest.importorskip("verilocc_mlir.remote.wire", reason="needs the service extra")

needs_ortools = pytest.mark.skipif(find_spec("ortools") is None, reason="needs OR-Tools")

HEAD = """
  bb.0:
    liveins: $vgpr0, $vgpr1, $vgpr2, $vgpr3

    %0:vgpr_32 = COPY $vgpr0
    %1:vgpr_32 = COPY $vgpr1
    %2:vgpr_32 = COPY $vgpr2
    %3:vgpr_32 = COPY $vgpr3
"""
TAIL = "    S_ENDPGM 0, implicit %4, implicit %5\n"
MUL = "V_MUL_F32_e64 0, {}, 0, {}, 0, 0, implicit $mode, implicit $exec"


def stated(first: str, second: str, cpu: str = "gfx1100", between: str = "") -> tuple[Preference, ...]:
    """Preferences of two operations beside each other, into %4 and %5."""
    body = f"{HEAD}    %4:vgpr_32 = {first}\n{between}    %5:vgpr_32 = {second}\n{TAIL}"
    return problem_of_body(body, cpu=cpu).preferences


class TestPairs:
    def test_two_multiplications(self) -> None:
        (found,) = stated(MUL.format("%0", "%1"), MUL.format("%2", "%3"))
        assert found.kind == "vopd"
        assert found.relations == (Relation(4, 0, 5, 0, 2), Relation(0, 0, 2, 0, 4), Relation(1, 0, 3, 0, 4))
        assert 0 < found.weight < 1

    @pytest.mark.parametrize(
        ("first", "second"),
        [
            pytest.param(MUL.format("%0", "%1"), MUL.format("%4", "%3"), id="the second reads the first's result"),
            pytest.param(MUL.format("%0", "%1"), MUL.format("%0", "%3"), id="one first source for both"),
            pytest.param(MUL.format("%0", "%1"), MUL.format("%2", "%3").replace("0, %2", "1, %2"), id="a modifier"),
            pytest.param(
                MUL.format("%0", "%1"), "V_EXP_F32_e64 0, %2, 0, 0, implicit $mode, implicit $exec", id="no half"
            ),
            pytest.param(
                "V_AND_B32_e64 %0, %1, implicit $exec", "V_AND_B32_e64 %2, %3, implicit $exec", id="both second halves"
            ),
            pytest.param("V_MOV_B32_e32 1000, implicit $exec", "V_MOV_B32_e32 2000, implicit $exec", id="two literals"),
        ],
    )
    def test_what_cannot_pair_states_nothing(self, first: str, second: str) -> None:
        assert stated(first, second) == ()

    def test_a_second_half_and_one_that_is_either(self) -> None:
        assert stated("V_AND_B32_e64 %0, %1, implicit $exec", MUL.format("%2", "%3"))

    def test_a_constant_has_no_bank(self) -> None:
        (found,) = stated(MUL.format("1065353216", "%1"), MUL.format("%2", "%3"))
        assert found.relations == (Relation(4, 0, 5, 0, 2), Relation(1, 0, 3, 0, 4))

    def test_only_so_far_apart(self) -> None:
        far = "".join(
            f"    %{n}:vgpr_32 = V_EXP_F32_e64 0, %0, 0, 0, implicit $mode, implicit $exec\n" for n in range(10, 14)
        )
        assert stated(MUL.format("%0", "%1"), MUL.format("%2", "%3"), between=far) == ()

    @pytest.mark.parametrize("cpu", ["gfx90a", "gfx942", "gfx950"])
    def test_not_where_nothing_issues_twice(self, cpu: str) -> None:
        assert stated(MUL.format("%0", "%1"), MUL.format("%2", "%3"), cpu) == ()

    def test_moves_of_gfx12_share_no_source_port(self) -> None:
        first, second = (f"V_MOV_B32_e32 {s}, implicit $exec" for s in ("%0", "%1"))
        assert [len(p.relations) for p in stated(first, second, "gfx1100")] == [2]
        assert [len(p.relations) for p in stated(first, second, "gfx1201")] == [1]


@pytest.mark.parametrize(
    ("kernel", "kind"),
    few(
        [("gemm_mma_lds.gfx942.opt", "mfma-chain")],
        [("attn_d64.gfx1100.opt", "vopd"), ("gemm_mma_lds.gfx942.opt", "mfma-chain")],
    ),
)
def test_kernels_state_some(kernel: str, kind: str) -> None:
    path = kernel_directory() / f"{kernel}.ll"
    if not path.exists():
        pytest.skip("no kernels: set VERILOCC_KERNELS to a directory of .ll files")
    question = problem_of_text(pre_ra(path), kernel.split(".")[1])
    assert {p.kind for p in question.preferences} == {kind}
    assert len(question.preferences) > 3
    assert problem_from_json(to_json(question)) == question
    assert wire.problem_of(wire.problem_message(question)) == question


def preferring(*relations: Relation, weight: float = 0.5) -> AllocationProblem:
    """Three ranges at once, with one preference."""
    question = problem(live(0, (0, 40)), live(1, (0, 40)), live(2, (40, 60)))
    return replace(question, preferences=(Preference("vopd", relations, weight, 0),))


class TestCost:
    def cost(self, question: AllocationProblem, *registers: str) -> float:
        tables = Tables(question)
        return tables.cost.of(tables.starts(Proposal(1, "given", registers))).saves_and_copies

    def test_different_banks(self) -> None:
        question = preferring(Relation(0, 0, 1, 0, 4))
        assert self.cost(question, "vgpr0", "vgpr1", "vgpr0") == 0
        assert self.cost(question, "vgpr0", "vgpr4", "vgpr0") == 0.5

    def test_the_same_register(self) -> None:
        question = preferring(Relation(0, 0, 2, 0, 0))
        assert self.cost(question, "vgpr0", "vgpr1", "vgpr0") == 0
        assert self.cost(question, "vgpr0", "vgpr1", "vgpr1") == 0.5

    def test_all_relations_or_none(self) -> None:
        question = preferring(Relation(0, 0, 1, 0, 4), Relation(0, 0, 2, 0, 0))
        assert self.cost(question, "vgpr0", "vgpr1", "vgpr1") == 0.5


def random_preferences(seed: int) -> AllocationProblem:
    """A small problem with a preference for each neighbouring pair of ranges."""
    question = small_problem(seed)
    pairs = [(r.id, (r.id + 1) % len(question.ranges)) for r in question.ranges]
    found = tuple(
        Preference("vopd", (Relation(a, 0, b, 0, (0, 2, 4)[(seed + a) % 3]),), 0.25, 0) for a, b in pairs if a != b
    )
    return replace(question, preferences=found)


@needs_ortools
@pytest.mark.parametrize("seed", few(range(0, 20, 2), range(20)))
def test_exact_answers_are_those_of_enumeration(seed: int) -> None:
    question = random_preferences(seed)
    known = best(question)
    if known is not None:
        result = ExactAllocator(20).solve(question)
        assert violations(question, result.proposal) == []
        assert (result.registers, result.copies, result.copies_bound) == (known[0], known[1], known[1])


@pytest.mark.parametrize("solver", [False, pytest.param(True, marks=needs_ortools)])
def test_the_improver_sees_them(solver: bool) -> None:
    question = preferring(Relation(0, 0, 1, 0, 4))
    found = improve(question, Proposal(1, "given", ("vgpr0", "vgpr4", "vgpr0")), 600, 1, steps=20, solver=solver)
    assert found.cost_after.saves_and_copies == 0


@pytest.mark.parametrize(
    ("relation", "where"),
    [
        (Relation(0, 0, 9, 0, 2), r"relations\[0\].b: there is no range 9"),
        (Relation(0, 2, 1, 0, 2), r"relations\[0\].a_lane: no register of range 0"),
    ],
)
def test_a_preference_for_nothing_is_turned_away(relation: Relation, where: str) -> None:
    with pytest.raises(InputError, match=where):
        problem_from_json(to_json(preferring(relation)))


def test_a_document_without_preferences_is_an_older_one() -> None:
    question = replace(preferring(), preferences=())
    text = to_json(question).replace('"preferences":[],', "")
    assert "preferences" not in text
    assert problem_from_json(text) == question
