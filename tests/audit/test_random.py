"""Random divergent code: what LLVM allocates is proved, what we allocate is proved, and damage is not."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest
from allocation import Pair, phases_of_ir
from random_ir import Features, random_ir
from support import few, long, run_opt

from smt_verifier.audit.wording import render
from smt_verifier.outcome import Outcome
from verilocc_mlir.cli.main import run
from verilocc_mlir.target.targets import TARGETS as ALL

TARGETS = ["gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1201", "gfx1250"]
SEEDS = [4, *long(0, 1, 2, 3, *range(5, 120))]
_READ = re.compile(r"(?<=[ ,])\$(vgpr)(\d+)(?=[,\n ])")


def source(seed: int) -> tuple[str, str]:
    """IR and target for a seed."""
    cpu = TARGETS[seed % len(TARGETS)]
    features = Features(calls=seed % 3 == 0, device_function=seed % 4 == 1)
    return run_opt(random_ir(seed, features), cpu, "-O2"), cpu


@pytest.mark.parametrize("seed", SEEDS)
def test_llvms_allocation_is_proved(seed: int) -> None:
    for pair in phases_of_ir(*source(seed)):
        report = pair.audit()
        assert [render(f) for done in report.functions for f in done.findings] == []
        assert report.outcome is Outcome.PROVED


@pytest.mark.parametrize("seed", SEEDS)
def test_our_allocation_is_proved(seed: int, tmp_path: Path) -> None:
    text, cpu = source(seed)
    kernel = tmp_path / "k.ll"
    kernel.write_text(text)
    assert run(["compile", str(kernel), f"-mcpu={cpu}", "--emit=obj", "-o", str(tmp_path / "k.o"), "--quiet"]) == 0


@pytest.mark.parametrize("seed", [1, *long(3, 5, 8, 9, 13)])
@pytest.mark.parametrize("cpu", few(("gfx1150",), [cpu for cpu in ALL if cpu not in TARGETS]))
def test_a_gpu_without_kernels_of_its_own(cpu: str, seed: int, tmp_path: Path) -> None:
    features = Features(calls=seed % 3 == 0, device_function=seed % 4 == 1)
    kernel = tmp_path / "k.ll"
    kernel.write_text(run_opt(random_ir(seed, features), cpu, "-O2"))
    assert run(["compile", str(kernel), f"-mcpu={cpu}", "--emit=obj", "-o", str(tmp_path / "k.o"), "--quiet"]) == 0


@pytest.mark.long
@pytest.mark.parametrize("seed", SEEDS)
def test_a_register_nobody_wrote_is_refuted(seed: int) -> None:
    """One vector register that is read becomes v39, which holds nothing: no such mutant is equivalent."""
    _, vector = phases_of_ir(*source(seed))
    lines = vector.post.split("\n")
    body = next(n for n, line in enumerate(lines) if line.startswith("body:"))
    assert "$vgpr39" not in vector.post
    sites = [
        (n, match)
        for n in range(body, len(lines))
        if " = " in lines[n] or "STORE" in lines[n]
        for match in _READ.finditer(lines[n], lines[n].find(" = ") + 1)
        if "COPY" not in lines[n] and "IMPLICIT_DEF" not in lines[n] and "undef" not in lines[n]
    ]
    for n, match in random.Random(seed).sample(sites, min(6, len(sites))):
        changed = lines[n][: match.start()] + "$vgpr39" + lines[n][match.end() :]
        report = Pair(vector.cpu, vector.pre, "\n".join([*lines[:n], changed, *lines[n + 1 :]])).audit()
        assert report.outcome is Outcome.REFUTED, lines[n]
