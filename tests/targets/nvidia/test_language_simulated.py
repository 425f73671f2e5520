"""Language features lowered for NVIDIA, run in the simulator, against numpy."""

import numpy as np
import pytest

import tilewright
import tilewright.language as tl


@pytest.fixture(autouse=True)
def simulated(monkeypatch):
    monkeypatch.setenv("TILEWRIGHT_TARGET", "nvidia:sm_90a:sim")


def floats(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


@tilewright.jit
def reduce_kernel(x, row_max, col_sum, row_arg, col_arg, M: tl.constexpr, N: tl.constexpr):
    m, n = tl.arange(0, M), tl.arange(0, N)
    v = tl.load(x + m[:, None] * N + n[None, :])
    tl.store(row_max + m, tl.max(v, 1))
    tl.store(col_sum + n, tl.sum(v, 0))
    tl.store(row_arg + m, tl.argmax(v, 1))
    tl.store(col_arg + n, tl.argmin(v, 0))


@pytest.mark.parametrize("m, n, warps", [(16, 64, 4), (1, 32, 1), (64, 2, 4), (128, 128, 8), (4, 4, 2)])
def test_reductions(m, n, warps):
    x = floats(m, n)
    x[0, n - 1] = x[0].max()  # a tie goes to the lower index
    row_max, col_sum = np.full(m, np.nan, np.float32), np.full(n, np.nan, np.float32)
    row_arg, col_arg = np.full(m, -1, np.int32), np.full(n, -1, np.int32)
    reduce_kernel[(1,)](x, row_max, col_sum, row_arg, col_arg, m, n, num_warps=warps)
    np.testing.assert_array_equal(row_max, x.max(1))
    np.testing.assert_allclose(col_sum, x.astype(np.float64).sum(0), rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(row_arg, x.argmax(1))
    np.testing.assert_array_equal(col_arg, x.argmin(0))


@tilewright.jit
def scan_kernel(x, rows, columns, M: tl.constexpr, N: tl.constexpr):
    p = tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :]
    v = tl.load(x + p)
    tl.store(rows + p, tl.cumsum(v, 1))
    tl.store(columns + p, tl.cumsum(v, 0, reverse=True))


@pytest.mark.parametrize("m, n, warps", [(16, 64, 4), (1, 32, 1), (64, 2, 4)])
def test_scans(m, n, warps):
    x = floats(m, n)
    rows, columns = np.full_like(x, np.nan), np.full_like(x, np.nan)
    scan_kernel[(1,)](x, rows, columns, m, n, num_warps=warps)
    np.testing.assert_allclose(rows, x.cumsum(1), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(columns, x[::-1].cumsum(0)[::-1], rtol=1e-4, atol=1e-5)


@tilewright.jit
def transpose_kernel(x, out, M: tl.constexpr, N: tl.constexpr):
    m, n = tl.arange(0, M), tl.arange(0, N)
    v = tl.load(x + m[:, None] * N + n[None, :])
    tl.store(out + n[:, None] * M + m[None, :], tl.trans(v))


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int8, np.int64])
def test_transpose(dtype):
    x = (floats(32, 64) * 10).astype(dtype)
    out = np.zeros((64, 32), dtype)
    transpose_kernel[(1,)](x, out, 32, 64)
    np.testing.assert_array_equal(out, x.T)


@tilewright.jit
def dot_of_transposed_kernel(a, b, out, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    m, n, k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    x = tl.load(a + k[:, None] * M + m[None, :])
    y = tl.load(b + n[:, None] * K + k[None, :])
    tl.store(out + m[:, None] * N + n[None, :], tl.dot(tl.trans(x), tl.trans(y)))


@pytest.mark.parametrize("dtype, bound, shape", [
    (np.float16, 1e-3, (16, 16, 16)), (np.float16, 1e-3, (128, 128, 32)), (np.float32, 3e-3, (64, 32, 64)),
    (np.float32, 3e-3, (128, 128, 32)), (np.float64, 1e-12, (16, 16, 16)), (np.float64, 1e-12, (32, 64, 16))])
def test_dot_of_transposed(dtype, bound, shape):
    m, n, k = shape
    a, b = floats(k, m).astype(dtype), floats(n, k, seed=1).astype(dtype)
    out = np.full((m, n), np.nan, np.float64 if dtype is np.float64 else np.float32)
    dot_of_transposed_kernel[(1,)](a, b, out, m, n, k)
    expected = a.T.astype(np.float64) @ b.T.astype(np.float64)
    assert np.abs(out - expected).max() < bound * np.abs(expected).max()


@tilewright.jit
def batched_kernel(a, b, out, B: tl.constexpr, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    batch, m, n, k = tl.arange(0, B)[:, None, None], tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    x = tl.load(a + batch * M * K + m[None, :, None] * K + k[None, None, :])
    y = tl.load(b + batch * K * N + k[None, :, None] * N + n[None, None, :])
    tl.store(out + batch * M * N + m[None, :, None] * N + n[None, None, :], tl.dot(x, y))


@pytest.mark.parametrize("b, m, n, k", [(4, 32, 32, 16), (2, 16, 16, 32)])
def test_batched_dot(b, m, n, k):
    x, y = floats(b, m, k).astype(np.float16), floats(b, k, n, seed=1).astype(np.float16)
    out = np.full((b, m, n), np.nan, np.float32)
    batched_kernel[(1,)](x, y, out, b, m, n, k)
    np.testing.assert_allclose(out, x.astype(np.float64) @ y.astype(np.float64), rtol=1e-3, atol=1e-3)


@tilewright.jit
def fp8_dot_kernel(a, b, out, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, A: tl.constexpr, B: tl.constexpr):
    m, n, k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    x = tl.load(a + m[:, None] * K + k[None, :]).to(A)
    y = tl.load(b + n[None, :] * K + k[:, None]).to(B)
    tl.store(out + m[:, None] * N + n[None, :], tl.dot(x, y))


@pytest.mark.parametrize("a", [tl.float8e4nv, tl.float8e5])
@pytest.mark.parametrize("b", [tl.float8e4nv, tl.float8e5])
def test_fp8_dot(a, b):
    rng = np.random.default_rng(2)
    x, y = (rng.choice([0, 1, -1, 2, -0.5, 4, 0.25], shape).astype(np.float32) for shape in ((32, 64), (16, 64)))
    out = np.full((32, 16), np.nan, np.float32)
    kernel = fp8_dot_kernel[(1,)](x, y, out, 32, 16, 64, a, b)
    np.testing.assert_array_equal(out, x @ y.T)
    assert f"mma.sync.aligned.m16n8k32.row.col.f32.{'e4m3' if a == tl.float8e4nv else 'e5m2'}" in kernel.asm["ptx"]


@tilewright.jit
def control_flow_kernel(x, out, n):
    i, total = 0, 0.0
    while i < n:
        v = tl.load(x + i)
        if v > 0:
            total += v
        else:
            total -= 1.0
        i += 1
    tl.store(out, total)


def test_control_flow():
    x, out = floats(20), np.full(1, np.nan, np.float32)
    control_flow_kernel[(1,)](x, out, 20)
    np.testing.assert_allclose(out[0], np.where(x > 0, x, -1).sum(), rtol=1e-5)


@tilewright.jit
def rearrange_kernel(x, y, index, ordered, joined, gathered, counts, N: tl.constexpr):
    i = tl.arange(0, N)
    v = tl.load(x + i)
    tl.store(ordered + i, tl.sort(v))
    tl.store(joined + tl.arange(0, 2 * N), tl.reshape(tl.join(v, tl.load(y + i)), (2 * N,)))
    tl.store(gathered + i, tl.gather(v, tl.load(index + i), axis=0))
    tl.store(counts + tl.arange(0, 16), tl.histogram(tl.load(index + i) // (N // 16), 16))


@pytest.mark.parametrize("n, warps", [(128, 4), (32, 1), (256, 2)])
def test_sort_join_gather_histogram(n, warps):
    x, y = floats(n), floats(n, seed=1)
    index = np.random.default_rng(3).integers(0, n, n).astype(np.int32)
    ordered, gathered, joined = np.zeros(n, np.float32), np.zeros(n, np.float32), np.zeros((n, 2), np.float32)
    counts = np.zeros(16, np.int32)
    rearrange_kernel[(1,)](x, y, index, ordered, joined, gathered, counts, n, num_warps=warps)
    np.testing.assert_array_equal(ordered, np.sort(x))
    np.testing.assert_array_equal(joined, np.stack([x, y], 1))
    np.testing.assert_array_equal(gathered, x[index])
    np.testing.assert_array_equal(counts, np.bincount(index // (n // 16), minlength=16))


@tilewright.jit
def atomic_kernel(x, out, old, n, N: tl.constexpr):
    i = tl.arange(0, N)
    v = tl.load(x + i, mask=i < n, other=0)
    tl.store(old + i, tl.atomic_add(out + i % 4, v, mask=i < n))


@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.float32, np.float16])
def test_atomics(dtype):
    x = np.random.default_rng(4).integers(1, 9, 64).astype(dtype)
    out, old = np.zeros(4, dtype), np.full(64, 77).astype(dtype)
    atomic_kernel[(1,)](x, out, old, 50, 64)
    expected = np.zeros(4, dtype)
    np.add.at(expected, np.arange(50) % 4, x[:50])
    np.testing.assert_array_equal(out, expected)
    assert (old[50:] == 0).all()
    # The old values of each address, in the order of its additions, are the partial sums.
    for residue in range(4):
        seen, added = old[residue:50:4], x[residue:50:4]
        order = np.argsort(seen, kind="stable")
        np.testing.assert_array_equal(seen[order], np.concatenate([[0], added[order].cumsum()[:-1]]))


@tilewright.jit
def native_math_kernel(x, out, N: tl.constexpr):
    i = tl.arange(0, N)
    v = tl.load(x + i)
    tl.store(out + i, tl.exp(v))
    tl.store(out + N + i, tl.exp2(v))
    tl.store(out + 2 * N + i, tl.sqrt(tl.abs(v)))
    tl.store(out + 3 * N + i, tl.rsqrt(tl.abs(v)))
    tl.store(out + 4 * N + i, 1.0 / v)


def test_native_math():
    x = floats(256) * 20
    out = np.full((5, 256), np.nan, np.float32)
    kernel = native_math_kernel[(1,)](x, out, 256)
    v = x.astype(np.float64)
    expected = np.stack([np.exp(v), np.exp2(v), np.sqrt(abs(v)), 1 / np.sqrt(abs(v)), 1 / v])
    np.testing.assert_allclose(out, expected, rtol=6e-6)
    np.testing.assert_allclose(out[1:], expected[1:], rtol=3e-7)
    for opcode in ("ex2.approx.ftz.f32", "sqrt.approx", "rsqrt.approx", "div.full.f32"):
        assert opcode in kernel.asm["ptx"]


@tilewright.jit
def fp8_cast_kernel(x, out, back, N: tl.constexpr, T: tl.constexpr):
    i = tl.arange(0, N)
    v = tl.load(x + i).to(T)
    tl.store(out + i, v.to(tl.uint8, bitcast=True))
    tl.store(back + i, v.to(tl.float32))
    tl.store(back + N + i, v.to(tl.bfloat16).to(tl.float32))
    tl.store(back + 2 * N + i, v.to(tl.float16).to(tl.float32))


@pytest.mark.parametrize("kind, mantissa, largest", [(tl.float8e4nv, 3, 448.0), (tl.float8e5, 2, 57344.0)])
def test_fp8_casts_natively_and_portably(monkeypatch, kind, mantissa, largest):
    rng = np.random.default_rng(5)
    x = (rng.standard_normal(1024) * 2.0 ** rng.integers(-20, 18, 1024)).astype(np.float32)
    x[:8] = [np.nan, np.inf, -np.inf, largest, largest * 1.03, 0.0, -0.0, 2.0**-9 * 1.5]
    codes, backs = [], []
    for arch in ("sm_90a", "sm_80"):
        monkeypatch.setenv("TILEWRIGHT_TARGET", f"nvidia:{arch}:sim")
        out, back = np.full(1024, 99, np.uint8), np.full((3, 1024), 99, np.float32)
        kernel = fp8_cast_kernel[(1,)](x, out, back, 1024, kind)
        assert ("cvt.rn.satfinite.e" in kernel.asm["ptx"]) == (arch == "sm_90a")
        assert np.isnan(back[:, 0]).all() and (back[:, 1] == largest).all() and (back[:, 2] == -largest).all()
        normal = np.abs(x) > 2.0**-6
        error = np.abs(back[0] - np.clip(x, -largest, largest))[normal]
        assert (error <= np.abs(x[normal]) * 2.0 ** -(mantissa + 1) + 1e-30).sum() >= normal.sum() - 3  # NaN, infinities
        codes.append(out)
        backs.append(back)
    np.testing.assert_array_equal(*backs)
    np.testing.assert_array_equal(codes[0][1:], codes[1][1:])


@tilewright.jit
def assembly_kernel(x, y, out, ASM: tl.constexpr, B: tl.constexpr):
    i = tl.arange(0, B)
    a, b = tl.load(x + i), tl.load(y + i)
    tl.store(out + i, tl.inline_asm_elementwise(ASM, "=r,r,r", [a, b], dtype=a.dtype, is_pure=True, pack=1))


@pytest.mark.parametrize("kind", ["float32", "int32", "uint32"])
@pytest.mark.parametrize("which, sign", [("max", 1), ("min", -1)])
def test_extremes_by_assembly(which, sign, kind):
    """Of a NaN and a number the number, and +0 above -0, as the PTX manual has it."""
    pairs = {"float32": [(1, 2), (np.nan, 3), (-4, np.nan), (0.0, -0.0), (-0.0, 0.0), (-np.inf, 5), (-0.0, -0.0), (6, -6)],
             "int32": [(1, 2), (-1, 1), (-(1 << 31), 0), (7, 7)] * 2, "uint32": [(1, 2), ((1 << 32) - 1, 1), (1 << 31, 0), (7, 7)] * 2}[kind]
    x, y = (np.array([p[n] for p in pairs] * 16).astype(kind) for n in (0, 1))
    out = np.zeros_like(x)
    assembly_kernel[(1,)](x, y, out, f"{which}.{ {'float32': 'f32', 'int32': 's32', 'uint32': 'u32'}[kind]} $0, $1, $2;", B=128)
    expected = [a if np.isnan(b) or (not np.isnan(a) and sign * float(a) > sign * float(b)) or (a == b and np.signbit(b) == (sign > 0)) else b for a, b in zip(x, y)]
    np.testing.assert_array_equal(out.view(np.uint32), np.array(expected, x.dtype).view(np.uint32))
