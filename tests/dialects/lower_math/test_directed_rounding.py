"""Directed roundings, executed on the host, against exact rational arithmetic: fresh random numbers of all magnitudes, and every pair of special ones."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from math_harness import DTYPE, compile_loop

MODES = ("rd", "ru", "rz")
FLOATS = ("f32", "f64")
LEAST = {"f32": -149, "f64": -1074}
DIGITS = {"f32": 24, "f64": 53}


def root_floor(v):
    """The integer square root's rational stand-in: (floor of sqrt(v) 2^k, k, whether exact), with 140 bits or more."""
    k = 140
    while v * 4**k < Fraction(2) ** 280:
        k += 140
    scaled = v * 4**k
    whole = math.isqrt(scaled.numerator // scaled.denominator)
    return Fraction(whole, 2**k), Fraction(whole) ** 2 == scaled


def rounded(value, type, mode, more=False):
    """The float next to ``value`` (a Fraction, not 0; ``more``: the value is a little larger, as a root is) in the mode's direction."""
    down = mode == "rd" or (mode == "rz" and value > 0)
    if mode == "rz" and value < 0:
        down = False
    exponent = abs(value.numerator).bit_length() - value.denominator.bit_length()
    exponent -= abs(value) < Fraction(2) ** exponent
    unit = Fraction(2) ** max(exponent - DIGITS[type] + 1, LEAST[type])
    steps = value / unit
    whole = math.floor(steps) if down else (math.floor(steps) + 1 if more else math.ceil(steps))
    result = whole * unit
    largest = Fraction(float(np.finfo(DTYPE[type]).max))
    if abs(result) > largest:
        inward = down == (result > 0)
        return math.copysign(float(largest) if inward else math.inf, 1 if result > 0 else -1)
    return float(result) if result else (0.0 if value > 0 else -0.0)


def sign_of(x):
    return math.copysign(1.0, x)


def zero_sum(mode, *signs):
    """An exact zero sum's zero: -0 of two negative ones, or of unlike signs rounded down."""
    return -0.0 if all(s < 0 for s in signs) or (mode == "rd" and any(s < 0 for s in signs)) else 0.0


def expected(name, type, mode, args):
    args = [float(a) for a in args]
    x = args[0]
    if name == "rcp":
        name, args = "div", [1.0, x]
        x = 1.0
    if name == "sub":
        name, args = "add", [x, -args[1]]
    if any(math.isnan(a) for a in args):
        return math.nan
    if name == "sqrt":
        if x < 0:
            return math.nan
        if x == 0 or math.isinf(x):
            return x
        root, exact = root_floor(Fraction(x))
        return rounded(root, type, mode, more=not exact)
    y = args[1]
    if not all(math.isfinite(a) for a in args) or (name == "div" and y == 0):
        with np.errstate(all="ignore"):
            if name == "add":
                return float(np.float64(x) + np.float64(y))
            if name == "div":
                return float(np.float64(x) / np.float64(y))
            product = sign_of(x) * sign_of(y) * math.inf if math.isinf(x) or math.isinf(y) else 0.0
            if (math.isinf(x) and y == 0) or (math.isinf(y) and x == 0):
                return math.nan
            return product if name == "mul" else float(np.float64(product) + np.float64(args[2]))
    a, b = Fraction(x), Fraction(y)
    if name == "add":
        exact, zero = a + b, zero_sum(mode, sign_of(x), sign_of(y))
    elif name == "mul":
        exact, zero = a * b, sign_of(x) * sign_of(y) * 0.0
    elif name == "div":
        exact, zero = a / b, sign_of(x) * sign_of(y) * 0.0
    else:
        exact, zero = a * b + Fraction(args[2]), zero_sum(mode, sign_of(x) * sign_of(y), sign_of(args[2]))
    return rounded(exact, type, mode) if exact else zero


def special(type):
    info = np.finfo(DTYPE[type])
    one_up = np.nextafter(DTYPE[type](1), DTYPE[type](2))
    positive = [0.0, 1.0, 3.0, one_up, info.max, info.tiny, info.smallest_subnormal, np.inf]
    return np.array([*positive, *(-np.asarray(positive)), np.nan], DTYPE[type])


def numbers(type, n, rng):
    """All magnitudes, with as many digits as the type has, or few."""
    word = {"f32": np.uint32, "f64": np.uint64}[type]
    x = rng.integers(0, np.iinfo(word).max, n, dtype=word, endpoint=True).view(DTYPE[type])
    x = np.where(np.isfinite(x), x, DTYPE[type](1.5))
    short = rng.integers(-40, 40, n) * np.exp2(rng.integers(LEAST[type], -LEAST[type] - 60, n).astype(np.float64))
    return np.where(rng.random(n) < 0.2, short.astype(DTYPE[type]), x)


def near(type, n, rng):
    """Numbers of about one magnitude, and some at the ends of the range."""
    bits = DIGITS[type]
    place = rng.choice([0, LEAST[type] + bits, LEAST[type] + 2, -LEAST[type] - bits - 2], n) if rng.random() < 0.7 else np.full(n, rng.integers(-30, 30))
    with np.errstate(all="ignore"):
        x = np.ldexp(rng.uniform(-2, 2, n), place + rng.integers(-3, 3, n)).astype(DTYPE[type])
    return np.where(np.isfinite(x), x, np.finfo(DTYPE[type]).max)


def arguments(name, type, n):
    rng = np.random.default_rng()
    arity = {"sqrt": 1, "rcp": 1, "fma": 3}.get(name, 2)
    columns = [np.concatenate([numbers(type, n, rng), near(type, n, rng), near(type, n, rng)]) for _ in range(arity)]
    with np.errstate(all="ignore"):
        if name in ("mul", "div"):  # results about the ends of the range
            ends = np.exp2(rng.choice([LEAST[type] - 1, LEAST[type] + 3, LEAST[type] + DIGITS[type], -LEAST[type] - DIGITS[type] + 1], n) / 2)
            columns[0][:n], columns[1][:n] = (rng.uniform(1, 2, n) * ends).astype(DTYPE[type]), (rng.uniform(-2, 2, n) * (ends if name == "mul" else 1 / ends)).astype(DTYPE[type])
        if name == "fma":  # sums that vanish almost
            columns[2][n:2 * n] = -(columns[0][n:2 * n] * columns[1][n:2 * n])
    pairs = list(itertools.product(special(type), repeat=arity)) if arity < 3 else list(itertools.product(special(type)[::2], special(type)[1::2], special(type)))
    columns = [np.concatenate([c, np.array(p, DTYPE[type])]) for c, p in zip(columns, zip(*pairs))]
    if name == "sqrt":
        columns[0][:n] = np.abs(columns[0][:n])
    return columns


def compare(got, want, columns):
    want = np.array(want, got.dtype)
    same = (got == want) & (np.signbit(got) == np.signbit(want)) | np.isnan(got) & np.isnan(want)
    bad = np.flatnonzero(~same)
    assert not len(bad), [(tuple(float(c[i]).hex() for c in columns), float(got[i]).hex(), float(want[i]).hex()) for i in bad[:5]]


@pytest.mark.parametrize("type", FLOATS)
@pytest.mark.parametrize("name", ["add", "sub", "mul", "div", "fma", "sqrt", "rcp"])
def test_operations(name, type):
    for mode in MODES:
        columns = arguments(name, type, 200)
        got = compile_loop(f"{name}_{mode}", type)(*columns)
        compare(got, [expected(name, type, mode, row) for row in zip(*columns)], columns)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("source", ["int2float", "uint2float", "ll2float", "ull2float", "ll2double", "ull2double"])
def test_integers_to_floats(source, mode):
    rng = np.random.default_rng()
    bits = 64 if "ll" in source else 32
    kind = {32: np.int32, 64: np.int64}[bits]
    k = rng.integers(np.iinfo(kind).min, np.iinfo(kind).max, 500, dtype=kind, endpoint=True) >> rng.integers(0, bits, 500).astype(kind)
    top = np.iinfo(kind).max
    k = np.concatenate([k, np.array([0, 1, -1, top, -top - 1, top - 1, (1 << 24) + 1, -(1 << 24) - 1, top >> 1], kind)])
    got = compile_loop(f"{source}_{mode}", f"i{bits}")(k)
    type = "f64" if source.endswith("double") else "f32"
    assert got.dtype == DTYPE[type]
    values = [int(v) & ((1 << bits) - 1) if source[0] == "u" else int(v) for v in k]
    compare(got, [rounded(Fraction(v), type, mode) if v else 0.0 for v in values], [k])


@pytest.mark.parametrize("mode", MODES)
def test_double_to_float(mode):
    rng = np.random.default_rng()
    x = np.concatenate([special("f64"), numbers("f64", 200, rng), numbers("f32", 300, rng) * (1 + rng.uniform(-1e-7, 1e-7, 300)),
                        np.exp2(rng.uniform(-160, -120, 300)) * rng.choice([-1, 1], 300), special("f32").astype(np.float64)])
    got = compile_loop(f"double2float_{mode}", "f64")(x)
    compare(got, [rounded(Fraction(v), "f32", mode) if math.isfinite(v) and v else v for v in x.tolist()], [x])


def test_rcp64h():
    rng = np.random.default_rng()
    x = np.concatenate([special("f64"), numbers("f64", 500, rng)])
    got = compile_loop("rcp64h", "f64")(x)
    assert not (got[~np.isnan(got)].view(np.uint64) & np.uint64(0xFFFFFFFF)).any()
    for v, g in zip(x.tolist(), got.tolist()):
        if math.isnan(v):
            assert math.isnan(g)
        elif abs(v) < 2.0**-1022 or math.isinf(v) or abs(v) > 2.0**1021:
            if abs(v) < 2.0**-1022 or math.isinf(v):
                assert g == math.copysign(0.0 if math.isinf(v) else math.inf, v) and math.copysign(1, g) == math.copysign(1, v)
        else:
            assert abs(Fraction(g) * Fraction(v) - 1) < Fraction(1, 2**19)
