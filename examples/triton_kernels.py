"""Triton kernels as people write them: a tiled matmul, and flash attention forward and backward.

Each family comes with its autotune configurations; ``variants`` lists every kernel, its argument types and its options,
so that they can be compiled ahead of time, without a GPU.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import triton
import triton.language as tl


@triton.jit
def matmul(
    a_ptr, b_ptr, c_ptr, m, n, k, stride_am, stride_bk, stride_cm,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """C = A B for row-major f16 matrices, accumulated in f32; program ids are grouped for reuse in the cache."""
    pid = tl.program_id(0)
    width = GROUP_M * tl.cdiv(n, BLOCK_N)
    first = pid // width * GROUP_M
    rows = min(tl.cdiv(m, BLOCK_M) - first, GROUP_M)
    pid_m = first + pid % width % rows
    pid_n = pid % width // rows
    offs_m = (pid_m * BLOCK_M + tl.arange(0, BLOCK_M)) % m
    offs_n = (pid_n * BLOCK_N + tl.arange(0, BLOCK_N)) % n
    offs_k = tl.arange(0, BLOCK_K)
    a_ptrs = a_ptr + offs_m[:, None] * stride_am + offs_k[None, :]
    b_ptrs = b_ptr + offs_k[:, None] * stride_bk + offs_n[None, :]
    accumulator = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for step in range(0, tl.cdiv(k, BLOCK_K)):
        left = k - step * BLOCK_K
        a = tl.load(a_ptrs, mask=offs_k[None, :] < left, other=0.0)
        b = tl.load(b_ptrs, mask=offs_k[:, None] < left, other=0.0)
        accumulator = tl.dot(a, b, accumulator)
        a_ptrs += BLOCK_K
        b_ptrs += BLOCK_K * stride_bk
    offs_cm = pid_m * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_cn = pid_n * BLOCK_N + tl.arange(0, BLOCK_N)
    c_ptrs = c_ptr + stride_cm * offs_cm[:, None] + offs_cn[None, :]
    tl.store(c_ptrs, accumulator.to(tl.float16), mask=(offs_cm[:, None] < m) & (offs_cn[None, :] < n))


@triton.jit
def attention_forward(
    q_ptr, k_ptr, v_ptr, out_ptr, lse_ptr, scale, length,
    CAUSAL: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, HEAD: tl.constexpr,
):  # fmt: skip
    """softmax(Q K^T) V for one head and one block of rows, streaming over K and V; keeps the log-sum-exp."""
    row = tl.program_id(0)
    base = tl.program_id(1).to(tl.int64) * length * HEAD
    offs_m = row * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.arange(0, BLOCK_N)
    offs_d = tl.arange(0, HEAD)
    q = tl.load(q_ptr + base + offs_m[:, None] * HEAD + offs_d[None, :], mask=offs_m[:, None] < length, other=0.0)
    highest = tl.full((BLOCK_M,), float("-inf"), tl.float32)
    total = tl.zeros((BLOCK_M,), tl.float32)
    out = tl.zeros((BLOCK_M, HEAD), tl.float32)
    scale2 = scale * 1.44269504
    end = tl.minimum((row + 1) * BLOCK_M, length) if CAUSAL else length
    for start in range(0, end, BLOCK_N):
        cols = start + offs_n
        inside = cols < length
        k = tl.load(k_ptr + base + offs_d[:, None] + cols[None, :] * HEAD, mask=inside[None, :], other=0.0)
        scores = tl.dot(q, k) * scale2
        keep = inside[None, :]
        if CAUSAL:
            keep = keep & (offs_m[:, None] >= cols[None, :])
        scores = tl.where(keep, scores, -1.0e6)
        new = tl.maximum(highest, tl.max(scores, 1))
        p = tl.exp2(scores - new[:, None])
        shrink = tl.exp2(highest - new)
        total = total * shrink + tl.sum(p, 1)
        v = tl.load(v_ptr + base + cols[:, None] * HEAD + offs_d[None, :], mask=inside[:, None], other=0.0)
        out = tl.dot(p.to(tl.float16), v, out * shrink[:, None])
        highest = new
    out = out / total[:, None]
    tl.store(
        out_ptr + base + offs_m[:, None] * HEAD + offs_d[None, :], out.to(tl.float16), mask=offs_m[:, None] < length
    )
    tl.store(lse_ptr + tl.program_id(1) * length + offs_m, highest + tl.log2(total), mask=offs_m < length)


@triton.jit
def attention_backward(
    q_ptr, k_ptr, v_ptr, dout_ptr, lse_ptr, delta_ptr, dq_ptr, dk_ptr, dv_ptr, scale, length,
    CAUSAL: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, HEAD: tl.constexpr,
):  # fmt: skip
    """dK and dV of one block of columns, streaming over rows; dQ is added up in memory (f32 atomics)."""
    col = tl.program_id(0)
    head = tl.program_id(1)
    base = head.to(tl.int64) * length * HEAD
    cols = col * BLOCK_N + tl.arange(0, BLOCK_N)
    offs_m = tl.arange(0, BLOCK_M)
    offs_d = tl.arange(0, HEAD)
    inside = cols < length
    tile = cols[:, None] * HEAD + offs_d[None, :]
    k = tl.load(k_ptr + base + tile, mask=inside[:, None], other=0.0)
    v = tl.load(v_ptr + base + tile, mask=inside[:, None], other=0.0)
    dk = tl.zeros((BLOCK_N, HEAD), tl.float32)
    dv = tl.zeros((BLOCK_N, HEAD), tl.float32)
    scale2 = scale * 1.44269504
    begin = col * BLOCK_N // BLOCK_M * BLOCK_M if CAUSAL else 0
    for start in range(begin, length, BLOCK_M):
        rows = start + offs_m
        valid = rows < length
        part = rows[:, None] * HEAD + offs_d[None, :]
        q = tl.load(q_ptr + base + part, mask=valid[:, None], other=0.0)
        dout = tl.load(dout_ptr + base + part, mask=valid[:, None], other=0.0)
        lse = tl.load(lse_ptr + head * length + rows, mask=valid, other=0.0)
        delta = tl.load(delta_ptr + head * length + rows, mask=valid, other=0.0)
        keep = valid[:, None] & inside[None, :]
        if CAUSAL:
            keep = keep & (rows[:, None] >= cols[None, :])
        p = tl.where(keep, tl.exp2(tl.dot(q, tl.trans(k)) * scale2 - lse[:, None]), 0.0)
        dv = tl.dot(tl.trans(p.to(tl.float16)), dout, dv)
        ds = (p * (tl.dot(dout, tl.trans(v)) - delta[:, None]) * scale).to(tl.float16)
        dk = tl.dot(tl.trans(ds), q, dk)
        tl.atomic_add(dq_ptr + base + part, tl.dot(ds, k), mask=valid[:, None], sem="relaxed")
    tl.store(dk_ptr + base + tile, dk.to(tl.float16), mask=inside[:, None])
    tl.store(dv_ptr + base + tile, dv.to(tl.float16), mask=inside[:, None])


@dataclass(frozen=True)
class Variant:
    """One kernel with one configuration, as ``triton.compile`` wants it."""

    kernel: Any
    signature: dict[str, str]
    constants: dict[str, Any]
    options: dict[str, int]
    aligned: tuple[str, ...]

    @property
    def name(self) -> str:
        """Kernel and configuration, unique among the variants."""
        constants = ",".join(f"{k}={v}" for k, v in self.constants.items())
        options = ",".join(f"{k}={v}" for k, v in self.options.items())
        return f"{self.kernel.fn.__name__}[{constants};{options}]"

    def source(self) -> Any:
        """The ``ASTSource`` of it; pointers and strides are multiples of 16, as they are in practice."""
        names = list(self.signature)
        attributes = {(names.index(name),): [["tt.divisibility", 16]] for name in self.aligned}
        return triton.compiler.ASTSource(self.kernel, self.signature, self.constants, attributes)


MATMUL_CONFIGS = [
    # BLOCK_M, BLOCK_N, BLOCK_K, num_warps, num_stages, waves_per_eu
    (128, 128, 32, 4, 2, 0),
    (128, 64, 32, 4, 2, 0),
    (64, 64, 64, 4, 2, 0),
    (64, 128, 32, 4, 2, 2),
    (32, 64, 32, 2, 2, 0),
    (64, 32, 64, 2, 1, 0),
    (256, 64, 32, 8, 2, 0),
    (16, 64, 64, 1, 2, 3),
    (128, 128, 64, 8, 2, 2),
]
FORWARD_CONFIGS = [
    # CAUSAL, BLOCK_M, BLOCK_N, HEAD, num_warps, num_stages, waves_per_eu
    (False, 64, 32, 64, 4, 1, 0),
    (True, 64, 32, 64, 4, 1, 0),
    (True, 64, 64, 64, 4, 2, 0),
    (False, 128, 32, 64, 4, 1, 2),
    (True, 128, 64, 64, 8, 1, 0),
    (False, 32, 32, 128, 2, 1, 0),
    (True, 64, 32, 128, 4, 1, 0),
    (True, 128, 32, 128, 8, 2, 2),
]
BACKWARD_CONFIGS = [
    (False, 32, 32, 64, 4, 1, 0),
    (True, 32, 32, 64, 4, 1, 0),
    (True, 32, 64, 64, 4, 1, 0),
    (False, 64, 32, 64, 4, 1, 2),
    (True, 64, 64, 64, 8, 1, 0),
    (False, 32, 32, 64, 2, 1, 0),
    (True, 16, 32, 128, 4, 1, 0),
    (True, 32, 64, 128, 8, 1, 2),
]


def _pointers(element: str, *names: str) -> dict[str, str]:
    return dict.fromkeys(names, f"*{element}")


def variants() -> Iterator[Variant]:
    """Every kernel with every configuration."""
    for m, n, k, warps, stages, waves in MATMUL_CONFIGS:
        sizes = ["m", "n", "k", "stride_am", "stride_bk", "stride_cm"]
        constants = {"BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": k, "GROUP_M": 8}
        yield _variant(matmul, _pointers("fp16", "a_ptr", "b_ptr", "c_ptr"), sizes, constants, warps, stages, waves)
    forward = {**_pointers("fp16", "q_ptr", "k_ptr", "v_ptr", "out_ptr"), "lse_ptr": "*fp32", "scale": "fp32"}
    gradient = {
        **_pointers("fp16", "q_ptr", "k_ptr", "v_ptr", "dout_ptr"),
        **_pointers("fp32", "lse_ptr", "delta_ptr", "dq_ptr"),
        **_pointers("fp16", "dk_ptr", "dv_ptr"),
        "scale": "fp32",
    }
    for causal, m, n, head, warps, stages, waves in FORWARD_CONFIGS:
        constants = {"CAUSAL": causal, "BLOCK_M": m, "BLOCK_N": n, "HEAD": head}
        yield _variant(attention_forward, forward, ["length"], constants, warps, stages, waves)
    for causal, m, n, head, warps, stages, waves in BACKWARD_CONFIGS:
        constants = {"CAUSAL": causal, "BLOCK_M": m, "BLOCK_N": n, "HEAD": head}
        yield _variant(attention_backward, gradient, ["length"], constants, warps, stages, waves)


def _variant(
    kernel: Any,
    arguments: dict[str, str],
    sizes: list[str],
    constants: dict[str, Any],
    warps: int,
    stages: int,
    waves: int,
) -> Variant:
    signature = {**arguments, **dict.fromkeys(sizes, "i32"), **dict.fromkeys(constants, "constexpr")}
    aligned = tuple(itertools.chain((name for name, kind in arguments.items() if kind[0] == "*"), sizes))
    options = {"num_warps": warps, "num_stages": stages, "waves_per_eu": waves}
    return Variant(kernel, signature, dict(constants), options, aligned)
