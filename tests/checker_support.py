"""Texts for the tests of the checker."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

import pytest
from support import CACHE, DEMO_KERNELS, REPOSITORY, cpu_of, run_llc

from smt_verifier.certificate.second import second_program
from smt_verifier.checker.check import check
from smt_verifier.checker.outcome import Refused

STOPS = (
    "-stop-before=greedy,0", "-stop-after=virtregrewriter,0", "-stop-after=virtregrewriter,1",
    "-stop-after=virtregrewriter,2",
)  # fmt: skip
SMALL = """--- |
  target triple = "amdgcn-amd-amdhsa"
  define amdgpu_kernel void @k(ptr %p) #0 { ret void }
  attributes #0 = { nounwind "amdgpu-waves-per-eu"="2,4" }
...
---
name:            k
tracksRegLiveness: true
registers:
  - { id: 0, class: vgpr_32, preferred-register: '$vgpr5', flags: [  ] }
  - { id: 1, class: sreg_64, preferred-register: '', flags: [ WWM_REG ] }
liveins:
  - { reg: '$vgpr0', virtual-reg: '%0' }
frameInfo:
  maxAlignment:    4
stack:
  - { id: 0, name: x, type: default, offset: 0, size: 8, alignment: 4,
      stack-id: default, callee-saved-register: '', callee-saved-restored: true }
machineFunctionInfo:
  isEntryFunction: true
  stackPtrOffsetReg: '$sgpr32'
  argumentInfo:
    workGroupIDX:    { reg: '$sgpr8' }
    workItemIDX:     { reg: '$vgpr0', mask: 1023 }
  mode:
    ieee:            true
  wwmReservedRegs:
    - '$vgpr40'
    - '$vgpr41'
body:             |
  bb.0 (%ir-block.0):
    successors: %bb.2(0x40000000), %bb.1(0x40000000)
    liveins: $vgpr0, $sgpr4_sgpr5:0x000000000000000F

    renamable $sgpr6 = COPY killed renamable $sgpr4 ; a comment
    dead early-clobber %0:vgpr_32, undef %1.sub0:sreg_64 = nofpexcept V_TEST_e64 0, -5, %0(tied-def 0), implicit $exec
    BUFFER_STORE_DWORD_OFFSET %0, %stack.0.x, 4 :: (volatile store (s32) into %stack.0.x + 4, align 8, addrspace 5)
    BUNDLE implicit-def $vgpr1, implicit $exec {
      $vgpr1 = V_MOV_B32_e32 1, implicit $exec
      $vgpr1 = V_MOV_B32_e32 internal $vgpr1, implicit $exec, debug-location !7
    }
    S_CBRANCH_EXECZ %bb.1, implicit $exec

  bb.2:
    S_ENDPGM 0

  bb.1:
    INLINEASM &"v_nop ; %bb.7", 1 /* sideeffect attdialect */, 2228234 /* regdef:VGPR_32 */, def $vgpr3, !5
    $scc = S_TEST @f + 8, &ext, csr_amdgpu, <mcsymbol a> - 4
    $scc = S_TEST target-flags(amdgpu-rel32-lo) @"a b", post-instr-symbol <mcsymbol y>
    S_ENDPGM 0
...
"""
"""One of every kind of line; no instruction of it means anything."""


def stored_texts() -> list[Path]:
    """Every text of machine IR that is kept in the repository."""
    return sorted((REPOSITORY / "tests").rglob("*.mir"))


def texts_of_llc() -> Iterator[tuple[str, str]]:
    """Name and text of what llc hands to each phase, and makes of it, for the kernels in ``examples/kernels``."""
    for path in sorted(DEMO_KERNELS.glob("*.ll")):
        for stop in STOPS:
            yield f"{path.name} {stop}", run_llc(path.read_text(), cpu_of(path), stop, mir=False)


MODULE = SMALL[: SMALL.index("---\nname")]
BEFORE = (
    MODULE
    + """---
name:            k
tracksRegLiveness: true
isSSA:           false
noVRegs:         false
liveins:
  - { reg: '$vgpr0', virtual-reg: '%0' }
frameInfo:
  maxAlignment:    4
fixedStack:
  - { id: 0, type: default, offset: 0, size: 4, alignment: 16, stack-id: default }
  - { id: 1, type: default, offset: 4, size: 4, alignment: 4, stack-id: default }
stack:
  - { id: 0, name: x, type: default, offset: 0, size: 8, alignment: 8 }
machineFunctionInfo:
  isEntryFunction: false
  hasSpilledSGPRs: false
  hasSpilledVGPRs: false
  scratchRSrcReg:  '$sgpr0_sgpr1_sgpr2_sgpr3'
  stackPtrOffsetReg: '$sgpr32'
  occupancy:       8
  sgprForEXECCopy: '$sgpr100_sgpr101'
  wwmReservedRegs: []
body:             |
  bb.0:
    liveins: $vgpr0, $sgpr4

    %0:vgpr_32 = COPY $vgpr0
    %1:vgpr_32 = V_ADD_U32_e32 %0, %0, implicit $exec
    %2:sreg_32 = S_MOV_B32 %stack.0.x
    SCRATCH_STORE_DWORD_SADDR %1, %fixed-stack.1, 0, 0, implicit $exec, implicit $flat_scr :: (store (s32) into %stack.0.x)
    S_NOP 0, implicit $sgpr4
    SI_RETURN
...
"""  # noqa: E501
)
"""A called function for gfx942 before allocation."""
AFTER = (
    BEFORE.replace("noVRegs:         false", "noVRegs:         true")
    .replace("virtual-reg: '%0'", "virtual-reg: ''")
    .replace("%0:vgpr_32 = COPY $vgpr0", "renamable $vgpr1 = COPY $vgpr0")
    .replace("%1:vgpr_32 = V_ADD_U32_e32 %0, %0", "renamable $vgpr2 = V_ADD_U32_e32 $vgpr1, $vgpr1")
    .replace("SADDR %1,", "SADDR $vgpr2,")
    .replace("%2:sreg_32", "renamable $sgpr5")
)
"""The same after it."""


@lru_cache(maxsize=1)
def builds_the_second_checker() -> bool:
    """Whether cargo is there, works, and is new enough: then the second checker must be there too."""
    if shutil.which("cargo") is None:
        return False
    done = subprocess.run(["cargo", "--version"], capture_output=True, text=True, check=False)
    version = re.match(r"cargo (\d+)\.(\d+)", done.stdout)
    manifest = (REPOSITORY / "smt_verifier" / "second" / "Cargo.toml").read_text()
    least = re.search(r'^rust-version = "(\d+)\.(\d+)', manifest, re.MULTILINE)
    assert least is not None
    return done.returncode == 0 and version is not None and _numbers(version) >= _numbers(least)


def _numbers(version: re.Match[str]) -> tuple[int, int]:
    return int(version[1]), int(version[2])


def own_tests_pass(program: str, *options: str) -> None:
    """The tests beside a program in Rust pass; what cargo builds is kept beside what llc made."""
    manifest = REPOSITORY / "smt_verifier" / program / "Cargo.toml"
    command = ["cargo", "test", "--offline", "--locked", "--quiet", f"--manifest-path={manifest}", *options]
    environment = {**os.environ, "CARGO_TARGET_DIR": str(CACHE.with_name("cargo")), "CARGO_PROFILE_DEV_DEBUG": "false"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


needs_both = pytest.mark.skipif(not builds_the_second_checker(), reason="no cargo to build the second checker")
"""Of what is there with both checkers alone."""


def rule_of_first(before: str, after: str, certificate: str, cpu: str) -> str:
    """The rule by which the first checker refuses a certificate; empty where it accepts."""
    try:
        check(before, after, certificate, cpu)
    except Refused as refused:
        return refused.rule
    return ""


def rule_of_second(before: str, after: str, certificate: str, cpu: str, directory: Path) -> str:
    """The rule by which the second checker does, through files in a directory; empty where it accepts."""
    names = [directory / name for name in ("before.mir", "after.mir", "certificate")]
    for path, text in zip(names, (before, after, certificate), strict=True):
        path.write_text(text)
    command = [str(second_program()), *map(str, names), f"--mcpu={cpu}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1), done.stderr
    return "" if done.returncode == 0 else done.stdout.split(": ")[1]
