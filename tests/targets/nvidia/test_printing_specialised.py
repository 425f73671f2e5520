"""Kernels whose warps are specialised print each value once: producers repeat what stands before they part from the others."""

from __future__ import annotations

from collections import Counter

import numpy as np

import tilewright as triton
import tilewright.language as tl


@triton.jit
def matmul(a, b, c, K, B: tl.constexpr):
    i, k = tl.arange(0, B), tl.arange(0, 64)
    acc = tl.zeros((B, B), tl.float32)
    tl.device_print("before", K)
    for start in range(0, K, 64):
        x = tl.load(a + i[:, None] * K + (start + k)[None, :], mask=(start + k)[None, :] < K, other=0.0)
        y = tl.load(b + (start + k)[:, None] * B + i[None, :], mask=(start + k)[:, None] < K, other=0.0)
        acc = tl.dot(x, y, acc)
        tl.device_print("start", start)
    tl.device_print("sums", tl.sum(acc, 1))
    tl.store(c + i[:, None] * B + i[None, :], acc)


def test_each_value_once(monkeypatch, capsys):
    monkeypatch.setenv("TILEWRIGHT_TARGET", "nvidia:sm_90:sim")
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-2, 3, shape).astype(np.float16) for shape in ((64, 128), (128, 64)))
    c = np.zeros((64, 64), np.float32)
    kernel = matmul[(1,)](a, b, c, 128, B=64, num_warps=4, debug=True)
    assert "warp_specialize" in kernel.asm["ttgir"]
    exact = a.astype(np.float32) @ b.astype(np.float32)
    np.testing.assert_array_equal(c, exact)
    expected = ["idx () before: 128", "idx () start: 0", "idx () start: 64", *(f"idx ({i:2d}) sums: {v:f}" for i, v in enumerate(exact.sum(1)))]
    assert Counter(capsys.readouterr().out.splitlines()) == Counter(f"pid (0, 0, 0) {line}" for line in expected)
