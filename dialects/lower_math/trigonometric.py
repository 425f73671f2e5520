"""sin, cos, tan in f32 for every argument: x = q pi/2 + r, |r| <= pi/4, and polynomials in r.

Up to 105,615 pi/2 is subtracted in three parts with fused multiply-adds (Cody and Waite). Beyond, x is multiplied by those bits
of 2/pi that matter, in integers (Payne and Hanek, "Radian reduction for trigonometric functions", 1983), in a branch.
"""

from __future__ import annotations

from typing import Any

from tilewright.dialects.lower_math.basic import unary
from tilewright.dialects.lower_math.exponential import polynomial
from tilewright.dialects.lower_math.registry import defined

TWO_OVER_PI = 0.6366197723675814
PIO2 = (1.5707963705062866, -4.371138828673793e-08, -1.7151245100058819e-15)
LIMIT = 105615.0
# 2/pi in 32-bit words, after a word of zeros
_WORDS = (0, 0xA2F9836E, 0x4E441529, 0xFC2757D1, 0xF534DDC0, 0xDB629599, 0x3C439041)
_SIN = (-0.16666666641621422, 0.008333329385556145, -0.00019839334771269706, 2.718311097791163e-06)
_COS = (0.04166666662282646, -0.0013888883753311486, 2.4799519989163464e-05, -2.7210236492910547e-07)
_TAN = (0.3333335145441371, 0.1333260965131746, 0.054065564485963294, 0.021254875072827355, 0.01090256734184609,
        9.300311849758572e-06, 0.00441397390351012)


def _large(b: Any, x: Any) -> tuple[Any, Any]:
    """(q mod 4, r) of |x| >= LIMIT by 96 bits of 2/pi."""
    word = b.bitcast(b.fabs(x), b.t_i32)
    at = b.sub(b.lshr(word, b.i32(23)), b.i32(128))  # where the bits that matter begin, in 2/pi after 32 zeros: 15 … 126
    index, shift = b.lshr(at, b.i32(5)), b.zext(b.and_(at, b.i32(31)), b.t_i64)

    def pick(j: int) -> Any:
        value = b.i32(_WORDS[j + 3])
        for i in (2, 1, 0):
            value = b.select(b.icmp("eq", index, b.i32(i)), b.i32(_WORDS[i + j]), value)
        return value

    words = [b.zext(pick(j), b.t_i64) for j in range(4)]
    thirty_two = b.i64(32)

    def funnel(high: Any, low: Any) -> Any:
        """32 bits of high:low from ``shift`` on, as an i64."""
        both = b.shl(b.or_(b.shl(high, thirty_two), low), shift)
        return b.lshr(both, thirty_two)

    high, middle, low = (funnel(words[j], words[j + 1]) for j in range(3))
    significand = b.zext(b.or_(b.shl(word, b.i32(8)), b.i32(-0x80000000)), b.t_i64)
    total = b.add(b.shl(b.mul(significand, high), thirty_two), b.mul(significand, middle))
    total = b.add(total, b.lshr(b.mul(significand, low), thirty_two))  # x 2/pi mod 4, times 2^62
    q = b.lshr(total, b.i64(62))
    fraction = b.and_(total, b.i64((1 << 62) - 1))
    up = b.zext(b.icmp("uge", fraction, b.i64(1 << 61)), b.t_i64)
    fraction = b.sub(fraction, b.shl(up, b.i64(62)))
    r = b.fptrunc(b.fmul(b.sitofp(fraction, b.t_f64), b.const(b.t_f64, 1.5707963267948966 * 2.0**-62)), b.t_f32)
    q = b.trunc(b.add(q, up), b.t_i32)
    negative = b.fcmp("olt", x, b.const(b.t_f32, 0.0))
    return b.select(negative, b.sub(b.i32(0), q), q), b.select(negative, b.fneg(r), r)


def reduce_argument(b: Any, x: Any) -> tuple[Any, Any]:
    """(q as i32, r): x = q pi/2 + r. For NaN and infinity anything; the caller makes NaN of them."""
    magnitude = b.fabs(x)
    large = b.fcmp("oge", magnitude, b.const(b.t_f32, LIMIT))

    def small() -> list[Any]:
        inside = b.select(b.fcmp("olt", magnitude, b.const(b.t_f32, LIMIT)), x, b.const(b.t_f32, 0.0))
        with b.no_contract():
            k = unary(b, "llvm.intr.rint", b.fmul(inside, b.const(b.t_f32, TWO_OVER_PI)))
        r = inside
        for part in PIO2:
            r = b.fma(k, b.const(b.t_f32, -part), r)
        return [b.fptosi(k, b.t_i32), r]

    return tuple(b.if_then_else(large, lambda: list(_large(b, x)), small))  # type: ignore[return-value]


def sin_cos_of(b: Any, r: Any) -> tuple[Any, Any]:
    """(sin r, cos r) for |r| <= pi/4."""
    with b.no_contract():
        z = b.fmul(r, r)
        sine = b.fma(b.fmul(r, z), polynomial(b, z, _SIN), r)
        cosine = b.fma(b.fmul(z, z), polynomial(b, z, _COS), b.fma(z, b.const(b.t_f32, -0.5), b.const(b.t_f32, 1.0)))
    return sine, cosine


def _finite(b: Any, x: Any, result: Any) -> Any:
    return b.select(b.fcmp("olt", b.fabs(x), b.const(x.type, float("inf"))), result, b.const(x.type, float("nan")))


def _negated(b: Any, value: Any, q: Any) -> Any:
    """-value where bit 1 of q is set."""
    sign = b.shl(b.and_(q, b.i32(2)), b.i32(30))
    return b.bitcast(b.xor(b.bitcast(value, b.t_i32), sign), b.t_f32)


@defined("sin", "f32", ulp=1.5)
def sin(b: Any, x: Any) -> Any:
    q, r = reduce_argument(b, x)
    sine, cosine = sin_cos_of(b, r)
    odd = b.icmp("ne", b.and_(q, b.i32(1)), b.i32(0))
    result = _finite(b, x, _negated(b, b.select(odd, cosine, sine), q))
    return b.select(b.fcmp("olt", b.fabs(x), b.const(b.t_f32, 2.0**-12)), x, result)


@defined("cos", "f32", ulp=1.5)
def cos(b: Any, x: Any) -> Any:
    q, r = reduce_argument(b, x)
    sine, cosine = sin_cos_of(b, r)
    odd = b.icmp("ne", b.and_(q, b.i32(1)), b.i32(0))
    return _finite(b, x, _negated(b, b.select(odd, sine, cosine), b.add(q, b.i32(1))))


@defined("tan", "f32", ulp=3.0)
def tan(b: Any, x: Any) -> Any:
    q, r = reduce_argument(b, x)
    with b.no_contract():
        z = b.fmul(r, r)
        tangent = b.fma(b.fmul(r, z), polynomial(b, z, _TAN), r)
    odd = b.icmp("ne", b.and_(q, b.i32(1)), b.i32(0))
    # one division: -1/t where q is odd, t/1 elsewhere
    result = b.fdiv(b.select(odd, b.const(b.t_f32, -1.0), tangent), b.select(odd, tangent, b.const(b.t_f32, 1.0)))
    return b.select(b.fcmp("olt", b.fabs(x), b.const(b.t_f32, 2.0**-12)), x, _finite(b, x, result))
