"""The baseline of ``verilocc gate`` as JSON: one entry a kernel, in a stable order, without paths."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any

import msgspec

from smt_verifier.outcome import Outcome
from verilocc_mlir import forms
from verilocc_mlir.errors import InputError
from verilocc_mlir.forms import Form, Tool, Whole, about, filled
from verilocc_mlir.results.gate import GATE_VERSION, Kernel

_HINT = "verilocc gate --update writes a new one"


class KernelForm(Form):
    """One kernel; null where a figure is not known."""

    name: Annotated[str, about("symbol")]
    demangled: Annotated[str, about("the name in the source language; not compared")]
    target: Annotated[str, about("processor, as for -mcpu")]
    work_items: Annotated[int | None, about("most work-items of a work-group; tells kernels of one name apart")]
    vgprs: Annotated[int, about("accumulators included where the file is unified", minimum=0)]
    agprs: Annotated[int, about("of those", minimum=0)]
    sgprs: Annotated[int, about("VCC and the like included", minimum=0)]
    vgpr_spills: Whole | None
    sgpr_spills: Whole | None
    waves: Annotated[int, about("per SIMD", minimum=0)]
    scratch_bytes: Annotated[int | None, about("of a work-item")]
    lds_bytes: Annotated[int | None, about("of a work-group")]
    verdict: Annotated[Outcome | None, about("of the allocation; null: nothing is stated")]


class BaselineDocument(Form, kw_only=True):
    """A baseline of ``verilocc gate``."""

    gate_version: Annotated[int, about("of this form", const=GATE_VERSION)] = GATE_VERSION
    tool: Tool
    kernels: list[KernelForm]


def schema() -> dict[str, Any]:
    return forms.json_schema(BaselineDocument, title=f"Baseline of verilocc gate, version {GATE_VERSION}")


def to_json(kernels: Iterable[Kernel], version: str) -> str:
    ordered = sorted(kernels, key=_order)
    return forms.to_json(
        BaselineDocument(tool=Tool(version=version), kernels=[filled(KernelForm, kernel) for kernel in ordered])
    )


def from_json(data: bytes, path: str) -> tuple[Kernel, ...]:
    """The kernels of a baseline.

    Raises:
        InputError: it is none, or of another version of the form.
    """
    try:
        document = msgspec.json.decode(data, type=BaselineDocument)
    except msgspec.DecodeError as error:
        raise InputError(f"this is no baseline of verilocc gate: {error}", where=path, hint=_HINT) from error
    if document.gate_version != GATE_VERSION:
        message = f"this baseline has gate_version {document.gate_version}, not {GATE_VERSION}"
        raise InputError(message, where=path, hint=_HINT)
    return tuple(Kernel(**msgspec.structs.asdict(kernel)) for kernel in document.kernels)


def _order(kernel: Kernel) -> tuple[Any, ...]:
    return kernel.name, kernel.target, kernel.work_items or 0, kernel.vgprs, kernel.sgprs, kernel.lds_bytes or 0
