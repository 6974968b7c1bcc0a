"""Facts of one input, and what a model states for them: the way into this package from ``-O=learned``."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from verilocc_mlir.cost.assembly import parse_assembly
from verilocc_mlir.cost.model import costs
from verilocc_mlir.errors import UnsupportedError
from verilocc_mlir.pipeline.answers import Answer
from verilocc_mlir.pipeline.plans import Plan, Planned
from verilocc_model.plans.facts import facts
from verilocc_model.plans.stater import Stater
from verilocc_model.plans.texts import facts_of_text


def choose(given: Planned, first: Plan, code: bytes, directory: Path) -> tuple[str, list[Answer]]:
    """The model's name and its answers for the dearest function, the likeliest first; none for a function whose
    allocation problem cannot be stated.

    Args:
        first: the plan that is tried first.
        code: assembly of LLVM's default compile.

    Raises:
        InputError: the directory has no model of plans, or one that was trained with other facts.
    """
    stater = _stater(directory, given.target.name)
    functions = parse_assembly(code.decode(), given.target, where=given.path)
    by_name = costs(functions, given.target)
    dearest = max(functions, key=lambda function: by_name[function.name].cycles)
    try:
        known = {**facts(dearest, by_name[dearest.name], given.target), **facts_of_text(given, first, dearest.name)}
    except UnsupportedError:
        return stater.name, []
    return stater.name, stater.ranked(known)


@cache
def _stater(directory: Path, target: str) -> Stater:
    return Stater(directory, target)
