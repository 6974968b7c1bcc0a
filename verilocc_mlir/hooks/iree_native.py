"""IREE's own register allocation: what iree-compile prints before and after each phase, of every dispatch.

``--stop-before`` is an option of the LLVM inside iree-compile. With it, iree-compile writes machine IR where it would
write assembly, under the name ``.rocmasm``, and then ends with an error, because there is no object to link. The texts
are what it compiles for the module it ships; each dispatch is an executable of its own here.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from verilocc_mlir.errors import InputError, VeriloccError
from verilocc_mlir.hooks.iree_compiler import IreeCompiler
from verilocc_mlir.hooks.iree_dump import (
    CONFIGURED,
    FROM_CONFIGURED,
    MachineIrDump,
    dump_flags,
    machine_ir_of,
    read_dispatches,
)
from verilocc_mlir.hooks.iree_target import check_target
from verilocc_mlir.pipeline.audit import Sides
from verilocc_mlir.pipeline.native import NativeKernel, named
from verilocc_mlir.toolchain.staged import has_wwm_registers

_STOPS = {
    "sgpr": ("greedy,0", "si-lower-sgpr-spills"),
    "wwm": ("greedy,1", "amdgpu-reserve-wwm-regs"),
    "vgpr": ("greedy,2", "amdgpu-mark-last-scratch-load"),
}
"""The pass before which each phase's texts are printed (AMDGPUTargetMachine.cpp): the first after its rewriter, since
``-stop-after`` is no option of iree-compile."""

Run = Callable[[Path, Path, Sequence[str]], None]
"""iree-compile: a module, the file to write, further flags."""


def iree_kernels(
    source: Path,
    target: str,
    iree: IreeCompiler,
    *,
    flags: Sequence[str] = (),
    progress: Callable[[str], None] = lambda _: None,
) -> tuple[NativeKernel, ...]:
    """Every dispatch of an MLIR module, as iree-compile itself allocates it.

    Args:
        source: the module.
        target: as ``--iree-rocm-target`` takes it.
        iree: the compiler.
        flags: further flags of iree-compile.
        progress: gets a line for each run.

    Raises:
        InputError: IREE rejects the module, the GPU or a flag, or it has no GPU kernel. ToolchainError: iree-compile
            crashed.
    """
    check_target(iree, target, flags)
    base = ["--iree-hal-target-device=hip", f"--iree-rocm-target={target}", *flags]
    with tempfile.TemporaryDirectory(prefix="verilocc-") as temporary:
        directory = Path(temporary)
        configured = directory / "configured.mlir"
        progress(f"iree-compile {source}")
        iree.run(source, configured, [*base, *CONFIGURED], stage="configured", shown_as=str(source))

        def run(module: Path, output: Path, more: Sequence[str]) -> None:
            iree.run(module, output, [*base, *more], stage="native", shown_as=str(source))

        return tuple(stopped_kernels(run, configured, directory, iree.version(), progress).values())


def stopped_kernels(
    run: Run, configured: Path, directory: Path, version: str, progress: Callable[[str], None] = lambda _: None
) -> dict[str, NativeKernel]:
    """Every dispatch of a module in iree-compile's hands, by its executable.

    Args:
        run: iree-compile, with the flags of the module and more.
        configured: the module with how each kernel is tiled (``iree_dump.CONFIGURED``).
        directory: for what it leaves.
        version: of iree-compile.

    Raises:
        InputError: it has no GPU kernel. ToolchainError: iree-compile crashed.
    """
    directory.mkdir(exist_ok=True)

    def dump(stop: str) -> dict[str, MachineIrDump]:
        progress(f"iree-compile up to {stop}")
        return _dumps(run, configured, directory / stop, [*FROM_CONFIGURED, f"--stop-before={stop}"])

    dumps = {phase: [dump(stop) for stop in _STOPS[phase]] for phase in ("sgpr", "vgpr")}
    before_vgpr = dumps["vgpr"][0]
    whole_wave = {name for name, dumped in before_vgpr.items() if has_wwm_registers(dumped.text)}
    if whole_wave:
        dumps["wwm"] = [dump(stop) for stop in _STOPS["wwm"]]
    return {
        name: NativeKernel(
            name, dumped.cpu, f"IREE {version}", "greedy", tuple(_phases(name, dumps, name in whole_wave))
        )
        for name, dumped in before_vgpr.items()
    }


def iree_sources(source: Path, target: str, iree: IreeCompiler, directory: Path) -> tuple[Path, ...]:
    """The LLVM IR of every dispatch of an MLIR module, as ``NAME.TARGET.ll`` in ``directory``.

    Raises:
        InputError: IREE rejects the module, or it has no GPU kernel. ToolchainError: iree-compile crashed.
    """
    check_target(iree, target)
    base = ["--iree-hal-target-device=hip", f"--iree-rocm-target={target}"]
    with tempfile.TemporaryDirectory(prefix="verilocc-") as temporary:
        dump = Path(temporary, "dump")
        flags = [*base, *dump_flags(dump)]
        iree.run(source, Path(temporary, "none.vmfb"), flags, stage="dump", shown_as=str(source))
        sources = [dispatch.source for dispatch in read_dispatches(dump, 0) if dispatch.source is not None]
    if not sources:
        raise InputError("it has no GPU kernel", where=str(source))
    directory.mkdir(parents=True, exist_ok=True)
    paths = [directory / f"{kernel.name}.{kernel.cpu}.ll" for kernel in sources]
    for path, kernel in zip(paths, sources, strict=True):
        path.write_bytes(kernel.ir)
    return tuple(paths)


def _dumps(run: Run, configured: Path, directory: Path, flags: list[str]) -> dict[str, MachineIrDump]:
    """Each dispatch's machine IR by the dispatch's name."""
    directory.mkdir()
    failure: VeriloccError | None = None
    try:
        run(configured, directory / "none.vmfb", [*flags, *dump_flags(directory)])
    except InputError as error:  # expected: there is no object
        failure = error
    dumps = [machine_ir_of(path) for path in sorted(directory.glob("*.rocmasm"))]
    if not dumps or None in dumps:
        raise failure or InputError("it has no GPU kernel")
    return {dumped.executable: dumped for dumped in dumps if dumped is not None}


def _phases(name: str, dumps: dict[str, list[dict[str, MachineIrDump]]], whole_wave: bool) -> Iterator[Sides]:
    for phase in _STOPS:
        if phase != "wwm" or whole_wave:
            before, after = (side[name].text for side in dumps[phase])
            yield named(name, phase, before, after)
