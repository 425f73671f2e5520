"""Combiners as code generators write them: helpers that ask for a value's type by adding a tensor to it, and branch on the answer."""

import numpy as np
import pytest
import torch

from tilewright.conformance.harness import compare

# the helpers are those of torch's generated kernels in shape: a sum with a tensor promotes to one, whose type is asked
HELPERS = """
@triton.jit
def as_tensor(x):
    return x + tl.zeros((1,), tl.int1)

@triton.jit
def is_floating(x):
    return as_tensor(x).dtype.is_floating()

@triton.jit
def larger(a, b):
    mask = a > b
    if is_floating(a):
        mask |= a != a
    return tl.where(mask, a, b)

@triton.jit
def larger_with_index(a, i, b, j):
    mask = a > b
    equal = a == b
    if is_floating(a):
        mask |= (a != a) & (b == b)
        equal |= (a != a) & (b != b)
    mask |= equal & (i < j)
    return tl.where(mask, a, b), tl.where(mask, i, j)
"""


@pytest.mark.parametrize("dtype", ["float32", "int32"])
def test_reductions(dtype):
    source = HELPERS + """
@triton.jit
def kernel(x, top, where, columns):
    i = tl.arange(0, 16)[:, None] * 32 + tl.arange(0, 32)[None, :]
    tile = tl.load(x + i)
    index = tl.broadcast_to(tl.arange(0, 32)[None, :], (16, 32))
    best, at = tl.reduce((tile, index), 1, larger_with_index)
    tl.store(top + tl.arange(0, 16), best)
    tl.store(where + tl.arange(0, 16), at)
    tl.store(columns + tl.arange(0, 32), tl.reduce(tile, 0, larger))
"""
    x = np.random.default_rng(5).integers(-40, 40, (16, 32)).astype(dtype)
    if dtype == "float32":
        x[3, 7] = x[3, 20] = np.nan
    top = x.max(1)
    where = np.where(np.isnan(x).any(1), np.isnan(x).argmax(1), (x == top[:, None]).argmax(1)) if dtype == "float32" else x.argmax(1)
    compare(source, {"x": torch.from_numpy(x), "top": torch.zeros(16, dtype=getattr(torch, dtype)), "where": torch.zeros(16, dtype=torch.int32),
                     "columns": torch.zeros(32, dtype=getattr(torch, dtype))},
            expected={"top": top, "where": where.astype(np.int32), "columns": x.max(0)})


def test_scan():
    source = HELPERS + """
@triton.jit
def kernel(x, out):
    i = tl.arange(0, 64)
    tl.store(out + i, tl.associative_scan(tl.load(x + i), 0, larger))
"""
    x = np.random.default_rng(6).standard_normal(64).astype(np.float32)
    compare(source, {"x": torch.from_numpy(x), "out": torch.zeros(64)}, expected={"out": np.maximum.accumulate(x)})
