"""What came of a module that went through IREE: the file, each kernel, and the report."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from verilocc_mlir.errors import ExitCode
from verilocc_mlir.toolchain.metadata import read_code_object
from verilocc_mlir.version import __version__

REPORT_VERSION = 1
"""Version of the JSON form; raised whenever it changes."""

_DIGITS = 4


@dataclass(frozen=True)
class IreeKernel:
    """One executable of the module.

    Attributes:
        executable: its symbol in the module.
        proved: its code object is ours, every register assignment in it proved.
        reason: why it is left as IREE made it; ``""`` where it is not.
        code_object: the bytes that are in the file.
        own: the code object IREE made.
        report: of ``verilocc compile``; empty where it did not come to one.
        before: machine IR as it entered allocation; ``""`` where it did not come to that.
        after: machine IR after the last phase; likewise.
    """

    executable: str
    proved: bool
    reason: str
    code_object: bytes
    own: bytes
    report: Mapping[str, Any]
    before: str
    after: str

    @property
    def functions(self) -> tuple[str, ...]:
        """Names of the kernels in the code object."""
        return tuple(read_code_object(self.code_object).kernels)

    @property
    def phases(self) -> list[Mapping[str, Any]]:
        """Entries of the report for each function and phase."""
        return [phase for function in self.report.get("functions", ()) for phase in function["phases"]]

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
        wall_seconds: elapsed time.
    """

    target: str
    input: str
    vmfb: bytes
    kernels: tuple[IreeKernel, ...]
    iree: str
    llvm: str
    flags: tuple[str, ...]
    wall_seconds: float

    @property
    def proved(self) -> bool:
        """Whether every kernel in the file is."""
        return all(kernel.proved for kernel in self.kernels)

    @property
    def exit_code(self) -> ExitCode:
        """PROVED if every kernel in the file is, REFUTED if one of ours has a counterexample, else UNKNOWN."""
        if self.proved:
            return ExitCode.PROVED
        refuted = any(not k.proved and k.report.get("outcome") == "refuted" for k in self.kernels)
        return ExitCode.REFUTED if refuted else ExitCode.UNKNOWN

    @cached_property
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
            "vmfb": {"bytes": len(self.vmfb), "sha256": hashlib.sha256(self.vmfb).hexdigest()},
            "kernels": [_kernel(kernel) for kernel in self.kernels],
            "wall_seconds": round(self.wall_seconds, _DIGITS),
        }

    def counts(self) -> dict[str, int]:
        """Kernels: all, proved, proved with our allocation in every phase, proved with a fallback, left to IREE."""
        proved = [k for k in self.kernels if k.proved]
        fallbacks = [k for k in proved if k.fallbacks]
        return {
            "kernels": len(self.kernels),
            "proved": len(proved),
            "ours": len(proved) - len(fallbacks),
            "with_fallback": len(fallbacks),
            "left": len(self.kernels) - len(proved),
        }

    def to_json(self) -> str:
        """The report as indented JSON with a final line break."""
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


def _kernel(kernel: IreeKernel) -> dict[str, Any]:
    own = read_code_object(kernel.own).kernels
    return {
        "executable": kernel.executable,
        "functions": list(kernel.functions),
        "status": "proved" if kernel.proved else "left",
        "reason": kernel.reason or None,
        "fallbacks": kernel.fallbacks,
        "obligations": sum(phase["obligations"] for phase in kernel.phases),
        "code_object": {
            "bytes": len(kernel.code_object),
            "sha256": hashlib.sha256(kernel.code_object).hexdigest(),
            "in_vmfb": True,
        },
        "iree": {name: _registers(entry) for name, entry in own.items()},
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
    given = {**kernel.report["input"], "path": kernel.executable}
    return {**kernel.report, "input": given, "output": None}


def total_cpu_seconds(kernels: Sequence[IreeKernel]) -> float:
    """What allocating and proving took, IREE not counted."""
    return sum(kernel.report["time"]["cpu_seconds"] for kernel in kernels if kernel.report)
