"""Torch to MLIR: ``torch.export``, then torch-mlir's importer, into bytecode that IREE takes with its torch input type.

No decompositions are asked for, so that scaled-dot-product attention arrives as one operation, which IREE compiles to
one kernel. Attention over a sequence of dynamic length gets a mask of zeros, where it has none: IREE 3.13 has no way to
pad it otherwise ("Padding OnlineAttention without existing mask is not yet supported") and makes a kernel of 100 MB of
IR of it.
"""

from __future__ import annotations

import importlib
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from verilocc_mlir.errors import InputError, ToolchainError, UnsupportedError

EXTRA_HINT = "pip install 'verilocc-mlir[torch]' (wheels of torch-mlir: Python 3.11 on Linux x86-64)"
IREE_FLAGS = ("--iree-input-type=torch",)
FUNCTION = "main"
"""Name of the module's one function."""


@dataclass(frozen=True)
class Imported:
    """A Torch module as MLIR.

    Attributes:
        mlir: bytecode.
        in_spec: how the arguments ``((args), {kwargs})`` flatten (a torch pytree specification).
        out_spec: how the flat results are put together again.
    """

    mlir: bytes
    in_spec: Any
    out_spec: Any


def front_end(name: str) -> ModuleType:
    """``torch`` or ``torch_mlir.fx``, imported.

    Raises:
        ToolchainError: it is not installed; the message names the extra.
    """
    try:
        return importlib.import_module(name)
    except ImportError as error:
        package = "torch-mlir" if name.startswith("torch_mlir") else name.partition(".")[0]
        raise ToolchainError(f"{package} cannot be imported: {error}", hint=EXTRA_HINT) from error


def import_module(
    module: Any, args: Sequence[Any], kwargs: Mapping[str, Any] | None = None, dynamic_shapes: Any = None
) -> Imported:
    """Export ``module`` for inference and bring it to MLIR.

    Args:
        module: a ``torch.nn.Module`` in evaluation mode, a function, or a ``torch.export.ExportedProgram``.
        args: example positional arguments; their shapes and types hold but for ``dynamic_shapes``.
        kwargs: example keyword arguments.
        dynamic_shapes: as ``torch.export.export`` takes them.

    Raises:
        ToolchainError: torch or torch-mlir is not installed. InputError: torch.export cannot trace it.
        UnsupportedError: it is in training mode, or torch-mlir has no import for an operation.
    """
    torch, fx = front_end("torch"), front_end("torch_mlir.fx")
    program = _exported(torch, module, tuple(args), dict(kwargs or {}), dynamic_shapes)
    try:
        program = _with_masks(torch, program)
        mlir = fx.export_and_import(program, decomposition_table={}, output_type="raw", func_name=FUNCTION)
        buffer = io.BytesIO()
        mlir.operation.write_bytecode(buffer)
    except Exception as error:  # torch-mlir raises whatever it stumbles over
        raise UnsupportedError(f"torch-mlir cannot import it: {first_line(error)}", where=name_of(module)) from error
    return Imported(buffer.getvalue(), program.call_spec.in_spec, program.call_spec.out_spec)


def _exported(torch: ModuleType, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any], shapes: Any) -> Any:
    if isinstance(module, torch.export.ExportedProgram):
        return module
    if not isinstance(module, torch.nn.Module):
        module = _function_module(torch, module)
    if module.training and any(_acts_in_training(torch, part) for part in module.modules()):
        raise UnsupportedError("the module is in training mode", where=name_of(module), hint="call its eval() first")
    try:
        with torch.no_grad():
            return torch.export.export(module, args, kwargs, dynamic_shapes=shapes, strict=False)
    except Exception as error:  # torch.export raises whatever the user's code raises, and some of its own
        raise InputError(f"torch.export cannot trace it: {first_line(error)}", where=name_of(module)) from error


def _acts_in_training(torch: ModuleType, part: Any) -> bool:
    """Dropouts that drop, and batch norms, which update their statistics."""
    dropouts = torch.nn.modules.dropout._DropoutNd
    return (
        getattr(part, "p", 0) > 0
        if isinstance(part, dropouts)
        else isinstance(part, torch.nn.modules.batchnorm._NormBase)
    )


def _with_masks(torch: ModuleType, program: Any) -> Any:
    """The program with a mask of zeros on each attention without any over a sequence of dynamic length."""
    attention = torch.ops.aten.scaled_dot_product_attention.default

    def masked(
        query: Any,
        key: Any,
        value: Any,
        attn_mask: Any = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        **more: Any,
    ) -> Any:
        dynamic = any(isinstance(tensor.shape[-2], torch.SymInt) for tensor in (query, key))
        if attn_mask is not None or is_causal or not dynamic:
            return NotImplemented
        mask = query.new_zeros((*query.shape[:-1], key.shape[-2]))
        return attention(query, key, value, mask, dropout_p, False, **more)

    def wanted(node: Any) -> bool:
        return node.target is attention and any(
            isinstance(given.meta["val"].shape[-2], torch.SymInt) for given in node.args[:2]
        )

    return program.run_decompositions({attention: masked}) if any(map(wanted, program.graph.nodes)) else program


def _function_module(torch: ModuleType, function: Any) -> Any:
    module = torch.nn.Module()
    # Its own signature stays visible: dynamic_shapes are matched with it.
    module.forward = function
    return module.eval()


def name_of(module: Any) -> str:
    """What messages call it."""
    return getattr(module, "__name__", None) or type(module).__name__


def first_line(error: BaseException) -> str:
    """The first line of an error's message, with its class where that is all there is."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
