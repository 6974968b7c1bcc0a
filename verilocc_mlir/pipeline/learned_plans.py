"""The plans that ``Effort.LEARNED`` tries. They are chosen in ``verilocc_model``, which nothing here may import: it is
loaded by name when it is needed.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from verilocc_mlir.errors import UnsupportedError
from verilocc_mlir.pipeline.plans import BY_NAME, Plan
from verilocc_mlir.target.targets import Target

if TYPE_CHECKING:
    from verilocc_mlir.cost.model import KernelCost


def learned_plans(
    assembly: bytes, costs: Mapping[str, KernelCost], target: Target, count: int, path: str
) -> tuple[Plan, ...]:
    """At most ``count`` plans beside the default one, by what they brought on the labelled kernels most like this one.

    Args:
        assembly: of LLVM's default compile.
        costs: of its functions.

    Raises:
        UnsupportedError: the package is not installed.
        InputError: the assembly or the labelled kernels cannot be read.
    """
    names = chooser().choose(assembly.decode(), costs, target, count, path)
    return tuple(BY_NAME[name] for name in names if name in BY_NAME)


def chooser() -> Any:
    """The module that chooses.

    Raises:
        UnsupportedError: the package is not installed.
    """
    try:
        return importlib.import_module("verilocc_model.plans.chooser")
    except ModuleNotFoundError as error:
        raise UnsupportedError(
            f"-O=learned needs the package of the model, and {error.name} is not installed",
            hint="pip install verilocc-mlir, or choose another effort",
        ) from error
