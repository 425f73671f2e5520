"""Numbers of the vector ALU, as numpy functions over arrays: one rounding where the hardware rounds once, formats numpy does not have.

Everything rounds to nearest even, the mode of every kernel (``.amdhsa_float_round_mode_*`` 0; the maker of an instruction refuses others).

Not modelled: which payload and sign a NaN has that an operation makes (the host's; a NaN that is passed on keeps its payload and is quieted,
as in the hardware). Sources: "IEEE 754" for formats and rounding; the ISA manuals' chapter "Vector ALU Operations" for clamp, output modifiers
and denormals; OCP "8-bit Floating Point Specification" and the MI300 ISA's chapter on data formats for fp8.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np

Array = Any  # numpy.ndarray; the element type depends on the instruction's

U16, U32, U64 = np.uint16, np.uint32, np.uint64
_LOW29, _HALF29 = U64(0x1FFFFFFF), U64(0x10000000)
_ABS64, _TINY64 = U64(0x7FFFFFFFFFFFFFFF), U64(0x3810000000000000)  # 2^-126


# ------------------------------------------------------------------------------------------------- one rounding of a sum
def add_to_odd(a: Array, b: Array) -> Array:
    """a + b of float64 arrays, inexact results made odd in the last place: rounding them again to fewer than 52 bits is exact rounding."""
    s = a + b
    back = s - a
    error = (a - (s - back)) + (b - back)
    bits = s.view(U64)
    fix = (error != 0) & ((bits & U64(1)) == 0) & np.isfinite(s)
    if not fix.any():
        return s
    # towards the exact sum: away from zero when the error has the sign of the sum
    out = np.where((error > 0) == (s > 0), bits + U64(1), bits - U64(1))
    return np.where(fix, out, bits).view(np.float64)


def fma32(a: Array, b: Array, c: Array) -> Array:
    """a·b + c of float32 arrays with one rounding."""
    p = np.multiply(a, b, dtype=np.float64)  # the product of two float32 is exact in float64
    s = np.asarray(p + c)
    bits = s.view(U64)
    # rounding twice differs from once only where the float64 sum lies in the middle between two float32
    doubtful = (bits & _LOW29) == _HALF29
    doubtful |= ((bits & _ABS64) - U64(1)) < _TINY64
    if doubtful.any():
        s = add_to_odd(*np.broadcast_arrays(p, c.astype(np.float64)))
    return s.astype(np.float32)


def fma16(a: Array, b: Array, c: Array) -> Array:
    """a·b + c of float16 arrays with one rounding."""
    p, c64 = a.astype(np.float64) * b.astype(np.float64), c.astype(np.float64)
    return add_to_odd(*np.broadcast_arrays(p, c64)).astype(np.float16)


def _two_product(a: Array, b: Array) -> tuple[Array, Array]:
    """(p, e): p + e = a·b exactly (Dekker), for factors and products far from the ends of the range."""
    p = a * b
    x, y = a * 134217729.0, b * 134217729.0
    ah, bh = x - (x - a), y - (y - b)
    al, bl = a - ah, b - bh
    return p, ((ah * bh - p) + ah * bl + al * bh) + al * bl


def _two_sum(a: Array, b: Array) -> tuple[Array, Array]:
    s = a + b
    back = s - a
    return s, (a - (s - back)) + (b - back)


def _fma64_exact(a: float, b: float, c: float, scale: int = 0) -> float:
    """2^scale · (a·b + c) by rational numbers; finite arguments. An exact zero takes its sign from IEEE's rule for sums."""
    exact = (Fraction(a) * Fraction(b) + Fraction(c)) * Fraction(2) ** scale
    if exact == 0:
        return a * b + c if a == 0 or b == 0 or c == 0 else 0.0
    try:
        return float(exact)  # int / int rounds to nearest even, subnormal results too
    except OverflowError:
        return float("inf") if exact > 0 else float("-inf")


def fma64(a: Array, b: Array, c: Array) -> Array:
    """a·b + c of float64 arrays with one rounding (Boldo and Melquiond, "Emulation of FMA and correctly rounded sums", 2008)."""
    a, b, c = np.broadcast_arrays(a, b, c)
    uh, ul = _two_product(a, b)
    th, tl = _two_sum(c, ul)
    vh, vl = _two_sum(uh, th)
    out = np.asarray(vh + add_to_odd(tl, vl))
    plain = a * b + c
    # the error-free steps need exponents that do not reach the ends of the range
    ends = np.zeros(out.shape, bool)
    for x in (a, b, c, uh):
        e = (x.view(U64) >> U64(52)) & U64(0x7FF)
        ends |= ((e < U64(200)) & (x != 0)) | (e > U64(1900))
    ends |= (uh == 0) & (a != 0) & (b != 0)
    ends |= (plain == 0) | (out == 0)
    special = ~(np.isfinite(a) & np.isfinite(b) & np.isfinite(c))
    # a finite product whose float64 is infinite must not meet an infinite addend
    out = np.where(special, np.where(np.isfinite(a) & np.isfinite(b), c, plain), out)
    doubtful = np.argwhere(ends & ~special)
    for at in map(tuple, doubtful):
        out[at] = _fma64_exact(float(a[at]), float(b[at]), float(c[at]))
    return out


def scaled_fma(a: Array, b: Array, c: Array, scale: Array, kind: str) -> Array:
    """2^scale · (a·b + c) of float32 or float64 arrays with one rounding, also where the result is subnormal."""
    a, b, c, scale = np.broadcast_arrays(a, b, c, scale)
    if kind == "f32":
        return np.ldexp(add_to_odd(a.astype(np.float64) * b, c.astype(np.float64)), scale.astype(np.int32)).astype(np.float32)
    out = np.asarray(np.ldexp(fma64(a, b, c), scale.astype(np.int32)))
    small = (np.abs(out) <= np.finfo(np.float64).tiny) & np.isfinite(a) & np.isfinite(b) & np.isfinite(c)
    for at in map(tuple, np.argwhere(small)):
        out[at] = _fma64_exact(float(a[at]), float(b[at]), float(c[at]), int(scale[at]))
    return out


FMA: dict[str, Callable[[Array, Array, Array], Array]] = {"f16": fma16, "f32": fma32, "f64": fma64}


# ------------------------------------------------------------------------------------------------------------ formats
def bf16_to_f32(bits: Array) -> Array:
    """uint16 bits of bfloat16 → float32."""
    return (bits.astype(U32) << U32(16)).view(np.float32)


def f32_to_bf16(x: Array) -> Array:
    """float32 → uint16 bits of bfloat16."""
    bits = np.ascontiguousarray(x, np.float32).view(U32)
    rounded = (bits + U32(0x7FFF) + ((bits >> U32(16)) & U32(1))) >> U32(16)
    return np.where(np.isnan(x), (bits >> U32(16)) | U32(0x40), rounded).astype(U16)


class Float8:
    """An 8-bit format: ``mantissa`` bits, ``bias``, and how its top is used. ``values``: float32 of each of the 256 codes."""

    def __init__(self, mantissa: int, bias: int, fnuz: bool, infinities: bool):
        self.mantissa, self.bias, self.fnuz, self.infinities = mantissa, bias, fnuz, infinities
        codes = np.arange(256)
        exponent, fraction = (codes & 0x7F) >> mantissa, codes & ((1 << mantissa) - 1)
        size = np.where(exponent == 0, np.ldexp(fraction.astype(float), 1 - bias - mantissa),
                        np.ldexp((fraction + (1 << mantissa)).astype(float), exponent - bias - mantissa))
        values = np.where(codes & 0x80, -size, size)
        if fnuz:
            values[0x80] = np.nan
        elif infinities:
            top = exponent == (0x7F >> mantissa)
            values[top] = np.where(fraction[top] == 0, np.where(codes[top] & 0x80, -np.inf, np.inf), np.nan)
        else:
            values[[0x7F, 0xFF]] = np.nan
        self.values = values.astype(np.float32)
        positive = values[:128]
        self.finite = positive[np.isfinite(positive)]  # ascending, code = index

    def decode(self, codes: Array) -> Array:
        """Integer codes → float32."""
        return self.values[codes]

    def encode(self, x: Array) -> Array:
        """float32 → uint32 codes, to nearest even. What is too large becomes infinity, or NaN where there is none."""
        size = np.abs(x).astype(np.float64)
        count = len(self.finite)
        # one number more than there are: what rounds to it overflows
        grid = np.append(self.finite.astype(np.float64), 2.0 * self.finite[-1] - self.finite[-2])
        high = np.clip(np.searchsorted(grid, size, side="left"), 0, count)
        low = np.maximum(high - 1, 0)
        middle = (grid[low] + grid[high]) / 2
        code = np.where((size == grid[high]) | (size > middle) | ((size == middle) & (high % 2 == 0)), high, low)
        negative = np.signbit(x)
        if self.fnuz:  # code 0x80 is the only NaN, and there is no negative zero
            return np.where(np.isnan(x) | (code >= count), 0x80, np.where(negative & (code > 0), code | 0x80, code)).astype(U32)
        code = np.where(np.isnan(x), 0x7F, np.where(code >= count, 0x7C if self.infinities else 0x7F, code))
        return np.where(negative, code | 0x80, code).astype(U32)


FP8_FNUZ, BF8_FNUZ = Float8(3, 8, True, False), Float8(2, 16, True, False)
FP8_OCP, BF8_OCP = Float8(3, 7, False, False), Float8(2, 15, False, True)


def float8(arch: str, kind: str) -> Float8:
    """``kind`` "fp8" (e4m3) or "bf8" (e5m2): gfx942 has the FNUZ formats, later ones OCP's."""
    if arch == "gfx942":
        return FP8_FNUZ if kind == "fp8" else BF8_FNUZ
    return FP8_OCP if kind == "fp8" else BF8_OCP


# ----------------------------------------------------------------------------------------------------- parts of numbers
_FORMAT: dict[str, tuple[Any, int, int]] = {"f16": (U16, 5, 10), "f32": (U32, 8, 23), "f64": (U64, 11, 52)}
FLOAT: dict[str, Any] = {"f16": np.float16, "f32": np.float32, "f64": np.float64}
UINT: dict[str, Any] = {"f16": U16, "f32": U32, "f64": U64}


def exponent_field(x: Array, kind: str) -> Array:
    """The biased exponent, as int64."""
    uint, bits, mantissa = _FORMAT[kind]
    return ((x.view(uint) >> uint(mantissa)) & uint((1 << bits) - 1)).astype(np.int64)


def is_denormal(x: Array, kind: str) -> Array:
    return (np.abs(x) < np.finfo(FLOAT[kind]).tiny) & (x != 0)


def flush(x: Array, kind: str) -> Array:
    """Denormals to zero of their sign."""
    return np.where(is_denormal(x, kind), np.copysign(FLOAT[kind](0), x), x)


def is_signalling(x: Array, kind: str) -> Array:
    """NaNs whose topmost bit of the fraction is 0."""
    uint, _, mantissa = _FORMAT[kind]
    return np.isnan(x) & ((x.view(uint) >> uint(mantissa - 1)) & uint(1) == 0)


def quiet(x: Array, kind: str) -> Array:
    """NaNs made quiet; other values as they are."""
    uint, _, mantissa = _FORMAT[kind]
    return np.where(np.isnan(x), x.view(uint) | uint(1 << (mantissa - 1)), x.view(uint)).view(FLOAT[kind])


def class_mask(x: Array, kind: str) -> Array:
    """One bit a value, as v_cmp_class numbers them: 0 sNaN, 1 qNaN, 2 −∞, 3 −normal, 4 −denormal, 5 −0, 6 +0, 7 +denormal, 8 +normal, 9 +∞."""
    size, negative = np.abs(x), np.signbit(x)
    out = np.where(size == 0, np.where(negative, 5, 6), np.where(negative, 3, 8))
    out = np.where(is_denormal(x, kind), np.where(negative, 4, 7), out)
    out = np.where(np.isinf(x), np.where(negative, 2, 9), out)
    out = np.where(np.isnan(x), np.where(is_signalling(x, kind), 0, 1), out)
    return U32(1) << out.astype(U32)


# --------------------------------------------------------------------------------------------------- maximum and minimum
def _ordered(kind: str, larger: bool, pick: Callable[[Array, Array], Array]) -> Callable[[Array, Array], Array]:
    """numpy's ``pick``, with +0 above −0: of equal numbers only zeros differ in bits, and of these just in the sign."""
    uint, float_ = UINT[kind], FLOAT[kind]
    join: Callable[[Array, Array], Array] = np.bitwise_and if larger else np.bitwise_or
    return lambda a, b: np.where(a == b, join(a.view(uint), b.view(uint)).view(float_), pick(a, b))


def _number(kind: str, larger: bool, ieee: bool) -> Callable[[Array, Array], Array]:
    """The other operand for a NaN; ``ieee``: a signalling NaN is passed on, made quiet (IEEE 754-2008's maxNum)."""
    order = _ordered(kind, larger, np.fmax if larger else np.fmin)

    def pick(a: Array, b: Array) -> Array:
        out = order(a, b)
        nan_a, nan_b = a != a, b != b
        if not (nan_a.any() or nan_b.any()):
            return out
        out = np.where(nan_a & nan_b, quiet(a, kind), out)
        if ieee:
            out = np.where(is_signalling(b, kind), quiet(b, kind), out)
            out = np.where(is_signalling(a, kind), quiet(a, kind), out)
        return out

    return pick


def _propagating(kind: str, larger: bool) -> Callable[[Array, Array], Array]:
    """NaN for a NaN (IEEE 754-2019's maximum), a signalling one first."""
    order = _ordered(kind, larger, np.maximum if larger else np.minimum)

    def pick(a: Array, b: Array) -> Array:
        out = order(a, b)
        if not np.isnan(out).any():
            return out
        out = np.where(np.isnan(a), quiet(a, kind), np.where(np.isnan(b), quiet(b, kind), out))
        return np.where(is_signalling(b, kind) & ~is_signalling(a, kind), quiet(b, kind), out)

    return pick


def max_number(kind: str, ieee: bool) -> Callable[[Array, Array], Array]:
    """v_max: of two floats of ``kind``, and of arrays of them."""
    return _number(kind, True, ieee)


def min_number(kind: str, ieee: bool) -> Callable[[Array, Array], Array]:
    return _number(kind, False, ieee)


def maximum(kind: str) -> Callable[[Array, Array], Array]:
    """v_maximum."""
    return _propagating(kind, True)


def minimum(kind: str) -> Callable[[Array, Array], Array]:
    return _propagating(kind, False)


# --------------------------------------------------------------------------------------------------------- conversions
_INT: dict[str, Any] = {"i16": np.int16, "u16": np.uint16, "i32": np.int32, "u32": np.uint32}


def to_integer(x: Array, kind: str) -> Array:
    """Floats towards zero, held within the integer's range; NaN is 0."""
    type = _INT[kind]
    info = np.iinfo(type)
    whole = np.trunc(np.asarray(x).astype(np.float64))
    return np.where(np.isnan(whole), 0, np.clip(whole, info.min, info.max)).astype(np.int64).astype(type)


def to_f16_towards_zero(x: Array) -> Array:
    """float32 → float16 without its lower bits; what is too large becomes the largest number."""
    near = x.astype(np.float16)
    over = np.abs(near.astype(np.float32)) > np.abs(x)
    bits = near.view(U16)
    return np.where(over, bits - U16(1), bits).astype(U16).view(np.float16)


def ldexp(x: Array, exponent: Array, kind: str) -> Array:
    """x · 2^exponent with one rounding, any integer exponent."""
    e = np.clip(np.asarray(exponent).astype(np.int64), -2400, 2400)
    if kind != "f64":  # float64 holds the product of a scale that is in range, and then rounds once
        return np.ldexp(x.astype(np.float64), np.clip(e, -400, 400).astype(np.int32)).astype(FLOAT[kind])
    return np.ldexp(x, e.astype(np.int32))


def fract(x: Array, kind: str) -> Array:
    """x − floor(x), below 1; NaN for infinities."""
    below = np.nextafter(FLOAT[kind](1), FLOAT[kind](0))
    return np.minimum(x - np.floor(x), below)


def clamp01(x: Array, nan_to_zero: bool) -> Array:
    """Between 0 and 1; NaN becomes 0 where the mode dx10_clamp is set."""
    out = np.where(x > 0, np.minimum(x, x.dtype.type(1)), x.dtype.type(0))
    return out if nan_to_zero else np.where(np.isnan(x), x, out)
