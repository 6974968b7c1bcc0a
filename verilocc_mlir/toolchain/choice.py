"""The user's choice of an LLVM."""

from __future__ import annotations

from enum import Enum

TOOLCHAIN_VARIABLE = "VERILOCC_TOOLCHAIN"
"""Environment variable that makes the choice where no option does."""


class ToolchainChoice(Enum):
    """``AUTO``: llc where a suitable one is found, else Triton's."""

    AUTO = "auto"
    LLC = "llc"
    TRITON = "triton"
