"""The allocators that settings ask for, in the order in which they are tried."""

from __future__ import annotations

from collections.abc import Callable

from verilocc_mlir.allocators import Allocator, allocator
from verilocc_mlir.allocators.registry import LLVM_ALLOCATOR, MODEL
from verilocc_mlir.errors import InputError
from verilocc_mlir.pipeline.settings import DEFAULT_ALLOCATOR, Settings
from verilocc_mlir.remote.cached_allocator import remote_allocator
from verilocc_mlir.target.targets import target
from verilocc_mlir.toolchain.drivers.job import split_target_id


def allocators_of(settings: Settings, remote: Callable[[Settings], Allocator] | None = None) -> tuple[Allocator, ...]:
    """The allocators to try, in their order: the server's where one is named, then the local one; none for LLVM's.

    Args:
        remote: makes the allocator of the server; None: one whose channel this process keeps.

    Raises:
        InputError: as for ``checked_allocator``.
        UnsupportedError: a server is named, and the packages of the service are not installed.
    """
    local = checked_allocator(settings)
    if not settings.server:
        if local is None:
            return ()
        # A model that has no answer, or a refuted one, is followed by the allocator that needs none.
        return (local, allocator(DEFAULT_ALLOCATOR)) if local.name == MODEL else (local,)
    assert local is not None
    if remote is None:
        return remote_allocator(settings.server, settings.server_allocator, settings.access), local
    return remote(settings), local


def checked_allocator(settings: Settings) -> Allocator | None:
    """The allocator asked for, None for LLVM's, after the checks of options that need neither input nor tool.

    Raises:
        InputError: there is no such allocator, triple or processor; a server is named, and LLVM's allocation is wanted.
        UnsupportedError: the allocator needs a package that is not installed.
    """
    chosen = (
        None
        if settings.allocator == LLVM_ALLOCATOR
        else allocator(settings.allocator, seconds=settings.allocator_seconds, samples=settings.model_samples)
    )
    if chosen is None and settings.server:
        raise InputError("LLVM's allocation is wanted, and a server for another", hint="leave one of the two out")
    if settings.triple and not settings.triple.startswith("amdgcn"):
        raise InputError(f"-mtriple={settings.triple} is not an AMDGPU", hint="use amdgcn-amd-amdhsa")
    if settings.cpu:
        target(split_target_id(settings.cpu)[0])
    return chosen
