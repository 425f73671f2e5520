"""Reductions, scans and the ops that move elements, over every axis, against numpy in float64."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as triton
import tilewright.language as tl


def values(shape, dtype="float32", seed=0):
    rng = np.random.default_rng(seed)
    if np.dtype(dtype).kind in "iu":
        return rng.integers(-50, 50, shape).astype(dtype)
    return rng.standard_normal(shape).astype(dtype)


@triton.jit
def reduce_kernel(src, out, M: tl.constexpr, N: tl.constexpr, AXIS: tl.constexpr, OP: tl.constexpr):
    x = tl.load(src + tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :])
    if OP == "sum":
        r = tl.sum(x, AXIS)
    elif OP == "max":
        r = tl.max(x, AXIS)
    elif OP == "min":
        r = tl.min(x, AXIS)
    elif OP == "argmax":
        r = tl.argmax(x, AXIS)
    elif OP == "argmin":
        r = tl.argmin(x, AXIS)
    else:
        r = tl.xor_sum(x, AXIS)
    tl.store(out + tl.arange(0, N if AXIS == 0 else M), r)


@pytest.mark.parametrize("op", ["sum", "max", "min", "argmax", "argmin"])
@pytest.mark.parametrize("shape", [(1, 16), (16, 1), (4, 8), (32, 64), (2, 1024), (128, 2)])
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("dtype", ["float32", "int32"])
def test_reduce(op, shape, axis, dtype):
    x = values(shape, dtype)
    expected = getattr(np, op)(x.astype("float64"), axis=axis)
    out = np.full(expected.shape, -7, "int32" if op.startswith("arg") or dtype == "int32" else "float32")
    reduce_kernel[(1,)](x, out, M=shape[0], N=shape[1], AXIS=axis, OP=op)
    if dtype == "float32" and op == "sum":
        assert np.allclose(out, expected, rtol=1e-5, atol=1e-4)
    else:
        assert np.array_equal(out, expected)


@pytest.mark.parametrize("dtype", ["int8", "int64", "float16", "float64"])
def test_sum_of_other_types(dtype):
    x = values((8, 32), dtype)
    out = np.zeros(8, "int64" if dtype.startswith("int") else dtype)
    reduce_kernel[(1,)](x, out, M=8, N=32, AXIS=1, OP="sum")
    assert np.allclose(out.astype("float64"), x.astype("float64").sum(1), rtol=2e-3, atol=2e-2 if dtype == "float16" else 0)


def test_ties_go_to_the_lowest_index():
    x = np.zeros((4, 64), "float32")
    x[:, [5, 21, 37]] = 1
    out = np.zeros(4, "int32")
    reduce_kernel[(1,)](x, out, M=4, N=64, AXIS=1, OP="argmax")
    assert (out == 5).all()
    reduce_kernel[(1,)](-x, out, M=4, N=64, AXIS=1, OP="argmin")
    assert (out == 5).all()


@pytest.mark.parametrize("n", [16, 64, 1024])
def test_max_ignores_nan_and_xor(n):
    x = values((2, n))
    x[0, 3] = np.nan
    out = np.zeros(2, "float32")
    reduce_kernel[(1,)](x, out, M=2, N=n, AXIS=1, OP="max")
    assert np.array_equal(out, np.nanmax(x, 1))
    i = values((2, n), "int32")
    out = np.zeros(2, "int32")
    reduce_kernel[(1,)](i, out, M=2, N=n, AXIS=1, OP="xor")
    assert np.array_equal(out, np.bitwise_xor.reduce(i, 1))


@triton.jit
def whole_kernel(src, out, N: tl.constexpr):
    x = tl.load(src + tl.arange(0, N))
    tl.store(out, tl.sum(x) / N)
    tl.store(out + 1, tl.max(x, 0))


@pytest.mark.parametrize("n", [1, 2, 8, 16, 128, 4096])
def test_reduce_to_a_scalar(n):
    x, out = values(n), np.zeros(2, "float32")
    whole_kernel[(1,)](x, out, N=n)
    assert np.allclose(out, [x.astype("float64").mean(), x.max()], rtol=1e-5, atol=1e-6)


@triton.jit
def cube_kernel(src, out, A: tl.constexpr, B: tl.constexpr, C: tl.constexpr, AXIS: tl.constexpr, SIZE: tl.constexpr):
    at = tl.arange(0, A)[:, None, None] * (B * C) + tl.arange(0, B)[None, :, None] * C + tl.arange(0, C)[None, None, :]
    r = tl.sum(tl.load(src + at), AXIS)
    tl.store(out + tl.arange(0, SIZE), tl.reshape(r, [SIZE]))


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_reduce_of_three_dims(axis):
    x = values((4, 8, 32))
    expected = x.astype("float64").sum(axis)
    out = np.zeros(expected.size, "float32")
    cube_kernel[(1,)](x, out, A=4, B=8, C=32, AXIS=axis, SIZE=expected.size)
    assert np.allclose(out, expected.ravel(), rtol=1e-5, atol=1e-5)


@triton.jit
def welford(mean_a, m2_a, n_a, mean_b, m2_b, n_b):
    n = n_a + n_b
    d = mean_b - mean_a
    return mean_a + d * n_b / n, m2_a + m2_b + d * d * n_a * n_b / n, n


@triton.jit
def welford_kernel(src, out, N: tl.constexpr):
    x = tl.load(src + tl.arange(0, N))
    mean, m2, n = tl.reduce((x, tl.zeros_like(x), tl.full([N], 1.0, tl.float32)), 0, welford)
    tl.store(out, mean)
    tl.store(out + 1, m2 / n)


@pytest.mark.parametrize("n", [2, 16, 256])
def test_combiner_of_the_users(n):
    x, out = values(n), np.zeros(2, "float32")
    welford_kernel[(1,)](x, out, N=n)
    assert np.allclose(out, [x.astype("float64").mean(), x.astype("float64").var()], rtol=1e-5)


@triton.jit
def keep(a, b):
    return a * 0.5 + b


@triton.jit
def scan_kernel(src, out, M: tl.constexpr, N: tl.constexpr, AXIS: tl.constexpr, REVERSE: tl.constexpr, OP: tl.constexpr):
    at = tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :]
    x = tl.load(src + at)
    if OP == "sum":
        r = tl.cumsum(x, AXIS, reverse=REVERSE)
    elif OP == "prod":
        r = tl.cumprod(x, AXIS, reverse=REVERSE)
    else:
        r = tl.associative_scan(x, AXIS, keep, reverse=REVERSE)
    tl.store(out + at, r)


@pytest.mark.parametrize("op", ["sum", "prod"])
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("shape", [(1, 8), (16, 4), (4, 64)])
def test_scan(op, axis, reverse, shape):
    x, out = values(shape), np.zeros(shape, "float32")
    scan_kernel[(1,)](x, out, M=shape[0], N=shape[1], AXIS=axis, REVERSE=reverse, OP=op)
    y = np.flip(x, axis) if reverse else x
    expected = (np.cumsum if op == "sum" else np.cumprod)(y.astype("float64"), axis)
    assert np.allclose(out, np.flip(expected, axis) if reverse else expected, rtol=1e-4, atol=1e-5)


@triton.jit
def moves_kernel(src, out, index, N: tl.constexpr, WHAT: tl.constexpr):
    at = tl.arange(0, N)
    x = tl.load(src + at)
    if WHAT == "gather":
        y = tl.gather(x, tl.load(index + at), 0)
    elif WHAT == "flip":
        y = tl.flip(x)
    elif WHAT == "sort":
        y = tl.sort(x)
    elif WHAT == "interleave":
        a, b = tl.split(tl.reshape(x, [N // 2, 2]))
        y = tl.interleave(b, a)
    elif WHAT == "transpose":
        y = tl.reshape(tl.trans(tl.reshape(x, [N // 4, 4])), [N])
    else:
        y = tl.ravel(tl.permute(tl.reshape(x, [N // 8, 2, 4]), (2, 0, 1)))
    tl.store(out + at, y)


@pytest.mark.parametrize("what", ["gather", "flip", "sort", "interleave", "transpose", "permute"])
@pytest.mark.parametrize("dtype", ["float32", "int32", "float16"])
def test_moves(what, dtype):
    n = 64
    x, out = values(n, dtype), np.zeros(n, dtype)
    index = np.random.default_rng(2).integers(0, n, n).astype("int32")
    moves_kernel[(1,)](x, out, index, N=n, WHAT=what)
    expected = {"gather": x[index], "flip": x[::-1], "sort": np.sort(x), "interleave": x.reshape(-1, 2)[:, ::-1].ravel(),
                "transpose": x.reshape(-1, 4).T.ravel(), "permute": x.reshape(-1, 2, 4).transpose(2, 0, 1).ravel()}[what]
    assert np.array_equal(out, expected)


@triton.jit
def histogram_kernel(src, out, n, N: tl.constexpr, BINS: tl.constexpr):
    at = tl.arange(0, N)
    x = tl.load(src + at, mask=at < n, other=-1)
    tl.store(out + tl.arange(0, BINS), tl.histogram(x, BINS, mask=at < n))
    c = tl.cat(tl.arange(0, BINS), tl.arange(0, BINS) + BINS, can_reorder=True)
    tl.store(out + BINS + tl.arange(0, 2 * BINS), c)


def test_histogram_and_cat():
    x = np.random.default_rng(0).integers(0, 16, 128).astype("int32")
    out = np.zeros(48, "int32")
    histogram_kernel[(1,)](x, out, 100, N=128, BINS=16)
    assert np.array_equal(out[:16], np.bincount(x[:100], minlength=16)) and sorted(out[16:]) == list(range(32))


@triton.jit
def random_kernel(out, seed, N: tl.constexpr):
    at = tl.arange(0, N)
    tl.store(out + at, tl.rand(seed, at))


def test_a_long_integer_chain_is_not_computed_exponentially():
    out = np.zeros(1024, "float32")
    random_kernel[(1,)](out, 42, N=1024)
    assert 0 <= out.min() and out.max() < 1 and abs(out.mean() - 0.5) < 0.05 and len(np.unique(out)) > 1000
