"""Triton kernels with proved register assignments: a hook in Triton's own compilation, for AMD GPUs.

    import verilocc_mlir.hooks.triton as verilocc_triton
    verilocc_triton.install()

From then on the LLVM IR of every kernel that Triton compiles for a supported target goes through this project's
pipeline, and the proved assembly and code object take the place of Triton's. A kernel that cannot be handled, or is not
proved, is compiled by Triton as ever. ``reports()`` says which was which and why; so does ``metadata.verilocc`` of the
compiled kernel, also when it comes from Triton's cache.

Without a change to the program: ``VERILOCC_TRITON=1`` in the environment, or ``python -m verilocc_mlir.hooks.triton
script.py``. Importing this package does not import Triton. docs/guide/triton.md is its manual.
"""

from __future__ import annotations

from verilocc_mlir.hooks.triton.hook import install, install_from_environment, installed, uninstall
from verilocc_mlir.hooks.triton.plan_tuner import autotune_plans, plan_configs
from verilocc_mlir.hooks.triton.records import KernelRecord, clear_reports, reports

__all__ = [
    "KernelRecord",
    "autotune_plans",
    "clear_reports",
    "install",
    "install_from_environment",
    "installed",
    "plan_configs",
    "reports",
    "uninstall",
]
