"""The source tree: the generators of examples/ are not installed, so the corpus is made from a checkout."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

from verilocc_mlir.errors import ToolchainError

ROOT = Path(__file__).resolve().parent.parent.parent.parent


def example(name: str) -> Any:
    """The module ``examples.<name>``.

    Raises:
        ToolchainError: this is not a source tree.
    """
    if not (ROOT / "examples").is_dir():
        raise ToolchainError(
            "the kernel generators of examples/ are not here: the corpus is made from a source tree",
            hint="git clone the project, and run the command in it",
        )
    if str(ROOT) not in sys.path:
        sys.path.append(str(ROOT))
    return importlib.import_module(f"examples.{name}")
