"""The kernels of Triton's tutorials, and how each is called.

Written anew after the tutorials of Triton (https://github.com/triton-lang/triton, python/tutorials, 01 to 10; MIT
licence), which are not in its wheel: the same algorithms over the same arguments.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import triton
import triton.language as tl
from triton.language.extra import libdevice
from triton_kernels import Variant


@triton.jit
def add(x_ptr, y_ptr, out_ptr, size, BLOCK: tl.constexpr):
    """01: a vector sum."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < size
    tl.store(out_ptr + at, tl.load(x_ptr + at, mask=inside) + tl.load(y_ptr + at, mask=inside), mask=inside)


@triton.jit
def softmax(out_ptr, in_ptr, in_stride, out_stride, rows, columns, BLOCK: tl.constexpr, STAGES: tl.constexpr):
    """02: softmax over rows; each program takes every so-many-th row."""
    first = tl.program_id(0)
    step = tl.num_programs(0)
    column = tl.arange(0, BLOCK)
    inside = column < columns
    for row in tl.range(first, rows, step, num_stages=STAGES):
        values = tl.load(in_ptr + row * in_stride + column, mask=inside, other=-float("inf"))
        powers = tl.exp(values - tl.max(values, axis=0))
        tl.store(out_ptr + row * out_stride + column, powers / tl.sum(powers, axis=0), mask=inside)


@triton.jit
def leaky_relu(x):
    """Of 03: what a matmul may end with."""
    return tl.where(x >= 0, x, 0.01 * x)


@triton.jit
def _grouped(pid, m, n, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    blocks_n = tl.cdiv(n, BLOCK_N)
    per_group = GROUP_M * blocks_n
    first = pid // per_group * GROUP_M
    rows = min(tl.cdiv(m, BLOCK_M) - first, GROUP_M)
    return first + pid % per_group % rows, pid % per_group // rows


@triton.jit
def matmul(
    a_ptr, b_ptr, c_ptr, m, n, k, stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
    ACTIVATION: tl.constexpr,
):  # fmt: skip
    """03: a tiled matmul, blocks in groups of rows for the cache."""
    pid_m, pid_n = _grouped(tl.program_id(0), m, n, BLOCK_M, BLOCK_N, GROUP_M)
    tl.assume(pid_m >= 0)
    tl.assume(pid_n >= 0)
    tl.assume(stride_am > 0)
    tl.assume(stride_bk > 0)
    at_m = (pid_m * BLOCK_M + tl.arange(0, BLOCK_M)) % m
    at_n = (pid_n * BLOCK_N + tl.arange(0, BLOCK_N)) % n
    at_k = tl.arange(0, BLOCK_K)
    a_ptrs = a_ptr + at_m[:, None] * stride_am + at_k[None, :] * stride_ak
    b_ptrs = b_ptr + at_k[:, None] * stride_bk + at_n[None, :] * stride_bn
    total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for step in range(0, tl.cdiv(k, BLOCK_K)):
        left = k - step * BLOCK_K
        a = tl.load(a_ptrs, mask=at_k[None, :] < left, other=0.0)
        b = tl.load(b_ptrs, mask=at_k[:, None] < left, other=0.0)
        total = tl.dot(a, b, total)
        a_ptrs += BLOCK_K * stride_ak
        b_ptrs += BLOCK_K * stride_bk
    if ACTIVATION == "leaky_relu":
        total = leaky_relu(total)
    out_m = pid_m * BLOCK_M + tl.arange(0, BLOCK_M)
    out_n = pid_n * BLOCK_N + tl.arange(0, BLOCK_N)
    c_ptrs = c_ptr + stride_cm * out_m[:, None] + stride_cn * out_n[None, :]
    tl.store(c_ptrs, total.to(c_ptr.dtype.element_ty), mask=(out_m[:, None] < m) & (out_n[None, :] < n))


@triton.jit
def dropout(x_ptr, keep_ptr, out_ptr, size, p, BLOCK: tl.constexpr):
    """04: dropout with a mask in memory."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < size
    x = tl.load(x_ptr + at, mask=inside)
    keep = tl.load(keep_ptr + at, mask=inside)
    tl.store(out_ptr + at, tl.where(keep, x / (1 - p), 0.0), mask=inside)


@triton.jit
def seeded_dropout(x_ptr, out_ptr, size, p, seed, BLOCK: tl.constexpr):
    """04: dropout with Philox."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < size
    x = tl.load(x_ptr + at, mask=inside)
    tl.store(out_ptr + at, tl.where(tl.rand(seed, at) > p, x / (1 - p), 0.0), mask=inside)


@triton.jit
def layer_norm_forward(x_ptr, y_ptr, w_ptr, b_ptr, mean_ptr, rstd_ptr, stride, size, eps, BLOCK: tl.constexpr):
    """05: layer norm of one row, in three passes."""
    row = tl.program_id(0)
    x_ptr += row * stride
    y_ptr += row * stride
    total = tl.zeros([BLOCK], dtype=tl.float32)
    for start in range(0, size, BLOCK):
        at = start + tl.arange(0, BLOCK)
        total += tl.load(x_ptr + at, mask=at < size, other=0.0).to(tl.float32)
    mean = tl.sum(total, axis=0) / size
    squares = tl.zeros([BLOCK], dtype=tl.float32)
    for start in range(0, size, BLOCK):
        at = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + at, mask=at < size, other=0.0).to(tl.float32)
        x = tl.where(at < size, x - mean, 0.0)
        squares += x * x
    rstd = 1 / tl.sqrt(tl.sum(squares, axis=0) / size + eps)
    tl.store(mean_ptr + row, mean)
    tl.store(rstd_ptr + row, rstd)
    for start in range(0, size, BLOCK):
        at = start + tl.arange(0, BLOCK)
        inside = at < size
        x = tl.load(x_ptr + at, mask=inside, other=0.0).to(tl.float32)
        w = tl.load(w_ptr + at, mask=inside)
        tl.store(y_ptr + at, (x - mean) * rstd * w + tl.load(b_ptr + at, mask=inside), mask=inside)


@triton.jit
def layer_norm_backward_dx(
    dx_ptr, dy_ptr, dw_ptr, db_ptr, x_ptr, w_ptr, mean_ptr, rstd_ptr, lock_ptr, stride, size,
    GROUPS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """05: the input's gradient, and the parameters' gradients added up under a lock, in groups."""
    row = tl.program_id(0)
    column = tl.arange(0, BLOCK)
    inside = column < size
    group = row % GROUPS
    lock_ptr += group
    count_ptr = lock_ptr + GROUPS
    dw_ptrs = dw_ptr + group * size + column
    db_ptrs = db_ptr + group * size + column
    x = tl.load(x_ptr + row * stride + column, mask=inside, other=0).to(tl.float32)
    dy = tl.load(dy_ptr + row * stride + column, mask=inside, other=0).to(tl.float32)
    w = tl.load(w_ptr + column, mask=inside).to(tl.float32)
    rstd = tl.load(rstd_ptr + row)
    normal = tl.where(inside, (x - tl.load(mean_ptr + row)) * rstd, 0.0)
    wdy = tl.where(inside, w * dy, 0.0)
    c1 = tl.sum(normal * wdy, axis=0) / size
    c2 = tl.sum(wdy, axis=0) / size
    tl.store(dx_ptr + row * stride + column, (wdy - (normal * c1 + c2)) * rstd, mask=inside)
    dw = (dy * normal).to(w.dtype)
    db = dy.to(w.dtype)
    while tl.atomic_cas(lock_ptr, 0, 1) == 1:
        pass
    if tl.load(count_ptr) == 0:
        tl.atomic_xchg(count_ptr, 1)
    else:
        dw += tl.load(dw_ptrs, mask=inside)
        db += tl.load(db_ptrs, mask=inside)
    tl.store(dw_ptrs, dw, mask=inside)
    tl.store(db_ptrs, db, mask=inside)
    tl.debug_barrier()
    tl.atomic_xchg(lock_ptr, 0)


@triton.jit
def layer_norm_backward_dwdb(
    dw_ptr, db_ptr, dw_sum_ptr, db_sum_ptr, rows, size, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr
):
    """05: the groups' sums added up."""
    column = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    dw = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    db = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for start in range(0, rows, BLOCK_M):
        row = start + tl.arange(0, BLOCK_M)
        inside = (row[:, None] < rows) & (column[None, :] < size)
        at = row[:, None] * size + column[None, :]
        dw += tl.load(dw_ptr + at, mask=inside, other=0.0)
        db += tl.load(db_ptr + at, mask=inside, other=0.0)
    tl.store(dw_sum_ptr + column, tl.sum(dw, axis=0), mask=column < size)
    tl.store(db_sum_ptr + column, tl.sum(db, axis=0), mask=column < size)


@triton.jit
def _attend(
    total, weight, highest, q, k_desc, v_desc, base, row, scale, BLOCK_M: tl.constexpr, HEAD: tl.constexpr,
    BLOCK_N: tl.constexpr, STAGE: tl.constexpr, at_m: tl.constexpr, at_n: tl.constexpr, LENGTH: tl.constexpr,
):  # fmt: skip
    if STAGE == 1:
        low, high = 0, row * BLOCK_M
    elif STAGE == 2:
        low, high = row * BLOCK_M, (row + 1) * BLOCK_M
        low = tl.multiple_of(low, BLOCK_M)
    else:
        low, high = 0, LENGTH
    at = base + low
    for start in tl.range(low, high, BLOCK_N):
        start = tl.multiple_of(start, BLOCK_N)
        scores = tl.dot(q, k_desc.load([at, 0]).T)
        if STAGE == 2:
            scores = scores * scale + tl.where(at_m[:, None] >= (start + at_n[None, :]), 0, -1.0e6)
            new = tl.maximum(highest, tl.max(scores, 1))
            scores -= new[:, None]
        else:
            new = tl.maximum(highest, tl.max(scores, 1) * scale)
            scores = scores * scale - new[:, None]
        p = tl.math.exp2(scores)
        shrink = tl.math.exp2(highest - new)
        weight = weight * shrink + tl.sum(p, 1)
        v = v_desc.load([at, 0])
        total = tl.dot(p.to(v.dtype), v, total * shrink[:, None])
        highest = new
        at += BLOCK_N
    return total, weight, highest


@triton.jit
def attention_forward(
    scale, m_ptr, batch, heads, q_ptr, k_ptr, v_ptr, out_ptr, LENGTH,
    HEAD: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, STAGE: tl.constexpr,
):  # fmt: skip
    """06: flash attention, forward, with tensor descriptors; STAGE 3 is causal, 1 is not."""
    rows = batch * heads * LENGTH
    q_desc = tl.make_tensor_descriptor(q_ptr, shape=[rows, HEAD], strides=[HEAD, 1], block_shape=[BLOCK_M, HEAD])
    k_desc = tl.make_tensor_descriptor(k_ptr, shape=[rows, HEAD], strides=[HEAD, 1], block_shape=[BLOCK_N, HEAD])
    v_desc = tl.make_tensor_descriptor(v_ptr, shape=[rows, HEAD], strides=[HEAD, 1], block_shape=[BLOCK_N, HEAD])
    o_desc = tl.make_tensor_descriptor(out_ptr, shape=[rows, HEAD], strides=[HEAD, 1], block_shape=[BLOCK_M, HEAD])
    row = tl.program_id(0)
    head = tl.program_id(1)
    base = (head // heads) * (LENGTH * heads) + (head % heads) * LENGTH
    at_m = row * BLOCK_M + tl.arange(0, BLOCK_M)
    at_n = tl.arange(0, BLOCK_N)
    highest = tl.zeros([BLOCK_M], dtype=tl.float32) - float("inf")
    weight = tl.zeros([BLOCK_M], dtype=tl.float32) + 1.0
    total = tl.zeros([BLOCK_M, HEAD], dtype=tl.float32)
    scale *= 1.44269504
    q = q_desc.load([base + row * BLOCK_M, 0])
    if STAGE & 1:
        total, weight, highest = _attend(
            total, weight, highest, q, k_desc, v_desc, base, row, scale, BLOCK_M, HEAD, BLOCK_N, 4 - STAGE, at_m, at_n,
            LENGTH,
        )  # fmt: skip
    if STAGE & 2:
        total, weight, highest = _attend(
            total, weight, highest, q, k_desc, v_desc, base, row, scale, BLOCK_M, HEAD, BLOCK_N, 2, at_m, at_n, LENGTH
        )
    tl.store(m_ptr + head * LENGTH + at_m, highest + tl.math.log2(weight))
    o_desc.store([base + row * BLOCK_M, 0], (total / weight[:, None]).to(out_ptr.dtype.element_ty))


@triton.jit
def attention_preprocess(out_ptr, dout_ptr, delta_ptr, length, BLOCK_M: tl.constexpr, HEAD: tl.constexpr):
    """06: what the backward pass subtracts."""
    at_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    head = tl.program_id(1)
    at = head * HEAD * length + at_m[:, None] * HEAD + tl.arange(0, HEAD)[None, :]
    out = tl.load(out_ptr + at)
    dout = tl.load(dout_ptr + at).to(tl.float32)
    tl.store(delta_ptr + head * length + at_m, tl.sum(out * dout, axis=1))


@triton.jit
def _dkdv(
    dk, dv, q_ptr, k, v, dout_ptr, m_ptr, delta_ptr, stride, stride_d, start_n, start_m, steps,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, HEAD: tl.constexpr, MASK: tl.constexpr,
):  # fmt: skip
    at_m = start_m + tl.arange(0, BLOCK_M)
    at_n = start_n + tl.arange(0, BLOCK_N)
    at_k = tl.arange(0, HEAD)
    q_ptrs = q_ptr + at_m[None, :] * stride + at_k[:, None] * stride_d
    dout_ptrs = dout_ptr + at_m[:, None] * stride + at_k[None, :] * stride_d
    current = start_m
    for _ in range(steps):
        q = tl.load(q_ptrs)
        at_m = current + tl.arange(0, BLOCK_M)
        p = tl.math.exp2(tl.dot(k, q) - tl.load(m_ptr + at_m)[None, :])
        if MASK:
            p = tl.where(at_m[None, :] >= at_n[:, None], p, 0.0)
        dout = tl.load(dout_ptrs)
        dv += tl.dot(p.to(tl.float16), dout)
        ds = p * (tl.dot(v, tl.trans(dout)).to(tl.float32) - tl.load(delta_ptr + at_m)[None, :])
        dk += tl.dot(ds.to(tl.float16), tl.trans(q))
        current += BLOCK_M
        q_ptrs += BLOCK_M * stride
        dout_ptrs += BLOCK_M * stride
    return dk, dv


@triton.jit
def _dq(
    dq, q, k_ptr, v_ptr, dout, m, delta_ptr, stride, stride_d, start_m, start_n, steps,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, HEAD: tl.constexpr, MASK: tl.constexpr,
):  # fmt: skip
    at_m = start_m + tl.arange(0, BLOCK_M)
    at_n = start_n + tl.arange(0, BLOCK_N)
    at_k = tl.arange(0, HEAD)
    k_ptrs = k_ptr + at_n[None, :] * stride + at_k[:, None] * stride_d
    v_ptrs = v_ptr + at_n[None, :] * stride + at_k[:, None] * stride_d
    delta = tl.load(delta_ptr + at_m)
    current = start_n
    for _ in range(steps):
        k = tl.load(k_ptrs)
        p = tl.math.exp2(tl.dot(q, k) - m)
        if MASK:
            p = tl.where(at_m[:, None] >= (current + tl.arange(0, BLOCK_N))[None, :], p, 0.0)
        ds = p * (tl.dot(dout, tl.load(v_ptrs)).to(tl.float32) - delta[:, None])
        dq += tl.dot(ds.to(tl.float16), tl.trans(k))
        current += BLOCK_N
        k_ptrs += BLOCK_N * stride
        v_ptrs += BLOCK_N * stride
    return dq


@triton.jit
def attention_backward(
    q_ptr, k_ptr, v_ptr, scale, dout_ptr, dq_ptr, dk_ptr, dv_ptr, m_ptr, delta_ptr,
    stride_z, stride_h, stride, stride_d, heads, length,
    BLOCK_M1: tl.constexpr, BLOCK_N1: tl.constexpr, BLOCK_M2: tl.constexpr, BLOCK_N2: tl.constexpr,
    SLICE: tl.constexpr, HEAD: tl.constexpr, CAUSAL: tl.constexpr,
):  # fmt: skip
    """06: flash attention, backward: dK and dV of a block of columns, then dQ of a block of rows."""
    head = tl.program_id(2)
    along = (head * length).to(tl.int64)
    base = (stride_h * (head % heads) + stride_z * (head // heads)).to(tl.int64)
    pid = tl.program_id(0)
    q_ptr += base
    k_ptr += base
    v_ptr += base
    dout_ptr += base
    dq_ptr += base
    dk_ptr += base
    dv_ptr += base
    m_ptr += along
    delta_ptr += along
    at_k = tl.arange(0, HEAD)
    start_n = pid * BLOCK_N1
    start_m = 0
    at_n = start_n + tl.arange(0, BLOCK_N1)
    tile_n = at_n[:, None] * stride + at_k[None, :] * stride_d
    k = tl.load(k_ptr + tile_n)
    v = tl.load(v_ptr + tile_n)
    dk = tl.zeros([BLOCK_N1, HEAD], dtype=tl.float32)
    dv = tl.zeros([BLOCK_N1, HEAD], dtype=tl.float32)
    if CAUSAL:
        start_m = start_n
        masked = BLOCK_N1 // (BLOCK_M1 // SLICE)
        dk, dv = _dkdv(
            dk, dv, q_ptr, k, v, dout_ptr, m_ptr, delta_ptr, stride, stride_d, start_n, start_m, masked,
            BLOCK_M1 // SLICE, BLOCK_N1, HEAD, True,
        )  # fmt: skip
        start_m += masked * (BLOCK_M1 // SLICE)
    dk, dv = _dkdv(
        dk, dv, q_ptr, k, v, dout_ptr, m_ptr, delta_ptr, stride, stride_d, start_n, start_m,
        (length - start_m) // BLOCK_M1, BLOCK_M1, BLOCK_N1, HEAD, False,
    )  # fmt: skip
    tl.store(dv_ptr + tile_n, dv)
    tl.store(dk_ptr + tile_n, dk * scale)
    start_m = pid * BLOCK_M2
    start_n = 0
    steps = length // BLOCK_N2
    at_m = start_m + tl.arange(0, BLOCK_M2)
    tile_m = at_m[:, None] * stride + at_k[None, :] * stride_d
    q = tl.load(q_ptr + tile_m)
    dq = tl.zeros([BLOCK_M2, HEAD], dtype=tl.float32)
    dout = tl.load(dout_ptr + tile_m)
    m = tl.load(m_ptr + at_m)[:, None]
    if CAUSAL:
        end = start_m + BLOCK_M2
        masked = BLOCK_M2 // (BLOCK_N2 // SLICE)
        dq = _dq(
            dq, q, k_ptr, v_ptr, dout, m, delta_ptr, stride, stride_d, start_m, end - masked * (BLOCK_N2 // SLICE),
            masked, BLOCK_M2, BLOCK_N2 // SLICE, HEAD, True,
        )  # fmt: skip
        end -= masked * (BLOCK_N2 // SLICE)
        steps = end // BLOCK_N2
        start_n = end - steps * BLOCK_N2
    dq = _dq(
        dq, q, k_ptr, v_ptr, dout, m, delta_ptr, stride, stride_d, start_m, start_n, steps, BLOCK_M2, BLOCK_N2, HEAD,
        False,
    )  # fmt: skip
    tl.store(dq_ptr + tile_m, dq * 0.6931471824645996)


@triton.jit
def asin(x_ptr, y_ptr, size, BLOCK: tl.constexpr):
    """07: a function of the device library."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < size
    tl.store(y_ptr + at, libdevice.asin(tl.load(x_ptr + at, mask=inside)), mask=inside)


@triton.jit
def grouped_matmul(
    a_addresses, b_addresses, c_addresses, sizes_ptr, strides_ptr, groups,
    PROGRAMS: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """08: matmuls of several sizes by programs that stay; addresses come from memory."""
    tile = tl.program_id(0)
    end_before = 0
    for g in range(groups):
        m = tl.load(sizes_ptr + g * 3)
        n = tl.load(sizes_ptr + g * 3 + 1)
        k = tl.load(sizes_ptr + g * 3 + 2)
        tiles_n = tl.cdiv(n, BLOCK_N)
        tiles = tl.cdiv(m, BLOCK_M) * tiles_n
        while tile >= end_before and tile < end_before + tiles:
            lda = tl.load(strides_ptr + g * 3)
            ldb = tl.load(strides_ptr + g * 3 + 1)
            ldc = tl.load(strides_ptr + g * 3 + 2)
            a_ptr = tl.load(a_addresses + g).to(tl.pointer_type(tl.float16))
            b_ptr = tl.load(b_addresses + g).to(tl.pointer_type(tl.float16))
            c_ptr = tl.load(c_addresses + g).to(tl.pointer_type(tl.float16))
            tile_m = (tile - end_before) // tiles_n
            tile_n = (tile - end_before) % tiles_n
            at_m = tile_m * BLOCK_M + tl.arange(0, BLOCK_M)
            at_n = tile_n * BLOCK_N + tl.arange(0, BLOCK_N)
            at_k = tl.arange(0, BLOCK_K)
            a_ptrs = a_ptr + at_m[:, None] * lda + at_k[None, :]
            b_ptrs = b_ptr + at_k[:, None] * ldb + at_n[None, :]
            total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
            for _ in range(0, tl.cdiv(k, BLOCK_K)):
                tl.multiple_of(a_ptrs, [16, 16])
                tl.multiple_of(b_ptrs, [16, 16])
                total += tl.dot(tl.load(a_ptrs), tl.load(b_ptrs))
                a_ptrs += BLOCK_K
                b_ptrs += BLOCK_K * ldb
            tl.store(c_ptr + ldc * at_m[:, None] + at_n[None, :], total.to(tl.float16))
            tile += PROGRAMS
        end_before = end_before + tiles


@triton.jit
def persistent_matmul(
    a_ptr, b_ptr, c_ptr, m, n, k, stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
    PROGRAMS: tl.constexpr,
):  # fmt: skip
    """09: a matmul by programs that stay, one flattened loop over tiles."""
    first = tl.program_id(0)
    tiles = tl.cdiv(m, BLOCK_M) * tl.cdiv(n, BLOCK_N)
    out_tile = first - PROGRAMS
    mask_k = tl.arange(0, BLOCK_K)
    for tile in tl.range(first, tiles, PROGRAMS, flatten=True):
        pid_m, pid_n = _grouped(tile, m, n, BLOCK_M, BLOCK_N, GROUP_M)
        at_m = pid_m * BLOCK_M + tl.arange(0, BLOCK_M)
        at_n = pid_n * BLOCK_N + tl.arange(0, BLOCK_N)
        at_m = tl.max_contiguous(tl.multiple_of(tl.where(at_m < m, at_m, 0), BLOCK_M), BLOCK_M)
        at_n = tl.max_contiguous(tl.multiple_of(tl.where(at_n < n, at_n, 0), BLOCK_N), BLOCK_N)
        total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
        for step in range(tl.cdiv(k, BLOCK_K)):
            at_k = step * BLOCK_K + tl.arange(0, BLOCK_K)
            a_ptrs = a_ptr + (at_m[:, None] * stride_am + at_k[None, :] * stride_ak)
            b_ptrs = b_ptr + (at_k[:, None] * stride_bk + at_n[None, :] * stride_bn)
            a = tl.load(a_ptrs, mask=mask_k[None, :] < k - step * BLOCK_K, other=0.0)
            b = tl.load(b_ptrs, mask=mask_k[:, None] < k - step * BLOCK_K, other=0.0)
            total = tl.dot(a, b, total)
        out_tile += PROGRAMS
        pid_m, pid_n = _grouped(out_tile, m, n, BLOCK_M, BLOCK_N, GROUP_M)
        out_m = pid_m * BLOCK_M + tl.arange(0, BLOCK_M)
        out_n = pid_n * BLOCK_N + tl.arange(0, BLOCK_N)
        c_ptrs = c_ptr + stride_cm * out_m[:, None] + stride_cn * out_n[None, :]
        tl.store(c_ptrs, total.to(c_ptr.dtype.element_ty), mask=(out_m[:, None] < m) & (out_n[None, :] < n))


@triton.jit
def descriptor_matmul(
    a_ptr, b_ptr, c_ptr, m, n, k,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
    SUBTILE: tl.constexpr, PROGRAMS: tl.constexpr,
):  # fmt: skip
    """09: the same with tensor descriptors made on the device, the result stored in two halves if SUBTILE."""
    first = tl.program_id(0)
    tiles = tl.cdiv(m, BLOCK_M) * tl.cdiv(n, BLOCK_N)
    a_desc = tl.make_tensor_descriptor(a_ptr, shape=[m, k], strides=[k, 1], block_shape=[BLOCK_M, BLOCK_K])
    b_desc = tl.make_tensor_descriptor(b_ptr, shape=[n, k], strides=[k, 1], block_shape=[BLOCK_N, BLOCK_K])
    c_desc = tl.make_tensor_descriptor(
        c_ptr, shape=[m, n], strides=[n, 1], block_shape=[BLOCK_M, BLOCK_N // 2 if SUBTILE else BLOCK_N]
    )
    for tile in tl.range(first, tiles, PROGRAMS, flatten=True):
        pid_m, pid_n = _grouped(tile, m, n, BLOCK_M, BLOCK_N, GROUP_M)
        total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
        for step in range(tl.cdiv(k, BLOCK_K)):
            a = a_desc.load([pid_m * BLOCK_M, step * BLOCK_K])
            b = b_desc.load([pid_n * BLOCK_N, step * BLOCK_K])
            total = tl.dot(a, b.T, total)
        if SUBTILE:
            halves = tl.permute(tl.reshape(total, (BLOCK_M, 2, BLOCK_N // 2)), (0, 2, 1))
            left, right = tl.split(halves)
            c_desc.store([pid_m * BLOCK_M, pid_n * BLOCK_N], left.to(c_ptr.dtype.element_ty))
            c_desc.store([pid_m * BLOCK_M, pid_n * BLOCK_N + BLOCK_N // 2], right.to(c_ptr.dtype.element_ty))
        else:
            c_desc.store([pid_m * BLOCK_M, pid_n * BLOCK_N], total.to(c_ptr.dtype.element_ty))


@triton.jit
def block_scaled_matmul(
    a_ptr, b_ptr, c_ptr, a_scale_ptr, b_scale_ptr, m, n, k, stride_am, stride_bn, stride_cm, stride_scale,
    FORMAT: tl.constexpr, PACKED: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """10: a matmul of block-scaled numbers, a scale for every 32 along k; PACKED numbers to a byte."""
    pid_m = tl.program_id(0) % tl.cdiv(m, BLOCK_M)
    pid_n = tl.program_id(0) // tl.cdiv(m, BLOCK_M)
    at_m = (pid_m * BLOCK_M + tl.arange(0, BLOCK_M)) % m
    at_n = (pid_n * BLOCK_N + tl.arange(0, BLOCK_N)) % n
    at_k = tl.arange(0, BLOCK_K // PACKED)
    at_s = tl.arange(0, BLOCK_K // 32)
    a_ptrs = a_ptr + at_m[:, None] * stride_am + at_k[None, :]
    b_ptrs = b_ptr + at_n[None, :] * stride_bn + at_k[:, None]
    a_scales = a_scale_ptr + at_m[:, None] * stride_scale + at_s[None, :]
    b_scales = b_scale_ptr + at_n[:, None] * stride_scale + at_s[None, :]
    total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for _ in range(tl.cdiv(k, BLOCK_K)):
        a = tl.load(a_ptrs)
        b = tl.load(b_ptrs)
        total = tl.dot_scaled(a, tl.load(a_scales), FORMAT, b, tl.load(b_scales), FORMAT, total)
        a_ptrs += BLOCK_K // PACKED
        b_ptrs += BLOCK_K // PACKED
        a_scales += BLOCK_K // 32
        b_scales += BLOCK_K // 32
    out_m = pid_m * BLOCK_M + tl.arange(0, BLOCK_M)
    out_n = pid_n * BLOCK_N + tl.arange(0, BLOCK_N)
    mask = (out_m[:, None] < m) & (out_n[None, :] < n)
    tl.store(c_ptr + out_m[:, None] * stride_cm + out_n[None, :], total.to(tl.float16), mask=mask)


def calls() -> Iterator[tuple[str, Variant]]:
    """Each kernel as its tutorial calls it, with a name."""
    block = {"BLOCK": 1024}
    yield "01 add", _call(add, "x_ptr=f out_ptr=f y_ptr=f size=i", block)
    for stages in (2, 4):
        yield (
            f"02 softmax, {stages} stages",
            _call(
                softmax, "out_ptr=f in_ptr=f in_stride=i out_stride=i rows=i columns=i",
                {"BLOCK": 1024, "STAGES": stages}, num_warps=8,
            ),
        )  # fmt: skip
    for m, n, k, warps in ((128, 256, 64, 8), (64, 64, 32, 4)):
        for ending in ("", "leaky_relu"):
            yield f"03 matmul {m}x{n}x{k} {ending}".strip(), matmul_call(m, n, k, warps, activation=ending)
    yield "04 dropout", _call(dropout, "x_ptr=f keep_ptr=*i out_ptr=f size=i p=s", block)
    yield "04 seeded dropout", _call(seeded_dropout, "x_ptr=f out_ptr=f size=i p=s seed=i", block)
    rows = "mean_ptr=f rstd_ptr=f"
    yield (
        "05 layer norm",
        _call(layer_norm_forward, f"x_ptr=h y_ptr=h w_ptr=h b_ptr=h {rows} stride=i size=i eps=s", block, num_warps=8),
    )
    yield (
        "05 layer norm dx",
        _call(
            layer_norm_backward_dx,
            f"dx_ptr=h dy_ptr=h dw_ptr=h db_ptr=h x_ptr=h w_ptr=h {rows} lock_ptr=*i stride=i size=i",
            {"GROUPS": 64, "BLOCK": 8192}, num_warps=8,
        ),
    )  # fmt: skip
    yield (
        "05 layer norm dw db",
        _call(
            layer_norm_backward_dwdb, "dw_ptr=h db_ptr=h dw_sum_ptr=h db_sum_ptr=h rows=i size=i",
            {"BLOCK_M": 32, "BLOCK_N": 128},
        ),
    )  # fmt: skip
    qkv = "scale=s m_ptr=f batch=i heads=i q_ptr=h k_ptr=h v_ptr=h out_ptr=h LENGTH=i"
    for head, m, n in ((64, 128, 64), (128, 128, 32)):
        for stage in (1, 3):
            constants = {"HEAD": head, "BLOCK_M": m, "BLOCK_N": n, "STAGE": stage}
            name = f"06 attention {head} {'causal' if stage == 3 else 'full'}"
            yield name, _call(attention_forward, qkv, constants, num_stages=1, waves_per_eu=2)
    sizes = {"BLOCK_M": 128, "HEAD": 64}
    yield "06 attention delta", _call(attention_preprocess, "out_ptr=h dout_ptr=h delta_ptr=f length=i", sizes)
    gradients = (
        "q_ptr=h k_ptr=h v_ptr=h scale=s dout_ptr=h dq_ptr=h dk_ptr=h dv_ptr=h m_ptr=f delta_ptr=f "
        "stride_z=i stride_h=i stride=i stride_d=1 heads=i length=i"
    )
    for causal in (False, True):
        constants = {"BLOCK_M1": 32, "BLOCK_N1": 128, "BLOCK_M2": 128, "BLOCK_N2": 32, "SLICE": 2, "HEAD": 64}
        name = f"06 attention backward {'causal' if causal else 'full'}"
        yield name, _call(attention_backward, gradients, {**constants, "CAUSAL": causal})
    yield "07 asin", _call(asin, "x_ptr=f y_ptr=f size=i", block)
    for m, n, k in ((128, 128, 32), (64, 64, 32)):
        constants = {"PROGRAMS": 84, "BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": k}
        arguments = "a_addresses=*l b_addresses=*l c_addresses=*l sizes_ptr=*i strides_ptr=*i groups=i"
        yield f"08 grouped matmul {m}x{n}x{k}", _call(grouped_matmul, arguments, constants)
    constants = {"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 64, "GROUP_M": 8, "PROGRAMS": 304}
    yield "09 persistent matmul", _call(persistent_matmul, _MATRICES, constants, num_warps=8)
    for subtile in (False, True):
        yield (
            f"09 descriptor matmul{', in halves' if subtile else ''}",
            _call(
                descriptor_matmul, "a_ptr=h b_ptr=h c_ptr=h m=i n=i k=i", {**constants, "SUBTILE": subtile}, num_warps=8
            ),
        )
    scaled = "m=i n=i k=i stride_am=i stride_bn=i stride_cm=i stride_scale=i a_scale_ptr=b b_scale_ptr=b c_ptr=h"
    for name, element, packed in (("e4m3", "8", 1), ("e2m1", "b", 2)):
        constants = {"FORMAT": name, "PACKED": packed, "BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 64}
        arguments = f"a_ptr={element} b_ptr={element} {scaled}"
        yield f"10 block-scaled matmul {name}", _call(block_scaled_matmul, arguments, constants, num_warps=4)


_MATRICES = (
    "a_ptr=h b_ptr=h c_ptr=h m=i n=i k=i stride_am=i stride_ak=1 stride_bk=i stride_bn=1 stride_cm=i stride_cn=1"
)
_LETTERS = {
    "f": "*fp32",
    "h": "*fp16",
    "b": "*u8",
    "8": "*fp8e4nv",
    "i": "i32",
    "s": "fp32",
    "*i": "*i32",
    "*l": "*i64",
}


def matmul_call(
    m: int, n: int, k: int, warps: int, *, stages: int = 2, group: int = 8, activation: str = ""
) -> Variant:
    """The matmul of tutorial 03 with one configuration."""
    constants = {"BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": k, "GROUP_M": group, "ACTIVATION": activation}
    return _call(matmul, _MATRICES, constants, num_warps=warps, num_stages=stages)


def _call(kernel: Any, arguments: str, constants: dict[str, Any], **options: Any) -> Variant:
    """``arguments`` has a letter for each type; ``1`` is a stride of one, which Triton takes for a constant."""
    given = dict(word.split("=") for word in arguments.split())
    ones = {name: 1 for name, letter in given.items() if letter == "1"}
    types = {
        **dict.fromkeys([*ones, *constants], "constexpr"),
        **{n: _LETTERS[x] for n, x in given.items() if x != "1"},
    }
    signature = {parameter.name: types[parameter.name] for parameter in kernel.params}
    aligned = tuple(name for name, kind in signature.items() if kind[0] == "*" or kind == "i32")
    chosen = {"num_warps": 4, "num_stages": 2, **options}
    return Variant(kernel, signature, {**ones, **constants}, chosen, aligned)
