"""Figures of a function besides its code: registers, LDS, scratch, spills, size, LLVM's own occupancy.

They come from the metadata note, because the loader uses it; else from the comments that llc writes after a function;
else they are counted in the code.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from verilocc_mlir.cost import instructions
from verilocc_mlir.target.occupancy import MAX_FLAT_WORK_GROUP, extra_sgprs, vector_registers, waves
from verilocc_mlir.target.targets import Target


class Figures(Struct, frozen=True):
    """Figures of one function; None where not known.

    Attributes:
        is_kernel: it is started by a dispatch.
        vectors: registers of the vector file that a wave takes: VGPRs, and AGPRs where they share the file.
        agprs: how many of these are AGPRs.
        sgprs: SGPRs, VCC and the like included.
        lds_bytes: LDS of one work-group.
        scratch_bytes: private memory of one work-item.
        work_group: least and most work-items of a work-group.
        extents: work-items of a work-group in each dimension; None where not known.
        vgpr_spills: VGPRs that LLVM says it spilled.
        sgpr_spills: SGPRs, likewise. A staged compilation may say 0 for SGPRs that went to VGPR lanes.
        code_bytes: size of the code.
        llvm_occupancy: waves per SIMD that llc prints.
        waves_vectors: vector registers that LLVM reserves so that no more waves fit than ``amdgpu-waves-per-eu`` says.
        waves_sgprs: SGPRs, likewise.
    """

    is_kernel: bool = False
    vectors: int | None = None
    agprs: int | None = None
    sgprs: int | None = None
    lds_bytes: int | None = None
    scratch_bytes: int | None = None
    work_group: tuple[int, int] = (1, MAX_FLAT_WORK_GROUP)
    extents: tuple[int, int, int] | None = None
    vgpr_spills: int | None = None
    sgpr_spills: int | None = None
    code_bytes: int | None = None
    llvm_occupancy: int | None = None
    waves_vectors: int = 0
    waves_sgprs: int = 0

    def completed(self, used: Iterable[int], target: Target, code_bytes: int | None) -> Figures:
        """The figures with the missing ones filled in.

        Args:
            used: numbers of the registers that the code names.
        """
        highest = {"v": 0, "a": 0, "s": 0}
        numbers = set(used)
        for number in numbers:
            bank, base = (
                ("v", 0)
                if number < instructions.AGPR
                else ("a", instructions.AGPR)
                if number < instructions.SGPR
                else ("s", instructions.SGPR)
            )
            if number < instructions.TTMP:
                highest[bank] = max(highest[bank], number - base + 1)
        scalars = highest["s"] + extra_sgprs(target, vcc=instructions.VCC in numbers)
        return replace(
            self,
            vectors=vector_registers(target, highest["v"], highest["a"]) if self.vectors is None else self.vectors,
            agprs=highest["a"] if self.agprs is None else self.agprs,
            sgprs=scalars if self.sgprs is None else self.sgprs,
            lds_bytes=self.lds_bytes or 0,
            code_bytes=code_bytes if self.code_bytes is None else self.code_bytes,
        )

    def occupancy(self, target: Target) -> int:
        """Waves per SIMD (GCNSubtarget::computeOccupancy, ``target/occupancy.py``), by the size of a work-group where
        it is known, else by the range of sizes that the code is compiled for.
        """
        vectors, scalars = max(self.vectors or 0, self.waves_vectors), max(self.sgprs or 0, self.waves_sgprs)
        size = math.prod(self.extents) if self.extents is not None else 0
        sizes = (size, size) if size else self.work_group
        return waves(target, vectors, 0, scalars, self.lds_bytes or 0, sizes)


def launched(most: int | None, required: Sequence[int]) -> tuple[int, int, int] | None:
    """Work-items of a work-group in each dimension; None where not known.

    Required extents say it (``reqd_work_group_size``). A kernel compiled for at most so many work-items, fewer than
    LLVM's default, is taken to be started with so many, in one dimension (assumed; Triton's ``num_warps`` and IREE's
    work-group sizes come so).
    """
    if len(required) == 3:
        return required[0], required[1], required[2]
    return (most, 1, 1) if most and most < MAX_FLAT_WORK_GROUP else None


def work_group(most: int | None, required: Sequence[int]) -> tuple[int, int]:
    """Least and most work-items of a work-group, from the metadata's greatest size and required extents.

    Without required extents the least is 1: the metadata does not have that of ``amdgpu-flat-work-group-size``.
    """
    size = most or MAX_FLAT_WORK_GROUP
    least = math.prod(required) if required else 1
    return min(least, size), size


_COMMENTS = {
    "codeLenInByte": "code_bytes",
    "TotalNumSgprs": "sgprs",
    "NumVgprs": "vgprs",
    "NumAgprs": "agprs",
    "TotalNumVgprs": "vectors",
    "ScratchSize": "scratch_bytes",
    "LDSByteSize": "lds_bytes",
    "Occupancy": "llvm_occupancy",
    "NumVGPRsForWavesPerEU": "waves_vectors",
    "NumSGPRsForWavesPerEU": "waves_sgprs",
}
_COMMENT = re.compile(
    r"^; (\w+)(?::| =) (\d+|\d+\+max\(.*\)|max\(.*\)|[\w.$]+)(?: bytes/workgroup.*)?\s*$", re.MULTILINE
)
_SET = re.compile(r"^\s*\.set ([\w.$]+), (\S.*?)\s*$", re.MULTILINE)
_SUM = re.compile(r"(?:(?P<plus>\d+)\+)?max\((?P<of>[^()]*)\)")
_END = re.compile(r"^\.Lfunc_end\d+:\n\s*\.size\s+(?P<name>\"[^\"]+\"|[^\s,]+)", re.MULTILINE)
_NOTE = re.compile(r"^\s*\.amdgpu_metadata\n(.*?)^\s*\.end_amdgpu_metadata", re.MULTILINE | re.DOTALL)
_ENTRY = re.compile(r"^(?:  - |    )\.(?P<key>\w+):\s*(?P<value>\S.*)?$", re.MULTILINE)
_ITEM = re.compile(r"^      - (\d+)$", re.MULTILINE)


def figures_of_text(text: str, target: Target) -> dict[str, Figures]:
    """Figures of every function of llc's assembly, by name."""
    by_name: dict[str, Figures] = {}
    symbols = dict(_SET.findall(text))
    ends = list(_END.finditer(text))
    for k, end in enumerate(ends):
        stop = ends[k + 1].start() if k + 1 < len(ends) else text.find("\n\t.amdgpu_metadata", end.end())
        body = text[end.end() : stop if stop >= 0 else len(text)]
        # Instructions of the next function may have comments, but none of this form.
        resolved = {_COMMENTS[n]: _resolved(value, symbols) for n, value in _COMMENT.findall(body) if n in _COMMENTS}
        values = {name: value for name, value in resolved.items() if value is not None}
        vgprs = values.pop("vgprs", None)
        if vgprs is not None and "vectors" not in values:
            values["vectors"] = vector_registers(target, vgprs, values.get("agprs", 0))
        by_name[end["name"].strip('"')] = replace(Figures(is_kernel="; Kernel info:" in body), **values)
    for note in _NOTE.findall(text):
        for entry in re.split(r"^(?=  - )", note, flags=re.MULTILINE)[1:]:
            keys = {m["key"]: (m["value"] or "").strip() for m in _ENTRY.finditer(entry)}
            name = keys.get("name", "").strip("'\"")
            if name and "vgpr_count" in keys:
                by_name[name] = _with_metadata(by_name.get(name, Figures()), keys, entry)
    return by_name


def _resolved(value: str, symbols: Mapping[str, str], depth: int = 0) -> int | None:
    """A number, or what LLVM adds up of what a function calls, where the callees come behind it in the text.

    ``16+max(.La.private_seg_size, …)``; None for recursion, and for symbols of other files.
    """
    if value.isdecimal():
        return int(value)
    if depth > len(symbols):
        return None
    if value in symbols:
        return _resolved(symbols[value], symbols, depth + 1)
    if (sum_ := _SUM.fullmatch(value)) is None:
        return None
    parts = [_resolved(part.strip(), symbols, depth + 1) for part in sum_["of"].split(",")]
    known = [part for part in parts if part is not None]
    return int(sum_["plus"] or 0) + max(known) if len(known) == len(parts) else None


def _with_metadata(figures: Figures, keys: dict[str, str], entry: str) -> Figures:
    def number(key: str) -> int | None:
        return int(keys[key]) if keys.get(key, "").isdecimal() else None

    required = re.search(r"\.reqd_workgroup_size:\n((?:      - \d+\n)+)", entry)
    extents = [int(extent) for extent in _ITEM.findall(required[1])] if required else []
    return replace(
        figures,
        is_kernel=True,
        vectors=number("vgpr_count"),
        agprs=number("agpr_count") or 0,
        sgprs=number("sgpr_count"),
        lds_bytes=number("group_segment_fixed_size"),
        scratch_bytes=number("private_segment_fixed_size"),
        vgpr_spills=number("vgpr_spill_count"),
        sgpr_spills=number("sgpr_spill_count"),
        work_group=work_group(number("max_flat_workgroup_size"), extents),
        extents=launched(number("max_flat_workgroup_size"), extents),
    )
