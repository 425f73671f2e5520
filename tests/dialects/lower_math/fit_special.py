"""Fits the polynomials of ``dialects/lower_math/{gamma,bessel}.py``: Chebyshev interpolation in mpmath, in t from -1 to 1 (in (1 + t) / 2 for I0_NEAR and I1_NEAR). Not a test.

``python tests/dialects/lower_math/fit_special.py [NAME …]`` prints coefficients, lowest first, and the largest relative error found.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import mpmath as mp

mp.mp.prec = 240


def interpolate(f: Callable, degree: int) -> list:
    """Coefficients of the polynomial in t through f at the Chebyshev nodes of [-1, 1]."""
    n = degree + 1
    nodes = [mp.cos(mp.pi * (2 * i + 1) / (2 * n)) for i in range(n)]
    values = [f(t) for t in nodes]
    chebyshev = [2 * sum(v * mp.cos(mp.pi * k * (2 * i + 1) / (2 * n)) for i, v in enumerate(values)) / n for k in range(n)]
    chebyshev[0] /= 2
    rows = [[mp.mpf(1)], [mp.mpf(0), mp.mpf(1)]]
    for k in range(2, n):
        twice = [mp.mpf(0)] + [2 * c for c in rows[-1]]
        rows.append([c - (rows[-2][i] if i < len(rows[-2]) else 0) for i, c in enumerate(twice)])
    return [sum(chebyshev[k] * rows[k][i] for k in range(i, n)) for i in range(n)]


def from_zero(c: list) -> list:
    """The same polynomial in z = (1 + t) / 2: where all terms have one sign it loses nothing near z = 0."""
    out = [mp.mpf(0)] * len(c)
    for k, v in enumerate(c):
        for i in range(k + 1):
            out[i] += v * mp.binomial(k, i) * mp.mpf(2) ** i * (-1) ** (k - i)
    return out


def pair(z, p: bool):
    """P or Q / sqrt(z) of order 0 (Abramowitz & Stegun 9.2.5, 9.2.6) for z = (8 / x)^2, and of order 1: see ``pair1``."""
    return _pair(z, p, 0)


def pair1(z, p: bool):
    return _pair(z, p, 1)


def _pair(z, p: bool, order: int):
    z = mp.mpf(z)
    if z < mp.mpf(10) ** -8:  # the first terms of the asymptotic series
        mu = mp.mpf(4 * order * order)
        return 1 - (mu - 1) * (mu - 9) / 128 * z / 64 if p else ((mu - 1) / 8) / 8
    x = 8 / mp.sqrt(z)
    chi = x - (2 * order + 1) * mp.pi / 4
    j, y, scale = mp.besselj(order, x), mp.bessely(order, x), mp.sqrt(mp.pi * x / 2)
    if p:
        return scale * (j * mp.cos(chi) + y * mp.sin(chi))
    return scale * (y * mp.cos(chi) - j * mp.sin(chi)) * x / 8


def _factored(order: int, x, roots: list):
    """J of that order over what makes its first zeros."""
    value = mp.besselj(order, x)
    for r in roots:
        value /= x * x - r * r
    return value if order == 0 else value / x if x else mp.mpf(1) / 2 / mp.fprod(-r * r for r in roots)


def _y_rest(order: int, x):
    """What Y has beside (2 / pi) log(x / 2) J (and, of order 1, -2 / (pi x)); over x for order 1."""
    x = x if x else mp.mpf(10) ** -30
    rest = mp.bessely(order, x) - 2 / mp.pi * mp.log(x / 2) * mp.besselj(order, x)
    return rest if order == 0 else (rest + 2 / (mp.pi * x)) / x


def square(t):
    """x in [0, 8] of which x^2 = 32 + 32 t."""
    return mp.sqrt(32 + 32 * t)


J0 = [mp.besseljzero(0, i) for i in (1, 2)]
J1 = [mp.besseljzero(1, i) for i in (1, 2)]
FITS: dict[str, tuple[Callable, int]] = {
    # gamma.py: lgamma(x) = (x - 1) (x - 2) P on [1/2, 3/2] and [3/2, 5/2]
    "LGAMMA_LOW": (lambda t: mp.loggamma(1 + t / 2 + mp.mpf(10) ** -40) / ((t / 2 + mp.mpf(10) ** -40) * (t / 2 - 1)), 30),
    "LGAMMA_HIGH": (lambda t: mp.loggamma(2 + t / 2 + mp.mpf(10) ** -40) / ((t / 2 + mp.mpf(10) ** -40) * (t / 2 + 1)), 20),
    # log gamma(x) - ((x - 1/2) log x - x + log(2 pi) / 2), times x, for 1 / x^2 = (1 + t) / 128, x >= 8
    "STIRLING": (lambda t: _stirling(mp.sqrt(128 / (1 + t + mp.mpf(10) ** -30))), 8),
    "J0_NEAR": (lambda t: _factored(0, square(t), J0), 19), "J1_NEAR": (lambda t: _factored(1, square(t), J1), 19),
    "Y0_NEAR": (lambda t: _y_rest(0, square(t)), 22), "Y1_NEAR": (lambda t: _y_rest(1, square(t)), 22),
    "P0": (lambda t: pair((1 + t) / 2, True), 14), "Q0": (lambda t: pair((1 + t) / 2, False), 14),
    "P1": (lambda t: pair1((1 + t) / 2, True), 14), "Q1": (lambda t: pair1((1 + t) / 2, False), 14),
    # I0 and I1 / x on [0, 8] in x^2; times sqrt(x) e^-x in 8 / x beyond
    "I0_NEAR": (lambda t: mp.besseli(0, square(t)), 23), "I1_NEAR": (lambda t: mp.besseli(1, square(t) + mp.mpf(10) ** -30) / (square(t) + mp.mpf(10) ** -30), 23),
    "I0_FAR": (lambda t: _i_far(0, (1 + t) / 2), 22), "I1_FAR": (lambda t: _i_far(1, (1 + t) / 2), 22),
}


def _stirling(x):
    if x > 10**7:
        return mp.mpf(1) / 12
    return x * (mp.loggamma(x) - ((x - mp.mpf(1) / 2) * mp.log(x) - x + mp.log(2 * mp.pi) / 2))


def _i_far(order: int, w):
    if w < mp.mpf(10) ** -12:
        return 1 / mp.sqrt(2 * mp.pi)
    x = 8 / mp.mpf(w)
    return mp.besseli(order, x) * mp.sqrt(x) * mp.exp(-x)


def main() -> None:
    for name in sys.argv[1:] or FITS:
        f, degree = FITS[name]
        c = interpolate(f, degree)
        zero = name in ("I0_NEAR", "I1_NEAR")
        c = [mp.mpf(float(v)) for v in (from_zero(c) if zero else c)]
        points = [mp.mpf(2 * i + 1) / 201 - 1 for i in range(201)]
        worst = max(abs(mp.polyval(c[::-1], (1 + t) / 2 if zero else t) / f(t) - 1) for t in points)
        print(f"_{name} = ({', '.join(repr(float(v)) for v in c)})  # relative error {mp.nstr(worst, 3)}", flush=True)


if __name__ == "__main__":
    main()
