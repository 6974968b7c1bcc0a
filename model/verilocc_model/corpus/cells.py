"""A cell: one kernel of one source for one target, described by everything that tells it from other kernels."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

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
