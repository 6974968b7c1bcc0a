"""Register classes read from their names, against LLVM's own class tables."""

from __future__ import annotations

import pytest
from support import long
from target_oracles import register_tables

from verilocc_mlir.errors import UnsupportedError
from verilocc_mlir.target.classes import contains, member_names, members, register_class
from verilocc_mlir.target.registers import Bank, physical_register


@pytest.mark.parametrize("every", [32, *long(1)])
def test_members_of_every_class_are_llvms(every: int) -> None:
    """All classes of LLVM, of the derived ones every 32nd or all: width and members equal, register by register."""
    classes = register_tables().classes
    assert len(classes) > 800
    derived = [name for name in classes if "_with_" in name or "_and_" in name]
    left_out = set(derived) - set(derived[::every])
    for name, row in classes.items():
        if name in left_out:
            continue
        cls = register_class(name)
        assert cls.bits == row.bits, name
        assert member_names(cls) == row.members, name


@pytest.mark.long
def test_contains_agrees_with_the_member_list() -> None:
    """Membership by rule equals the enumerated members, over every register of LLVM and the classes MIR names."""
    tables = register_tables()
    registers = [physical_register(name) for name in tables.units if name.count("gpr") < 9]
    for name in ("vgpr_16_lo128", "sreg_32_xm0_xexec", "sreg_64_xexec_xnull", "av_64_align2", "sgpr_96", "vs_16"):
        cls = register_class(name)
        row = tables.classes[name]
        assert {r.name for r in registers if contains(cls, r)} == set(row.members), name


def test_members_by_bank() -> None:
    assert members(register_class("av_64_align2"), Bank.AGPR) == range(0, 255, 2)
    assert members(register_class("vreg_128"), Bank.VGPR) == range(0, 1021)
    assert members(register_class("sgpr_96"), Bank.SGPR) == range(0, 104, 4)
    assert members(register_class("sgpr_1024"), Bank.SGPR)[-1] == 72
    assert members(register_class("vgpr_16_lo128"), Bank.VGPR) == range(0, 128)
    assert len(members(register_class("vreg_64"), Bank.AGPR)) == 0
    assert members(register_class("sgpr_128_with_sub2_sub3_in_ccr_sgpr_64"), Bank.SGPR) == tuple(range(0, 28, 4))


@pytest.mark.parametrize(
    ("cls", "inside", "outside"),
    [
        ("vreg_64_align2", "vgpr2_vgpr3", "vgpr3_vgpr4"),
        ("sreg_32_xm0", "exec_lo", "m0"),
        ("sreg_32_xm0_xexec", "vcc_lo", "exec_hi"),
        ("sreg_32_xexec_hi_and_sreg_32_xm0", "exec_lo", "exec_hi"),
        ("sreg_64_xexec_xnull", "vcc", "sgpr_null64"),
        ("sreg_64", "sgpr_null64", "sgpr1_sgpr2"),
        ("vgpr_32_lo128", "vgpr127", "vgpr128"),
        ("vgpr_16_lo128", "vgpr127_hi16", "vgpr128_lo16"),
        ("sgpr_lo16", "sgpr5_lo16", "sgpr5_hi16"),
        ("sgpr_128", "sgpr4_sgpr5_sgpr6_sgpr7", "sgpr2_sgpr3_sgpr4_sgpr5"),
        ("agpr_32", "agpr0", "vgpr0"),
        ("vgpr_32", "vgpr0", "vgpr0_vgpr1"),
    ],
)
def test_membership(cls: str, inside: str, outside: str) -> None:
    assert contains(register_class(cls), physical_register(inside))
    assert not contains(register_class(cls), physical_register(outside))


@pytest.mark.parametrize(
    "name", ["vgpr_33", "vreg", "vreg_64_align3", "foo_32", "av_64_with_", "sgpr_64_in_x", "vreg_64_and_"]
)
def test_unknown_classes_are_refused(name: str) -> None:
    with pytest.raises(UnsupportedError):
        register_class(name)


def test_phases() -> None:
    assert register_class("sreg_64").is_scalar
    assert register_class("av_32").is_vector
    assert register_class("vgpr_16").lanes == 1
    assert register_class("vreg_96").width == 3
