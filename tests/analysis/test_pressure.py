"""Peak pressure, and fixed live ranges of physical registers."""

from __future__ import annotations

from builders import machine_function
from pressure_oracle import peak_pressure

from verilocc_mlir.analysis.cfg import control_flow
from verilocc_mlir.analysis.liveness import LaneSegments, physical_liveness
from verilocc_mlir.target.registers import physical_register


def test_peak_and_where() -> None:
    ranges = [(LaneSegments(15, ((2, 20),)),), (LaneSegments(3, ((10, 14),)),), (LaneSegments(3, ((14, 30),)),)]
    peak = peak_pressure(ranges)
    assert (peak.registers, peak.units, peak.slot) == (3, 6, 10)


def test_halves_of_one_register_count_once() -> None:
    peak = peak_pressure([(LaneSegments(1, ((2, 10),)), LaneSegments(2, ((6, 14),)))])
    assert (peak.registers, peak.units, peak.slot) == (1, 2, 2)


def test_halves_of_different_registers_count_each() -> None:
    peak = peak_pressure([(LaneSegments(1, ((2, 10),)),), (LaneSegments(1, ((2, 10),)),)])
    assert (peak.registers, peak.units) == (2, 2)


def test_nothing_live() -> None:
    assert peak_pressure([()]).slot == -1


BODY = """
  bb.0:
    successors: %bb.1(0x80000000)
    liveins: $vgpr0, $sgpr4_sgpr5

    %0:vgpr_32 = COPY $vgpr0
    $vgpr1 = COPY %0
    S_NOP 0, implicit-def dead $vcc

  bb.1:
    dead $sgpr30_sgpr31 = SI_CALL %1, @g, csr_amdgpu, implicit $vgpr1, implicit undef $vgpr2, implicit-def $vgpr0
    %0:vgpr_32 = COPY $vgpr0
    S_ENDPGM 0
"""


def test_physical_ranges() -> None:
    function = machine_function(BODY, registers={1: "sreg_64"})
    found = physical_liveness(function, control_flow(function), lambda _: True)

    def segments(name: str) -> set[tuple[tuple[int, int], ...]]:
        return {found.ranges.get(unit, ()) for unit in physical_register(name).units}

    assert segments("vgpr0") == {((0, 2), (14, 18))}
    assert segments("vgpr1") == {((6, 14),)}
    assert segments("vgpr2") == {()}, "an undef read holds nothing"
    assert segments("vcc") == {((10, 11),)}
    assert segments("sgpr30_sgpr31") == {((14, 15),)}
    assert segments("sgpr4") == {()}, "an argument nobody reads is free"
    assert found.clobbers == ((3, "csr_amdgpu"),)
    assert found.live_in[1] == frozenset(physical_register("vgpr1").units)
