"""What caps the registers of a kernel, and what raises the cap, tried by compiling the kernel so."""

from __future__ import annotations

import pytest
from support import TEST_DATA

from verilocc_mlir.pipeline.settings import Settings
from verilocc_mlir.pipeline.why import why
from verilocc_mlir.results.why import Cap, Cure, WhyFunction

KERNEL = (TEST_DATA / "inputs" / "cap_from_work_group_size.ll").read_text()


def of(attributes: str, cpu: str = "gfx942") -> WhyFunction:
    text = KERNEL.replace("(ptr addrspace(1) %p) {", f"(ptr addrspace(1) %p) {attributes} {{")
    (function,) = why(text.encode(), "k.ll", Settings(cpu, allocator="llvm", verify=False)).functions
    return function


def test_the_size_of_work_groups_that_nobody_bounds() -> None:
    function = of("")
    size = '"amdgpu-flat-work-group-size"="1,512"'
    cure = Cure("with work-groups of at most 512 threads", size, 0, 3)
    because = "work-groups may have 1,024 threads, as no attribute bounds them"
    assert function.cap == Cap(64, 64, "amdgpu-flat-work-group-size", because, cure)
    # It is as was said.
    healed = of(size)
    assert healed.resources is not None
    assert (healed.resources.vgpr_spills, healed.resources.waves) == (0, 3)
    # What must be spilled counts for the waves; AGPRs hold what may be in either file.
    vectors = next(file for file in function.files if file.file == "VGPR")
    assert (function.waves, vectors.most, vectors.available, vectors.beside) == (3, 161, 64, 64)


@pytest.mark.parametrize(
    ("attributes", "because", "cure"),
    [
        (
            '"amdgpu-flat-work-group-size"="1,256" "amdgpu-waves-per-eu"="4"',
            '"amdgpu-waves-per-eu"="4" asks for so many waves',
            Cure("with 3 waves asked for", '"amdgpu-waves-per-eu"="3"', 0, 3),
        ),
        (
            '"amdgpu-flat-work-group-size"="1,256" "amdgpu-num-vgpr"="40"',
            '"amdgpu-num-vgpr"="40" says so',
            Cure('without "amdgpu-num-vgpr"', 'no "amdgpu-num-vgpr"', 0, 3),
        ),
    ],
)
def test_an_attribute_that_asks_for_few_registers(attributes: str, because: str, cure: Cure) -> None:
    cap = of(attributes).cap
    assert cap is not None
    assert (cap.because, cap.cure) == (because, cure)


def test_where_nothing_is_spilled_no_cure_is_looked_for_and_the_hardware_alone_is_no_cap() -> None:
    spared = of("", "gfx1100")
    assert spared.cap is not None
    assert spared.cap.cure is None
    assert of('"amdgpu-flat-work-group-size"="1,64"').cap is None
