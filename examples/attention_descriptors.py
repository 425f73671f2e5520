"""Flash attention forward with tensor descriptors of the heads' rows: no masks on loads and stores, whatever the lengths."""

from __future__ import annotations

from functools import partial
from typing import Any

import common
from attention import reference

import tilewright as triton
import tilewright.language as tl
from tilewright.testing import Case
from tilewright.tools.tensor_descriptor import TensorDescriptor


@triton.jit
def attention_inner(acc, l_i, m_i, q, k_desc, v_desc, head, offs_m, start, end, n_ctx, qk_scale, BLOCK_N: tl.constexpr, HEAD_DIM: tl.constexpr,
                    MASKED: tl.constexpr, CAUSAL: tl.constexpr, WARP_SPECIALIZE: tl.constexpr, PRECISION: tl.constexpr):
    for start_n in tl.range(start, end, BLOCK_N, warp_specialize=WARP_SPECIALIZE):
        k = tl.reshape(k_desc.load([head, start_n, 0]), [BLOCK_N, HEAD_DIM])
        qk = tl.dot(q, k.T, input_precision=PRECISION) * qk_scale
        if MASKED:
            cols = start_n + tl.arange(0, BLOCK_N)
            visible = cols[None, :] < n_ctx
            if CAUSAL:
                visible = visible & (offs_m[:, None] >= cols[None, :])
            qk = tl.where(visible, qk, -1.0e30)
        m_new = tl.maximum(m_i, tl.max(qk, 1))
        p = tl.exp2(qk - m_new[:, None])
        alpha = tl.exp2(m_i - m_new)
        l_i = l_i * alpha + tl.sum(p, 1)
        acc = acc * alpha[:, None]
        v = tl.reshape(v_desc.load([head, start_n, 0]), [BLOCK_N, HEAD_DIM])
        acc = tl.dot(p.to(v.dtype), v, acc, input_precision=PRECISION)
        m_i = m_new
    return acc, l_i, m_i


@triton.jit
def described(desc_or_ptr, heads, n_ctx, HEAD_DIM: tl.constexpr, BLOCK: tl.constexpr):
    """The descriptor of a contiguous (heads, n_ctx, HEAD_DIM) array, where it is none yet."""
    if isinstance(desc_or_ptr, tl.tensor_descriptor):
        return desc_or_ptr
    else:
        return tl.make_tensor_descriptor(desc_or_ptr, [heads, n_ctx, HEAD_DIM], [n_ctx * HEAD_DIM, HEAD_DIM, 1], [1, BLOCK, HEAD_DIM])


@triton.jit
def attention_descriptors_kernel(q_in, k_in, v_in, o_in, heads, n_ctx, qk_scale, HEAD_DIM: tl.constexpr, BLOCK_M: tl.constexpr,
                                 BLOCK_N: tl.constexpr, CAUSAL: tl.constexpr, WARP_SPECIALIZE: tl.constexpr, PRECISION: tl.constexpr):
    q_desc = described(q_in, heads, n_ctx, HEAD_DIM, BLOCK_M)
    k_desc = described(k_in, heads, n_ctx, HEAD_DIM, BLOCK_N)
    v_desc = described(v_in, heads, n_ctx, HEAD_DIM, BLOCK_N)
    o_desc = described(o_in, heads, n_ctx, HEAD_DIM, BLOCK_M)
    start_m = tl.program_id(0) * BLOCK_M
    head = tl.program_id(1)
    offs_m = start_m + tl.arange(0, BLOCK_M)
    q = tl.reshape(q_desc.load([head, start_m, 0]), [BLOCK_M, HEAD_DIM])
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
    acc, l_i, m_i = attention_inner(acc, l_i, m_i, q, k_desc, v_desc, head, offs_m, 0, unmasked, n_ctx, qk_scale, BLOCK_N, HEAD_DIM, False,
                                    CAUSAL, WARP_SPECIALIZE, PRECISION)
    acc, l_i, m_i = attention_inner(acc, l_i, m_i, q, k_desc, v_desc, head, offs_m, unmasked, last, n_ctx, qk_scale, BLOCK_N, HEAD_DIM, True,
                                    CAUSAL, WARP_SPECIALIZE, PRECISION)
    o_desc.store([head, start_m, 0], (acc / l_i[:, None]).to(o_desc.dtype)[None, :, :])


def attention(q: Any, k: Any, v: Any, causal: bool = False, block: tuple[int, int] = (64, 32), num_warps: int = 4, num_stages: int = 2,
              device_descriptors: bool = False, warp_specialize: bool = False, precision: str = "ieee") -> Any:
    """Attention of contiguous q, k, v (heads, n_ctx, head_dim), head_dim a power of two ≥ 16; scale 1/sqrt(head_dim)."""
    heads, n_ctx, dim = q.shape
    o = common.poisoned(q.shape, q)
    bm, bn = block
    arrays: Any = (q, k, v, o)
    if not device_descriptors:
        arrays = [TensorDescriptor.from_tensor(t, [1, rows, dim]) for t, rows in zip(arrays, (bm, bn, bn, bm))]
    attention_descriptors_kernel[(triton.cdiv(n_ctx, bm), heads)](
        *arrays, heads, n_ctx, 1.4426950408889634 / dim**0.5, HEAD_DIM=dim, BLOCK_M=bm, BLOCK_N=bn, CAUSAL=causal,
        WARP_SPECIALIZE=warp_specialize, PRECISION=precision, num_warps=num_warps, num_stages=num_stages)
    return o


def cases(device: str, use_numpy: bool):
    for dtype in ("float32", "float16", "bfloat16"):
        if use_numpy and dtype == "bfloat16":
            continue
        for heads, n_ctx, dim in ((1, 1, 16), (2, 64, 64), (1, 97, 32), (2, 129, 64)):
            for causal in (False, True):
                q, k, v = (common.random((heads, n_ctx, dim), dtype, device, i, use_numpy) for i in range(3))
                ref = reference(q, k, v, causal)
                # at most 1.2 times the error of the float64 result rounded to the output's type, plus 1e-3
                bound = 1.2 * common.error(common.rounded(ref, q), ref) + 1e-3
                run = partial(attention, q, k, v, causal, device_descriptors=causal, warp_specialize=causal)
                yield Case(f"attention {dtype} {heads}x{n_ctx}x{dim}{' causal' if causal else ''}, descriptors of the {'device' if causal else 'host'}",
                           run, lambda ref=ref: ref, bound, common.error)


def tilewright_cases(device: str):
    """What `tilewright matrix` runs."""
    return common.sample(cases, device, "1x97x32")


if __name__ == "__main__":
    common.main(cases)
