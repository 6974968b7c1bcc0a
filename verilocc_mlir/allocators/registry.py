"""Allocators by name."""

from __future__ import annotations

from collections.abc import Callable

from verilocc_mlir.allocators.deterministic import DeterministicAllocator
from verilocc_mlir.allocators.protocol import Allocator
from verilocc_mlir.errors import InputError

DEFAULT_SECONDS = 60.0


def _deterministic(seconds: float) -> Allocator:
    del seconds  # it has no clock
    return DeterministicAllocator()


def _exact(seconds: float) -> Allocator:
    # Loaded when it is asked for: it needs an extra.
    from verilocc_mlir.allocators.exact import ExactAllocator

    return ExactAllocator(seconds, order="waves")


_FACTORIES: dict[str, Callable[[float], Allocator]] = {"deterministic": _deterministic, "exact": _exact}


def allocator_names() -> tuple[str, ...]:
    """Names that ``allocator`` takes, sorted."""
    return tuple(sorted(_FACTORIES))


def allocator(name: str, *, seconds: float = DEFAULT_SECONDS) -> Allocator:
    """The allocator called ``name``.

    Args:
        name: one of ``allocator_names()``.
        seconds: wall time for one problem, for those that search as long as they are let.

    Raises:
        InputError: there is none of that name.
        UnsupportedError: it needs a package that is not installed; the hint names the extra.
    """
    factory = _FACTORIES.get(name)
    if factory is None:
        raise InputError(f"no allocator called {name!r}", hint=f"choose one of: {', '.join(allocator_names())}")
    return factory(seconds)
