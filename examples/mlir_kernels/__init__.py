"""Parametrised GEMM and attention kernels for AMD's matrix cores, written in MLIR's ``amdgpu`` dialect.

``kernels(count, seed, targets, kinds)`` yields (configuration, LLVM IR); ``Gemm(…).mlir()`` and ``Attention(…).mlir()``
give one kernel as MLIR; ``space(target, kind)`` enumerates every configuration. From the shell::

    python -m examples.mlir_kernels --target gfx942 --count 10 --out DIR
"""

from .attention import Attention
from .gemm import Gemm
from .instructions import TARGETS, Instruction, instructions
from .lower import to_llvm_ir
from .space import KINDS, Config, kernels, sample, space

__all__ = [
    "KINDS",
    "TARGETS",
    "Attention",
    "Config",
    "Gemm",
    "Instruction",
    "instructions",
    "kernels",
    "sample",
    "space",
    "to_llvm_ir",
]
