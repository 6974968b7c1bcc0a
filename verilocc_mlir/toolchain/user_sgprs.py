"""Trap: on gfx11, MIR loses the number of user SGPRs, which makes a kernel silently wrong.

On gfx1100 and gfx1102 a wave must start with at least 16 SGPRs initialised (LLVM's UserSGPRInit16Bug), so LLVM pads the
user SGPRs until, with the work-group ids that follow, they are 16. The padding is not in MIR. When LLVM reads MIR
again, the count is what the arguments need, the hardware puts the work-group ids lower, and the code reads other
registers. The machine code says where it reads the ids (``argumentInfo``), and the count is checked against that.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from verilocc_mlir.target.processors import PROCESSORS
from verilocc_mlir.toolchain.descriptor import KernelDescriptor
from verilocc_mlir.toolchain.mir_text import function_headers

_SYSTEM_SGPRS = (
    "enable_sgpr_workgroup_id_x",
    "enable_sgpr_workgroup_id_y",
    "enable_sgpr_workgroup_id_z",
    "enable_sgpr_workgroup_info",
)
_SYSTEM = re.compile(r"^    workGroupID[XYZ]: +\{ reg: '\$sgpr(\d+)'", re.MULTILINE)
_DIRECTIVE = re.compile(r"^(\s*\.amdhsa_user_sgpr_count) +\d+", re.MULTILINE)
_COMMENT = re.compile(r"^(; COMPUTE_PGM_RSRC2:USER_SGPR:) +\d+", re.MULTILINE)


def first_system_sgprs(mir: str) -> dict[str, int]:
    """For each function that reads a work-group id, the lowest SGPR in which its code expects one."""
    lowest: dict[str, int] = {}
    for name, header in function_headers(mir):
        registers = [int(number) for number in _SYSTEM.findall(header)]
        if registers:
            lowest[name] = min(registers)
    return lowest


def padded_count(descriptor: KernelDescriptor, machine: str) -> int:
    """The user SGPR count that LLVM gives a kernel with this descriptor in a compile without a stop."""
    count = descriptor.fields["user_sgpr_count"]
    if machine not in PROCESSORS or not PROCESSORS[machine].pads_user_sgprs:
        return count
    return max(count, 16 - sum(descriptor.fields[name] for name in _SYSTEM_SGPRS))


def mend_asm(asm: str, counts: Mapping[str, int]) -> str:
    """Assembly text with ``.amdhsa_user_sgpr_count`` of the named kernels set, in the directive and LLVM's comment."""
    pieces = re.split(r"^(?=\s*\.amdhsa_kernel )", asm, flags=re.MULTILINE)
    for index, piece in enumerate(pieces[1:], start=1):
        name = piece.split(None, 2)[1].strip('"')
        if name in counts:
            changed = _DIRECTIVE.sub(rf"\g<1> {counts[name]}", piece, count=1)
            pieces[index] = _COMMENT.sub(rf"\g<1> {counts[name]}", changed, count=1)
    return "".join(pieces)
