"""Facts of one input, and the model that ranks answers by them: the way into this package from ``-O=learned``."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from verilocc_mlir.cost.assembly import parse_assembly
from verilocc_mlir.cost.model import costs
from verilocc_mlir.errors import UnsupportedError
from verilocc_mlir.pipeline.plans import Plan, Planned
from verilocc_model.plans.facts import facts
from verilocc_model.plans.stater import Stater
from verilocc_model.plans.texts import facts_of_text


def facts_of(given: Planned, first: Plan, code: bytes) -> dict[str, float] | None:
    """Facts of the dearest function; None for one whose allocation problem cannot be stated.

    Args:
        first: the plan that is tried first.
        code: assembly of LLVM's default compile.
    """
    functions = parse_assembly(code.decode(), given.target, where=given.path)
    by_name = costs(functions, given.target)
    dearest = max(functions, key=lambda function: by_name[function.name].cycles)
    try:
        return {**facts(dearest, by_name[dearest.name], given.target), **facts_of_text(given, first, dearest.name)}
    except UnsupportedError:
        return None


@cache
def stater(directory: Path, target: str) -> Stater:
    """The model there with the adapter for a target; loaded once.

    Raises:
        InputError: there is none.
    """
    return Stater(directory, target)
