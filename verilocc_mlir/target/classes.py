"""Register classes, read from their names.

LLVM's AMDGPU class names say everything the allocator needs (SIRegisterInfo.td): the bank (``vgpr``, ``vreg_N``,
``areg_N``, ``av_N``, ``sgpr_N``, ``sreg_N``, ``vs_N``, ``ttmp_N``), the width in bits, ``_align2``, and what is left
out (``_xm0``, ``_xexec``, ``_xnull``, ``_lo128``, ``_lo256``). Classes that TableGen derives are named after their
derivation, ``A_and_B`` and ``A_with_sub0_in_B``, and are read so. tests/target/test_classes.py compares the members of
every class, register by register, with the tables inside the LLVM at hand.
"""

from __future__ import annotations

import re
from functools import lru_cache

from msgspec import Struct
from msgspec.structs import replace

from verilocc_mlir.errors import UnsupportedError
from verilocc_mlir.target.registers import (
    Bank,
    PhysicalRegister,
    compose,
    physical_register,
    subregister_lanes,
    tuple_name,
)

_CLASS = re.compile(
    r"(?P<bank>vgpr|vreg|areg|agpr|av|sgpr|sreg|vs|ttmp|vregorlds|sregorlds)_(?P<bits>\d+|lo16|hi16)"
    r"(?P<rest>(?:_(?:align2|xm0|xexec_hi|xexec|xnull|lo128|lo256|encodable))*)\Z"
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
    "vregorlds": frozenset({Bank.VGPR, Bank.SPECIAL}),
    "sregorlds": frozenset({Bank.SGPR, Bank.TTMP, Bank.SPECIAL}),
}
_FILE_SIZE = {Bank.VGPR: 1024, Bank.AGPR: 256, Bank.SGPR: 106, Bank.TTMP: 16}

_SPECIAL_32 = frozenset({
    "exec_lo", "exec_hi", "flat_scr_lo", "flat_scr_hi", "m0", "sgpr_null", "sgpr_null_hi", "src_execz", "src_vccz",
    "src_scc", "src_pops_exiting_wave_id", "src_flat_scratch_base_lo", "src_flat_scratch_base_hi",
    "src_private_base_lo", "src_private_limit_lo", "src_shared_base_lo", "src_shared_limit_lo",
    "tba_lo", "tba_hi", "tma_lo", "tma_hi", "vcc_lo", "vcc_hi", "xnack_mask_lo", "xnack_mask_hi",
})  # fmt: skip
_LDS = frozenset({"lds_direct"})
_APERTURES = frozenset({"src_private_base", "src_private_limit", "src_shared_base", "src_shared_limit"})
_SPECIAL_64 = frozenset({
    "exec", "flat_scr", "sgpr_null64", "src_flat_scratch_base", "tba", "tma", "vcc", "xnack_mask",
})  # fmt: skip
_EXCLUDED = {
    "xm0": frozenset({"m0"}),
    "xexec": frozenset({"exec", "exec_lo", "exec_hi"}),
    "xexec_hi": frozenset({"exec_hi"}),
    "xnull": frozenset({"sgpr_null64", "sgpr_null128", "sgpr_null256"}),
}


class RegisterClass(Struct, frozen=True):
    """A register class.

    Attributes:
        name: as written in MIR (``vreg_64_align2``).
        banks: files its members come from; ``SPECIAL`` means VCC, M0, EXEC and the like, less the exclusions.
        bits: width: 16, or a multiple of 32.
        align: number of the first 32-bit register of a member is a multiple of this (1, 2 or 4); of a scalar one, in
            classes that hold scalar and vector registers.
        limit: only registers numbered below this are members; 0 for no limit (``_lo128``, ``_lo256``).
        specials: members outside the numbered files.
        vector_align: like ``align``, of vector registers.
        half: of 16-bit classes: ``"lo16"`` or ``"hi16"`` where only these halves are members, else ``""``.
        whole_scalars: 16-bit class whose scalar members are whole 32-bit registers (``vs_16``).
        window: first number of a member lies in this half-open range of a numbered file; None: no window.
        derived: of classes that TableGen derives: the names of all members; None for the others.
    """

    name: str
    banks: frozenset[Bank]
    bits: int
    align: int
    limit: int
    specials: frozenset[str] = frozenset()
    vector_align: int = 1
    half: str = ""
    whole_scalars: bool = False
    window: tuple[int, int] | None = None
    derived: frozenset[str] | None = None

    def __hash__(self) -> int:
        return hash(self.name)

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

    def alignment(self, bank: Bank) -> int:
        """Alignment of a member's first register in ``bank``."""
        return self.vector_align if bank in (Bank.VGPR, Bank.AGPR) else self.align


def _unknown(name: str) -> UnsupportedError:
    return UnsupportedError(
        f"unknown register class {name}",
        hint="report the file: verilocc_mlir/target/classes.py does not know this class",
    )


def _specials(bank: str, bits: int, suffixes: list[str]) -> frozenset[str]:
    specials: frozenset[str] = frozenset()
    if bank in ("vregorlds", "sregorlds", "vs") and bits <= 32:
        specials = _LDS if bank == "vregorlds" else _SPECIAL_32 | _LDS
    elif bank in ("sreg", "vs"):
        if bits <= 32:
            specials = _SPECIAL_32
        elif bits == 64:
            specials = _SPECIAL_64 | _APERTURES if bank == "vs" or "encodable" in suffixes else _SPECIAL_64
        elif bits in (128, 256):
            specials = frozenset({f"sgpr_null{bits}"})
    for suffix in suffixes:
        specials -= _EXCLUDED.get(suffix, frozenset())
    return specials


_SPECIAL_BANK = frozenset({Bank.SPECIAL})
_SGPR_BANK = frozenset({Bank.SGPR})
_NAMED = {
    "scc_class": RegisterClass("scc_class", _SPECIAL_BANK, 1, 1, 0, frozenset({"scc"})),
    "vreg_1": RegisterClass("vreg_1", frozenset({Bank.VGPR}), 1, 1, 0, window=(0, 0)),
    "pseudo_sreg_32": RegisterClass("pseudo_sreg_32", _SPECIAL_BANK, 32, 1, 0, frozenset({"fp_reg", "sp_reg"})),
    "pseudo_sreg_128": RegisterClass("pseudo_sreg_128", _SPECIAL_BANK, 128, 4, 0, frozenset({"private_rsrc_reg"})),
    "aperture_class": RegisterClass("aperture_class", _SPECIAL_BANK, 64, 2, 0, _APERTURES),
    # Call-clobbered pairs that may hold the address of a tail call (SIRegisterInfo.td, CCR_SGPR_64, Gfx_CCR_SGPR_64).
    "ccr_sgpr_64": RegisterClass("ccr_sgpr_64", _SGPR_BANK, 64, 2, 30, window=(0, 30)),
    "gfx_ccr_sgpr_64": RegisterClass("gfx_ccr_sgpr_64", _SGPR_BANK, 64, 2, 0, window=(36, 64)),
}


def _plain(name: str) -> RegisterClass | None:
    if name in _NAMED:
        return _NAMED[name]
    match = _CLASS.match(name)
    if match is None:
        return None
    bank, half = match["bank"], match["bits"] if match["bits"].endswith("16") and match["bits"] != "16" else ""
    suffixes = re.findall(r"align2|xm0|xexec_hi|xexec|xnull|lo128|lo256|encodable", match["rest"])
    bits = 16 if half else int(match["bits"])
    if bits != 16 and (bits % 32 or not 32 <= bits <= 1024):
        return None
    specials = _specials(bank, bits, suffixes)
    if half:
        specials = frozenset(f"{s}_{half}" for s in specials)
    limit = 128 if "lo128" in suffixes else 256 if "lo256" in suffixes else 0
    # SGPR tuples: pairs are even, wider ones start at a multiple of four (SIRegisterInfo.td, SGPR_64, SGPR_128 …).
    # SGPR_96 is aligned to 4 as well. VS classes of 64 bits and up below v256 exist for gfx1250, hence are even.
    scalar_align = 1 if bits <= 32 else 2 if bits == 64 else 4
    vector_align = 2 if "align2" in suffixes or (bank == "vs" and bits > 32 and limit == 256) else 1
    banks = _BANKS[bank]
    has_scalars = Bank.SGPR in banks or Bank.TTMP in banks
    return RegisterClass(
        name,
        banks,
        bits,
        scalar_align if has_scalars else vector_align,
        limit,
        specials,
        vector_align,
        half,
        bank == "vs" and bits == 16,
    )


def _part_is_in(name: str, index: str, inner: RegisterClass | None) -> bool:
    try:
        part = compose(physical_register(name), index)
    except UnsupportedError:
        return False
    return inner is None or contains(inner, physical_register(part))


def _derived(name: str) -> RegisterClass | None:
    """``A_and_B``, ``A_with_S``, ``A_with_S_in_B``, nested; None where no reading makes sense.

    Names can be read in several ways. TableGen derives no class that is empty or equal to one it came from, which
    leaves the reading it meant.
    """
    for match in reversed(list(re.finditer(r"_and_|_with_", name))):
        outer = _lookup(name[: match.start()])
        if outer is None:
            continue
        outer_members = member_names(outer)
        suffix = name[match.end() :]
        if match[0] == "_and_":
            second = _lookup(suffix)
            second_members = (
                member_names(second) if second is not None and second.bits == outer.bits else frozenset[str]()
            )
            members = outer_members & second_members
            if members == second_members:
                continue
        else:
            index, _, inner_name = suffix.partition("_in_")
            inner = _lookup(inner_name) if inner_name else None
            if (inner is None) != (not inner_name):
                continue
            try:
                lanes = subregister_lanes(index).bit_count()
            except UnsupportedError:
                continue
            if inner is not None and lanes * 16 != inner.bits:
                continue
            members = frozenset(n for n in outer_members if _part_is_in(n, index, inner))
        if members and members != outer_members:
            return replace(outer, name=name, specials=outer.specials & members, derived=members)
    return None


@lru_cache(maxsize=None)
def _lookup(name: str) -> RegisterClass | None:
    return _plain(name) or _derived(name)


def register_class(name: str) -> RegisterClass:
    """The class called ``name``.

    Raises:
        UnsupportedError: the name does not follow LLVM's scheme for AMDGPU.
    """
    cls = _lookup(name)
    if cls is None:
        raise _unknown(name)
    return cls


def contains(cls: RegisterClass, phys: PhysicalRegister) -> bool:
    """``phys`` is a member of ``cls``.

    Membership is LLVM's, which is the same on every target: whether the target has the register, and whether it is
    reserved in a function, is for reserved.py to say.
    """
    if cls.derived is not None:
        return phys.name in cls.derived
    if phys.bank is Bank.SPECIAL:
        return phys.name in cls.specials
    if phys.bank not in cls.banks:
        return False
    lanes = 2 if cls.whole_scalars and phys.bank in (Bank.SGPR, Bank.TTMP) else cls.lanes
    if len(phys.units) != lanes or (cls.half and not phys.name.endswith(cls.half)):
        return False
    return phys.first in _range(cls, phys.bank)


def _range(cls: RegisterClass, bank: Bank) -> range:
    align = cls.alignment(bank)
    if cls.window:
        return range(cls.window[0], cls.window[1], align)
    size = _FILE_SIZE[bank]
    if cls.limit and bank is Bank.VGPR:
        size = min(size, cls.limit)
    return range(0, size - cls.width + 1, align)


def members(cls: RegisterClass, bank: Bank) -> range | tuple[int, ...]:
    """Numbers of the first 32-bit register of every member in a numbered file, ascending.

    Of a 16-bit class these are the 32-bit registers whose halves are members; ``half`` says which. Empty for a
    file the class does not draw on and for ``Bank.SPECIAL``, whose members are ``specials``.
    """
    if bank is Bank.SPECIAL or bank not in cls.banks:
        return range(0)
    if cls.derived is None:
        return _range(cls, bank)
    registers = (physical_register(name) for name in cls.derived)
    return tuple(sorted({r.first for r in registers if r.bank is bank}))


def member_names(cls: RegisterClass) -> frozenset[str]:
    """MIR names, without ``$``, of all members."""
    if cls.derived is not None:
        return cls.derived
    names = set(cls.specials)
    for bank in cls.banks - {Bank.SPECIAL}:
        numbers = _range(cls, bank)
        if cls.bits == 16 and not (cls.whole_scalars and bank in (Bank.SGPR, Bank.TTMP)):
            halves = (cls.half,) if cls.half else ("lo16", "hi16")
            names.update(f"{bank.value}{n}_{half}" for n in numbers for half in halves)
        else:
            names.update(tuple_name(bank, n, cls.width) for n in numbers)
    return frozenset(names)
