"""Scalars that are reduced from a tile of an instruction's layout, by way of a change of shape."""

import numpy as np
import pytest

import tilewright
import tilewright.language as tl


@tilewright.jit
def trace_kernel(p, q, r, n, HOW: tl.constexpr):
    i = tl.arange(0, 32)
    o = i[:, None] * 32 + i[None, :]
    acc = tl.zeros((32, 32), tl.float32)
    for k in range(n):
        acc += tl.dot(tl.load(p + k * 1024 + o), tl.load(q + k * 1024 + o))
    if HOW == "plain":
        s = tl.sum(tl.trans(acc))
    elif HOW == "loaded":
        s = tl.sum(tl.trans(acc) * tl.load(p + o))
    else:
        s = tl.sum(tl.trans(acc) * acc)
    tl.store(r + o, s)


@pytest.mark.parametrize("how", ("plain", "loaded", "squared"))
def test_sum_of_a_transposed_accumulator(how, monkeypatch):
    monkeypatch.setenv("TILEWRIGHT_TARGET", "nvidia:sm_80:sim")
    p, q = np.random.default_rng(1).standard_normal((2, 2, 32, 32)).astype(np.float16)
    out = np.full((32, 32), np.nan, np.float32)
    trace_kernel[(1,)](p, q, out, 2, how)
    acc = (p.astype(np.float64) @ q.astype(np.float64)).sum(0)
    want = {"plain": acc.sum(), "loaded": (acc.T * p[0]).sum(), "squared": (acc.T * acc).sum()}[how]
    np.testing.assert_allclose(out, want, rtol=1e-4, atol=1e-2)
