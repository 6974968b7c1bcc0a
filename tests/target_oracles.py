"""What LLVM itself says about registers, for the tests of verilocc_mlir.target.

Two oracles. The register and class tables are read out of the libLLVM that llc is linked with, in a process of their
own. A function's reserved registers are read off the machine verifier: it complains of every use of an undefined
register, but not of reserved ones.
"""

from __future__ import annotations

import os
import random
import re
import subprocess
from functools import lru_cache

import pytest
from support import llc, run_llc

from scripts.llvm_register_tables import RegisterTables, register_tables_of
from verilocc_mlir.mir.model import MachineFunction
from verilocc_mlir.target.occupancy import effective_waves, vector_registers, waves
from verilocc_mlir.target.targets import target


@lru_cache(maxsize=1)
def register_tables() -> RegisterTables:
    """The tables inside libLLVM; skips the test where llc has no shared libLLVM of version 22."""
    tables = register_tables_of(llc())
    if tables is None:
        pytest.skip("reading the register tables needs an llc 22 that is linked with a shared libLLVM")
    return tables


SPECIAL = [
    "vcc_lo",
    "vcc_hi",
    "exec_lo",
    "exec_hi",
    "m0",
    "scc",
    "mode",
    "flat_scr_lo",
    "flat_scr_hi",
    "xnack_mask_lo",
    "xnack_mask_hi",
    "tba_lo",
    "tba_hi",
    "tma_lo",
    "tma_hi",
    "lds_direct",
    "tensorcnt",
    "asynccnt",
    "src_vccz",
    "src_execz",
    "src_scc",
    "src_pops_exiting_wave_id",
    "fp_reg",
    "sp_reg",
    "pc_reg",
    "private_rsrc_reg",
    "src_shared_base_lo",
    "src_shared_limit_lo",
    "src_private_base_lo",
    "src_private_limit_lo",
    "src_flat_scratch_base_lo",
    "src_flat_scratch_base_hi",
    "sgpr_null",
]
"""Registers outside the numbered files."""


def all_registers(vgprs: int = 1024) -> list[str]:
    """Every 32-bit register and every special one."""
    files = (("vgpr", vgprs), ("agpr", 256), ("sgpr", 106), ("ttmp", 16))
    return [f"{bank}{n}" for bank, size in files for n in range(size)] + SPECIAL


def _header(function: MachineFunction) -> str:
    lines: list[str] = []
    skipping = False
    for line in function.header_lines:
        if skipping and line.startswith(" "):
            continue
        skipping = line.startswith("registers:")
        lines.append("registers: []" if skipping else re.sub(r", virtual-reg: '%?\d*'", "", line))
    # With valid callee-saved information the verifier takes the registers that were saved as live at entry.
    return "\n".join(lines).replace("isCalleeSavedInfoValid: true", "isCalleeSavedInfoValid: false") + "\n"


def undefined_uses(
    preamble: str, function: MachineFunction, cpu: str, registers: list[str], before: str = ""
) -> set[str]:
    """The ``registers`` whose use the verifier calls undefined, in ``function`` with its body replaced.

    ``before`` is MIR text at the top of the new body.
    """
    uses = "".join(f"    S_NOP 0, implicit ${name}\n" for name in registers)
    text = f"{preamble}{_header(function)}  bb.0:\n{before}{uses}    S_ENDPGM 0\n...\n"
    command = [
        llc(),
        "-mtriple=amdgcn-amd-amdhsa",
        f"-mcpu={cpu}",
        "-x",
        "mir",
        "-run-pass=none",
        "-verify-machineinstrs",
    ]
    # Complaints abort llc, and the names for its stack take longest.
    quietly = {**os.environ, "LLVM_DISABLE_SYMBOLIZATION": "1"}
    done = subprocess.run(
        [*command, "-o", "-", "-"], env=quietly, input=text, capture_output=True, text=True, check=False
    )
    complaints = set(re.findall(r"Bad machine code: (.*) \*\*\*", done.stderr))
    assert complaints == {"Using an undefined physical register"}, done.stderr[:2000]
    return set(
        re.findall(
            r"Using an undefined physical register[^\n]*\n(?:- .*\n)*?- operand 1:   implicit \$(\w+)", done.stderr
        )
    )


def reserved_by_llvm(preamble: str, function: MachineFunction, cpu: str, registers: list[str]) -> set[str]:
    """The ``registers`` that LLVM reserves in ``function``."""
    return set(registers) - undefined_uses(preamble, function, cpu, registers)


TRIPLE = 'target triple = "amdgcn-amd-amdhsa"\n'


def printed(asm: str) -> list[dict[str, int]]:
    """The figures that llc prints after each kernel."""
    kernels = re.split(r"\.amdhsa_kernel ", asm)[1:]
    return [{k: int(v) for k, v in re.findall(r"; (\w+): (\d+)", text)} for text in kernels]


def sweep(seed: int, cpu: str, count: int) -> None:
    """Waves over random registers, LDS and work-group sizes, beside the figures that llc prints."""
    rng = random.Random(f"{seed}/{cpu}")
    gpu = target(cpu)
    text, groups = TRIPLE, ""
    rows: list[tuple[tuple[int, int], tuple[int, int] | None]] = []
    for k in range(count):
        vgprs = rng.choice([1, 8, 20, 40, 64, 65, 72, 80, 96, 97, 120, 128, 130, 168, 170, 192, 216, 240, 250, 256])
        agprs = rng.choice([0, 0, 1, 16, 60, 128, 256]) if gpu.has_agprs else 0
        sgprs = rng.choice([10, 50, 80, 88, 90, 94, 96, 98, 100, 102])
        lds = rng.choice([0, 0, 100, 1024, 8000, 16384, 20000, 32768, 65536])
        low = rng.choice([1, 32, 64, 65, 100, 128, 256])
        high = rng.choice([n for n in (64, 128, 200, 256, 300, 512, 700, 1024) if n >= low])
        request = rng.choice([None, (1, 8)])
        if lds:
            text += f"@l{k} = internal addrspace(3) global [{lds} x i8] poison, align 4\n"
        store = f"  store volatile i8 0, ptr addrspace(3) @l{k}\n" if lds else ""
        clobbers = f"~{{v{vgprs - 1}}},~{{s{sgprs - 1}}}" + (f",~{{a{agprs - 1}}}" if agprs else "")
        asm = f'call void asm sideeffect "", "{clobbers}"()'
        text += f"define amdgpu_kernel void @k{k}() #{k} {{\n  {asm}\n{store}  ret void\n}}\n"
        asked = f'"amdgpu-waves-per-eu"="{request[0]},{request[1]}"' if request else ""
        groups += f'attributes #{k} = {{ "amdgpu-flat-work-group-size"="{low},{high}" {asked} '
        groups += f'"amdgpu-agpr-alloc"="0,{256 if agprs else 0}" }}\n'
        rows.append(((low, high), request))
    figures = printed(run_llc(text + groups, cpu, mir=False))
    assert len(figures) == count
    for (size, request), said in zip(rows, figures, strict=True):
        vgprs, agprs, lds = said["NumVgprs"], said.get("NumAgprs", 0), said["LDSByteSize"]
        if gpu.unified_vgpr:
            assert vector_registers(gpu, vgprs, agprs) == said["TotalNumVgprs"]
        most = effective_waves(gpu, request, lds, size)[1]
        assert waves(gpu, vgprs, agprs, said["TotalNumSgprs"], lds, size, most) == said["Occupancy"], said
