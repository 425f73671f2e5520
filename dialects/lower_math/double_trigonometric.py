"""f64: sin, cos, tan for every argument, and asin, acos, atan, atan2.

Up to 2^30 pi/2 is subtracted in three parts; beyond, the bits of 2/pi that matter are multiplied in integers, in a branch.
"""

from __future__ import annotations

from typing import Any

from tilewright.dialects.lower_math.basic import unary
from tilewright.dialects.lower_math.exponential import polynomial
from tilewright.dialects.lower_math.registry import defined

_SIN = (-0.16666666666666666, 0.008333333333333323, -0.00019841269841255137, 2.7557319214227256e-06, -2.5052104921386603e-08,
        1.6058367900730353e-10, -7.578762161962309e-13)
_COS = (0.041666666666666664, -0.0013888888888888874, 2.4801587301571537e-05, -2.755731921539387e-07, 2.0876754370245738e-09,
        -1.1470293732261223e-11, 4.738130143567357e-14)
_ATAN = (-0.33333333333333326, 0.19999999999997692, -0.14285714285390852, 0.11111111088358426, -0.09090908151134965,
         0.0769228290956764, -0.06666229003673753, 0.058770439384928284, -0.05218547697956542, 0.0450413494407055,
         -0.03348814643930149, 0.015209110381683577)
_ASIN = (0.1666666666666666, 0.07500000000002542, 0.044642857139677694, 0.030381944645185816, 0.022372151588208638,
         0.017352945499079862, 0.013961872276842955, 0.011585974415120213, 0.009482064960293704, 0.010018726687122552,
         0.0006525666817098951, 0.024890455922936188, -0.026231234871448593, 0.033690394727088284)
PIO2 = (1.5707963267948966, 6.123233995736766e-17, -1.4973849048591698e-33)
PI, PIO4 = 3.141592653589793, 0.7853981633974483
LIMIT = 2.0**30
# 2/pi in 64-bit words, after a word of zeros
_WORDS = (0, 0xA2F9836E4E441529, 0xFC2757D1F534DDC0, 0xDB6295993C439041, 0xFE5163ABDEBBC561, 0xB7246E3A424DD2E0, 0x06492EEA09D1921C,
          0xFE1DEB1CB129A73E, 0xE88235F52EBB4484, 0xE99C7026B45F7E41, 0x3991D639835339F4, 0x9C845F8BBDF9283B, 0x1FF897FFDE05980F,
          0xEF2F118B5A0A6D1F, 0x6D367ECF27CB09B7, 0x4F463F669E5FEA2D, 0x7527BAC7EBE5F17B, 0x3D0739F78A5292EA, 0x6BFB5FB11F8D5D08)


def _c(b: Any, value: float) -> Any:
    return b.const(b.t_f64, value)


def _large(b: Any, x: Any) -> list[Any]:
    """[q mod 4, r] of |x| >= 2^30 by 192 bits of 2/pi."""
    from tilewright.dialects.lowering.elementwise import mulhi_unsigned

    word = b.bitcast(b.fabs(x), b.t_i64)
    at = b.sub(b.lshr(word, b.i64(52)), b.i64(1024))  # where the bits that matter begin, in 2/pi after 64 zeros
    index, shift = b.trunc(b.lshr(at, b.i64(6)), b.t_i32), b.and_(at, b.i64(63))
    is_index = [b.icmp("eq", index, b.i32(i)) for i in range(15)]
    back = b.sub(b.i64(63), shift)

    def pick(j: int) -> Any:
        value = b.i64(_WORDS[j + 15])
        for i in reversed(range(15)):
            value = b.select(is_index[i], b.i64(_WORDS[i + j]), value)
        return value

    words = [pick(j) for j in range(4)]

    def funnel(high: Any, low: Any) -> Any:
        return b.or_(b.shl(high, shift), b.lshr(b.lshr(low, b.i64(1)), back))

    high, middle, low = (funnel(words[j], words[j + 1]) for j in range(3))
    significand = b.or_(b.shl(word, b.i64(11)), b.i64(-(1 << 63)))
    first, second = b.mul(significand, middle), mulhi_unsigned(b, significand, low)
    rest = b.add(first, second)
    carry = b.zext(b.icmp("ult", rest, first), b.t_i64)
    top = b.add(b.add(b.mul(significand, high), mulhi_unsigned(b, significand, middle)), carry)
    # x 2/pi mod 4, times 2^62, is top + rest / 2^64
    q = b.lshr(top, b.i64(62))
    fraction = b.and_(top, b.i64((1 << 62) - 1))
    up = b.zext(b.icmp("uge", fraction, b.i64(1 << 61)), b.t_i64)
    fraction = b.sub(fraction, b.shl(up, b.i64(62)))
    # as a sum of two: the first is exact
    large = b.sitofp(b.and_(fraction, b.i64(-(1 << 12))), b.t_f64)
    with b.no_contract():
        small = b.fadd(b.sitofp(b.and_(fraction, b.i64((1 << 12) - 1)), b.t_f64), b.fmul(b.uitofp(rest, b.t_f64), _c(b, 2.0**-64)))
        total = b.fadd(large, small)
        lost = b.fadd(b.fsub(large, total), small)
        scale, scale_low = _c(b, PIO2[0] * 2.0**-62), _c(b, PIO2[1] * 2.0**-62)
        product = b.fmul(total, scale)
        error = b.fma(total, scale, b.fneg(product))
        error = b.fma(lost, scale, b.fma(total, scale_low, error))
        r = b.fadd(product, error)
    q = b.trunc(b.add(q, up), b.t_i32)
    negative = b.fcmp("olt", x, _c(b, 0.0))
    return [b.select(negative, b.sub(b.i32(0), q), q), b.select(negative, b.fneg(r), r)]


def _reduce(b: Any, x: Any) -> list[Any]:
    """[q as i32, r]: x = q pi/2 + r; for NaN and infinity anything."""
    magnitude = b.fabs(x)

    def small() -> list[Any]:
        inside = b.select(b.fcmp("olt", magnitude, _c(b, LIMIT)), x, _c(b, 0.0))
        with b.no_contract():
            k = unary(b, "llvm.intr.rint", b.fmul(inside, _c(b, 0.6366197723675814)))
        r = inside
        for part in PIO2:
            r = b.fma(k, _c(b, -part), r)
        return [b.trunc(b.fptosi(k, b.t_i64), b.t_i32), r]

    return list(b.if_then_else(b.fcmp("oge", magnitude, _c(b, LIMIT)), lambda: _large(b, x), small))


def _sin_cos(b: Any, r: Any) -> tuple[Any, Any]:
    with b.no_contract():
        z = b.fmul(r, r)
        sine = b.fma(b.fmul(r, z), polynomial(b, z, _SIN), r)
        # 1 - z/2 loses bits that are added back
        half = b.fmul(z, _c(b, 0.5))
        top = b.fsub(_c(b, 1.0), half)
        lost = b.fsub(b.fsub(_c(b, 1.0), top), half)
        cosine = b.fadd(top, b.fma(b.fmul(z, z), polynomial(b, z, _COS), lost))
    return sine, cosine


def _finite(b: Any, x: Any, result: Any) -> Any:
    return b.select(b.fcmp("olt", b.fabs(x), _c(b, float("inf"))), result, _c(b, float("nan")))


def _signed(b: Any, value: Any, q: Any) -> Any:
    sign = b.shl(b.zext(b.and_(q, b.i32(2)), b.t_i64), b.i64(62))
    return b.bitcast(b.xor(b.bitcast(value, b.t_i64), sign), b.t_f64)


def _is_odd(b: Any, q: Any) -> Any:
    return b.icmp("ne", b.and_(q, b.i32(1)), b.i32(0))


@defined("sin", "f64", ulp=1.5)
def sin(b: Any, x: Any) -> Any:
    q, r = _reduce(b, x)
    sine, cosine = _sin_cos(b, r)
    result = _finite(b, x, _signed(b, b.select(_is_odd(b, q), cosine, sine), q))
    return b.select(b.fcmp("olt", b.fabs(x), _c(b, 2.0**-27)), x, result)


@defined("cos", "f64", ulp=1.5)
def cos(b: Any, x: Any) -> Any:
    q, r = _reduce(b, x)
    sine, cosine = _sin_cos(b, r)
    return _finite(b, x, _signed(b, b.select(_is_odd(b, q), sine, cosine), b.add(q, b.i32(1))))


@defined("tan", "f64", ulp=3.0)
def tan(b: Any, x: Any) -> Any:
    q, r = _reduce(b, x)
    sine, cosine = _sin_cos(b, r)
    odd = _is_odd(b, q)
    result = b.fdiv(b.select(odd, b.fneg(cosine), sine), b.select(odd, sine, cosine))
    return b.select(b.fcmp("olt", b.fabs(x), _c(b, 2.0**-27)), x, _finite(b, x, result))


# ------------------------------------------------------------------------------------------------------- inverse
def _odd(b: Any, x: Any, z: Any, coefficients: Any) -> Any:
    with b.no_contract():
        return b.fma(b.fmul(x, z), polynomial(b, z, coefficients), x)


def _from(b: Any, high: float, low: float, x: Any) -> Any:
    """(high + low) - x."""
    with b.no_contract():
        return b.fadd(b.fsub(_c(b, high), x), _c(b, low))


def _asin_parts(b: Any, x: Any) -> tuple[Any, Any, Any]:
    """(is |x| <= 1/2, asin |x| there, 2 asin sqrt((1 - |x|) / 2) elsewhere)."""
    magnitude = b.fabs(x)
    small = b.fcmp("ole", magnitude, _c(b, 0.5))
    with b.no_contract():
        half = b.fma(magnitude, _c(b, -0.5), _c(b, 0.5))
        z = b.select(small, b.fmul(magnitude, magnitude), half)
        value = _odd(b, b.select(small, magnitude, unary(b, "llvm.intr.sqrt", half)), z, _ASIN)
        return small, value, b.fadd(value, value)


@defined("asin", "f64", ulp=2.0)
def asin(b: Any, x: Any) -> Any:
    small, near, twice = _asin_parts(b, x)
    return b.copysign(b.select(small, near, _from(b, PIO2[0], PIO2[1], twice)), x)


@defined("acos", "f64", ulp=2.0)
def acos(b: Any, x: Any) -> Any:
    small, near, twice = _asin_parts(b, x)
    reflected = _from(b, PI, 2 * PIO2[1], twice)
    far = b.select(b.fcmp("olt", x, _c(b, 0.0)), reflected, twice)
    return b.select(small, _from(b, PIO2[0], PIO2[1], b.copysign(near, x)), far)


def _atan_of_unit(b: Any, x: Any) -> Any:
    """atan x for 0 <= x <= 1: above tan(pi/8) it is pi/4 + atan((x - 1) / (x + 1))."""
    steep = b.fcmp("ogt", x, _c(b, 0.41421356237309503))
    with b.no_contract():
        one = _c(b, 1.0)
        t = b.select(steep, b.fdiv(b.fsub(x, one), b.fadd(x, one)), x)
        value = _odd(b, t, b.fmul(t, t), _ATAN)
        return b.select(steep, b.fadd(_c(b, PIO4), b.fadd(value, _c(b, PIO2[1] / 2))), value)


@defined("atan", "f64", ulp=2.0)
def atan(b: Any, x: Any) -> Any:
    magnitude = b.fabs(x)
    large = b.fcmp("ogt", magnitude, _c(b, 1.0))
    value = _atan_of_unit(b, b.select(large, b.fdiv(_c(b, 1.0), magnitude), magnitude))
    return b.copysign(b.select(large, _from(b, PIO2[0], PIO2[1], value), value), x)


@defined("atan2", "f64", ulp=2.5, arity=2)
def atan2(b: Any, y: Any, x: Any) -> Any:
    """The angle of (x, y), with C's signs at zeros and infinities."""
    ax, ay = b.fabs(x), b.fabs(y)
    steep = b.fcmp("ogt", ay, ax)
    low, high = b.select(steep, ax, ay), b.select(steep, ay, ax)
    quotient = b.select(b.fcmp("oeq", high, _c(b, 0.0)), _c(b, 0.0), b.fdiv(low, high))
    quotient = b.select(b.fcmp("oeq", low, _c(b, float("inf"))), _c(b, 1.0), quotient)
    angle = _atan_of_unit(b, quotient)
    angle = b.select(steep, _from(b, PIO2[0], PIO2[1], angle), angle)
    left = b.icmp("slt", b.bitcast(x, b.t_i64), b.i64(0))
    result = b.copysign(b.select(left, _from(b, PI, 2 * PIO2[1], angle), angle), y)
    with b.no_contract():
        return b.select(b.fcmp("uno", x, y), b.fadd(x, y), result)
