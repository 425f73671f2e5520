"""Loops with warp-group products at the limits of their count, whose end has a form of its own (NvidiaHooks.ends_by_count), in the simulator."""

import numpy as np
import pytest

import tilewright
import tilewright.language as tl

torch = pytest.importorskip("torch")

LOWEST, HIGHEST = -(1 << 31), (1 << 31) - 1


@tilewright.jit
def sum_of_products(a, b, c, first, end, K, START: tl.constexpr, STEP: tl.constexpr, BM: tl.constexpr, BK: tl.constexpr):
    m, k = tl.arange(0, BM), tl.arange(0, BK)
    acc = tl.zeros((BM, BM), tl.float32)
    for _ in range(first if START is None else START, end, STEP):
        acc = tl.dot(tl.load(a + m[:, None] * K + k[None, :]), tl.load(b + k[:, None] * BM + m[None, :]), acc)
        k += BK
    tl.store(c + m[:, None] * BM + m[None, :], acc)


@pytest.mark.parametrize("constant", [False, True])
@pytest.mark.parametrize("first, end, step", [
    (LOWEST, HIGHEST, 1 << 30),  # the count after the last round is the first again
    (0, HIGHEST, 1 << 30), (HIGHEST - 5, HIGHEST, 3), (0, 40, 16), (0, 0, 16), (7, 5, 16)])
def test_as_many_rounds_as_python(monkeypatch, first, end, step, constant):
    monkeypatch.setenv("TILEWRIGHT_TARGET", "nvidia:sm_90a:sim")
    rng = np.random.default_rng()
    a, b = (rng.integers(-3, 4, shape).astype(np.float16) for shape in ((64, 128), (128, 64)))
    c = torch.full((64, 64), float("nan"))
    kernel = sum_of_products[(1,)](torch.from_numpy(a), torch.from_numpy(b), c, first, end, 128, first if constant else None, step, 64, 32)
    assert "ttng.warp_group_dot" in kernel.asm["ttgir"]
    k = 32 * len(range(first, end, step))
    np.testing.assert_array_equal(c.numpy(), a[:, :k].astype(np.float32) @ b[:k].astype(np.float32))


@tilewright.jit
def two_products_a_round(a, b, c, K, BM: tl.constexpr, BK: tl.constexpr):
    m, k = tl.arange(0, BM), tl.arange(0, BK)
    acc = tl.zeros((BM, BM), tl.float32)
    for _ in range(0, K, BK):
        x, y = tl.load(a + m[:, None] * K + k[None, :]), tl.load(b + k[:, None] * BM + m[None, :])
        part = tl.dot(x, y)
        acc += part * 2
        acc = tl.dot(x, y, acc)
        k += BK
    tl.store(c + m[:, None] * BM + m[None, :], acc)


@pytest.mark.parametrize("stages", [1, 3])
def test_what_flies_in_from_the_round_before_is_read_after_a_wait_that_stands_there(monkeypatch, stages):
    """The second product stays in flight over the back edge; the wait for the first one of the next round ends both, and hands on both."""
    monkeypatch.setenv("TILEWRIGHT_TARGET", "nvidia:sm_90a:sim")
    rng = np.random.default_rng()
    a, b = (rng.integers(-3, 4, shape).astype(np.float16) for shape in ((64, 128), (128, 64)))
    c = torch.full((64, 64), float("nan"))
    kernel = two_products_a_round[(1,)](torch.from_numpy(a), torch.from_numpy(b), c, 128, 64, 32, num_stages=stages, tma=False)
    assert kernel.asm["ttgir"].count("ttng.warp_group_dot\"") >= 2
    expected = np.zeros((64, 64))
    for k in range(0, 128, 32):
        expected += 3 * (a[:, k:k + 32].astype(np.float64) @ b[k:k + 32].astype(np.float64))
    np.testing.assert_array_equal(c.numpy(), expected)
