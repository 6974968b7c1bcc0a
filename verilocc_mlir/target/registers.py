"""Physical registers and the units they are made of.

A *unit* is a 16-bit half of a 32-bit register, the finest grain at which AMDGPU registers alias
(llvm/lib/Target/AMDGPU/SIRegisterInfo.td: ``lo16``/``hi16``). Units are numbered the same way for every target:

====================  ==========================================
``VGPR_BASE``         unit of half *h* of VGPR *n* is ``VGPR_BASE + 2*n + h``
``AGPR_BASE``         likewise for AGPRs
``SGPR_BASE``         likewise for SGPRs (s0-s105) and trap registers
``SPECIAL_BASE``      VCC, EXEC, M0, SCC, MODE, …: see ``SPECIAL_REGISTERS``
====================  ==========================================

``$sgpr_null`` and ``$noreg`` have no units: writing them changes nothing, reading them gives a constant.
"""

from __future__ import annotations

import re
from enum import Enum
from functools import lru_cache

from msgspec import Struct

from verilocc_mlir.errors import UnsupportedError

# Subregister indices as sets of 16-bit lanes.
#
# A *lane* is bit *k* of an integer mask and stands for bits ``16*k .. 16*k+15`` of a register tuple. LLVM's own lane
# masks, as it prints them in block live-ins, have the two halves of each 32-bit register the other way round (``hi16``
# = 1, ``lo16`` = 2; TableGen numbers them by name): ``llvm_lane_mask`` converts, both ways.


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


VGPR_BASE = 0
AGPR_BASE = 4096
SGPR_BASE = 8192
TTMP_BASE = 10240
SPECIAL_BASE = 12288

NULL_REGISTERS = frozenset({
    "noreg", "sgpr_null", "sgpr_null_hi", "sgpr_null64", "sgpr_null128", "sgpr_null256",
    "sgpr_null_lo16", "sgpr_null_hi16", "sgpr_null_hi_lo16", "sgpr_null_hi_hi16",
})  # fmt: skip
"""Registers without storage."""

SPECIAL_REGISTERS: tuple[tuple[str, int], ...] = (
    ("vcc_lo", 2), ("vcc_hi", 2), ("exec_lo", 2), ("exec_hi", 2), ("m0", 2), ("scc", 1), ("mode", 1),
    ("flat_scr_lo", 2), ("flat_scr_hi", 2), ("xnack_mask_lo", 2), ("xnack_mask_hi", 2),
    ("tba_lo", 2), ("tba_hi", 2), ("tma_lo", 2), ("tma_hi", 2), ("lds_direct", 1),
    ("tensorcnt", 1), ("asynccnt", 1), ("src_vccz", 2), ("src_execz", 2), ("src_scc", 2),
    ("src_pops_exiting_wave_id", 2), ("fp_reg", 1), ("sp_reg", 1), ("pc_reg", 1), ("private_rsrc_reg", 1),
    ("src_shared_base_lo", 2), ("src_shared_limit_lo", 2), ("src_private_base_lo", 2), ("src_private_limit_lo", 2),
    ("src_flat_scratch_base_lo", 2), ("src_flat_scratch_base_hi", 2),
)  # fmt: skip
"""Name and size in units of every register outside the numbered files (SIRegisterInfo.td)."""

_PARTS = {
    "vcc": ("vcc_lo", "vcc_hi"), "exec": ("exec_lo", "exec_hi"), "flat_scr": ("flat_scr_lo", "flat_scr_hi"),
    "xnack_mask": ("xnack_mask_lo", "xnack_mask_hi"), "tba": ("tba_lo", "tba_hi"), "tma": ("tma_lo", "tma_hi"),
    "src_flat_scratch_base": ("src_flat_scratch_base_lo", "src_flat_scratch_base_hi"),
    # LLVM gives the upper half of an aperture register no storage of its own.
    "src_shared_base": ("src_shared_base_lo",), "src_shared_limit": ("src_shared_limit_lo",),
    "src_private_base": ("src_private_base_lo",), "src_private_limit": ("src_private_limit_lo",),
}  # fmt: skip


class Bank(Enum):
    """A register file. ``SPECIAL`` holds everything that is not numbered."""

    VGPR = "vgpr"
    AGPR = "agpr"
    SGPR = "sgpr"
    TTMP = "ttmp"
    SPECIAL = "special"

    __hash__ = object.__hash__
    """Enum's own hashes the name anew each time, in Python."""


BANK_BASE = {Bank.VGPR: VGPR_BASE, Bank.AGPR: AGPR_BASE, Bank.SGPR: SGPR_BASE, Bank.TTMP: TTMP_BASE}
_BANK_END = {Bank.VGPR: AGPR_BASE, Bank.AGPR: SGPR_BASE, Bank.SGPR: TTMP_BASE, Bank.TTMP: SPECIAL_BASE}

_special_units: dict[str, tuple[int, ...]] = {}
_next_unit = SPECIAL_BASE
for _name, _count in SPECIAL_REGISTERS:
    _special_units[_name] = tuple(range(_next_unit, _next_unit + _count))
    _next_unit += _count
for _name, _halves in _PARTS.items():
    _special_units[_name] = tuple(_unit for _half in _halves for _unit in _special_units[_half])

# Numbers as LLVM writes them, no other spelling: a name that is taken for a register is printed as it is.
_NUMBERED = re.compile(r"(vgpr|agpr|sgpr|ttmp)(0|[1-9][0-9]{0,3})(?:_(lo16|hi16))?\Z")
_TUPLE_PART = re.compile(r"(vgpr|agpr|sgpr|ttmp)(0|[1-9][0-9]{0,3})\Z")


class PhysicalRegister(Struct, frozen=True):
    """A physical register.

    Attributes:
        name: LLVM's MIR name without ``$``: ``vgpr4_vgpr5``, ``sgpr3``, ``vcc``, ``vgpr2_hi16``.
        first: number of its first 32-bit register in a numbered file, else -1.
        units: its 16-bit units, lowest first; empty for ``NULL_REGISTERS``.
    """

    name: str
    bank: Bank
    first: int
    units: tuple[int, ...]

    def __hash__(self) -> int:
        return hash(self.name)


@lru_cache(maxsize=None)
def physical_register(name: str) -> PhysicalRegister:
    """Look up a register by its MIR name without ``$``.

    Raises:
        UnsupportedError: the name is not a register this project knows.
    """
    if name in NULL_REGISTERS:
        return PhysicalRegister(name, Bank.SPECIAL, -1, ())
    if name in _special_units:
        return PhysicalRegister(name, Bank.SPECIAL, -1, _special_units[name])
    match = _NUMBERED.match(name)
    if match is not None and _has(bank := Bank(match[1]), number := int(match[2])):
        base = BANK_BASE[bank] + 2 * number
        halves = {None: (0, 1), "lo16": (0,), "hi16": (1,)}[match[3]]
        return PhysicalRegister(name, bank, number, tuple(base + h for h in halves))
    if name.endswith(("_lo16", "_hi16")) and name[:-5] in _special_units:
        whole = _special_units[name[:-5]]
        if len(whole) == 2:
            return PhysicalRegister(name, Bank.SPECIAL, -1, (whole[name.endswith("_hi16")],))
    parts = [_TUPLE_PART.match(p) for p in name.split("_")]
    first = parts[0]
    if first is not None:
        numbers = [int(p[2]) for p in parts if p is not None and p[1] == first[1]]
        bank = Bank(first[1])
        if numbers == list(range(numbers[0], numbers[0] + len(parts))) and _has(bank, numbers[-1]):
            base = BANK_BASE[bank] + 2 * numbers[0]
            return PhysicalRegister(name, bank, numbers[0], tuple(range(base, base + 2 * len(parts))))
    raise UnsupportedError(
        f"unknown physical register ${name}",
        hint="report the file: the register table of verilocc_mlir/target/registers.py lacks this name",
    )


def _has(bank: Bank, number: int) -> bool:
    """Whether there are units for that register; beyond its file's end they would be another file's."""
    return BANK_BASE[bank] + 2 * number < _BANK_END[bank]


def tuple_name(bank: Bank, first: int, width: int) -> str:
    """MIR name without ``$`` of ``width`` consecutive 32-bit registers of ``bank`` from number ``first``."""
    return "_".join(map(f"{bank.value}{{}}".format, range(first, first + width)))


_unit_names: dict[int, str] = {}
for _name, _count in SPECIAL_REGISTERS:
    for _k, _unit in enumerate(_special_units[_name]):
        _unit_names[_unit] = _name if _count == 1 else f"{_name}[{16 * _k}:{16 * _k + 15}]"


def unit_name(unit: int) -> str:
    """A readable name of one unit, ``v12.lo`` or ``vcc_lo[16:31]``, for messages."""
    if unit >= SPECIAL_BASE:
        return _unit_names[unit]
    for base, letter in ((TTMP_BASE, "ttmp"), (SGPR_BASE, "s"), (AGPR_BASE, "a"), (VGPR_BASE, "v")):
        if unit >= base:
            number, half = divmod(unit - base, 2)
            return f"{letter}{number}.{'hi' if half else 'lo'}"
    raise ValueError(f"negative unit {unit}")


def unit_bank(unit: int) -> Bank:
    if unit >= SPECIAL_BASE:
        return Bank.SPECIAL
    if unit >= TTMP_BASE:
        return Bank.TTMP
    if unit >= SGPR_BASE:
        return Bank.SGPR
    return Bank.AGPR if unit >= AGPR_BASE else Bank.VGPR


_unit_registers: dict[tuple[int, ...], str] = {}
for _name, _units in _special_units.items():
    _unit_registers.setdefault(_units, _name)  # an aperture's units are those of its _lo, which comes first


def register_of_units(units: tuple[int, ...]) -> str:
    """MIR name without ``$`` of the register made of exactly ``units``, lowest first.

    Raises:
        UnsupportedError: no register has these units.
    """
    name = _unit_registers.get(units)
    if name is not None:
        return name
    if units:
        bank = unit_bank(units[0])
        base = BANK_BASE.get(bank)
        if len(units) == 1 and bank is Bank.SPECIAL:
            for whole, name in _unit_registers.items():
                if len(whole) == 2 and units[0] in whole:
                    return f"{name}_{'hi16' if units[0] == whole[1] else 'lo16'}"
        elif base is not None and units == tuple(range(units[0], units[0] + len(units))):
            number, half = divmod(units[0] - base, 2)
            if len(units) == 1:
                return f"{bank.value}{number}_{'hi16' if half else 'lo16'}"
            if half == 0 and len(units) % 2 == 0:
                return tuple_name(bank, number, len(units) // 2)
    raise UnsupportedError(f"no register is made of the units {', '.join(unit_name(u) for u in units) or '(none)'}")


def compose(phys: PhysicalRegister, sub: str) -> str:
    """Name of the physical register that ``$phys.sub`` stands for, which rewriting must write instead.

    ``compose(physical_register("vgpr4_vgpr5_vgpr6"), "sub1_sub2")`` is ``"vgpr5_vgpr6"``. An empty ``sub`` gives
    the register itself.

    Raises:
        UnsupportedError: the register has no such part.
    """
    if not sub:
        return phys.name
    mask = subregister_lanes(sub)
    first, count = (mask & -mask).bit_length() - 1, mask.bit_count()
    whole = first % 2 == count % 2 == 0 and mask >> first == (1 << count) - 1
    if whole and phys.bank is not Bank.SPECIAL and first + count <= len(phys.units):
        return "_".join(phys.name.split("_")[first // 2 : (first + count) // 2])
    lanes = lane_list(mask)
    if phys.name in ("sgpr_null", "sgpr_null_hi") and lanes in ((0,), (1,)):
        return f"{phys.name}_{'hi16' if lanes[0] else 'lo16'}"
    if phys.name == "sgpr_null64" and lanes in ((0, 1), (2, 3)):
        return "sgpr_null" if lanes[0] == 0 else "sgpr_null_hi"
    if lanes[-1] >= len(phys.units):
        raise UnsupportedError(f"${phys.name} has no part {sub}")
    return register_of_units(tuple(phys.units[k] for k in lanes))
