"""Ours beside what the user had: the code object that the front end's own compiler made.

Both are read in the same way and costed by the same model (``verilocc_mlir.cost``): from their machine code where
there is an llvm-objdump, else from their assembly.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import Enum
from typing import Any

from verilocc_mlir.cost.model import KernelCost
from verilocc_mlir.cost.read import ReadOptions, cost_of_file
from verilocc_mlir.errors import VeriloccError
from verilocc_mlir.pipeline.guard import spill_traffic
from verilocc_mlir.pipeline.settings import Settings
from verilocc_mlir.toolchain.choose import choose_tools
from verilocc_mlir.toolchain.metadata import read_code_object


class Replace(Enum):
    """Which of the front end's kernels are replaced by ours, of those that are proved.

    ``BETTER``: where ours is not modelled dearer, does not spill more and has no fewer waves. ``NEVER`` only looks.
    """

    ALWAYS = "always"
    BETTER = "better"
    MEASURED = "measured"
    """Where it was not measured slower (``hooks/measured.py``); as ``BETTER`` where nothing was measured."""
    NEVER = "never"


DEFAULT_REPLACE = Replace.BETTER


@dataclass(frozen=True)
class Standing:
    """What one kernel takes.

    Attributes:
        vgprs, sgprs: registers of a wave, accumulators included where they share the file.
        scratch_bytes: private memory of a work-item.
        waves: per SIMD.
        spills: 32-bit registers stored to and reloaded from memory or lanes, by estimated executions.
        cycles: of a wave, by the model.
    """

    vgprs: int
    sgprs: int
    scratch_bytes: int
    waves: int
    spills: float
    cycles: float

    def to_data(self) -> dict[str, Any]:
        return {**asdict(self), "spills": round(self.spills, 2), "cycles": round(self.cycles, 1)}


@dataclass(frozen=True)
class Code:
    """What a compiler made of a kernel; ``assembly`` is ``""`` where there is none."""

    code_object: bytes
    assembly: str = ""


@dataclass(frozen=True)
class Comparison:
    """Ours beside theirs, kernel by kernel; ``reason`` says why there is nothing to compare, ``""`` where there is."""

    ours: Mapping[str, Standing]
    theirs: Mapping[str, Standing]
    reason: str = ""

    @property
    def worse(self) -> str:
        """In what ours stands worse than theirs, in a line; ``""`` where it does not. What cannot be compared does."""
        if self.reason:
            return self.reason
        return "; ".join(filter(None, (_worse(name, self.ours[name], self.theirs[name]) for name in self._shared)))

    @property
    def _shared(self) -> list[str]:
        return sorted(self.ours.keys() & self.theirs.keys())

    def to_data(self) -> dict[str, Any]:
        return {
            "theirs": {name: standing.to_data() for name, standing in self.theirs.items()},
            "ours": {name: standing.to_data() for name, standing in self.ours.items()},
            "reason": self.reason or None,
        }


def compare_code(ours: Code | None, theirs: Code, cpu: str, settings: Settings) -> Comparison:
    """Both by the model; what cannot be read has no standing.

    Args:
        ours: None where there is none; then theirs stands alone.
        cpu: the processor that both are for.
        settings: where LLVM is, and how long it may take.
    """
    try:
        theirs_standing = _standings(theirs, cpu, settings)
        return Comparison({} if ours is None else _standings(ours, cpu, settings), theirs_standing)
    except VeriloccError as error:
        return Comparison({}, {}, f"not modelled: {error.what}")


def _standings(code: Code, cpu: str, settings: Settings) -> dict[str, Standing]:
    options = ReadOptions(cpu=cpu, llvm=settings.llvm, toolchain=settings.toolchain, timeout=settings.tool_seconds)
    if code.assembly and choose_tools(settings.toolchain, settings.llvm).objdump is None:
        functions = cost_of_file(code.assembly.encode(), "assembly", options).functions
    else:
        functions = cost_of_file(code.code_object, "code object", options).functions
    kernels = read_code_object(code.code_object).kernels
    return {name: _standing(functions[name]) for name in kernels if name in functions}


def _standing(cost: KernelCost) -> Standing:
    return Standing(
        vgprs=cost.vectors,
        sgprs=cost.sgprs,
        scratch_bytes=cost.scratch_bytes,
        waves=cost.occupancy,
        spills=spill_traffic(cost),
        cycles=cost.cycles,
    )


def _worse(name: str, ours: Standing, theirs: Standing) -> str:
    if ours.waves < theirs.waves:
        return f"{name} has {ours.waves} waves for {theirs.waves}"
    if ours.spills > theirs.spills:
        return f"{name} spills more: {ours.spills:,.0f} registers stored and reloaded for {theirs.spills:,.0f}"
    if ours.cycles > theirs.cycles:
        return f"{name} is modelled at {ours.cycles:,.0f} cycles for {theirs.cycles:,.0f}"
    return ""
