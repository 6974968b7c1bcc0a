"""Torch: a module in, a .vmfb with proved register assignments out.

    import torch, verilocc_mlir
    compiled = verilocc_mlir.compile(torch.nn.Linear(64, 64).eval(), (torch.randn(8, 64),), target="gfx942")
    compiled.save("linear.vmfb")
    y = compiled.run(torch.randn(8, 64))      # on a machine with that GPU

Torch goes to MLIR through torch-mlir (``torch_import``), that through IREE (``iree``), and each kernel through the
spine.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from verilocc_mlir.errors import InputError
from verilocc_mlir.hooks.iree import compile_mlir
from verilocc_mlir.hooks.iree_compiler import IreeCompiler
from verilocc_mlir.hooks.iree_result import IreeKernel, IreeResult
from verilocc_mlir.hooks.iree_runtime import DEVICE, Session
from verilocc_mlir.hooks.torch_import import FUNCTION, IREE_FLAGS, front_end, import_module, name_of
from verilocc_mlir.pipeline.settings import Settings


@dataclass(frozen=True)
class TorchModule:
    """A compiled Torch module.

    Attributes:
        result: the file, its kernels and the report.
        in_spec: how the arguments flatten.
        out_spec: how the results are put together.
    """

    result: IreeResult
    in_spec: Any = field(repr=False)
    out_spec: Any = field(repr=False)
    _sessions: dict[str, Session] = field(default_factory=dict[str, Session], repr=False, compare=False)

    @property
    def vmfb(self) -> bytes:
        """The compiled module, for IREE's runtime."""
        return self.result.vmfb

    @property
    def kernels(self) -> tuple[IreeKernel, ...]:
        """Each kernel: its code object, the machine IR before and after, its report."""
        return self.result.kernels

    @property
    def report(self) -> dict[str, Any]:
        """What was proved, as plain lists and dictionaries."""
        return self.result.report

    @property
    def proved(self) -> bool:
        """Whether every kernel in the file is."""
        return self.result.proved

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the .vmfb: all of it, or nothing."""
        target = Path(path)
        handle, partial = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
        try:
            with os.fdopen(handle, "wb") as stream:
                stream.write(self.vmfb)
            os.replace(partial, target)
        except BaseException:
            Path(partial).unlink(missing_ok=True)
            raise

    def run(self, *args: Any, device: str = DEVICE, **kwargs: Any) -> Any:
        """Run it on a ROCm GPU, through IREE's HIP driver; arguments and results as of the Torch module, on the CPU.

        Raises:
            NoGpuError: there is none here. InputError: other arguments than it was compiled for.
            ToolchainError: the runtime fails.
        """
        pytree = front_end("torch.utils._pytree")
        flat, spec = pytree.tree_flatten((args, kwargs))
        if spec != self.in_spec:
            raise InputError(
                f"the arguments are {spec}, but it was compiled for {self.in_spec}", where=self.result.input
            )
        if device not in self._sessions:
            self._sessions[device] = Session(self.vmfb, device)
        return pytree.tree_unflatten(self._sessions[device].call(FUNCTION, flat), self.out_spec)

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
    jobs: int = 0,
    iree: IreeCompiler | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> TorchModule:
    """Compile a Torch module for an AMD GPU, for inference. No GPU is needed.

    Args:
        module: a ``torch.nn.Module`` in evaluation mode, a function of tensors, or an ExportedProgram.
        example_inputs: its positional arguments; shapes and types hold but for ``dynamic_shapes``.
        target: ``"gfx942"``, or a product name IREE knows.
        dynamic_shapes: as ``torch.export.export`` takes them, for example ``{"x": {0: torch.export.Dim("batch")}}``.
        example_kwargs: its keyword arguments.
        flags: further flags of iree-compile.
        settings: how each kernel is allocated and proved.
        jobs: kernels at once; 0 for one a core.
        progress: gets a line for each step.

    Raises:
        ToolchainError: torch, torch-mlir, IREE or LLVM is missing or failed. InputError: it cannot be traced.
        UnsupportedError: torch-mlir or IREE cannot take it.
    """
    if not isinstance(example_inputs, (tuple, list)):
        raise InputError("example_inputs is not a tuple", where=name_of(module), hint="one tensor x is given as (x,)")
    progress(f"torch.export and torch-mlir: {name_of(module)}")
    imported = import_module(module, example_inputs, example_kwargs, dynamic_shapes)
    result = compile_mlir(
        imported.mlir,
        target=target,
        flags=(*IREE_FLAGS, *flags),
        settings=settings,
        jobs=jobs,
        iree=iree,
        name=name_of(module),
        progress=progress,
    )
    return TorchModule(result, imported.in_spec, imported.out_spec)
