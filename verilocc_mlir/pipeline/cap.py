"""What caps the vector registers that LLVM lets a function have, and what would raise the cap.

LLVM gives a function as many as leave room for the waves that it may not be without: those that
``amdgpu-waves-per-eu`` asks for, or those of one work-group of the greatest size (AMDGPUSubtarget::getWavesPerEU). An
attribute caps them if the function may have more without it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from verilocc_mlir.mir.model import MachineFunction
from verilocc_mlir.results.why import Cap
from verilocc_mlir.target.attributes import function_attributes
from verilocc_mlir.target.reserved import allocatable, flat_work_group_size
from verilocc_mlir.target.targets import Target
from verilocc_mlir.toolchain.ir_attributes import with_attributes

_NUM, _WAVES, _SIZE = "amdgpu-num-vgpr", "amdgpu-waves-per-eu", "amdgpu-flat-work-group-size"
_SIZES = (512, 256, 128, 64)


@dataclass(frozen=True)
class Change:
    """An attribute that might raise the cap.

    Attributes:
        value: of the attribute; None: it is left out.
        words: "with work-groups of at most 256 threads".
    """

    attribute: str
    value: str | None
    words: str

    def of(self, ir: str) -> str:
        """IR, or the IR in machine IR, with it."""
        if self.value is None:
            return re.sub(rf'"{self.attribute}"="[^"]*" ?', "", ir)
        return with_attributes(ir, ((self.attribute, self.value),))


def cap_of(function: MachineFunction, preamble: str, target: Target) -> Cap | None:
    """The cap, without a cure; None where nothing but the hardware caps the function."""
    now = _vectors(function, preamble, target)
    attributes = function_attributes(preamble, function.name)
    most = flat_work_group_size(attributes, target)[1]
    # Which attributes let the function have more, each by itself; the one that lets it have most comes first.
    freer = {
        name: _vectors(function, change.of(preamble), target)
        for name, change in (
            (_NUM, Change(_NUM, None, "")),
            (_WAVES, Change(_WAVES, None, "")),
            (_SIZE, Change(_SIZE, f"1,{min(_SIZES)}", "")),
        )
    }
    name = max(freer, key=lambda each: sum(freer[each]))
    if sum(freer[name]) <= sum(now):
        return None
    if name == _SIZE:
        said = "" if _SIZE in attributes.strings else ", as no attribute bounds them"
        because = f"work-groups may have {most:,} threads{said}"
    elif name == _WAVES:
        because = f'"{_WAVES}"="{attributes.strings[_WAVES]}" asks for so many waves'
    else:
        because = f'"{_NUM}"="{attributes.strings[_NUM]}" says so'
    return Cap(*now, name, because)


def changes(cap: Cap, function: MachineFunction, preamble: str, target: Target) -> list[Change]:
    """What might raise it, the mildest first."""
    attributes = function_attributes(preamble, function.name)
    if cap.attribute == _SIZE:
        least, most = flat_work_group_size(attributes, target)
        sizes = [size for size in _SIZES if least <= size < most]
        return [Change(_SIZE, f"{least},{size}", f"with work-groups of at most {size} threads") for size in sizes]
    if cap.attribute == _WAVES:
        asked = attributes.integer_pair(_WAVES, only_first_required=True) or (1, None)
        return [Change(_WAVES, f"{n}", f"with {n} waves asked for") for n in range(asked[0] - 1, 0, -1)]
    return [Change(_NUM, None, f'without "{_NUM}"')]


def _vectors(function: MachineFunction, preamble: str, target: Target) -> tuple[int, int]:
    budgets = allocatable(function, preamble, target).budgets
    return budgets["vgpr"].count, budgets["agpr"].count
