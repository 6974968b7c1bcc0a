"""Triton's library as a set of LLVM tools."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from verilocc_mlir.toolchain.find import LlvmTools


@dataclass(frozen=True, kw_only=True)
class TritonTools(LlvmTools):
    """The LLVM inside Triton's ``library``, which has none of the optional tools."""

    place: ClassVar[str] = "in Triton's wheel"
    library: Path

    @property
    def files(self) -> dict[str, Path]:
        """See ``LlvmTools``."""
        return {"library": self.library}
