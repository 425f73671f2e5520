"""The interpreter's libdevice functions with directed roundings, by exact fractions; jn and yn, by decimal series; rcp64h.

Independent of dialects/lower_math, which is compared with it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal, localcontext
from fractions import Fraction
from typing import Any

import numpy as np

from tilewright.runtime import interpreter_math

Compare = Callable[[Fraction], Any]  # what has the sign of (exact value - a fraction)


def _downwards(compare: Compare, guess: Any) -> Any:
    """The largest number of ``guess``'s type that is not above the exact value; -infinity where none is."""
    type = guess.dtype.type
    largest = np.finfo(type).max
    r = np.clip(guess, -largest, largest)
    while compare(Fraction(float(r))) < 0:
        r = np.nextafter(r, type(-np.inf))
        if np.isinf(r):
            return r
    while r < largest and compare(Fraction(float(up := np.nextafter(r, type(np.inf))))) >= 0:
        r = up
    return r


def _rounded(mode: str, positive: bool, compare: Compare, guess: Any) -> Any:
    """The exact value, which is not 0, in ``guess``'s type; ``guess`` is near it."""
    if mode == "rd" or (mode == "rz" and positive):
        r = _downwards(compare, guess)
    else:
        r = -_downwards(lambda f: -compare(-f), -guess)
    return np.copysign(r, 1 if positive else -1)


def _of_fraction(mode: str, exact: Fraction, type: Any) -> Any:
    try:
        guess = type(float(exact))
    except OverflowError:
        guess = type(math.inf if exact > 0 else -math.inf)
    return _rounded(mode, exact > 0, lambda f: exact - f, guess)


def _zero(mode: str, *terms: Any) -> float:
    """What an exact sum of 0 is: of terms of one sign that zero, else +0, or -0 when rounded down."""
    negative = [bool(np.signbit(t)) for t in terms]
    return -0.0 if all(negative) or (mode == "rd" and any(negative)) else 0.0


def _one(name: str, mode: str, type: Any, *args: Any) -> Any:
    operations: dict[str, Callable[..., Any]] = {
        "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide, "sqrt": np.sqrt,
        "rcp": lambda x: type(1) / x,
        # the exact product of two finite numbers is finite, however large
        "fma": lambda x, y, z: z if np.isfinite(x) and np.isfinite(y) and not np.isfinite(z) else x * y + z}
    usual = operations[name](*args)
    x = args[0]
    if not all(np.isfinite(a) for a in args) or (name == "div" and args[1] == 0) or (name == "rcp" and x == 0):
        return usual  # infinite or NaN, or exact
    if name == "sqrt":
        square = Fraction(float(x))
        return usual if x <= 0 else _rounded(mode, True, lambda f: square - f * f if f > 0 else 1, usual)
    values = [Fraction(float(a)) for a in args]
    if name in ("add", "sub"):
        y = args[1] if name == "add" else -args[1]
        exact, zero = values[0] + Fraction(float(y)), _zero(mode, x, y)
    elif name == "fma":
        exact, zero = values[0] * values[1] + values[2], _zero(mode, np.copysign(1.0, x) * np.copysign(1.0, args[1]), args[2])
    else:
        exact = {"mul": lambda: values[0] * values[1], "div": lambda: values[0] / values[1], "rcp": lambda: 1 / values[0]}[name]()
        zero = usual  # a zero of the right sign where the exact value is one
    return _of_fraction(mode, exact, type) if exact else type(zero)


def _operation(name: str, mode: str) -> Callable[..., np.ndarray]:
    def run(*args: Any) -> np.ndarray:
        arrays = np.broadcast_arrays(*args)
        type = arrays[0].dtype.type
        with np.errstate(all="ignore"):
            out = [_one(name, mode, type, *row) for row in zip(*(a.ravel() for a in arrays))]
        return np.array(out, type).reshape(arrays[0].shape)

    return run


def _conversion(mode: str, to: Any, unsigned: bool) -> Callable[..., np.ndarray]:
    def run(x: Any) -> np.ndarray:
        x = np.asarray(x)

        def one(v: Any) -> Any:
            if x.dtype.kind == "f":
                return _of_fraction(mode, Fraction(float(v)), to) if np.isfinite(v) and v else to(v)
            value = int(v) & ((1 << 8 * x.dtype.itemsize) - 1) if unsigned else int(v)
            return _of_fraction(mode, Fraction(value), to) if value else to(0)

        with np.errstate(all="ignore"):
            return np.array([one(v) for v in x.ravel()], to).reshape(x.shape)

    return run


def _rcp64h(x: float) -> float:
    if math.isnan(x):
        return x
    x = _high(x)
    if abs(x) < 2.0**-1022:
        return math.copysign(math.inf, x)
    r = _high(1 / x, 1 << 31)
    return r if abs(r) >= 2.0**-1022 else math.copysign(0.0, x)


def _high(x: float, more: int = 0) -> float:
    """The double of x's high 32 bits, after ``more`` was added to its bits."""
    return float(((np.array([x]).view(np.uint64) + np.uint64(more)) >> np.uint64(32) << np.uint64(32)).view(np.float64)[0])


# ------------------------------------------------------------------------------------------------------ jn, yn
def _series_j(n: int, x: float) -> float:
    """J of order n >= 0 for 0 < x, by its power series (9.1.10) with the digits that its terms take away."""
    with localcontext() as context:
        context.prec = 60 + int(x)
        context.Emin, context.Emax = -10**9, 10**9
        square, term = -(Decimal(x) * Decimal(x)) / 4, (Decimal(x) / 2) ** n / math.factorial(n)
        total, k = term, 0
        while k < x or abs(term) > abs(total) * Decimal("1e-40"):
            k += 1
            term = term * square / (k * (n + k))
            total += term
        return float(total)


def _recurrence(n: int, x: float, zeroth: float, first: float) -> float:
    for k in range(1, n):
        zeroth, first = first, (2 * k / x * first - zeroth if math.isfinite(first) else first)
    return first if n else zeroth


def jn(n: int, x: float) -> float:
    order, flip = abs(n), bool(n & 1) and ((n < 0) != (x < 0))
    if not math.isfinite(x):
        return x if math.isnan(x) else 0.0
    size = abs(x)
    if order < 2:
        value = interpreter_math.bessel_j(order, size)
    elif size == 0 or (order > 960 and 3 * size < order):
        value = 0.0
    elif size < 500 or order > size:
        value = _series_j(order, size)
    else:
        value = _recurrence(order, size, interpreter_math.bessel_j(0, size), interpreter_math.bessel_j(1, size))
    return -value if flip else value


def yn(n: int, x: float) -> float:
    order, flip = abs(n), bool(n & 1) and n < 0
    if math.isnan(x) or x < 0:
        return math.nan
    if order > 960 and 3 * x < order:
        value = -math.inf
    else:
        value = _recurrence(order, x, interpreter_math.bessel_y(0, x), interpreter_math.bessel_y(1, x)) if math.isfinite(x) and x else (
            0.0 if x else -math.inf)
    return -value if flip else value


# name → function of arrays of the operands' own types, whose result has the type of the function
FUNCTIONS: dict[str, Callable[..., Any]] = {"rcp64h": np.vectorize(_rcp64h, otypes=[np.float64])}
for _mode in ("rd", "ru", "rz"):
    FUNCTIONS |= {f"{name}_{_mode}": _operation(name, _mode) for name in ("add", "sub", "mul", "div", "fma", "sqrt", "rcp")}
    FUNCTIONS[f"double2float_{_mode}"] = _conversion(_mode, np.float32, False)
    for _kind in ("int", "uint", "ll", "ull"):
        FUNCTIONS[f"{_kind}2float_{_mode}"] = _conversion(_mode, np.float32, _kind[0] == "u")
        FUNCTIONS[f"{_kind}2double_{_mode}"] = _conversion(_mode, np.float64, _kind[0] == "u")
# of integers and floats, in float64
ORDERS = {name: np.vectorize(lambda n, x, of=of: of(int(n), float(x)), otypes=[np.float64]) for name, of in (("jn", jn), ("yn", yn))}
