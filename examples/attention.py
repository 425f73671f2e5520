"""Flash attention forward: softmax(q k^T · scale) v without ever storing the scores; causal or not."""

from __future__ import annotations

from functools import partial
from typing import Any

import common
import numpy as np
from matmul import strides

import tilewright as triton
import tilewright.language as tl
from tilewright.testing import Case


@triton.jit
def attention_inner(acc, l_i, m_i, q, k_ptrs, v_ptrs, stride_kn, stride_vn, offs_m, offs_n, start, end, n_ctx, qk_scale,
                    BLOCK_N: tl.constexpr, MASKED: tl.constexpr, CAUSAL: tl.constexpr, PRECISION: tl.constexpr):
    for start_n in range(start, end, BLOCK_N):
        cols = start_n + offs_n
        k = tl.load(k_ptrs + start_n * stride_kn, mask=cols[None, :] < n_ctx, other=0.0)
        qk = tl.dot(q, k, input_precision=PRECISION) * qk_scale
        if MASKED:
            visible = cols[None, :] < n_ctx
            if CAUSAL:
                visible = visible & (offs_m[:, None] >= cols[None, :])
            qk = tl.where(visible, qk, -1.0e30)
        m_new = tl.maximum(m_i, tl.max(qk, 1))
        p = tl.exp2(qk - m_new[:, None])
        alpha = tl.exp2(m_i - m_new)
        l_i = l_i * alpha + tl.sum(p, 1)
        acc = acc * alpha[:, None]
        v = tl.load(v_ptrs + start_n * stride_vn, mask=cols[:, None] < n_ctx, other=0.0)
        acc = tl.dot(p.to(v.dtype), v, acc, input_precision=PRECISION)
        m_i = m_new
    return acc, l_i, m_i


@triton.jit
def attention_kernel(q_ptr, k_ptr, v_ptr, o_ptr, stride_qh, stride_qm, stride_kh, stride_kn, stride_vh, stride_vn,
                     stride_oh, stride_om, n_ctx, qk_scale, HEAD_DIM: tl.constexpr, BLOCK_M: tl.constexpr,
                     BLOCK_N: tl.constexpr, CAUSAL: tl.constexpr, PRECISION: tl.constexpr):
    start_m = tl.program_id(0) * BLOCK_M
    head = tl.program_id(1).to(tl.int64)
    offs_m = start_m + tl.arange(0, BLOCK_M)
    offs_n = tl.arange(0, BLOCK_N)
    offs_d = tl.arange(0, HEAD_DIM)
    q = tl.load(q_ptr + head * stride_qh + offs_m[:, None] * stride_qm + offs_d[None, :], mask=offs_m[:, None] < n_ctx, other=0.0)
    k_ptrs = k_ptr + head * stride_kh + offs_n[None, :] * stride_kn + offs_d[:, None]
    v_ptrs = v_ptr + head * stride_vh + offs_n[:, None] * stride_vn + offs_d[None, :]
    m_i = tl.full([BLOCK_M], -1.0e30, dtype=tl.float32)
    l_i = tl.zeros([BLOCK_M], dtype=tl.float32)
    acc = tl.zeros([BLOCK_M, HEAD_DIM], dtype=tl.float32)
    last = n_ctx
    if CAUSAL:
        last = tl.minimum(start_m + BLOCK_M, n_ctx)
    # blocks that every query row sees whole need no mask
    unmasked = n_ctx // BLOCK_N * BLOCK_N
    if CAUSAL:
        unmasked = tl.minimum(start_m // BLOCK_N * BLOCK_N, unmasked)
    acc, l_i, m_i = attention_inner(acc, l_i, m_i, q, k_ptrs, v_ptrs, stride_kn, stride_vn, offs_m, offs_n, 0, unmasked, n_ctx,
                                    qk_scale, BLOCK_N, False, CAUSAL, PRECISION)
    acc, l_i, m_i = attention_inner(acc, l_i, m_i, q, k_ptrs, v_ptrs, stride_kn, stride_vn, offs_m, offs_n, unmasked, last, n_ctx,
                                    qk_scale, BLOCK_N, True, CAUSAL, PRECISION)
    acc = acc / l_i[:, None]
    o_ptrs = o_ptr + head * stride_oh + offs_m[:, None] * stride_om + offs_d[None, :]
    tl.store(o_ptrs, acc.to(o_ptr.dtype.element_ty), mask=offs_m[:, None] < n_ctx)


def attention(q: Any, k: Any, v: Any, causal: bool = False, block: tuple[int, int] = (64, 32), num_warps: int = 4,
              num_stages: int = 2, precision: str = "ieee") -> Any:
    """Attention of q, k, v (heads, n_ctx, head_dim), head_dim a power of two ≥ 16 with unit stride; scale 1/sqrt(head_dim)."""
    heads, n_ctx, dim = q.shape
    o = common.poisoned(q.shape, q)
    bm, bn = block
    s = [strides(t)[:2] for t in (q, k, v, o)]
    attention_kernel[(triton.cdiv(n_ctx, bm), heads)](
        q, k, v, o, *s[0], *s[1], *s[2], *s[3], n_ctx, 1.4426950408889634 / dim**0.5, HEAD_DIM=dim, BLOCK_M=bm, BLOCK_N=bn,
        CAUSAL=causal, PRECISION=precision, num_warps=num_warps, num_stages=num_stages)
    return o


def reference(q: Any, k: Any, v: Any, causal: bool) -> np.ndarray:
    q, k, v = (common.f64(t) for t in (q, k, v))
    s = q @ k.transpose(0, 2, 1) / q.shape[-1] ** 0.5
    if causal:
        s = np.where(np.tril(np.ones(s.shape[1:], bool)), s, -np.inf)
    p = np.exp(s - s.max(axis=-1, keepdims=True))
    return p / p.sum(axis=-1, keepdims=True) @ v


def cases(device: str, use_numpy: bool):
    for dtype in ("float32", "float16", "bfloat16"):
        if use_numpy and dtype == "bfloat16":
            continue
        for heads, n_ctx, dim in ((1, 1, 16), (2, 64, 64), (1, 97, 32), (2, 129, 64)):
            for causal in (False, True):
                q, k, v = (common.random((heads, n_ctx, dim), dtype, device, i, use_numpy) for i in range(3))
                ref = reference(q, k, v, causal)
                # at most 1.2 times the error of the float64 result rounded to the output's type, plus 1e-3
                bound = 1.2 * float(np.linalg.norm(common.rounded(ref, q) - ref) / np.linalg.norm(ref)) + 1e-3
                yield Case(f"attention {dtype} {heads}x{n_ctx}x{dim}{' causal' if causal else ''}", partial(attention, q, k, v, causal),
                           lambda ref=ref: ref, bound, common.error)


def tilewright_cases(device: str):
    """What `tilewright matrix` runs."""
    return common.sample(cases, device, "1x97x32")


if __name__ == "__main__":
    common.main(cases)
