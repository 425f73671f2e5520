"""libdevice's rarer functions on the cpu, against Python's integers and mpmath."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest

import tilewright as triton
import tilewright.language as tl
from tilewright.dialects.errors import CompilationError
from tilewright.language.extra import libdevice


@triton.jit
def bits_kernel(x, y, s, out, N: tl.constexpr):
    at = tl.arange(0, N)
    v = tl.load(x + at)
    tl.store(out + at, libdevice.clz(v))
    tl.store(out + N + at, libdevice.popc(v))
    tl.store(out + 2 * N + at, libdevice.ffs(v))
    tl.store(out + 3 * N + at, libdevice.brev(v).to(tl.int64))
    tl.store(out + 4 * N + at, libdevice.byte_perm(v.to(tl.int32), tl.load(y + at), tl.load(s + at)))


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_bits(dtype):
    rng, info = np.random.default_rng(0), np.iinfo(dtype)
    x = rng.integers(info.min, info.max, 32, dtype=dtype)
    x[:4] = [0, 1, -1, info.min]
    y, s = (rng.integers(-(2**31), 2**31, 32).astype("int32") for _ in range(2))
    out = np.zeros((5, 32), "int64")
    bits_kernel[(1,)](x, y, s, out, N=32)
    bits = info.bits
    for i, v in enumerate(int(v) & ((1 << bits) - 1) for v in x):
        text = format(v, f"0{bits}b")
        assert out[0, i] == bits - v.bit_length() and out[1, i] == text.count("1")
        assert out[2, i] == (len(text) - text.rindex("1") if v else 0)
        assert int(out[3, i]) & ((1 << bits) - 1) == int(text[::-1], 2)
        both = (v & 0xFFFFFFFF) | (int(y[i]) & 0xFFFFFFFF) << 32
        wanted = sum((both >> 8 * (int(s[i]) >> 4 * k & 7) & 255) << 8 * k for k in range(4))
        assert int(out[4, i]) & 0xFFFFFFFF == wanted


@triton.jit
def floats_kernel(x, y, n, out, N: tl.constexpr):
    at = tl.arange(0, N)
    v, w = tl.load(x + at), tl.load(y + at)
    tl.store(out + at, libdevice.sinpi(v))
    tl.store(out + N + at, libdevice.cospi(v))
    tl.store(out + 2 * N + at, libdevice.rcbrt(v))
    tl.store(out + 3 * N + at, libdevice.norm3d(v, w, v))
    tl.store(out + 4 * N + at, libdevice.rhypot(v, w))
    tl.store(out + 5 * N + at, libdevice.normcdf(v))
    tl.store(out + 6 * N + at, libdevice.ldexp(v, tl.load(n + at)))
    tl.store(out + 7 * N + at, libdevice.ilogb(v).to(x.dtype.element_ty))
    tl.store(out + 8 * N + at, libdevice.llrint(v).to(x.dtype.element_ty))
    tl.store(out + 9 * N + at, libdevice.llround(v).to(x.dtype.element_ty))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_floats(dtype):
    rng = np.random.default_rng(0)
    x, y = (rng.standard_normal(64).astype(dtype) * 5 for _ in range(2))
    x[:8] = [1, 2, 0.5, -1.5, 2.5, -3.5, 1e-3, 1000.25]
    n = rng.integers(-60, 60, 64).astype("int32")
    out = np.full((10, 64), np.nan, dtype)
    floats_kernel[(1,)](x, y, n, out, N=64)
    with mpmath.workprec(200):
        for i in range(64):
            v, w = mpmath.mpf(float(x[i])), mpmath.mpf(float(y[i]))
            cube = mpmath.sign(v) / mpmath.cbrt(abs(v))
            for row, exact in enumerate((mpmath.sinpi(v), mpmath.cospi(v), cube, mpmath.sqrt(2 * v * v + w * w), 1 / mpmath.hypot(v, w),
                                         mpmath.ncdf(v), mpmath.ldexp(v, int(n[i])), mpmath.floor(mpmath.log(abs(v), 2)))):
                spacing = float(np.spacing(np.abs(np.dtype(dtype).type(float(exact)))))
                assert abs(mpmath.mpf(float(out[row, i])) - exact) <= (0.51 if dtype == "float32" else 3) * spacing, (row, x[i], out[row, i])
    assert np.array_equal(out[8], np.rint(x)) and np.array_equal(out[9], np.copysign(np.floor(np.abs(x) + 0.5), x))


@triton.jit
def missing_kernel(x):
    tl.store(x, tl.extern_elementwise("", "", [tl.load(x)], {(tl.float32,): ("no_such", tl.float32)}, is_pure=True))


def test_what_is_missing_says_so():
    with pytest.raises(CompilationError, match="no_such"):
        missing_kernel[(1,)](np.ones(1, "float32"))
