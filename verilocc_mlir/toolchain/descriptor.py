"""Kernel descriptors and metadata: the 64 bytes by which the hardware is set up for a kernel, decoded and compared
field by field, and what a code object says to the runtime.

A wrong bit here makes a kernel silently wrong, and MIR text does not keep all that the descriptor needs. So every field
of a staged result is compared with a plain ``llc`` run. ``Cause`` lists what may differ, and why. Layout: AMDGPUUsage,
"Kernel Descriptor", and llvm/Support/AMDHSAKernelDescriptor.h.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, cast

import msgpack  # pyright: ignore[reportMissingTypeStubs]
from msgspec import Struct

from verilocc_mlir.errors import ToolchainError
from verilocc_mlir.target.processors import PROCESSORS
from verilocc_mlir.toolchain.elf import NT_AMDGPU_METADATA, ElfImage, read_elf

DESCRIPTOR_SIZE = 64
_SUFFIX = ".kd"
_LONGEST_SHOWN = 120
"""Characters of one value in a message."""


class _Field(Struct, frozen=True):
    """A bit field: byte offset of its word, word size in bytes, shift, width, and the generations that have it."""

    name: str
    offset: int
    word: int
    shift: int
    width: int
    generations: frozenset[str]


_ALL = frozenset({"gfx9", "gfx90a", "gfx10", "gfx11", "gfx12", "gfx125"})
_RDNA = frozenset({"gfx10", "gfx11", "gfx12", "gfx125"})
_TO_11 = frozenset({"gfx9", "gfx90a", "gfx10", "gfx11"})
_FROM_12 = frozenset({"gfx12", "gfx125"})


def _fields() -> tuple[_Field, ...]:
    rows: list[tuple[str, int, int, int, int, frozenset[str]]] = [
        ("group_segment_fixed_size", 0, 4, 0, 32, _ALL),
        ("private_segment_fixed_size", 4, 4, 0, 32, _ALL),
        ("kernarg_size", 8, 4, 0, 32, _ALL),
        ("reserved0", 12, 4, 0, 32, _ALL),
        *[(f"reserved1_{i}", 24 + 4 * i, 4, 0, 32, _ALL) for i in range(5)],
        ("reserved3", 60, 4, 0, 32, _ALL),
    ]

    def add(offset: int, word: int, generations: frozenset[str], layout: str) -> None:
        for entry in layout.split():
            name, shift, width = entry.split(":")
            rows.append((name, offset, word, int(shift), int(width), generations))

    add(
        48,
        4,
        _ALL,
        "granulated_workitem_vgpr_count:0:6 granulated_wavefront_sgpr_count:6:4 priority:10:2 float_round_mode_32:12:2 "
        "float_round_mode_16_64:14:2 float_denorm_mode_32:16:2 float_denorm_mode_16_64:18:2 priv:20:1 debug_mode:22:1 "
        "bulky:24:1 cdbg_user:25:1 fp16_ovfl:26:1 rsrc1_reserved1:27:2",
    )
    add(48, 4, _TO_11, "enable_dx10_clamp:21:1 enable_ieee_mode:23:1")
    add(48, 4, _FROM_12, "enable_wg_rr_en:21:1 disable_perf:23:1")
    add(48, 4, _ALL - _RDNA, "rsrc1_reserved2:29:3")
    add(48, 4, _RDNA, "wgp_mode:29:1 mem_ordered:30:1 fwd_progress:31:1")
    add(
        52,
        4,
        _ALL,
        "enable_private_segment:0:1 enable_sgpr_workgroup_id_x:7:1 enable_sgpr_workgroup_id_y:8:1 "
        "enable_sgpr_workgroup_id_z:9:1 enable_sgpr_workgroup_info:10:1 enable_vgpr_workitem_id:11:2 "
        "enable_exception_address_watch:13:1 enable_exception_memory:14:1 granulated_lds_size:15:9 "
        "enable_exceptions:24:7 rsrc2_bit31:31:1",
    )
    add(52, 4, _ALL - {"gfx125"}, "user_sgpr_count:1:5")
    add(52, 4, frozenset({"gfx125"}), "user_sgpr_count:1:6")
    add(52, 4, _TO_11, "enable_trap_handler:6:1")
    add(52, 4, frozenset({"gfx12"}), "enable_dynamic_vgpr:6:1")
    add(44, 4, frozenset({"gfx90a"}), "accum_offset:0:6 rsrc3_reserved0:6:10 tg_split:16:1 rsrc3_reserved1:17:15")
    add(44, 4, frozenset({"gfx9"}), "rsrc3_reserved:0:32")
    add(44, 4, frozenset({"gfx10", "gfx11"}), "shared_vgpr_count:0:4")
    add(44, 4, frozenset({"gfx10"}), "rsrc3_reserved:4:28")
    add(44, 4, frozenset({"gfx11"}), "inst_pref_size:4:6 trap_on_start:10:1 trap_on_end:11:1")
    add(44, 4, _FROM_12, "rsrc3_reserved0:0:4 inst_pref_size:4:8")
    add(
        44,
        4,
        frozenset({"gfx11", "gfx12", "gfx125"}),
        "rsrc3_reserved2:12:1 glg_en:13:1 rsrc3_high:14:17 image_op:31:1",
    )
    add(
        56,
        2,
        _ALL,
        "enable_sgpr_private_segment_buffer:0:1 enable_sgpr_dispatch_ptr:1:1 enable_sgpr_queue_ptr:2:1 "
        "enable_sgpr_kernarg_segment_ptr:3:1 enable_sgpr_dispatch_id:4:1 enable_sgpr_flat_scratch_init:5:1 "
        "enable_sgpr_private_segment_size:6:1 properties_reserved0:7:3 enable_wavefront_size32:10:1 "
        "uses_dynamic_stack:11:1 properties_reserved1:12:4",
    )
    add(58, 2, _ALL, "kernarg_preload_length:0:7 kernarg_preload_offset:7:9")
    return tuple(_Field(*row) for row in rows)


_FIELDS = _fields()


class Cause(Enum):
    """Why a descriptor field of a staged result differs from a direct compile's."""

    REGISTERS = "register count"
    """The allocation decides the counts of VGPRs and SGPRs, and where AGPRs begin."""
    STACK = "stack size"
    """Spills decide the size of scratch; ``enable_private_segment`` says whether there is any."""
    CODE_SIZE = "code size"
    """``inst_pref_size`` is the length of the code in 128-byte lines."""
    LOST = "lost through MIR"
    """MIR text does not keep it; it is taken from the reference."""
    UNEXPLAINED = "unexplained"


_CAUSES: dict[str, Cause] = {
    "granulated_workitem_vgpr_count": Cause.REGISTERS,
    "granulated_wavefront_sgpr_count": Cause.REGISTERS,
    "accum_offset": Cause.REGISTERS,
    "private_segment_fixed_size": Cause.STACK,
    "enable_private_segment": Cause.STACK,
    "inst_pref_size": Cause.CODE_SIZE,
    "user_sgpr_count": Cause.LOST,
}


class FieldDifference(Struct, frozen=True):
    """One field that differs; ``ours`` and ``reference`` are values, or ``"absent"``."""

    kernel: str
    field: str
    ours: object
    reference: object
    cause: Cause

    def __str__(self) -> str:
        ours, reference = (_brief(value) for value in (self.ours, self.reference))
        return f"{self.kernel}: {self.field} is {ours}, a direct compile has {reference} ({self.cause.value})"


class KernelDescriptor(Struct, frozen=True):
    """A decoded descriptor. ``fields`` has every bit but the code offset, by the names of the machine's generation."""

    kernel: str
    generation: str
    fields: Mapping[str, int]
    entry_offset: int


def generation(machine: str) -> str:
    """Descriptor layout of a processor, named after the first processors that had it.

    Raises:
        ToolchainError: a processor whose layout is not known.
    """
    if machine not in PROCESSORS:
        raise ToolchainError(f"the kernel descriptor of {machine} is not known")
    return PROCESSORS[machine].descriptor


def decode(raw: bytes, machine: str, kernel: str = "") -> KernelDescriptor:
    """Decode 64 bytes.

    Raises:
        ToolchainError: wrong length, or a machine whose layout is not known.
    """
    if len(raw) != DESCRIPTOR_SIZE:
        raise ToolchainError(f"the kernel descriptor of {kernel!r} has {len(raw)} bytes, not {DESCRIPTOR_SIZE}")
    layout = generation(machine)
    values = {field.name: _get(raw, field) for field in _FIELDS if layout in field.generations}
    (entry,) = struct.unpack_from("<q", raw, 16)
    return KernelDescriptor(kernel, layout, values, entry)


def parse_descriptors(data: bytes | ElfImage) -> dict[str, KernelDescriptor]:
    """Every kernel descriptor of an object file or code object, by kernel name.

    Raises:
        ToolchainError: no AMDGPU ELF file, or a malformed descriptor.
    """
    image = data if isinstance(data, ElfImage) else read_elf(data)
    descriptors: dict[str, KernelDescriptor] = {}
    for name, symbol in image.symbols.items():
        if name.endswith(_SUFFIX) and symbol.kind == "STT_OBJECT" and symbol.offset >= 0:
            kernel = name.removesuffix(_SUFFIX)
            descriptors[kernel] = decode(image.data[symbol.offset : symbol.offset + symbol.size], image.machine, kernel)
    return descriptors


def compare(
    ours: Mapping[str, KernelDescriptor], reference: Mapping[str, KernelDescriptor]
) -> tuple[FieldDifference, ...]:
    """Every field in which two sets of descriptors differ, with its cause; a kernel on one side only is unexplained."""
    differences: list[FieldDifference] = []
    for kernel in sorted({*ours, *reference}):
        a, b = ours.get(kernel), reference.get(kernel)
        if a is None or b is None:
            present = ("present", "absent") if b is None else ("absent", "present")
            differences.append(FieldDifference(kernel, "descriptor", *present, Cause.UNEXPLAINED))
            continue
        for name in sorted({*a.fields, *b.fields}):
            x, y = a.fields.get(name, "absent"), b.fields.get(name, "absent")
            if x != y:
                differences.append(FieldDifference(kernel, name, x, y, _CAUSES.get(name, Cause.UNEXPLAINED)))
    return tuple(differences)


def set_field(data: bytes, kernel: str, name: str, value: int) -> bytes:
    """The ELF file with one descriptor field of one kernel set.

    Raises:
        ToolchainError: no such kernel or field, or the value does not fit.
    """
    image = read_elf(data)
    symbol = image.symbols.get(kernel + _SUFFIX)
    layout = generation(image.machine)
    field = next((f for f in _FIELDS if f.name == name and layout in f.generations), None)
    if symbol is None or symbol.offset < 0 or field is None or not 0 <= value < 1 << field.width:
        raise ToolchainError(f"cannot set {name} of kernel {kernel!r} to {value}")
    start = symbol.offset + field.offset
    word = int.from_bytes(data[start : start + field.word], "little")
    word = word & ~(((1 << field.width) - 1) << field.shift) | value << field.shift
    return data[:start] + word.to_bytes(field.word, "little") + data[start + field.word :]


def inst_pref_size(descriptor: KernelDescriptor, code_bytes: int) -> int:
    """The greatest ``inst_pref_size`` for code of that length: its 128-byte lines, limited by the size of the field."""
    limit = 63 if descriptor.generation == "gfx11" else 255
    return min(-(-code_bytes // 128), limit)


def _get(raw: bytes, field: _Field) -> int:
    word = int.from_bytes(raw[field.offset : field.offset + field.word], "little")
    return word >> field.shift & ((1 << field.width) - 1)


def _brief(value: object) -> str:
    text = str(value)
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}…"


# The AMDGPU metadata note of a code object, from which the runtime knows each kernel.
#
# Source: AMDGPUUsage, "Code Object V3 and above Metadata" (msgpack in an ``NT_AMDGPU_METADATA`` note).


_DECIDED_BY_ALLOCATION: dict[str, Cause] = {
    ".vgpr_count": Cause.REGISTERS,
    ".agpr_count": Cause.REGISTERS,
    ".sgpr_count": Cause.REGISTERS,
    ".vgpr_spill_count": Cause.REGISTERS,
    ".sgpr_spill_count": Cause.REGISTERS,
    ".private_segment_fixed_size": Cause.STACK,
}


class KernelMetadata(Struct, frozen=True):
    """One kernel's entry; ``raw`` has all of it. Sizes are in bytes; ``vgpr_count`` includes AGPRs on unified files."""

    name: str
    vgpr_count: int
    agpr_count: int
    sgpr_count: int
    vgpr_spill_count: int
    sgpr_spill_count: int
    group_segment_fixed_size: int
    private_segment_fixed_size: int
    max_flat_workgroup_size: int
    wavefront_size: int
    raw: Mapping[str, Any]


class CodeObject(Struct, frozen=True):
    """An object file or code object: processor of ``e_flags``, target id of the note, kernels by name."""

    machine: str
    e_flags: int
    target: str
    kernels: Mapping[str, KernelMetadata]


def read_code_object(data: bytes | ElfImage) -> CodeObject:
    """Read the metadata of an object file or code object.

    Raises:
        ToolchainError: no AMDGPU ELF file, no metadata note, or a malformed one.
    """
    image = data if isinstance(data, ElfImage) else read_elf(data)
    notes = [note for owner, kind, note in image.notes if owner == "AMDGPU" and kind == NT_AMDGPU_METADATA]
    if not notes:
        raise ToolchainError("the file has no AMDGPU metadata note")
    try:
        content = _unpack(notes[0])
        kernels = {str(entry[".name"]): _kernel(entry) for entry in content.get("amdhsa.kernels", [])}
    except (ValueError, KeyError, TypeError, AttributeError, msgpack.UnpackException) as error:
        raise ToolchainError(f"the AMDGPU metadata note is malformed: {error!r}") from error
    return CodeObject(image.machine, image.e_flags, str(content.get("amdhsa.target", "")), kernels)


def compare_metadata(ours: CodeObject, reference: CodeObject) -> tuple[FieldDifference, ...]:
    """Every entry in which the metadata of two files differs, with its cause; ELF flags and target id included."""
    differences: list[FieldDifference] = []
    if ours.e_flags != reference.e_flags:
        differences.append(FieldDifference("", "e_flags", hex(ours.e_flags), hex(reference.e_flags), Cause.UNEXPLAINED))
    if ours.target != reference.target:
        differences.append(FieldDifference("", "amdhsa.target", ours.target, reference.target, Cause.UNEXPLAINED))
    for kernel in sorted({*ours.kernels, *reference.kernels}):
        a, b = ours.kernels.get(kernel), reference.kernels.get(kernel)
        if a is None or b is None:
            present = ("present", "absent") if b is None else ("absent", "present")
            differences.append(FieldDifference(kernel, "metadata", *present, Cause.UNEXPLAINED))
            continue
        for key in sorted({*a.raw, *b.raw}):
            cause = _DECIDED_BY_ALLOCATION.get(key, Cause.UNEXPLAINED)
            for field, x, y in _differing(key, a.raw.get(key, "absent"), b.raw.get(key, "absent")):
                differences.append(FieldDifference(kernel, field, x, y, cause))
    return tuple(differences)


def _differing(field: str, ours: object, reference: object) -> list[tuple[str, object, object]]:
    """Where two values differ, as deep inside lists and maps as possible; at least one place if they differ."""
    if ours == reference:
        return []
    inner: list[tuple[str, object, object]] = []
    a, b = _by_name(ours), _by_name(reference)
    if a is not None and b is not None:
        for name in [*a, *(name for name in b if name not in a)]:
            inner += _differing(f"{field}{name}", a.get(name, "absent"), b.get(name, "absent"))
    # Elements in another order differ as a whole.
    return inner or [(field, ours, reference)]


def _by_name(value: object) -> dict[str, object] | None:
    """The elements of a map by key, or of a list by offset (arguments) or index; None for anything else."""
    if isinstance(value, dict):
        return {f"{key}": element for key, element in cast("dict[object, object]", value).items()}
    if not isinstance(value, list):
        return None
    elements = cast("list[object]", value)
    maps = [cast("dict[str, object]", element) for element in elements if isinstance(element, dict)]
    offsets = [f" at offset {one['.offset']}" for one in maps if ".offset" in one]
    if len(set(offsets)) == len(elements):
        return dict(zip(offsets, elements, strict=True))
    return {f"[{place}]": element for place, element in enumerate(elements)}


def _unpack(note: bytes) -> dict[str, Any]:
    unpack = cast("Callable[..., Any]", msgpack.unpackb)  # pyright: ignore[reportUnknownMemberType]
    return cast("dict[str, Any]", unpack(note, raw=False))


def _kernel(entry: dict[str, Any]) -> KernelMetadata:
    def number(key: str) -> int:
        return int(entry.get("." + key, 0))

    return KernelMetadata(
        name=str(entry[".name"]),
        vgpr_count=number("vgpr_count"),
        agpr_count=number("agpr_count"),
        sgpr_count=number("sgpr_count"),
        vgpr_spill_count=number("vgpr_spill_count"),
        sgpr_spill_count=number("sgpr_spill_count"),
        group_segment_fixed_size=number("group_segment_fixed_size"),
        private_segment_fixed_size=number("private_segment_fixed_size"),
        max_flat_workgroup_size=number("max_flat_workgroup_size"),
        wavefront_size=number("wavefront_size"),
        raw=entry,
    )
