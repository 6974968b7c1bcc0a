"""IREE: one operation with static shapes, in torch-mlir's or linalg's terms, through ``iree-compile``.

IREE chooses tiles and schedules itself, so cells differ in sizes, types and what is fused. A module may become several
executables; the largest is the kernel. The options of IREE's tools (features, contraction) are put into the IR.
"""

from __future__ import annotations

import random
import tempfile
from functools import lru_cache
from pathlib import Path

from verilocc_mlir.errors import UnsupportedError
from verilocc_mlir.hooks.iree_compiler import dump_flags, find_iree_compile, read_dispatches
from verilocc_mlir.hooks.triton.native import as_code_generated
from verilocc_model.corpus.ir import with_features
from verilocc_model.corpus.sources import TARGETS, Cell, Value

_ALL = ("gemm", "mha", "conv", "softmax", "layernorm")
# Buffer resources of gfx1250 have a length of 45 bits, which LLVM 22's intrinsic does not take.
FAMILIES = {target: () if target == "gfx1250" else _ALL for target in TARGETS}
_SIZES = (64, 128, 192, 256, 320, 512, 640, 768, 1024, 2048)


def draw(generator: random.Random, family: str, target: str) -> Cell | None:
    choice = generator.choice
    shape: dict[str, Value] = {"element": choice(("f16", "f16", "bf16", "f32"))}
    if family == "gemm":
        shape |= {name: choice(_SIZES) for name in ("M", "N", "K")}
        shape |= {"batch": choice((1, 1, 4)), "transposed": choice((False, True))}
        shape["epilogue"] = choice(("none", "bias", "bias_relu", "bias_gelu", "residual", "silu"))
        # Small and uneven sizes take IREE's other pipelines: matrix-vector, padded tiles.
        if generator.random() < 0.25:
            shape[choice(("M", "N"))] = choice((1, 4, 8, 40, 100))
    elif family == "mha":
        shape |= {"batch": choice((1, 2)), "heads": choice((2, 4, 8)), "queries": choice((64, 128, 256, 512, 1024))}
        shape |= {"keys": choice((64, 128, 256, 512, 1024)), "head_dim": choice((32, 64, 64, 96, 128, 128, 256))}
        shape["causal"] = choice((False, True))
        if shape["causal"]:
            shape["keys"] = shape["queries"]
    elif family == "conv":
        shape |= {"image": choice((14, 16, 28, 32, 56)), "channels": choice((32, 64, 128, 256))}
        shape |= {"filters": choice((32, 64, 128, 256)), "taps": choice((1, 3)), "stride": choice((1, 2))}
    else:
        shape |= {"rows": choice((64, 256, 1000)), "columns": choice((128, 256, 500, 768, 1024, 4096))}
        if family == "layernorm":
            shape["residual"] = choice((False, True))
    return Cell.of("iree", family, target, shape, {})


def module(cell: Cell) -> str:
    """The operation, with what is fused into it, as MLIR in the torch dialect."""
    return {"gemm": _gemm, "mha": _attention, "conv": _convolution, "softmax": _softmax, "layernorm": _layernorm}[
        cell.family
    ](dict(cell.shape))


def make(cell: Cell) -> str:
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        source, dump = directory / "module.mlir", directory / "dump"
        source.write_text(module(cell))
        dump.mkdir()
        flags = [
            "--iree-input-type=torch",
            "--iree-hal-target-device=hip",
            f"--iree-rocm-target={cell.target}",
            *dump_flags(dump),
        ]
        find_iree_compile().run(source, directory / "module.vmfb", flags, stage="iree-compile", shown_as=cell.name)
        kernel_sources = [d.source for d in read_dispatches(dump, 22) if d.source is not None]
    if not kernel_sources:
        raise UnsupportedError("IREE made no kernel of it", where=str(cell))
    largest = max(kernel_sources, key=lambda kernel: (len(kernel.ir), kernel.name))
    # The tools run with -fp-contract=fast; here the instructions get it as flags.
    ir = as_code_generated(largest.ir.decode(), fp_fusion=True)
    return with_features(ir, largest.features)


@lru_cache(maxsize=1)
def version() -> str:
    return f"iree-compile {find_iree_compile().version()}"


class _Function:
    """Builds a function in the torch dialect, one operation a line."""

    def __init__(self, element: str) -> None:
        self.element = element
        self.arguments: list[tuple[str, str]] = []
        self.lines: list[str] = []

    def tensor(self, *sizes: int) -> str:
        return f"!torch.vtensor<[{','.join(map(str, sizes))}],{self.element}>"

    def argument(self, *sizes: int) -> tuple[str, str]:
        value = (f"%a{len(self.arguments)}", self.tensor(*sizes))
        self.arguments.append(value)
        return value

    def constant(self, kind: str, value: object = "") -> tuple[str, str]:
        name = f"%v{len(self.lines)}"
        self.lines.append(f"{name} = torch.constant.{kind} {value}".rstrip())
        return name, f"!torch.{kind}"

    def integers(self, *values: int) -> tuple[str, str]:
        items = [self.constant("int", value)[0] for value in values]
        name = f"%v{len(self.lines)}"
        kinds = ", ".join(["!torch.int"] * len(values))
        self.lines.append(f"{name} = torch.prim.ListConstruct {', '.join(items)} : ({kinds}) -> !torch.list<int>")
        return name, "!torch.list<int>"

    def do(self, operation: str, operands: list[tuple[str, str]], *sizes: int) -> tuple[str, str]:
        name, result = f"%v{len(self.lines)}", self.tensor(*sizes)
        values, kinds = ", ".join(v for v, _ in operands), ", ".join(k for _, k in operands)
        self.lines.append(f"{name} = torch.aten.{operation} {values} : {kinds} -> {result}")
        return name, result

    def text(self, result: tuple[str, str]) -> str:
        parameters = ", ".join(f"{name}: {kind}" for name, kind in self.arguments)
        body = "\n".join(f"  {line}" for line in self.lines)
        return f"func.func @main({parameters}) -> {result[1]} {{\n{body}\n  return {result[0]} : {result[1]}\n}}\n"


def _gemm(v: dict[str, Value]) -> str:
    m, n, k, batch = (int(v[name]) for name in ("M", "N", "K", "batch"))
    f = _Function(str(v["element"]))
    lead = (batch,) if batch > 1 else ()
    a = f.argument(*lead, m, k)
    if v["transposed"]:
        weights = f.argument(*lead, n, k)
        first, second = (f.constant("int", value) for value in (len(lead), len(lead) + 1))
        b = f.do("transpose.int", [weights, first, second], *lead, k, n)
    else:
        b = f.argument(*lead, k, n)
    x = f.do("bmm" if lead else "mm", [a, b], *lead, m, n)
    epilogue = str(v["epilogue"])
    if epilogue.startswith("bias"):
        x = f.do("add.Tensor", [x, f.argument(n), f.constant("int", 1)], *lead, m, n)
    if epilogue == "residual":
        x = f.do("add.Tensor", [x, f.argument(*lead, m, n), f.constant("int", 1)], *lead, m, n)
    if epilogue == "bias_relu":
        x = f.do("relu", [x], *lead, m, n)
    if epilogue == "bias_gelu":
        x = f.do("gelu", [x, f.constant("str", '"none"')], *lead, m, n)
    if epilogue == "silu":
        x = f.do("silu", [x], *lead, m, n)
    return f.text(x)


def _attention(v: dict[str, Value]) -> str:
    f = _Function(str(v["element"]))
    lead, size = (int(v["batch"]), int(v["heads"])), int(v["head_dim"])
    query = (*lead, int(v["queries"]), size)
    key = (*lead, int(v["keys"]), size)
    operands = [f.argument(*query), f.argument(*key), f.argument(*key), f.constant("none"), f.constant("float", "0.0")]
    operands += [f.constant("bool", str(v["causal"]).lower()), f.constant("none"), f.constant("bool", "false")]
    return f.text(f.do("scaled_dot_product_attention", operands, *query))


def _convolution(v: dict[str, Value]) -> str:
    f = _Function(str(v["element"]))
    image, channels, filters, taps, stride = (int(v[n]) for n in ("image", "channels", "filters", "taps", "stride"))
    out = (image - 1) // stride + 1
    x, w, bias = f.argument(2, channels, image, image), f.argument(filters, channels, taps, taps), f.argument(filters)
    steps, pad, one = f.integers(stride, stride), f.integers(taps // 2, taps // 2), f.integers(1, 1)
    groups = f.constant("int", 1)
    y = f.do("conv2d", [x, w, bias, steps, pad, one, groups], 2, filters, out, out)
    return f.text(f.do("relu", [y], 2, filters, out, out))


def _softmax(v: dict[str, Value]) -> str:
    f = _Function(str(v["element"]))
    sizes = int(v["rows"]), int(v["columns"])
    return f.text(f.do("softmax.int", [f.argument(*sizes), f.constant("int", 1), f.constant("none")], *sizes))


def _layernorm(v: dict[str, Value]) -> str:
    f = _Function(str(v["element"]))
    rows, columns = int(v["rows"]), int(v["columns"])
    x = f.argument(rows, columns)
    if v["residual"]:
        x = f.do("add.Tensor", [x, f.argument(rows, columns), f.constant("int", 1)], rows, columns)
    weight, bias, sizes = f.argument(columns), f.argument(columns), f.integers(columns)
    eps, no = f.constant("float", "1.000000e-05"), f.constant("bool", "false")
    return f.text(f.do("layer_norm", [x, sizes, weight, bias, eps, no], rows, columns))
