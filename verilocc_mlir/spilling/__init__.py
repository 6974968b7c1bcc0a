"""Register pressure brought down to what there is: spilling, rematerialisation, live-range splitting."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from verilocc_mlir.spilling.actions import SpillAction

if TYPE_CHECKING:
    from verilocc_mlir.spilling.relieve import Relieved, Spiller

__all__ = ["Relieved", "SpillAction", "Spiller"]


def __getattr__(name: str) -> Any:
    # Most functions need no spill code.
    if name in __all__:
        from verilocc_mlir.spilling import relieve

        return getattr(relieve, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
