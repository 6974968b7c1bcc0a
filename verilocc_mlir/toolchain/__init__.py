"""Finding and driving LLVM: discovery, subprocesses, the staged run, and the traps.

Every tool runs in a process of its own, because malformed MIR aborts llc. docs/design/target.md has the commands,
the traps and the checks.
"""

from __future__ import annotations

from enum import Enum

TOOLCHAIN_VARIABLE = "VERILOCC_TOOLCHAIN"
"""Environment variable that makes the choice where no option does."""


class ToolchainChoice(Enum):
    """The user's choice of an LLVM. ``AUTO``: llc where a suitable one is found, else Triton's."""

    AUTO = "auto"
    LLC = "llc"
    TRITON = "triton"
