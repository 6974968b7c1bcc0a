"""``torch.compile(module, backend="verilocc", options={"target": "gfx942"})``.

Each graph that Dynamo hands over is compiled, for inference, as ``verilocc_mlir.compile`` does. Called, it runs on the
ROCm GPU that is here. Where there is none, compiling warns and the graph runs in eager mode, so that a model can be
compiled, proved and looked at anywhere; with ``"without_gpu": "error"`` calling it is an error instead.

``compiled_graphs()`` gives what has been compiled so far, each with its report, its .vmfb and its kernels.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from verilocc_mlir.errors import InputError, UnsupportedError
from verilocc_mlir.hooks.iree_runtime import NoGpuError, gpu_missing
from verilocc_mlir.hooks.torch import TorchModule, compile
from verilocc_mlir.hooks.torch_import import front_end
from verilocc_mlir.pipeline.options import OPTION_NAMES

VARIABLE = "VERILOCC_TARGET"
"""Environment variable: the target where the options name none."""

_OPTIONS = ("target", "without_gpu", "jobs", "flags", "settings", "replace", "cache", *OPTION_NAMES)
_compiled: list[TorchModule] = []


def compiled_graphs() -> tuple[TorchModule, ...]:
    """Every graph that was compiled in this process, oldest first."""
    return tuple(_compiled)


def backend(graph: Any, inputs: Sequence[Any], *, options: Mapping[str, Any] | None = None) -> Callable[..., Any]:
    """The backend, as Dynamo calls it.

    Args:
        graph: a ``torch.fx.GraphModule``; its parameters may come as inputs.
        inputs: tensors, and sizes that are dynamic as numbers.
        options: ``target``; ``without_gpu``: ``"eager"`` (default) or ``"error"``; the others as for
            ``verilocc_mlir.compile``.

    Raises:
        InputError: a wrong option, or no target. UnsupportedError: gradients are wanted.
    """
    backend_options = dict(options or {})
    unknown = sorted(backend_options.keys() - set(_OPTIONS))
    if unknown:
        raise InputError(f"there is no option {unknown[0]!r}", hint=f"there are {', '.join(_OPTIONS)}")
    target = backend_options.pop("target", "") or os.environ.get(VARIABLE, "")
    if not target:
        raise InputError(
            "no target is named",
            hint=f'torch.compile(…, backend="verilocc", options={{"target": "gfx942"}}), or {VARIABLE}=gfx942',
        )
    without_gpu = backend_options.pop("without_gpu", "eager")
    if without_gpu not in ("eager", "error"):
        raise InputError(f"without_gpu is {without_gpu!r}", hint='it is "eager" or "error"')
    torch = front_end("torch")
    if torch.is_grad_enabled() and any(getattr(value, "requires_grad", False) for value in inputs):
        raise UnsupportedError(
            "gradients are wanted, and this compiles for inference", hint="call it under torch.no_grad()"
        )

    def compiled_for(values: Sequence[Any]) -> TorchModule:
        example = [_concrete(torch, value) for value in values]
        tensors = tuple(value for value in example if isinstance(value, torch.Tensor))
        module = compile(_of_tensors(torch, graph, example), tensors, target=target, **backend_options)
        _compiled.append(module)
        return module

    first = compiled_for(inputs)
    missing = gpu_missing()
    if not missing:
        return _OnGpu(torch, compiled_for, inputs, first)
    if without_gpu == "error":

        def refuse(*_: Any) -> Any:
            raise NoGpuError(missing)

        return refuse
    warnings.warn(
        f"verilocc: {len(first.kernels)} kernels compiled for {target}, but {missing}; the graph runs in eager mode",
        RuntimeWarning,
        stacklevel=2,
    )
    return graph.forward


class _OnGpu:
    """The graph on the GPU; where Dynamo made sizes dynamic, each set of sizes is compiled when it first comes."""

    def __init__(
        self,
        torch: Any,
        compiled_for: Callable[[Sequence[Any]], TorchModule],
        inputs: Sequence[Any],
        first: TorchModule,
    ) -> None:
        self._torch = torch
        self._compiled_for = compiled_for
        self._modules = {_sizes(torch, inputs): first}

    def __call__(self, *values: Any) -> Any:
        sizes = _sizes(self._torch, values)
        if sizes not in self._modules:
            self._modules[sizes] = self._compiled_for(values)
        return self._modules[sizes].run(*(value for value in values if isinstance(value, self._torch.Tensor)))


def _sizes(torch: Any, values: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(
        tuple(value.shape) if isinstance(value, torch.Tensor) else value
        for value in (_concrete(torch, value) for value in values)
    )


def _concrete(torch: Any, value: Any) -> Any:
    """An example of the value: a tensor of its shape and type, and for a size that Dynamo made dynamic the number."""
    if isinstance(value, torch.Tensor):
        return torch.zeros(tuple(_number(torch, n) for n in value.shape), dtype=value.dtype)
    return _number(torch, value)


def _number(torch: Any, value: Any) -> Any:
    return value.node.hint if isinstance(value, torch.SymInt) else value


def _of_tensors(torch: Any, graph: Any, example: Sequence[Any]) -> Any:
    """The graph as a module of its tensors alone; numbers that Dynamo passes beside them stay as they are."""

    class Graph(torch.nn.Module):
        def forward(self, *tensors: Any) -> Any:
            remaining = iter(tensors)
            return graph(*(next(remaining) if isinstance(value, torch.Tensor) else value for value in example))

    module = Graph()
    # Registered, so that what it holds is exported with it.
    module.graph = graph
    return module.eval()
