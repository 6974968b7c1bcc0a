"""MLIR: the generators of ``examples/mlir_kernels`` (matrix instructions) and ``valu`` (ordinary vector arithmetic)."""

from __future__ import annotations

import random
from importlib import metadata
from typing import Any

from verilocc_mlir.errors import ToolchainError
from verilocc_mlir.hooks.mlir_compile import IrOptions, prepare
from verilocc_mlir.hooks.mlir_target import RocdlTarget
from verilocc_mlir.toolchain.find import Toolchain, find_toolchain
from verilocc_model.corpus.sources import TARGETS, Cell, Value, example

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
        shape, config = draw_vector(generator, family)
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
    text = mlir(cell) if dict(cell.config)["unit"] == "valu" else _config(cell).mlir()
    ir = lower.to_llvm_ir(text, cell.target)
    target = RocdlTarget(chip=cell.target, opt_level=3)
    return prepare(ir, target, _toolchain(), IrOptions(opt="always"), _SECONDS, cell.name).ir


def version() -> str:
    try:
        bindings = f"torch-mlir {metadata.version('torch-mlir')}"
    except metadata.PackageNotFoundError:
        bindings = "mlir"
    return f"{bindings}, opt of {_toolchain().version_text}"


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


# Kernels without matrix instructions, in MLIR: register-tiled matmul, attention of one query a thread, convolution.
#
# They exist for every target. All loops but the outer one are unrolled, so the tile decides the pressure: a matmul of
# 16 x 8 elements a thread keeps 128 sums.


_THREADS = 256


def draw_vector(generator: random.Random, family: str) -> tuple[dict[str, Value], dict[str, Value]]:
    """Shape and configuration of a kernel; every draw_vector is valid."""
    choice = generator.choice
    element = choice(("f16", "f32"))
    if family == "gemm":
        shape: dict[str, Value] = {"element": element, "layout": choice(("nk", "kn")), "relu": choice((False, True))}
        tiles: dict[str, Value] = {"tile_m": choice((1, 2, 4, 8, 16)), "tile_n": choice((2, 4, 8, 16))}
        return shape, {**tiles, "unroll": choice((1, 2, 4, 8)), "prefetch": choice((False, True))}
    if family == "mha":
        shape = {"element": element, "head_dim": choice((16, 32, 48, 64, 96)), "causal": choice((False, True))}
        return shape, {"block": choice((1, 2, 4, 8))}
    taps = choice(((1, 3), (3, 3), (5, 5), (1, 7)))
    shape = {"element": element, "taps_h": taps[0], "taps_w": taps[1], "stride": choice((1, 2))}
    return shape, {"outputs": choice((2, 4, 8, 16)), "filters": choice((1, 2, 4, 8))}


def mlir(cell: Cell) -> str:
    """The kernel as MLIR, in the gpu, scf, arith, vector, memref and math dialects."""
    values: dict[str, Any] = {**dict(cell.shape), **dict(cell.config)}
    write = {"gemm": _gemm, "mha": _attention, "conv": _convolution}[cell.family]
    emit = example("mlir_kernels.emit")
    body = emit.Body()
    buffers, scalars = write(emit, body, values)
    name = f"valu_{cell.family}_{cell.key[:10]}"
    return str(emit.kernel(name, cell.target, buffers, [(s, "index") for s in scalars], _THREADS, body))


def _wide(b: Any, value: Any, element: str, count: int) -> list[str]:
    """A loaded vector's elements in f32."""
    parts: list[str] = [value] if count == 1 else [b.extract(value, k, element, count) for k in range(count)]
    return parts if element == "f32" else [b.value(f"arith.extf {part} : {element} to f32") for part in parts]


def _fma(b: Any, x: Any, y: Any, total: str) -> str:
    return str(b.value(f"math.fma {x}, {y}, {total} : f32"))


def _out(b: Any, value: str, element: str) -> str:
    return value if element == "f32" else str(b.value(f"arith.truncf {value} : f32 to {element}"))


def _gemm(emit: Any, b: Any, v: dict[str, Any]) -> tuple[list[Any], tuple[str, ...]]:
    """C = A B with ``tile_m`` x ``tile_n`` sums a thread; ``prefetch`` loads the next step before this one is used."""
    element, tm, tn, unroll = v["element"], v["tile_m"], v["tile_n"], v["unroll"]
    a_memory, b_memory, c_memory = (emit.Memory(name, element) for name in ("%A", "%B", "%C"))
    row = b.mul(b.value("gpu.block_id y"), tm)
    column = b.mul(b.add(b.mul(b.value("gpu.block_id x"), _THREADS), b.value("gpu.thread_id x")), tn)

    def load(k: Any) -> list[str]:
        values = [b.load(a_memory, b.add(b.mul(b.add(row, m), "%K"), k), unroll) for m in range(tm)]
        if v["layout"] == "nk":
            return values + [b.load(b_memory, b.add(b.mul(b.add(column, n), "%K"), k), unroll) for n in range(tn)]
        return values + [b.load(b_memory, b.add(b.mul(b.add(k, u), "%N"), column), tn) for u in range(unroll)]

    def multiply(loaded: list[str], sums: list[str]) -> list[str]:
        rows = [_wide(b, value, element, unroll) for value in loaded[:tm]]
        if v["layout"] == "nk":
            columns = [_wide(b, value, element, unroll) for value in loaded[tm:]]
        else:
            by_step = [_wide(b, value, element, tn) for value in loaded[tm:]]
            columns: list[list[str]] = [[step[n] for step in by_step] for n in range(tn)]
        for u in range(unroll):
            sums = [_fma(b, rows[i // tn][u], columns[i % tn][u], total) for i, total in enumerate(sums)]
        return sums

    start = [(b.constant("0.0", "f32"), "f32")] * (tm * tn)
    if v["prefetch"]:
        first = load(0)
        kinds = [emit.vector(element, unroll)] * tm
        kinds += [emit.vector(element, unroll)] * tn if v["layout"] == "nk" else [emit.vector(element, tn)] * unroll
        last = b.value(f"arith.subi %K, {b.index(unroll)} : index")
        with b.loop(0, "%K", unroll, [*start, *zip(first, kinds, strict=True)]) as loop:
            following = load(b.minimum(b.add(loop.index, unroll), last))
            loop.next = [*multiply(loop.values[tm * tn :], loop.values[: tm * tn]), *following]
    else:
        with b.loop(0, "%K", unroll, start) as loop:
            loop.next = multiply(load(loop.index), loop.values)
    sums = loop.results[: tm * tn]
    if v["relu"]:
        sums = [b.value(f"arith.maximumf {x}, {b.constant('0.0', 'f32')} : f32") for x in sums]
    for m in range(tm):
        values = [_out(b, sums[m * tn + n], element) for n in range(tn)]
        b.store(c_memory, b.add(b.mul(b.add(row, m), "%N"), column), b.pack(values, element), tn)
    return [a_memory, b_memory, c_memory], ("%N", "%K")


def _attention(emit: Any, b: Any, v: dict[str, Any]) -> tuple[list[Any], tuple[str, ...]]:
    """softmax(q K^T) V: a thread keeps its query and its output; ``block`` keys are scored before they are used."""
    element, size, block = v["element"], v["head_dim"], v["block"]
    q_memory, k_memory, v_memory, o_memory = (emit.Memory(name, element) for name in ("%Q", "%K", "%V", "%O"))
    query = b.add(b.mul(b.value("gpu.block_id x"), _THREADS), b.value("gpu.thread_id x"))
    width = 8 if element == "f16" else 4

    def row(memory: Any, index: Any) -> list[str]:
        at = b.mul(index, size)
        lanes: list[str] = []
        for d in range(0, size, width):
            lanes += _wide(b, b.load(memory, b.add(at, d), width), element, width)
        return lanes

    own = row(q_memory, query)
    zero, low = b.constant("0.0", "f32"), b.constant("-1.0e+30", "f32")
    start = [(low, "f32"), (zero, "f32"), *[(zero, "f32")] * size]
    stop = b.value(f"arith.addi {query}, {b.index(1)} : index") if v["causal"] else "%keys"
    with b.loop(0, stop, block, start) as loop:
        highest, total, *out = loop.values
        scores: list[str] = []
        for j in range(block):
            score = zero
            for x, y in zip(own, row(k_memory, b.add(loop.index, j)), strict=True):
                score = _fma(b, x, y, score)
            scores.append(score)
        new = highest
        for score in scores:
            new = b.value(f"arith.maximumf {new}, {score} : f32")
        shrink = b.value(f"math.exp2 {b.value(f'arith.subf {highest}, {new} : f32')} : f32")
        total = b.value(f"arith.mulf {total}, {shrink} : f32")
        out = [b.value(f"arith.mulf {x}, {shrink} : f32") for x in out]
        for j, score in enumerate(scores):
            weight = b.value(f"math.exp2 {b.value(f'arith.subf {score}, {new} : f32')} : f32")
            total = b.value(f"arith.addf {total}, {weight} : f32")
            value = row(v_memory, b.add(loop.index, j))
            out = [_fma(b, weight, y, x) for x, y in zip(out, value, strict=True)]
        loop.next = [new, total, *out]
    _, total, *out = loop.results
    for d in range(0, size, width):
        parts = [_out(b, b.value(f"arith.divf {x}, {total} : f32"), element) for x in out[d : d + width]]
        b.store(o_memory, b.add(b.mul(query, size), d), b.pack(parts, element), width)
    return [q_memory, k_memory, v_memory, o_memory], ("%keys",)


def _convolution(emit: Any, b: Any, v: dict[str, Any]) -> tuple[list[Any], tuple[str, ...]]:
    """A 2-D convolution: ``outputs`` neighbouring points of ``filters`` channels a thread, looping over inputs."""
    element, outputs, filters, stride = v["element"], v["outputs"], v["filters"], v["stride"]
    source, weights, result = (emit.Memory(name, element) for name in ("%X", "%W", "%Y"))
    first = b.mul(b.add(b.mul(b.value("gpu.block_id x"), _THREADS), b.value("gpu.thread_id x")), outputs)
    line = b.value("gpu.block_id y")
    channel = b.mul(b.value("gpu.block_id z"), filters)
    span = (outputs - 1) * stride + v["taps_w"]
    start = [(b.constant("0.0", "f32"), "f32")] * (outputs * filters)
    with b.loop(0, "%channels", 1, start) as loop:
        sums = list(loop.values)
        for h in range(v["taps_h"]):
            at = b.add(
                b.mul(b.add(b.mul(loop.index, "%height"), b.add(b.mul(line, stride), h)), "%width"),
                b.mul(first, stride),
            )
            inputs = [_wide(b, b.load(source, b.add(at, x)), element, 1)[0] for x in range(span)]
            for f in range(filters):
                place = b.add(b.mul(b.add(channel, f), "%channels"), loop.index)
                base = b.mul(place, v["taps_h"] * v["taps_w"])
                for w in range(v["taps_w"]):
                    weight = _wide(b, b.load(weights, b.add(base, h * v["taps_w"] + w)), element, 1)[0]
                    for x in range(outputs):
                        index = f * outputs + x
                        sums[index] = _fma(b, inputs[x * stride + w], weight, sums[index])
        loop.next = sums
    for f in range(filters):
        at = b.add(b.mul(b.add(b.mul(b.add(channel, f), "%height"), line), "%width"), first)
        values = [_out(b, loop.results[f * outputs + x], element) for x in range(outputs)]
        b.store(result, at, b.pack(values, element), outputs)
    return [source, weights, result], ("%channels", "%height", "%width")
