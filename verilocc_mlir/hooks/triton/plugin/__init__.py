"""Loaded by ``import triton`` (entry point group ``triton.backends``): installs the hook if ``VERILOCC_TRITON`` asks.

Triton has no group for hooks, only for backends, and imports the modules ``compiler`` and ``driver`` of each. So this
is a backend that supports no target and a driver that is never active. It must never stop ``import triton``: whatever
goes wrong here becomes a warning.
"""

from __future__ import annotations

import os
import warnings


def start() -> None:
    if not os.environ.get("VERILOCC_TRITON"):
        # The usual case, in every process that imports Triton: nothing of ours is loaded.
        return
    try:
        from verilocc_mlir.hooks.triton.hook import install_from_environment

        install_from_environment()
    except Exception as error:
        warnings.warn(f"VERILOCC_TRITON is set, but kernels are not proved: {error}", RuntimeWarning, stacklevel=2)
