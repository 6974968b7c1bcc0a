"""What a call leaves alone: callee-saved registers, the register masks of MIR calls, and calls whose callee is known.

Source: llvm/lib/Target/AMDGPU/AMDGPUCallingConv.td (CSR_AMDGPU and its relatives) and
SIRegisterInfo::getCallPreservedMask, getCalleeSavedRegs. tests/target/test_callingconv.py asks the machine verifier
about every register under every named mask.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache

from msgspec import Struct

from verilocc_mlir.errors import UnsupportedError
from verilocc_mlir.mir.model import Instruction, MachineFunction, MirFile, OperandKind
from verilocc_mlir.target.attributes import function_attributes, unquote
from verilocc_mlir.target.registers import AGPR_BASE, SGPR_BASE, VGPR_BASE, physical_register
from verilocc_mlir.target.targets import Target

_CUSTOM = re.compile(r"CustomRegMask\((.*)\)\Z", re.DOTALL)


def _numbers(base: int, numbers: Iterable[int]) -> frozenset[int]:
    return frozenset(base + 2 * n + half for n in numbers for half in (0, 1))


def _span(base: int, *bounds: tuple[int, int]) -> frozenset[int]:
    return _numbers(base, (n for low, high in bounds for n in range(low, high + 1)))


# v40-v47, v56-v63 and so on: every second group of eight, so that caller and callee both have short tuples at hand.
_VGPRS = _numbers(VGPR_BASE, (n for n in range(40, 256) if n % 16 >= 8))
_AGPRS = _span(AGPR_BASE, (32, 255))
_SGPRS = _span(SGPR_BASE, (30, 39), (48, 55), (64, 71), (80, 87), (96, 105))
_GFX_SGPRS = _span(SGPR_BASE, (4, 31), (64, 105))
_VCC = frozenset(physical_register("vcc").units)

REGMASKS: dict[str, frozenset[int]] = {
    "csr_amdgpu": _VGPRS | _SGPRS,
    "csr_amdgpu_gfx90ainsts": _VGPRS | _AGPRS | _SGPRS,
    "csr_amdgpu_si_gfx": _VGPRS | _GFX_SGPRS,
    "csr_amdgpu_si_gfx_gfx90ainsts": _VGPRS | _AGPRS | _GFX_SGPRS,
    "csr_amdgpu_cs_chainpreserve": _span(VGPR_BASE, (8, 255)),
    "csr_amdgpu_noregs": frozenset(),
    "csr_amdgpu_vgprs": _VGPRS,
    "csr_amdgpu_agprs": _AGPRS,
    "csr_amdgpu_sgprs": _SGPRS,
    "csr_amdgpu_si_gfx_sgprs": _GFX_SGPRS,
    "amdgpu_allvgprs": _span(VGPR_BASE, (0, 255)),
    "amdgpu_allagprs": _span(AGPR_BASE, (0, 255)),
    "amdgpu_allvectorregs": _span(VGPR_BASE, (0, 255)) | _span(AGPR_BASE, (0, 255)),
    "amdgpu_allallocatablesregs": _span(SGPR_BASE, (0, 105)) | _VCC,
}
"""Units that each named mask preserves. Reserved registers are outside: a mask says nothing of them."""


@lru_cache(maxsize=256)
def regmask(text: str) -> frozenset[int]:
    """Units *preserved* by a register-mask operand; all other units are clobbered, reserved registers aside.

    Args:
        text: the operand as written: a mask's name, or ``CustomRegMask($vgpr40,$vgpr41,…)``. A custom mask preserves
            the 32-bit and 16-bit registers it lists; a tuple in it does not speak for its parts, as in LLVM.

    Raises:
        UnsupportedError: an unknown mask.
    """
    text = text.strip()
    if match := _CUSTOM.match(text):
        units: set[int] = set()
        for name in match[1].split(","):
            name = name.strip().removeprefix("$")
            if name:
                register = physical_register(name)
                if len(register.units) <= 2:
                    units.update(register.units)
        return frozenset(units)
    preserved = REGMASKS.get(text)
    if preserved is None:
        raise UnsupportedError(
            f"unknown register mask {text}",
            hint="report the file: verilocc_mlir/target/callingconv.py lacks this mask",
        )
    return preserved


def callee_saved(calling_convention: str, target: Target) -> frozenset[int]:
    """Units that a function of this convention must leave as it found them; LLVM saves those it uses after allocation.

    Args:
        calling_convention: as in ``FunctionAttributes.calling_convention``.

    Raises:
        UnsupportedError: LLVM has other rules for this convention that are not ported.
    """
    suffix = "_gfx90ainsts" if target.has_agprs else ""
    match calling_convention:
        case "ccc" | "fastcc" | "coldcc":
            return REGMASKS[f"csr_amdgpu{suffix}"]
        case "amdgpu_gfx":
            return REGMASKS[f"csr_amdgpu_si_gfx{suffix}"]
        case "amdgpu_cs_chain_preserve":
            return REGMASKS["csr_amdgpu_cs_chainpreserve"]
        case "amdgpu_gfx_whole_wave":
            raise UnsupportedError("whole-wave functions are not supported")
        case _:
            return frozenset()


# Calls whose callee is known, and what their register masks make of it: registers that it must leave alone.
#
# A callee keeps what its calling convention says. A mask that is written out (``CustomRegMask``) may say that it keeps
# more; then it must, and whoever allocates the callee, and whoever checks it, reads that off the calls.


class Call(Struct, frozen=True):
    """One instruction with a register mask.

    Attributes:
        caller: the function it stands in.
        callee: the function that it names; ``""`` where the address alone says.
        masks: its register masks as written.
    """

    caller: str
    callee: str
    instruction: Instruction
    masks: tuple[str, ...]

    @property
    def is_written_out(self) -> bool:
        """Whether a mask is not one of the calling conventions'."""
        return any(mask.startswith("CustomRegMask") for mask in self.masks)

    @property
    def kept(self) -> frozenset[int]:
        """Units that the caller counts on: those that every mask preserves."""
        first, *others = map(regmask, self.masks)
        return first.intersection(*others)


def calls_in(function: MachineFunction) -> Iterator[Call]:
    """The calls of a function, in layout order."""
    for block in function.blocks:
        for instruction in block.instructions:
            masks = tuple([op.text for op in instruction.operands if op.kind is OperandKind.REGMASK])
            if masks:
                names = [op.text for op in instruction.operands if op.kind is OperandKind.GLOBAL]
                callee = unquote(names[0].removeprefix("@")) if len(names) == 1 else ""
                yield Call(function.name, callee, instruction, masks)


def beyond_convention(call: Call, file: MirFile, target: Target) -> frozenset[int]:
    """Units that a call's caller counts on and its callee's calling convention does not preserve.

    Raises:
        InputError: the file does not define the callee. UnsupportedError: a convention or mask that is not known.
    """
    return call.kept - callee_saved(function_attributes(file.preamble, call.callee).calling_convention, target)


def kept_for_callers(file: MirFile, name: str, target: Target) -> frozenset[int]:
    """Units that the function ``name`` must leave alone because calls in its file say so, beyond its convention.

    Raises:
        UnsupportedError: as for ``beyond_convention``.
    """
    calls = (c for f in file.functions for c in calls_in(f) if c.callee == name and c.is_written_out)
    return frozenset[int]().union(*(beyond_convention(call, file, target) for call in calls))
