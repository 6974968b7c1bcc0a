"""Each rule of ``prove``: a proposal that keeps it, and one that breaks it and nothing else."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from builders import live_of, problem_of
from msgspec.structs import replace
from prove_support import proposal, violated

from smt_verifier.outcome import Outcome
from smt_verifier.prove import prove
from smt_verifier.prove.constraints import RULES
from verilocc_mlir.problem.model import AllocationProblem, BankBudget, FixedOccupation, LaneGroup
from verilocc_mlir.target.registers import physical_register

WHOLE = 0b11


def units(name: str) -> tuple[int, ...]:
    return physical_register(name).units


def test_rule_names_are_stable() -> None:
    assert [rule.rule for rule in RULES] == [
        "complete",
        "well-formed",
        "width",
        "class-membership",
        "alignment",
        "reserved",
        "budget",
        "interference",
        "fixed",
    ]


def test_complete() -> None:
    asked = problem_of(live_of("vgpr_32"), live_of("vgpr_32"))
    assert violated(asked, "vgpr0", "vgpr1") == set()
    assert violated(asked, "vgpr0", "") == {"complete"}


def test_complete_holds_also_for_a_range_that_is_never_live() -> None:
    asked = problem_of(replace(live_of("vgpr_32"), groups=()))
    assert violated(asked, "vgpr3") == set()
    assert violated(asked, "") == {"complete"}


OTHER_SPELLINGS = ["vgpr00", "vgpr\u0660", "vgpr0_vgpr01", "vgpr9999", "vgpr2048", f"vgpr{'9' * 5000}"]
"""Not how LLVM writes a register, beyond any file, and more digits than Python makes a number of."""


@pytest.mark.parametrize(
    "name", ["vgpr", "v0", "vgpr0_vgpr2", "%3", "|x|", "vgpr0)", "vgpr0_agpr1", *OTHER_SPELLINGS], ids=lambda n: n[:20]
)
def test_well_formed(name: str) -> None:
    assert violated(problem_of(live_of("vgpr_32")), name) == {"well-formed"}


def test_width() -> None:
    asked = problem_of(live_of("vreg_64"), live_of("vgpr_16"), live_of("sreg_64"))
    assert violated(asked, "vgpr0_vgpr1", "vgpr2_lo16", "vcc") == set()
    assert violated(asked, "vgpr0", "vgpr2_lo16", "vcc") == {"width"}
    assert violated(asked, "vgpr0_vgpr1", "vgpr2", "vcc") == {"width"}
    assert violated(asked, "vgpr0_vgpr1", "vgpr2_lo16", "vcc_lo") == {"width"}
    assert violated(asked, "vgpr0_vgpr1", "vgpr2_lo16", "sgpr_null") == {"width"}


@pytest.mark.parametrize(
    ("cls", "right", "wrong"),
    [
        ("vgpr_32", "vgpr5", "agpr5"),
        ("agpr_32", "agpr5", "vgpr5"),
        ("av_32", "agpr5", "sgpr5"),
        ("av_64_align2", "vgpr4_vgpr5", "sgpr4_sgpr5"),
        ("sreg_32", "sgpr5", "vgpr5"),
        ("sgpr_64", "sgpr4_sgpr5", "vcc"),
        ("sreg_64", "vcc", "vgpr0_vgpr1"),
        ("sreg_32_xm0_xexec", "vcc_lo", "vgpr3"),
    ],
)
def test_class_membership(cls: str, right: str, wrong: str) -> None:
    assert violated(problem_of(live_of(cls)), right) == set()
    assert violated(problem_of(live_of(cls)), wrong) == {"class-membership"}


def test_class_membership_excludes_what_the_class_name_excludes() -> None:
    asked = problem_of(live_of("sreg_32_xm0"), live_of("sreg_64_xexec"), special=("vcc", "m0", "exec"))
    assert violated(asked, "exec_lo", "vcc") == set()
    assert violated(asked, "m0", "vcc") == {"class-membership"}
    assert violated(asked, "sgpr0", "exec") == {"class-membership"}


def test_class_membership_keeps_the_class_limit() -> None:
    asked = problem_of(live_of("vgpr_32_lo128"), live_of("vgpr_16_lo128"), vgprs=tuple(range(256)))
    assert violated(asked, "vgpr127", "vgpr126_hi16") == set()
    assert violated(asked, "vgpr128", "vgpr126_hi16") == {"class-membership"}
    assert violated(asked, "vgpr127", "vgpr128_lo16") == {"class-membership"}


def test_class_membership_keeps_to_the_banks_of_the_problem() -> None:
    asked = problem_of(replace(live_of("av_32"), banks=("vgpr",)))
    assert violated(asked, "vgpr1") == set()
    assert violated(asked, "agpr1") == {"class-membership"}


@pytest.mark.parametrize(
    ("cls", "right", "wrong"),
    [
        ("vreg_64_align2", "vgpr4_vgpr5", "vgpr3_vgpr4"),
        ("areg_128_align2", "agpr2_agpr3_agpr4_agpr5", "agpr1_agpr2_agpr3_agpr4"),
        ("sreg_64", "sgpr2_sgpr3", "sgpr3_sgpr4"),
        ("sgpr_128", "sgpr4_sgpr5_sgpr6_sgpr7", "sgpr2_sgpr3_sgpr4_sgpr5"),
    ],
)
def test_alignment(cls: str, right: str, wrong: str) -> None:
    assert violated(problem_of(live_of(cls)), right) == set()
    assert violated(problem_of(live_of(cls)), wrong) == {"alignment"}


def test_alignment_is_not_asked_of_unaligned_classes() -> None:
    assert violated(problem_of(live_of("vreg_64"), live_of("vgpr_16")), "vgpr3_vgpr4", "vgpr5_hi16") == set()


def test_alignment_demanded_by_the_problem() -> None:
    asked = problem_of(replace(live_of("vreg_64"), align=4))
    assert violated(asked, "vgpr4_vgpr5") == set()
    assert violated(asked, "vgpr2_vgpr3") == {"alignment"}


def test_reserved() -> None:
    asked = problem_of(
        live_of("sreg_32"), live_of("vreg_64"), sgprs=(0, 1, 3), vgprs=(0, 1, 2, 5, 6), special=("vcc_lo",)
    )
    assert violated(asked, "sgpr1", "vgpr5_vgpr6") == set()
    assert violated(asked, "vcc_lo", "vgpr5_vgpr6") == set()
    assert violated(asked, "sgpr2", "vgpr5_vgpr6") == {"reserved"}
    assert violated(asked, "sgpr1", "vgpr2_vgpr3") == {"reserved"}
    assert violated(asked, "sgpr1", "vgpr4_vgpr5") == {"reserved"}
    assert violated(asked, "vcc_hi", "vgpr5_vgpr6") == {"reserved"}
    assert violated(asked, "m0", "vgpr5_vgpr6") == {"reserved"}


def test_reserved_without_a_budget_for_the_bank() -> None:
    asked = replace(problem_of(live_of("av_32")), budgets=(BankBudget("vgpr", (0,)),))
    assert violated(asked, "vgpr0") == set()
    assert violated(asked, "agpr0") == {"reserved"}


def test_budget() -> None:
    asked = problem_of(live_of("av_64"), vgprs=(0, 1, 2, 3), agprs=())
    assert violated(asked, "vgpr2_vgpr3") == set()
    assert violated(asked, "vgpr3_vgpr4") == {"budget"}
    assert violated(asked, "vgpr200_vgpr201") == {"budget"}
    assert violated(asked, "agpr0_agpr1") == {"budget"}


def test_interference() -> None:
    asked = problem_of(live_of("vreg_64"), live_of("vgpr_32", (WHOLE, [(6, 18)])))
    assert violated(asked, "vgpr0_vgpr1", "vgpr2") == set()
    assert violated(asked, "vgpr0_vgpr1", "vgpr1") == {"interference"}


def test_interference_allows_reuse_at_the_last_read() -> None:
    asked = problem_of(live_of("vgpr_32", (WHOLE, [(2, 10)])), live_of("vgpr_32", (WHOLE, [(10, 18)])))
    assert violated(asked, "vgpr0", "vgpr0") == set()


def test_interference_of_an_early_clobber_definition() -> None:
    """Instruction 2 reads the first range and defines the second early: slot 9, before operands are released at 10."""
    asked = problem_of(live_of("vgpr_32", (WHOLE, [(2, 10)])), live_of("vgpr_32", (WHOLE, [(9, 18)])))
    assert violated(asked, "vgpr0", "vgpr1") == set()
    assert violated(asked, "vgpr0", "vgpr0") == {"interference"}


def test_interference_of_a_dead_definition() -> None:
    asked = problem_of(live_of("vgpr_32", (WHOLE, [(2, 20)])), live_of("vgpr_32", (WHOLE, [(10, 11)])))
    assert violated(asked, "vgpr0", "vgpr1") == set()
    assert violated(asked, "vgpr0", "vgpr0") == {"interference"}


def test_interference_lane_by_lane() -> None:
    """The upper half of a pair is dead while another value lives: it may sit there, but not in the lower half."""
    pair = live_of("vreg_64", (0b0011, [(2, 30)]), (0b1100, [(2, 6), (22, 30)]))
    asked = problem_of(pair, live_of("vgpr_32", (WHOLE, [(6, 22)])))
    assert violated(asked, "vgpr0_vgpr1", "vgpr1") == set()
    assert violated(asked, "vgpr0_vgpr1", "vgpr0") == {"interference"}


def test_interference_of_sixteen_bit_halves() -> None:
    asked = problem_of(live_of("vgpr_16"), live_of("vgpr_16"), live_of("vgpr_32", (0b10, [(2, 10)])))
    assert violated(asked, "vgpr0_lo16", "vgpr0_hi16", "vgpr1") == set()
    assert violated(asked, "vgpr0_lo16", "vgpr1_lo16", "vgpr1") == set()
    assert violated(asked, "vgpr0_lo16", "vgpr1_hi16", "vgpr1") == {"interference"}
    assert violated(asked, "vgpr0_lo16", "vgpr0_lo16", "vgpr1") == {"interference"}


def test_interference_in_vcc() -> None:
    asked = problem_of(live_of("sreg_64"), live_of("sreg_32"))
    assert violated(asked, "sgpr0_sgpr1", "vcc_hi") == set()
    assert violated(asked, "vcc", "vcc_hi") == {"interference"}


def test_fixed() -> None:
    clobber = FixedOccupation((*units("vgpr0"), *units("vgpr1")), ((10, 11),), "clobbered by call at slot 10")
    across, read = live_of("vgpr_32", (WHOLE, [(2, 20)])), live_of("vgpr_32", (WHOLE, [(2, 10)]))
    asked = problem_of(across, read, fixed=(clobber,))
    assert violated(asked, "vgpr2", "vgpr0") == set()
    assert violated(asked, "vgpr0", "vgpr1") == {"fixed"}


def test_fixed_occupations_may_overlap_each_other() -> None:
    argument = FixedOccupation(units("vgpr0"), ((0, 12),), "argument $vgpr0")
    clobber = FixedOccupation(units("vgpr0"), ((10, 11),), "clobbered by call at slot 10")
    late = live_of("vgpr_32", (WHOLE, [(12, 20)]))
    assert violated(problem_of(late, fixed=(argument, clobber)), "vgpr0") == set()
    early = live_of("vgpr_32", (WHOLE, [(11, 20)]))
    assert violated(problem_of(early, fixed=(argument, clobber)), "vgpr0") == {"fixed"}


def test_fixed_behind_another_live_range() -> None:
    """A fault that is no pair of neighbours is reported as well."""
    argument = FixedOccupation(units("vgpr0"), ((8, 12),), "argument $vgpr0")
    long, short = live_of("vgpr_32", (WHOLE, [(0, 20)])), live_of("vgpr_32", (WHOLE, [(2, 4)]))
    assert violated(problem_of(long, short, fixed=(argument,)), "vgpr0", "vgpr0") == {"interference", "fixed"}


def test_interference_behind_a_fixed_occupation() -> None:
    argument = FixedOccupation(units("vgpr0"), ((2, 4),), "argument $vgpr0")
    long, short = live_of("vgpr_32", (WHOLE, [(0, 20)])), live_of("vgpr_32", (WHOLE, [(8, 12)]))
    assert violated(problem_of(long, short, fixed=(argument,)), "vgpr0", "vgpr0") == {"interference", "fixed"}


def test_violation_says_what_a_next_attempt_needs() -> None:
    heavy = live_of("vreg_64_align2", (0b0011, [(2, 10)]), (0b1100, [(6, 10)]), weight=100.0)
    light = live_of("vgpr_32", (WHOLE, [(8, 18)]), weight=2.0)
    argument = FixedOccupation(units("vgpr2"), ((0, 9),), "argument $vgpr2")
    asked = problem_of(heavy, light, fixed=(argument,), vgprs=(0, 1, 2, 3, 5))
    result = prove(asked, proposal("vgpr0_vgpr1", "vgpr1"))
    (violation,) = result.violations
    assert violation.rule == "interference"
    assert violation.ranges == (1, 0)
    assert violation.names == ("%1", "%0")
    assert violation.slot == 8
    assert violation.lanes == (0b11, 0b1100)
    assert violation.registers == ("vgpr1", "vgpr0_vgpr1")
    assert violation.segments == (((8, 18),), ((6, 10),))
    assert violation.free == ("vgpr3", "vgpr5")
    for part in ("%0", "%1", "$vgpr1", "$vgpr0_vgpr1", "slot 8"):
        assert part in violation.message


def test_each_conflicting_pair_is_reported_once() -> None:
    twice = live_of("vreg_64", (0b1111, [(2, 6), (10, 14)]))
    result = prove(problem_of(twice, twice, twice), proposal(*["vgpr0_vgpr1"] * 3))
    assert [v.ranges for v in result.violations] == [(0, 1), (0, 2), (1, 2)]
    assert {v.lanes for v in result.violations} == {(15, 15)}


def test_many_violations_are_cut_off_and_said_so() -> None:
    result = prove(problem_of(*[live_of("vgpr_32")] * 40), proposal(*["vgpr0"] * 40))
    assert result.outcome is Outcome.REFUTED
    assert (len(result.violations), result.truncated) == (512, True)


def test_free_registers_are_legal() -> None:
    asked = problem_of(
        live_of("sreg_64"), live_of("sgpr_32"), sgprs=(0, 1, 2, 3, 5, 6, 7), special=("vcc", "vcc_lo", "vcc_hi")
    )
    result = prove(asked, proposal("sgpr1_sgpr2", "sgpr3"))
    (violation,) = result.violations
    assert violation.rule == "alignment"
    assert violation.free == ("sgpr0_sgpr1", "sgpr6_sgpr7", "vcc")
    assert all(violated(asked, name, "sgpr3") == set() for name in violation.free)


@pytest.mark.parametrize(
    "damage",
    [
        lambda p: replace(p, version=2),
        lambda p: replace(p, slots=8),
        lambda p: replace(p, ranges=(replace(p.ranges[0], id=1), p.ranges[1])),
        lambda p: replace(p, ranges=(replace(p.ranges[0], lanes=4), p.ranges[1])),
        lambda p: replace(p, ranges=(replace(p.ranges[0], align=3), p.ranges[1])),
        lambda p: replace(p, ranges=(replace(p.ranges[0], banks=("ttmp",)), p.ranges[1])),
        lambda p: replace(p, ranges=(replace(p.ranges[0], groups=(LaneGroup(4, ((2, 4),)),)), p.ranges[1])),
        lambda p: replace(p, ranges=(replace(p.ranges[0], groups=(LaneGroup(1, ((2, 6), (4, 8))),)), p.ranges[1])),
        lambda p: replace(p, ranges=(replace(p.ranges[0], groups=(LaneGroup(1, ((4, 4),)),)), p.ranges[1])),
        lambda p: replace(p, ranges=(replace(p.ranges[0], groups=(LaneGroup(1, ((2, 4),)),) * 2), p.ranges[1])),
        lambda p: replace(p, budgets=(*p.budgets, p.budgets[0])),
        lambda p: replace(p, budgets=(BankBudget("vgpr", (5000,)),)),
        lambda p: replace(p, special=("nothing",)),
        lambda p: replace(p, fixed=(FixedOccupation((1,), ((5, 3),), "x"),)),
    ],
)
def test_malformed_problems_are_invalid(damage: Callable[[AllocationProblem], AllocationProblem]) -> None:
    good = problem_of(live_of("vgpr_32"), live_of("vgpr_32"))
    result = prove(damage(good), proposal("vgpr0", "vgpr1"))
    assert result.outcome is Outcome.INVALID
    assert result.reason


@pytest.mark.parametrize("registers", [(), ("vgpr0",), ("vgpr0", "vgpr1", "vgpr2")])
def test_a_proposal_of_the_wrong_length_is_invalid(registers: tuple[str, ...]) -> None:
    result = prove(problem_of(live_of("vgpr_32"), live_of("vgpr_32")), proposal(*registers))
    assert result.outcome is Outcome.INVALID
    assert "2 live ranges" in result.reason


def test_a_class_that_is_not_known_is_unknown() -> None:
    asked = problem_of(live_of("vgpr_32"))
    asked = replace(asked, ranges=(replace(asked.ranges[0], register_class="vreg_77"),))
    result = prove(asked, proposal("vgpr0"))
    assert result.outcome is Outcome.UNKNOWN
    assert "vreg_77" in result.reason


def test_an_empty_problem_is_proved() -> None:
    result = prove(problem_of(), proposal())
    assert (result.outcome, result.obligations) == (Outcome.PROVED, 0)


def test_obligations_are_counted() -> None:
    result = prove(problem_of(live_of("vgpr_32"), live_of("vgpr_32", (WHOLE, [(10, 18)]))), proposal("vgpr0", "vgpr0"))
    # Seven rules for each range and one pair of neighbours.
    assert (result.outcome, result.obligations) == (Outcome.PROVED, 15)
