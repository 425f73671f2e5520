"""y = relu(x @ w + b): a tiled matmul whose programs walk the output in groups of rows, so that tiles share the cache."""

from __future__ import annotations

from functools import partial
from typing import Any

import common
import numpy as np

import tilewright as triton
import tilewright.language as tl
from tilewright.testing import Case


@triton.jit
def matmul_kernel(x_ptr, w_ptr, b_ptr, y_ptr, M, N, K, stride_xm, stride_xk, stride_wk, stride_wn, stride_ym, stride_yn,
                  BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
                  RELU: tl.constexpr, PRECISION: tl.constexpr):
    pid = tl.program_id(0)
    num_m = tl.cdiv(M, BLOCK_M)
    num_n = tl.cdiv(N, BLOCK_N)
    per_group = GROUP_M * num_n
    first_m = (pid // per_group) * GROUP_M
    group_m = min(num_m - first_m, GROUP_M)
    pid_m = first_m + (pid % per_group) % group_m
    pid_n = (pid % per_group) // group_m
    offs_m = (pid_m * BLOCK_M + tl.arange(0, BLOCK_M)) % M
    offs_n = (pid_n * BLOCK_N + tl.arange(0, BLOCK_N)) % N
    offs_k = tl.arange(0, BLOCK_K)
    x_ptrs = x_ptr + offs_m[:, None] * stride_xm + offs_k[None, :] * stride_xk
    w_ptrs = w_ptr + offs_k[:, None] * stride_wk + offs_n[None, :] * stride_wn
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, tl.cdiv(K, BLOCK_K)):
        x = tl.load(x_ptrs, mask=offs_k[None, :] < K - k * BLOCK_K, other=0.0)
        w = tl.load(w_ptrs, mask=offs_k[:, None] < K - k * BLOCK_K, other=0.0)
        acc = tl.dot(x, w, acc, input_precision=PRECISION)
        x_ptrs += BLOCK_K * stride_xk
        w_ptrs += BLOCK_K * stride_wk
    out_m = pid_m * BLOCK_M + tl.arange(0, BLOCK_M)
    out_n = pid_n * BLOCK_N + tl.arange(0, BLOCK_N)
    acc += tl.load(b_ptr + out_n, mask=out_n < N, other=0.0).to(tl.float32)[None, :]
    if RELU:
        acc = tl.maximum(acc, 0.0)
    y_ptrs = y_ptr + stride_ym * out_m[:, None] + stride_yn * out_n[None, :]
    tl.store(y_ptrs, acc.to(y_ptr.dtype.element_ty), mask=(out_m[:, None] < M) & (out_n[None, :] < N))


def strides(x: Any) -> tuple[int, ...]:
    """Strides in elements."""
    return tuple(s // x.itemsize for s in x.strides) if isinstance(x, np.ndarray) else tuple(x.stride())


def matmul(x: Any, w: Any, b: Any, relu: bool = True, block: tuple[int, int, int] = (64, 64, 32), num_warps: int = 4,
           num_stages: int = 3, precision: str = "ieee") -> Any:
    """relu(x @ w + b) for x (M, K), w (K, N) of any strides, b (N,); fp32 accumulation, output of x's dtype."""
    (m, k), (_, n) = x.shape, w.shape
    y = common.poisoned((m, n), x)
    bm, bn, bk = block
    matmul_kernel[(triton.cdiv(m, bm) * triton.cdiv(n, bn),)](
        x, w, b, y, m, n, k, *strides(x), *strides(w), *strides(y), BLOCK_M=bm, BLOCK_N=bn, BLOCK_K=bk, GROUP_M=8,
        RELU=relu, PRECISION=precision, num_warps=num_warps, num_stages=num_stages)
    return y


def reference(x: Any, w: Any, b: Any) -> np.ndarray:
    return np.maximum(common.f64(x) @ common.f64(w) + common.f64(b), 0.0)


def cases(device: str, use_numpy: bool):
    for dtype, bound in (("float32", 1e-6), ("float16", 2e-3), ("bfloat16", 1e-2)):
        if use_numpy and dtype == "bfloat16":
            continue
        for m, n, k in ((1, 1, 1), (64, 64, 64), (65, 127, 97), (129, 33, 200)):
            x, w, b = (common.random(s, dtype, device, i, use_numpy) for i, s in enumerate(((m, k), (k, n), (n,))))
            yield Case(f"matmul {dtype} {m}x{n}x{k}", partial(matmul, x, w, b), partial(reference, x, w, b), bound)
            wt = w.T.copy().T if use_numpy else w.t().contiguous().t()
            yield Case(f"matmul {dtype} {m}x{n}x{k}, w column-major", partial(matmul, x, wt, b), partial(reference, x, wt, b), bound)


def tilewright_cases(device: str):
    """What `tilewright matrix` runs."""
    return common.sample(cases, device, "65x127x97")


if __name__ == "__main__":
    common.main(cases)
