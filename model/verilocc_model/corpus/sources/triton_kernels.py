# pyright: basic, reportCallIssue=false, reportArgumentType=false, reportOperatorIssue=false
# pyright: reportGeneralTypeIssues=false
# Types of what is inside a kernel are Triton's own.
"""Triton kernels beside those of ``examples/triton_kernels.py``: what models are made of, for any element type."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def matmul_fused(
    a_ptr, b_ptr, bias_ptr, c_ptr, sizes, strides, BLOCK: tl.constexpr, FORM: tl.constexpr,
):  # fmt: skip
    """C = f(A B + bias); B is K x N, or N x K if ``TRANSPOSED``; ``EVEN`` sizes need no masks along K.

    ``sizes`` are m, n and k, ``strides`` those of A, B and C. ``BLOCK`` is rows, columns and depth of a tile, ``FORM``
    is ``TRANSPOSED``, ``EVEN`` and the epilogue f.
    """
    m, n, k = sizes
    stride_am, stride_b, stride_cm = strides
    BLOCK_M: tl.constexpr = BLOCK[0]
    BLOCK_N: tl.constexpr = BLOCK[1]
    BLOCK_K: tl.constexpr = BLOCK[2]
    TRANSPOSED: tl.constexpr = FORM[0]
    EVEN: tl.constexpr = FORM[1]
    EPILOGUE: tl.constexpr = FORM[2]
    pid_m, pid_n = tl.program_id(0), tl.program_id(1)
    offs_m = (pid_m * BLOCK_M + tl.arange(0, BLOCK_M)) % m
    offs_n = (pid_n * BLOCK_N + tl.arange(0, BLOCK_N)) % n
    offs_k = tl.arange(0, BLOCK_K)
    a_ptrs = a_ptr + offs_m[:, None] * stride_am + offs_k[None, :]
    if TRANSPOSED:
        b_ptrs = b_ptr + offs_k[:, None] + offs_n[None, :] * stride_b
    else:
        b_ptrs = b_ptr + offs_k[:, None] * stride_b + offs_n[None, :]
    accumulator = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for step in range(0, tl.cdiv(k, BLOCK_K)):
        if EVEN:
            a = tl.load(a_ptrs)
            b = tl.load(b_ptrs)
        else:
            left = k - step * BLOCK_K
            a = tl.load(a_ptrs, mask=offs_k[None, :] < left, other=0.0)
            b = tl.load(b_ptrs, mask=offs_k[:, None] < left, other=0.0)
        accumulator = tl.dot(a, b, accumulator)
        a_ptrs += BLOCK_K
        b_ptrs += BLOCK_K if TRANSPOSED else BLOCK_K * stride_b
    rows = pid_m * BLOCK_M + tl.arange(0, BLOCK_M)
    cols = pid_n * BLOCK_N + tl.arange(0, BLOCK_N)
    if EPILOGUE != "none":
        accumulator += tl.load(bias_ptr + cols, mask=cols < n, other=0.0).to(tl.float32)[None, :]
    if EPILOGUE == "relu":
        accumulator = tl.maximum(accumulator, 0.0)
    if EPILOGUE == "silu":
        accumulator = accumulator / (1.0 + tl.exp2(-1.44269504 * accumulator))
    out = c_ptr + stride_cm * rows[:, None] + cols[None, :]
    tl.store(out, accumulator.to(c_ptr.dtype.element_ty), mask=(rows[:, None] < m) & (cols[None, :] < n))


@triton.jit
def swiglu(
    x_ptr, gate_ptr, up_ptr, out_ptr, m, n, k,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """silu(X G) * (X U): two products at once, so twice the sums of a matmul."""
    offs_m = (tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)) % m
    offs_n = (tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)) % n
    offs_k = tl.arange(0, BLOCK_K)
    x_ptrs = x_ptr + offs_m[:, None] * k + offs_k[None, :]
    at = offs_k[:, None] * n + offs_n[None, :]
    gate = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    up = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for _ in range(0, k, BLOCK_K):
        x = tl.load(x_ptrs)
        gate = tl.dot(x, tl.load(gate_ptr + at), gate)
        up = tl.dot(x, tl.load(up_ptr + at), up)
        x_ptrs += BLOCK_K
        at += BLOCK_K * n
    result = gate / (1.0 + tl.exp2(-1.44269504 * gate)) * up
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    cols = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    mask = (rows[:, None] < m) & (cols[None, :] < n)
    tl.store(out_ptr + rows[:, None] * n + cols[None, :], result.to(out_ptr.dtype.element_ty), mask=mask)


@triton.jit
def attention(
    q_ptr, k_ptr, v_ptr, out_ptr, scale, length, group,
    SEEN: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """softmax(Q K^T) V where ``group`` query heads share a key head.

    ``SEEN`` is the mask (causal, a window, or none) and the window, ``BLOCK`` is queries, keys and depth of a tile.
    """
    MASK: tl.constexpr = SEEN[0]
    WINDOW: tl.constexpr = SEEN[1]
    BLOCK_M: tl.constexpr = BLOCK[0]
    BLOCK_N: tl.constexpr = BLOCK[1]
    HEAD: tl.constexpr = BLOCK[2]
    row = tl.program_id(0)
    head = tl.program_id(1)
    q_base = head.to(tl.int64) * length * HEAD
    k_base = (head // group).to(tl.int64) * length * HEAD
    offs_m = row * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.arange(0, BLOCK_N)
    offs_d = tl.arange(0, HEAD)
    q = tl.load(q_ptr + q_base + offs_m[:, None] * HEAD + offs_d[None, :], mask=offs_m[:, None] < length, other=0.0)
    highest = tl.full((BLOCK_M,), -1.0e30, tl.float32)
    total = tl.zeros((BLOCK_M,), tl.float32)
    out = tl.zeros((BLOCK_M, HEAD), tl.float32)
    begin = 0
    end = length
    if MASK != "none":
        end = tl.minimum((row + 1) * BLOCK_M, length)
    if MASK == "window":
        begin = tl.maximum(row * BLOCK_M - WINDOW, 0) // BLOCK_N * BLOCK_N
    for start in range(begin, end, BLOCK_N):
        cols = start + offs_n
        at = k_base + cols[:, None] * HEAD + offs_d[None, :]
        k = tl.load(k_ptr + at, mask=cols[:, None] < length, other=0.0)
        scores = tl.dot(q, tl.trans(k)) * (scale * 1.44269504)
        keep = cols[None, :] < length
        if MASK != "none":
            keep = keep & (offs_m[:, None] >= cols[None, :])
        if MASK == "window":
            keep = keep & (offs_m[:, None] - cols[None, :] < WINDOW)
        scores = tl.where(keep, scores, -1.0e30)
        new = tl.maximum(highest, tl.max(scores, 1))
        weights = tl.exp2(scores - new[:, None])
        shrink = tl.exp2(highest - new)
        total = total * shrink + tl.sum(weights, 1)
        v = tl.load(v_ptr + at, mask=cols[:, None] < length, other=0.0)
        out = tl.dot(weights.to(v.dtype), v, out * shrink[:, None])
        highest = new
    out = out / total[:, None]
    place = out_ptr + q_base + offs_m[:, None] * HEAD + offs_d[None, :]
    tl.store(place, out.to(out_ptr.dtype.element_ty), mask=offs_m[:, None] < length)


@triton.jit
def softmax(x_ptr, out_ptr, columns, BLOCK: tl.constexpr, ROWS: tl.constexpr, LOG: tl.constexpr):
    """Softmax (or its logarithm) of ``ROWS`` rows that fit into registers."""
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    cols = tl.arange(0, BLOCK)
    mask = (cols < columns)[None, :]
    at = rows[:, None] * columns + cols[None, :]
    x = tl.load(x_ptr + at, mask=mask, other=-float("inf")).to(tl.float32)
    x = x - tl.max(x, 1)[:, None]
    grown = tl.exp(x)
    total = tl.sum(grown, 1)[:, None]
    if LOG:  # noqa: SIM108
        result = x - tl.log(total)
    else:
        result = grown / total
    tl.store(out_ptr + at, result.to(out_ptr.dtype.element_ty), mask=mask)


@triton.jit
def layernorm(
    x_ptr, weight_ptr, bias_ptr, out_ptr, columns, eps, BLOCK: tl.constexpr, ROWS: tl.constexpr, RMS: tl.constexpr
):
    """Layer norm, or its root-mean-square form, of rows that fit into registers."""
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    cols = tl.arange(0, BLOCK)
    inside = cols < columns
    at = rows[:, None] * columns + cols[None, :]
    x = tl.load(x_ptr + at, mask=inside[None, :], other=0.0).to(tl.float32)
    if not RMS:
        mean = tl.sum(x, 1) / columns
        x = tl.where(inside[None, :], x - mean[:, None], 0.0)
    scale = 1.0 / tl.sqrt(tl.sum(x * x, 1) / columns + eps)
    result = x * scale[:, None] * tl.load(weight_ptr + cols, mask=inside, other=0.0).to(tl.float32)[None, :]
    if not RMS:
        result += tl.load(bias_ptr + cols, mask=inside, other=0.0).to(tl.float32)[None, :]
    tl.store(out_ptr + at, result.to(out_ptr.dtype.element_ty), mask=inside[None, :])


@triton.jit
def layernorm_backward(
    dout_ptr, x_ptr, weight_ptr, dx_ptr, dweight_ptr, columns, eps, BLOCK: tl.constexpr, ROWS: tl.constexpr
):
    """dX of a layer norm, and dW added up in memory; all rows are kept in registers."""
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    cols = tl.arange(0, BLOCK)
    inside = cols < columns
    at = rows[:, None] * columns + cols[None, :]
    x = tl.load(x_ptr + at, mask=inside[None, :], other=0.0).to(tl.float32)
    dout = tl.load(dout_ptr + at, mask=inside[None, :], other=0.0).to(tl.float32)
    weight = tl.load(weight_ptr + cols, mask=inside, other=0.0).to(tl.float32)
    x = tl.where(inside[None, :], x - (tl.sum(x, 1) / columns)[:, None], 0.0)
    scale = 1.0 / tl.sqrt(tl.sum(x * x, 1) / columns + eps)
    normal = x * scale[:, None]
    tl.atomic_add(dweight_ptr + cols, tl.sum(dout * normal, 0), mask=inside, sem="relaxed")
    slope = dout * weight[None, :]
    first = (tl.sum(slope * normal, 1) / columns)[:, None]
    second = (tl.sum(slope, 1) / columns)[:, None]
    dx = (slope - normal * first - second) * scale[:, None]
    tl.store(dx_ptr + at, dx.to(dx_ptr.dtype.element_ty), mask=inside[None, :])


@triton.jit
def convolution(
    x_ptr, w_ptr, out_ptr, height, width, channels, filters,
    TAPS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """A 2-D convolution as an implicit matmul: rows are points (NHWC), K runs over taps and channels."""
    BLOCK_M: tl.constexpr = BLOCK[0]
    BLOCK_N: tl.constexpr = BLOCK[1]
    BLOCK_K: tl.constexpr = BLOCK[2]
    points = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    offs_k = tl.arange(0, BLOCK_K)
    y, x = points // width, points % width
    total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for tap in range(0, TAPS * TAPS):
        row, col = y + tap // TAPS - TAPS // 2, x + tap % TAPS - TAPS // 2
        inside = (row >= 0) & (row < height) & (col >= 0) & (col < width)
        place = (row * width + col) * channels
        for c in range(0, channels, BLOCK_K):
            a = tl.load(x_ptr + place[:, None] + c + offs_k[None, :], mask=inside[:, None], other=0.0)
            b = tl.load(w_ptr + (tap * channels + c + offs_k)[:, None] * filters + offs_n[None, :])
            total = tl.dot(a, b, total)
    at = out_ptr + points[:, None] * filters + offs_n[None, :]
    tl.store(at, total.to(out_ptr.dtype.element_ty), mask=(points[:, None] < height * width))


@triton.jit
def depthwise(x_ptr, w_ptr, out_ptr, width, channels, TAPS: tl.constexpr, BLOCK: tl.constexpr, ROWS: tl.constexpr):
    """A 1-D convolution of every channel by itself, followed by silu, as in state-space models."""
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    cols = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = cols[None, :] < channels
    total = tl.zeros((ROWS, BLOCK), dtype=tl.float32)
    for tap in tl.static_range(TAPS):
        row = rows + tap - TAPS + 1
        mask = (row >= 0)[:, None] & (row < width)[:, None] & inside
        x = tl.load(x_ptr + row[:, None] * channels + cols[None, :], mask=mask, other=0.0).to(tl.float32)
        total += x * tl.load(w_ptr + tap * channels + cols, mask=cols < channels, other=0.0).to(tl.float32)[None, :]
    result = total / (1.0 + tl.exp2(-1.44269504 * total))
    at = rows[:, None] * channels + cols[None, :]
    tl.store(out_ptr + at, result.to(out_ptr.dtype.element_ty), mask=(rows < width)[:, None] & inside)


@triton.jit
def rotary(x_ptr, cos_ptr, sin_ptr, out_ptr, heads, BLOCK: tl.constexpr, HALF: tl.constexpr):
    """Rotary position embedding of ``BLOCK`` heads of one token."""
    token = tl.program_id(0)
    rows = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    cols = tl.arange(0, HALF)
    at = (token * heads + rows)[:, None] * (2 * HALF) + cols[None, :]
    mask = (rows < heads)[:, None]
    first = tl.load(x_ptr + at, mask=mask, other=0.0).to(tl.float32)
    second = tl.load(x_ptr + at + HALF, mask=mask, other=0.0).to(tl.float32)
    cos = tl.load(cos_ptr + token * HALF + cols).to(tl.float32)[None, :]
    sin = tl.load(sin_ptr + token * HALF + cols).to(tl.float32)[None, :]
    tl.store(out_ptr + at, (first * cos - second * sin).to(out_ptr.dtype.element_ty), mask=mask)
    tl.store(out_ptr + at + HALF, (second * cos + first * sin).to(out_ptr.dtype.element_ty), mask=mask)
