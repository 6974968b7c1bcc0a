"""The examples of docs/extend on real kernels; that of an allocator has ``test_allocator.py``."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest
from msgspec.structs import replace
from support import REPOSITORY, llc, run_llc
from target_oracles import sweep

from smt_verifier.audit.core import report, rules
from smt_verifier.outcome import Outcome
from verilocc_mlir.allocators.registry import allocator
from verilocc_mlir.cost.model import cost_of_assembly
from verilocc_mlir.errors import InputError
from verilocc_mlir.mir.model import Instruction
from verilocc_mlir.pipeline.audit import audit_llvm
from verilocc_mlir.pipeline.settings import Settings
from verilocc_mlir.report.audit import RULE_TEXTS
from verilocc_mlir.target.targets import TARGETS, target
from verilocc_mlir.toolchain.descriptor import read_code_object

EXAMPLES = REPOSITORY / "examples" / "extend"
PAGE = REPOSITORY / "docs" / "extend" / "index.md"


def example(name: str) -> ModuleType:
    path = EXAMPLES / name
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# A target.


@pytest.fixture
def gfx1251(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    module = example("target/gfx1251.py")
    monkeypatch.setitem(TARGETS, "gfx1251", module.GFX1251)
    return module


def test_a_kernel_for_the_new_target_is_proved(gfx1251: ModuleType) -> None:
    compiled = gfx1251.compiled()
    assert compiled.report.outcome is Outcome.PROVED
    assert read_code_object(compiled.data).machine == "gfx1251"


def test_the_new_target_s_facts_are_llvm_s(gfx1251: ModuleType) -> None:
    """Waves of a SIMD by registers; docs/extend/index.md names the tests that compare all else."""
    sweep(3, "gfx1251", 40)


# An audit rule.


@pytest.fixture
def audit_rule(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    module = example("audit_rule/load_over_address.py")
    monkeypatch.setattr(rules, "PAIR_RULES", rules.PAIR_RULES)
    for table in (report.FAULTS, RULE_TEXTS):
        monkeypatch.setitem(table, module.RULE, None)  # so that it is taken out again
    module.install()
    return module


@pytest.mark.parametrize(
    ("kernel", "outcome"),
    [("attn_d64.gfx1100", Outcome.REFUTED), ("gemm_mma_lds.gfx942", Outcome.PROVED)],
)
def test_the_new_rule_refutes_where_it_is_broken_alone(
    audit_rule: ModuleType, demo_kernels: Path, kernel: str, outcome: Outcome
) -> None:
    llc()
    path = demo_kernels / f"{kernel}.opt.ll"
    run = audit_llvm(path.read_bytes(), path.name, Settings(cpu=kernel.partition(".")[2]))
    whole = run.pairs[-1]
    found = [f for one in whole.report.functions for f in one.findings]
    assert {f.rule for f in found} == ({audit_rule.RULE} if outcome is Outcome.REFUTED else set())
    assert (whole.phase, whole.report.outcome) == ("all", outcome)
    for finding in found:
        assert finding.fault is report.Fault.RULE
        loaded, _, address = finding.instruction.partition(" = GLOBAL_LOAD_")
        assert finding.operand is not None
        (first, *_) = re.findall(r"vgpr\d+", finding.operand.post)
        assert first in loaded
        assert first in address


def test_an_added_rule_is_asked_also_where_its_name_is_known(
    demo_kernels: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The checkers alone would prove the kernel."""
    llc()

    def no_stores(_side: rules.MachineRules, _pre: Instruction, post: Instruction) -> Iterator[rules.Complaint]:
        if post.opcode.startswith("GLOBAL_STORE_"):
            yield rules.Complaint("register-class", "a store")

    monkeypatch.setattr(rules, "PAIR_RULES", (*rules.PAIR_RULES, no_stores))
    path = demo_kernels / "gemm_mma_lds.gfx942.opt.ll"
    run = audit_llvm(path.read_bytes(), path.name, Settings(cpu="gfx942"))
    assert run.pairs[-1].report.outcome is Outcome.REFUTED


# A cost rule.


def test_the_new_count_is_of_what_runs(demo_kernels: Path) -> None:
    path = demo_kernels / "gemm_mma_lds.gfx942.opt.ll"
    text = run_llc(path.read_text(), "gfx942", mir=False)
    (count,) = example("cost_rule/full_drains.py").drains(text, "gfx942").values()
    waits = [line for line in text.splitlines() if re.match(r"\s*s_waitcnt .*cnt\(0\)", line)]
    assert count.static == len(waits) > 10
    (cost,) = cost_of_assembly(text, target("gfx942")).values()
    assert count.static < count.weighted < cost.instructions.weighted


# A front end.


@pytest.mark.long
def test_the_new_front_end_s_kernels_are_proved() -> None:
    compiled = example("front_end/expressions.py").compile_expressions(["x * x + 1", "(x - 3) / 2"], "gfx942")
    for number, result in enumerate(compiled):
        assert result.reason == ""
        assert list(read_code_object(result.code_object or b"").kernels) == [f"k{number}"]
        phases = [phase for function in result.report["functions"] for phase in function["phases"]]
        assert {(phase["allocator"], phase["outcome"]) for phase in phases} == {("deterministic", "proved")}


@pytest.mark.long
def test_the_new_front_end_takes_every_option() -> None:
    module = example("front_end/expressions.py")
    (result,) = module.compile_expressions(["x"], "gfx1201", allocator="llvm")
    assert {p["allocator"] for f in result.report["functions"] for p in f["phases"]} == {"llvm"}
    with pytest.raises(InputError, match="there is no option 'speed'"):
        module.compile_expressions(["x"], "gfx1201", speed=1)
    with pytest.raises(InputError, match="'x % 2' is not x, a number"):
        module.compile_expressions(["x % 2"], "gfx1201")


# The page.


def test_every_example_has_its_section() -> None:
    text = PAGE.read_text()
    for directory in sorted(path for path in EXAMPLES.iterdir() if path.is_dir()):
        name = directory.name.replace("_", " ")
        assert f"(#a-new-{name.replace(' ', '-')})" in text
        assert f"examples/extend/{directory.name}/" in text.partition(f"\n## A new {name}\n")[2].partition("\n## ")[0]


def test_what_the_page_names_is_there() -> None:
    text = PAGE.read_text()
    for name in re.findall(r"`((?:verilocc_mlir|smt_verifier|tests|examples|docs)/[\w./-]+)`", text):
        assert (REPOSITORY / name).exists(), name
    for link in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text):
        assert (PAGE.parent / link).exists(), link


def test_the_page_s_target_line_is_one_of_targets() -> None:
    (line,) = re.findall(r"^_rdna\(.*\),$", PAGE.read_text(), re.MULTILINE)
    from verilocc_mlir.target import targets

    made: Callable[..., object] = eval(f"lambda: {line.rstrip(',')}", {**vars(targets)})
    assert made() == target("gfx1200") == replace(target("gfx1201"), name="gfx1200")


def test_the_page_shows_the_allocator_s_entry_point() -> None:
    page = PAGE.read_text()
    (block,) = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    assert block in (EXAMPLES / "allocator" / "pyproject.toml").read_text()
    assert allocator("deterministic").name in page
