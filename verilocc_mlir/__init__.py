"""VeriLocc-MLIR: register allocation for AMD GPUs in which every result is proved before it becomes code."""

from __future__ import annotations

__version__ = "0.1.0"
