"""From the generator's MLIR to LLVM IR text, with whichever MLIR Python bindings are installed."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from verilocc_mlir.hooks.mlir_compile import rename_math
from verilocc_mlir.hooks.mlir_pipeline import Bindings

LOWERING = (
    "gpu.module(convert-scf-to-cf,convert-gpu-to-rocdl{{chipset={chip} runtime=HIP index-bitwidth=64 "
    "use-bare-ptr-memref-call-conv=true}},reconcile-unrealized-casts)"
)
"""Pipeline elements that bring the kernels to the LLVM and ROCDL dialects; ``chip`` is to be filled in."""


@lru_cache(maxsize=1)
def session() -> tuple[Bindings, Any]:
    """The bindings and one context for all kernels: a new one costs more than a kernel."""
    bindings = Bindings.find()
    return bindings, bindings.ir.Context()


@lru_cache(maxsize=16)
def _pass_manager(chip: str) -> Any:
    bindings, context = session()
    with context:
        return bindings.passmanager.PassManager.parse(f"builtin.module({LOWERING.format(chip=chip)})")


def to_llvm_ir(mlir: str, chip: str) -> str:
    """LLVM IR of the one ``gpu.module`` of ``mlir``, not optimised; math functions are LLVM's intrinsics."""
    bindings, context = session()
    with context:
        module = bindings.ir.Module.parse(mlir)
        _pass_manager(chip).run(module.operation)
        # The generator's modules translate: no copy of the process is needed to be safe from them.
        ir = bindings.translate(next(iter(module.body.operations)), isolated=False)
        return rename_math(ir, library=False).text
