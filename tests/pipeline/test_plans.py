"""Plans: each makes the text that its settings say, over the default plan's module, and is costed without a proof."""

from __future__ import annotations

import dataclasses
import re
from functools import lru_cache

import pytest
from allocation import with_attributes
from msgspec.structs import replace
from support import DEMO_KERNELS, long

from verilocc_mlir.cost.model import cost_of_assembly
from verilocc_mlir.mir.parser import parse_mir
from verilocc_mlir.pipeline.candidates import Candidate, candidate_costs
from verilocc_mlir.pipeline.plans import BY_NAME, DEFAULT, ORDERED, PLANS, Plan, Planned, planned
from verilocc_mlir.pipeline.runs import OURS
from verilocc_mlir.pipeline.settings import Settings
from verilocc_mlir.target.targets import target
from verilocc_mlir.toolchain import ToolchainChoice

GEMM = (DEMO_KERNELS / "gemm_mma_lds.gfx942.opt.ll").read_text()


@lru_cache(maxsize=None)
def gemm(*options: str) -> Planned:
    return planned(GEMM.encode(), "gemm.ll", Settings("gfx942", llc_options=options))


def test_names_are_unique_and_the_default_comes_first() -> None:
    assert PLANS[0] == DEFAULT
    assert len(BY_NAME) == len(PLANS) + len(ORDERED)
    assert not DEFAULT.options
    assert not DEFAULT.attributes


def test_a_plan_is_there_where_llvm_and_the_target_have_it_and_the_ir_leaves_it_open() -> None:
    coexec, accumulators, waves = BY_NAME["coexec"], BY_NAME["no-accumulators"], BY_NAME["two-waves"]
    assert not coexec.suits(target("gfx1250"), (22, 1, 8), "")
    assert coexec.suits(target("gfx1250"), (24, 0, 0), "")
    assert accumulators.suits(target("gfx942"), (22,), "")
    assert not accumulators.suits(target("gfx1100"), (22,), "")
    assert not waves.suits(target("gfx942"), (22,), '"amdgpu-waves-per-eu"="4"')


def test_the_default_plan_is_the_text_as_it_is() -> None:
    assert gemm().pre_ra(DEFAULT) == gemm().pre
    assert gemm().runs(DEFAULT).pre == gemm().pre


def test_a_strategy_makes_another_order_over_the_same_module() -> None:
    text = gemm().pre_ra(BY_NAME["max-ilp"])
    assert text != gemm().pre
    assert parse_mir(text, "").preamble == parse_mir(gemm().pre, "").preamble


def test_attributes_guide_the_scheduler_and_leave_the_module_as_it_was() -> None:
    text = gemm().pre_ra(BY_NAME["two-waves"])
    assert "amdgpu-waves-per-eu" not in text
    assert parse_mir(text, "").preamble == parse_mir(gemm().pre, "").preamble


@pytest.mark.parametrize("name", ["max-ilp", "trackers", *long("iterative-ilp", "top-down")])
def test_what_llvm_does_after_the_text_does_not_depend_on_the_options(name: str) -> None:
    """So it does not matter to the result that they are not given again."""
    plan, compiler = BY_NAME[name], gemm().work.compiler
    again = dataclasses.replace(compiler, options=replace(compiler.options, llc_options=plan.options))
    text = gemm().runs(plan).plain_text()
    assert again.finish(text, verify=False) == compiler.finish(text, verify=False)


def test_costs_are_the_same_every_time_and_one_text_is_costed_once() -> None:
    twin = Plan("twin", ("-amdgpu-sched-strategy=max-occupancy",))
    plans = (DEFAULT, BY_NAME["max-ilp"], twin)
    first = candidate_costs(gemm(), map(Candidate, plans))
    again = candidate_costs(planned(GEMM.encode(), "gemm.ll", Settings("gfx942")), map(Candidate, plans))
    assert [(c.candidate, c.costs, c.same_as) for c in first] == [(c.candidate, c.costs, c.same_as) for c in again]
    assert [c.same_as for c in first] == ["", "", OURS.name]
    assert first[2].cycles == first[0].cycles > 0


def test_loops_run_equally_often_in_all_codes_that_are_compared() -> None:
    """Whether the trip count can be read off the code depends on the order of its instructions."""
    given = planned(GEMM.encode(), "gemm.ll", Settings("gfx942"))
    text = given.work.compiler.direct(given.ir, "asm")
    (first,) = given.costs(text).values()
    (loop,) = first.loops
    assert (loop.trips, loop.source) == (8, "code")
    unknown, count = re.subn(r"v_cmp_lt_u64_e32 vcc, s\[\d+:\d+\]", "v_cmp_lt_u64_e32 vcc, s[90:91]", text.decode())
    assert count
    (alone,) = cost_of_assembly(unknown, given.work.target).values()
    assert alone.loops[0].source == "default"
    assert alone.loops[0].trips == 10
    (again,) = given.costs(unknown.encode()).values()
    assert again.loops[0].trips == 8
    assert again.cycles == first.cycles
    # Other loops, nothing to compare.
    branch = re.search(r"^\ts_cbranch_\w+ \.LBB0_1\n", text.decode(), re.MULTILINE)
    assert branch
    assert given.costs(text.decode().replace(branch[0], "").encode()) == {}


def test_an_option_that_llvm_does_not_have_is_a_reason() -> None:
    (cost,) = candidate_costs(gemm(), (Candidate(Plan("none", ("-amdgpu-no-such-thing=1",))),))
    assert cost.costs is None
    assert "no-such-thing" in cost.reason


def test_what_the_user_says_stays() -> None:
    strategy = "--amdgpu-sched-strategy=max-ilp"
    left_out = {*gemm().plans()} - {*gemm(strategy).plans()}
    assert {p.name for p in left_out} == {p.name for p in PLANS if p.name.startswith(("max-", "iterative-"))}
    ir = with_attributes(GEMM, {"amdgpu-waves-per-eu": "4"})
    given = planned(ir.encode(), "gemm.ll", Settings("gfx942"))
    assert BY_NAME["four-waves"] not in given.plans()


def test_tritons_llvm_has_plans_too_and_forgets_them() -> None:
    """Its options are global to a process that takes one kernel after the other."""
    pytest.importorskip("triton")
    settings = Settings("gfx942", toolchain=ToolchainChoice.TRITON)
    given = planned(GEMM.encode(), "gemm.ll", settings)
    assert BY_NAME["coexec"] in given.plans()
    assert given.pre_ra(BY_NAME["max-ilp"]) != given.pre
    assert planned(GEMM.encode(), "gemm.ll", settings).pre == given.pre
