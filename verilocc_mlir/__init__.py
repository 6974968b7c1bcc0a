"""VeriLocc-MLIR: register allocation for AMD GPUs in which every result is proved before it becomes code.

``verilocc_mlir.compile`` is ``verilocc_mlir.hooks.torch.compile``, loaded when it is first asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from verilocc_mlir.version import __version__

if TYPE_CHECKING:
    from verilocc_mlir.hooks.torch import compile as compile

__all__ = ["__version__", "compile"]


def __getattr__(name: str) -> Any:
    if name == "compile":
        from verilocc_mlir.hooks.torch import compile

        return compile
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
