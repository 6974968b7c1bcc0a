"""Triton: kernels as people write them, over the configurations that autotuners try; ``triton.compile`` needs no GPU.

The IR is what Triton gives to its code generator, with the attributes that the generator adds (``hooks.triton.ir``).
Options that Triton sets only for its own LLVM (``get_llvm_flags``) are left out.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import random
import tempfile
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from importlib import metadata
from typing import Any

from verilocc_mlir.errors import ToolchainError, UnsupportedError
from verilocc_mlir.hooks.triton.native import as_code_generated
from verilocc_model.corpus.sources import TARGETS, Cell, Value, example

_NO_MATRIX = ("softmax", "layernorm", "elementwise")
_ALL = ("gemm", "mha", "conv", *_NO_MATRIX)
# LLVM 22 has other matrix intrinsics for gfx1250 than Triton 3.9 uses.
FAMILIES = {target: _NO_MATRIX if target == "gfx1250" else _ALL for target in TARGETS}

_FORMS = {"f16": "fp16", "bf16": "bf16", "f32": "fp32"}
_ENVIRONMENT = {
    "TRITON_ALWAYS_COMPILE": "1",
    "TRITON_DISABLE_LINE_INFO": "1",  # file names would be in the IR
    "TRITON_HIP_USE_ASYNC_COPY": "0",  # intrinsics that LLVM 22 lacks
    "TRITON_DEFAULT_FP_FUSION": "1",
}
_KERNELS = {
    "matmul": ("gemm", "examples"),
    "matmul_fused": ("gemm", "own"),
    "swiglu": ("gemm", "own"),
    "attention_forward": ("mha", "examples"),
    "attention_backward": ("mha", "examples"),
    "attention": ("mha", "own"),
    "softmax": ("softmax", "own"),
    "layernorm": ("layernorm", "own"),
    "layernorm_backward": ("layernorm", "own"),
    "convolution": ("conv", "own"),
    "depthwise": ("conv", "own"),
    "rotary": ("elementwise", "own"),
}


@dataclass(frozen=True)
class _Signature:
    """``pointers``: name to ``"e"`` (the element type) or a type; ``scalars``: name to type, or types of a tuple;
    ``tuples``: name of a constant to the values of a cell that are its items.
    """

    pointers: dict[str, str]
    scalars: Mapping[str, str | tuple[str, ...]]
    tuples: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, "tuple[str, ...]"])

    def constants(self, values: Mapping[str, Value]) -> dict[str, Any]:
        """The constants of the kernel, from the values of a cell."""
        packed = {name for names in self.tuples.values() for name in names}
        tuples = {name: tuple(values[item] for item in names) for name, names in self.tuples.items()}
        return {**{name: value for name, value in values.items() if name not in packed}, **tuples}


_SIGNATURES = {
    "matmul": _Signature(dict.fromkeys(("a_ptr", "b_ptr", "c_ptr"), "e"),
                         dict.fromkeys(("m", "n", "k", "stride_am", "stride_bk", "stride_cm"), "i32")),
    "matmul_fused": _Signature(dict.fromkeys(("a_ptr", "b_ptr", "bias_ptr", "c_ptr"), "e"),
                               dict.fromkeys(("sizes", "strides"), ("i32",) * 3),
                               {"BLOCK": ("BLOCK_M", "BLOCK_N", "BLOCK_K"),
                                "FORM": ("TRANSPOSED", "EVEN", "EPILOGUE")}),
    "swiglu": _Signature(dict.fromkeys(("x_ptr", "gate_ptr", "up_ptr", "out_ptr"), "e"),
                         dict.fromkeys(("m", "n", "k"), "i32")),
    "attention_forward": _Signature({**dict.fromkeys(("q_ptr", "k_ptr", "v_ptr", "out_ptr"), "e"), "lse_ptr": "fp32"},
                                    {"scale": "fp32", "length": "i32"}),
    "attention_backward": _Signature({**dict.fromkeys(("q_ptr", "k_ptr", "v_ptr", "dout_ptr"), "e"),
                                      **dict.fromkeys(("lse_ptr", "delta_ptr", "dq_ptr"), "fp32"),
                                      **dict.fromkeys(("dk_ptr", "dv_ptr"), "e")},
                                     {"scale": "fp32", "length": "i32"}),
    "attention": _Signature(dict.fromkeys(("q_ptr", "k_ptr", "v_ptr", "out_ptr"), "e"),
                            {"scale": "fp32", "length": "i32", "group": "i32"},
                            {"SEEN": ("MASK", "WINDOW"), "BLOCK": ("BLOCK_M", "BLOCK_N", "HEAD")}),
    "softmax": _Signature(dict.fromkeys(("x_ptr", "out_ptr"), "e"), {"columns": "i32"}),
    "layernorm": _Signature(dict.fromkeys(("x_ptr", "weight_ptr", "bias_ptr", "out_ptr"), "e"),
                            {"columns": "i32", "eps": "fp32"}),
    "layernorm_backward": _Signature({**dict.fromkeys(("dout_ptr", "x_ptr", "weight_ptr", "dx_ptr"), "e"),
                                      "dweight_ptr": "fp32"}, {"columns": "i32", "eps": "fp32"}),
    "convolution": _Signature(dict.fromkeys(("x_ptr", "w_ptr", "out_ptr"), "e"),
                              dict.fromkeys(("height", "width", "channels", "filters"), "i32"),
                              {"BLOCK": ("BLOCK_M", "BLOCK_N", "BLOCK_K")}),
    "depthwise": _Signature(dict.fromkeys(("x_ptr", "w_ptr", "out_ptr"), "e"),
                            dict.fromkeys(("width", "channels"), "i32")),
    "rotary": _Signature(dict.fromkeys(("x_ptr", "cos_ptr", "sin_ptr", "out_ptr"), "e"), {"heads": "i32"}),
}  # fmt: skip
_SHAPE = frozenset({"kernel", "element", "HEAD", "CAUSAL", "MASK", "WINDOW", "EPILOGUE", "TRANSPOSED", "TAPS", "RMS",
                    "LOG", "HALF", "EVEN"})  # fmt: skip
_OPTIONS = ("num_warps", "num_stages")
_MOST_SUMS = 256
"""Most f32 values of accumulators and tiles in a lane; with more, kernels are too long to be of use."""


def draw(generator: random.Random, family: str, target: str) -> Cell | None:
    kernel = generator.choice([name for name, (of, _) in _KERNELS.items() if of == family])
    choice = generator.choice
    element = "f16" if _KERNELS[kernel][1] == "examples" else choice(("f16", "bf16"))
    values: dict[str, Value] = {"kernel": kernel, "element": element}
    values["num_warps"] = warps = choice((1, 2, 4, 4, 8))
    values["num_stages"] = choice((1, 2, 2, 3)) if family in ("gemm", "mha", "conv") else 1
    m, n, k = choice((16, 32, 64, 128, 256)), choice((16, 32, 64, 128, 256)), choice((16, 32, 64, 128))
    if family == "gemm":
        values |= {"BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": k}
        size = (2 if kernel == "swiglu" else 1) * m * n + (m + n) * k // 2
        if kernel == "matmul":
            values["GROUP_M"] = choice((4, 8))
        if kernel == "matmul_fused":
            values |= {"TRANSPOSED": choice((False, True)), "EVEN": choice((False, True))}
            values["EPILOGUE"] = choice(("none", "relu", "silu"))
    elif family == "mha":
        head = choice((32, 64, 64, 128, 128))
        m, n = min(m, 128), min(n, 128)
        values |= {"BLOCK_M": m, "BLOCK_N": n, "HEAD": head}
        backward = kernel == "attention_backward"
        size = 2 * n * (m + 2 * head) if backward else m * (2 * head + 2 * n)
        if kernel == "attention":
            values["MASK"] = choice(("none", "causal", "window"))
            values["WINDOW"] = 256 if values["MASK"] == "window" else 0
        else:
            values["CAUSAL"] = choice((False, True))
    elif kernel == "convolution":
        m, n, k = min(m, 128), min(n, 128), min(k, 64)
        values |= {"BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": k, "TAPS": choice((1, 3, 5))}
        size = m * n + (m + n) * k // 2
    elif kernel == "rotary":
        values |= {"BLOCK": choice((1, 4, 16, 32)), "HALF": choice((32, 64, 128))}
        size = 6 * int(values["BLOCK"]) * int(values["HALF"])
    else:
        values |= {"BLOCK": choice((128, 256, 512, 1024, 2048, 4096)), "ROWS": choice((1, 2, 4, 8))}
        size = 3 * int(values["BLOCK"]) * int(values["ROWS"])
        values |= {"softmax": {"LOG": choice((False, True))}, "layernorm": {"RMS": choice((False, True))},
                   "depthwise": {"TAPS": choice((2, 4, 7))}}.get(kernel, {})  # fmt: skip
    lanes = warps * _wave(target)
    if not lanes // 4 <= size <= _MOST_SUMS * lanes:
        return None
    shape = {name: value for name, value in values.items() if name in _SHAPE}
    return Cell.of("triton", family, target, shape, {k: v for k, v in values.items() if k not in _SHAPE})


def make(cell: Cell) -> str:
    triton = _triton()
    values = {**dict(cell.shape), **dict(cell.config)}
    name = str(values.pop("kernel"))
    element = _FORMS[str(values.pop("element"))]
    options = {option: values.pop(option) for option in _OPTIONS}
    signature = _SIGNATURES[name]
    pointers = {p: f"*{element if kind == 'e' else kind}" for p, kind in signature.pointers.items()}
    constants = signature.constants(values)
    kinds = {**pointers, **signature.scalars, **dict.fromkeys(constants, "constexpr")}
    function = _function(name)
    ordered = {p: kinds[p] for p in function.arg_names}
    places = {
        (at, *within): [["tt.divisibility", 16]]
        for at, (parameter, kind) in enumerate(ordered.items())
        for within, of in ([((n,), item) for n, item in enumerate(kind)] if isinstance(kind, tuple) else [((), kind)])
        if of[0] == "*" or (of == "i32" and parameter != "group")
    }
    source = triton.compiler.ASTSource(function, ordered, constants, places)
    backends = importlib.import_module("triton.backends.compiler")
    target = backends.GPUTarget("hip", cell.target, _wave(cell.target))
    with tempfile.TemporaryDirectory() as cache, _environment(triton, cache):
        try:
            triton.compile(source, target=target, options=options)
        except _Ready as ready:
            return as_code_generated(ready.ir, fp_fusion=True)
        except Exception as error:  # a pass of Triton may raise anything
            lines = str(error).strip().splitlines() or [type(error).__name__]
            raise UnsupportedError(f"Triton cannot compile it: {lines[0]}", where=str(cell)) from error
    raise UnsupportedError("Triton made no LLVM IR of it", where=str(cell))


def version() -> str:
    try:
        return f"triton {metadata.version('triton')}"
    except metadata.PackageNotFoundError as error:
        raise _missing(error) from error


class _Ready(Exception):
    """Ends Triton's pipeline when the IR is there."""

    def __init__(self, ir: str) -> None:
        super().__init__()
        self.ir = ir


def _stop_after_ir(backend: Any = None, stages: Any = None, *_: Any, **__: Any) -> Any:
    del backend
    if stages is None:
        return "verilocc-corpus", "1"

    def stop(ir: str, metadata: Any) -> str:
        del metadata
        raise _Ready(ir)

    stages["amdgcn"] = stop
    return None


@contextlib.contextmanager
def _environment(triton: Any, cache: str) -> Generator[None, None, None]:
    """Triton's settings for the corpus, restored afterwards: others in this process use Triton too."""
    variables = {**_ENVIRONMENT, "TRITON_CACHE_DIR": cache}
    before = {name: os.environ.get(name) for name in variables}
    hook = triton.knobs.runtime.add_stages_inspection_hook
    os.environ.update(variables)
    triton.knobs.runtime.add_stages_inspection_hook = _stop_after_ir
    try:
        yield
    finally:
        triton.knobs.runtime.add_stages_inspection_hook = hook
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _triton() -> Any:
    try:
        return importlib.import_module("triton")
    except ImportError as error:
        raise _missing(error) from error


def _missing(error: Exception) -> ToolchainError:
    return ToolchainError(f"Triton cannot be loaded: {error}", hint="pip install 'verilocc-mlir[triton]'")


def _function(name: str) -> Any:
    where = _KERNELS[name][1]
    kernels = (
        example("triton_kernels")
        if where == "examples"
        else importlib.import_module("verilocc_model.corpus.sources.triton_kernels")
    )
    return getattr(kernels, name)


def _wave(target: str) -> int:
    return 64 if target.startswith("gfx9") else 32
