"""Small kernels that random ones (random_kernels.py) were cut down to, each once wrong on some target."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tilewright.conformance.harness import compare, poisoned, random_array, rng_of, tl_name


def test_loop_variables_that_become_another_one():
    """t[1] stays and is the next t[0]: its block argument was dropped before it was yielded (a crash)."""
    x = torch.arange(16, dtype=torch.int32)
    compare("""
        @triton.jit
        def kernel(p, o, n):
            i = tl.arange(0, 16)
            x = tl.load(p + i)
            t = (x, x + 1)
            y, z = x, x + 5
            for k in range(n):
                t = (t[1], t[1])
                y, z = z, z
            w = 0
            before = tl.load(p + 2)
            while w < n:
                before = tl.load(p + 2)
                w += 1
            tl.store(o + i, t[0] * 1000 + t[1] * 100 + y * 10 + z + before)
        """, {"p": x, "o": poisoned("int32", 16), "n": 2}, expected={"o": ((x + 1) * 1100 + (x + 5) * 11 + 2).to(torch.int32)})


@pytest.mark.parametrize("dtype", ["int32", "fp64"])
@pytest.mark.parametrize("shape, start, end", [((4, 16), 8, 16), ((4, 16), 0, 8), ((2, 32), 16, 24), ((8, 16), 4, 16)])
def test_masks_of_which_half_a_vector_is_off(dtype, shape, start, end):
    """A run-time part of the mask and a constant one that switches half of each row off: LLVM 22 loaded that half without a mask."""
    m, n = shape
    x = random_array(dtype, m * n + 64, rng_of(dtype, shape, start), small=True)
    row, column = np.arange(m)[:, None], np.arange(n)[None, :]
    mask = (column + start < end) & (row + 1 < m)
    loaded = np.where(mask, x.numpy()[row * n + column + start], 0)
    compare(f"""
        @triton.jit
        def kernel(p, o, q):
            row, column = tl.arange(0, {m})[:, None], tl.arange(0, {n})[None, :]
            mask = (column + {start} < {end}) & (row + 1 < {m})
            x = tl.load(p + row * {n} + column + {start}, mask=mask)
            tl.store(o + row * {n} + column, x)
            tl.store(q + row * {n} + column, tl.load(p + row * {n} + column), mask=mask)
        """, {"p": x, "o": poisoned(dtype, shape), "q": torch.zeros(shape, dtype=x.dtype)},
        expected={"o": loaded, "q": np.where(mask, x.numpy()[row * n + column], 0)}, num_warps=1)


def test_what_a_while_loop_carries_in_two_layouts():
    """A reduction in the condition and a store in another order want the carried tile each in its own layout: the block argument was to be computed again."""
    x, y = torch.arange(64, dtype=torch.float32) + 1, -torch.arange(64, dtype=torch.float32) - 1
    stored = torch.where(torch.arange(16)[:, None] >= 8, x.reshape(16, 4), torch.full((16, 4), 7.0)).T.contiguous().reshape(64)
    compare("""
        @triton.jit
        def kernel(p, q, o, n):
            at = tl.arange(0, 16)[:, None] * 4 + tl.arange(0, 4)[None, :]
            x, v = tl.load(p + at), tl.load(q + at)
            w = 0
            while (w < n) & (tl.max(v) < 0):
                v = x
            tl.store(o + tl.arange(0, 16)[:, None] + tl.arange(0, 4)[None, :] * 16, v, mask=(tl.arange(0, 16)[:, None] >= n * 4) & (n > 0))
        """, {"p": x, "q": y, "o": torch.full((64,), 7.0), "n": 2}, expected={"o": stored}, num_warps=8)


@pytest.mark.parametrize("dtype", ["bf16", "fp16"])
def test_bits_of_a_scalar_as_a_float(dtype):
    """The interpreter made a tile of one element of it."""
    one = {"bf16": 0x3F80, "fp16": 0x3C00}[dtype]
    compare(f"""
        @triton.jit
        def kernel(p, o):
            v = tl.load(p).to({tl_name(dtype)}, bitcast=True)
            tl.store(o, tl.where(v == v, v, 3).to(tl.float32))
            tl.store(o + 1, (v + 1).to(tl.float32))
        """, {"p": torch.tensor([one], dtype=torch.int16), "o": poisoned("fp32", 2)}, expected={"o": torch.tensor([1.0, 2.0])}, num_warps=1)
