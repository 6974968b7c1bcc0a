"""The generated kernels compute what they say: their MLIR run in numpy, beside a plain product or softmax."""

from __future__ import annotations

import re
from typing import Any

import pytest
from mlir_support import lowering_bindings, small
from support import long

from examples.mlir_kernels import KINDS, TARGETS, Attention, Config, Gemm, instructions, sample
from verilocc_mlir.hooks.mlir_pipeline import Bindings

np = pytest.importorskip("numpy")
interpreter = pytest.importorskip("mlir_interpreter")
QUICK = ("gfx1201",)
needs_bindings = pytest.mark.parametrize("package", lowering_bindings()[:1])


def parsed(package: str, text: str) -> Any:
    bindings = Bindings(package)
    with bindings.ir.Context():
        return bindings.ir.Module.parse(text)


def numbers(generator: Any, shape: tuple[int, ...], element: str) -> Any:
    if element == "i8":
        return generator.integers(-9, 10, shape).astype(np.int8)
    return interpreter.rounded(generator.standard_normal(shape).astype(np.float32), element)


def run_gemm(package: str, config: Gemm) -> None:
    """Compare with numpy on a problem of three turns of the K loop, two tiles of columns, ragged if guarded."""
    generator = np.random.default_rng(0)
    bm, bn, bk = config.block
    batch = 2 if config.batched else 1
    m, n, k = (bm - 5, 2 * bn - 8, 3 * bk) if config.guarded else (bm, 2 * bn, 3 * bk)
    a, b = numbers(generator, (batch, m, k), config.element), numbers(generator, (batch, n, k), config.element)
    out = "i32" if config.element == "i8" else "f32"
    if config.narrow:
        out = "f16" if config.element == "i8" else config.element
    wide = np.int32 if config.element == "i8" else np.float32
    expected = np.einsum("zmk,znk->zmn", a.astype(wide), b.astype(wide))
    arguments: list[Any] = [a.ravel(), (b if config.layout == "nk" else b.transpose(0, 2, 1)).ravel()]
    # What is read beyond the matrix by a guarded load of several columns is inside the buffer's padding.
    arguments[1] = np.concatenate([arguments[1], np.zeros(16, arguments[1].dtype)])
    c = interpreter.rounded(np.full(batch * m * n, 55), out)
    arguments.append(c)
    scale = np.float32(0.25)
    if config.element == "i8" and config.narrow:
        expected = expected * scale
    if config.epilogue.startswith("bias"):
        bias = generator.integers(-4, 5, n).astype(np.float32)
        arguments.append(bias)
        expected = expected + bias
        expected = np.maximum(expected, 0) if config.epilogue == "bias_relu" else expected
    elif config.epilogue != "none":
        extra = numbers(generator, (batch, m, n), out)
        arguments.append(extra.ravel())
        expected = expected / (1 + np.exp(-expected)) * extra if config.epilogue == "silu" else expected + extra
    arguments += [m, n, k]
    if config.element == "i8" and config.narrow:
        arguments.append(scale)
    grid = (2, 1, batch)
    with np.errstate(over="ignore"):
        interpreter.Kernel(parsed(package, config.mlir())).run(grid, arguments)
    tolerance = 0 if out == "i32" else 2e-2 if out in ("f16", "bf16") else 1e-4
    np.testing.assert_allclose(
        c.reshape(batch, m, n).astype(np.float64), expected, rtol=tolerance, atol=tolerance * np.abs(expected).max()
    )


def run_attention(package: str, config: Attention) -> None:
    """Compare with softmax in numpy: two work-groups of queries, two key heads of two query heads each."""
    generator = np.random.default_rng(0)
    heads, group, d = 4, 2, config.head_dim
    queries = 2 * config.queries
    keys = -(-queries // config.block) * config.block
    q = numbers(generator, (heads, queries, d), config.element)
    k, v = (numbers(generator, (heads // group, keys, d), config.element) for _ in range(2))
    window = config.block + 3
    scores = np.einsum("hqd,hkd->hqk", q.astype(np.float32), np.repeat(k, group, 0).astype(np.float32)) / np.sqrt(d)
    query, key = np.arange(queries)[:, None], np.arange(keys)[None]
    if config.mask != "none":
        scores[:, (key > query) | ((query - key >= window) & (config.mask == "window"))] = -np.inf
    highest = scores.max(-1, keepdims=True)
    weights = np.exp(scores - highest)
    total = weights.sum(-1, keepdims=True)
    expected = np.einsum("hqk,hkd->hqd", weights / total, np.repeat(v, group, 0).astype(np.float32))

    def placed(x: Any) -> Any:
        return np.ascontiguousarray(x.transpose(1, 0, 2) if config.heads_inner else x).ravel()

    element = "f32" if config.wide else config.element
    out = interpreter.rounded(np.zeros(heads * queries * d), element)
    values = np.ascontiguousarray(v.transpose(0, 2, 1)).ravel() if config.values == "transposed" else placed(v)
    logs = np.zeros(heads * queries, np.float32)
    scale = np.float32(np.log2(np.e) / np.sqrt(d))
    arguments = [placed(q), placed(k), values, out, *([logs] if config.log_sum else [])]
    arguments += [queries, keys, heads, group, scale]
    arguments += [window] if config.mask == "window" else []
    interpreter.Kernel(parsed(package, config.mlir())).run((2, heads, 1), arguments)
    found = out.astype(np.float32).reshape((queries, heads, d) if config.heads_inner else (heads, queries, d))
    found = found.transpose(1, 0, 2) if config.heads_inner else found
    np.testing.assert_allclose(found, expected, rtol=3e-2, atol=3e-2)
    if config.log_sum:
        np.testing.assert_allclose(
            logs.reshape(heads, queries), ((highest + np.log(total)) * np.log2(np.e))[..., 0], rtol=1e-3, atol=1e-3
        )


def run(package: str, config: Config) -> None:
    if isinstance(config, Gemm):
        run_gemm(package, config)
    else:
        run_attention(package, config)


@needs_bindings
@pytest.mark.parametrize("target", [*QUICK, *long(*(t for t in TARGETS if t not in QUICK))])
def test_gemms_compute_the_product(package: str, target: str) -> None:
    for config in sample(6, 3, [target], ["gemm"], small):
        run(package, config)


@pytest.mark.long
@needs_bindings
@pytest.mark.parametrize("target", ["gfx942", *long(*(t for t in TARGETS if t != "gfx942"))])
def test_attentions_compute_the_softmax_of_the_scores(package: str, target: str) -> None:
    for config in sample(1, 4, [target], ["attention"], small):
        run(package, config)


@needs_bindings
@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_a_hundred_kernels_compute_what_they_should(package: str, kind: str) -> None:
    for config in sample(100, 11, kinds=[kind], accept=small):
        run(package, config)


@needs_bindings
@pytest.mark.parametrize(("old", "new"), [("arith.addf", "arith.mulf"), ("cmpi ule", "cmpi ult")])
def test_a_wrong_kernel_is_seen(package: str, old: str, new: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (config,) = sample(1, 5, ["gfx942"], ["attention"], lambda c: small(c) and getattr(c, "mask", "") == "causal")
    text = config.mlir()
    assert old in text
    monkeypatch.setattr(Attention, "mlir", lambda self: text.replace(old, new))
    with pytest.raises((AssertionError, FloatingPointError)):
        run(package, config)


@pytest.mark.long
@needs_bindings
def test_a_fragment_from_another_place_is_seen(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = {"staging": "registers", "element": "f16", "instruction": instructions("gfx1201", "f16")[0]}
    (config,) = sample(
        1, 5, ["gfx1201"], ["gemm"], lambda c: small(c) and all(getattr(c, k) == v for k, v in wanted.items())
    )
    text = config.mlir()
    place = next(re.finditer(r"vector\.load %A\[(%v\d+)\]", text))
    monkeypatch.setattr(Gemm, "mlir", lambda self: text.replace(place[0], "vector.load %A[%v1]", 1))
    with pytest.raises(AssertionError):
        run(package, config)
