"""The sources of kernels. Each module here is a ``Source``."""

from __future__ import annotations

import importlib
import random
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol, cast

from verilocc_mlir.errors import ToolchainError
from verilocc_model.corpus.cells import Cell


class Source(Protocol):
    """A module of this package."""

    FAMILIES: Mapping[str, tuple[str, ...]]
    """The families that it can make, for each target."""

    def draw(self, generator: random.Random, family: str, target: str) -> Cell | None:
        """A cell without limits, drawn at random; None where the draw is no valid kernel.

        Only the validity of a draw may depend on ``target``, so that targets share configurations.
        """
        ...

    def make(self, cell: Cell) -> str:
        """LLVM IR of the one kernel of ``cell``, optimised, without its limits.

        Raises:
            VeriloccError: the front end is missing, or cannot make it.
        """
        ...

    def version(self) -> str:
        """Versions of all that the IR depends on."""
        ...


def source(name: str) -> Source:
    """The source called ``name``. Its front end is loaded when it makes its first kernel."""
    return cast("Source", importlib.import_module(f"{__name__}.{name}"))


# The source tree: the generators of examples/ are not installed, so the corpus is made from a checkout.


ROOT = Path(__file__).resolve().parents[4]


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
