"""What an allocator may use in a function, as LLVM sees it.

Sources: LLVM, SIRegisterInfo::getReservedRegs, getCalleeSavedRegs and hasBasePointer; GCNSubtarget::getMaxNumSGPRs and
getMaxNumVectorRegs; AMDGPUSubtarget.cpp, getFlatWorkGroupSizes, getEffectiveWavesPerEU and
getOccupancyWithWorkGroupSizes; AMDGPUBaseInfo.cpp, getIntegerPairAttribute; SIMachineFunctionInfo.cpp, its YAML form.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from smt_verifier.checker.outcome import Refused
from smt_verifier.checker.tables import Processor, Tables, tables

_INFO = "machineFunctionInfo."
_KEPT = ("scratchRSrcReg", "stackPtrOffsetReg", "frameOffsetReg")
"""Header fields whose registers every callee leaves as they were."""
_SET_ASIDE = (*_KEPT, "sgprForEXECCopy", "longBranchReservedReg", "wwmReservedRegs")
_UNSIGNED = 1 << 32
_MOST_WORK_ITEMS = 1024
_WORDS = frozenset(
    """
    alignstack allockind allocsize alwaysinline builtin cold convergent denormal_fpenv
    disable_sanitizer_instrumentation flatten hot inlinehint memory minsize mustprogress nobuiltin nocallback
    nocf_check nocreateundeforpoison nodivergencesource noduplicate nofree noimplicitfloat noinline nomerge
    nonlazybind noprofile norecurse noredzone noreturn nosanitize_bounds nosanitize_coverage nosync nounwind
    null_pointer_is_valid optdebug optforfuzzing optnone optsize skipprofile speculatable strictfp uwtable
    vscale_range willreturn
    """.split()  # noqa: SIM905
)
"""Attributes without quotes of which no pass behind the phase makes more than is said here (``naked`` leaves out
prologue and epilogue).
"""


class Limits(NamedTuple):
    """Registers of one function, as units.

    Attributes:
        allocatable: what an allocator may hand out, VCC included.
        kept: reserved registers that calls leave alone.
        saved: scalar ones that must hold at a return what they held at entry, also beyond the budget.
        callee_saved: all that the calling convention says a function leaves as it was, vector registers too.
    """

    allocatable: frozenset[int]
    kept: frozenset[int]
    saved: frozenset[int]
    callee_saved: frozenset[int]


def limits(
    processor: str, convention: str, strings: Mapping[str, str], words: Collection[str], fields: Mapping[str, str]
) -> Limits:
    """What may be used in a function.

    Args:
        processor: LLVM's name of the GPU.
        convention: the calling convention's keyword; ``"ccc"`` where none is written.
        strings: the function's string attributes.
        words: its other attributes.
        fields: its header by path, ``machineFunctionInfo.scratchRSrcReg``; ``saved`` is that of the same text.

    Raises:
        Refused: something of this is not read as LLVM reads it, or is not followed.
    """
    data = tables()
    target = _target(processor, strings, data)
    if convention not in data.conventions:
        raise Refused("calling-convention", f"the calling convention {convention} is not followed")
    if unknown := {word.partition("(")[0].partition("=")[0] for word in words} - _WORDS:
        raise Refused("attribute", f"the attribute {min(unknown)} is not followed")
    *masks, is_shader = data.conventions[convention]
    callee_saved = data.mask(masks[target.has_agprs]) or frozenset()
    if _integer("amdgpu-dynamic-vgpr-block-size", strings) or fields.get(f"{_INFO}dynamicVGPRBlockSize", "0") != "0":
        raise Refused("attribute", "dynamic VGPR allocation is not followed")
    waves = _waves(target, is_shader, strings)
    vgprs, agprs = _vectors(target, waves, strings)
    sgprs = _sgprs(target, waves, strings, fields)
    numbered = {*data.units("s", sgprs), *data.units("v", vgprs), *data.units("a", agprs)}
    units = {name: _registers(fields.get(f"{_INFO}{name}", "''")) for name in _SET_ASIDE}
    base_pointer = _registers("'$sgpr34'") if _has_base_pointer(strings, words, fields) else frozenset[int]()
    reserved = data.operand_keys("reserved").union(base_pointer, *units.values())
    kept = data.operand_keys("kept").union(base_pointer, *(units[name] for name in _KEPT))
    allocatable = frozenset(numbered | _registers("'$vcc'")) - reserved
    scalars = data.units("s")
    beyond = max(allocatable.intersection(scalars), default=scalars[0] - 1)
    # LLVM saves what keeps EXEC itself (SIFrameLowering.cpp, determinePrologEpilogSGPRSaves).
    placed = units["frameOffsetReg"] | units["stackPtrOffsetReg"] | units["sgprForEXECCopy"]
    saved = frozenset(u for u in callee_saved.intersection(scalars) - placed if u > beyond or u not in reserved)
    return Limits(allocatable, kept, saved, callee_saved)


def _target(name: str, strings: Mapping[str, str], data: Tables) -> Processor:
    """The processor as the function's features change it (GCNSubtarget.cpp)."""
    target = data.processor(name)
    if target is None:
        raise Refused("processor", f"the processor {name} is not known")
    if strings.get("target-cpu", name) != name:
        raise Refused("attribute", f"the function is compiled for {strings['target-cpu']!r}, not for {name}")
    signs: dict[str, str] = {}
    for feature in strings.get("target-features", "").split(","):
        sign, known = feature[:1], data.features.get(feature[1:])
        if not feature:
            continue
        if sign not in ("+", "-") or known is None or signs.setdefault(feature[1:], sign) != sign:
            raise Refused("attribute", f"the feature {feature!r} is not known, or given twice")
        if name not in known["+-".index(sign)]:
            raise Refused("attribute", f"{name} with the feature {feature} is not followed")
    if signs.get("xnack") == "-":
        target = target._replace(xnack=False)
    if target.cu_mode is False and signs.get("cumode") == "+":
        # The block that waves of a work-group share is then one CU: half the LDS, SIMDs and barriers.
        target = target._replace(lds_bytes=target.lds_bytes // 2, simds=2, max_barriers=16)
    elif target.cu_mode and signs.get("cumode") == "-":
        # gfx1250 has no other mode, but LLVM counts as if it had, with the SIMDs of one CU.
        target = target._replace(lds_bytes=target.lds_bytes * 2, max_barriers=32)
    return target


def _parsed(text: str) -> int | None:
    """An unsigned number as StringRef::getAsInteger(0) reads it; None where LLVM complains, or would cut it off."""
    radix, digits = 10, text
    if text[:2] in ("0x", "0X", "0b", "0B", "0o"):
        radix, digits = {"x": 16, "b": 2, "o": 8}[text[1].lower()], text[2:].lower()
    elif len(text) > 1 and text[0] == "0":
        radix = 8
    if not digits or len(digits) > 64 or any(c not in "0123456789abcdef"[:radix] for c in digits):
        return None
    number = int(digits, radix)
    return number if number < _UNSIGNED else None


def _integer(key: str, strings: Mapping[str, str]) -> int | None:
    """An attribute that is one number (Function::getFnAttributeAsParsedInteger); None where it is absent."""
    if key not in strings:
        return None
    number = _parsed(strings[key])
    if number is None or number >= _UNSIGNED // 2:
        raise Refused("attribute", f"{key} is {strings[key]!r}, which is no number, or too large")
    return number


def _pair(key: str, strings: Mapping[str, str], *, both: bool = False) -> tuple[int, int | None] | None:
    """An attribute that is two numbers, the second of which may be left out unless ``both``; None: it is absent."""
    if key not in strings:
        return None
    first, _, second = (part.strip(" \t\n\v\f\r") for part in strings[key].partition(","))
    low, high = _parsed(first), _parsed(second)
    if low is None or low >= _UNSIGNED // 2 or (high is None and (both or second)):
        raise Refused("attribute", f"{key} is {strings[key]!r}, which is no pair of numbers, or too large")
    return low, high


def _waves(target: Processor, is_shader: bool, strings: Mapping[str, str]) -> tuple[int, int]:
    """Least and most waves per SIMD that LLVM compiles for; it ignores a request that contradicts the rest."""
    sizes = (1, target.wave_size if is_shader else _MOST_WORK_ITEMS)
    asked = _pair("amdgpu-flat-work-group-size", strings, both=True)
    if asked is not None and asked[1] is not None and 1 <= asked[0] <= asked[1] <= _MOST_WORK_ITEMS:
        sizes = (asked[0], asked[1])
    lds = _pair("amdgpu-lds-size", strings)
    most = _most_waves(target, lds[0] if lds else 0, sizes)
    least = min(_ceil(_ceil(sizes[1], target.wave_size), target.simds), most)
    asked = _pair("amdgpu-waves-per-eu", strings)
    if asked is None:
        return least, most
    low, high = asked[0], target.max_waves if asked[1] is None else asked[1]
    contradicts = low < least or low > most or low > high or high > target.max_waves
    return (least, most) if contradicts else (low, min(high, most))


def _ceil(number: int, by: int) -> int:
    return -(-number // by)


def _most_waves(target: Processor, lds: int, sizes: tuple[int, int]) -> int:
    """Most waves per SIMD over the allowed work-group sizes: LLVM looks at both ends, then at a size in between."""
    by_lds = target.lds_bytes // max(lds, 1)
    if by_lds == 0:
        return 1
    slots = target.max_waves * target.simds
    each = [_ceil(size, target.wave_size) for size in sizes]
    groups = [min(slots if n == 1 else min(slots // n, target.max_barriers), by_lds) for n in each]
    most, least = each[0] * groups[0], each[1] * groups[1]
    if least >= most:
        most = least
    else:
        spare = (slots - most) // groups[0]
        most += groups[0] * min(spare, (sizes[1] - 1) // target.wave_size + 1 - each[0])
    return min(max(_ceil(most, target.simds), 1), target.max_waves)


def _sgprs(target: Processor, waves: tuple[int, int], strings: Mapping[str, str], fields: Mapping[str, str]) -> int:
    """How many SGPRs may be used; FLAT_SCRATCH, XNACK_MASK and VCC follow them before gfx10, VCC alone since."""
    given = arguments(fields.get(f"{_INFO}argumentInfo", ""))
    extra = 2
    if target.major < 10 and (target.architected_flat_scratch or "flatScratchInit" in given):
        extra = 6
    elif target.major < 10 and target.xnack:
        extra = 4
    budget = target.budgets[waves[0] - 1]
    limit = budget.max_sgprs
    asked = _integer("amdgpu-num-sgpr", strings)
    if asked is not None and asked > extra:
        preloaded = fields.get(f"{_INFO}numKernargPreloadSGPRs", "0")
        asked = max(asked, sum(given.values()) + decimal(preloaded))
        if target.budgets[waves[1] - 1].min_sgprs <= asked <= limit:
            limit = asked
    return min(limit - extra, budget.max_addressable_sgprs)


def decimal(text: str) -> int:
    if not (text.isascii() and text.isdigit()) or len(text) > 19:
        raise Refused("header", f"{text!r} is no number")
    return int(text)


def _vectors(target: Processor, waves: tuple[int, int], strings: Mapping[str, str]) -> tuple[int, int]:
    """How many VGPRs and AGPRs may be used."""
    total = target.budgets[waves[0] - 1].max_vectors
    asked = _integer("amdgpu-num-vgpr", strings)
    if asked is not None and asked != total:
        least = target.budgets[waves[1] - 1].min_vectors
        total = min(max(asked * (2 if target.unified_vgpr else 1), least), total)
    if not target.unified_vgpr:
        return total, 0
    pair = _pair("amdgpu-agpr-alloc", strings)
    least = most = total // 2
    if pair is not None:
        least = min(_ceil(pair[0], 4) * 4, target.addressable_agprs)
        most = _UNSIGNED - 1 if pair[1] is None else pair[1]
    most = min(max(least, most), total)
    least = min(least, target.addressable_agprs, most)
    vgprs = min(total - least, target.addressable_vgprs)
    return vgprs, min(total - vgprs, most)


def arguments(text: str) -> dict[str, int]:
    """SGPRs of each entry of argumentInfo: ``dispatchPtr: { reg: '$sgpr4_sgpr5' }, …``."""
    counts: dict[str, int] = {}
    for entry in text.removesuffix(" }").split(" }, ") if text else ():
        name, brace, rest = entry.partition(": { ")
        count = tables().arguments.get(name)
        if count is None or not brace or not text.endswith(" }") or "{" in rest or name in counts:
            raise Refused("header", f"argumentInfo has what is not known: {text}")
        counts[name] = count
    return counts


def _registers(text: str) -> frozenset[int]:
    """Units of the registers of a header field: ``'$sgpr32'``, more with commas between, ``''`` or ``[]``."""
    units: frozenset[int] = frozenset()
    for part in text.split(", ") if text not in ("''", "[]") else ():
        register = tables().register(part[2:-1]) if part == f"'${part[2:-1]}'" else None
        if register is None:
            raise Refused("header", f"there is no register {part}")
        units = units.union(register.units)
    return units


def _has_base_pointer(strings: Mapping[str, str], words: Collection[str], fields: Mapping[str, str]) -> bool:
    """The stack is realigned in a called function (SIRegisterInfo::hasBasePointer, shouldRealignStack). Whether it is a
    chain function, which is not, LLVM does not read off the header.
    """
    called = fields.get(f"{_INFO}isEntryFunction") != "true"
    realigned = any(word.startswith("alignstack") for word in words) or "stackrealign" in strings
    realigned = realigned or decimal(fields.get("frameInfo.maxAlignment", "1")) > 16
    return called and realigned and "no-realign-stack" not in strings
