"""Subregister indices as sets of 16-bit lanes.

A *lane* is bit *k* of an integer mask and stands for bits ``16*k .. 16*k+15`` of a register tuple. LLVM's own lane
masks, as it prints them in block live-ins, have the two halves of each 32-bit register the other way round (``hi16``
= 1, ``lo16`` = 2; TableGen numbers them by name): ``llvm_lane_mask`` converts, both ways.
"""

from __future__ import annotations

import re
from functools import lru_cache

from verilocc_mlir.errors import UnsupportedError

_PART = re.compile(r"(?:sub(\d+)(?:_(lo16|hi16)(?![0-9]))?|(lo16|hi16))(?:_|\Z)")


@lru_cache(maxsize=None)
def subregister_lanes(index: str) -> int:
    """Lane mask of a subregister index: ``sub1_sub2``, ``lo16``, ``sub3_hi16``, ``sub0_hi16_sub1_lo16``.

    Raises:
        UnsupportedError: not a subregister index of AMDGPU.
    """
    mask = at = 0
    while at < len(index):
        match = _PART.match(index, at)
        if match is None:
            break
        half = match[2] or match[3]
        mask |= {None: 3, "lo16": 1, "hi16": 2}[half] << (2 * int(match[1] or 0))
        at = match.end()
    if at < len(index) or not mask or index.endswith("_"):
        raise UnsupportedError(f"unknown subregister index {index}")
    return mask


def full_lanes(bits: int) -> int:
    """Lane mask of a whole register of ``bits`` bits (16 or a multiple of 32)."""
    return (1 << (bits // 16)) - 1


def lane_list(mask: int) -> tuple[int, ...]:
    lanes: list[int] = []
    k = 0
    while mask:
        if mask & 1:
            lanes.append(k)
        mask >>= 1
        k += 1
    return tuple(lanes)


def llvm_lane_mask(mask: int) -> int:
    """A lane mask in LLVM's numbering, or one of LLVM's in ours: the halves of each 32-bit register change places."""
    low = mask & (0x5555_5555_5555_5555_5555_5555_5555_5555)
    return low << 1 | (mask ^ low) >> 1
