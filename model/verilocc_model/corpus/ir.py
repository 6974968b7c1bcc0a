"""LLVM IR of a cell: a text that also names the processor and its features, stored by content.

``llc -mtriple=amdgcn-amd-amdhsa -O3 FILE.ll`` (LLVM 22 or later) compiles it. It does not depend on the machine or the
directory in which it was made.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path

from verilocc_mlir.store import Store
from verilocc_mlir.toolchain.ir_compat import downgrade
from verilocc_model.corpus.sources import ROOT, Cell, source

_CODE = {
    "mlir": (Path(__file__).parent / "sources", ROOT / "examples" / "mlir_kernels"),
    "triton": (Path(__file__).parent / "sources", ROOT / "examples" / "triton_kernels.py"),
    "iree": (Path(__file__).parent / "sources",),
}


def ir(cell: Cell, store: Store | None = None) -> str:
    """The IR of ``cell``, from ``store`` if it is there.

    Raises:
        VeriloccError: the front end is missing, or cannot make this kernel.
    """
    made_by = source(cell.source)
    key = hashlib.sha256(json.dumps([_code(cell.source), made_by.version(), cell.key]).encode()).hexdigest()
    stored = store.get(key) if store is not None else None
    if stored is not None:
        return stored["ir"].decode()
    text = canonical(made_by.make(cell), cell)
    if store is not None:
        store.put(key, {"ir": text.encode()})
    return text


def _code(name: str) -> str:
    """Digest of the code that makes a source's IR, so that no older IR is taken from a store."""
    digest = hashlib.sha256(Path(__file__).read_bytes())
    for place in _CODE[name]:
        for path in sorted(place.rglob("*.py")) if place.is_dir() else [place]:
            digest.update(path.read_bytes())
    return digest.hexdigest()


def canonical(text: str, cell: Cell) -> str:
    """A front end's IR for LLVM 22, with its processor and limits, without comments that say how it was made."""
    text = downgrade(text, where=cell.name).text
    text = re.sub(r"^(?:;.*)?\n", "", text, flags=re.M)
    text = re.sub(r"^source_filename = .*\n", f'source_filename = "{cell.name}"\n', text, flags=re.M)
    limits = {name: str(value) for name, value in cell.limits}
    return f"; {cell}\n{with_attributes(text, {'target-cpu': cell.target, **limits})}"


# String attributes of the functions that LLVM IR text defines.


_DEFINE = re.compile(
    r'^(define (?:[^@\n"]|"[^"\n]*")*@(?:"[^"\n]*"|[\w.$-]+)\(.*\)(?: (?:local_)?unnamed_addr)?)(?= |$)', re.MULTILINE
)


def with_attributes(ir: str, attributes: Mapping[str, str]) -> str:
    """The IR with these attributes on its functions; they replace attributes of the same name."""
    if not attributes:
        return ir
    for name in attributes:
        ir = re.sub(rf'"{re.escape(name)}"="[^"]*" ?', "", ir)
    added = " ".join(f'"{name}"="{value}"' for name, value in attributes.items())
    return _DEFINE.sub(rf"\1 {added}", ir)


def with_features(ir: str, features: str) -> str:
    """The IR with further target features on its functions."""
    if not features:
        return ir
    present = re.findall(r'"target-features"="([^"]*)"', ir)
    return with_attributes(ir, {"target-features": ",".join(dict.fromkeys([*present, features]))})
