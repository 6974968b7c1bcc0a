"""What is kept of a function must not stand worse than LLVM's default compile of it, nor a front end's kernel be
replaced by a worse one.

Spills count by themselves: no modelled cycles make up for more of them. Else the comparison of both costs decides
(``cost/compare.py``): modelled cycles where they are further apart than the model's error bar, waves and instructions
below it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import TypeVar

from verilocc_mlir.cost.compare import Ground, judge, more, spill_traffic
from verilocc_mlir.cost.model import KernelCost
from verilocc_mlir.toolchain.verifier import defined_functions, without_functions


def cycles_beside(ours: KernelCost, theirs: KernelCost) -> str:
    """The modelled cycles of ours over theirs, in words."""
    return f"{ours.cycles / theirs.cycles:.4f} of its modelled cycles" if theirs.cycles else "more modelled cycles"


def shortfalls(ours: KernelCost, theirs: KernelCost) -> list[str]:
    """In what ours stands worse than theirs, in words; nothing where it does not.

    Args:
        theirs: of code whose loops run equally often (``cost/together.py``).
    """
    result: list[str] = []
    spills = spill_traffic(ours), spill_traffic(theirs)
    if more(*spills):
        result.append(f"stores and reloads {spills[0]:,.0f} registers for {spills[1]:,.0f}, by estimated executions")
    judged = judge(ours, theirs)
    if judged.order <= 0:
        return result
    cycles = cycles_beside(ours, theirs)
    if judged.by_cycles:
        waves = f", with {ours.occupancy} waves for {theirs.occupancy}" if ours.occupancy < theirs.occupancy else ""
        result.append(f"takes {cycles}, more than the error bar of {judged.bar:.0%}{waves}")
    elif judged.ground is Ground.WAVES:
        result.append(f"has {ours.occupancy} waves for {theirs.occupancy}; modelled cycles do not decide ({cycles})")
    elif judged.ground is Ground.INSTRUCTIONS:
        executed = f"{ours.issued:,.0f} instructions for {theirs.issued:,.0f}"
        result.append(f"executes {executed}, and takes {cycles}")
    return result


# Functions that nobody proves cost themselves, not the file: the rest of the module is compiled without them.
#
# They are marked ``available_externally`` in the input, so that LLVM makes nothing of them (``toolchain/verifier.py``).
# A function that mentions one of them could not be linked without it, so it is left out too.


_BODY = re.compile(r"^ *define\b[^@\n]*@(?P<name>\"[^\"]+\"|[\w.$-]+)\(.*?^ *\}", re.MULTILINE | re.DOTALL)
_MENTIONED = re.compile(r"@(\"[^\"]+\"|[\w.$-]+)")
_MACHINE = re.compile(r"^---\nname: +(?P<name>\S.*?) *\n.*?^\.\.\.\n?", re.MULTILINE | re.DOTALL)


def with_callers(ir: str, names: Collection[str]) -> frozenset[str]:
    """The functions called ``names``, and those whose code mentions one of them, directly or through others."""
    mentioned = {
        match["name"].strip('"'): {name.strip('"') for name in _MENTIONED.findall(match[0])}
        for match in _BODY.finditer(ir)
    }
    found = set(names)
    while more := {name for name, others in mentioned.items() if name not in found and others & found}:
        found |= more
    return frozenset(found)


def rest_without(text: str, names: Collection[str]) -> str:
    """IR or machine IR of which LLVM makes nothing of the functions called ``names``."""
    kept = without_functions(text, names)
    return _MACHINE.sub(lambda match: "" if match["name"].strip("'\"") in names else match[0], kept)


def anything_left(text: str, names: Collection[str]) -> bool:
    """Whether the module defines a function that is not among ``names``."""
    return not set(defined_functions(text)) <= set(names)


_Why = TypeVar("_Why")


def left_out_with(unproved: Mapping[str, _Why], left_out: Collection[str], text: str) -> dict[str, _Why | str]:
    """What must be left out too where some functions are not proved, with why; nothing where then none would be left.

    Args:
        unproved: why, by name.
        left_out: functions that are left out already.
        text: the whole module.
    """
    more = sorted(with_callers(text, unproved) - set(left_out))
    if not anything_left(text, {*left_out, *more}):
        return {}
    needs = f"it needs {', '.join(sorted(unproved))}"
    return {name: unproved.get(name, needs) for name in more}
