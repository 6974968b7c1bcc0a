"""Which plans ``-O=learned`` tries; ``verilocc_mlir.pipeline.learned_plans`` asks it by name."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from verilocc_mlir.cost.assembly import parse_assembly
from verilocc_mlir.cost.model import KernelCost
from verilocc_mlir.target.targets import Target
from verilocc_model.plans.facts import facts
from verilocc_model.plans.neighbours import INSTALLED, Neighbours, load


def choose(assembly: str, costs: Mapping[str, KernelCost], target: Target, count: int, where: str) -> list[str]:
    """Names of at most ``count`` plans that are worth a try beside the default one, the best first.

    Args:
        assembly: LLVM's default compile.
        costs: of its functions. Plans are chosen for the dearest.

    Raises:
        InputError: the assembly cannot be read, or the labelled kernels of the package cannot.
    """
    functions = [function for function in parse_assembly(assembly, target, where=where) if function.name in costs]
    dearest = max(functions, key=lambda function: costs[function.name].cycles, default=None)
    if dearest is None:
        return []
    return _neighbours().best(facts(dearest, costs[dearest.name], target), target.name, count)


def version() -> str:
    """What decides an answer: the digest of the labelled kernels."""
    import hashlib

    return f"plans {hashlib.sha256(INSTALLED.read_bytes()).hexdigest()[:16]}"


@cache
def _neighbours() -> Neighbours:
    return load()
