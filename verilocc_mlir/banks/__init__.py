"""Which vector register file values live in, where the instructions leave a choice (gfx90a, gfx942, gfx950)."""

from __future__ import annotations

from verilocc_mlir.banks.mfma import in_vgprs

__all__ = ["in_vgprs"]
