"""docs/trust/passes.md has every pass that the installed LLVM runs behind an allocation phase, and no other."""

from __future__ import annotations

import re
import subprocess
from functools import lru_cache

import pytest
from support import REPOSITORY, llc, llc_at_hand, long

PAGE = REPOSITORY / "docs" / "trust" / "passes.md"
_IR = """target triple = "amdgcn-amd-amdhsa"
define amdgpu_kernel void @k(ptr addrspace(1) %p) {
  store i32 1, ptr addrspace(1) %p
  ret void
}
"""
pytestmark = pytest.mark.skipif(not llc_at_hand(), reason="no llc that lists its passes")


@lru_cache(maxsize=None)
def _passes(cpu: str, level: int) -> frozenset[str]:
    """Names that ``-debug-pass=Structure`` prints of what runs behind the three phases."""
    names: set[str] = set()
    command = [str(llc()), "-mtriple=amdgcn-amd-amdhsa", f"-mcpu={cpu}", f"-O{level}", "-o", "-", "-"]
    for phase in (0, 1, 2):
        to_phase = [*command, f"-stop-after=virtregrewriter,{phase}"]
        text = subprocess.run(to_phase, input=_IR, capture_output=True, text=True, check=True).stdout
        on = [*command, "-x", "mir", f"-start-after=virtregrewriter,{phase}", "-debug-pass=Structure"]
        listed = subprocess.run(on, input=text, capture_output=True, text=True, check=True).stderr
        names |= {line.strip() for line in listed.splitlines() if line.startswith("  ")}
    return frozenset(names)


@pytest.mark.parametrize("cpu", ["gfx942", "gfx1250", *long("gfx90a", "gfx1100", "gfx1201")])
@pytest.mark.parametrize("level", [3, *long(1)])
def test_every_pass_behind_a_phase_is_on_the_page(cpu: str, level: int) -> None:
    page = " ".join(PAGE.read_text().split())
    assert "Control Flow Optimizer" in _passes(cpu, level)
    assert sorted(name for name in _passes(cpu, level) if name not in page) == []


def test_every_row_is_of_a_pass_that_runs() -> None:
    rows = [line.split("|")[1] for line in PAGE.read_text().splitlines() if line.startswith("| ")]
    named = {name.split(" (")[0].strip() for row in rows for name in re.split(r"[;,] ", row)} - {"pass"}
    assert len(named) >= 35
    assert sorted(named - _passes("gfx942", 3)) == []
