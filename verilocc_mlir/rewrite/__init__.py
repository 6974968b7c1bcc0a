"""An allocation written back into machine IR, as LLVM's own rewriter would (llvm/lib/CodeGen/VirtRegRewriter.cpp)."""

from __future__ import annotations

from verilocc_mlir.rewrite.arguments import arguments_in_place
from verilocc_mlir.rewrite.function import rewrite_function

__all__ = ["arguments_in_place", "rewrite_function"]
