"""Fits the polynomials of ``dialects/lower_math``: weighted Chebyshev interpolation refined by Remez exchange, in mpmath.

``python tests/dialects/lower_math/fit.py NAME`` prints coefficients, lowest first, and the largest weighted error. Not a test.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import mpmath as mp

mp.mp.prec = 200


def remez(f: Callable, degree: int, lo, hi, weight: Callable = lambda x: 1, basis: Callable | None = None) -> tuple[list, object]:
    """Coefficients c of sum c_i basis_i(x) that minimise max |weight(x) (p(x) - f(x))| on [lo, hi]. basis(i, x) = x**i."""
    basis = basis or (lambda i, x: x**i)
    lo, hi = mp.mpf(lo), mp.mpf(hi)
    n = degree + 2
    nodes = [(lo + hi) / 2 - (hi - lo) / 2 * mp.cos(mp.pi * (2 * i + 1) / (2 * n)) for i in range(n)]
    best = None
    for _ in range(12):
        a = mp.matrix(n, n)
        y = mp.matrix(n, 1)
        for i, x in enumerate(nodes):
            for j in range(n - 1):
                a[i, j] = weight(x) * basis(j, x)
            a[i, n - 1] = (-1) ** i
            y[i] = weight(x) * f(x)
        solution = mp.lu_solve(a, y)
        c = [solution[j] for j in range(n - 1)]

        def error(x, c=c):
            return weight(x) * (sum(cj * basis(j, x) for j, cj in enumerate(c)) - f(x))

        grid = [lo + (hi - lo) * i / (40 * n) for i in range(40 * n + 1)]
        values = [error(x) for x in grid]
        runs: list[list[int]] = [[0]]
        for i in range(1, len(values)):
            if (values[i] >= 0) == (values[i - 1] >= 0):
                runs[-1].append(i)
            else:
                runs.append([i])
        extrema = [max(r, key=lambda i: abs(values[i])) for r in runs]
        top = max(abs(v) for v in values)
        if best is None or top < best[1]:
            best = (c, top)
        if len(extrema) < n:
            break
        while len(extrema) > n:
            extrema.pop(0 if abs(values[extrema[0]]) < abs(values[extrema[-1]]) else -1)
        nodes = [grid[i] for i in extrema]
    assert best is not None
    return best


def show(name: str, f: Callable, degree: int, lo, hi, weight: Callable = lambda x: 1) -> None:
    c, error = remez(f, degree, lo, hi, weight)
    print(f"{name} on [{lo}, {hi}], degree {degree}: error {mp.nstr(error, 3)} = 2^{mp.nstr(mp.log(error, 2), 4)}")
    print("    (" + ", ".join(repr(float(x)) for x in c) + ")")


def jobs() -> dict[str, Callable]:
    half = mp.log(2) / 2
    root = mp.sqrt(2)
    return {
        # e^r = 1 + r + r^2 P(r)
        "exp": lambda d: show("exp", lambda r: (mp.expm1(r) - r) / r**2 if r else mp.mpf(1) / 2, d, -half, half, lambda r: r**2),
        "exp2": lambda d: show("exp2", lambda r: (mp.mpf(2)**r - 1) / r if r else mp.log(2), d, -0.5, 0.5, lambda r: r),
        # log(1 + f) = f - f^2 / 2 + f^3 P(f)
        "log": lambda d: show("log", lambda f: (mp.log1p(f) - f + f**2 / 2) / f**3 if f else mp.mpf(1) / 3, d, 1 / root - 1,
                              root - 1, lambda f: f**2),
        # sin x = x + x^3 P(x^2), cos x = 1 - x^2 / 2 + x^4 P(x^2)
        "sin": lambda d: show("sin", lambda z: (mp.sin(mp.sqrt(z)) / mp.sqrt(z) - 1) / z if z else mp.mpf(-1) / 6, d, 0,
                              (mp.pi / 4)**2, lambda z: z),
        "cos": lambda d: show("cos", lambda z: (mp.cos(mp.sqrt(z)) - 1 + z / 2) / z**2 if z else mp.mpf(1) / 24, d, 0,
                              (mp.pi / 4)**2, lambda z: z**2),
        # tan x = x + x^3 P(x^2) on [0, pi/4]
        "tan": lambda d: show("tan", lambda z: (mp.tan(mp.sqrt(z)) / mp.sqrt(z) - 1) / z if z else mp.mpf(1) / 3, d, 0,
                              (mp.pi / 4)**2, lambda z: z),
        # atan x = x + x^3 P(x^2) on [0, 1]
        "atan": lambda d: show("atan", lambda z: (mp.atan(mp.sqrt(z)) / mp.sqrt(z) - 1) / z if z else mp.mpf(-1) / 3, d, 0, 1,
                               lambda z: z),
        # asin x = x + x^3 P(x^2) on [0, 1/2]
        "asin": lambda d: show("asin", lambda z: (mp.asin(mp.sqrt(z)) / mp.sqrt(z) - 1) / z if z else mp.mpf(1) / 6, d, 0, 0.25,
                               lambda z: z),
        # tanh x = x + x^3 P(x^2) on [0, 0.625]
        "tanh": lambda d: show("tanh", lambda z: (mp.tanh(mp.sqrt(z)) / mp.sqrt(z) - 1) / z if z else mp.mpf(-1) / 3, d, 0,
                               mp.mpf(0.625)**2, lambda z: z),
        # sinh x = x + x^3 P(x^2) on [0, 1]
        "sinh": lambda d: show("sinh", lambda z: (mp.sinh(mp.sqrt(z)) / mp.sqrt(z) - 1) / z if z else mp.mpf(1) / 6, d, 0, 1,
                               lambda z: z),
        # asinh x = x + x^3 P(x^2) on [0, 0.5]
        "asinh": lambda d: show("asinh", lambda z: (mp.asinh(mp.sqrt(z)) / mp.sqrt(z) - 1) / z if z else mp.mpf(-1) / 6, d, 0,
                                0.25, lambda z: z),
        # atanh x = x + x^3 P(x^2) on [0, 0.5]
        "atanh": lambda d: show("atanh", lambda z: (mp.atanh(mp.sqrt(z)) / mp.sqrt(z) - 1) / z if z else mp.mpf(1) / 3, d, 0,
                                0.25, lambda z: z),
        # erf x = x + x P(x^2) on [0, 0.921875]
        "erf": lambda d: show("erf", lambda z: mp.erf(mp.sqrt(z)) / mp.sqrt(z) - 1 if z else 2 / mp.sqrt(mp.pi) - 1, d, 0,
                              mp.mpf(0.921875)**2),
        # erf x = 1 - e^(-P(t)), t = x on [0.921875, 4]: -log(erfc)
        "erf_tail": lambda d: show("erf_tail", lambda x: mp.log(mp.erfc(x)), d, 0.921875, 4.0, lambda x: mp.erfc(x)),
        # erfc x = e^(-x^2) P(t), t = (x - 2) / (x + 2), on [0.921875, 10.1]
        "erfcx": lambda d: show("erfcx", lambda t: _erfcx(2 * (1 + t) / (1 - t)), d, (0.921875 - 2) / 2.921875, 8.1 / 12.1,
                                lambda t: 1 / _erfcx(2 * (1 + t) / (1 - t))),
        # f64: atanh s = s + s^3 P(s^2) on [0, 3 - sqrt(8)], for logarithms
        "atanh_log": lambda d: show("atanh_log", lambda z: (mp.atanh(mp.sqrt(z)) / mp.sqrt(z) - 1) / z if z else mp.mpf(1) / 3, d, 0,
                                    (3 - mp.sqrt(8))**2, lambda z: z),
        # f64: atan x = x + x^3 P(x^2) on [0, tan(pi / 8)]
        "atan_eighth": lambda d: show("atan_eighth", lambda z: (mp.atan(mp.sqrt(z)) / mp.sqrt(z) - 1) / z if z else mp.mpf(-1) / 3, d,
                                      0, mp.tan(mp.pi / 8)**2, lambda z: z),
        # f64: erf x = x + x P(x^2) on [0, 1]; e^(x^2) erfc x = P((x - 2) / (x + 2)) on [1, 6] and P of 1 / x^2, over x, beyond
        "erf_double": lambda d: show("erf_double", lambda z: mp.erf(mp.sqrt(z)) / mp.sqrt(z) - 1 if z else 2 / mp.sqrt(mp.pi) - 1,
                                     d, 0, 1),
        "erfcx_double": lambda d: show("erfcx_double", lambda t: _erfcx(2 * (1 + t) / (1 - t)), d, mp.mpf(-1) / 3, mp.mpf(26) / 30,
                                       lambda t: 1 / _erfcx(2 * (1 + t) / (1 - t))),
        # f64: cbrt m = P(m) on [1/8, 1], a start for Newton's iteration
        "cbrt": lambda d: show("cbrt", lambda x: mp.cbrt(x), d, 0.125, 1, lambda x: 1 / mp.cbrt(x)),
    }


def _erfcx(x):
    return mp.exp(x * x) * mp.erfc(x)


if __name__ == "__main__":
    jobs()[sys.argv[1]](int(sys.argv[2]))
