"""Which instructions look at threads that are not active, or write them: one reviewed list, each entry with its source.

LLVM's tables do not say this, but they say which opcodes are convergent. A convergent vector instruction that is not on
the list counts as one that reads inactive threads. An opcode that LLVM does not have counts as unclear. All others read
and write the threads in EXEC alone. So does inline assembly, unless a word in it hints at other threads.
"""

from __future__ import annotations

import re
from enum import Enum
from typing import NamedTuple

from verilocc_mlir.target.instructions import instruction as described


class Reach(Enum):
    """What an instruction does in threads that are not active."""

    ACTIVE = "reads other threads, but active ones only"
    FIRST = "reads lane 0 where EXEC is 0"
    READS = "reads them"
    WRITES = "reads and writes them"
    UNCLEAR = "reads or writes some of them, or changes EXEC on the way"


class Entry(NamedTuple):
    """Opcodes that begin as the pattern says, what they do, and who says so."""

    opcodes: str
    reach: Reach
    source: str


REVIEWED = (
    Entry("V_READFIRSTLANE_", Reach.FIRST, "ISA manuals, V_READFIRSTLANE_B32: lane 0 where EXEC is 0"),
    Entry(r"DS_(?:GWS_|ORDERED_COUNT)", Reach.FIRST, "ISA manuals, DS_GWS_*: the data of the first active thread"),
    Entry("V_READLANE_", Reach.READS, "ISA manuals, V_READLANE_B32: the lane is not asked whether it is active"),
    Entry("V_WRITELANE_", Reach.WRITES, "ISA manuals, V_WRITELANE_B32: likewise; a tied operand keeps the other lanes"),
    Entry("V_(?:MFMA|SMFMAC|WMMA|SWMMAC)_", Reach.WRITES, "ISA manuals, matrix instructions: EXEC is ignored"),
    Entry("V_SET_INACTIVE_", Reach.WRITES, "SIInstrInfo::expandPostRAPseudo: written for the threads outside a mask"),
    Entry("V_PERMLANE", Reach.READS, "ISA manuals, V_PERMLANE*: with FI set, and V_PERMLANE64 always"),
    Entry("DS_BPERMUTE_FI_", Reach.READS, "RDNA4 ISA, DS_BPERMUTE_FI_B32: fetch inactive"),
    Entry("DS_B?PERMUTE_", Reach.ACTIVE, "ISA manuals, DS_PERMUTE_B32: 0 from threads that are not active"),
    Entry("DS_SWIZZLE_", Reach.ACTIVE, "ISA manuals, DS_SWIZZLE_B32: 0 from threads that are not active"),
    Entry(r"\w+_dpp8(?:_|\Z)", Reach.READS, "VOPInstructions.td, DPP8: its FI operand may be set"),
    Entry(r"\w+_dpp_gfx", Reach.READS, "VOPInstructions.td, DPP16 of one GPU: its FI operand may be set"),
    Entry(r"\w+_(?:dpp|DPP_PSEUDO)\Z", Reach.ACTIVE, "VOPInstructions.td, DPP without FI: 0 or the old value instead"),
    Entry(r"V_INTERP_\w+_inreg", Reach.READS, "RDNA3 ISA, V_INTERP_*: takes parameters from other threads of the quad"),
    Entry("V_CMPS?X_", Reach.ACTIVE, "ISA manuals, VOPC: EXEC becomes the result, 0 for threads that are not in it"),
    Entry(
        r"IMAGE_(?:SAMPLE|GATHER4H?|GET_LOD)(?!\w*_(?:LZ|L|C?D)_)", Reach.READS, "ISA manuals: derivatives of the quad"
    ),
    Entry(r"\w*(?:WWM|WQM)", Reach.WRITES, "SIInstructions.td, whole-wave and whole-quad pseudo-instructions"),
    Entry(r"LDS_(?:PARAM|DIRECT)_LOAD", Reach.UNCLEAR, "RDNA3 ISA, LDS_PARAM_LOAD: works on whole quads"),
    Entry(r"\w+_(?:LOAD|READ)_\w*TR(?:\d|_)", Reach.UNCLEAR, "ISA manuals, transposing loads: across threads"),
    Entry("V_INDIRECT_REG_", Reach.ACTIVE, "SIInstrInfo::expandPostRAPseudo: V_MOV_B32 or V_MOVREL*, a scalar index"),
    Entry(r"SI_(?:INDIRECT|INIT_EXEC|PS_LIVE|KILL|DEMOTE)", Reach.UNCLEAR, "SIInstructions.td: change EXEC"),
)
"""The first entry that matches counts."""
_ASSEMBLY = re.compile(
    r"&\"[^\"]*(?:exec|lane|dpp|perm(?!_b32)|swizzle|row_|wave_|quad|mfma|wmma|_tr|sample|gather|get_lod|interp"
    r"|lds_direct|lds_param|barrier_arrive|async_barrier)",
    re.IGNORECASE,
)
_VECTOR = ("V_", "DS_", "BUFFER_", "FLAT_", "GLOBAL_", "IMAGE_", "SCRATCH_", "LDS_", "TBUFFER_")


def reach(opcode: str) -> Reach | None:
    """What an opcode does in threads that are not active; None: nothing, and it reads no other thread."""
    entry = next((entry for entry in REVIEWED if re.match(entry.opcodes, opcode)), None)
    if entry is not None:
        return entry.reach
    description = described(opcode)
    if description is None:
        return Reach.UNCLEAR
    return Reach.READS if "convergent" in description.properties and opcode.startswith(_VECTOR) else None


def asks_other_threads(assembly: str) -> bool:
    """Whether a word in the text of inline assembly hints at other threads."""
    return bool(_ASSEMBLY.search(assembly))
