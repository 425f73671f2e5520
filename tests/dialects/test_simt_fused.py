"""The executor's fma of every width against exact rational arithmetic."""

from fractions import Fraction

import numpy as np
import pytest

from tilewright.dialects.simt.fused import fma64
from tilewright.dialects.simt.scalar_ops import INTRINSICS, OpInfo
from tilewright.dialects.simt.values import VType, bf16_to_f32


def test_fma64_rounds_once():
    rng = np.random.default_rng()
    n = 4000
    a, b = (rng.standard_normal(n) * 2.0 ** rng.integers(-60, 60, n) for _ in range(2))
    c = rng.standard_normal(n) * 2.0 ** rng.integers(-120, 120, n)
    near = rng.integers(0, 2, n).astype(bool)
    c[near] = -(a * b)[near] * (1 + 2.0 ** -rng.integers(30, 60, near.sum()))  # cancellation
    expected = np.array([float(Fraction(x) * Fraction(y) + Fraction(z)) for x, y, z in zip(a, b, c)])
    np.testing.assert_array_equal(fma64(a, b, c), expected)
    assert (a * b + c != expected).any()  # so the test can tell


def test_special_values():
    a = np.array([np.inf, np.nan, 1e308, 0.0, -0.0, 1e-310])
    b = np.array([2.0, 1.0, 10.0, 5.0, 5.0, 0.5])
    c = np.array([-1.0, 0.0, -1e308, 0.0, -0.0, 1.0])
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(fma64(a, b, c), [np.inf, np.nan, np.inf, 0.0, -0.0, 1.0])
        assert np.signbit(fma64(a, b, c)[4])


def _nearest(exact, mantissa, lowest):
    """A rational number rounded to ``mantissa`` bits, units of at least 2^lowest, ties to even."""
    size = abs(exact)
    if not size:
        return 0.0
    exponent = size.numerator.bit_length() - size.denominator.bit_length()
    exponent -= Fraction(2) ** exponent > size
    unit = Fraction(2) ** max(exponent - mantissa + 1, lowest)
    whole = round(size / unit)  # Python's rounds halves to even
    return float(whole * unit) * (-1 if exact < 0 else 1)


@pytest.mark.parametrize("kind, bits, mantissa, lowest", [("float", 16, 11, -24), ("float", 32, 24, -149), ("bf16", 16, 8, -133)])
def test_narrow_fma_rounds_once(kind, bits, mantissa, lowest):
    """Addends beside half a place of the product, and far below it: what a sum rounded to f64 first gets wrong."""
    t = VType(kind, bits)
    f = INTRINSICS["fma"](OpInfo("llvm.intr.fma", (t, t, t), t, {}))
    rng = np.random.default_rng()
    n = 1500

    def some(low, high, n=n):
        x = (1 + rng.integers(0, 1 << (mantissa - 1), n) * 2.0 ** (1 - mantissa)) * 2.0 ** rng.integers(low, high, n) * rng.choice([1, -1], n)
        return (x.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16) if kind == "bf16" else x.astype(t.dtype)

    value = (lambda x: bf16_to_f32(x).astype(float)) if kind == "bf16" else (lambda x: x.astype(float))
    a, b = some(-3, 3), some(-3, 3)
    ties = rng.permutation(n) < n // 2  # odd factors whose product ends in half a place
    tie = (1 << mantissa // 2) + 1
    odd = {"float": t.dtype.type, "bf16": lambda x: np.uint16(np.float32(x).view(np.uint32) >> 16)}[kind]
    a[ties], b[ties] = odd(tie), odd(float((1 << (mantissa + 1)) // tie | 1))
    c = np.where(rng.random(n) < 0.5, some(lowest + mantissa, lowest + mantissa + 3), some(-10, 3))
    got = value(f(a, b, c))
    exact = [Fraction(x) * Fraction(y) + Fraction(z) for x, y, z in zip(value(a), value(b), value(c))]
    np.testing.assert_array_equal(got, [_nearest(x, mantissa, lowest) for x in exact])


def test_sums_in_float64_are_not_fma():
    """257 · 65281 = 2^24 + 1 lies in the middle between two f32; what is added is lost in float64, and decides."""
    t = VType("float", 32)
    f = INTRINSICS["fma"](OpInfo("llvm.intr.fma", (t, t, t), t, {}))
    a, b, c = (np.array([x], np.float32) for x in (257, 65281, 2.0**-40))
    assert f(a, b, c)[0] == 2**24 + 2 and f(a, b, -c)[0] == 2**24
