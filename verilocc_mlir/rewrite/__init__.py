"""An allocation written back into machine IR, as LLVM's own rewriter would (llvm/lib/CodeGen/VirtRegRewriter.cpp)."""

from __future__ import annotations

from verilocc_mlir.rewrite.function import rewrite_function

__all__ = ["rewrite_function"]
