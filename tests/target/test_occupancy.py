"""Occupancy against the figure llc prints, and the facts of the targets against llc's objects."""

from __future__ import annotations

import io
import subprocess

import pytest
from elftools.elf.elffile import ELFFile
from support import llc, run_llc
from target_oracles import TRIPLE, printed, sweep

from verilocc_mlir.errors import InputError
from verilocc_mlir.target.occupancy import (
    extra_sgprs,
    max_vectors,
    min_vectors,
    waves,
    waves_by_vectors,
    waves_by_work_group,
)
from verilocc_mlir.target.processors import PROCESSORS
from verilocc_mlir.target.targets import TARGETS, target, with_features


@pytest.mark.parametrize("cpu", TARGETS)
def test_printed_occupancy(cpu: str) -> None:
    llc()
    sweep(1, cpu, 60)


@pytest.mark.long
@pytest.mark.parametrize("cpu", TARGETS)
def test_more_printed_occupancy(cpu: str) -> None:
    sweep(2, cpu, 1000)


@pytest.mark.parametrize("cpu", TARGETS)
@pytest.mark.parametrize("clobber", ["~{s20}", "~{s20},~{vcc}"])
def test_extra_sgprs(cpu: str, clobber: str) -> None:
    ir = f'{TRIPLE}define amdgpu_kernel void @k() {{\n  call void asm sideeffect "", "{clobber}"()\n  ret void\n}}\n'
    said = printed(run_llc(ir, cpu, mir=False))[0]
    # llc takes FLAT_SCRATCH for used where it cannot rule scratch out: not in a kernel without calls and stack.
    assert said["TotalNumSgprs"] == 21 + extra_sgprs(target(cpu), vcc="vcc" in clobber)


@pytest.mark.parametrize(
    ("cpu", "ladder"),
    [
        ("gfx90a", {64: 8, 72: 7, 80: 6, 96: 5, 128: 4, 168: 3, 256: 2, 257: 1, 512: 1}),
        ("gfx1100", {96: 16, 120: 12, 144: 10, 168: 9, 192: 8, 216: 7, 240: 6, 256: 5}),
        ("gfx1250", {64: 16, 80: 12, 96: 10, 128: 8, 256: 4, 257: 3, 512: 2, 1024: 1}),
    ],
)
def test_ladders(cpu: str, ladder: dict[int, int]) -> None:
    gpu = target(cpu)
    for count, expected in ladder.items():
        assert waves_by_vectors(gpu, count) == expected


@pytest.mark.parametrize("cpu", TARGETS)
def test_budget_and_waves_agree(cpu: str) -> None:
    """The most registers for n waves leave room for n waves; one granule more does not, below what is addressable."""
    gpu = target(cpu)
    for count in range(1, gpu.max_waves + 1):
        most = max_vectors(gpu, count)
        assert waves_by_vectors(gpu, most) >= count
        if most < gpu.addressable_vectors:
            assert waves_by_vectors(gpu, most + 1) < count
        fewest = min_vectors(gpu, count)
        assert fewest <= most or count < waves_by_vectors(gpu, gpu.addressable_vectors)


def test_lds_and_work_group_limits() -> None:
    gpu = target("gfx942")
    assert waves_by_work_group(gpu, 0, (256, 256))[1] == 8
    assert waves_by_work_group(gpu, 32768, (256, 256))[1] == 2
    assert waves_by_work_group(gpu, 100_000, (256, 256)) == (1, 1)
    assert waves(gpu, 16, 0, 16, 32768, (256, 256)) == 2
    cu_mode = with_features(target("gfx1100"), {"+cumode"})
    assert waves_by_work_group(cu_mode, 32768, (64, 64))[1] == 2
    assert waves_by_work_group(target("gfx1100"), 32768, (64, 64))[1] == 2


@pytest.mark.parametrize("cpu", TARGETS)
def test_elf_machine(cpu: str) -> None:
    ir = f"{TRIPLE}define amdgpu_kernel void @k() {{\n  ret void\n}}\n"
    command = [llc(), f"-mcpu={cpu}", "-filetype=obj", "-o", "-", "-"]
    done = subprocess.run(command, input=ir.encode(), capture_output=True, check=True)
    assert ELFFile(io.BytesIO(done.stdout))["e_flags"] & 0xFF == PROCESSORS[cpu].elf_mach


def test_unknown_target_lists_the_known() -> None:
    with pytest.raises(InputError, match="gfx999") as error:
        target("gfx999")
    assert "gfx90a" in str(error.value)
    with pytest.raises(InputError, match="none given"):
        target("")
