"""What came of a module that went through IREE: the file, each kernel, and the report."""

from __future__ import annotations

import hashlib
import json
import resource
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from verilocc_mlir.errors import ExitCode, VeriloccError
from verilocc_mlir.forms import filled, to_data
from verilocc_mlir.hooks.baseline import Comparison, Replace
from verilocc_mlir.hooks.iree_compiler import IreeCompiler
from verilocc_mlir.hooks.kernels import NATIVE, Kernels, KernelSource, NativeVerdict
from verilocc_mlir.pipeline.key import Keys
from verilocc_mlir.results.compile import ModelPart, models_in_documents
from verilocc_mlir.results.compile_document import ModelPartForm
from verilocc_mlir.toolchain.descriptor import read_code_object
from verilocc_mlir.version import __version__

REPORT_VERSION = 5
"""Version of the JSON form; raised whenever it changes."""

_DIGITS = 4
_NOT_COMPARED = Comparison({}, {}, "not compared")


@dataclass(frozen=True)
class Spent:
    """What a compilation took: elapsed seconds, CPU seconds of all processes, and iree-compile's share of those."""

    wall_seconds: float
    cpu_seconds: float
    iree_seconds: float = 0.0

    @classmethod
    def begin(cls) -> Spent:
        """The clocks as they stand; ``end`` takes the difference."""
        return cls(time.monotonic(), _cpu_of_all())

    def end(self, iree_seconds: float) -> Spent:
        """What was spent since."""
        return Spent(time.monotonic() - self.wall_seconds, _cpu_of_all() - self.cpu_seconds, iree_seconds)

    def to_data(self) -> dict[str, float]:
        return {key: round(getattr(self, key), _DIGITS) for key in ("wall_seconds", "cpu_seconds", "iree_seconds")}


def _cpu_of_all() -> float:
    """CPU seconds of this process and of those that it waited for."""
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


@dataclass(frozen=True)
class IreeKernel:
    """One executable of the module.

    Attributes:
        executable: its symbol in the module.
        ours: its code object is ours, every register assignment in it proved.
        reason: why it stays as IREE made it; ``""`` where it does not.
        code_object: the bytes that are in the file.
        own: the code object IREE made.
        report: of ``verilocc compile``; empty where it did not come to one.
        before: machine IR as it entered allocation; ``""`` where it did not come to that.
        after: machine IR after the last phase; likewise.
        comparison: ours beside IREE's own, by the model.
        declined: ours is proved, and IREE's stays, because ``replace`` says so.
        spare: ours where it is declined although the two are tied, for IREE's own may not be proved; else empty.
        native: the verdict on IREE's own allocation, where that stays; None where it does not.
        measured: what was measured of ours beside IREE's, and decided; ``""`` where nothing was.
        keyed: the store may keep it.
        source: its LLVM IR and how it was compiled; None where there is none.
    """

    executable: str
    ours: bool
    reason: str
    code_object: bytes
    own: bytes
    report: Mapping[str, Any]
    before: str
    after: str
    comparison: Comparison = _NOT_COMPARED
    declined: bool = False
    spare: bytes = field(default=b"", repr=False, compare=False)
    native: NativeVerdict | None = None
    measured: str = ""
    keyed: bool = True
    source: KernelSource | None = field(default=None, repr=False, compare=False)

    @property
    def proved(self) -> bool:
        """Whether the registers in its code object are proved, ours or IREE's own."""
        return self.ours or (self.native is not None and self.native.proved)

    @property
    def status(self) -> str:
        """``"proved"``: ours is in the file; ``"native, proved"``: IREE's own is, proved; else nobody proves what is
        there: ``"declined"``, although ours is proved, or ``"left"``.
        """
        if self.proved:
            return "proved" if self.ours else NATIVE
        return "declined" if self.declined else "left"

    @property
    def functions(self) -> tuple[str, ...]:
        return tuple(read_code_object(self.code_object).kernels)

    @property
    def phases(self) -> list[Mapping[str, Any]]:
        """Entries of the report for each function and phase."""
        return [phase for function in self.report.get("functions", ()) for phase in function["phases"]]

    @property
    def obligations(self) -> int:
        """Checked of the code that is in the file, or else of ours."""
        if self.native is not None and self.native.phases:
            return self.native.obligations
        return sum(phase["obligations"] for phase in self.phases)

    @property
    def fallbacks(self) -> list[str]:
        """Phases in which LLVM's allocation was taken, and audited, because ours did not do: one reason each."""
        return [
            f"{function['name']}, {phase['phase'].upper()}: {phase['fallback_reason']}"
            for function in self.report.get("functions", ())
            for phase in function["phases"]
            if phase["fallback"] and phase["phase"] != "wwm"
        ]


@dataclass(frozen=True)
class IreeResult:
    """A compiled module: the ``.vmfb``, its kernels, and how it was made.

    Attributes:
        target: as asked for.
        input: the source's name.
        vmfb: the file.
        kernels: its executables, in order.
        iree: version of iree-compile.
        llvm: version of the LLVM that the proved kernels went through.
        flags: further flags of iree-compile.
        spent: elapsed time and CPU time.
    """

    target: str
    input: str
    vmfb: bytes
    kernels: tuple[IreeKernel, ...]
    iree: str
    llvm: str
    flags: tuple[str, ...]
    spent: Spent

    @property
    def proved(self) -> bool:
        return all(kernel.proved for kernel in self.kernels)

    @property
    def server(self) -> tuple[str, ...]:
        """Why a server that was named had not its part, a line for each reason with how many kernels say it."""
        counts = Counter(said for kernel in self.kernels if (said := kernel.report.get("server")))
        of = f" of {len(self.kernels)} kernels"
        return tuple(f"in {count}{of}: {said}" for said, count in counts.items())

    @property
    def models(self) -> tuple[ModelPart, ...]:
        """The models that were asked, here and behind a server."""
        return models_in_documents(kernel.report for kernel in self.kernels)

    @property
    def exit_code(self) -> ExitCode:
        """PROVED if every kernel in the file is, by anyone; of the others, REFUTED if one has a counterexample, ours or
        IREE's own, else UNKNOWN.
        """
        if self.proved:
            return ExitCode.PROVED
        return ExitCode.REFUTED if any(_is_refuted(k) for k in self.kernels) else ExitCode.UNKNOWN

    @property
    def report(self) -> dict[str, Any]:
        """All of it but the bytes, as plain lists and dictionaries."""
        return {
            "report_version": REPORT_VERSION,
            "tool": {"name": "verilocc", "version": __version__, "llvm": self.llvm, "iree": self.iree},
            "input": self.input,
            "target": self.target,
            "flags": list(self.flags),
            "exit_code": int(self.exit_code),
            "counts": self.counts(),
            "server": list(self.server),
            "models": [to_data(filled(ModelPartForm, part)) for part in self.models],
            "vmfb": {"bytes": len(self.vmfb), "sha256": hashlib.sha256(self.vmfb).hexdigest()},
            "kernels": [_kernel(kernel) for kernel in self.kernels],
            **self.spent.to_data(),
        }

    def counts(self) -> dict[str, int]:
        """Kernels: all, proved by anyone, ours in every phase, ours with a fallback, IREE's own and proved, IREE's own
        and proved by nobody, and IREE's own although ours is proved.
        """
        ours = [k for k in self.kernels if k.ours]
        fallbacks = [k for k in ours if k.fallbacks]
        proved = sum(k.proved for k in self.kernels)
        return {
            "kernels": len(self.kernels),
            "proved": proved,
            "ours": len(ours) - len(fallbacks),
            "with_fallback": len(fallbacks),
            "native": proved - len(ours),
            "left": len(self.kernels) - proved,
            "declined": sum(k.declined for k in self.kernels),
        }

    def to_json(self) -> str:
        return json.dumps(self.report, indent=2, ensure_ascii=False) + "\n"

    def save_temps(self, directory: Path) -> None:
        """Write each kernel's code object, IREE's own, and the machine IR before and after into ``directory``."""
        directory.mkdir(parents=True, exist_ok=True)
        for kernel in self.kernels:
            base = kernel.executable.replace("/", "_")
            texts = {"before.mir": kernel.before.encode(), "after.mir": kernel.after.encode()}
            for suffix, data in {"hsaco": kernel.code_object, "iree.hsaco": kernel.own, **texts}.items():
                if data:
                    (directory / f"{base}.{suffix}").write_bytes(data)


def _is_refuted(kernel: IreeKernel) -> bool:
    refuted = kernel.native is not None and kernel.native.refuted
    return not kernel.proved and (refuted or kernel.report.get("outcome") == "refuted")


def _kernel(kernel: IreeKernel) -> dict[str, Any]:
    own = read_code_object(kernel.own).kernels
    return {
        "executable": kernel.executable,
        "functions": list(kernel.functions),
        "status": kernel.status,
        "reason": kernel.reason or None,
        "native": kernel.native and kernel.native.to_data(),
        "fallbacks": kernel.fallbacks,
        "obligations": kernel.obligations,
        "code_object": {
            "bytes": len(kernel.code_object),
            "sha256": hashlib.sha256(kernel.code_object).hexdigest(),
            "in_vmfb": True,
        },
        "iree": {name: _registers(entry) for name, entry in own.items()},
        "modelled": kernel.comparison.to_data(),
        "measured": kernel.measured or None,
        "report": _report(kernel),
    }


def _registers(entry: Any) -> dict[str, int]:
    return {
        "vgprs": entry.vgpr_count,
        "sgprs": entry.sgpr_count,
        "vgpr_spills": entry.vgpr_spill_count,
        "sgpr_spills": entry.sgpr_spill_count,
    }


def _report(kernel: IreeKernel) -> Mapping[str, Any] | None:
    """Under the executable's name: the file that was compiled is gone."""
    if not kernel.report:
        return None
    input_row = {**kernel.report["input"], "path": kernel.executable}
    return {**kernel.report, "input": input_row, "output": None}


# Whole modules kept by content: compiling the same module again only reads the store.
#
# The key names all that the result depends on: the module, the flags, iree-compile itself, the policy, and the keys of
# the kernels' compilations (``pipeline.key``), which name LLVM, Z3, the settings and the sources of this project.


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
