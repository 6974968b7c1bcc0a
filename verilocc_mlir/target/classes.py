"""Register classes, read from their names.

LLVM's AMDGPU class names say everything the allocator needs (SIRegisterInfo.td): the bank (``vgpr``, ``vreg_N``,
``areg_N``, ``av_N``, ``sgpr_N``, ``sreg_N``, ``vs_N``, ``ttmp_N``), the width in bits, ``_align2``, and what is left out
(``_xm0``, ``_xexec``, ``_xnull``, ``_lo128``, ``_lo256``). tests check every name against the class list of the llc at hand.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from verilocc_mlir.errors import UnsupportedError
from verilocc_mlir.target.registers import Bank

_CLASS = re.compile(
    r"(?P<bank>vgpr|vreg|areg|agpr|av|sgpr|sreg|vs|ttmp|vrc|vreg_lds)_(?P<bits>\d+)(?P<rest>(?:_[a-z0-9]+)*)\Z"
)
_BANKS: dict[str, frozenset[Bank]] = {
    "vgpr": frozenset({Bank.VGPR}),
    "vreg": frozenset({Bank.VGPR}),
    "areg": frozenset({Bank.AGPR}),
    "agpr": frozenset({Bank.AGPR}),
    "av": frozenset({Bank.VGPR, Bank.AGPR}),
    "sgpr": frozenset({Bank.SGPR}),
    "sreg": frozenset({Bank.SGPR, Bank.TTMP, Bank.SPECIAL}),
    "ttmp": frozenset({Bank.TTMP}),
    "vs": frozenset({Bank.VGPR, Bank.SGPR, Bank.TTMP, Bank.SPECIAL}),
}
_SUFFIXES = frozenset({"align2", "xm0", "xexec", "xnull", "lo128", "lo256", "hi"})


@dataclass(frozen=True, slots=True)
class RegisterClass:
    """A register class.

    Attributes:
        name: as written in MIR (``vreg_64_align2``).
        banks: files its members come from; ``SPECIAL`` means VCC, M0, EXEC and the like, less the exclusions.
        bits: width: 16, or a multiple of 32.
        align: number of the first 32-bit register is a multiple of this (1, 2 or 4).
        excludes: members left out: any of ``xm0``, ``xexec``, ``xnull``.
        limit: only registers numbered below this are members; 0 for no limit (``_lo128``, ``_lo256``).
    """

    name: str
    banks: frozenset[Bank]
    bits: int
    align: int
    excludes: frozenset[str]
    limit: int

    @property
    def width(self) -> int:
        """Registers of 32 bits that a member covers; 1 for 16-bit classes."""
        return max(1, self.bits // 32)

    @property
    def lanes(self) -> int:
        """16-bit lanes of a member."""
        return self.bits // 16

    @property
    def is_scalar(self) -> bool:
        """Allocated in the SGPR phase."""
        return Bank.SGPR in self.banks or Bank.TTMP in self.banks

    @property
    def is_vector(self) -> bool:
        """Allocated in the WWM or VGPR phase."""
        return not self.is_scalar


@lru_cache(maxsize=None)
def register_class(name: str) -> RegisterClass:
    """The class called ``name``.

    Raises:
        UnsupportedError: the name does not follow LLVM's scheme for AMDGPU.
    """
    match = _CLASS.match(name)
    suffixes = [s for s in match["rest"].split("_") if s] if match else []
    if match is None or match["bank"] not in _BANKS or not _SUFFIXES.issuperset(suffixes):
        raise UnsupportedError(
            f"unknown register class {name}",
            hint="report the file: verilocc_mlir/target/classes.py does not know this class",
        )
    bits = int(match["bits"])
    banks = _BANKS[match["bank"]]
    limit = 128 if "lo128" in suffixes else 256 if "lo256" in suffixes else 0
    if Bank.SGPR in banks and Bank.VGPR not in banks:
        # SGPR tuples: pairs are even, wider ones start at a multiple of four (SIRegisterInfo.td, SGPR_64, SGPR_128 …).
        # SGPR_96 is aligned to 4 as well.
        align = 1 if bits <= 32 else 2 if bits == 64 else 4
    else:
        align = 2 if "align2" in suffixes else 1
    excludes = frozenset(s for s in suffixes if s in ("xm0", "xexec", "xnull"))
    return RegisterClass(name, banks, bits, align, excludes, limit)
