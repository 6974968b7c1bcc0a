"""MLIR: the generators of ``examples/mlir_kernels`` (matrix instructions) and ``valu`` (ordinary vector arithmetic)."""

from __future__ import annotations

import random
from functools import lru_cache
from importlib import metadata
from typing import Any

from verilocc_mlir.errors import ToolchainError
from verilocc_mlir.hooks.mlir_compile import IrOptions, prepare
from verilocc_mlir.hooks.mlir_target import RocdlTarget
from verilocc_mlir.toolchain.find import Toolchain, find_toolchain
from verilocc_model.corpus.cells import TARGETS, Cell, Value
from verilocc_model.corpus.repository import example
from verilocc_model.corpus.sources import valu

FAMILIES = dict.fromkeys(TARGETS, ("gemm", "mha", "conv"))
_KINDS = {"gemm": "gemm", "mha": "attention"}
_SHAPE = frozenset(
    {"element", "head_dim", "mask", "epilogue", "layout", "narrow", "guarded", "batched", "wide", "log_sum"}
)
"""Fields of the generators' configurations that say what is computed; the others say how."""
_ELEMENTS = {"gemm": ("bf16", "f16", "f16", "f32", "i8"), "mha": ("bf16", "f16")}
_VALU_SHARE = 0.2
_SECONDS = 120.0


def draw(generator: random.Random, family: str, target: str) -> Cell | None:
    if generator.random() < _VALU_SHARE or family == "conv" or target == "gfx1250":
        shape, config = valu.draw(generator, family)
        return Cell.of("mlir", family, target, shape, {"unit": "valu", **config})
    space = example("mlir_kernels.space")
    shapes = space.matrix_shapes(target, _KINDS[family])
    element = generator.choice(_ELEMENTS[family])
    fitting = [instruction for instruction, of in shapes if of == element]
    position = generator.random()
    values = [generator.choice(axis) for axis in space.AXES[_KINDS[family]]]
    if not fitting:
        return None
    instruction = fitting[int(position * len(fitting))]
    config = space.kind_of(_KINDS[family])(target, instruction, element, *values)
    return _cell(config, family) if config.valid() else None


def make(cell: Cell) -> str:
    lower = example("mlir_kernels.lower")
    text = valu.mlir(cell) if dict(cell.config)["unit"] == "valu" else _config(cell).mlir()
    ir = lower.to_llvm_ir(text, cell.target)
    target = RocdlTarget(chip=cell.target, opt_level=3)
    return prepare(ir, target, _toolchain(), IrOptions(opt="always"), _SECONDS, cell.name).ir


@lru_cache(maxsize=1)
def version() -> str:
    try:
        bindings = f"torch-mlir {metadata.version('torch-mlir')}"
    except metadata.PackageNotFoundError:
        bindings = "mlir"
    return f"{bindings}, opt of {_toolchain().version_text}"


@lru_cache(maxsize=1)
def _toolchain() -> Toolchain:
    toolchain = find_toolchain()
    if toolchain.opt is None:
        raise ToolchainError("opt was not found beside llc")
    return toolchain


def _cell(config: Any, family: str) -> Cell:
    fields = {name: getattr(config, name) for name in config.__dataclass_fields__}
    target = fields.pop("target")
    instruction = fields.pop("instruction")
    shape: dict[str, Value] = {k: v for k, v in fields.items() if k in _SHAPE}
    how: dict[str, Value] = {k: v for k, v in fields.items() if k not in _SHAPE}
    return Cell.of("mlir", family, target, shape, {**how, "unit": "matrix", "m": instruction.m, "k": instruction.k})


def _config(cell: Cell) -> Any:
    space = example("mlir_kernels.space")
    fields = {**dict(cell.shape), **dict(cell.config)}
    m, k = fields.pop("m"), fields.pop("k")
    fields.pop("unit")
    kind = _KINDS[cell.family]
    (instruction,) = {
        shape
        for shape, element in space.matrix_shapes(cell.target, kind)
        if element == fields["element"] and (shape.m, shape.k) == (m, k)
    }
    return space.kind_of(kind)(target=cell.target, instruction=instruction, **fields)
