"""Registers, their units and subregisters, against LLVM's own tables."""

from __future__ import annotations

import pytest
from target_oracles import register_tables

from verilocc_mlir.errors import UnsupportedError
from verilocc_mlir.target.registers import (
    NULL_REGISTERS,
    Bank,
    compose,
    full_lanes,
    lane_list,
    physical_register,
    register_of_units,
    subregister_lanes,
    tuple_name,
    unit_bank,
    unit_name,
)


def test_units_alias_as_in_llvm() -> None:
    """Our units and LLVM's are the same up to renaming, for every register LLVM has."""
    renaming: dict[int, int] = {}
    for name, theirs in register_tables().units.items():
        ours = physical_register(name).units
        if name in NULL_REGISTERS:
            assert ours == ()
            continue
        assert len(ours) == len(theirs), name
        for their, our in zip(theirs, ours, strict=True):
            assert renaming.setdefault(their, our) == our, name
    assert len(set(renaming.values())) == len(renaming)


def test_every_register_has_its_own_name_by_units() -> None:
    for name, theirs in register_tables().units.items():
        register = physical_register(name)
        if register.units and len(theirs) > 0:
            again = physical_register(register_of_units(register.units))
            assert again.units == register.units, name


@pytest.mark.parametrize(
    ("name", "sub", "part"),
    [
        ("vgpr4_vgpr5_vgpr6_vgpr7", "sub1_sub2", "vgpr5_vgpr6"),
        ("vgpr3", "lo16", "vgpr3_lo16"),
        ("vgpr3_vgpr4", "sub1_hi16", "vgpr4_hi16"),
        ("agpr9", "hi16", "agpr9_hi16"),
        ("vcc", "sub0", "vcc_lo"),
        ("vcc", "sub1", "vcc_hi"),
        ("exec", "sub0", "exec_lo"),
        ("vcc", "sub0_sub1", "vcc"),
        ("vcc_lo", "lo16", "vcc_lo_lo16"),
        ("sgpr8_sgpr9_sgpr10_sgpr11", "sub2_sub3", "sgpr10_sgpr11"),
        ("src_shared_base", "sub0", "src_shared_base_lo"),
        ("sgpr_null64", "sub0", "sgpr_null"),
        ("sgpr7", "", "sgpr7"),
    ],
)
def test_compose(name: str, sub: str, part: str) -> None:
    assert compose(physical_register(name), sub) == part


@pytest.mark.parametrize(("name", "sub"), [("vgpr3", "sub1"), ("vgpr3_lo16", "hi16"), ("scc", "sub1"), ("vcc", "subx")])
def test_compose_refuses_parts_that_do_not_exist(name: str, sub: str) -> None:
    with pytest.raises(UnsupportedError):
        compose(physical_register(name), sub)


@pytest.mark.parametrize(
    "name",
    [
        "vgpr", "vgpr1_vgpr3", "vgpr1_sgpr2", "vgpr2_vgpr1", "asyncmark", "xgpr1", "", "vgpr1_lo17", "vgpr01",
        "vgpr2048", "vgpr2047_vgpr2048", "ttmp1024", "sgpr\u0661", "vgpr" + "9" * 5000,
    ],
    ids=lambda name: name[:20],
)  # fmt: skip
def test_unknown_registers_are_refused(name: str) -> None:
    with pytest.raises(UnsupportedError):
        physical_register(name)


def test_names_of_units_and_tuples() -> None:
    assert tuple_name(Bank.SGPR, 4, 2) == "sgpr4_sgpr5"
    assert unit_name(physical_register("vgpr12").units[0]) == "v12.lo"
    assert unit_name(physical_register("vcc").units[3]) == "vcc_hi[16:31]"
    assert unit_bank(physical_register("ttmp3").units[0]) is Bank.TTMP
    assert unit_bank(physical_register("agpr255").units[1]) is Bank.AGPR


def test_subregister_indices() -> None:
    assert subregister_lanes("sub0") == 0b11
    assert subregister_lanes("sub2_sub3") == 0b11110000
    assert subregister_lanes("lo16") == 0b01
    assert subregister_lanes("hi16") == 0b10
    assert subregister_lanes("sub3_hi16") == 1 << 7
    assert subregister_lanes("sub1_hi16_sub2_lo16") == (1 << 3) | (1 << 4)
    assert full_lanes(96) == 0b111111
    assert lane_list(0b10110) == (1, 2, 4)
    for bad in ("", "sub", "sub1_", "_sub1", "sub1_lo17", "sub1lo16"):
        with pytest.raises(UnsupportedError):
            subregister_lanes(bad)
