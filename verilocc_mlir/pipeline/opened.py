"""An input, read, and LLVM set up for it: what every work on LLVM IR or machine IR begins with."""

from __future__ import annotations

from msgspec import Struct, field

from verilocc_mlir.allocators import Allocator
from verilocc_mlir.pipeline.events import Events
from verilocc_mlir.pipeline.settings import Settings
from verilocc_mlir.target.targets import Target
from verilocc_mlir.toolchain.choose import choose_tools
from verilocc_mlir.toolchain.drivers.job import CompileOptions
from verilocc_mlir.toolchain.inputs import Input, load_input
from verilocc_mlir.toolchain.staged import StagedCompiler


def open_input(
    data: bytes, path: str, settings: Settings, *, verify: bool, llc_options: tuple[str, ...] = ()
) -> tuple[Input, StagedCompiler]:
    """The input, and a compiler for its processor with the options of ``settings``.

    Args:
        path: its name, for messages.
        verify: llc's machine verifier runs after every pass.
        llc_options: further flags of llc.

    Raises:
        InputError: unusable input or option. ToolchainError: there is no such LLVM.
    """
    toolchain = choose_tools(settings.toolchain, settings.llvm)
    given = load_input(data, path=path, cpu=settings.cpu or None, toolchain=toolchain)
    # Features of a target id come after those of -mattr.
    mattr = ",".join(filter(None, (settings.features, given.mattr)))
    options = CompileOptions(given.cpu, mattr, settings.opt_level, verify, settings.tool_seconds, llc_options, path)
    return given, StagedCompiler(toolchain, options)


class Work(Struct, frozen=True):
    """What all steps of one compilation work with.

    Attributes:
        path: the input's name, for messages.
        allocators: ours, in the order they are tried; none: LLVM's allocation is taken everywhere.
        events: all steps tell what they do there.
    """

    path: str
    settings: Settings
    compiler: StagedCompiler
    target: Target
    allocators: tuple[Allocator, ...]
    events: Events = field(default_factory=Events)
