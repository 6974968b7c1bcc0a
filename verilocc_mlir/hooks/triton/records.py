"""What became of each kernel: one record per compilation, kept for this process and summarised in Triton's metadata."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any, Literal

from msgspec.structs import asdict

from verilocc_mlir.hooks.baseline import Comparison
from verilocc_mlir.hooks.kernels import NATIVE, NativeVerdict
from verilocc_mlir.results.compile import Report, Resources

Kind = Literal["proved", "declined", "option", "unsupported", "input", "toolchain", "not proved", "internal"]


@dataclass(frozen=True)
class KernelRecord:
    """One kernel that went through the hook.

    Attributes:
        hash: Triton's cache key of the compilation (``CompiledKernel.hash``).
        kind: ``"proved"``, or why Triton's own stays: ``"declined"``, ours is proved, and worse by the model or not
            wanted; an ``"option"`` that only Triton's own LLVM honours,
            ``"unsupported"`` or unreadable ``"input"``, a failing ``"toolchain"``, ``"not proved"``, or a fault in this
            project (``"internal"``).
        reason: why it passed through, in one line; empty for a proved one.
        phases: who allocated each phase, ``{"sgpr": "deterministic", "vgpr": "llvm"}``.
        fallbacks: for each phase in which LLVM's allocation was taken instead of ours, the reason.
        registers: what the kernel takes at run time; None if it passed through.
        greedy: the same for LLVM's own allocation of the same IR, by the LLVM that this project uses.
        comparison: ours beside Triton's own, by the model; None where they were not compared.
        native: the verdict on Triton's own allocation, where that stays; None where it was not audited.
        notes: what else a person should know.
        report: the whole report; None where the pipeline ended with an error, or the record comes from a cache.
    """

    name: str
    target: str
    hash: str
    kind: Kind
    reason: str = ""
    phases: dict[str, str] | None = None
    fallbacks: dict[str, str] | None = None
    registers: Resources | None = None
    greedy: Resources | None = None
    comparison: Comparison | None = None
    native: NativeVerdict | None = None
    notes: tuple[str, ...] = ()
    report: Report | None = None

    @property
    def ours(self) -> bool:
        """Whether the code object is this project's, and proved."""
        return self.kind == "proved"

    @property
    def proved(self) -> bool:
        """Whether the registers in the code object are proved, ours or Triton's own."""
        return self.ours or (self.native is not None and self.native.proved)

    @property
    def status(self) -> str:
        """``"proved"``: ours; ``"native, proved"``: Triton's own, proved; else the kind: nobody proves what runs."""
        return NATIVE if self.proved and not self.ours else self.kind

    def summary(self) -> dict[str, Any]:
        """The record as plain JSON data without the report: what Triton stores as ``metadata["verilocc"]``."""
        plain = {
            key: getattr(self, key) for key in ("name", "target", "kind", "reason", "phases", "fallbacks", "notes")
        }
        sizes = {key: value and asdict(value) for key in ("registers", "greedy") for value in (getattr(self, key),)}
        modelled = self.comparison and self.comparison.to_data()
        native = self.native and self.native.to_data()
        return {
            **plain,
            "status": self.status,
            "notes": list(self.notes),
            **sizes,
            "modelled": modelled,
            "native": native,
        }

    def __str__(self) -> str:
        if not self.ours:
            verdict = f"; {self.native}" if self.native else ""
            return f"{self.name} for {self.target}: passed through to Triton ({self.kind}{verdict}): {self.reason}"
        who = ", ".join(f"{phase.upper()} {allocator}" for phase, allocator in (self.phases or {}).items())
        return f"{self.name} for {self.target}: proved ({who})"


_lock = threading.Lock()
_records: list[KernelRecord] = []


def reports() -> tuple[KernelRecord, ...]:
    """Every kernel that this process compiled through the hook, in order. Kernels from Triton's cache are not among
    them: look at ``compiled.metadata.verilocc``.
    """
    with _lock:
        return tuple(_records)


def clear_reports() -> None:
    with _lock:
        _records.clear()


def add_record(record: KernelRecord) -> None:
    with _lock:
        _records.append(record)
