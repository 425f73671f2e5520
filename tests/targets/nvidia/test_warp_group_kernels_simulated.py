"""Kernels whose dots are given to warp groups, from @jit to the simulator of sm_90a, against numpy.

The simulator raises on races, on reads that no fence and barrier precede, and on registers touched while a product runs.
"""

import numpy as np
import pytest

import tilewright as triton
import tilewright.language as tl

torch = pytest.importorskip("torch")  # numpy has no bf16 and fp8


@pytest.fixture(autouse=True)
def warp_groups(monkeypatch):
    monkeypatch.setenv("TILEWRIGHT_TARGET", "nvidia:sm_90a:sim")


@triton.jit
def product(a_ptr, b_ptr, o_ptr, steps, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, TA: tl.constexpr, TB: tl.constexpr,
            COLUMNS_A: tl.constexpr, COLUMNS_B: tl.constexpr, OUT: tl.constexpr, IMPRECISE: tl.constexpr, CAST: tl.constexpr):
    """o = sum over blocks along k of a @ b; TA, TB: the operand goes through tl.trans; COLUMNS_*: it is stored by columns."""
    m, n, k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    total = K * steps
    acc = tl.zeros((M, N), OUT)
    for i in range(steps):
        at = i * K + k
        if TA:
            a = tl.trans(tl.load(a_ptr + (at[:, None] + m[None, :] * total if COLUMNS_A else at[:, None] * M + m[None, :])))
        else:
            a = tl.load(a_ptr + (m[:, None] + at[None, :] * M if COLUMNS_A else m[:, None] * total + at[None, :]))
        if TB:
            b = tl.trans(tl.load(b_ptr + (n[:, None] + at[None, :] * N if COLUMNS_B else n[:, None] * total + at[None, :])))
        else:
            b = tl.load(b_ptr + (at[:, None] + n[None, :] * total if COLUMNS_B else at[:, None] * N + n[None, :]))
        if CAST is not None:
            a, b = a.to(CAST), b.to(CAST)
        acc = tl.dot(a, b, acc, out_dtype=OUT, max_num_imprecise_acc=IMPRECISE)
    tl.store(o_ptr + m[:, None] * N + n[None, :], acc)


TYPES = {"fp16": torch.float16, "bf16": torch.bfloat16, "tf32": torch.float32, "e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2,
         "int8": torch.int8}


def small(rng, shape, type_):
    """Values whose products and sums are exact in every type."""
    return torch.from_numpy(rng.integers(-3, 4, shape)).to(TYPES.get(type_, type_))


def turned(x, by_columns):
    """What lies in memory: rows, or columns."""
    return x.t().contiguous() if by_columns else x


def exact(x):
    return x.to(torch.float64).numpy()


@pytest.mark.parametrize("m, n, k, warps, type_, layout", [
    # layout: transposed a, b; a, b stored by columns
    (64, 32, 32, 4, "fp16", (0, 0, 0, 0)), (64, 64, 64, 4, "bf16", (1, 1, 0, 0)), (128, 16, 32, 4, "fp16", (0, 0, 1, 1)),
    (64, 64, 32, 8, "fp16", (0, 0, 0, 0)), (64, 64, 32, 8, "fp16", (0, 1, 1, 0)), (128, 32, 16, 8, "bf16", (1, 0, 1, 1)),
    (64, 8, 16, 4, "fp16", (0, 0, 0, 0)), (256, 16, 16, 8, "fp16", (0, 0, 0, 1)), (64, 128, 64, 16, "fp16", (0, 0, 0, 0)),
    (64, 16, 32, 4, "tf32", (0, 0, 0, 0)), (64, 32, 16, 4, "tf32", (0, 0, 1, 1)), (64, 16, 64, 4, "int8", (0, 0, 0, 0)),
    (64, 32, 32, 4, "int8", (1, 1, 0, 0)), (64, 16, 64, 4, "e4m3", (0, 0, 0, 1)), (64, 16, 64, 4, "e5m2", (0, 0, 1, 0)),
])
def test_products(m, n, k, warps, type_, layout):
    rng = np.random.default_rng(0)
    steps = 3
    ta, tb, ca, cb = layout
    a, b = small(rng, (m, k * steps), type_), small(rng, (k * steps, n), type_)
    integer = type_ == "int8"
    o = torch.zeros((m, n), dtype=torch.int32 if integer else torch.float32)
    kernel = product[(1,)](turned(a, ta ^ ca), turned(b, tb ^ cb), o, steps, M=m, N=n, K=k, TA=ta, TB=tb, COLUMNS_A=ca, COLUMNS_B=cb,
                           OUT=tl.int32 if integer else tl.float32, IMPRECISE=None, CAST=None, num_warps=warps, num_stages=3)
    np.testing.assert_array_equal(exact(o), exact(a) @ exact(b))
    assert "wgmma.mma_async" in kernel.asm["ptx"]


@pytest.mark.parametrize("imprecise, products", [(None, 1), (64, 1), (32, 2), (0, 2)])
def test_imprecise_sums(imprecise, products):
    rng = np.random.default_rng(1)
    a, b = small(rng, (64, 192), "e4m3"), small(rng, (192, 16), "e4m3")
    o = torch.zeros((64, 16))
    kernel = product[(1,)](a, b, o, 3, M=64, N=16, K=64, TA=0, TB=0, COLUMNS_A=0, COLUMNS_B=0, OUT=tl.float32, IMPRECISE=imprecise,
                           CAST=None, num_warps=4)
    np.testing.assert_array_equal(exact(o), exact(a) @ exact(b))
    assert kernel.asm["ttgir"].count('"ttng.warp_group_dot"') == products


def test_half_precision_sums():
    rng = np.random.default_rng(2)
    a, b = small(rng, (64, 96), "fp16"), small(rng, (96, 16), "fp16")
    o = torch.zeros((64, 16), dtype=torch.float16)
    product[(1,)](a, b, o, 3, M=64, N=16, K=32, TA=0, TB=0, COLUMNS_A=0, COLUMNS_B=0, OUT=tl.float16, IMPRECISE=None, CAST=None, num_warps=4)
    np.testing.assert_array_equal(exact(o), exact(a) @ exact(b))


@pytest.mark.parametrize("layout", [(0, 0), (1, 1)])
def test_operands_that_are_cast(layout):
    """A is read from narrow shared memory into registers, B is written to shared memory again."""
    rng = np.random.default_rng(3)
    a, b = small(rng, (64, 96), "int8"), small(rng, (96, 32), "int8")
    o = torch.zeros((64, 32))
    product[(1,)](turned(a, layout[0]), turned(b, layout[1]), o, 3, M=64, N=32, K=32,
                  TA=layout[0], TB=layout[1], COLUMNS_A=0, COLUMNS_B=0, OUT=tl.float32, IMPRECISE=None, CAST=tl.float16, num_warps=4)
    np.testing.assert_array_equal(exact(o), exact(a) @ exact(b))


@triton.jit
def gradients(q_ptr, k_ptr, v_ptr, g_ptr, dq_ptr, dk_ptr, dv_ptr, steps, M: tl.constexpr, N: tl.constexpr, D: tl.constexpr):
    """Five products an iteration that feed each other, as attention's gradients do (without the softmax)."""
    n, d = tl.arange(0, N), tl.arange(0, D)
    k = tl.load(k_ptr + n[:, None] * D + d[None, :])
    v = tl.load(v_ptr + n[:, None] * D + d[None, :])
    dk, dv = tl.zeros((N, D), tl.float32), tl.zeros((N, D), tl.float32)
    for i in range(steps):
        m = i * M + tl.arange(0, M)
        at = m[:, None] * D + d[None, :]
        q, g = tl.load(q_ptr + at), tl.load(g_ptr + at)
        s = tl.dot(k, tl.trans(q))
        p = tl.maximum(s, 0.0)
        dv = tl.dot(p.to(tl.float16), g, dv)
        dp = tl.dot(v, tl.trans(g))
        ds = tl.where(s > 0.0, dp, 0.0).to(tl.float16)
        dk += tl.dot(ds, q)
        dq = tl.dot(tl.trans(ds), k)
        tl.store(dq_ptr + at, dq)
    tl.store(dk_ptr + n[:, None] * D + d[None, :], dk)
    tl.store(dv_ptr + n[:, None] * D + d[None, :], dv)


@pytest.mark.parametrize("m, n, d, warps, stages", [(64, 64, 32, 4, 2), (64, 128, 32, 8, 1), (64, 64, 64, 8, 3)])
def test_products_that_feed_each_other(m, n, d, warps, stages):
    rng = np.random.default_rng(4)
    steps = 2
    q, g = (rng.integers(-1, 2, (m * steps, d)).astype(np.float16) for _ in range(2))
    k, v = (rng.integers(-1, 2, (n, d)).astype(np.float16) for _ in range(2))
    dq, dk, dv = np.zeros((m * steps, d), np.float32), np.zeros((n, d), np.float32), np.zeros((n, d), np.float32)
    kernel = gradients[(1,)](q, k, v, g, dq, dk, dv, steps, M=m, N=n, D=d, num_warps=warps, num_stages=stages)
    qq, gg, kk, vv = (x.astype(np.float64) for x in (q, g, k, v))
    s = kk @ qq.T
    ds = np.where(s > 0, vv @ gg.T, 0)
    np.testing.assert_array_equal(dv, np.maximum(s, 0) @ gg)
    np.testing.assert_array_equal(dk, ds @ qq)
    np.testing.assert_array_equal(dq, ds.T @ kk)
    assert kernel.asm["ttgir"].count('"ttng.warp_group_dot"') == 5


@triton.jit
def two_sums(x_ptr, w_ptr, v_ptr, o_ptr, steps, N: tl.constexpr, K: tl.constexpr):
    """Two accumulators in one loop, and a branch in it: silu-like gates."""
    m, n, k = tl.arange(0, 64), tl.arange(0, N), tl.arange(0, K)
    left, right = tl.zeros((64, N), tl.float32), tl.zeros((64, N), tl.float32)
    for i in range(steps):
        at = i * K + k
        x = tl.load(x_ptr + m[:, None] * (K * steps) + at[None, :])
        left = tl.dot(x, tl.load(w_ptr + at[:, None] * N + n[None, :]), left)
        right = tl.dot(x, tl.load(v_ptr + at[:, None] * N + n[None, :]), right)
        if i == 1:
            left = left * 2.0
    tl.store(o_ptr + m[:, None] * N + n[None, :], left * right)


@pytest.mark.parametrize("stages", [1, 3])
def test_two_sums_in_one_loop(stages):
    rng = np.random.default_rng(5)
    n, k, steps = 32, 32, 4
    x, w, v = (small(rng, shape, "fp16") for shape in ((64, k * steps), (k * steps, n), (k * steps, n)))
    o = torch.zeros((64, n))
    two_sums[(1,)](x, w, v, o, steps, N=n, K=k, num_warps=4, num_stages=stages)
    xx, ww, vv = map(exact, (x, w, v))
    half = 2 * k
    np.testing.assert_array_equal(exact(o), (2 * xx[:, :half] @ ww[:half] + xx[:, half:] @ ww[half:]) * (xx @ vv))


@triton.jit
def nested(x_ptr, w_ptr, o_ptr, tiles, steps, N: tl.constexpr, K: tl.constexpr):
    """A persistent loop around the sum: buffers are filled anew in every tile."""
    m, n, k = tl.arange(0, 64), tl.arange(0, N), tl.arange(0, K)
    for t in range(tiles):
        acc = tl.zeros((64, N), tl.float32)
        for i in range(steps):
            at = i * K + k
            x = tl.load(x_ptr + (t * 64 + m)[:, None] * (K * steps) + at[None, :])
            acc = tl.dot(x, tl.load(w_ptr + at[:, None] * N + n[None, :]), acc)
        tl.store(o_ptr + (t * 64 + m)[:, None] * N + n[None, :], acc)


@pytest.mark.parametrize("steps", [0, 1, 3])
def test_nested_loops(steps):
    rng = np.random.default_rng(6)
    n, k, tiles = 16, 32, 2
    x, w = small(rng, (64 * tiles, k * max(1, steps)), "fp16"), small(rng, (k * max(1, steps), n), "fp16")
    o = torch.full((64 * tiles, n), float("nan"))
    nested[(1,)](x, w, o, tiles, steps, N=n, K=k, num_warps=4, num_stages=3)
    np.testing.assert_array_equal(exact(o), exact(x) @ exact(w) * (steps > 0))


@triton.jit
def sums_of_all_kinds(x_ptr, w_ptr, o_ptr, p_ptr, steps, N: tl.constexpr, K: tl.constexpr, KIND: tl.constexpr):
    """A sum with two products an iteration; one that is read in the loop; one in a branch; one in a while loop."""
    m, n, k = tl.arange(0, 64), tl.arange(0, N), tl.arange(0, K)
    acc = tl.zeros((64, N), tl.float32)
    if KIND == "while":
        i = 0
        while i < steps:
            at = i * K + k
            acc = tl.dot(tl.load(x_ptr + m[:, None] * (K * steps) + at[None, :]), tl.load(w_ptr + at[:, None] * N + n[None, :]), acc)
            i += 1
    else:
        for i in range(steps):
            at = i * K + k
            x, w = tl.load(x_ptr + m[:, None] * (K * steps) + at[None, :]), tl.load(w_ptr + at[:, None] * N + n[None, :])
            if KIND == "branch":
                if i % 2 == 0:
                    acc = tl.dot(x, w, acc)
                else:
                    acc = tl.dot(x, w, acc) + 1.0
            else:
                acc = tl.dot(x, w, acc)
            if KIND == "twice":
                acc = tl.dot(x, w, acc)
            if KIND == "read":
                tl.store(p_ptr + (i * 64 + m)[:, None] * N + n[None, :], acc)
    tl.store(o_ptr + m[:, None] * N + n[None, :], acc)


@pytest.mark.parametrize("stages", [1, 3])
@pytest.mark.parametrize("kind", ["twice", "read", "branch", "while"])
def test_sums_of_all_kinds(kind, stages):
    rng = np.random.default_rng(7)
    n, k, steps = 16, 32, 4
    x, w = small(rng, (64, k * steps), "fp16"), small(rng, (k * steps, n), "fp16")
    o, p = torch.zeros((64, n)), torch.zeros((64 * steps, n))
    sums_of_all_kinds[(1,)](x, w, o, p, steps, N=n, K=k, KIND=kind, num_warps=4, num_stages=stages)
    parts = np.stack([exact(x)[:, i * k:(i + 1) * k] @ exact(w)[i * k:(i + 1) * k] for i in range(steps)])
    total = parts.sum(0)
    np.testing.assert_array_equal(exact(o), total * 2 if kind == "twice" else total + 2.0 if kind == "branch" else total)
    if kind == "read":
        np.testing.assert_array_equal(exact(p).reshape(steps, 64, n), parts.cumsum(0))
