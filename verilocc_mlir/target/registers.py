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
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache

from verilocc_mlir.errors import UnsupportedError

VGPR_BASE = 0
AGPR_BASE = 4096
SGPR_BASE = 8192
TTMP_BASE = 10240
SPECIAL_BASE = 12288

NULL_REGISTERS = frozenset({"noreg", "sgpr_null", "sgpr_null64", "sgpr_null_hi"})
"""Registers without storage."""

SPECIAL_REGISTERS: tuple[tuple[str, int], ...] = (
    ("vcc_lo", 2), ("vcc_hi", 2), ("exec_lo", 2), ("exec_hi", 2), ("m0", 2), ("scc", 1), ("mode", 1),
    ("flat_scr_lo", 2), ("flat_scr_hi", 2), ("xnack_mask_lo", 2), ("xnack_mask_hi", 2),
    ("tba_lo", 2), ("tba_hi", 2), ("tma_lo", 2), ("tma_hi", 2), ("lds_direct", 2), ("asyncmark", 1),
    ("tensorcnt", 1), ("asynccnt", 1), ("src_vccz", 2), ("src_execz", 2), ("src_scc", 2),
    ("src_pops_exiting_wave_id", 2), ("fp_reg", 2), ("sp_reg", 2), ("pc_reg", 4),
    ("private_rsrc_reg", 8), ("src_shared_base_lo", 2), ("src_shared_base_hi", 2),
    ("src_shared_limit_lo", 2), ("src_shared_limit_hi", 2), ("src_private_base_lo", 2),
    ("src_private_base_hi", 2), ("src_private_limit_lo", 2), ("src_private_limit_hi", 2),
    ("src_flat_scratch_base_lo", 2), ("src_flat_scratch_base_hi", 2), ("sgpr_arg_dummy", 2),
)  # fmt: skip
"""Name and size in units of every register outside the numbered files (SIRegisterInfo.td)."""

_PAIRS = {
    "vcc": ("vcc_lo", "vcc_hi"), "exec": ("exec_lo", "exec_hi"), "flat_scr": ("flat_scr_lo", "flat_scr_hi"),
    "xnack_mask": ("xnack_mask_lo", "xnack_mask_hi"), "tba": ("tba_lo", "tba_hi"), "tma": ("tma_lo", "tma_hi"),
    "src_shared_base": ("src_shared_base_lo", "src_shared_base_hi"),
    "src_shared_limit": ("src_shared_limit_lo", "src_shared_limit_hi"),
    "src_private_base": ("src_private_base_lo", "src_private_base_hi"),
    "src_private_limit": ("src_private_limit_lo", "src_private_limit_hi"),
    "src_flat_scratch_base": ("src_flat_scratch_base_lo", "src_flat_scratch_base_hi"),
}  # fmt: skip


class Bank(Enum):
    """A register file. ``SPECIAL`` holds everything that is not numbered."""

    VGPR = "vgpr"
    AGPR = "agpr"
    SGPR = "sgpr"
    TTMP = "ttmp"
    SPECIAL = "special"


BANK_BASE = {Bank.VGPR: VGPR_BASE, Bank.AGPR: AGPR_BASE, Bank.SGPR: SGPR_BASE, Bank.TTMP: TTMP_BASE}

_special_units: dict[str, tuple[int, ...]] = {}
_next_unit = SPECIAL_BASE
for _name, _count in SPECIAL_REGISTERS:
    _special_units[_name] = tuple(range(_next_unit, _next_unit + _count))
    _next_unit += _count
for _name, (_lo, _hi) in _PAIRS.items():
    _special_units[_name] = _special_units[_lo] + _special_units[_hi]

_NUMBERED = re.compile(r"(vgpr|agpr|sgpr|ttmp)(\d+)(?:_(lo16|hi16))?\Z")
_TUPLE_PART = re.compile(r"(vgpr|agpr|sgpr|ttmp)(\d+)\Z")


@dataclass(frozen=True, slots=True)
class PhysicalRegister:
    """A physical register.

    Attributes:
        name: LLVM's MIR name without ``$``: ``vgpr4_vgpr5``, ``sgpr3``, ``vcc``, ``vgpr2_hi16``.
        bank: the file it belongs to.
        first: number of its first 32-bit register in a numbered file, else -1.
        units: its 16-bit units, lowest first; empty for ``NULL_REGISTERS``.
    """

    name: str
    bank: Bank
    first: int
    units: tuple[int, ...]


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
    if match := _NUMBERED.match(name):
        bank = Bank(match[1])
        number = int(match[2])
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
        if numbers == list(range(numbers[0], numbers[0] + len(parts))):
            bank = Bank(first[1])
            base = BANK_BASE[bank] + 2 * numbers[0]
            return PhysicalRegister(name, bank, numbers[0], tuple(range(base, base + 2 * len(parts))))
    raise UnsupportedError(
        f"unknown physical register ${name}",
        hint="report the file: the register table of verilocc_mlir/target/registers.py lacks this name",
    )


@lru_cache(maxsize=None)
def tuple_name(bank: Bank, first: int, width: int) -> str:
    """MIR name without ``$`` of ``width`` consecutive 32-bit registers of ``bank`` from number ``first``."""
    return "_".join(f"{bank.value}{n}" for n in range(first, first + width))


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
    """The file a unit belongs to."""
    if unit >= SPECIAL_BASE:
        return Bank.SPECIAL
    if unit >= TTMP_BASE:
        return Bank.TTMP
    if unit >= SGPR_BASE:
        return Bank.SGPR
    return Bank.AGPR if unit >= AGPR_BASE else Bank.VGPR
