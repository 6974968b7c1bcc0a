"""Plans as configurations of Triton's autotuner: every plan is compiled, proved and timed, and the fastest is launched.

There is no device: launches run nothing, and times are given. All else is Triton's own.
"""

from __future__ import annotations

import gc
import hashlib
import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from support import REPOSITORY

from verilocc_mlir.errors import InputError
from verilocc_mlir.measure.journal import VARIABLE, Journal, read_measurements
from verilocc_mlir.results.measure import Interval, Verdict

triton: Any = pytest.importorskip("triton", reason="Triton is not installed: pip install 'verilocc-mlir[triton]'")
torch: Any = pytest.importorskip("torch")
sys.path.insert(0, str(REPOSITORY / "benchmarks"))
hook: Any = importlib.import_module("verilocc_mlir.hooks.triton")
plans: Any = importlib.import_module("verilocc_mlir.hooks.triton.plan_tuner")
triton_builders: Any = importlib.import_module("triton_builders")
scaled_sum, build_sum = triton_builders.scaled_sum, triton_builders.build_sum
pytestmark = pytest.mark.filterwarnings("ignore:TRITON_DEFAULT_FP_FUSION is unset")

MILLISECONDS = {"triton": 1.0, "default": 0.9, "packed": 0.8, "max-ilp + packed": 1.2}


@pytest.fixture(name="device")
def _device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "cache"))
    before = triton.runtime.driver._active
    there = triton_builders.Device("gfx942")
    triton.runtime.driver.set_active(there.driver)
    hook.clear_reports()
    yield there
    hook.uninstall()
    gc.collect()
    triton.runtime.driver._active = before


def tuned(device: Any, journal: Path | None = None, wanted: tuple[str, ...] = ("default", "packed")) -> Any:
    """An autotuner over two blocks and some plans, with the times of ``MILLISECONDS``, after its first launch."""
    order: list[float] = []

    def bench(launch: Any) -> list[float]:
        launch()
        ms = order.pop(0)
        return [ms + 0.001 * number for number in range(30)]

    blocks = [triton.Config({"BLOCK": block}) for block in (128, 256)]
    tuner = hook.autotune_plans(blocks, ["size"], plans=wanted, bench=bench, journal=journal)(triton.jit(scaled_sum.fn))
    for config in tuner.configs:
        order.append(MILLISECONDS[plans.plan_of(config)] * (2 if config.kwargs["BLOCK"] == 128 else 1))
    x = torch.empty(1024)
    device.loaded.clear()
    tuner[(4,)](x, x, 1024, 2.0)
    return tuner


def test_the_fastest_plan_is_the_one_that_is_launched(device: Any, tmp_path: Path) -> None:
    hook.install("gfx942", autotune="ours")
    journal = tmp_path / "measured.jsonl"
    tuner = tuned(device, journal)
    assert [plans.plan_of(config) for config in tuner.configs] == ["triton", "default", "packed"] * 2
    assert (plans.plan_of(tuner.best_config), tuner.best_config.kwargs["BLOCK"]) == ("packed", 256)
    assert [record.kind for record in hook.reports()] == ["option", "proved", "proved"] * 2
    kept, _ = read_measurements(journal)
    assert [(one.base.name, one.candidate.name) for one in kept] == [
        ("triton (Triton's own)", "default"), ("triton (Triton's own)", "packed"),
    ] * 2  # fmt: skip
    assert {one.verdict.value for one in kept} == {"faster"}
    assert [one.ratio and round(one.ratio.median, 2) for one in kept] == [0.9, 0.8, 0.9, 0.8]
    assert {(len(one.rounds), len(one.rounds[0].base)) for one in kept} == {(6, 5)}
    digests = {hashlib.sha256(code).hexdigest() for code in device.loaded}
    assert {one.base.sha256 for one in kept} | {one.candidate.sha256 for one in kept} == digests
    # The same kernel, whatever the plan; another one for another block.
    assert [len({one.kernel.ir for one in half}) for half in (kept[:2], kept[2:], kept)] == [1, 1, 2]
    assert {(one.device.driver, one.device.architecture) for one in kept} == {("triton", "gfx942")}
    assert "scaled_sum(1024xfloat32, 1024xfloat32, 1024, 2.0), grid (4,); BLOCK: 256" in kept[-1].workload


@pytest.mark.long
def test_a_plan_that_comes_to_nothing_is_tritons_own_code(device: Any) -> None:
    """LLVM's scheduler has nothing to do in a kernel of two loads: this plan makes the same text, or none."""
    hook.install("gfx942", autotune="ours")
    tuned(device, wanted=("max-ilp + packed",))
    kinds = [record.kind for record in hook.reports()]
    assert kinds[0] == kinds[2] == "option"
    assert set(kinds) <= {"option", "proved", "unsupported"}


@pytest.mark.long
def test_the_journal_decides_whose_kernel_is_taken(
    device: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The codes of one kernel, said to be those that were measured."""
    hook.install("gfx942", autotune="ours", replace="always")
    journal = tmp_path / "measured.jsonl"
    tuned(device, journal, ("default",))
    ours = build_sum("gfx942", 256).asm["hsaco"]
    hook.uninstall()
    theirs = build_sum("gfx942", 256).asm["hsaco"]
    first = read_measurements(journal)[0][0]
    line = replace(
        first,
        base=replace(first.base, sha256=hashlib.sha256(theirs).hexdigest()),
        candidate=replace(first.candidate, sha256=hashlib.sha256(ours).hexdigest()),
    )
    monkeypatch.setenv(VARIABLE, str(journal))
    kinds: dict[str, tuple[str, str]] = {}
    for verdict in (Verdict.FASTER, Verdict.SLOWER):
        ratio = line.ratio if verdict is Verdict.FASTER else Interval(1.1, 1.1, 1.1, 1.0)
        with Journal(journal) as kept:
            kept.add(replace(line, verdict=verdict, ratio=ratio))
        hook.install("gfx942", replace="measured")
        built = build_sum("gfx942", 256)
        kinds[verdict.value] = (built.metadata.verilocc["kind"], built.metadata.verilocc["reason"])
        assert "of its time on unknown" in built.metadata.verilocc["notes"][-1]
        assert built.asm["hsaco"] == (ours if verdict is Verdict.FASTER else theirs)
    assert kinds["faster"] == ("proved", "")
    assert kinds["slower"][0] == "declined"
    assert kinds["slower"][1].startswith("ours is proved, but: measured at 1.100 [1.100, 1.100] of its time on unknown")


def test_without_our_code_being_timed_it_is_an_error(device: Any) -> None:
    hook.install("gfx942")
    with pytest.raises(InputError, match="plans are timed where the hook times our code") as refused:
        tuned(device)
    assert 'autotune="ours"' in refused.value.hint


def test_plans_are_checked_before_anything_is_compiled() -> None:
    with pytest.raises(InputError, match="no word 'fastest'"):
        hook.plan_configs([triton.Config({})], ["fastest"])
    given = triton.Config({"BLOCK": 1, "llvm_fn_attrs": "noinline"}, num_warps=8)
    made = hook.plan_configs([given], ["default", "default", "max-ilp + beside"])
    assert [config.kwargs["llvm_fn_attrs"] for config in made] == [
        f"noinline,verilocc-plan={plan}" for plan in ("triton", "default", "max-ilp + beside")
    ]
    assert [plans.plan_of(config) for config in made] == ["triton", "default", "max-ilp + beside"]
    assert {config.num_warps for config in made} == {8}
    assert len(set(made)) == 3
    assert given.kwargs["llvm_fn_attrs"] == "noinline"


def test_the_plan_of_a_kernel_stands_in_its_ir() -> None:
    assert plans.plan_in('attributes #0 = { "verilocc-plan"="max-ilp + beside" nounwind }') == "max-ilp + beside"
    assert plans.plan_in("attributes #0 = { nounwind }") == ""
    assert plans.plan_in(b"no text") == ""
