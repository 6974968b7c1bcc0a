"""Every figure of the model says where it comes from, and what is said to be LLVM's is."""

from __future__ import annotations

import ast
import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest
from support import REPOSITORY, few, llc

from verilocc_mlir.cost import accesses, counting, rates, simulate, unhidden
from verilocc_mlir.cost.rates import RULES, Origin
from verilocc_mlir.target.targets import TARGETS, target

sys.path.append(str(REPOSITORY / "scripts"))
from cost_figures import PAGE, page  # pyright: ignore[reportMissingImports, reportUnknownVariableType]

_ISSUES = {
    "valu_latency.full": "v_add_f32_e32 v0, v1, v2",
    "valu_latency.trans": "v_exp_f32_e32 v0, v1",
    "valu_latency.wide": "v_ashrrev_i64 v[0:1], v2, v[4:5]",
    "valu_latency.double": "v_max_f64 v[0:1], v[2:3], v[4:5]",
    "valu_latency.trans_double": "v_rcp_f64_e32 v[0:1], v[2:3]",
    "valu_latency.multiply": "v_mul_lo_u32 v0, v1, v2",
    "salu_latency": "s_mov_b32 s0, s1",
    "lds_latency": "ds_bpermute_b32 v0, v1, v2",
    "smem_latency": "s_load_dword s0, s[2:3], 0x0",
    "vmem_latency": "global_load_dword v0, v[2:3], off",
    "taken_branch": "s_branch 0",
}


def test_every_figure_has_a_source() -> None:
    """Of each target, one for each field and rate; the figures that are used are those."""
    for gpu in TARGETS.values():
        given = rates.figures(gpu)
        assert {name.partition(".")[0] for name in given} == set(rates.Rates.__struct_fields__)
        assert all(figure.source.detail for figure in given.values())
        first = next(other for other in TARGETS.values() if other.speed_model is gpu.speed_model)
        assert given == rates.figures(first)  # The page has a column for that one alone.
        used = rates.rates(gpu)
        assert all(getattr(used, n) == f.value for n, f in given.items() if "." not in n)
    assert all(source.detail for source in RULES.values())


@pytest.mark.parametrize("module", [accesses, counting, simulate, unhidden], ids=lambda m: m.__name__)
def test_no_figure_stands_without_a_source(module: object) -> None:
    """Numbers above 2 stand beside a source. The rest are no figures: sizes in bytes or lanes, and a horizon."""
    allowed = {"simulate": {3, 4, 16, 160}, "unhidden": {4, 64}}
    # Beside figures: lanes of a wave, ISA versions, bits of words.
    allowed |= {"accesses": {3, 4, 8, 10, 11, 14, 31, 32, 64, 4294967295}}
    allowed |= {"counting": {3, 4, 10, 11, 12, 16, 64}}
    name = module.__name__.rpartition(".")[2]  # pyright: ignore[reportAttributeAccessIssue]
    tree = ast.parse(inspect.getsource(module))  # pyright: ignore[reportArgumentType]
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and f"{name}.{node.name}" in RULES:
            continue
        if "Figure(" in ast.unparse(node) and isinstance(node, ast.Assign):
            continue
        numbers = {n.value for n in ast.walk(node) if isinstance(n, ast.Constant) and isinstance(n.value, int)}
        assert {n for n in numbers if n > 2} <= allowed.get(name, set()), ast.unparse(node)


def test_the_page_has_the_figures() -> None:
    """Where this fails, ``python scripts/cost_figures.py`` writes the page."""
    text = PAGE.read_text()
    assert page(text) == text
    for origin in Origin:
        assert f"**{origin.value}**: " in text


@pytest.mark.parametrize("cpu", few(("gfx942", "gfx1100"), TARGETS))
def test_latencies_of_llvm_are_what_llvm_says(cpu: str) -> None:
    given, gpu = rates.figures(target(cpu)), target(cpu)
    wanted = {name: text for name, text in _ISSUES.items() if given[name].source.origin is Origin.LLVM}
    assert wanted
    for name, text in wanted.items():
        spelt = text if gpu.major < 11 else text.replace("_dword ", "_b32 ")
        if gpu.major >= 12:
            spelt = spelt.replace("v_max_f64 ", "v_add_f64_e32 ")
        assert given[name].value == given["slot"].value * latency(spelt, cpu), name


def latency(instruction: str, cpu: str) -> int:
    """The latency that llvm-mca prints."""
    tool = Path(llc()).with_name(Path(llc()).name.replace("llc", "llvm-mca"))
    if not tool.exists():
        pytest.skip("no llvm-mca")
    command = [str(tool), "-mtriple=amdgcn-amd-amdhsa", f"-mcpu={cpu}", "-iterations=1"]
    shown = subprocess.run(command, input=instruction + "\n", capture_output=True, text=True, check=True).stdout
    row = re.search(r"^ +\d+ +(\d+) +\d+\.\d+ .*$", shown.partition("Instruction Info:")[2], re.MULTILINE)
    assert row is not None, shown
    return int(row[1])
