"""tl.dot_scaled: every pair of formats, scales of both kinds, packing, batches, accumulators and loops, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tilewright.conformance.harness import SIMULATED, compare, interpret, kernel_of, poisoned, rng_of
from tilewright.dialects.errors import ShapeMismatchError, TypeMismatchError
from tilewright.dialects.fp8 import FORMATS

_VALUES = {"e2m1": np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6]),
           "e4m3": np.array([FORMATS["fp8e4nv"].decode(c) for c in range(256)]), "e5m2": np.array([FORMATS["fp8e5"].decode(c) for c in range(256)])}

_SOURCE = """
    @triton.jit
    def kernel(p, ps, q, qs, c, o, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, FA: tl.constexpr, FB: tl.constexpr, SA: tl.constexpr, SB: tl.constexpr,
               DA: tl.constexpr, DB: tl.constexpr, PA: tl.constexpr = True, PB: tl.constexpr = True, FAST: tl.constexpr = False):
        m, n = tl.arange(0, M), tl.arange(0, N)
        am, ak = tl.arange(0, M // (1 if PA else DA)), tl.arange(0, K // (DA if PA else 1))
        bn, bk = tl.arange(0, N // (1 if PB else DB)), tl.arange(0, K // (DB if PB else 1))
        x = tl.load(p + am[:, None] * (K // (DA if PA else 1)) + ak[None, :])
        y = tl.load(q + bk[:, None] * (N // (1 if PB else DB)) + bn[None, :])
        sx = None
        sy = None
        if SA:
            sx = tl.load(ps + m[:, None] * (K // SA) + tl.arange(0, K // SA)[None, :])
        if SB:
            sy = tl.load(qs + n[:, None] * (K // SB) + tl.arange(0, K // SB)[None, :])
        z = tl.load(c + m[:, None] * N + n[None, :])
        tl.store(o + m[:, None] * N + n[None, :], tl.dot_scaled(x, sx, FA, y, sy, FB, z, lhs_k_pack=PA, rhs_k_pack=PB, fast_math=FAST))
    """


def _operand(format, shape, axis, rng, k_pack=True):
    """(as kernels take it, its numbers in float64); ``axis`` is where K is."""
    if format in ("bf16", "fp16"):
        x = torch.from_numpy(rng.integers(-40, 41, shape) / 8).to({"bf16": torch.bfloat16, "fp16": torch.float16}[format])
        return x, x.to(torch.float64).numpy()
    if format == "e2m1":
        codes = rng.integers(0, 16, shape).astype(np.uint8)
        along = axis if k_pack else -3 - axis
        low, high = (np.take(codes, range(i, codes.shape[along], 2), axis=along) for i in (0, 1))
        return torch.from_numpy(np.ascontiguousarray(low | high << 4)), _VALUES[format][codes]
    codes = rng.integers(0, 256, shape).astype(np.uint8)
    bad = ~(np.abs(_VALUES[format][codes]) <= 64)  # and NaN
    codes[bad] = 0x38
    return torch.from_numpy(codes), _VALUES[format][codes]


def _scales(group, rows, k, rng, lo=124, hi=131):
    if group == 0:
        return torch.zeros(1, dtype=torch.uint8), np.ones((rows, 1))
    if group == 16:
        codes = torch.from_numpy(rng.integers(0x20, 0x48, (rows, k // 16)).astype(np.uint8)).view(torch.float8_e4m3fn)
        return codes, codes.to(torch.float64).numpy()
    codes = rng.integers(lo, hi, (rows, k // 32)).astype(np.uint8)
    return torch.from_numpy(codes), np.ldexp(1.0, codes.astype(int) - 127)


def _case(fa, fb, sa, sb, m=16, n=16, k=64, pa=True, pb=True, num_warps=4, **more):
    rng = rng_of(fa, fb, sa, sb, m, n, k)
    (x, xv), (y, yv) = _operand(fa, (m, k), -1, rng, pa), _operand(fb, (k, n), -2, rng, pb)
    (s, sv), (r, rv) = _scales(sa, m, k, rng), _scales(sb, n, k, rng)
    c = torch.from_numpy(rng.integers(-8, 9, (m, n)).astype(np.float32))
    wide = (xv * np.repeat(sv, k // sv.shape[1], 1)) @ (yv * np.repeat(rv, k // rv.shape[1], 1).T) + c.double().numpy()
    args = {"p": x, "ps": s, "q": y, "qs": r, "c": c, "o": poisoned("fp32", (m, n)), "M": m, "N": n, "K": k, "FA": fa, "FB": fb, "SA": sa, "SB": sb,
            "DA": 2 if fa == "e2m1" else 1, "DB": 2 if fb == "e2m1" else 1, "PA": pa, "PB": pb, **more}
    # sums of fp32 in another order than float64's
    compare(_SOURCE, args, expected={"o": wide.astype(np.float32)}, tolerance={"o": {"rtol": 3e-6}}, num_warps=num_warps)


_PAIRS = [(a, b) for a in ("e2m1", "e4m3", "e5m2", "bf16", "fp16") for b in ("e2m1", "e4m3", "e5m2", "bf16", "fp16")]


@pytest.mark.parametrize("fa, fb", [p if i % 2 == 0 else pytest.param(*p, marks=pytest.mark.nightly) for i, p in enumerate(_PAIRS)])
def test_formats(fa, fb):
    number = _PAIRS.index((fa, fb))
    if SIMULATED and number % 4:
        pytest.skip("a quarter of them in the simulator")
    sa, sb = ((32, 32), (32, 0), (0, 32))[number % 3]
    _case(fa, fb, sa, sb, num_warps=(1, 4)[number % 2])


@pytest.mark.parametrize("fa, fb, sa, sb", [("e2m1", "e2m1", 16, 16), ("e4m3", "e5m2", 16, 32), ("e2m1", "fp16", 16, 0), ("e5m2", "e4m3", 0, 0), ("fp16", "fp16", 0, 0),
                                            ("fp16", "bf16", 0, 0), ("fp16", "e4m3", 32, 32), ("bf16", "bf16", 32, 32)])
def test_kinds_of_scales(fa, fb, sa, sb):
    _case(fa, fb, sa, sb)


@pytest.mark.parametrize("m, n, k, num_warps", [(32, 32, 32, 1), (16, 64, 128, 4), (64, 16, 64, 8), (4, 8, 32, 2)])
def test_shapes(m, n, k, num_warps):
    _case("e4m3", "e2m1", 32, 32, m, n, k, num_warps=num_warps)


@pytest.mark.parametrize("pa, pb", [(False, True), (True, False), (False, False)])
def test_packing_along_rows_and_columns(pa, pb):
    _case("e2m1", "e2m1", 32, 32, 32, 16, 64, pa, pb)


@pytest.mark.parametrize("fast_math", [False, True])
def test_scales_at_their_ends(fast_math):
    """NaN, 2^-127, and the largest: of a number times 2^127 that does not fit, infinity."""
    m = n = 16
    k = 64
    x = torch.full((m, k), 0x38, dtype=torch.uint8)  # 1
    x[3], x[4, :32], x[5] = 0x40, 0, 0x01  # 2; 0 times infinity; 2^-9
    s = torch.full((m, 2), 127, dtype=torch.uint8)
    s[1, 0], s[2], s[3], s[4, 0], s[6] = 255, 0, 254, 255, 100
    y = torch.full((k, n), 0x38, dtype=torch.uint8)
    r = torch.full((n, 2), 127, dtype=torch.uint8)
    r[2], r[3] = 250, 0
    args = {"p": x, "ps": s, "q": y, "qs": r, "c": torch.zeros((m, n)), "o": poisoned("fp32", (m, n)), "M": m, "N": n, "K": k, "FA": "e4m3", "FB": "e4m3", "SA": 32, "SB": 32,
            "DA": 1, "DB": 1, "FAST": fast_math}
    reference = compare(_SOURCE, args, tolerance={"o": {"rtol": 1e-6}})["o"].numpy()
    assert np.isinf(reference[1]).all() if fast_math else np.isnan(reference[1]).all()
    assert np.isnan(reference[4]).all() and np.isinf(reference[3, 0])
    np.testing.assert_allclose(reference[[0, 5, 6], 0], [64, 0.125, 64 * 2.0**-27])
    np.testing.assert_allclose(reference[6, 2], 64 * 2.0**96)


def test_batches():
    b, m, n, k = 2, 16, 16, 32
    rng = rng_of("batches")
    (x, xv), (y, yv) = _operand("e2m1", (b, m, k), -1, rng), _operand("e5m2", (b, k, n), -2, rng)
    s = rng.integers(125, 130, (b, m, 1)).astype(np.uint8)
    compare("""
        @triton.jit
        def kernel(p, s, q, o, B: tl.constexpr, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
            b, m, n, k = tl.arange(0, B)[:, None, None], tl.arange(0, M)[None, :, None], tl.arange(0, N)[None, None, :], tl.arange(0, K)
            x = tl.load(p + b * (M * K // 2) + m * (K // 2) + tl.arange(0, K // 2)[None, None, :])
            y = tl.load(q + b * (K * N) + k[None, :, None] * N + n).to(tl.float8e5, bitcast=True)
            scale = tl.load(s + b * M + m)
            tl.store(o + b * M * N + m * N + n, tl.dot_scaled(x, scale, "e2m1", y, None, "e5m2"))
        """, {"p": x, "s": torch.from_numpy(s), "q": y, "o": poisoned("fp32", (b, m, n)), "B": b, "M": m, "N": n, "K": k},
            expected={"o": ((xv * np.ldexp(1.0, s.astype(int) - 127)) @ yv).astype(np.float32)}, tolerance={"o": {"rtol": 3e-6}}, num_warps=2)


@pytest.mark.parametrize("m, n, k, num_warps", [(40, 24, 192, 4)])
def test_a_pipelined_matmul(m, n, k, num_warps):
    """The loop of an mxfp4 × mxfp8 matmul, masked at the edges."""
    rng = rng_of("matmul", m, n, k)
    (x, xv), (y, yv) = _operand("e4m3", (m, k), -1, rng), _operand("e2m1", (k, n), -2, rng)
    (s, sv), (r, rv) = _scales(32, m, k, rng), _scales(32, n, k, rng)
    wide = (xv * np.repeat(sv, 32, 1)) @ (yv * np.repeat(rv, 32, 1).T)
    compare("""
        @triton.jit
        def kernel(p, ps, q, qs, o, m, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
            i, j = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1) * BN + tl.arange(0, BN)
            acc = tl.zeros([BM, BN], tl.float32)
            for at in range(0, k, BK):
                r, h, g = at + tl.arange(0, BK), at // 2 + tl.arange(0, BK // 2), at // 32 + tl.arange(0, BK // 32)
                x = tl.load(p + i[:, None] * k + r[None, :], mask=i[:, None] < m, other=0)
                y = tl.load(q + h[:, None] * n + j[None, :], mask=j[None, :] < n, other=0)
                sx = tl.load(ps + i[:, None] * (k // 32) + g[None, :], mask=i[:, None] < m, other=127)
                sy = tl.load(qs + j[:, None] * (k // 32) + g[None, :], mask=j[:, None] < n, other=127)
                acc = tl.dot_scaled(x, sx, "e4m3", y, sy, "e2m1", acc=acc)
            tl.store(o + i[:, None] * n + j[None, :], acc, mask=(i[:, None] < m) & (j[None, :] < n))
        """, {"p": x, "ps": s, "q": y, "qs": r, "o": poisoned("fp32", (m, n)), "m": m, "n": n, "k": k, "BM": 32, "BN": 32, "BK": 64},
            (-(-m // 32), 1), expected={"o": wide.astype(np.float32)}, tolerance={"o": {"rtol": 3e-6}}, num_warps=num_warps, num_stages=2)


_REFUSED = [
    ('tl.dot_scaled(x, s, "e3m2", y, s, "e4m3")', TypeMismatchError, "lhs_format is one of 'e2m1', 'e4m3', 'e5m2', 'bf16', 'fp16'"),
    ('tl.dot_scaled(x, s, "e4m3", y, s, 3)', TypeMismatchError, "rhs_format is one of"),
    ('tl.dot_scaled(x.to(tl.int32), s, "e4m3", y, s, "e4m3")', TypeMismatchError, "lhs of format e4m3 has elements of fp8e4nv or its bits as uint8, not int32"),
    ('tl.dot_scaled(x.to(tl.float8e5, bitcast=True), s, "e2m1", y, s, "e4m3")', TypeMismatchError, "lhs of format e2m1 has elements of uint8, two numbers a byte, not fp8e5"),
    ('tl.dot_scaled(x, s, "e2m1", y, s, "e4m3")', ShapeMismatchError, "dot_scaled of 32×64 and 32×32 numbers"),
    ('tl.dot_scaled(x, s, "e4m3", y, s, "e4m3", lhs_k_pack=False)', TypeMismatchError, "lhs_k_pack=False is for e2m1"),
    ('tl.dot_scaled(x, x, "e4m3", y, s, "e4m3")', ShapeMismatchError, r"lhs_scale has shape [32, 1] ([M, K / 32]), not [32, 32]"),
    ('tl.dot_scaled(x, s, "e4m3", y, tl.trans(s), "e4m3")', ShapeMismatchError, r"rhs_scale has shape [32, 1] ([N, K / 32]), not [1, 32]"),
    ('tl.dot_scaled(x, s.to(tl.int32), "e4m3", y, s, "e4m3")', TypeMismatchError, "lhs_scale has elements of uint8 (e8m0, one for 32 numbers along K) or float8e4nv"),
    ('tl.dot_scaled(x, s, "e4m3", y, 1.0, "e4m3")', TypeMismatchError, "rhs_scale is a tensor of scales or None"),
    ('tl.dot_scaled(x.to(tl.bfloat16), s.to(tl.float8e4nv, bitcast=True), "bf16", y, s, "e4m3")', TypeMismatchError, "float8e4nv scales go with e2m1, e4m3, e5m2"),
    ('tl.dot_scaled(x, s, "e4m3", y, s, "e4m3", acc=tl.zeros([32, 32], tl.float16))', TypeMismatchError, "the accumulator of this dot_scaled is"),
    ('tl.dot_scaled(x, s, "e4m3", y, s, "e4m3", acc=tl.zeros([32, 16], tl.float32))', ShapeMismatchError, "the accumulator of this dot_scaled is"),
    ('tl.dot_scaled(x, s, "e4m3", y, s, "e4m3", out_dtype=tl.float16)', TypeMismatchError, "out_dtype of dot_scaled is tl.float32"),
    ('tl.dot_scaled(x, s, "e4m3", tl.reshape(y, [1, 32, 32]), s, "e4m3")', ShapeMismatchError, "2, or both of 3, dims"),
    ('tl.dot_scaled(tl.reshape(x, [64, 16]), s, "e4m3", tl.reshape(y, [16, 64]), None, "e4m3")', ShapeMismatchError, "32 numbers along K, of which there are only 16"),
    ('tl.dot_scaled(3.0, s, "e4m3", y, None, "e4m3")', (TypeMismatchError, ShapeMismatchError), "dot_scaled"),
]


@pytest.mark.parametrize("call, kind, text", _REFUSED)
def test_what_is_refused(call, kind, text):
    """By the same code in the interpreter and the compiler; with the line of the kernel."""
    kernel = kernel_of(f"""
        @triton.jit
        def kernel(p, o):
            i = tl.arange(0, 32)
            x = tl.load(p + i[:, None] * 32 + i[None, :])
            y, s = x, tl.load(p + i[:, None])
            z = {call}
            tl.store(o + i[:, None] * 32 + i[None, :], z)
        """)
    args = {"p": torch.zeros((32, 32), dtype=torch.uint8), "o": torch.zeros((32, 32))}
    with pytest.raises(kind) as found:
        kernel[(1,)](**args)
    assert text in str(found.value) and f"z = {call}" in str(found.value), str(found.value)
    with pytest.raises(kind):
        interpret(kernel, args)
