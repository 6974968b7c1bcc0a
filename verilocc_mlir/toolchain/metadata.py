"""The AMDGPU metadata note of a code object, from which the runtime knows each kernel.

Source: AMDGPUUsage, "Code Object V3 and above Metadata" (msgpack in an ``NT_AMDGPU_METADATA`` note).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast

import msgpack  # pyright: ignore[reportMissingTypeStubs]

from verilocc_mlir.errors import ToolchainError
from verilocc_mlir.toolchain.descriptor import Cause, FieldDifference
from verilocc_mlir.toolchain.elf import NT_AMDGPU_METADATA, ElfImage, read_elf

_DECIDED_BY_ALLOCATION: dict[str, Cause] = {
    ".vgpr_count": Cause.REGISTERS,
    ".agpr_count": Cause.REGISTERS,
    ".sgpr_count": Cause.REGISTERS,
    ".vgpr_spill_count": Cause.REGISTERS,
    ".sgpr_spill_count": Cause.REGISTERS,
    ".private_segment_fixed_size": Cause.STACK,
}


@dataclass(frozen=True)
class KernelMetadata:
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


@dataclass(frozen=True)
class CodeObject:
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
