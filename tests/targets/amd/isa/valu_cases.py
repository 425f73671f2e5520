"""Values that vector instructions are tried with, exact references by rational numbers, and a run of one instruction over all of them."""

from fractions import Fraction

import numpy as np
from snippets import lanes_of, run_snippet

FLOAT = {"f16": np.float16, "f32": np.float32, "f64": np.float64}
UINT = {"f16": np.uint16, "f32": np.uint32, "f64": np.uint64}
ARCHS = ("gfx90a", "gfx942", "gfx950", "gfx1030", "gfx1100", "gfx1201")
NAN = float("nan")


def floats(kind, n, seed=0):
    """Random bits, normal values of many sizes, and all that is special."""
    rng = np.random.default_rng(seed)
    type, uint = FLOAT[kind], UINT[kind]
    info = np.finfo(type)
    special = np.array([0.0, -0.0, 1, -1, np.inf, -np.inf, np.nan, info.max, info.min, info.tiny, -info.tiny, info.smallest_subnormal,
                        -info.smallest_subnormal, info.tiny / 2, 0.5, -0.5, 1.5, 2.5, 1 + info.eps, 1 - info.eps / 2], type)
    out = np.where(rng.random(n) < 0.3, rng.integers(0, 1 << (8 * info.bits // 8), n, dtype=uint).view(type),
                   (rng.standard_normal(n) * 2.0 ** rng.integers(-6, 7, n)).astype(type)).astype(type)
    picks = rng.random(n) < 0.3
    out[picks] = rng.choice(special, picks.sum())
    signalling = {"f16": 0x7D01, "f32": 0xFFA00001, "f64": 0x7FF4000000000001}[kind]
    out.view(uint)[rng.random(n) < 0.05] = signalling
    return out


def integers(n, seed=0, bits=32):
    rng = np.random.default_rng(seed)
    uint = {16: np.uint16, 32: np.uint32, 64: np.uint64}[bits]
    out = rng.integers(0, 1 << bits, n, dtype=uint)
    picks = rng.random(n) < 0.3
    out[picks] = rng.choice(np.array([0, 1, 2, (1 << bits) - 1, 1 << (bits - 1), (1 << (bits - 1)) - 1, 31, 32, 255], uint), picks.sum())
    return out


def to_register(values):
    """2-byte values with noise above them; others as they are."""
    if values.dtype.itemsize == 2:
        return values.view(np.uint16).astype(np.uint32) | np.uint32(0x5A5A0000)
    return values


def lane_values(arch, make, waves=8):
    """(waves, lanes) of ``make(count)``."""
    return make(waves * lanes_of(arch)).reshape(waves, -1)


def run_one(arch, text, sources, out, register=0, waves=8, **more):
    """The destination (register ``register``) as ``out`` after one instruction; sources: {register: (waves, lanes)}."""
    r = run_snippet(arch, text, {k: to_register(v) for k, v in sources.items()}, waves=waves, **more)
    if np.dtype(out).itemsize == 2:
        return (r.vgpr(register) & 0xFFFF).astype(np.uint16).view(out)
    return r.vgpr(register, out)


def same(got, expected):
    """Bit for bit, any NaN for a NaN."""
    got, expected = np.asarray(got), np.asarray(expected)
    assert got.dtype == expected.dtype and got.shape == expected.shape, (got.dtype, expected.dtype, got.shape, expected.shape)
    uint = {2: np.uint16, 4: np.uint32, 8: np.uint64}[got.dtype.itemsize]
    bad = got.view(uint) != expected.view(uint)
    if got.dtype.kind == "f":
        bad &= ~(np.isnan(got) & np.isnan(expected))
    assert not bad.any(), f"{bad.sum()} differ, first at {np.argwhere(bad)[0]}: {got[bad][0]!r} ({got.view(uint)[bad][0]:#x}), expected {expected[bad][0]!r} ({expected.view(uint)[bad][0]:#x})"


def round_fraction(exact, kind):
    """The float of ``kind`` nearest to a rational number, ties to even; by integers alone."""
    mantissa, minimum, maximum = {"f16": (11, -24, 15), "f32": (24, -149, 127), "f64": (53, -1074, 1023)}[kind]
    if exact == 0:
        return FLOAT[kind](0)
    sign, exact = (-1, -exact) if exact < 0 else (1, exact)
    exponent = exact.numerator.bit_length() - exact.denominator.bit_length()
    if Fraction(2) ** exponent > exact:
        exponent -= 1
    unit = max(exponent - mantissa + 1, minimum)
    scaled = exact / Fraction(2) ** unit
    whole = scaled.numerator // scaled.denominator
    rest = scaled - whole
    if rest > Fraction(1, 2) or (rest == Fraction(1, 2) and whole % 2):
        whole += 1
    if whole * Fraction(2) ** unit >= Fraction(2) ** (maximum + 1):
        return FLOAT[kind](sign * np.inf)
    return FLOAT[kind](sign * float(whole * Fraction(2) ** unit))


def exact_fma(a, b, c, kind):
    """a·b + c of scalars with one rounding."""
    if not (np.isfinite(a) and np.isfinite(b) and np.isfinite(c)):
        with np.errstate(all="ignore"):
            # products of finite numbers that overflow are not infinite before the sum
            product = np.longdouble(a) * np.longdouble(b)
            return FLOAT[kind](product + np.longdouble(c))
    exact = Fraction(float(a)) * Fraction(float(b)) + Fraction(float(c))
    if exact == 0:
        product_negative = np.signbit(a) != np.signbit(b)
        zero_product = a == 0 or b == 0
        return FLOAT[kind](-0.0 if zero_product and product_negative and np.signbit(c) and c == 0 else 0.0)
    out = round_fraction(exact, kind)
    return FLOAT[kind](-0.0) if out == 0 and exact < 0 else out
