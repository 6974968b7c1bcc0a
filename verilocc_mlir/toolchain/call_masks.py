"""Trap: a register mask that is written out says one thing of each register that LLVM has, tuples and halves too.

Where a mask names ``$vgpr4`` and ``$vgpr5`` alone, LLVM takes ``$vgpr4_vgpr5`` for overwritten, so that its allocator
spills a pair, and the 16-bit halves too, of which its scavenger asks. So llc gets masks with the halves of every
register that is named, and the usual tuples of vector and scalar registers. (It takes other tuples for overwritten,
which only costs its own allocator room; all of them are several hundred kilobytes a call.) What it prints is shortened
to the 32-bit registers again, for all who read it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache

_MASK = re.compile(r"CustomRegMask\(([^)]*)\)")
_PART = re.compile(r"(agpr|sgpr|vgpr)([0-9]+)(?:_(?:hi|lo)16)?")
_BANKS = ("agpr", "sgpr", "vgpr")
"""In the order in which LLVM prints registers: each of 32 bits, halves, then tuples by bank, width and number."""
_WIDTHS = {"agpr": (), "sgpr": (2, 4), "vgpr": (2, 3, 4, 8)}
"""Of the tuples that masks name. AGPRs take no part: a call preserves most of them by convention."""


def close_masks(mir: str) -> str:
    """Machine IR whose masks name the halves, and the usual tuples, of the 32-bit registers that they name."""
    return _MASK.sub(lambda match: _closed(match[0]), mir)


def shorten_masks(mir: str) -> str:
    """Machine IR whose masks leave out what ``close_masks`` adds."""
    return _MASK.sub(lambda match: _shortened(match[0]), mir)


@lru_cache(maxsize=64)
def _closed(mask: str) -> str:
    names = _names(mask)
    whole = {bank: {n for n in range(1024) if f"${bank}{n}" in names} for bank in _BANKS}
    implied = dict.fromkeys(name for bank in _BANKS for name in _made_of(bank, whole[bank]))
    return f"CustomRegMask({','.join([*names, *(name for name in implied if name not in names)])})"


@lru_cache(maxsize=64)
def _shortened(mask: str) -> str:
    names = _names(mask)
    kept = [name for name in names if not _is_implied(name, names)]
    return f"CustomRegMask({','.join(kept)})"


def _names(mask: str) -> dict[str, None]:
    return dict.fromkeys(name for name in _MASK.sub(r"\1", mask).split(",") if name)


def _is_implied(name: str, names: dict[str, None]) -> bool:
    """Whether a register is a half or a tuple of registers that are named themselves."""
    parts = _PART.findall(name)
    wholes = [f"${bank}{number}" for bank, number in parts]
    return bool(wholes) and wholes != [name] and all(whole in names for whole in wholes)


def _made_of(bank: str, numbers: set[int]) -> Iterator[str]:
    """Halves and tuples of 32-bit registers; tuples of scalars begin at even numbers, wider ones at multiples of 4."""
    for number in numbers:
        yield f"${bank}{number}_hi16"
        yield f"${bank}{number}_lo16"
    for width in _WIDTHS[bank]:
        for first in numbers:
            if bank == "sgpr" and first % (2 if width == 2 else 4):
                continue
            if numbers.issuperset(range(first, first + width)):
                yield "$" + "_".join(f"{bank}{n}" for n in range(first, first + width))
