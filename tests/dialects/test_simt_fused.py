"""The executor's float64 fma against exact rational arithmetic."""

from fractions import Fraction

import numpy as np

from tilewright.dialects.simt.fused import fma64


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
