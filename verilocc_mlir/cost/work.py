"""The work that a kernel does whatever its registers are: matrix operations, stores, atomics, and what it loads.

Two codes of one kernel execute the same of it, but for what a compiler copies into several branches. Where they do not,
their loops were given different counts of iterations, or they are no codes of one kernel, and their cycles do not
compare. Loads are taken less strictly: a compiler may load a value once or twice.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction

from verilocc_mlir.cost.assembly import Function
from verilocc_mlir.cost.counting import Scratch
from verilocc_mlir.cost.instructions import Instruction, Kind
from verilocc_mlir.cost.memory import dwords
from verilocc_mlir.target.targets import Target

Amounts = Mapping[str, float]
"""Amounts by what they are of; what is not there is 0."""

LDS_STORED = "bytes stored to LDS"
GLOBAL_STORED = "bytes stored to global memory"
LOADED = "bytes loaded"
_LOADS_DIFFER = 1.5
"""Times as many bytes loaded that two codes of one kernel may differ by (assumed)."""
_BYTE = re.compile(r"_(?:b8|byte)(?:_|$)")
_HALF = re.compile(r"_(?:b16|short)(?:_|$)")
_EQUAL = 0.02
"""Share by which the work of two codes may differ: a compiler copies a store or a matrix operation into two branches,
both of which count (assumed; less than measured times of equal code differ by)."""
_TO_LDS = re.compile(r"_load_(?:async_to_)?lds|\blds\b")


def work_of_blocks(function: Function, target: Target) -> list[Counter[str]]:
    """The work of one execution of each block, by position."""
    private = Scratch(function, target).accesses
    return [_sum(i for i in block.instructions if not private(i)) for block in function.blocks]


def executed(blocks: Sequence[Mapping[str, float]], counts: Sequence[float]) -> dict[str, float]:
    """The work of a wave.

    Args:
        blocks: the work of each block.
        counts: how often it runs.
    """
    total: dict[str, float] = {}
    for work, times in zip(blocks, counts, strict=True):
        for what, amount in work.items():
            total[what] = total.get(what, 0.0) + times * amount
    return {what: amount for what, amount in total.items() if amount}


def differences(first: Amounts, second: Amounts) -> list[str]:
    """What is not the same in both, in words."""
    found: list[str] = []
    for what in sorted(first.keys() | second.keys()):
        less, more = sorted((first.get(what, 0.0), second.get(what, 0.0)))
        if more > less * (_LOADS_DIFFER if what == LOADED else 1 + _EQUAL):
            found.append(f"{what}: {first.get(what, 0.0):,.0f} and {second.get(what, 0.0):,.0f}")
    return found


def ratio(first: Amounts, second: Amounts) -> Fraction | None:
    """How many times the work of ``second`` ``first`` is; None where that is no number.

    Loads count where there is nothing else.
    """
    first, second = ({w: n for w, n in side.items() if w != LOADED} or dict(side) for side in (first, second))
    if not first or first.keys() != second.keys():
        return None
    ratios = {Fraction(first[what]) / Fraction(second[what]) for what in first}
    return ratios.pop() if len(ratios) == 1 else None


def _sum(code: Iterable[Instruction]) -> Counter[str]:
    total: Counter[str] = Counter()
    for instruction in code:
        if (found := _of(instruction)) is not None:
            total[found[0]] += found[1]
    return total


def _of(instruction: Instruction) -> tuple[str, int] | None:
    """What kind of work an instruction is, and how much."""
    base, kind = instruction.base, instruction.kind
    if kind in (Kind.MFMA, Kind.WMMA):
        return base, 1
    if kind not in (Kind.LDS, Kind.VMEM):
        return None
    if "atomic" in base or (kind is Kind.LDS and ("_rtn" in base or _is_lds_atomic(base))):
        return "atomics", 1
    if kind is Kind.LDS:
        if base.startswith(("ds_write", "ds_store")):
            return LDS_STORED, _bytes(base)
        return (LOADED, _bytes(base)) if base.startswith(("ds_read", "ds_load")) else None
    if _TO_LDS.search(instruction.text):
        return "bytes loaded into LDS", _bytes(base)
    if "_store" in base:
        return GLOBAL_STORED, _bytes(base)
    return (LOADED, _bytes(base)) if "_load" in base else None


def _is_lds_atomic(base: str) -> bool:
    return base.startswith(("ds_add", "ds_sub", "ds_min", "ds_max", "ds_and", "ds_or", "ds_xor", "ds_inc", "ds_dec",
                            "ds_cmpst", "ds_cmpstore", "ds_pk_add", "ds_wrxchg", "ds_storexchg"))  # fmt: skip


def _bytes(base: str) -> int:
    """Bytes that a lane moves."""
    return 1 if _BYTE.search(base) else 2 if _HALF.search(base) else 4 * dwords(base)
