"""tt.dot: shapes around the register block, every operand type, batches, accumulators, loops that carry them."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as triton
import tilewright.language as tl


@triton.jit
def dot_kernel(a, b, c, out, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, WITH_C: tl.constexpr, OUT: tl.constexpr, PRECISION: tl.constexpr):
    m, n, k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    x = tl.load(a + m[:, None] * K + k[None, :])
    y = tl.load(b + k[:, None] * N + n[None, :])
    at = m[:, None] * N + n[None, :]
    if WITH_C:
        z = tl.dot(x, y, tl.load(c + at) * 2, input_precision=PRECISION, out_dtype=OUT)
    else:
        z = tl.dot(x, y, input_precision=PRECISION, out_dtype=OUT)
    tl.store(out + at, z)


def operands(m, n, k, dtype, seed=0):
    rng = np.random.default_rng(seed)
    if dtype == "int8":
        return (rng.integers(-128, 128, s).astype(dtype) for s in ((m, k), (k, n)))
    return (rng.standard_normal(s).astype(dtype) for s in ((m, k), (k, n)))


@pytest.mark.parametrize("m,n,k", [(16, 16, 16), (32, 16, 64), (16, 128, 32), (64, 64, 16), (128, 32, 32)])
@pytest.mark.parametrize("dtype", ["float32", "float16", "int8", "float64"])
@pytest.mark.parametrize("with_c", [False, True])
def test_dot(m, n, k, dtype, with_c):
    x, y = operands(m, n, k, dtype)
    out_type = {"int8": "int32", "float64": "float64"}.get(dtype, "float32")
    rng = np.random.default_rng(9)
    c = rng.integers(-9, 9, (m, n)).astype(out_type)
    out = np.full((m, n), 12345, out_type)
    dot_kernel[(1,)](x, y, c, out, M=m, N=n, K=k, WITH_C=with_c, OUT={"int32": tl.int32, "float64": tl.float64, "float32": tl.float32}[out_type],
                     PRECISION="ieee")
    expected = x.astype("float64") @ y.astype("float64") + (2.0 * c if with_c else 0)
    if dtype == "int8":
        assert np.array_equal(out, expected)
    else:
        assert np.linalg.norm(out - expected) / np.linalg.norm(expected) < (1e-14 if dtype == "float64" else 5e-7)


@pytest.mark.parametrize("precision", ["tf32", "tf32x3"])
def test_float32_is_computed_as_such_whatever_is_asked(precision):
    x, y = operands(32, 32, 64, "float32")
    out = np.zeros((32, 32), "float32")
    dot_kernel[(1,)](x, y, out, out, M=32, N=32, K=64, WITH_C=False, OUT=tl.float32, PRECISION=precision)
    expected = x.astype("float64") @ y.astype("float64")
    assert np.linalg.norm(out - expected) / np.linalg.norm(expected) < 5e-7


def test_half_accumulator_rounds_to_it():
    x, y = operands(32, 32, 32, "float16")
    out = np.zeros((32, 32), "float16")
    dot_kernel[(1,)](x, y, out, out, M=32, N=32, K=32, WITH_C=False, OUT=tl.float16, PRECISION="ieee")
    expected = x.astype("float64") @ y.astype("float64")
    assert np.linalg.norm(out - expected) / np.linalg.norm(expected) < 1e-3


@triton.jit
def batch_kernel(a, b, out, B: tl.constexpr, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    i, m, n, k = tl.arange(0, B)[:, None, None], tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    x = tl.load(a + i * M * K + m[None, :, None] * K + k[None, None, :])
    y = tl.load(b + i * K * N + k[None, :, None] * N + n[None, None, :])
    tl.store(out + i * M * N + m[None, :, None] * N + n[None, None, :], tl.dot(x, y, input_precision="ieee"))


def test_batches():
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((4, 16, 32)).astype("float32"), rng.standard_normal((4, 32, 16)).astype("float32")
    out = np.full((4, 16, 16), np.nan, "float32")
    batch_kernel[(1,)](x, y, out, B=4, M=16, N=16, K=32)
    assert np.allclose(out, x.astype("float64") @ y.astype("float64"), atol=1e-5)


@triton.jit
def loop_kernel(a, b, out, keep, k, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, TRANS: tl.constexpr, KEEP: tl.constexpr, SCALE: tl.constexpr):
    m, n, kk = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    pa = a + m[:, None] * k + kk[None, :]
    pb = b + n[:, None] * k + kk[None, :] if TRANS else b + kk[:, None] * N + n[None, :]
    acc = tl.zeros([M, N], tl.float32)
    last = tl.zeros([M, N], tl.float32)
    for start in range(0, k, K):
        x = tl.load(pa, mask=start + kk[None, :] < k, other=0.0)
        if TRANS:
            y = tl.trans(tl.load(pb, mask=start + kk[None, :] < k, other=0.0))
        else:
            y = tl.load(pb, mask=start + kk[:, None] < k, other=0.0)
        if KEEP:
            last = acc
        if SCALE:
            acc = acc * 0.5
        acc = tl.dot(x, y, acc, input_precision="ieee")
        pa += K
        pb += K if TRANS else K * N
    at = m[:, None] * N + n[None, :]
    tl.store(out + at, acc)
    tl.store(keep + at, last)


@pytest.mark.parametrize("trans", [False, True])
@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize("scale", [False, True])
@pytest.mark.parametrize("k", [16, 64, 71])
def test_accumulators_carried_by_loops(trans, keep, scale, k):
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((32, k)).astype("float32"), rng.standard_normal((k, 16)).astype("float32")
    out, kept = np.full((32, 16), np.nan, "float32"), np.full((32, 16), np.nan, "float32")
    loop_kernel[(1,)](x, y.T.copy() if trans else y, out, kept, k, M=32, N=16, K=16, TRANS=trans, KEEP=keep, SCALE=scale)
    acc, last = np.zeros((32, 16)), np.zeros((32, 16))
    for s in range(0, k, 16):
        last = acc
        acc = acc * (0.5 if scale else 1) + x[:, s:s + 16].astype("float64") @ y[s:s + 16].astype("float64")
    assert np.allclose(out, acc, atol=1e-4) and np.allclose(kept, last if keep else 0, atol=1e-4)


def test_the_micro_kernel_is_register_blocks_and_compiles_quickly():
    """No loop over the tile is unrolled: the code of a 128×128×64 dot stays small, and its sums stay in registers."""
    from tilewright.compiler.source import ASTSource

    src = ASTSource(dot_kernel, {"a": "*fp32", "b": "*fp32", "c": "*fp32", "out": "*fp32"},
                    {"M": 128, "N": 128, "K": 64, "WITH_C": False, "OUT": tl.float32, "PRECISION": "ieee"})
    compiled = triton.compile(src, target="cpu:x86-64-v3")
    asm = compiled.asm["asm"]
    assert asm.count("vfmadd") == 12 + 4  # 6×2 accumulators, and 2×2 for the rest of 128 rows
    assert len(asm.splitlines()) < 1000
