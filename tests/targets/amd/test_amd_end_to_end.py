"""Kernels from @jit through the whole AMD pipeline, their AMDGCN executed by the simulator (wave64 and wave32) and compared with float64: shapes of
blocks, types of dots, native functions. The examples as they are: test_simulated_examples.py.

The simulator's instructions are written from the ISA manuals (targets/amd/isa); it also checks bounds, waits, races and unwritten LDS while
it computes.
"""

import re

import attention as attention_example
import layer_norm as layer_norm_example
import matmul as matmul_example
import numpy as np
import pytest

import tilewright
import tilewright.language as tl
from tilewright.targets.amd.isa.errors import OutOfBounds
from tilewright.targets.amd.simulate_intrinsics import fp8_table

WAVE64, WAVE32 = ("gfx942", "gfx90a", "gfx950"), ("gfx1100", "gfx1201")
ARCHS = (*WAVE64, *WAVE32)
# every architecture in the slow runs, one of each kind of matrix instruction in the quick ones
QUICK = [pytest.param(a, marks=() if a in ("gfx942", "gfx1100", "gfx1201") else pytest.mark.slow) for a in ARCHS]


@pytest.fixture(params=QUICK)
def arch(request, monkeypatch):
    monkeypatch.setenv("TILEWRIGHT_TARGET", f"amd:{request.param}:sim")
    return request.param


def normal(shape, dtype, seed=None):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def error(got, expected):
    assert not np.isnan(got).any()
    return np.abs(got.astype(np.float64) - expected).max() / max(np.abs(expected).max(), 1e-30)


@pytest.mark.parametrize("shape", [(2, 33), (3, 2000)])
def test_layer_norm(arch, shape):
    x, w, b = normal(shape, np.float16), normal(shape[1], np.float16), normal(shape[1], np.float16)
    y, mean, rstd = layer_norm_example.layer_norm(x, w, b)
    assert error(y, layer_norm_example.reference(x, w, b)) < 1e-3
    wide = x.astype(np.float64)
    assert error(mean, wide.mean(axis=1)) < 1e-5 and error(rstd, 1 / np.sqrt(wide.var(axis=1) + 1e-5)) < 1e-5


@pytest.mark.parametrize("block, warps, stages", [((16, 16, 16), 1, 1), ((64, 64, 32), 4, 2),
                                                  *(pytest.param(*p, marks=pytest.mark.slow) for p in (
                                                      ((32, 128, 16), 2, 3), ((128, 64, 64), 8, 2), ((128, 128, 64), 4, 3)))])
def test_matmul_shapes_of_blocks(arch, block, warps, stages):
    m, n = min(130, 2 * block[0] - 1), min(66, 2 * block[1] - 1)
    x, w, b = normal((m, 100), np.float16), normal((100, n), np.float16), normal(n, np.float16)
    got = matmul_example.matmul(x, w, b, block=block, num_warps=warps, num_stages=stages)
    assert error(got, matmul_example.reference(x, w, b)) < 1e-3


def to_bf16(x):
    """bf16 bits of an array of float32 (to nearest even) and the values that they stand for."""
    bits = x.astype(np.float32).view(np.uint32)
    bits = ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)
    return bits, from_bf16(bits)


def from_bf16(bits):
    return (bits.astype(np.uint32) << 16).view(np.float32)


@tilewright.jit
def dot_kernel(a, b, c, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, BF16: tl.constexpr, OUT: tl.constexpr):
    m, n, k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    x = tl.load(a + m[:, None] * K + k[None, :])
    y = tl.load(b + k[:, None] + n[None, :] * K)
    if BF16:
        x = x.to(tl.bfloat16, bitcast=True)
        y = y.to(tl.bfloat16, bitcast=True)
    tl.store(c + m[:, None] * N + n[None, :], tl.dot(x, y, out_dtype=OUT))


SHAPES = [(16, 16, 16), (32, 16, 64), (64, 32, 32)]


@pytest.mark.parametrize("m, n, k", SHAPES)
def test_int8_dot(arch, m, n, k):
    rng = np.random.default_rng()
    a, b = rng.integers(-128, 128, (m, k)).astype(np.int8), rng.integers(-128, 128, (n, k)).astype(np.int8)
    c = np.full((m, n), -7, np.int32)
    dot_kernel[(1,)](a, b, c, m, n, k, False, tl.int32)
    np.testing.assert_array_equal(c, a.astype(np.int32) @ b.T.astype(np.int32))


@pytest.mark.parametrize("m, n, k", SHAPES)
def test_bf16_dot(arch, m, n, k):
    (a, av), (b, bv) = to_bf16(normal((m, k), np.float32)), to_bf16(normal((n, k), np.float32))
    c = np.full((m, n), np.nan, np.float32)
    dot_kernel[(1,)](a.view(np.int16), b.view(np.int16), c, m, n, k, True, tl.float32)
    assert error(c, av.astype(np.float64) @ bv.T.astype(np.float64)) < 1e-6


@pytest.mark.slow
@pytest.mark.parametrize("block, warps, dim", [((64, 32), 4, 64), ((128, 64), 4, 64), ((16, 16), 1, 16)])
@pytest.mark.parametrize("causal", [False, True])
def test_attention_shapes_of_blocks(arch, causal, block, warps, dim):
    q, k, v = (normal((2, 129, dim), np.float16) for _ in range(3))
    got = attention_example.attention(q, k, v, causal, block=block, num_warps=warps)
    assert error(got, attention_example.reference(q, k, v, causal)) < 2e-3


@tilewright.jit
def grid_kernel(out):
    at = tl.program_id(0) + tl.num_programs(0) * (tl.program_id(1) + tl.num_programs(1) * tl.program_id(2))
    tl.store(out + at, at + 100 * tl.num_programs(2))


def test_programs_know_the_grid(arch):
    out = np.zeros(2 * 3 * 5, np.int32)
    grid_kernel[(5, 3, 2)](out)
    np.testing.assert_array_equal(out, np.arange(30) + 200)


@tilewright.jit
def wild_kernel(x, offset, B: tl.constexpr):
    tl.store(x + tl.arange(0, B), tl.load(x + offset + tl.arange(0, B)))


def test_out_of_bounds_is_an_error(arch):
    with pytest.raises(OutOfBounds, match=r"reads 4 bytes at 0x\w+, \d+ bytes past the end of .*wild_kernel, .*test_amd_end_to_end.py:\d+, pc \d+: .*lane"):
        wild_kernel[(1,)](np.zeros(64, np.int32), 1 << 45, B=64)


@tilewright.jit
def math_kernel(x, out, N: tl.constexpr):
    i = tl.arange(0, N)
    v = tl.load(x + i)
    tl.store(out + i, tl.exp(v))
    tl.store(out + N + i, tl.exp2(v))
    tl.store(out + 2 * N + i, tl.sqrt(tl.abs(v)))
    tl.store(out + 3 * N + i, tl.rsqrt(tl.abs(v)))
    tl.store(out + 4 * N + i, 1.0 / v)
    tl.store(out + 5 * N + i, tl.log2(tl.abs(v)))
    tl.store(out + 6 * N + i, tl.log(tl.abs(v)))


def test_native_math(arch):
    x = normal(256, np.float32) * 20
    out = np.full((7, 256), np.nan, np.float32)
    kernel = math_kernel[(1,)](x, out, 256)
    v = x.astype(np.float64)
    a = np.abs(v)
    expected = np.stack([np.exp(v), np.exp2(v), np.sqrt(a), 1 / np.sqrt(a), 1 / v, np.log2(a), np.log(a)])
    np.testing.assert_allclose(out, expected, rtol=6e-6)  # exp: |x|·2^-24 for the product
    np.testing.assert_allclose(out[1:], expected[1:], rtol=3e-7)
    text = kernel.asm["amdgcn"]
    for opcode in ("v_exp_f32", "v_sqrt_f32", "v_rsq_f32", "v_rcp_f32", "v_log_f32"):
        assert opcode in text
    assert "v_div_scale" not in text


@tilewright.jit
def fp8_kernel(a, b, c, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, A: tl.constexpr, B: tl.constexpr):
    m, n, k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    x = tl.load(a + m[:, None] * K + k[None, :]).to(A, bitcast=True)
    y = tl.load(b + k[:, None] * N + n[None, :]).to(B, bitcast=True)
    tl.store(c + m[:, None] * N + n[None, :], tl.dot(x, y))


@pytest.mark.parametrize("target, kinds", [("gfx942", ("float8e4b8", "float8e5b16")), ("gfx950", ("float8e4nv", "float8e5")),
                                           ("gfx1201", ("float8e4nv", "float8e5"))])
def test_fp8_dot(monkeypatch, target, kinds):
    """All pairs of the two formats of the architecture, on matrix instructions of fp8."""
    monkeypatch.setenv("TILEWRIGHT_TARGET", f"amd:{target}:sim")
    tables = [fp8_table("fp8", target), fp8_table("bf8", target)]
    rng = np.random.default_rng()
    for i, a_kind in enumerate(kinds):
        for j, b_kind in enumerate(kinds):
            a, b = (rng.choice(np.flatnonzero(np.abs(t) < 16), s).astype(np.uint8) for t, s in ((tables[i], (32, 64)), (tables[j], (64, 16))))
            c = np.full((32, 16), np.nan, np.float32)
            kernel = fp8_kernel[(1,)](a, b, c, 32, 16, 64, getattr(tl, a_kind), getattr(tl, b_kind))
            assert error(c, tables[i][a] @ tables[j][b]) < 1e-6
            names = ("fp8", "bf8")[i], ("fp8", "bf8")[j]
            assert re.search(rf"v_(?:mfma|wmma)_f32_\d+x\d+x\d+_(?:{names[0]}_{names[1]}|{names[1]}_{names[0]})\b", kernel.asm["amdgcn"])


@tilewright.jit
def roots_kernel(x, out, N: tl.constexpr):
    i = tl.arange(0, N)
    v = tl.load(x + i)
    tl.store(out + i, tl.sqrt(v))
    tl.store(out + N + i, tl.rsqrt(v))


def test_roots_of_subnormals(arch):
    """v_sqrt_f32 and v_rsq_f32 take them for 0."""
    x = np.concatenate([np.geomspace(2.0**-149, 2.0**-120, 57), [2.0**-126, np.nextafter(np.float32(2.0**-126), np.float32(0)), 0.0, -0.0, np.inf, 1.0, 4.0]]).astype(np.float32)
    out = np.full((2, 64), np.nan, np.float32)
    roots_kernel[(1,)](x, out, 64)
    with np.errstate(divide="ignore"):
        expected = np.stack([np.sqrt(x.astype(np.float64)), 1 / np.sqrt(x.astype(np.float64))])
    np.testing.assert_allclose(out, expected, rtol=3e-7)
    assert np.signbit(out[0, 60]) and not np.signbit(out[0, 59])
