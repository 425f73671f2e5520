"""The interpreter's libdevice functions that numpy and math have not: by definition and series in decimal arithmetic, slow and sure.

Independent of dialects/lower_math, which is compared with it. References are sections of Abramowitz & Stegun.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from decimal import Decimal, localcontext
from typing import Any

import numpy as np

_EULER = Decimal("0.57721566490153286060651209008240243104215933593992359880576723488486772677766467")
_PI = Decimal("3.14159265358979323846264338327950288419716939937510582097494459230781640628620899862803482534")
_SERIES_END = 40.0  # up to here the power series, with the digits that their alternating terms take away


def _series(x: float, sign: int, terms: Callable[[int, Decimal], Decimal]) -> Decimal:
    """Σ terms(k, (sign x² / 4)^k) until nothing is added."""
    quarter = Decimal(x) * Decimal(x) / 4 * sign
    total, power, k = Decimal(0), Decimal(1), 0
    while True:
        term = terms(k, power)
        total += term
        k += 1
        power *= quarter
        if k > 8 and abs(term) <= abs(total) * Decimal("1e-45") + Decimal("1e-60"):
            return total


def _bessel(x: float, order: int, sign: int) -> float:
    """J (sign -1, 9.1.10) or I (sign 1, 9.6.10) of order 0 or 1 for |x| <= 40."""
    with localcontext() as context:
        context.prec = 90
        total = _series(x, sign, lambda k, power: power / (math.factorial(k) * math.factorial(k + order)))
        return float(total * (Decimal(x) / 2) ** order if order else total)


def _second(x: float, order: int) -> float:
    """Y of order 0 or 1 for 0 < x <= 40 (9.1.11)."""
    with localcontext() as context:
        context.prec = 90
        d = Decimal(x)
        harmonic = lambda k: sum((Decimal(1) / i for i in range(1, k + 1)), Decimal(0))  # noqa: E731
        j = _series(x, -1, lambda k, power: power / (math.factorial(k) * math.factorial(k + order))) * (d / 2) ** order if order else _series(
            x, -1, lambda k, power: power / math.factorial(k) ** 2)
        if order == 0:
            rest = _series(x, -1, lambda k, power: -power * harmonic(k) / math.factorial(k) ** 2)
            return float(2 / _PI * (((d / 2).ln() + _EULER) * j + rest))
        digammas = _series(x, -1, lambda k, power: power * (harmonic(k) + harmonic(k + 1) - 2 * _EULER) / (math.factorial(k) * math.factorial(k + 1)))
        return float(-2 / (_PI * d) + 2 / _PI * (d / 2).ln() * j - d / 2 / _PI * digammas)


def _asymptotic(x: float, order: int, second: bool) -> float:
    """J and Y of x > 40 (9.2.5 to 9.2.10)."""
    mu, p, q, term, k = 4 * order * order, 0.0, 0.0, 1.0, 0
    while k < 40 and abs(term) > 1e-18:
        (p, q) = (p + term * (1, 0, -1, 0)[k % 4], q + term * (0, 1, 0, -1)[k % 4])
        k += 1
        term *= (mu - (2 * k - 1) ** 2) / (k * 8 * x)
    s, c = math.sin(x), math.cos(x)
    along, across = ((c + s, s - c), (s - c, -(s + c)))[order]
    return (p * across + q * along if second else p * along - q * across) / math.sqrt(math.pi * x)


def bessel_j(order: int, x: float) -> float:
    if not math.isfinite(x):
        return math.nan if math.isnan(x) else 0.0
    size = abs(x)
    value = _bessel(size, order, -1) if size <= _SERIES_END else _asymptotic(size, order, False)
    return -value if order and x < 0 else value


def bessel_y(order: int, x: float) -> float:
    if math.isnan(x) or x < 0:
        return math.nan
    if x == 0 or math.isinf(x):
        return 0.0 if x else -math.inf
    return _second(x, order) if x <= _SERIES_END else _asymptotic(x, order, True)


def bessel_i(order: int, x: float) -> float:
    if math.isnan(x):
        return x
    size = abs(x)
    if size > 720:
        value = math.inf
    elif size <= _SERIES_END:
        value = _bessel(size, order, 1)
    else:  # 9.7.1
        mu, total, term, k = 4 * order * order, 0.0, 1.0, 0
        while k < 40 and abs(term) > 1e-18:
            total += term
            k += 1
            term *= -(mu - (2 * k - 1) ** 2) / (k * 8 * size)
        value = math.exp(size / 2) * (total / math.sqrt(2 * math.pi * size)) * math.exp(size / 2)
    return math.copysign(value, x) if order else value


def erfcx(x: float) -> float:
    if math.isnan(x) or x < -26.7:
        return x if math.isnan(x) else math.inf
    if x < 20:
        with localcontext() as context:  # the rounding of x² would show
            context.prec = 40
            return float((Decimal(x) * Decimal(x)).exp() * Decimal(math.erfc(x)))
    total, term = 0.0, 1.0
    for k in range(20):  # 7.1.23
        total += term
        term *= -(2 * k + 1) / (2 * x * x)
    return total / x / math.sqrt(math.pi)


def erfcinv(q: float) -> float:
    if math.isnan(q) or not 0 <= q <= 2:
        return math.nan
    if q in (0.0, 1.0, 2.0):
        return {0.0: math.inf, 1.0: 0.0, 2.0: -math.inf}[q]
    if q > 0.5:
        return erfinv(1 - q) if q < 1.5 else -erfcinv(2 - q)
    low, high = 0.0, 40.0
    for _ in range(200):
        middle = (low + high) / 2
        # log erfc, which does not underflow
        value = math.log(erfcx(middle)) - middle * middle if middle > 1 else math.log(math.erfc(middle))
        if value > math.log(q):
            low = middle
        else:
            high = middle
    return (low + high) / 2


def erfinv(x: float) -> float:
    if math.isnan(x) or abs(x) > 1:
        return math.nan
    size = abs(x)
    if size > 0.5:
        return math.copysign(erfcinv(1 - size), x)
    y = size * math.sqrt(math.pi) / 2
    for _ in range(30):
        y -= (math.erf(y) - size) * math.sqrt(math.pi) / 2 * math.exp(y * y)
    return math.copysign(y, x)


def lgamma(x: float) -> float:
    if not math.isfinite(x):
        return x * x
    try:
        return math.inf if x <= 0 and x == math.floor(x) else math.lgamma(x)
    except OverflowError:
        return math.inf


def tgamma(x: float) -> float:
    if x == 0:
        return math.copysign(math.inf, x)
    try:
        return math.gamma(x)
    except OverflowError:
        return math.inf
    except ValueError:
        return math.nan


def normcdf(x: float) -> float:
    """Through erfcx, so that the tail's argument is not rounded."""
    if x > -3 or math.isnan(x):
        return x if math.isnan(x) else math.erfc(-x / math.sqrt(2)) / 2
    if x < -40:
        return 0.0
    with localcontext() as context:
        context.prec = 40
        return float((-(Decimal(x) * Decimal(x)) / 2).exp() * Decimal(erfcx(-x / math.sqrt(2))) / 2)


def _of_pi(x: float, sine: bool) -> float:
    if not math.isfinite(x):
        return math.nan
    quarter = round(math.fmod(x, 2.0) * 2)
    angle = math.pi * (math.fmod(x, 2.0) - quarter / 2)
    which = (quarter + (0 if sine else 1)) % 4
    return (math.sin(angle), math.cos(angle), -math.sin(angle), -math.cos(angle))[which]


def _reciprocal(x: float) -> float:
    return 1 / x if x else math.copysign(math.inf, x)


def _logb(x: float) -> float:
    if math.isnan(x) or math.isinf(x):
        return x if math.isnan(x) else math.inf
    return float(math.frexp(x)[1] - 1) if x else -math.inf


def _scalar(fn: Callable[..., float]) -> Callable[..., np.ndarray]:
    return np.vectorize(fn, otypes=[np.float64])


# float functions of float64 arrays
FUNCTIONS: dict[str, Callable[..., Any]] = {
    **{f"{kind}{order}": _scalar(functools.partial(fn, order)) for kind, fn in (("j", bessel_j), ("y", bessel_y), ("cyl_bessel_i", bessel_i))
       for order in (0, 1)},
    "lgamma": _scalar(lgamma), "tgamma": _scalar(tgamma),
    "erfinv": _scalar(erfinv), "erfcinv": _scalar(erfcinv), "erfcx": _scalar(erfcx), "normcdf": _scalar(normcdf),
    "normcdfinv": _scalar(lambda p: -math.sqrt(2) * erfcinv(2 * p)), "sinpi": _scalar(lambda x: _of_pi(x, True)),
    "cospi": _scalar(lambda x: _of_pi(x, False)), "rcbrt": _scalar(lambda x: _reciprocal(float(np.cbrt(x)))),
    "rsqrt_rn": lambda x: 1 / np.sqrt(x), "logb": _scalar(_logb), "norm3d": _scalar(math.hypot), "norm4d": _scalar(math.hypot),
    "rnorm3d": _scalar(lambda *v: _reciprocal(math.hypot(*v))), "rnorm4d": _scalar(lambda *v: _reciprocal(math.hypot(*v))),
    "rhypot": _scalar(lambda *v: _reciprocal(math.hypot(*v))),
}


def _bits(fn: Callable[[int, int], int]) -> Callable[..., np.ndarray]:
    """``fn(word, width)`` on integers of either signedness, as unsigned words."""
    def run(x: Any) -> np.ndarray:
        x = np.asarray(x)
        width = x.dtype.itemsize * 8
        values = np.array([fn(int(v) & ((1 << width) - 1), width) for v in x.ravel()], dtype=object).reshape(x.shape)
        return values.astype(np.uint64)

    return run


def _byte_perm(x: Any, y: Any, selector: Any) -> np.ndarray:
    x, y, selector = (np.asarray(v).astype(np.int64) & 0xFFFFFFFF for v in (x, y, selector))
    both = x.astype(np.uint64) | y.astype(np.uint64) << np.uint64(32)
    out = np.zeros(np.broadcast(x, y, selector).shape, np.uint64)
    for i in range(4):
        shift = ((selector >> (4 * i) & 7) * 8).astype(np.uint64)
        out |= (both >> shift & np.uint64(255)) << np.uint64(8 * i)
    return out


def _ilogb(x: float) -> int:
    if math.isnan(x) or x == 0:
        return -(2**31)
    return 2**31 - 1 if math.isinf(x) else math.frexp(x)[1] - 1


# functions whose results are integers
INTEGERS: dict[str, Callable[..., Any]] = {
    "popc": _bits(lambda w, n: bin(w).count("1")), "clz": _bits(lambda w, n: n - w.bit_length()), "ffs": _bits(lambda w, n: (w & -w).bit_length()),
    "brev": _bits(lambda w, n: int(f"{w:0{n}b}"[::-1], 2)), "byte_perm": _byte_perm, "ilogb": np.vectorize(_ilogb, otypes=[np.int64]),
    "llrint": lambda x: np.rint(np.asarray(x).astype(np.float64)).astype(np.int64),
    "llround": lambda x: np.copysign(np.floor(np.abs(np.asarray(x).astype(np.float64)) + 0.5), x).astype(np.int64),
}
