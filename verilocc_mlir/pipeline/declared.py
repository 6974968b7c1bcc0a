"""Whether a kernel's metadata declare the registers that its code uses.

The loader gives a wave as many registers as are declared. An access beyond them faults, or reads and writes registers
of another wave. LLVM counts them itself; assembly that people write, or that tools change, may declare too few.
"""

from __future__ import annotations

from collections.abc import Iterable

from verilocc_mlir.cost.assembly import Function
from verilocc_mlir.cost.instructions import AGPR, SGPR, TTMP
from verilocc_mlir.target.targets import Target


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
