"""Layer norm forward: y = (x - mean) / sqrt(var + eps) * w + b, rows of any length, statistics kept for a backward pass."""

from __future__ import annotations

from functools import partial
from typing import Any

import common
import numpy as np

import tilewright as triton
import tilewright.language as tl
from tilewright.testing import Case


@triton.jit
def layer_norm_kernel(x_ptr, y_ptr, w_ptr, b_ptr, mean_ptr, rstd_ptr, stride, n, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    x_ptr += row * stride
    y_ptr += row * stride
    total = tl.zeros([BLOCK], dtype=tl.float32)
    for start in range(0, n, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        total += tl.load(x_ptr + cols, mask=cols < n, other=0.0).to(tl.float32)
    mean = tl.sum(total, axis=0) / n
    squares = tl.zeros([BLOCK], dtype=tl.float32)
    for start in range(0, n, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + cols, mask=cols < n, other=0.0).to(tl.float32)
        x = tl.where(cols < n, x - mean, 0.0)
        squares += x * x
    rstd = 1 / tl.sqrt(tl.sum(squares, axis=0) / n + eps)
    tl.store(mean_ptr + row, mean)
    tl.store(rstd_ptr + row, rstd)
    for start in range(0, n, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        mask = cols < n
        w = tl.load(w_ptr + cols, mask=mask)
        b = tl.load(b_ptr + cols, mask=mask)
        x = tl.load(x_ptr + cols, mask=mask, other=0.0).to(tl.float32)
        y = (x - mean) * rstd * w + b
        tl.store(y_ptr + cols, y.to(y_ptr.dtype.element_ty), mask=mask)


def layer_norm(x: Any, w: Any, b: Any, eps: float = 1e-5) -> tuple[Any, Any, Any]:
    """(y, mean, rstd) of a 2-D array with contiguous rows; w and b have one entry a column; statistics are fp32."""
    rows, cols = x.shape
    y = common.poisoned(x.shape, x)
    mean, rstd = (common.poisoned((rows,), x.astype(np.float32) if isinstance(x, np.ndarray) else x.float()) for _ in range(2))
    block = min(triton.next_power_of_2(cols), 4096)
    layer_norm_kernel[(rows,)](x, y, w, b, mean, rstd, cols, cols, eps, BLOCK=block, num_warps=max(1, min(8, block // 256)))
    return y, mean, rstd


def reference(x: Any, w: Any, b: Any, eps: float = 1e-5) -> np.ndarray:
    v = common.f64(x)
    centred = v - v.mean(axis=1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(axis=1, keepdims=True) + eps) * common.f64(w) + common.f64(b)


def cases(device: str, use_numpy: bool):
    for dtype, bound in (("float32", 1e-6), ("float16", 1e-3), ("bfloat16", 8e-3)):
        if use_numpy and dtype == "bfloat16":
            continue
        for rows, cols in ((1, 2), (3, 97), (5, 1025), (4, 8192), (2, 8209)):
            x, w, b = (common.random(s, dtype, device, i, use_numpy) for i, s in enumerate(((rows, cols), (cols,), (cols,))))
            yield Case(f"layer_norm {dtype} {rows}x{cols}", lambda x=x, w=w, b=b: layer_norm(x, w, b)[0], partial(reference, x, w, b), bound)


def tilewright_cases(device: str):
    """What `tilewright matrix` runs."""
    return common.sample(cases, device, "3x97", "5x1025")


if __name__ == "__main__":
    common.main(cases)
