"""Buffers that a Torch module changes when it is called: globals of the MLIR module, loaded and stored by its function.

They begin with the values the buffers had when the module was imported. The Torch module's own stay as they are.
"""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import Any


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
