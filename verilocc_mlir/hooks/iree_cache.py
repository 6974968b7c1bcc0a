"""Whole modules kept by content: compiling the same module again only reads the store.

The key names all that the result depends on: the module, the flags, iree-compile itself, the policy, and the keys of
the kernels' compilations (``pipeline.key``), which name LLVM, Z3, the settings and the sources of this project.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from typing import Any

import msgspec

from verilocc_mlir.errors import VeriloccError
from verilocc_mlir.hooks.baseline import Comparison, Replace
from verilocc_mlir.hooks.iree_compiler import IreeCompiler
from verilocc_mlir.hooks.iree_result import IreeKernel
from verilocc_mlir.hooks.kernels import Kernels, KernelSource, NativeVerdict
from verilocc_mlir.pipeline.key import Keys

_MODULE, _INDEX = "module.vmfb", "kernels.json"
_PLAIN = ("executable", "ours", "reason", "declined")
"""Attributes of a kernel that the index has as they are."""


class KeptModules:
    """The modules that a store has for one way of compiling them."""

    def __init__(self, kernels: Kernels, iree: IreeCompiler, policy: Replace) -> None:
        self._kernels = kernels
        self._iree = iree
        self._policy = policy

    def key(self, module: bytes, flags: Sequence[str]) -> str:
        """The name of a module; ``""`` where nothing is kept, or a server has a part in it."""
        if self._kernels.store is None or self._kernels.settings.server:
            return ""
        program = self._iree.path.stat()
        parts = [str(self._iree.path), program.st_size, program.st_mtime_ns, self._policy.value, *flags]
        digest = hashlib.sha256(json.dumps(parts).encode() + b"\0" + module).hexdigest()
        return Keys(self._kernels.settings, self._kernels.toolchain).of(digest)

    def get(self, key: str) -> tuple[bytes, tuple[IreeKernel, ...]] | None:
        """The file and its kernels; None where it is not kept, or its code objects are not in it as they are."""
        store = self._kernels.store
        parts = store.get(key) if store is not None and key else None
        if parts is None:
            return None
        try:
            kernels = tuple(_read(row, parts, n) for n, row in enumerate(json.loads(parts[_INDEX])))
            faults = accounted(parts[_MODULE], {k.executable: k.code_object for k in kernels})
        except (VeriloccError, KeyError, TypeError, ValueError):  # an entry of another version
            return None
        return None if faults else (parts[_MODULE], kernels)

    def put(self, key: str, vmfb: bytes, kernels: Sequence[IreeKernel]) -> None:
        """Keep it, if each kernel would come out the same way again."""
        store = self._kernels.store
        if store is None or not key or not all(kernel.keyed for kernel in kernels):
            return
        parts = {_MODULE: vmfb, _INDEX: json.dumps([_index(kernel) for kernel in kernels]).encode()}
        for number, kernel in enumerate(kernels):
            for name, data in _bytes(kernel).items():
                parts[f"{number}.{name}"] = data
        with suppress(OSError):  # a full disk costs the next run its time, not this one its result
            store.put(key, parts)


def _bytes(kernel: IreeKernel) -> dict[str, bytes]:
    texts = {"report": json.dumps(kernel.report), "before": kernel.before, "after": kernel.after}
    parts = {"own": kernel.own, **{name: text.encode() for name, text in texts.items()}}
    if kernel.code_object != kernel.own:
        parts["object"] = kernel.code_object
    if kernel.source is not None:
        parts["ir"] = kernel.source.ir
    return parts


def _index(kernel: IreeKernel) -> dict[str, Any]:
    return {
        **{name: getattr(kernel, name) for name in _PLAIN},
        "source": None if kernel.source is None else {**asdict(kernel.source), "ir": ""},
        "comparison": msgspec.to_builtins(kernel.comparison),
        "native": kernel.native and kernel.native.to_data(),
    }


def _read(row: dict[str, Any], parts: dict[str, bytes], number: int) -> IreeKernel:
    own = parts[f"{number}.own"]
    source: dict[str, Any] | None = row["source"]
    if source is not None:
        source |= {"ir": parts[f"{number}.ir"], "llc_options": tuple(source["llc_options"])}
    return IreeKernel(
        **{name: row[name] for name in _PLAIN},
        code_object=parts.get(f"{number}.object", own),
        own=own,
        report=json.loads(parts[f"{number}.report"]),
        before=parts[f"{number}.before"].decode(),
        after=parts[f"{number}.after"].decode(),
        source=None if source is None else KernelSource(**source),
        comparison=msgspec.convert(row["comparison"], Comparison),
        native=None if row["native"] is None else NativeVerdict(**row["native"]),
    )


# Which code objects are in an IREE module file (.vmfb), byte for byte.
#
# The file holds each one whole and uncompressed, so that it can be found by its bytes.


_ELF = b"\x7fELF"
_EM_AMDGPU = (224).to_bytes(2, "little")
_MACHINE_OFFSET = 18
"""``e_machine`` in the ELF header."""


def accounted(vmfb: bytes, wanted: Mapping[str, bytes]) -> list[str]:
    """What is wrong with the code objects of ``vmfb``: one message each, none if it has those wanted and no others."""
    faults = [f"the code object of {name} is not in the file" for name, data in wanted.items() if data not in vmfb]
    at = vmfb.find(_ELF)
    while at >= 0:
        machine = vmfb[at + _MACHINE_OFFSET : at + _MACHINE_OFFSET + 2]
        if machine == _EM_AMDGPU and not any(vmfb.startswith(data, at) for data in wanted.values()):
            faults.append(f"the code object at byte {at} is none of those that belong there")
        at = vmfb.find(_ELF, at + 1)
    return faults
