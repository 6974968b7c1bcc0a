"""``-O=fast|balanced|best`` and ``--no-spill``: what is tried, what is kept, and that nothing is lost against LLVM."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import lru_cache
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from allocation import with_attributes
from builders import kernel, loads, loop, many_scalars, stores
from msgspec.structs import replace
from spilling_support import TARGETS
from support import DEMO_KERNELS, few, llc

from smt_verifier.audit import Finding, FunctionAudit
from smt_verifier.outcome import Outcome
from verilocc_mlir.allocators import AllocationFailure, Allocator, allocator
from verilocc_mlir.cli.main import run
from verilocc_mlir.cost.compare import spill_traffic
from verilocc_mlir.cost.model import KernelCost, cost_of_assembly
from verilocc_mlir.pipeline import effort as effort_rules
from verilocc_mlir.pipeline import phase as phase_module
from verilocc_mlir.pipeline import plans as plan_rules
from verilocc_mlir.pipeline import portfolio
from verilocc_mlir.pipeline.attempt import SPARE_REGISTERS, SpillForWaves
from verilocc_mlir.pipeline.compile import Compiled, compile_module
from verilocc_mlir.pipeline.effort import improving, variants
from verilocc_mlir.pipeline.guard import shortfalls
from verilocc_mlir.pipeline.plans import DEFAULT, Planned, planned
from verilocc_mlir.pipeline.runs import LLVM, as_given, nobody
from verilocc_mlir.pipeline.settings import Effort, Emit, Settings
from verilocc_mlir.problem.model import AllocationProblem, Proposal
from verilocc_mlir.results.compile_document import schema
from verilocc_mlir.target.occupancy import max_vectors
from verilocc_mlir.target.targets import target

# What is compiled for several tests is compiled once.
ATTENTION = DEMO_KERNELS / "attn_d64.gfx1100.opt.ll"


def pressed(registers: int) -> str:
    """24 values around a loop."""
    names = [f"%v{k}" for k in range(24)]
    return kernel([*loads(24), *loop(stores(names[:5])), *stores(names)], registers)


def attention() -> str:
    return with_attributes(ATTENTION.read_text(), {"amdgpu-num-vgpr": "128"})


@lru_cache(maxsize=None)
def compiled(ir: str, cpu: str, effort: Effort) -> Compiled:
    """With time enough for the improver's steps to end it."""
    settings = Settings(cpu, effort=effort, allocator_seconds=600, also=(Emit.MIR, Emit.ASM))
    return compile_module(ir.encode(), "k.ll", settings)


def cost(done: Compiled, cpu: str) -> Mapping[str, KernelCost]:
    return cost_of_assembly(done.also[Emit.ASM].decode(), target(cpu), where="k.s")


def variant_names(done: Compiled) -> list[str]:
    """What the note says was tried."""
    (note,) = [n for n in done.report.notes if n.startswith("modelled cycles of what was tried: ")]
    return re.findall(r"(?:: |, )([^,:;]+?) \d+(?=[,;])", note)


CASES = [
    pytest.param(pressed(16), "gfx1100", id="gfx1100"),
    pytest.param(pressed(8), "gfx942", id="gfx942", marks=pytest.mark.long),
    pytest.param(pressed(8), "gfx90a", id="gfx90a", marks=pytest.mark.long),
    pytest.param(pressed(16), "gfx1250", id="gfx1250", marks=pytest.mark.long),
    pytest.param(attention(), "gfx1100", id="attention", marks=pytest.mark.long),
]


@pytest.mark.long
@pytest.mark.parametrize("effort", few((Effort.BEST,), Effort))
@pytest.mark.parametrize(("ir", "cpu"), CASES)
def test_no_effort_loses_waves_or_spills_more_than_llvm(ir: str, cpu: str, effort: Effort) -> None:
    done = compiled(ir, cpu, effort)
    assert done.report.outcome is Outcome.PROVED
    for function in done.report.functions:
        assert function.resources is not None
        assert function.greedy is not None
        assert function.resources.waves >= function.greedy.waves
    alone = compile_module(ir.encode(), "k.ll", Settings(cpu, allocator="llvm", emit=Emit.ASM))
    assert alone.data
    llvm = cost_of_assembly(alone.data.decode(), target(cpu), where="llvm.s")
    for name, ours in cost(done, cpu).items():
        assert spill_traffic(ours) <= spill_traffic(llvm[name])
        assert ours.occupancy >= llvm[name].occupancy


@pytest.mark.long
def test_fast_loads_beside_the_use_where_loading_ahead_would_lose(monkeypatch: pytest.MonkeyPatch) -> None:
    """No input is known any more where it loses, so the guard is told that what is tried first does."""
    ir = with_attributes(ATTENTION.read_text(), {"amdgpu-num-vgpr": "48"})
    judged: list[KernelCost] = []

    def short(cost: KernelCost, llvms: KernelCost) -> list[str]:
        judged.append(cost)
        return ["is the first"] if cost == judged[0] else shortfalls(cost, llvms)

    monkeypatch.setattr(portfolio, "shortfalls", short)
    monkeypatch.setattr(portfolio, "extra_plan", lambda *_, **__: None)
    monkeypatch.setattr(portfolio, "ordered_plans", lambda *_: ())
    monkeypatch.setattr(plan_rules, "WHERE_TIGHT", ())
    done = compiled(ir, "gfx1100", Effort.FAST)
    assert done.report.notes == ("what is spilled is loaded beside its use: loaded ahead, it stands worse",)
    assert done.report.outcome is Outcome.PROVED
    assert {p.allocator for p in done.report.functions[0].phases} == {"deterministic"}
    alone = compile_module(ir.encode(), "k.ll", Settings("gfx1100", allocator="llvm", emit=Emit.ASM))
    assert alone.data
    (llvm,) = cost_of_assembly(alone.data.decode(), target("gfx1100"), where="llvm.s").values()
    (ours,) = cost(done, "gfx1100").values()
    assert spill_traffic(ours) <= spill_traffic(llvm)


@pytest.mark.long
def test_fast_looks_at_what_it_puts_into_lanes() -> None:
    """LLVM counts none of it, for the phase that spills is not LLVM's."""
    report = compiled(many_scalars(), "gfx942", Effort.FAST).report
    (function,) = report.functions
    assert function.resources is not None
    assert function.resources.sgpr_spills == 0
    assert function.phases[0].moves.saves > 0
    assert "cost" in [step.name for step in report.steps]


class Clumsy:
    """Finds no place for a tuple as long as nothing is spilled."""

    name = "clumsy"
    version = "1"

    def __init__(self) -> None:
        self._slots = 0

    def allocate(self, problem: AllocationProblem) -> Proposal:
        if problem.phase == "vgpr":
            self._slots = self._slots or problem.slots
            if problem.slots == self._slots:
                raise AllocationFailure("no place found", reason="fragmentation")
        return allocator("deterministic").allocate(problem)


@pytest.mark.long
def test_best_packs_exactly_where_only_a_place_was_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ortools", reason="OR-Tools is an extra: requirements/exact.txt")
    # The model may find the place too.
    monkeypatch.setenv("VERILOCC_MODEL", "/nowhere")
    settings = Settings("gfx1100", effort=Effort.BEST, allocator_seconds=20, fallback=False)
    done = compile_module(pressed(48).encode(), "k.ll", settings, allocators=(Clumsy(),))
    assert variant_names(done)[0] == "as it comes"
    assert variant_names(done)[-1].endswith("packed exactly")
    (function,) = done.report.functions
    assert done.report.outcome is Outcome.PROVED
    assert [(p.allocator, len(p.spills)) for p in function.phases] == [("clumsy", 0), ("exact", 0)]
    # What is spilled for lack of registers is not asked about again.
    again = compile_module(pressed(16).encode(), "k.ll", replace(settings, allocator_seconds=5))
    assert not any(name.endswith("packed exactly") for name in variant_names(again))


@pytest.mark.long
def test_best_asks_the_model_where_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("transformers", reason="the extra 'model' is not installed")
    ir = (ATTENTION.parent / "attn_d64.gfx942.opt.ll").read_text()
    settings = Settings("gfx942", effort=Effort.BEST, allocator_seconds=20)
    asked: list[str] = []

    def asking(name: str, **options: Any) -> Allocator:
        asked.append(name)
        return allocator(name, **options)

    # Not by the note: with its registers spread, its answer may be ours.
    monkeypatch.setattr(effort_rules, "allocator", asking)
    compile_module(ir.encode(), "k.ll", settings)
    assert asked.count("model") == 1
    # It is asked once, and not where there is none.
    asked.clear()
    compile_module(ir.encode(), "k.ll", settings, allocators=(allocator("model"), allocator("deterministic")))
    assert "model" not in asked
    monkeypatch.setenv("VERILOCC_MODEL", "/nowhere")
    compile_module(ir.encode(), "k.ll", settings)
    assert "model" not in asked


def test_best_of_nothing_is_nothing() -> None:
    """Registers do not suffice, and neither spilling nor LLVM is wanted."""
    settings = Settings("gfx1100", effort=Effort.BEST, allocator_seconds=5, fallback=False, spill=False)
    done = compile_module(pressed(16).encode(), "k.ll", settings)
    assert done.data is None
    assert done.report.outcome is not Outcome.PROVED


@pytest.mark.long
def test_what_costs_less_is_kept() -> None:
    ir = pressed(16)
    cycles = {e: sum(c.cycles for c in cost(compiled(ir, "gfx1100", e), "gfx1100").values()) for e in Effort}
    assert cycles[Effort.BEST] <= cycles[Effort.BALANCED] <= cycles[Effort.FAST]


def test_where_llvm_spills_the_plan_of_which_least_is_spilled_is_tried_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It costs no more than the default plan, which is not tried then."""
    first = compiled(pressed(16), "gfx1100", Effort.FAST)
    assert first.report.notes[0] == (
        "the plan trackers was tried before the default one: its text needs 20 stores and loads of registers, the"
        " default one's 26"
    )
    assert first.report.functions[0].plan == "trackers"
    assert first.report.outcome is Outcome.PROVED
    monkeypatch.setattr(plan_rules, "WHERE_TIGHT", ())
    default = compile_module(pressed(16).encode(), "k.ll", Settings("gfx1100", also=(Emit.ASM,)))
    cycles = [sum(c.cycles for c in cost(done, "gfx1100").values()) for done in (first, default)]
    assert cycles[0] <= cycles[1]


def test_what_a_text_lacks_is_what_is_spilled_and_in_a_large_file_registers_at_the_worst_point(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    small, large = (planned(pressed(16).encode(), "k.ll", Settings("gfx1100")) for _ in range(2))
    plans = plan_rules.first_plans(small)
    lacks = [small.lack(plan) for plan in plans]
    assert plans[-1] == DEFAULT
    assert lacks[:-1] == sorted(lacks[:-1])
    assert 0 < lacks[0] < lacks[-1]
    monkeypatch.setattr(plan_rules, "LARGE", 50)
    assert [large.lack(plan) for plan in (plans[0], DEFAULT)] == [10, 13]


def test_where_it_is_worse_than_llvms_the_default_plan_is_tried_too(monkeypatch: pytest.MonkeyPatch) -> None:
    real = portfolio.Portfolio._shortfalls

    def doomed(self: portfolio.Portfolio, name: str, candidate: portfolio.Candidate) -> list[str]:
        return ["loses"] if candidate.plan.name == "trackers" else real(self, name, candidate)

    monkeypatch.setattr(portfolio.Portfolio, "_shortfalls", doomed)
    done = compile_module(pressed(16).encode(), "k.ll", Settings("gfx1100"))
    assert done.report.outcome is Outcome.PROVED
    (function,) = done.report.functions
    assert function.plan == "default"


def test_of_large_functions_fast_tries_one_plan_beside_llvms(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[str] = []
    real = portfolio.Portfolio._costs

    def noted(self: portfolio.Portfolio, candidate: portfolio.Candidate) -> portfolio.Costs | None:
        tried.append(candidate.name)
        return real(self, candidate)

    def doomed(_: portfolio.Portfolio, __: str, candidate: portfolio.Candidate) -> list[str]:
        return ["loses"] if candidate.variant.is_ours else []

    monkeypatch.setattr(portfolio.Portfolio, "_costs", noted)
    monkeypatch.setattr(portfolio.Portfolio, "_shortfalls", doomed)
    monkeypatch.setattr(plan_rules, "LARGE", 50)
    done = compile_module(pressed(16).encode(), "k.ll", Settings("gfx1100"))
    assert tried == ["trackers", "LLVM's"]
    assert done.report.outcome is Outcome.PROVED


def test_where_llvm_spills_nothing_no_pressure_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    def asked(*_: object) -> int:
        raise AssertionError

    monkeypatch.setattr(Planned, "lack", asked)
    assert compile_module(SMALL.encode(), "k.ll", Settings("gfx1100")).report.outcome is Outcome.PROVED


@pytest.mark.long
def test_the_note_says_what_was_tried_and_kept() -> None:
    ir = pressed(16)
    # LLVM spills, and the text of this plan needs the fewest registers.
    assert variant_names(compiled(ir, "gfx1100", Effort.FAST)) == ["trackers", "LLVM's"]
    first = ["trackers", "LLVM's", "trackers + loads beside their use"]
    balanced = variant_names(compiled(ir, "gfx1100", Effort.BALANCED))
    assert balanced[:3] == first
    # A plan whose text is the default plan's is not named.
    assert {name.partition(" + ")[0] for name in balanced[3:]} <= {
        "trackers",
        "max-ilp",
        "iterative-minreg",
        "no-clusters",
    }
    best = compiled(ir, "gfx1100", Effort.BEST)
    assert variant_names(best)[:3] == first
    note = best.report.notes[-1]
    assert note.rpartition("; kept: ")[2] in variant_names(best)
    # The figure of the kept one is the figure of the result.
    kept = note.rpartition("; kept: ")[2]
    figure = re.search(rf"{re.escape(kept)} (\d+)", note)
    assert figure
    assert int(figure[1]) == round(sum(c.cycles for c in cost(best, "gfx1100").values()))


@pytest.mark.long
def test_best_is_the_same_every_time() -> None:
    ir = pressed(16)
    again = compile_module(
        ir.encode(), "k.ll",
        Settings("gfx1100", effort=Effort.BEST, allocator_seconds=600, also=(Emit.MIR, Emit.ASM)),
    )  # fmt: skip
    first = compiled(ir, "gfx1100", Effort.BEST)
    assert again.data == first.data
    assert again.also == first.also
    assert again.report.notes == first.report.notes


class Wasteful:
    """The deterministic allocator's answer, 100 registers further up."""

    name = "wasteful"
    version = "1"

    def allocate(self, problem: AllocationProblem) -> Proposal:
        found = allocator("deterministic").allocate(problem)
        if problem.phase != "vgpr":
            return found
        higher = tuple(re.sub(r"vgpr(\d+)", lambda m: f"vgpr{int(m[1]) + 100}", n) for n in found.registers)
        return replace(found, allocator=self.name, registers=higher)


SMALL = kernel([*loads(2), *stores(["%v0", "%v1"])], 0)
NOT_BEST = (Effort.FAST, Effort.BALANCED)
"""With ``best`` what is wasted is improved until it is as cheap as LLVM's."""


def wasteful(*, fallback: bool = True) -> Compiled:
    allocators: tuple[Allocator, ...] = (Wasteful(),)
    return compile_module(SMALL.encode(), "k.ll", Settings("gfx1100", fallback=fallback), allocators=allocators)


def test_where_ours_has_fewer_waves_llvms_is_kept() -> None:
    done = wasteful()
    assert done.report.outcome is Outcome.PROVED
    (note,) = done.report.notes
    assert re.fullmatch(
        r"LLVM's allocation is that of a plain compile: ours takes \S+ of its modelled cycles, more than the error bar"
        r" of 20%, with \d+ waves for 16",
        note,
    )
    (function,) = done.report.functions
    assert function.resources == function.greedy
    assert {p.allocator for p in function.phases} == {"llvm"}
    assert all(p.fallback and p.fallback_reason in note for p in function.phases)
    assert (function.plan, function.variant) == ("default", "LLVM's")


def counted_audits(monkeypatch: pytest.MonkeyPatch, doubtful: int) -> list[str]:
    """The functions audited, one entry each time; the first so many audits end in doubt."""
    audit, audited = phase_module.audit_function, list[str]()

    def counted(*given: Any, **more: Any) -> FunctionAudit:
        result = audit(*given, **more)
        audited.append(result.function)
        finding = Finding("solver", Outcome.UNKNOWN, "time-out")
        return replace(result, outcome=Outcome.UNKNOWN, findings=(finding,)) if len(audited) <= doubtful else result

    monkeypatch.setattr(phase_module, "audit_function", counted)
    return audited


@pytest.mark.parametrize(("doubtful", "audits"), few([(2, 3)], [(0, 1), (2, 3)]))
def test_what_loses_is_not_audited_unless_what_wins_is_not_proved(
    monkeypatch: pytest.MonkeyPatch, doubtful: int, audits: int
) -> None:
    """All of ours lose, LLVM's does not: it is audited at once. In doubt, so is its first phase alone, and ours at
    once, which is cheaper than LLVM's allocation of our text, which loses too and so is not audited.
    """
    real = portfolio.shortfalls

    def lost(ours: KernelCost, llvms: KernelCost) -> list[str]:
        return real(ours, llvms) if ours == llvms else ["loses"]

    monkeypatch.setattr(portfolio, "shortfalls", lost)
    audited = counted_audits(monkeypatch, doubtful)
    done = compile_module(pressed(16).encode(), "k.ll", Settings("gfx1100", allocator="deterministic"))
    assert done.report.outcome is Outcome.PROVED
    assert done.data is not None
    (function,) = done.report.functions
    if not doubtful:
        assert done.report.notes == ("LLVM's allocation is that of a plain compile: ours loses",)
        assert function.resources == function.greedy
        assert {p.allocator for p in function.phases} == {"llvm"}
    assert len(audited) == audits


@pytest.mark.parametrize("effort", few((Effort.FAST,), NOT_BEST))
def test_what_is_not_proved_takes_the_place_of_nothing_that_is(monkeypatch: pytest.MonkeyPatch, effort: Effort) -> None:
    """Also where results may be unproved: LLVM's, which would win, is in doubt both times; ours is proved."""
    audit, calls = phase_module.audit_function, count(1)

    def doubtful(*given: Any, **more: Any) -> FunctionAudit:
        found = audit(*given, **more)
        finding = Finding("solver", Outcome.UNKNOWN, "time-out")
        return found if next(calls) > 6 else replace(found, outcome=Outcome.UNKNOWN, findings=(finding,))

    monkeypatch.setattr(phase_module, "audit_function", doubtful)
    settings = Settings("gfx1100", effort=effort)
    done = compile_module(SMALL.encode(), "k.ll", settings, allow_unproved=True, allocators=(Wasteful(),))
    assert next(calls) > 6  # Each time of all phases at once, and of each alone.
    assert done.report.outcome is Outcome.PROVED
    assert {p.allocator for p in done.report.functions[0].phases} == {"wasteful"}


@pytest.mark.parametrize(("effort", "fallback"), [(Effort.FAST, True), (Effort.BALANCED, True), (Effort.FAST, False)])
def test_where_nothing_of_our_text_is_proved_llvms_of_a_plain_compile_is_kept(
    monkeypatch: pytest.MonkeyPatch, effort: Effort, fallback: bool
) -> None:
    """Ours at once, the scalars of ours alone, and LLVM's of the same text, are in doubt."""
    audit, calls = phase_module.audit_function, count(1)

    def doubtful(*given: Any, **more: Any) -> FunctionAudit:
        found = audit(*given, **more)
        finding = Finding("solver", Outcome.UNKNOWN, "time-out")
        return replace(found, outcome=Outcome.UNKNOWN, findings=(finding,)) if next(calls) <= 3 else found

    monkeypatch.setattr(phase_module, "audit_function", doubtful)
    done = compile_module(SMALL.encode(), "k.ll", Settings("gfx1100", effort=effort, fallback=fallback))
    (function,) = done.report.functions
    if not fallback:
        assert done.report.outcome is Outcome.UNKNOWN
        assert done.data is None
        return
    assert done.report.outcome is Outcome.PROVED
    assert done.data is not None
    if effort is Effort.BALANCED:  # The next best is ours of another plan's text.
        assert function.plan != "default"
        assert {p.allocator for p in function.phases} == {"deterministic"}
        return
    assert function.resources == function.greedy
    scalars, vectors = function.phases
    assert {scalars.allocator, vectors.allocator} == {"llvm"}
    assert scalars.fallback
    assert "time-out" in scalars.fallback_reason
    assert any("plain compile" in note for note in done.report.notes)


@pytest.mark.parametrize("effort", few((Effort.FAST,), NOT_BEST))
def test_a_tool_that_fails_on_what_is_tried_beside_does_not_end_the_run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, effort: Effort
) -> None:
    failing = tmp_path / "llc"
    failing.write_text(f'#!/bin/sh\ncase "$*" in *-stop-after=virtregrewriter*) exit 1;; esac\nexec {llc()} "$@"\n')
    failing.chmod(0o755)
    monkeypatch.setenv("VERILOCC_LLC", str(failing))
    done = compile_module(SMALL.encode(), "k.ll", Settings("gfx1100", effort=effort), allocators=(Wasteful(),))
    assert done.report.outcome is Outcome.PROVED
    assert done.data is not None
    assert {p.allocator for p in done.report.functions[0].phases} <= {"wasteful", "wasteful+improve"}
    assert any(re.match("(LLVM's|another allocation) was left out: ", note) for note in done.report.notes)


def test_without_fallback_ours_stays() -> None:
    done = wasteful(fallback=False)
    assert done.report.outcome is Outcome.PROVED
    assert done.report.notes == ()
    (function,) = done.report.functions
    assert function.resources is not None
    assert function.greedy is not None
    assert function.resources.waves < function.greedy.waves


class TestVariants:
    def test_fast_tries_one(self) -> None:
        assert variants(Effort.FAST, target("gfx1100"), 8) == ()

    @pytest.mark.parametrize("cpu", TARGETS)
    def test_balanced_tries_loads_beside_their_use_and_llvms(self, cpu: str) -> None:
        beside, llvm = variants(Effort.BALANCED, target(cpu), 4)
        assert not beside.spills.load_ahead
        assert beside.spills.spare == SPARE_REGISTERS
        assert llvm is LLVM

    @pytest.mark.parametrize("cpu", TARGETS)
    def test_best_goes_for_the_next_two_steps_of_occupancy(self, cpu: str) -> None:
        machine = target(cpu)
        found = variants(Effort.BEST, machine, 4)
        assert [v.allocators for v in found[:3]] == [as_given, nobody, improving]
        assert found[:2] == variants(Effort.BALANCED, machine, 4)
        assert 1 <= len(found[3:]) <= 2
        for variant in found[3:]:
            waves = int(variant.name.removesuffix(" waves"))
            assert isinstance(variant.spills, SpillForWaves)
            assert waves > 4
            # So much is left free that no more than that step's registers are held.
            assert min(variant.spills.spare) + max_vectors(machine, waves) == min(machine.addressable_vectors, 256)

    def test_no_step_beyond_the_last(self) -> None:
        machine = target("gfx1100")
        assert len(variants(Effort.BEST, machine, machine.max_waves)) == 3


def spilling() -> KernelCost:
    """What a kernel that spills costs."""
    (one,) = cost(compiled(pressed(16), "gfx1100", Effort.FAST), "gfx1100").values()
    assert spill_traffic(one) > 0
    return one


def unspilled(one: KernelCost) -> KernelCost:
    """The same with fewer stores."""
    return replace(one, spill_stores=replace(one.spill_stores, weighted=0.0))


class TestGuard:
    def test_as_good_is_good_enough(self) -> None:
        one = spilling()
        assert shortfalls(one, one) == []
        assert shortfalls(unspilled(one), one) == []
        assert shortfalls(replace(one, cycles=0.5 * one.cycles), one) == []

    def test_more_spills_and_more_cycles_fall_short(self) -> None:
        one = spilling()
        (spills,) = shortfalls(one, unspilled(one))
        assert spills.startswith("stores and reloads ")
        (cycles,) = shortfalls(replace(one, cycles=1.2 * one.cycles), one)
        assert cycles == "takes 1.2000 of its modelled cycles, more than the error bar of 10%"
        dearer = replace(one, cycles=2 * one.cycles)
        assert shortfalls(dearer, unspilled(one)) == [
            spills,
            "takes 2.0000 of its modelled cycles, more than the error bar of 25%",
        ]

    def test_below_the_error_bar_more_cycles_fall_short_with_more_instructions_alone(self) -> None:
        one = spilling()
        dearer = replace(one, cycles=1.05 * one.cycles)
        assert shortfalls(dearer, one) == []
        many = one.issued + 3
        (more,) = shortfalls(replace(dearer, issued=many), one)
        assert more.startswith("executes ")
        assert more.endswith("takes 1.0500 of its modelled cycles")
        assert shortfalls(replace(one, cycles=0.98 * one.cycles, issued=many), one) == []

    def test_fewer_waves_need_fewer_cycles(self) -> None:
        one = spilling()
        fewer = replace(one, occupancy=one.occupancy - 1)
        (waves,) = shortfalls(fewer, one)
        assert waves.startswith(f"has {fewer.occupancy} waves for {one.occupancy}; modelled cycles do not decide")
        assert shortfalls(replace(fewer, cycles=0.8 * one.cycles), one) == []
        # What the model cannot tell apart does not make up for a wave.
        assert shortfalls(replace(fewer, cycles=0.9 * one.cycles), one)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "in" / "k.ll"
    path.parent.mkdir()
    path.write_text(pressed(16))
    return path


@pytest.mark.parametrize("level", ["bset", "4", "", "Fast"])
def test_a_wrong_level_is_one_error(level: str, source: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["compile", str(source), "-mcpu=gfx1100", f"-O={level}"]) == 2
    shown = capsys.readouterr()
    assert f"{level!r} is none of 1, 2, 3, fast, balanced, best" in " ".join(shown.err.split())
    assert "Traceback" not in shown.err
    assert [p.name for p in source.parent.iterdir()] == ["k.ll"]


def report_of(source: Path, tmp_path: Path, *arguments: str) -> tuple[int, dict[str, object]]:
    found = tmp_path / "report.json"
    status = run(["compile", str(source), "-mcpu=gfx1100", "-q", f"--report={found}", *arguments])
    data = json.loads(found.read_text())
    pytest.importorskip("jsonschema").validate(data, schema())
    return status, data


def vgpr_phase(data: dict[str, object]) -> dict[str, object]:
    functions = data["functions"]
    assert isinstance(functions, list)
    return functions[0]["phases"][-1]


@pytest.mark.long
def test_levels_of_both_kinds_go_together(source: Path, tmp_path: Path) -> None:
    status, data = report_of(source, tmp_path, "-O2", "-O=balanced")
    assert status == 0
    assert "kept: " in str(data["notes"])
    assert vgpr_phase(data)["spills"]


def test_spills_are_in_the_report(source: Path, tmp_path: Path) -> None:
    status, data = report_of(source, tmp_path)
    assert status == 0
    phase = vgpr_phase(data)
    assert phase["fallback"] is False
    spills = phase["spills"]
    assert isinstance(spills, list)
    assert spills
    assert set(spills[0]) == {"register", "kind", "parts", "saves", "reloads", "point", "cost", "reason"}
    assert {s["kind"] for s in spills} <= {"spill", "rematerialise"}


@pytest.mark.long
def test_no_spill_gives_llvms_allocation_with_the_reason(
    source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, data = report_of(source, tmp_path, "--no-spill")
    assert status == 0
    phase = vgpr_phase(data)
    assert phase["fallback"] is True
    assert str(phase["fallback_reason"]).endswith("VGPRs are needed at once, 16 are free there")
    assert phase["spills"] == []
    assert run(["compile", str(source), "-mcpu=gfx1100", "--no-spill", "-o", str(tmp_path / "k.hsaco")]) == 0
    assert "fallback: k, VGPR: llvm's allocation instead: " in " ".join(capsys.readouterr().out.split())


def test_no_spill_without_fallback_ends_without_a_result(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "k.hsaco"
    status, data = report_of(source, tmp_path, "--no-spill", "--no-fallback", "-o", str(out))
    assert status == 3
    assert data["outcome"] == "unknown"
    assert not out.exists()


def many_accumulators(count: int = 20) -> str:
    """A loop of matrix instructions with more accumulators than there are AGPRs, 16 registers each."""
    numbers = range(count)
    mfma = "call <16 x float> @llvm.amdgcn.mfma.f32.32x32x8f16(<4 x half> %v{}, <4 x half> %v{}, <16 x float> %x{}, {})"
    none = ", ".join(["i32 0"] * 3)
    lines = [
        'target triple = "amdgcn-amd-amdhsa"',
        'define amdgpu_kernel void @acc(ptr addrspace(1) %a, i32 %n) "amdgpu-flat-work-group-size"="64,64" {',
        "entry:",
        "  %t = call i32 @llvm.amdgcn.workitem.id.x()",
        "  %p = getelementptr <4 x half>, ptr addrspace(1) %a, i32 %t",
        "  br label %loop",
        "loop:",
        "  %i = phi i32 [ 0, %entry ], [ %j, %loop ]",
        *(f"  %x{k} = phi <16 x float> [ zeroinitializer, %entry ], [ %y{k}, %loop ]" for k in numbers),
        "  %q = getelementptr <4 x half>, ptr addrspace(1) %p, i32 %i",
        *(f"  %q{k} = getelementptr <4 x half>, ptr addrspace(1) %q, i32 {64 * k}" for k in range(9)),
        *(f"  %v{k} = load <4 x half>, ptr addrspace(1) %q{k}" for k in range(9)),
        *(f"  %y{k} = {mfma.format(k % 5, 5 + k // 5, k, none)}" for k in numbers),
        "  %j = add i32 %i, 1",
        "  %m = icmp slt i32 %j, %n",
        "  br i1 %m, label %loop, label %done",
        "done:",
        *(f"  %o{k} = getelementptr <16 x float>, ptr addrspace(1) %a, i32 {64 * k}" for k in numbers),
        *(f"  store <16 x float> %y{k}, ptr addrspace(1) %o{k}" for k in numbers),
        "  ret void",
        "}",
    ]
    return "\n".join(lines) + "\n"


@pytest.mark.long
def test_more_accumulators_than_there_are_agprs_are_in_vgprs_first() -> None:
    """LLVM's default compile spills 302 registers of it, and none in that form."""
    done = compile_module(many_accumulators().encode(), "acc.ll", Settings("gfx942", emit=Emit.OBJ))
    (function,) = done.report.functions
    assert done.report.outcome is Outcome.PROVED
    assert function.plan == "matrices-in-vgprs"
    assert function.resources is not None
    assert function.greedy is not None
    assert function.resources.vgpr_spills == 0 < (function.greedy.vgpr_spills or 0)
