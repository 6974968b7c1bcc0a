"""Random small problems: ``prove`` names the same violated rules and live ranges as a checker that looks at every unit
at every slot."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from prove_support import brute_force, live, problem

from smt_verifier.outcome import Outcome
from smt_verifier.prove import prove
from verilocc_mlir.problem.model import AllocationProblem, FixedOccupation, LiveRange, Proposal, Segment
from verilocc_mlir.target.classes import register_class
from verilocc_mlir.target.registers import Bank, physical_register, tuple_name

CLASSES = (
    "vgpr_32", "vgpr_16", "vreg_64", "vreg_64_align2", "vreg_96", "areg_64_align2", "av_32", "av_64", "sreg_32",
    "sreg_64", "sgpr_128", "sreg_64_xexec",
)  # fmt: skip
SLOTS = 24
OTHERS = ("", "nonsense", "vcc", "vcc_lo", "vcc_hi", "m0", "exec", "sgpr_null", "ttmp0", "vgpr1_hi16", "vgpr4")


@st.composite
def segments(draw: st.DrawFn) -> tuple[Segment, ...]:
    cuts = sorted(draw(st.sets(st.integers(0, SLOTS), min_size=2, max_size=6)))
    return tuple(zip(cuts[0::2], cuts[1::2], strict=False))


@st.composite
def live_ranges(draw: st.DrawFn) -> LiveRange:
    name = draw(st.sampled_from(CLASSES))
    whole = (1 << register_class(name).lanes) - 1
    split = draw(st.integers(0, whole))
    groups = [(lanes, list(draw(segments()))) for lanes in (split, whole ^ split) if lanes and draw(st.booleans())]
    return live(name, *groups, weight=float(draw(st.integers(1, 3))))


@st.composite
def registers_for(draw: st.DrawFn, live_range: LiveRange) -> str:
    if draw(st.integers(0, 9)) == 0:
        return draw(st.sampled_from(OTHERS))
    cls = register_class(live_range.register_class)
    bank = draw(st.sampled_from([Bank(b) for b in live_range.banks if b != "special"]))
    align = 1 if draw(st.integers(0, 7)) == 0 else cls.alignment(bank)
    first = align * draw(st.integers(0, 9 // align))
    if cls.bits == 16:
        return f"{bank.value}{first}_{draw(st.sampled_from(['lo16', 'hi16']))}"
    return tuple_name(bank, first, cls.width)


@st.composite
def cases(draw: st.DrawFn, budgets: tuple[int, ...] = (6, 10, 14)) -> tuple[AllocationProblem, Proposal]:
    ranges = draw(st.lists(live_ranges(), min_size=0, max_size=6))
    holes = draw(st.sets(st.integers(0, 11), max_size=2))
    budget = tuple(n for n in range(draw(st.sampled_from(budgets))) if n not in holes)
    names = draw(st.lists(st.sampled_from(["vgpr0", "vgpr1_vgpr2", "sgpr0", "vcc_lo", "agpr3"]), max_size=3))
    fixed = tuple(FixedOccupation(physical_register(n).units, draw(segments()), f"fixed ${n}") for n in names)
    special = draw(st.sampled_from([(), ("vcc",), ("vcc_lo",)]))
    asked = problem(*ranges, fixed=fixed, vgprs=budget, agprs=budget, sgprs=budget, special=special, slots=SLOTS)
    return asked, Proposal(1, "random", tuple(draw(registers_for(r)) for r in asked.ranges))


@settings(max_examples=300, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(cases())
def test_agrees_with_brute_force(case: tuple[AllocationProblem, Proposal]) -> None:
    asked, answer = case
    expected = brute_force(asked, answer)
    result = prove(asked, answer)
    assert result.outcome is (Outcome.REFUTED if expected else Outcome.PROVED)
    assert {(v.rule, tuple(sorted(v.ranges))) for v in result.violations} == expected
    for violation in result.violations:
        for name in violation.free:
            moved = list(answer.registers)
            moved[violation.ranges[0]] = name
            left = brute_force(asked, Proposal(1, "moved", tuple(moved)))
            assert not any(violation.ranges[0] in ranges for _, ranges in left), (violation, name)
