"""What is wrong with settings whatever the kernel: said before any work, and once for a module of many kernels."""

from __future__ import annotations

from verilocc_mlir.errors import InputError
from verilocc_mlir.pipeline.candidates import Answer
from verilocc_mlir.pipeline.chosen_allocators import checked_allocator
from verilocc_mlir.pipeline.learned import check_plan_model
from verilocc_mlir.pipeline.settings import Settings, check_required
from verilocc_mlir.remote.cached_allocator import check_way
from verilocc_mlir.target.targets import TARGETS
from verilocc_mlir.toolchain.choose import choose_tools
from verilocc_mlir.toolchain.drivers.job import CompileOptions
from verilocc_mlir.toolchain.run import ToolFailure
from verilocc_mlir.toolchain.staged import StagedCompiler

_ANY_CPU = next(iter(TARGETS))


def check_settings(settings: Settings) -> None:
    """
    Raises:
        InputError: there is no such allocator, triple, processor, plan, model, address of a server or flag of llc; a
            server is required, and none is named; a server is named, and LLVM's allocation is wanted.
        UnsupportedError: packages that they need are not installed. ToolchainError: there is no such LLVM.
    """
    check_required(settings)
    checked_allocator(settings)
    check_plan_model(settings)
    if settings.plan:
        Answer.parse(settings.plan)
    if settings.server:
        check_way(settings.server, settings.access)
    if settings.llvm is not None or settings.llc_options:
        _check_llvm(settings)


def _check_llvm(settings: Settings) -> None:
    """See that there is the LLVM that is named, and have it read its flags, with a module that has nothing in it."""
    toolchain = choose_tools(settings.toolchain, settings.llvm)
    if not settings.llc_options:
        return
    options = CompileOptions(_ANY_CPU, llc_options=settings.llc_options, tool_seconds=settings.tool_seconds)
    try:
        StagedCompiler(toolchain, options).direct(b"")
    except (ToolFailure, InputError) as failure:
        said = failure.line if isinstance(failure, ToolFailure) else failure.what
        flags = " ".join(settings.llc_options)
        raise InputError(f"LLVM does not take {flags}: {said}", hint="llc --help-hidden lists its flags") from failure
