"""Torch to MLIR: ``torch.export``, decompositions, and the importer of IREE's own package, into bytecode for IREE.

The importer is the one beneath iree-turbine's ``aot.export``, which cannot take weights in bf16 (iree-turbine 3.9:
"Got unsupported ScalarType BFloat16" for more than 1,024 elements) and brings nothing else that is needed here.

What the torch dialect has no operation for is decomposed as Torch itself decomposes it (``torch.diff``, LSTM, GRU). The
same step makes the program functional: operations in place, slices assigned. Scaled-dot-product attention has an
operation, so it arrives as one, which IREE compiles to one kernel. Attention over a sequence of dynamic length gets a
mask of zeros, where it has none: IREE 3.13 has no way to pad it otherwise ("Padding OnlineAttention without existing
mask is not yet supported") and makes a kernel of 100 MB of IR of it.

The decomposed program is a copy: the caller's module and ExportedProgram stay as they are.
"""

from __future__ import annotations

import importlib
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

from verilocc_mlir.errors import InputError, ToolchainError, UnsupportedError

EXTRA_HINT = "pip install 'verilocc-mlir[torch]'"
IREE_FLAGS = ("--iree-input-type=torch",)
FUNCTION = "main"
"""Name of the module's one function."""

_NOT_LOWERED = ("__and__", "__or__", "__xor__")
"""Operations of the torch dialect that IREE 3.13 has no lowering for ("failed to legalize operation
'torch.aten.__and__.Tensor'", the masks of transformers): decomposed as well."""


@dataclass(frozen=True)
class Signature:
    """How a call of the Torch module becomes a call of the function, and its results those of the module.

    Attributes:
        in_spec: how the arguments ``((args), {kwargs})`` flatten (a torch pytree specification).
        out_spec: how the flat results are put together again.
        constant_arguments: by place among the flat arguments, what is no tensor: it was compiled in.
        constant_results: by place among the flat results, what is no tensor.
        changed_arguments: the places of the arguments that the call changes. Their new values are the function's
            first results.
    """

    in_spec: Any
    out_spec: Any
    constant_arguments: Mapping[int, Any] = field(default_factory=dict[int, Any])
    constant_results: Mapping[int, Any] = field(default_factory=dict[int, Any])
    changed_arguments: tuple[int, ...] = ()

    def call(self, function: Callable[[Sequence[Any]], Sequence[Any]], args: Sequence[Any], kwargs: Any) -> Any:
        """Call ``function``, of flat tensors, as the module is called; arguments that it changes are changed.

        Raises:
            InputError: other arguments than the module was compiled for.
        """
        pytree = front_end("torch.utils._pytree")
        flat, spec = pytree.tree_flatten((tuple(args), dict(kwargs)))
        if spec != self.in_spec:
            raise InputError(f"the arguments are {spec}, but it was compiled for {self.in_spec}")
        for place, constant in self.constant_arguments.items():
            if flat[place] != constant:
                raise InputError(f"argument {place} is {flat[place]!r}, but it was compiled for {constant!r}")
        values = iter(function([value for place, value in enumerate(flat) if place not in self.constant_arguments]))
        for place in self.changed_arguments:
            with front_end("torch").no_grad():
                flat[place].copy_(next(values))
        constants = self.constant_results
        results = [constants[n] if n in constants else next(values) for n in range(self.out_spec.num_leaves)]
        return pytree.tree_unflatten(results, self.out_spec)


@dataclass(frozen=True)
class Imported:
    """A Torch module as MLIR: bytecode, and how its function is called."""

    mlir: bytes
    signature: Signature


def front_end(name: str) -> ModuleType:
    """``torch``, ``iree.compiler`` or a part of them, imported.

    Raises:
        ToolchainError: it is not installed; the message names the extra.
    """
    try:
        return importlib.import_module(name)
    except ImportError as error:
        package = "iree-base-compiler" if name.startswith("iree.") else name.partition(".")[0]
        raise ToolchainError(f"{package} cannot be imported: {error}", hint=EXTRA_HINT) from error


def import_module(
    module: Any, args: Sequence[Any], kwargs: Mapping[str, Any] | None = None, dynamic_shapes: Any = None
) -> Imported:
    """Export ``module`` for inference and bring it to MLIR.

    Args:
        module: a ``torch.nn.Module`` in evaluation mode, a function, or a ``torch.export.ExportedProgram``.
        args: example positional arguments; their shapes and types hold but for ``dynamic_shapes``.
        dynamic_shapes: as ``torch.export.export`` takes them.

    Raises:
        ToolchainError: torch or IREE is not installed. InputError: torch.export cannot trace it.
        UnsupportedError: a part of it is in training mode, or there is no import for an operation.
    """
    torch, importer = front_end("torch"), front_end("iree.compiler.extras.fx_importer")
    exported = _exported(torch, module, tuple(args), dict(kwargs or {}), dynamic_shapes)
    _refuse_training(torch, exported, name_of(module))
    try:
        context = importer.Context()
        with torch.no_grad():
            program = exported.run_decompositions(_decompositions(torch, context))
        signature = _take_signature(program)
        importing = importer.FxImporter(context=context, hooks=state_hooks())
        importing.import_program(program, func_name=FUNCTION)
        buffer = io.BytesIO()
        importing.module.operation.write_bytecode(buffer)
    except Exception as error:  # both raise whatever they stumble over
        raise UnsupportedError(f"IREE has no import for it: {first_line(error)}", where=name_of(module)) from error
    return Imported(buffer.getvalue(), signature)


def _exported(torch: ModuleType, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any], shapes: Any) -> Any:
    if isinstance(module, torch.export.ExportedProgram):
        return module
    if not isinstance(module, torch.nn.Module):
        module = _function_module(torch, module)
    try:
        with torch.no_grad():
            return torch.export.export(module, args, kwargs, dynamic_shapes=shapes, strict=False)
    except Exception as error:  # torch.export raises whatever the user's code raises, and some of its own
        raise InputError(f"torch.export cannot trace it: {first_line(error)}", where=name_of(module)) from error


def _refuse_training(torch: ModuleType, program: Any, where: str) -> None:
    """Refuse a program in which something drops at random or updates its statistics.

    The operations tell it, not the flag of the outermost module: a part may be in training by itself, and a function
    may ask for it.
    """
    for graph in (part.graph for part in program.graph_module.modules() if hasattr(part, "graph")):
        for node in graph.nodes:
            if isinstance(node.target, torch._ops.OpOverload) and _trains(node):
                parts = [path for path, _ in node.meta.get("nn_module_stack", {}).values()]
                # In non-strict mode the outermost module's path is "", the others' are as users write them.
                part = parts[-1] if parts else ""
                raise UnsupportedError(
                    f"{part or 'it'} is in training mode ({node.target} drops or updates statistics)",
                    where=where,
                    hint="call eval() first",
                )


def _trains(node: Any) -> bool:
    """Whether the operation drops elements, or normalises by the batch and keeps running statistics of it."""
    arguments = {argument.name: argument.default_value for argument in node.target._schema.arguments}
    arguments |= dict(zip(arguments, node.args, strict=False)) | node.kwargs
    if "running_mean" in arguments:
        return (
            bool(arguments.get("training", arguments.get("use_input_stats"))) and arguments["running_mean"] is not None
        )
    if "dropout_p" in arguments:  # attention
        return arguments["dropout_p"] > 0
    if "upper" in arguments and "training" in arguments:  # rrelu
        return bool(arguments["training"])
    return bool(arguments.get("train")) and arguments.get("p", arguments.get("dropout", 0)) > 0


def _decompositions(torch: ModuleType, context: Any) -> dict[Any, Callable[..., Any]]:
    """What is decomposed, and how: all that Torch can decompose and the dialect lacks, or IREE cannot lower."""
    aten = torch.ops.aten
    attention = aten.scaled_dot_product_attention.default
    table = {**front_end("torch._decomp").decomposition_table, **torch.export.default_decompositions()}
    lacking = {
        operation: rule
        for operation, rule in table.items()
        if isinstance(operation, torch._ops.OpOverload)
        and (not context.is_registered_operation(_in_dialect(operation)) or _base_name(operation) in _NOT_LOWERED)
    }
    comparisons = [getattr(aten, name).Scalar for name in ("eq", "ne", "lt", "le", "gt", "ge")]
    return {
        **lacking,
        **{comparison: _float_comparison(comparison) for comparison in comparisons},
        attention: _masked_attention(torch, attention),
    }


def _in_dialect(operation: Any) -> str:
    """``torch.aten.div.Tensor``: the operation's name in the torch dialect."""
    return "torch." + str(operation).removesuffix(".default")


def _base_name(operation: Any) -> str:
    """``div``: the operation's name without its overload."""
    return str(operation).split(".")[1]


def _float_comparison(comparison: Any) -> Callable[..., Any]:
    """The comparison of floats with an integer as one with a float.

    IREE 3.13 folds ``torch.ones(4) > 0`` to false, and ``torch.ones(4) > 0.0`` to true.
    """

    def compared(tensor: Any, number: Any) -> Any:
        if tensor.is_floating_point() and type(number) is int:
            return comparison(tensor, float(number))
        return NotImplemented

    return compared


def _masked_attention(torch: ModuleType, attention: Any) -> Callable[..., Any]:
    """Attention with a mask of zeros, where it has none and its sequence has a dynamic length.

    A mask of fewer dimensions than the query gets leading ones: IREE 3.13 takes no other ("'tensor.collapse_shape' op
    expected the expanded type … to have a higher (or same) rank").
    """

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
        if attn_mask is not None and attn_mask.dim() < query.dim():
            mask = attn_mask[(None,) * (query.dim() - attn_mask.dim())]
        elif attn_mask is None and not is_causal and dynamic:
            mask = query.new_zeros((*query.shape[:-1], key.shape[-2]))
        else:
            return NotImplemented
        return attention(query, key, value, mask, dropout_p, is_causal, **more)

    return masked


def _take_signature(program: Any) -> Signature:
    """The program's signature; what is no tensor, and what is changed in place, is taken out of the program's own."""
    kinds = front_end("torch.export.graph_signature")
    own = program.graph_signature
    constant = kinds.ConstantArgument
    arguments = [spec.arg for spec in own.input_specs if spec.kind == kinds.InputKind.USER_INPUT]
    results = [spec.arg for spec in own.output_specs if spec.kind == kinds.OutputKind.USER_OUTPUT]
    places = {argument.name: place for place, argument in enumerate(arguments)}
    changes = [spec for spec in own.output_specs if spec.kind == kinds.OutputKind.USER_INPUT_MUTATION]
    signature = Signature(
        in_spec=program.call_spec.in_spec,
        out_spec=program.call_spec.out_spec,
        constant_arguments={
            n: spec_argument.value for n, spec_argument in enumerate(arguments) if isinstance(spec_argument, constant)
        },
        constant_results={n: result.value for n, result in enumerate(results) if isinstance(result, constant)},
        changed_arguments=tuple(places[spec.target] for spec in changes),
    )
    for spec in changes:
        spec.kind, spec.target = kinds.OutputKind.USER_OUTPUT, None
    tensor_specs = [spec for spec in own.output_specs if not isinstance(spec.arg, constant)]
    own.output_specs[:] = [spec for spec in tensor_specs if spec in changes] + [
        spec for spec in tensor_specs if spec not in changes
    ]
    return signature


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


# Buffers that a Torch module changes when it is called: globals of the MLIR module, loaded and stored by its function.
#
# They begin with the values the buffers had when the module was imported. The Torch module's own stay as they are.


def state_hooks() -> Any:
    """Hooks of IREE's importer (``FxImporterHooks``) for one program."""
    importer = importlib.import_module("iree.compiler.extras.fx_importer")
    ir = importlib.import_module("iree.compiler.ir")

    class Hooks(importer.FxImporterHooks):
        def __init__(self) -> None:
            self._module: Any = None
            self._globals: dict[str, Any] = {}

        def prepare_module(self, module_op: Any) -> None:
            self._module = module_op

        def resolve_input(self, gni: Any, value: Any, info: Any) -> Any:
            """A load of the global, for a buffer that is stored later; others are the importer's."""
            if info is None or info.store_producer_node is None:
                return None
            target = info.input_spec.target
            kind = self._global(target, value)
            loaded = ir.Operation.create(
                "util.global.load", results=[kind], attributes={"global": ir.FlatSymbolRefAttr.get(_symbol(target))}
            ).result
            return ir.Operation.create("torch_c.from_builtin_tensor", results=[info.ir_type], operands=[loaded]).result

        def store_produced_value(self, gni: Any, py_value: Any, produced_ir_value: Any, info: Any) -> None:
            target = info.input_spec.target
            plain = ir.Operation.create(
                "torch_c.to_builtin_tensor", results=[self._globals[target]], operands=[produced_ir_value]
            ).result
            symbol = ir.FlatSymbolRefAttr.get(_symbol(target))
            ir.Operation.create("util.global.store", operands=[plain], attributes={"global": symbol})

        def _global(self, target: str, value: Any) -> Any:
            if target in self._globals:
                return self._globals[target]
            kind = _signless(ir, importer.create_mlir_tensor_type(value))
            content = value.detach().cpu().contiguous().reshape(-1).view(importlib.import_module("torch").uint8)
            body = self._module.regions[0].blocks[0]
            with ir.InsertionPoint.at_block_begin(body), ir.Location.unknown():
                ir.Operation.create(
                    "util.global",
                    attributes={
                        "sym_name": ir.StringAttr.get(_symbol(target)),
                        "sym_visibility": ir.StringAttr.get("private"),
                        "type": ir.TypeAttr.get(kind),
                        "is_mutable": ir.UnitAttr.get(),
                        "initial_value": ir.DenseElementsAttr.get(content.numpy().copy(), type=kind),
                    },
                )
            self._globals[target] = kind
            return kind

    return Hooks()


def _signless(ir: ModuleType, kind: Any) -> Any:
    """The tensor type as IREE's globals have it: integers without sign."""
    if not isinstance(kind.element_type, ir.IntegerType):
        return kind
    return ir.RankedTensorType.get(kind.shape, ir.IntegerType.get_signless(kind.element_type.width))


def _symbol(target: str) -> str:
    """The global's name: that of the buffer."""
    return f"buffer.{target}"
