"""Torch: a module in, a .vmfb with proved register assignments out.

    import torch, verilocc_mlir
    compiled = verilocc_mlir.compile(torch.nn.Linear(64, 64).eval(), (torch.randn(8, 64),), target="gfx942")
    compiled.save("linear.vmfb")
    y = compiled.run(torch.randn(8, 64))      # on a machine with that GPU

Torch goes to MLIR through IREE's importer (``torch_import``), that through IREE (``iree``), and each kernel through the
spine.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
import shlex
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from verilocc_mlir.errors import InputError, ToolchainError, UnsupportedError
from verilocc_mlir.files import write_whole
from verilocc_mlir.hooks.iree import compile_mlir
from verilocc_mlir.hooks.iree_compiler import FlagError, IreeCompiler, check_target, find_iree_compile
from verilocc_mlir.hooks.iree_result import IreeKernel, IreeResult
from verilocc_mlir.hooks.iree_runtime import DEVICE, Session
from verilocc_mlir.hooks.torch_import import FUNCTION, IREE_FLAGS, Signature, front_end, import_module, name_of
from verilocc_mlir.pipeline.checked_settings import check_settings
from verilocc_mlir.pipeline.options import with_options
from verilocc_mlir.pipeline.settings import Settings

logger = logging.getLogger("verilocc_mlir.hooks")

_OF_IREE = re.compile(r"iree-compile(: | \()")
"""How messages begin that are about the module: rejected with ":", a crash or a time-out with the stage in brackets."""


@dataclass(frozen=True)
class TorchModule:
    """A compiled Torch module.

    Attributes:
        result: the file, its kernels and the report.
        signature: how a call of the module becomes a call of the file's function.
    """

    result: IreeResult
    signature: Signature = field(repr=False)
    _sessions: dict[str, Session] = field(default_factory=dict[str, Session], repr=False, compare=False)

    @property
    def vmfb(self) -> bytes:
        return self.result.vmfb

    @property
    def kernels(self) -> tuple[IreeKernel, ...]:
        """Each kernel: its code object, the machine IR before and after, its report."""
        return self.result.kernels

    @property
    def report(self) -> dict[str, Any]:
        return self.result.report

    @property
    def proved(self) -> bool:
        return self.result.proved

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the .vmfb: all of it, or nothing."""
        write_whole(Path(path), self.vmfb)

    def run(self, *args: Any, device: str = DEVICE, **kwargs: Any) -> Any:
        """Run it on a ROCm GPU, through IREE's HIP driver; arguments and results as of the Torch module, on the CPU.

        Arguments that the module changes in place are changed. Buffers that it changes keep their new values for
        the next call, on the device: the Torch module's own stay as they are.

        Raises:
            NoGpuError: there is none here. InputError: other arguments than it was compiled for.
            ToolchainError: the runtime fails.
        """
        return self.signature.call(lambda flat: self._session(device).call(FUNCTION, flat), args, kwargs)

    def _session(self, device: str) -> Session:
        if device not in self._sessions:
            self._sessions[device] = Session(self.vmfb, device)
        return self._sessions[device]

    __call__ = run


def compile(
    module: Any,
    example_inputs: Sequence[Any],
    *,
    target: str,
    dynamic_shapes: Any = None,
    example_kwargs: Mapping[str, Any] | None = None,
    flags: Sequence[str] = (),
    settings: Settings | None = None,
    iree: IreeCompiler | None = None,
    progress: Callable[[str], None] = lambda _: None,
    **options: Any,
) -> TorchModule:
    """Compile a Torch module for an AMD GPU, for inference. No GPU is needed.

    Args:
        module: a ``torch.nn.Module`` in evaluation mode, a function of tensors, or an ExportedProgram.
        example_inputs: its positional arguments; shapes and types hold but for ``dynamic_shapes``.
        target: ``"gfx942"``, or a product name IREE knows.
        dynamic_shapes: as ``torch.export.export`` takes them, for example ``{"x": {0: torch.export.Dim("batch")}}``.
        flags: further flags of iree-compile.
        settings: how each kernel is allocated and proved.
        options: ``jobs``, ``replace`` and ``cache``, as ``compile_mlir`` takes them, and those of ``pipeline.options``,
            by name, for example ``effort="best"``; these go before ``settings``.

    Raises:
        ToolchainError: torch, IREE or LLVM is missing or failed. InputError: it cannot be traced.
        UnsupportedError: a part of it is in training mode, or IREE cannot take it. Where its compiler does not,
            the message names a file with the imported module, which is kept, and the command that shows it.
    """
    if not isinstance(example_inputs, (tuple, list)):
        raise InputError("example_inputs is not a tuple", where=name_of(module), hint="one tensor x is given as (x,)")
    building = {name: options.pop(name) for name in ("jobs", "replace", "cache") if name in options}
    settings = with_options(settings, options)
    check_settings(settings)
    front_end("torch")
    iree = iree or find_iree_compile()
    check_target(iree, target, (*IREE_FLAGS, *flags))
    progress(f"torch.export: {name_of(module)}")
    imported = import_module(module, example_inputs, example_kwargs, dynamic_shapes)
    name = name_of(module)
    try:
        result = compile_mlir(
            imported.mlir,
            target=target,
            flags=(*IREE_FLAGS, *flags),
            settings=settings,
            iree=iree,
            name=name,
            progress=progress,
            **building,
        )
    except (InputError, ToolchainError) as error:
        if isinstance(error, FlagError) or not _OF_IREE.match(error.what):
            raise
        command = iree_command(iree, _keep(imported.mlir, name), target, flags)
        raise UnsupportedError(
            f"IREE cannot compile the imported module: {error.what.removeprefix('iree-compile: ')}",
            where=error.where or name,
            hint=f"this shows it, and IREE's developers can run it: {command}",
        ) from error
    for line in result.server:
        logger.warning("%s: the allocation server had not its part %s", name, line)
    return TorchModule(result, imported.signature)


def iree_command(iree: IreeCompiler, source: Path, target: str, flags: Sequence[str] = ()) -> str:
    """The command line that compiles an imported module by IREE alone."""
    device = ("--iree-hal-target-device=hip", f"--iree-rocm-target={target}")
    return shlex.join([str(iree.path), str(source), *device, *IREE_FLAGS, *flags, "-o", "/dev/null"])


def _keep(mlir: bytes, name: str) -> Path:
    """Write the module to a file that stays; the same module to the same file."""
    safe = re.sub(r"\W+", "-", name).strip("-") or "module"
    path = Path(tempfile.gettempdir()) / f"verilocc-{safe}-{hashlib.sha256(mlir).hexdigest()[:12]}.mlirbc"
    write_whole(path, mlir)
    return path
