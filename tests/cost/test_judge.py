"""Which of two codes is better, and by what."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from verilocc_mlir.cost.compare import ERROR_BARS, Ground, Kind, error_bar, judge, kind_of
from verilocc_mlir.cost.model import Count, KernelCost, cost_of_assembly
from verilocc_mlir.target.targets import target

CODE = 50 * "\tv_add_f32_e32 v3, v1, v2\n"
TEXT = f'\t.amdgcn_target "amdgcn-amd-amdhsa--gfx942"\n\t.type\tk,@function\nk:\n{CODE}\ts_endpgm\n'
ONE = replace(cost_of_assembly(f"{TEXT}.Lfunc_end0:\n\t.size\tk, .Lfunc_end0-k\n", target("gfx942"))["k"], cycles=100.0)
SPILLED = Count(4, 4.0)


def test_kinds_of_differences() -> None:
    assert kind_of(ONE, ONE) is Kind.ORDER
    assert kind_of(ONE, replace(ONE, occupancy=4)) is Kind.WAVES
    assert kind_of(ONE, replace(ONE, occupancy=4, lane_saves=SPILLED)) is Kind.SPILLS
    assert error_bar(ONE, ONE) == ERROR_BARS[Kind.ORDER].value


@pytest.mark.parametrize(
    ("other", "order", "ground"),
    [
        ({}, 0, Ground.NOTHING),
        ({"cycles": 109.0}, 0, Ground.NOTHING),
        ({"cycles": 111.0}, -1, Ground.CYCLES),
        ({"cycles": 85.0}, 1, Ground.CYCLES),
        ({"cycles": 109.0, "issued": 60.0}, -1, Ground.INSTRUCTIONS),
        ({"cycles": 101.0, "issued": 60.0}, 0, Ground.NOTHING),
        ({"cycles": 109.0, "issued": 40.0}, 0, Ground.NOTHING),
        ({"cycles": 92.0, "issued": 60.0}, 0, Ground.NOTHING),
        ({"cycles": 90.0, "occupancy": 4}, -1, Ground.WAVES),
        ({"cycles": 80.0, "occupancy": 4}, 1, Ground.CYCLES),
        ({"cycles": 82.0, "spill_reloads": SPILLED}, -1, Ground.SPILLS),
        ({"cycles": 82.0, "spill_reloads": SPILLED, "occupancy": 12}, -1, Ground.SPILLS),
        ({"cycles": 130.0, "spill_reloads": SPILLED}, -1, Ground.CYCLES),
    ],
)
def test_what_decides(other: dict[str, float], order: int, ground: Ground) -> None:
    """Cycles beyond the error bar of the kind; below it spills, waves, and instructions that agree with the cycles."""
    second: KernelCost = replace(ONE, **other)  # pyright: ignore[reportArgumentType]
    judged = judge(ONE, second)
    assert (judged.order, judged.ground) == (order, ground)
    turned = judge(second, ONE)
    assert (turned.order, turned.ground) == (-order, ground)
    assert judged.by_cycles == (ground is Ground.CYCLES)
