"""Registers, spills and waves of the functions of a finished compilation.

Kernels: from the code object's metadata, which is what the loader goes by. Device functions have none; theirs are the
``.set NAME.num_vgpr, …`` lines that llc writes into assembly (AMDGPUMCResourceInfo.cpp), callees not counted.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from verilocc_mlir.cost.assembly import Function
from verilocc_mlir.cost.instructions import AGPR, SGPR, TTMP
from verilocc_mlir.mir.model import MachineFunction, MirFile
from verilocc_mlir.results.compile import Resources
from verilocc_mlir.target.attributes import function_attributes
from verilocc_mlir.target.occupancy import extra_sgprs, waves
from verilocc_mlir.target.reserved import flat_work_group_size
from verilocc_mlir.target.targets import Target
from verilocc_mlir.toolchain.descriptor import KernelMetadata, read_code_object

_SET = re.compile(
    r'^\s*\.set (?P<quote>"?)(?:\.L)?(?P<name>.+)\.'
    r"(?P<what>num_vgpr|num_agpr|numbered_sgpr|private_seg_size|uses_vcc|uses_flat_scratch)(?P=quote), (?P<value>.+)$",
    re.MULTILINE,
)
_NUMBER = re.compile(r"(?<![\w.])\d+")


def kernel_resources(counts: KernelMetadata, function: MachineFunction, preamble: str, target: Target) -> Resources:
    """Resources of a kernel; ``.vgpr_count`` already has the accumulators in it where the file is unified."""
    size = flat_work_group_size(function_attributes(preamble, function.name), target)
    lds = counts.group_segment_fixed_size
    return Resources(
        counts.sgpr_count,
        counts.vgpr_count,
        counts.agpr_count,
        counts.sgpr_spill_count,
        counts.vgpr_spill_count,
        counts.private_segment_fixed_size,
        waves(target, counts.vgpr_count, 0, counts.sgpr_count, lds, size),
    )


def resources_by_name(elf: bytes, file: MirFile, target: Target) -> dict[str, Resources]:
    """Resources of each kernel of an object that is a function of ``file``, by name."""
    functions = {function.name: function for function in file.functions}
    return {
        name: kernel_resources(counts, functions[name], file.preamble, target)
        for name, counts in read_code_object(elf).kernels.items()
        if name in functions
    }


def device_resources(assembly: str, target: Target) -> dict[str, Resources]:
    """Resources of every function of llc's assembly by name; its own registers, without those of its callees."""
    symbols: dict[str, dict[str, int]] = {}
    for match in _SET.finditer(assembly):
        if number := _NUMBER.search(match["value"]):
            symbols.setdefault(match["name"], {})[match["what"]] = int(number[0])
    return {name: _device(values, target) for name, values in symbols.items() if "num_vgpr" in values}


def _device(values: dict[str, int], target: Target) -> Resources:
    vgprs, agprs = values["num_vgpr"], values.get("num_agpr", 0)
    vcc, flat = bool(values.get("uses_vcc")), bool(values.get("uses_flat_scratch"))
    sgprs = values.get("numbered_sgpr", 0) + extra_sgprs(target, vcc=vcc, flat_scratch=flat)
    total = (vgprs + 3) // 4 * 4 + agprs if target.unified_vgpr and agprs else vgprs
    scratch = values.get("private_seg_size", 0)
    return Resources(sgprs, total, agprs, None, None, scratch, waves(target, vgprs, agprs, sgprs))


# Whether a kernel's metadata declare the registers that its code uses.
#
# The loader gives a wave as many registers as are declared. An access beyond them faults, or reads and writes registers
# of another wave. LLVM counts them itself; assembly that people write, or that tools change, may declare too few.


def undeclared(function: Function, target: Target) -> str:
    """Registers that a kernel uses beyond those declared, in words; ``""`` where there are none, or none are declared.

    Args:
        function: with figures of its metadata; without metadata they are those of the code, and all is declared.
    """
    figures = function.figures
    if not figures.is_kernel:
        return ""
    used = {unit for i in function.instructions for group in (i.defs, i.uses) for unit in group}
    total, agprs = figures.vectors or 0, figures.agprs or 0
    files = [("v", "VGPRs", range(AGPR), total - agprs if target.unified_vgpr else total)]
    if target.unified_vgpr:
        files.append(("a", "AGPRs", range(AGPR, SGPR), agprs))
    if target.major < 10:  # later ones give every wave all SGPRs
        files.append(("s", "SGPRs", range(SGPR, TTMP), figures.sgprs or 0))
    found: list[str] = []
    for letter, name, numbers, declared in files:
        beyond = sorted(unit - numbers.start for unit in used if unit in numbers and unit - numbers.start >= declared)
        if beyond:
            found.append(f"{_listed(letter, beyond)} used, and {declared} {name} declared")
    return "; ".join(found)


def undeclared_in(functions: Iterable[Function], target: Target) -> dict[str, str]:
    """The same of each kernel that has any, by name."""
    return {f.name: words for f in functions if (words := undeclared(f, target))}


def _listed(letter: str, numbers: list[int]) -> str:
    if len(numbers) == 1:
        return f"{letter}{numbers[0]} is"
    if numbers == list(range(numbers[0], numbers[-1] + 1)):
        return f"{letter}{numbers[0]} to {letter}{numbers[-1]} are"
    return f"{len(numbers)} registers from {letter}{numbers[0]} to {letter}{numbers[-1]} are"
