"""Allocators by name."""

from __future__ import annotations

from collections.abc import Callable

from verilocc_mlir.allocators.deterministic import DeterministicAllocator
from verilocc_mlir.allocators.protocol import Allocator
from verilocc_mlir.errors import InputError

_FACTORIES: dict[str, Callable[[], Allocator]] = {"deterministic": DeterministicAllocator}


def allocator_names() -> tuple[str, ...]:
    """Names that ``allocator`` takes, sorted."""
    return tuple(sorted(_FACTORIES))


def allocator(name: str) -> Allocator:
    """The allocator called ``name``.

    Raises:
        InputError: there is none of that name.
    """
    factory = _FACTORIES.get(name)
    if factory is None:
        raise InputError(f"no allocator called {name!r}", hint=f"choose one of: {', '.join(allocator_names())}")
    return factory()
