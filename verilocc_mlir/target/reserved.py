"""Which registers LLVM lets an allocator use in a function, and why not the others.

Ported in meaning from SIRegisterInfo::getReservedRegs and GCNSubtarget::getMaxNumSGPRs, getMaxNumVGPRs and
getMaxNumVectorRegs (llvm/lib/Target/AMDGPU). Inputs are the function's IR attributes and the
``machineFunctionInfo:`` of its MIR header. tests/target/test_reserved.py compares the result, register by register,
with LLVM's own reserved set, read off the machine verifier.
"""

from __future__ import annotations

import re

from msgspec import Struct

from verilocc_mlir.errors import InputError, UnsupportedError
from verilocc_mlir.mir.header import section
from verilocc_mlir.mir.model import MachineFunction
from verilocc_mlir.target.attributes import GRAPHICS, FunctionAttributes, function_attributes
from verilocc_mlir.target.occupancy import (
    MAX_FLAT_WORK_GROUP,
    align_up,
    effective_waves,
    max_sgprs,
    max_vectors,
    min_sgprs,
    min_vectors,
)
from verilocc_mlir.target.registers import (
    AGPR_BASE,
    SGPR_BASE,
    SPECIAL_REGISTERS,
    TTMP_BASE,
    VGPR_BASE,
    physical_register,
)
from verilocc_mlir.target.targets import Target, with_features

FILE_SIZES = {"vgpr": 1024, "agpr": 256, "sgpr": 106, "ttmp": 16}
"""Registers in LLVM's classes, whatever the target (SIRegisterInfo.td); those a target lacks are reserved."""

_ALWAYS_FREE = frozenset({"vcc_lo", "vcc_hi", "scc", "pc_reg"})
"""Special registers that getReservedRegs leaves alone. SCC and PC_REG are in no allocatable class."""

_PSEUDO = frozenset({"fp_reg", "sp_reg", "private_rsrc_reg"})
"""Stand-ins for registers chosen later; reserved only where the function's header names them."""

_ARGUMENT_SGPRS = {
    "privateSegmentBuffer": 4, "dispatchPtr": 2, "queuePtr": 2, "kernargSegmentPtr": 2, "dispatchID": 2,
    "flatScratchInit": 2, "privateSegmentSize": 1, "LDSKernelId": 1, "workGroupIDX": 1, "workGroupIDY": 1,
    "workGroupIDZ": 1, "workGroupInfo": 1, "privateSegmentWaveByteOffset": 1, "implicitBufferPtr": 2,
}  # fmt: skip

_REG = re.compile(r"\$([A-Za-z0-9_]+)")
_FIELD = re.compile(r"  (\w+): *(.*?) *\Z")


class Budget(Struct, frozen=True):
    """Registers of one bank a function may use: numbers below ``count``, and the rule that set it."""

    count: int
    why: str


class Allocatable(Struct, frozen=True):
    """Registers that an allocator may hand out in one function.

    Attributes:
        sgprs: numbers of allocatable 32-bit SGPRs, ascending. VCC is allocatable too, and not listed here.
        vgprs: likewise for VGPRs.
        agprs: likewise for AGPRs.
        reserved_units: units (registers.py) that must never be assigned, special registers included.
        kept_units: those of them that calls leave alone. A register that is merely beyond the budget is not among them:
            the callee may use it.
        budgets: ``Budget`` by bank name: ``"sgpr"``, ``"vgpr"``, ``"agpr"``.
        reasons: reserved register name (32-bit, or a special register) to the reason, for those below the budget.
        waves: least and most waves per SIMD that LLVM compiles for.
    """

    sgprs: tuple[int, ...]
    vgprs: tuple[int, ...]
    agprs: tuple[int, ...]
    reserved_units: frozenset[int]
    kept_units: frozenset[int]
    budgets: dict[str, Budget]
    reasons: dict[str, str]
    waves: tuple[int, int]


def function_info(function: MachineFunction) -> dict[str, str]:
    """Scalar fields of ``machineFunctionInfo:``, quotes kept; lists span lines and are joined."""
    fields: dict[str, str] = {}
    key = ""
    for line in section(function.header_lines, "machineFunctionInfo"):
        if line.startswith("   "):
            if key:
                fields[key] += " " + line.strip()
        elif match := _FIELD.match(line):
            key = match[1]
            fields[key] = match[2]
    return fields


def flat_work_group_size(attributes: FunctionAttributes, target: Target) -> tuple[int, int]:
    """Least and most work-items of a work-group (AMDGPUSubtarget::getFlatWorkGroupSizes)."""
    default = (1, target.wave_size if attributes.calling_convention in GRAPHICS else MAX_FLAT_WORK_GROUP)
    pair = attributes.integer_pair("amdgpu-flat-work-group-size")
    if pair is None or pair[1] is None:
        return default
    low, high = pair[0], pair[1]
    return default if low > high or low < 1 or high > MAX_FLAT_WORK_GROUP else (low, high)


def waves_per_simd(attributes: FunctionAttributes, target: Target) -> tuple[int, int]:
    """Least and most waves LLVM compiles the function for (AMDGPUSubtarget::getWavesPerEU)."""
    requested = attributes.integer_pair("amdgpu-waves-per-eu", only_first_required=True)
    return effective_waves(target, requested, attributes.lds_bytes, flat_work_group_size(attributes, target))


def _preloaded_sgprs(info: dict[str, str]) -> int:
    """SGPRs that hold arguments at entry, as LLVM counts them when it reads MIR (parseMachineFunctionInfo)."""
    arguments = set(re.findall(r"(\w+): *\{", info.get("argumentInfo", "")))
    return sum(count for name, count in _ARGUMENT_SGPRS.items() if name in arguments) + int(
        info.get("numKernargPreloadSGPRs", "0") or 0
    )


def _sgpr_budget(attributes: FunctionAttributes, info: dict[str, str], target: Target) -> Budget:
    waves = waves_per_simd(attributes, target)
    # FLAT_SCRATCH, XNACK_MASK and VCC follow the numbered SGPRs before gfx10, VCC alone since.
    extra = 2
    if target.major < 10:
        if target.architected_flat_scratch or "flatScratchInit" in info.get("argumentInfo", ""):
            extra = 6
        elif target.xnack:
            extra = 4
    limit = max_sgprs(target, waves[0], addressable=False)
    addressable = max_sgprs(target, waves[0], addressable=True)
    why = f"{target.name}: {waves[0]} waves per SIMD at least, {extra} kept for VCC and the like"
    requested = attributes.integer("amdgpu-num-sgpr")
    if requested is not None and requested != limit:
        if requested <= extra:
            requested = 0
        if requested:
            requested = max(requested, _preloaded_sgprs(info))
        if requested and (requested > limit or requested < min_sgprs(target, waves[1])):
            requested = 0
        if requested:
            limit = requested
            why = f"amdgpu-num-sgpr, {extra} kept for VCC and the like"
    return Budget(min(limit - extra, addressable), why)


def _vector_budgets(attributes: FunctionAttributes, target: Target) -> tuple[Budget, Budget]:
    waves = waves_per_simd(attributes, target)
    total = max_vectors(target, waves[0])
    why = f"{target.name}: {waves[0]} waves per SIMD at least"
    requested = attributes.integer("amdgpu-num-vgpr")
    if requested is not None and requested != total:
        total = min(max(requested * (2 if target.unified_vgpr else 1), min_vectors(target, waves[1])), total)
        why = "amdgpu-num-vgpr"
    if not target.unified_vgpr:
        return Budget(total, why), Budget(0, f"{target.name} has no AGPRs")
    pair = attributes.integer_pair("amdgpu-agpr-alloc", only_first_required=True)
    if pair is None:
        # No bound was inferred on AGPR use: half of the unified file each.
        least = most = total // 2
        why += ", halved between VGPRs and AGPRs"
    else:
        least = min(align_up(pair[0], 4), target.addressable_agprs)
        most = (1 << 32) - 1 if pair[1] is None else pair[1]
        why += ", split by amdgpu-agpr-alloc"
    most = min(max(least, most), total)
    least = min(least, target.addressable_agprs, most)
    vgprs = min(total - least, target.addressable_vgprs)
    return Budget(vgprs, why), Budget(min(total - vgprs, most), why)


_KEPT_BY_CALLS = ("scratchRSrcReg", "stackPtrOffsetReg", "frameOffsetReg")
"""Header fields whose registers every callee leaves as they were (AMDGPU's calling convention)."""

_LOST_IN_CALLS = ("m0", "mode", "xnack_mask")
"""Special registers that a callee may leave changed (AMDGPUUsage, "Non-Kernel Functions": what is preserved is listed,
and of these M0 before gfx9 only). VCC and SCC are not among the reserved ones."""


def _set_aside(info: dict[str, str]) -> list[tuple[str, str]]:
    """Registers that the header sets aside, with the reason."""
    reasons = {
        "scratchRSrcReg": "scratch resource descriptor",
        "stackPtrOffsetReg": "stack pointer",
        "frameOffsetReg": "frame pointer",
        "sgprForEXECCopy": "saves EXEC around whole-wave copies",
        "longBranchReservedReg": "long branches",
        "wwmReservedRegs": "whole-wave register of another phase",
    }
    return [(name, why) for key, why in reasons.items() for name in _names(info, key)]


def _names(info: dict[str, str], key: str) -> list[str]:
    return [name for name in _REG.findall(info.get(key, "")) if name != "noreg"]


def _needs_base_pointer(function: MachineFunction, attributes: FunctionAttributes, info: dict[str, str]) -> bool:
    """The stack is realigned in a called function (SIRegisterInfo::hasBasePointer, shouldRealignStack)."""
    if info.get("isEntryFunction") == "true" or info.get("isChainFunction") == "true":
        return False
    if "no-realign-stack" in attributes.strings:
        return False
    # LLVM counts the objects that are listed, whatever the field says (MachineFrameInfo::CreateStackObject).
    alignment = max((o.alignment for o in function.stack.values() if "stack-id: sgpr-spill" not in o.text), default=1)
    for line in section(function.header_lines, "frameInfo"):
        match = _FIELD.match(line)
        if match and match[1] == "maxAlignment":
            if not re.fullmatch("[0-9]{1,19}", match[2]):
                raise InputError(f"maxAlignment is {match[2]!r}, not a number", where=function.name)
            alignment = max(alignment, int(match[2]))
    return alignment > 16 or "alignstack" in " ".join(attributes.words) or "stackrealign" in attributes.strings


_ALWAYS_RESERVED = (
    *(
        (unit, name)
        for name, _ in SPECIAL_REGISTERS
        if name not in _ALWAYS_FREE and name not in _PSEUDO
        for unit in physical_register(name).units
    ),
    *((TTMP_BASE + k, f"ttmp{k // 2}") for k in range(2 * FILE_SIZES["ttmp"])),
)
"""Units that no function may use, each with its register."""


def allocatable(function: MachineFunction, preamble: str, target: Target) -> Allocatable:
    """What an allocator may use in ``function``.

    Args:
        function: the function; its header's ``machineFunctionInfo`` and ``frameInfo`` count.
        preamble: the IR module of its file (``MirFile.preamble``).

    Raises:
        InputError: the preamble does not define the function, or the function is compiled for another GPU.
        UnsupportedError: the header names a register that this project does not know, or the function asks for
            dynamic VGPRs or the wave size that the target does not have by default.
    """
    attributes = function_attributes(preamble, function.name)
    if attributes.target_cpu not in ("", target.name):
        raise InputError(
            f"the function is compiled for {attributes.target_cpu}, not for {target.name}",
            where=function.name,
            hint="a function's target-cpu attribute wins over -mcpu; give the same target in both places",
        )
    if attributes.integer("amdgpu-dynamic-vgpr-block-size") or "+dynamic-vgpr" in attributes.target_features:
        raise UnsupportedError("dynamic VGPR allocation is not supported", where=function.name)
    target = with_features(target, attributes.target_features)
    info = function_info(function)
    sgpr = _sgpr_budget(attributes, info, target)
    vgpr, agpr = _vector_budgets(attributes, target)
    reasons: dict[str, str] = {}
    reserved: set[int] = set()
    for unit, name in _ALWAYS_RESERVED:
        reserved.add(unit)
        reasons[name] = "never allocatable"
    set_aside = _set_aside(info)
    if _needs_base_pointer(function, attributes, info):
        set_aside.append(("sgpr34", "base pointer"))
    for name, why in set_aside:
        register = physical_register(name)
        reserved.update(register.units)
        reasons[name] = why
    kept_units = {unit for unit, _ in _ALWAYS_RESERVED}
    kept_units.difference_update(unit for name in _LOST_IN_CALLS for unit in physical_register(name).units)
    for key in _KEPT_BY_CALLS:
        kept_units.update(unit for name in _names(info, key) for unit in physical_register(name).units)
    if _needs_base_pointer(function, attributes, info):
        kept_units.update(physical_register("sgpr34").units)
    budgets = {"sgpr": sgpr, "vgpr": vgpr, "agpr": agpr}
    free: dict[str, tuple[int, ...]] = {}
    for bank, base in (("sgpr", SGPR_BASE), ("vgpr", VGPR_BASE), ("agpr", AGPR_BASE)):
        count = budgets[bank].count
        reserved.update(range(base + 2 * count, base + 2 * FILE_SIZES[bank]))
        free[bank] = tuple(n for n in range(count) if base + 2 * n not in reserved)
    return Allocatable(
        free["sgpr"], free["vgpr"], free["agpr"], frozenset(reserved), frozenset(kept_units), budgets, reasons,
        waves_per_simd(attributes, target),
    )  # fmt: skip
