"""The sources of kernels. Each module here is a ``Source``."""

from __future__ import annotations

import importlib
import random
from collections.abc import Mapping
from typing import Protocol, cast

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
