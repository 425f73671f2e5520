"""Row-wise softmax with one pass over memory: a row is one tile."""

from __future__ import annotations

from functools import partial
from typing import Any

import common
import numpy as np

import tilewright as triton
import tilewright.language as tl
from tilewright.testing import Case


@triton.jit
def softmax_kernel(out_ptr, in_ptr, out_stride, in_stride, n_rows, n_cols, BLOCK: tl.constexpr):
    row_start = tl.program_id(0)
    row_step = tl.num_programs(0)
    for row in tl.range(row_start, n_rows, row_step):
        cols = tl.arange(0, BLOCK)
        mask = cols < n_cols
        x = tl.load(in_ptr + row * in_stride + cols, mask=mask, other=-float("inf")).to(tl.float32)
        x = x - tl.max(x, axis=0)
        numerator = tl.exp(x)
        y = numerator / tl.sum(numerator, axis=0)
        tl.store(out_ptr + row * out_stride + cols, y.to(out_ptr.dtype.element_ty), mask=mask)


def softmax(x: Any, programs: int | None = None) -> Any:
    """Softmax over the last dim of a 2-D array with contiguous rows; computed in fp32."""
    rows, cols = x.shape
    out = common.poisoned(x.shape, x)
    block = triton.next_power_of_2(cols)
    grid = (min(rows, programs or rows),)
    softmax_kernel[grid](out, x, cols, cols, rows, cols, BLOCK=block, num_warps=max(1, min(16, block // 256)))
    return out


def reference(x: Any) -> np.ndarray:
    v = common.f64(x)
    e = np.exp(v - v.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def cases(device: str, use_numpy: bool):
    for dtype, bound in (("float32", 1e-6), ("float16", 1e-3), ("bfloat16", 8e-3)):
        if use_numpy and dtype == "bfloat16":
            continue
        for rows, cols in ((1, 1), (3, 97), (37, 781), (16, 1025), (8, 4096)):
            x = common.random((rows, cols), dtype, device, 3, use_numpy)
            yield Case(f"softmax {dtype} {rows}x{cols}", partial(softmax, x, 5), partial(reference, x), bound)


def tilewright_cases(device: str):
    """What `tilewright matrix` runs."""
    return common.sample(cases, device, "37x781", "16x1025")


if __name__ == "__main__":
    common.main(cases)
