"""The last check before the link: a staged object against a direct compile. What MIR is known to lose is repaired.

For every kernel, each field of the descriptor and of the metadata equals the direct compile's, except those that an
allocation decides. The user SGPR count puts the work-group ids where the machine code reads them. Descriptor and
metadata agree on scratch. The ELF machine is the target, and no intrinsic is left as an external symbol.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from msgspec import Struct

from verilocc_mlir.errors import ToolchainError, UnsupportedError
from verilocc_mlir.target.processors import PROCESSORS
from verilocc_mlir.toolchain.descriptor import (
    Cause,
    CodeObject,
    FieldDifference,
    KernelDescriptor,
    compare,
    compare_metadata,
    inst_pref_size,
    parse_descriptors,
    read_code_object,
    set_field,
)
from verilocc_mlir.toolchain.elf import ElfImage, read_elf
from verilocc_mlir.toolchain.mir_repairs import function_headers

_LOST = "user_sgpr_count"
_FAULTS_SHOWN = 6
_REPORT = "this is a fault of the staged run: report it, and compile this input without verilocc"


class CheckedObject(Struct, frozen=True):
    """An object file that passed.

    Attributes:
        data: the object, mended.
        mended: the fields that were mended; ``reference`` is the value put in.
        user_sgprs: user SGPR count of each kernel, for ``mended_asm``.
        compared: whether there was a direct compile to compare with.
    """

    data: bytes
    mended: tuple[FieldDifference, ...]
    user_sgprs: dict[str, int]
    compared: bool

    def mended_asm(self, asm: bytes) -> bytes:
        """The assembly text of the same staged run with the same repairs."""
        return mend_asm(asm.decode(), self.user_sgprs).encode()


def check_object(data: bytes, *, mir: str, cpu: str, reference: bytes | None = None, where: str = "") -> CheckedObject:
    """Check a staged object file and mend what MIR lost.

    Args:
        mir: text of the same run before or after allocation; its ``argumentInfo`` is read.
        reference: the object file of a direct compile; None for ``.mir`` input, which has none.

    Raises:
        ToolchainError: a difference that nothing explains, or an inconsistent object.
        UnsupportedError: an ``llvm.*`` intrinsic is left as an external symbol.
    """
    image = read_elf(data)
    if image.machine != cpu:
        raise ToolchainError(f"the object is for {image.machine}, not for {cpu}", where=where, hint=_REPORT)
    leftovers = [name for name in image.undefined if name.startswith("llvm.")]
    if leftovers:
        raise UnsupportedError(
            f"this LLVM does not know {', '.join(leftovers)}: left as an external symbol",
            where=where,
            hint="use the LLVM that the front end was built against (VERILOCC_LLVM=DIR)",
        )
    descriptors = parse_descriptors(image)
    metadata = read_code_object(image)
    reference_image = None if reference is None else read_elf(reference)
    reference_descriptors = {} if reference_image is None else parse_descriptors(reference_image)
    lost_counts = _lost_user_sgprs(descriptors, reference_descriptors, image.machine)
    mended = tuple(
        FieldDifference(kernel, _LOST, descriptors[kernel].fields[_LOST], value, Cause.LOST)
        for kernel, value in lost_counts.items()
    )
    for kernel, value in lost_counts.items():
        data = set_field(data, kernel, _LOST, value)
    if lost_counts:
        image = read_elf(data)
        descriptors = parse_descriptors(image)
    faults = _inconsistencies(image, descriptors, metadata, mir)
    if reference_image is not None:
        differences = compare(descriptors, reference_descriptors) + compare_metadata(
            metadata, read_code_object(reference_image)
        )
        faults += [str(item) for item in differences if item.cause in (Cause.UNEXPLAINED, Cause.LOST)]
    if faults:
        first_faults, more = faults[:_FAULTS_SHOWN], len(faults) - _FAULTS_SHOWN
        summary = "; ".join([*first_faults, f"and {more} more"] if more > 0 else first_faults)
        raise ToolchainError(f"the staged object is wrong: {summary}", where=where, hint=_REPORT)
    counts = {kernel: descriptor.fields[_LOST] for kernel, descriptor in descriptors.items()}
    return CheckedObject(data, mended, counts, reference_image is not None)


def _lost_user_sgprs(
    descriptors: dict[str, KernelDescriptor], reference: dict[str, KernelDescriptor], machine: str
) -> dict[str, int]:
    """The right user SGPR counts where the object's are wrong: the reference's, or without one LLVM's padded count."""
    counts: dict[str, int] = {}
    for kernel, descriptor in descriptors.items():
        value = reference[kernel].fields[_LOST] if kernel in reference else padded_count(descriptor, machine)
        if value != descriptor.fields[_LOST]:
            counts[kernel] = value
    return counts


def _inconsistencies(
    image: ElfImage, descriptors: dict[str, KernelDescriptor], metadata: CodeObject, mir: str
) -> list[str]:
    """Contradictions within the object, kernel by kernel."""
    faults: list[str] = []
    system = first_system_sgprs(mir)
    for kernel, descriptor in descriptors.items():
        fields = descriptor.fields
        if kernel in system and system[kernel] != fields["user_sgpr_count"]:
            faults.append(
                f"{kernel}: the code reads its first work-group id from s{system[kernel]}, "
                f"but the descriptor has {fields['user_sgpr_count']} user SGPRs"
            )
        entry = metadata.kernels.get(kernel)
        if entry is None:
            faults.append(f"{kernel}: has a descriptor but no metadata")
            continue
        scratch = fields["private_segment_fixed_size"]
        if scratch != entry.private_segment_fixed_size:
            faults.append(
                f"{kernel}: {scratch} bytes of scratch, but {entry.private_segment_fixed_size} in the metadata"
            )
        if fields["enable_private_segment"] == 0 and (scratch or fields["uses_dynamic_stack"]):
            faults.append(f"{kernel}: uses scratch, but it is not enabled")
        if fields["group_segment_fixed_size"] != entry.group_segment_fixed_size:
            faults.append(f"{kernel}: the size of LDS differs between descriptor and metadata")
        code = image.symbols.get(kernel)
        lines = fields.get("inst_pref_size", 0)
        # LLVM counts before it relaxes branches, so it may ask for less than the code, but never for more.
        if code is not None and lines > inst_pref_size(descriptor, code.size):
            faults.append(f"{kernel}: {code.size} bytes of code, but {lines} lines are prefetched")
    faults += [f"{kernel}: has metadata but no descriptor" for kernel in metadata.kernels if kernel not in descriptors]
    return faults


# Trap: on gfx11, MIR loses the number of user SGPRs, which makes a kernel silently wrong.
#
# On gfx1100 and gfx1102 a wave must start with at least 16 SGPRs initialised (LLVM's UserSGPRInit16Bug), so LLVM pads
# the user SGPRs until, with the work-group ids that follow, they are 16. The padding is not in MIR. When LLVM reads MIR
# again, the count is what the arguments need, the hardware puts the work-group ids lower, and the code reads other
# registers. The machine code says where it reads the ids (``argumentInfo``), and the count is checked against that.


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
