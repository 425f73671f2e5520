"""A sort of many elements: right, and compiled to code that grows with the network's steps, not with the elements."""

from __future__ import annotations

import numpy as np

import tilewright as triton
import tilewright.language as tl


@triton.jit
def _sorted(x, y, N: tl.constexpr):
    o = tl.arange(0, N)
    tl.store(y + o, tl.sort(tl.load(x + o)))


def test_a_sort_of_512_is_right_and_small():
    x = np.random.default_rng(5).standard_normal(512).astype(np.float32)
    y = np.empty_like(x)
    kernel = _sorted[(1,)](x, y, N=512)
    np.testing.assert_array_equal(y, np.sort(x))
    steps = 9 * 10 // 2
    # one dim a bit of the index made nests of nine loops a step, which the optimiser unrolled
    assert len(kernel.asm["loops"].splitlines()) < 150 * steps
    assert len(kernel.asm["llir"].splitlines()) < 150 * steps
