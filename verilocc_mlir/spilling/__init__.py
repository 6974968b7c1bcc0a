"""Register pressure brought down to what there is: spilling, rematerialisation, live-range splitting."""

from __future__ import annotations

from verilocc_mlir.spilling.actions import SpillAction
from verilocc_mlir.spilling.relieve import Relieved, Spiller

__all__ = ["Relieved", "SpillAction", "Spiller"]
