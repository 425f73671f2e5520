"""a·b + c of float arrays rounded once, which numpy has no function for."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np

Array = Any


def _two_sum(a: Array, b: Array) -> tuple[Array, Array]:
    """a + b rounded, and exactly what that lost (Knuth)."""
    s = a + b
    t = s - a
    return s, (a - (s - t)) + (b - t)


def _halves(a: Array) -> tuple[Array, Array]:
    t = a * 134217729.0  # 2^27 + 1
    high = t - (t - a)
    return high, a - high


def _two_product(a: Array, b: Array) -> tuple[Array, Array]:
    """a·b rounded, and exactly what that lost (Dekker)."""
    p = a * b
    (ah, al), (bh, bl) = _halves(a), _halves(b)
    return p, ((ah * bh - p) + ah * bl + al * bh) + al * bl


def _sum_to_odd(a: Array, b: Array) -> Array:
    """a + b, inexact sums made odd in the last place: what is rounded again, to fewer bits, is as if it had been rounded once."""
    s, lost = _two_sum(a, b)
    bits = np.ascontiguousarray(s).view(np.int64)
    # an inexact sum with an even last bit goes to its neighbour on the side of the exact one
    step = np.where((lost > 0) == (s > 0), 1, -1)
    return np.where((lost != 0) & np.isfinite(s) & (bits & 1 == 0), bits + step, bits).view(np.float64)


def fma_to_odd(a: Array, b: Array, c: Array) -> Array:
    """a·b + c of numbers of at most 24 bits, as float64 that the caller rounds to their type: the product is exact, the sum rounded to odd."""
    a, b, c = (x.astype(np.float64) for x in np.broadcast_arrays(a, b, c))
    with np.errstate(all="ignore"):
        return np.reshape(_sum_to_odd(a * b, c), a.shape)


def fma64(a: Array, b: Array, c: Array) -> Array:
    """Correctly rounded for normal numbers (Boldo & Melquiond, "Emulation of FMA and correctly rounded sums: proved algorithms using
    rounding to odd", 2008); near the ends of the range by exact fractions, a number at a time."""
    a, b, c = np.broadcast_arrays(a, b, c)
    with np.errstate(all="ignore"):
        plain = a * b + c
        # magnitudes at which every intermediate number is exact
        size, other = np.abs(a * b), np.abs(c)
        safe = np.isfinite(plain) & (size < 2.0**990) & (size > 2.0**-900) & (other < 2.0**990) & (np.abs(a) < 2.0**990) & (np.abs(b) < 2.0**990)
        high, low = _two_product(a, b)
        t, rest = _two_sum(c, low)
        v, w = _two_sum(high, t)
        out = np.where(safe, v + _sum_to_odd(rest, w), plain)
    finite = np.isfinite(a) & np.isfinite(b)
    out = np.where(finite & ~np.isfinite(c), c, out)  # the exact product is finite, however large
    rest = np.argwhere(finite & np.isfinite(c) & ~safe & (a != 0) & (b != 0))
    if len(rest):
        out = np.array(out)
        for i in map(tuple, rest):
            out[i] = _exact(float(a[i]), float(b[i]), float(c[i]))
    return out


def _exact(a: float, b: float, c: float) -> float:
    total = Fraction(a) * Fraction(b) + Fraction(c)
    if not total:
        return 0.0
    try:
        rounded = float(total)
    except OverflowError:
        rounded = math.inf
    return math.copysign(rounded, -1.0 if total < 0 else 1.0)
