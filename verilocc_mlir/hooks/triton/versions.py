"""What the result of a compilation depends on beside Triton's own inputs: its part of Triton's cache key."""

from __future__ import annotations

from importlib import metadata

import verilocc_mlir
from verilocc_mlir.hooks.baseline import Replace
from verilocc_mlir.pipeline.key import allocator_versions, file_stats, source_digest
from verilocc_mlir.pipeline.settings import Settings
from verilocc_mlir.toolchain.find import LlvmTools


def cache_key(settings: Settings, toolchain: LlvmTools, targets: tuple[str, ...], policy: Replace) -> str:
    """One line that names this project's code, the allocator, the verifier's solver, LLVM and the settings.

    Development versions of this project and of LLVM change without a new number: the sources are hashed, and LLVM is
    told apart by size and time as well.
    """
    parts = [
        f"verilocc {verilocc_mlir.__version__} {source_digest()[:16]}",
        f"allocator {settings.allocator} {allocator_versions(settings)}",
        f"z3 {metadata.version('z3-solver')}",
        f"llvm {toolchain.version_text} {file_stats(toolchain)}",
        f"settings {settings}",
        f"targets {','.join(targets)}",
        f"replace {policy.value}",
    ]
    return "; ".join(parts)
