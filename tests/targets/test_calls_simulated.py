"""Calls in the code of each target: they are there, and tiles, scalars and shared memory come through them."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright
import tilewright.language as tl


@tilewright.jit(noinline=True)
def turned(a, b, k):
    total = tl.sum(tl.sum(a, 1), 0)
    if k == 1:
        return a + tl.trans(b), total
    return b - a, total + k


@tilewright.jit(noinline=True)
def twice(a, b, k):
    a, s = turned(a, b, k)
    b, t = turned(b, a, k - 1)
    return a, b, s + t


@tilewright.jit
def kernel(p, o, q, N: tl.constexpr):
    i = tl.arange(0, N)
    at = i[:, None] * N + i[None, :]
    x = tl.load(p + at)
    y = x * 2
    total = 0
    for k in range(2):
        x, y, t = twice(x, y, k + 1)
        total += t
    tl.store(o + at, x - y)
    tl.store(q + tl.program_id(0), total)


def expected(p):
    x, y, total = p.astype(np.int64), p.astype(np.int64) * 2, 0

    def turn(a, b, k):
        return (a + b.T, a.sum()) if k == 1 else (b - a, a.sum() + k)

    for k in (1, 2):
        x, s = turn(x, y, k)
        y, t = turn(y, x, k - 1)
        total += s + t
    return x - y, total


# (arch, size, warps, what stands in the code): with few threads a tile is more than registers pass, and goes over the stack
CASES = [("cpu", 16, 1, "asm", "callq|bl\\s"), ("nvidia:sm_80:sim", 32, 1, "ptx", r"\.func .*\n?.*turned"), ("nvidia:sm_90a:sim", 16, 4, "ptx", r"call\.uni"),
         ("amd:gfx942:sim", 32, 2, "amdgcn", "s_swappc_b64"), ("amd:gfx90a:sim", 64, 1, "amdgcn", "s_swappc_b64"), ("amd:gfx1100:sim", 32, 2, "amdgcn", "s_swappc_b64")]


@pytest.mark.parametrize("target, size, warps, stage, found", CASES, ids=[c[0] for c in CASES])
def test_calls(target, size, warps, stage, found, monkeypatch):
    import re

    monkeypatch.setenv("TILEWRIGHT_TARGET", target)
    p = np.random.default_rng(0).integers(-9, 9, (size, size)).astype(np.int32)
    o, q = np.zeros_like(p), np.zeros(1, np.int32)
    compiled = kernel[(1,)](p, o, q, size, **({} if target == "cpu" else {"num_warps": warps}))
    tile, total = expected(p)
    assert np.array_equal(o, tile) and q[0] == total
    assert re.search(found, compiled.asm[stage])
    assert [name for name in ("turned", "twice") if f"{name}__int32x{size}x{size}" in compiled.asm[stage]] == ["turned", "twice"]
    if target == "nvidia:sm_90a:sim":
        assert "the kernel calls noinline functions" in compiled.explain()


@tilewright.jit(noinline=True)
def checked(o, x, n):
    tl.device_assert(x < n, "too large")
    tl.store(o + 1, x)
    return x


@tilewright.jit
def checking(o, n):
    x = checked(o, 5, n)
    tl.store(o, x)


def test_an_assertion_in_a_called_function_ends_the_program(monkeypatch):
    monkeypatch.setenv("TILEWRIGHT_TARGET", "cpu")
    o = np.zeros(2, np.int32)
    checking[(1,)](o, 6, debug=True)
    assert o.tolist() == [5, 5]
    o[:] = 0
    with pytest.raises(tilewright.TilewrightError, match="too large"):
        checking[(1,)](o, 5, debug=True)
    assert o.tolist() == [0, 0]


@tilewright.jit(noinline=True)
def product(a, b, acc, K):
    i, k = tl.arange(0, 32), tl.arange(0, 32)
    for at in range(0, K, 32):
        x = tl.load(a + i[:, None] * K + at + k[None, :])
        y = tl.load(b + (at + k[:, None]) * 32 + i[None, :])
        acc = tl.dot(x, y, acc)
    return acc


@tilewright.jit
def products(a, b, o, K):
    i = tl.arange(0, 32)
    acc = product(a, b, tl.zeros([32, 32], tl.float32), K)
    acc = product(a, b, acc, K)
    tl.store(o + i[:, None] * 32 + i[None, :], acc)


@pytest.mark.parametrize("target, stage, found", [("nvidia:sm_80:sim", "ptx", "cp.async.cg"), ("amd:gfx950:sim", "amdgcn", "v_mfma")])
def test_loops_in_called_functions(target, stage, found, monkeypatch):
    """They are pipelined, by what the calls say of the arguments; and no buffer operations are made of addresses that nothing is known of."""
    monkeypatch.setenv("TILEWRIGHT_TARGET", target)
    rng = np.random.default_rng(0)
    raw = rng.integers(-3, 3, 2 * 32 * 96 + 8).astype(np.float16)
    raw = raw[(-raw.ctypes.data % 16) // 2:]
    a, b = raw[:32 * 96].reshape(32, 96), raw[32 * 96:2 * 32 * 96].reshape(96, 32)
    o = np.zeros((32, 32), np.float32)
    compiled = products[(1,)](a, b, o, 96)
    assert np.array_equal(o, 2 * (a.astype(np.float64) @ b)) and found in compiled.asm[stage]
