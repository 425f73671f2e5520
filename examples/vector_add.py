"""z = x + y, with a mask so that any size will do."""

from __future__ import annotations

from functools import partial
from typing import Any

import common

import tilewright as triton
import tilewright.language as tl
from tilewright.testing import Case


@triton.jit
def add_kernel(x_ptr, y_ptr, z_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    y = tl.load(y_ptr + offsets, mask=mask)
    tl.store(z_ptr + offsets, x + y, mask=mask)


def add(x: Any, y: Any, block: int = 1024) -> Any:
    """Elementwise sum of two arrays of one shape and dtype."""
    z = common.poisoned(x.shape, x)
    n = z.size if hasattr(z, "__array_interface__") else z.numel()
    add_kernel[(triton.cdiv(n, block),)](x, y, z, n, BLOCK=block)
    return z


def cases(device: str, use_numpy: bool):
    for dtype, bound in (("float32", 1e-6), ("float16", 1e-3), ("bfloat16", 8e-3)):
        if use_numpy and dtype == "bfloat16":
            continue
        for n in (1, 97, 1024, 1025, 98432):
            x, y = (common.random((n,), dtype, device, s, use_numpy) for s in (1, 2))
            yield Case(f"add {dtype} n={n}", partial(add, x, y), lambda x=x, y=y: common.f64(x) + common.f64(y), bound)


def tilewright_cases(device: str):
    """What `tilewright matrix` runs."""
    return common.sample(cases, device, "n=1", "n=1025")


if __name__ == "__main__":
    common.main(cases)
