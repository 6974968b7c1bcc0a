"""Memory instructions: the counters they raise, the counters that a wait is for, and how many bytes they move.

Sources: SIInsertWaitcnts.cpp (event to counter), Utils/AMDGPUBaseInfo.cpp (fields of combined waits), AMDGPUUsage.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from verilocc_mlir.cost.assembly import Block
from verilocc_mlir.cost.instructions import SGPR, Instruction, Kind, is_vector, units
from verilocc_mlir.target.targets import Target

_DWORDS = {
    "b8": 1, "u8": 1, "i8": 1, "b16": 1, "u16": 1, "i16": 1, "b32": 1, "u32": 1, "i32": 1, "f32": 1, "b64": 2,
    "u64": 2, "i64": 2, "f64": 2, "b96": 3, "b128": 4, "dword": 1, "dwordx2": 2, "dwordx3": 3, "dwordx4": 4,
    "ubyte": 1, "sbyte": 1, "byte": 1, "ushort": 1, "sshort": 1, "short": 1,
}  # fmt: skip
_WAIT_FIELD = re.compile(r"(\w+cnt)\((\d+)\)")
_COMBINED_HIGH_SHIFT = 8
_COMBINED_MASK = 0x3F


def dwords(base: str) -> int:
    """32-bit words that a lane moves, from the mnemonic; 1 where it does not say."""
    sizes = [_DWORDS[part] for part in base.split("_") if part in _DWORDS]
    words = sizes[-1] if sizes else 1
    return words * 2 if "read2" in base or "write2" in base or "2addr" in base else words


def counters(instruction: Instruction, generation: int) -> tuple[str, ...]:
    """Counters that ``instruction`` raises until it is done.

    gfx9 and gfx11: vmcnt, vscnt (stores, gfx11), lgkmcnt. gfx12: loadcnt, storecnt, dscnt, kmcnt, and on gfx1250
    asynccnt and tensorcnt.
    """
    base, kind = instruction.base, instruction.kind
    if kind is Kind.SMEM:
        return ("kmcnt",) if generation >= 12 else ("lgkmcnt",)
    if kind is Kind.LDS:
        return ("dscnt",) if generation >= 12 else ("lgkmcnt",)
    if kind is not Kind.VMEM or base.startswith(("exp", "global_inv", "global_wb", "buffer_inv", "buffer_gl")):
        return ()
    if base.startswith("tensor_"):
        return ("tensorcnt",)
    if "async" in base:
        return ("asynccnt",)
    stores = instruction.is_store and "load" not in base
    if generation >= 12:
        return ("storecnt",) if stores else ("loadcnt", "dscnt") if base.startswith("flat_") else ("loadcnt",)
    vector = "vscnt" if stores and generation >= 10 else "vmcnt"
    return (vector, "lgkmcnt") if base.startswith("flat_") else (vector,)


def waits(text: str) -> tuple[tuple[str, int], ...]:
    """What an ``s_wait*`` waits for: pairs of a counter and how many may still be under way.

    ``s_wait_loadcnt_dscnt`` and ``s_wait_storecnt_dscnt`` carry the DS count in bits 0 to 5, the other from bit 8.
    Waits for ALU results (``s_waitcnt_depctr``, ``s_wait_alu``) wait for no memory.
    """
    mnemonic, _, fields = text.partition(" ")
    if mnemonic == "s_waitcnt":
        return tuple((name, int(count)) for name, count in _WAIT_FIELD.findall(fields))
    number = re.search(r"(0x[0-9a-f]+|\d+)\s*$", fields)
    if mnemonic in ("s_waitcnt_depctr", "s_wait_alu", "s_wait_idle", "s_wait_event") or number is None:
        return ()
    value = int(number[1], 0)
    names = mnemonic.removeprefix("s_waitcnt_").removeprefix("s_wait_").split("_")
    if len(names) == 2:
        return ((names[0], value >> _COMBINED_HIGH_SHIFT & _COMBINED_MASK), (names[1], value & _COMBINED_MASK))
    return ((names[0], value),)


def scratch_resource(blocks: Sequence[Block], target: Target) -> str:
    """The SGPRs that hold the resource of a function's private memory on gfx90a, which has no flat scratch by default;
    ``""`` on the others, whose code uses ``scratch_*``.

    The resource is in s[0:3] on entry. Two ``s_mov_b64`` at the start of a kernel may move it elsewhere
    (SIFrameLowering.cpp, emitEntryFunctionScratchRsrcRegSetup). A block that loads the arguments may come before them
    (AMDGPUUsage, "Preloaded Kernel Arguments").
    """
    if target.architected_flat_scratch:
        return ""
    copied_to: dict[str, tuple[int, ...]] = {}
    for move in (i for block in blocks[:2] for i in block.instructions if i.base == "s_mov_b64"):
        # Later the same registers may hold something else.
        copied_to.setdefault(move.operands[1], units(move.operands[0]))
    low, high = copied_to.get("s[0:1]", ()), copied_to.get("s[2:3]", ())
    if len(low) == len(high) == 2 and high[0] == low[1] + 1:
        return f"s[{low[0] - SGPR}:{high[1] - SGPR}]"
    return "s[0:3]"


def is_scratch(instruction: Instruction, resource: str) -> bool:
    """Whether it accesses the wave's private memory, with ``scratch_*``, or with ``buffer_*`` through ``resource``."""
    return instruction.base.startswith("scratch_") or (
        bool(resource)
        and instruction.base.startswith(("buffer_load", "buffer_store"))
        and instruction.operands[2:3] == (resource,)
    )


def at_fixed_place(instruction: Instruction) -> bool:
    """Whether the address of a scratch access has no VGPR in it, as the address of a spill slot."""
    if instruction.base.startswith("scratch_"):
        address = instruction.operands[0] if instruction.is_store else instruction.operands[1]
    else:
        address = instruction.operands[1]
    return not any(is_vector(u) for u in units(address))
