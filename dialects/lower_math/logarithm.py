"""log, log2, log10, log1p in f32: x = m 2^e with m in [sqrt(1/2), sqrt(2)), and a polynomial in m - 1."""

from __future__ import annotations

from typing import Any

from tilewright.dialects.lower_math.exponential import LN2_HI, LN2_LO, LOG2E, polynomial
from tilewright.dialects.lower_math.registry import defined

# log(1 + f) = f - f^2 / 2 + f^3 P(f)
_LOG = (0.3333333286195672, -0.24999966055507783, 0.20000035995118948, -0.16669433546376336, 0.14286936597290992,
        -0.12425106299812536, 0.11012169511796448, -0.1079406018718316, 0.10742752130526056, -0.061506748262637995)
_SQRT_HALF_BITS = 0x3F3504F3

LOG10E = 0.4342944819032518


def split(b: Any, x: Any) -> tuple[Any, Any]:
    """(f, e): x = (1 + f) 2^e for positive finite x, subnormals too; e is an f32."""
    tiny = b.fcmp("olt", x, b.const(b.t_f32, 2.0**-126))
    with b.no_contract():
        scaled = b.select(tiny, b.fmul(x, b.const(b.t_f32, 2.0**23)), x)
    word = b.bitcast(scaled, b.t_i32)
    shifted = b.sub(word, b.i32(_SQRT_HALF_BITS))
    e = b.ashr(shifted, b.i32(23))
    m = b.bitcast(b.sub(word, b.shl(e, b.i32(23))), b.t_f32)
    with b.no_contract():
        f = b.fsub(m, b.const(b.t_f32, 1.0))
    return f, b.sitofp(b.sub(e, b.select(tiny, b.i32(23), b.i32(0))), b.t_f32)


def tail(b: Any, f: Any) -> tuple[Any, Any]:
    """(-f^2 / 2, f^3 P(f)): what log(1 + f) has beyond f."""
    with b.no_contract():
        f2 = b.fmul(f, f)
        return b.fmul(f2, b.const(b.t_f32, -0.5)), b.fmul(b.fmul(f2, f), polynomial(b, f, _LOG))


def special(b: Any, x: Any, result: Any) -> Any:
    """-infinity at 0, NaN below, infinity at infinity."""
    infinity = b.const(b.t_f32, float("inf"))
    result = b.select(b.fcmp("oeq", x, infinity), infinity, result)
    result = b.select(b.fcmp("ult", x, b.const(b.t_f32, 0.0)), b.const(b.t_f32, float("nan")), result)
    return b.select(b.fcmp("oeq", x, b.const(b.t_f32, 0.0)), b.const(b.t_f32, float("-inf")), result)


@defined("log", "f32", ulp=1.0)
def log(b: Any, x: Any) -> Any:
    f, e = split(b, x)
    half, rest = tail(b, f)
    with b.no_contract():
        low = b.fma(e, b.const(b.t_f32, LN2_LO), rest)
        low = b.fadd(b.fadd(low, half), f)
        return special(b, x, b.fma(e, b.const(b.t_f32, LN2_HI), low))


@defined("log2", "f32", ulp=1.0)
def log2(b: Any, x: Any) -> Any:
    """log(1 + f) as a sum of two floats, times log2(e) as a sum of two, and e added last."""
    f, e = split(b, x)
    half, rest = tail(b, f)
    with b.no_contract():
        high = b.fadd(f, half)
        low = b.fadd(b.fsub(half, b.fsub(high, f)), rest)
        product = b.fmul(high, b.const(b.t_f32, LOG2E))
        error = b.fma(high, b.const(b.t_f32, LOG2E), b.fneg(product))
        # LOG2E itself is rounded to f32: what is missing counts as well
        missing = LOG2E - _f32(LOG2E)
        error = b.fma(high, b.const(b.t_f32, missing), error)
        error = b.fma(low, b.const(b.t_f32, LOG2E), error)
        return special(b, x, b.fadd(e, b.fadd(product, error)))


def _f32(value: float) -> float:
    import struct

    return float(struct.unpack("f", struct.pack("f", value))[0])


_LOG10_2_HI, _LOG10_2_LO = 0.301025390625, 4.605038981195214e-06  # the first has 12 bits: times an exponent it is exact


@defined("log10", "f32", ulp=1.0)
def log10(b: Any, x: Any) -> Any:
    """As log2, with log10(e) and e log10(2)."""
    f, e = split(b, x)
    half, rest = tail(b, f)
    with b.no_contract():
        high = b.fadd(f, half)
        low = b.fadd(b.fsub(half, b.fsub(high, f)), rest)
        scale = b.const(b.t_f32, LOG10E)
        product = b.fmul(high, scale)
        error = b.fma(high, scale, b.fneg(product))
        error = b.fma(high, b.const(b.t_f32, LOG10E - _f32(LOG10E)), error)
        error = b.fma(low, scale, error)
        error = b.fma(e, b.const(b.t_f32, _LOG10_2_LO), error)
        big = b.fmul(e, b.const(b.t_f32, _LOG10_2_HI))
        # big is 0 or larger than product, so that what their sum loses is known exactly
        total = b.fadd(big, product)
        lost = b.fadd(b.fsub(big, total), product)
        return special(b, x, b.fadd(total, b.fadd(lost, error)))


@defined("log1p", "f32", ulp=1.5)
def log1p(b: Any, x: Any) -> Any:
    """log u for u = 1 + x rounded, plus what the rounding lost, over u. Near 0 f is x itself."""
    with b.no_contract():
        one = b.const(b.t_f32, 1.0)
        u = b.fadd(x, one)
        f, e = split(b, u)
        lost = b.select(b.fcmp("oge", u, b.const(b.t_f32, 2.0)), b.fsub(one, b.fsub(u, x)), b.fsub(x, b.fsub(u, one)))
        near = b.fcmp("oeq", e, b.const(b.t_f32, 0.0))
        f = b.select(near, x, f)
        lost = b.select(b.or_(near, b.fcmp("oeq", u, b.const(b.t_f32, float("inf")))), b.const(b.t_f32, 0.0), b.fdiv(lost, u))
        half, rest = tail(b, f)
        low = b.fadd(b.fma(e, b.const(b.t_f32, LN2_LO), rest), lost)
        low = b.fadd(b.fadd(low, half), f)
        result = special(b, u, b.fma(e, b.const(b.t_f32, LN2_HI), low))
        return b.select(b.fcmp("oeq", x, b.const(b.t_f32, 0.0)), x, result)
