"""The class and alignment rules together say what ``contains`` says, register by register."""

from __future__ import annotations

import pytest
from builders import live_of, problem_of

from smt_verifier.prove.occupancy import class_places, unit_mask
from verilocc_mlir.target.classes import contains, register_class
from verilocc_mlir.target.registers import SPECIAL_BASE, Bank, physical_register, tuple_name

CLASSES = (
    "vgpr_32", "vgpr_16", "vgpr_16_lo128", "vgpr_32_lo128", "vgpr_32_lo256", "vreg_64", "vreg_96", "vreg_256",
    "vreg_64_align2", "vreg_96_align2", "vreg_1024_align2", "areg_128_align2", "agpr_32", "av_32", "av_64_align2",
    "av_128", "sgpr_32", "sgpr_64", "sgpr_96", "sgpr_256", "sreg_32", "sreg_32_xm0", "sreg_32_xm0_xexec", "sreg_64",
    "sreg_64_xexec", "sreg_64_xexec_xnull", "ccr_sgpr_64", "gfx_ccr_sgpr_64",
)  # fmt: skip


def registers(lanes: int) -> list[str]:
    """Names of all registers with so many 16-bit units, in the banks that budgets cover, and the special ones."""
    sizes = {Bank.VGPR: 1024, Bank.AGPR: 256, Bank.SGPR: 106}
    if lanes == 1:
        return [f"{bank.value}{n}_{half}" for bank in sizes for n in range(sizes[bank]) for half in ("lo16", "hi16")]
    width = lanes // 2
    names = [tuple_name(bank, n, width) for bank in sizes for n in range(sizes[bank] - width + 1)]
    names += ["vcc", "exec", "flat_scr"] if width == 2 else []
    return names + (["vcc_lo", "vcc_hi", "exec_lo", "exec_hi", "m0"] if width == 1 else [])


@pytest.mark.parametrize("name", CLASSES)
def test_members_are_those_of_the_class(name: str) -> None:
    live_range = problem_of(live_of(name)).ranges[0]
    cls = register_class(name)
    intervals = class_places(name, live_range.banks, live_range.limit).intervals
    for register in map(physical_register, registers(cls.lanes)):
        first, end = register.units[0], register.units[-1] + 1
        aligned = first >= SPECIAL_BASE or first & unit_mask(live_range) == 0
        ours = aligned and any(low <= first and end <= high for low, high in intervals)
        assert ours == contains(cls, register), register.name
