"""The sources of kernels, and the cells that they make kernels of. Each module here is a ``Source``."""

from __future__ import annotations

import hashlib
import importlib
import json
import random
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, cast

from verilocc_mlir.errors import ToolchainError

# A cell: one kernel of one source for one target, described by everything that tells it from other kernels.


Value = str | int | float | bool
Items = tuple[tuple[str, Value], ...]

SOURCES = ("mlir", "triton", "iree")
TARGETS = ("gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1201", "gfx1250")
FAMILIES = ("gemm", "mha", "conv", "softmax", "layernorm", "elementwise")
"""What a kernel computes: ``gemm`` includes fused epilogues, ``mha`` is attention, forward and backward."""


@dataclass(frozen=True, order=True)
class Cell:
    """One kernel.

    Attributes:
        source: what makes its IR, one of ``SOURCES``.
        family: what it computes, one of ``FAMILIES``.
        target: LLVM's ``-mcpu`` name.
        shape: what is computed: element types, sizes, masks; sorted by name.
        config: how it is computed: tiles, stages, waves; sorted by name.
        limits: function attributes that change the register budget; sorted by name.
    """

    source: str
    family: str
    target: str
    shape: Items
    config: Items = ()
    limits: Items = ()

    @classmethod
    def of(
        cls,
        source: str,
        family: str,
        target: str,
        shape: Mapping[str, Value],
        config: Mapping[str, Value],
        limits: Mapping[str, Value] | None = None,
    ) -> Cell:
        return cls(source, family, target, _items(shape), _items(config), _items(limits or {}))

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> Cell:
        """What ``to_data`` gave.

        Raises:
            KeyError, TypeError: a field is missing or of another kind.
        """
        parts = (dict(data[name]) for name in ("shape", "config", "limits"))
        return cls.of(str(data["source"]), str(data["family"]), str(data["target"]), *parts)

    def to_data(self) -> dict[str, Any]:
        return {
            "source": self.source,
            "family": self.family,
            "target": self.target,
            "shape": dict(self.shape),
            "config": dict(self.config),
            "limits": dict(self.limits),
        }

    @property
    def key(self) -> str:
        """SHA-256 of everything, as hexadecimal digits."""
        return _digest(self.to_data())

    @property
    def configuration(self) -> str:
        """SHA-256 of everything but target and limits. Kernels that agree in it belong to the same split."""
        return _digest({k: v for k, v in self.to_data().items() if k not in ("target", "limits")})

    @property
    def name(self) -> str:
        """Short, readable and unique: ``triton-gemm-gfx942-1f00c3a2b4``."""
        return f"{self.source}-{self.family}-{self.target}-{self.key[:10]}"

    def __str__(self) -> str:
        parts = [f"{k}={v}" for items in (self.shape, self.config, self.limits) for k, v in items]
        return f"{self.name} {' '.join(parts)}"


def _items(values: Mapping[str, Value]) -> Items:
    return tuple(sorted(values.items()))


def _digest(data: Any) -> str:
    return hashlib.sha256(json.dumps(data, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


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
