"""Loops, branches and whiles over scalars and tiles, prints and assertions, the launch."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as triton
import tilewright.language as tl


@triton.jit
def carried_kernel(src, out, steps, N: tl.constexpr):
    at = tl.arange(0, N)
    a, b = tl.load(src + at), tl.load(src + N + at)
    total = 0.0
    for i in range(steps):
        a, b = b, a + b
        total += tl.sum(a) * i
    tl.store(out + at, a)
    tl.store(out + N + at, b)
    tl.store(out + 2 * N, total)


@pytest.mark.parametrize("steps", [0, 1, 2, 7])
def test_tiles_that_swap(steps):
    x = np.random.default_rng(0).standard_normal(64).astype("float32")
    out = np.full(65, np.nan, "float32")
    carried_kernel[(1,)](x, out, steps, N=32)
    a, b, total = x[:32].astype("float64"), x[32:].astype("float64"), 0.0
    for i in range(steps):
        a, b = b, a + b
        total += a.sum() * i
    assert np.allclose(out, np.concatenate([a, b, [total]]), rtol=1e-4, atol=1e-4)


@triton.jit
def branch_kernel(src, out, flag, N: tl.constexpr):
    at = tl.arange(0, N)
    x = tl.load(src + at)
    p = out + at
    if flag > 1:
        y = x * 2
        p += N
    elif flag == 1:
        y = tl.flip(x)
        tl.store(out + at, x)
    else:
        y = x
    tl.store(p + N, y + tl.sum(y))


@pytest.mark.parametrize("flag", [0, 1, 2, 16])
def test_branches_with_tiles(flag):
    x = np.random.default_rng(0).integers(0, 9, 32).astype("float32")
    out = np.full(96, 99, "float32")
    branch_kernel[(1,)](x, out, flag, N=32)
    expected = np.full(96, 99, "float32")
    y = x * 2 if flag > 1 else x[::-1] if flag == 1 else x
    if flag == 1:
        expected[:32] = x
    first = 64 if flag > 1 else 32
    expected[first:first + 32] = y + y.sum()
    assert np.array_equal(out, expected)


@triton.jit
def while_kernel(src, out, limit, N: tl.constexpr):
    at = tl.arange(0, N)
    x = tl.load(src + at)
    n = 0
    while tl.max(tl.abs(x), 0) > limit:
        x = x * 0.5
        n += 1
    tl.store(out + at, x)
    tl.store(out + N, n)


@pytest.mark.parametrize("limit", [0.1, 1.0, 100.0])
def test_while(limit):
    x = np.random.default_rng(0).standard_normal(32).astype("float32") * 8
    out = np.full(33, np.nan, "float32")
    while_kernel[(1,)](x, out, limit, N=32)
    n = 0
    while np.abs(x).max() > np.float32(limit):
        x, n = x * np.float32(0.5), n + 1
    assert np.array_equal(out, np.append(x, np.float32(n)))


@triton.jit
def nested_kernel(src, out, rows, cols, N: tl.constexpr):
    at = tl.arange(0, N)
    total = tl.zeros([N], tl.float32)
    p = src + at
    for r in range(rows):
        row = tl.zeros([N], tl.float32)
        q = p
        for c in range(0, cols, N):
            row += tl.load(q, mask=c + at < cols, other=0.0)
            q += N
        if r % 2 == 0:
            total += row
        else:
            total -= row
        p += cols
    tl.store(out + at, total)


@pytest.mark.parametrize("rows,cols", [(0, 5), (1, 16), (5, 50), (4, 33)])
def test_nested_loops(rows, cols):
    x = np.random.default_rng(0).standard_normal((rows, cols)).astype("float32")
    out = np.full(16, np.nan, "float32")
    nested_kernel[(1,)](x if rows else np.zeros(1, "float32"), out, rows, cols, N=16)
    expected = np.zeros(16)
    for r in range(rows):
        padded = np.zeros(-(-cols // 16) * 16)
        padded[:cols] = x[r]
        expected += (-1) ** r * padded.reshape(-1, 16).sum(0)
    assert np.allclose(out, expected, atol=1e-5)


@triton.jit
def grid_kernel(out, gx, gy):
    x, y, z = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    n = tl.num_programs(0) * 10000 + tl.num_programs(1) * 100 + tl.num_programs(2)
    tl.atomic_add(out + (z * gy + y) * gx + x, n)


@pytest.mark.parametrize("grid", [(1,), (7,), (3, 4), (5, 2, 3), (1000, 3)])
def test_every_program_runs_once(grid):
    full = (*grid, 1, 1)[:3]
    out = np.zeros(full[::-1], "int32")
    grid_kernel[grid](out, full[0], full[1])
    assert (out == full[0] * 10000 + full[1] * 100 + full[2]).all()


@triton.jit
def assert_kernel(x, N: tl.constexpr):
    v = tl.load(x + tl.arange(0, N))
    tl.device_assert(v >= 0, "negative")


def test_an_assertion_raises_after_the_launch():
    from tilewright.dialects.errors import TilewrightError

    x = np.arange(32, dtype="float32")
    assert_kernel[(4,)](x, N=32, debug=True)
    x[5] = -1
    with pytest.raises(TilewrightError, match="negative"):
        assert_kernel[(4,)](x, N=32, debug=True)
    assert_kernel[(4,)](np.abs(x), N=32, debug=True)  # the failure is not remembered


@triton.jit
def print_kernel(x, N: tl.constexpr):
    v = tl.load(x + tl.arange(0, N))
    tl.device_print("v", v)
    tl.device_print("sum", tl.sum(v))


def test_print(capfd):
    print_kernel[(2,)](np.arange(4, dtype="float32"), N=4)
    text = capfd.readouterr().out
    lines = [f"pid ({p}, 0, 0) idx ({i}) v: {i}.000000" for p in range(2) for i in range(4)]
    assert sorted(text.splitlines()) == sorted(lines + [f"pid ({p}, 0, 0) idx () sum: 6.000000" for p in range(2)])


@triton.jit
def scalars_kernel(out, a, b, c, d, flag):
    tl.store(out, a)
    tl.store(out + 1, b)
    tl.store(out + 2, c)
    tl.store(out + 3, d)
    tl.store(out + 4, flag)


def test_scalar_arguments():
    out = np.zeros(5, "float64")
    scalars_kernel[(1,)](out, -5, 2**40, 1.5, -(2**31), True)
    assert np.array_equal(out, [-5, 2.0**40, 1.5, -(2.0**31), 1])


def test_threads_that_launch_at_once():
    from concurrent.futures import ThreadPoolExecutor

    def one(seed: int) -> bool:
        x = np.random.default_rng(seed).standard_normal(64).astype("float32")
        out = np.full(65, np.nan, "float32")
        carried_kernel[(1,)](x, out, 1, N=32)
        return bool(np.allclose(out[:32], x[32:]))

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(one, range(16)))
