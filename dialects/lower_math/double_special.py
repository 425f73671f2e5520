"""f64: pow, exp10, cbrt, hypot, erf, erfc, asinh, acosh, atanh."""

from __future__ import annotations

from typing import Any

from tilewright.dialects.lower_math.basic import unary
from tilewright.dialects.lower_math.double import LN2, exp, log1p
from tilewright.dialects.lower_math.exponential import polynomial
from tilewright.dialects.lower_math.registry import defined

LOG2E, LOG2E_LO = 1.4426950408889634, 2.0355273740931033e-17
_EXP2 = (0.6931471805599453, 0.24022650695910072, 0.0555041086648217, 0.009618129107628479, 0.001333355814638979,
         0.00015403530393374282, 1.5252733856869821e-05, 1.3215486804193408e-06, 1.0178050937725484e-07, 7.05489961148719e-09,
         4.4567160413236166e-10, 2.5725243130721564e-11)
_ATANH = (0.3333333333333333, 0.19999999999999968, 0.1428571428572928, 0.11111111107674257, 0.09090909536126263, 0.07692272910449001,
          0.06668336269512028, 0.05834312873123526, 0.06017118895225111)
_ERF = (0.1283791670955126, -0.3761263890318375, 0.11283791670954885, -0.02686617064507787, 0.0052239776248284185,
        -0.0008548326981425329, 0.00012055331132962833, -1.4925595772663568e-05, 1.646100849000331e-06, -1.6350396394040655e-07,
        1.4660330123057758e-08, -1.137496199969511e-09, 5.960697205826077e-11)
_ERFCX = (0.25539567631050575, -0.4271858474139584, 0.24165819424246626, -0.07897858101573363, 0.0037328924043607665,
          0.006997461739307291, -0.0008471432529389998, -0.0009819770290048727, 4.3555662859500584e-05, 0.00017436115857076166,
          2.7524522535281618e-05, -2.7578813135405515e-05, -1.3960616335998578e-05, 1.3776204393878033e-06, 3.7717964391170413e-06,
          1.2480255624246586e-06, -6.144307199156391e-07, -3.582083898898517e-07, 2.1990370543043048e-07, -8.915563016970231e-07,
          1.0812690224349792e-06, -4.926613128087735e-07, 8.034202931403898e-08)
_CBRT = (0.313648907176498, 1.7967526397646212, -2.680719254370447, 2.453342790709552, -0.884889876016735)


def _c(b: Any, value: float) -> Any:
    return b.const(b.t_f64, value)


def _log2_sum(b: Any, x: Any) -> tuple[Any, Any]:
    """log2 of a positive finite number as a sum of two, by log(1 + f) = 2 atanh(s), s = f / (2 + f) as a sum of two."""
    tiny = b.fcmp("olt", x, _c(b, 2.0**-1022))
    with b.no_contract():
        word = b.bitcast(b.select(tiny, b.fmul(x, _c(b, 2.0**52)), x), b.t_i64)
        e = b.ashr(b.sub(word, b.i64(0x3FE6A09E667F3BCD)), b.i64(52))
        f = b.fsub(b.bitcast(b.sub(word, b.shl(e, b.i64(52))), b.t_f64), _c(b, 1.0))
        exponent = b.sitofp(b.sub(e, b.select(tiny, b.i64(52), b.i64(0))), b.t_f64)
        two = _c(b, 2.0)
        divisor = b.fadd(f, two)
        divisor_low = b.fsub(f, b.fsub(divisor, two))
        s = b.fdiv(f, divisor)
        s_low = b.fdiv(b.fma(b.fneg(s), divisor_low, b.fma(b.fneg(s), divisor, f)), divisor)
        square = b.fmul(s, s)
        rest = b.fma(b.fmul(square, s), polynomial(b, square, _ATANH), s_low)
        twice, rest = b.fadd(s, s), b.fadd(rest, rest)
        product = b.fmul(twice, _c(b, LOG2E))
        error = b.fma(twice, _c(b, LOG2E), b.fneg(product))
        error = b.fma(twice, _c(b, LOG2E_LO), error)
        error = b.fma(rest, _c(b, LOG2E), error)
        total = b.fadd(exponent, product)
        lost = b.fadd(b.fsub(exponent, total), product)
        low = b.fadd(lost, error)
        high = b.fadd(total, low)
        return high, b.fadd(b.fsub(total, high), low)


def _exp2_sum(b: Any, high: Any, low: Any) -> Any:
    """2^(high + low) for |high| <= 1100, rounded once more where subnormal; infinity where too large."""
    n = unary(b, "llvm.intr.rint", high)
    with b.no_contract():
        r = b.fadd(b.fsub(high, n), low)
        power = b.fma(r, polynomial(b, r, _EXP2), _c(b, 1.0))
        number = b.fptosi(n, b.t_i64)
        half = b.ashr(number, b.i64(1))

        def scale(k: Any) -> Any:
            return b.bitcast(b.shl(b.add(k, b.i64(1023)), b.i64(52)), b.t_f64)

        return b.fmul(b.fmul(power, scale(half)), scale(b.sub(number, half)))


@defined("pow", "f64", ulp=16.0, arity=2)
def pow(b: Any, x: Any, y: Any) -> Any:
    """2^(y log2 |x|) with the logarithm as a sum of two; the sign by y's parity. C's special values."""
    zero, one, infinity = (_c(b, v) for v in (0.0, 1.0, float("inf")))
    magnitude = b.fabs(x)
    regular = b.and_(b.fcmp("ogt", magnitude, zero), b.fcmp("olt", magnitude, infinity))
    high, low = _log2_sum(b, b.select(regular, magnitude, one))
    with b.no_contract():
        product = b.fmul(y, high)
        bound = _c(b, 1100.0)
        inside = b.fcmp("olt", b.fabs(product), bound)
        error = b.fma(y, low, b.fma(y, high, b.fneg(product)))
    # infinite y at |x| = 1 makes NaN here, and 1 there
    limit = b.select(b.fcmp("uno", product, product), zero, b.copysign(bound, product))
    result = _exp2_sum(b, b.select(inside, product, limit), b.select(inside, error, zero))
    grows = b.xor(b.fcmp("oeq", magnitude, zero), b.fcmp("ogt", y, zero))
    result = b.select(regular, result, b.select(grows, infinity, zero))
    whole = unary(b, "llvm.intr.trunc", y)
    is_integer = b.fcmp("oeq", whole, y)
    with b.no_contract():
        half = b.fmul(y, _c(b, 0.5))
    is_odd = b.and_(is_integer, b.fcmp("one", unary(b, "llvm.intr.trunc", half), half))
    result = b.select(is_odd, b.copysign(result, x), result)
    bad = b.and_(b.and_(b.fcmp("olt", x, zero), regular), b.xor(is_integer, b.i1(1)))
    result = b.select(b.or_(bad, b.fcmp("uno", x, y)), _c(b, float("nan")), result)
    return b.select(b.or_(b.fcmp("oeq", y, zero), b.fcmp("oeq", x, one)), one, result)


@defined("exp10", "f64", ulp=1.5)
def exp10(b: Any, x: Any) -> Any:
    """2^(x log2(10)), the product as a sum of two."""
    low, high = _c(b, -330.0), _c(b, 330.0)
    inside = b.op("llvm.intr.minnum", (b.op("llvm.intr.maxnum", (x, low), (b.t_f64,)).result, high), (b.t_f64,)).result
    with b.no_contract():
        product = b.fmul(inside, _c(b, 3.321928094887362))
        error = b.fma(inside, _c(b, 3.321928094887362), b.fneg(product))
        error = b.fma(inside, _c(b, 1.661617516973592e-16), error)
    result = _exp2_sum(b, product, error)
    result = b.select(b.fcmp("olt", result, _c(b, 2.0**-1022)), _c(b, 0.0), result)
    return b.select(b.fcmp("uno", x, x), x, result)


@defined("cbrt", "f64", ulp=1.0)
def cbrt(b: Any, x: Any) -> Any:
    """|x| = m 8^n with m in [1/8, 1): a polynomial and three steps of Newton's iteration, the last with the residual by fma."""
    magnitude = b.fabs(x)
    tiny = b.fcmp("olt", magnitude, _c(b, 2.0**-1022))
    with b.no_contract():
        word = b.bitcast(b.select(tiny, b.fmul(magnitude, _c(b, 2.0**54)), magnitude), b.t_i64)
        exponent = b.sub(b.trunc(b.lshr(word, b.i64(52)), b.t_i32), b.i32(1022))
        n = b.sub(b.udiv(b.add(exponent, b.i32(1202)), b.i32(3)), b.i32(400))
        m = b.bitcast(b.sub(word, b.shl(b.zext(b.mul(n, b.i32(3)), b.t_i64), b.i64(52))), b.t_f64)
        root = polynomial(b, m, _CBRT)
        for _ in range(2):
            root = b.fma(b.fsub(b.fdiv(m, b.fmul(root, root)), root), _c(b, 1 / 3), root)
        # root - (root^3 - m) / (3 root^2) with root^3 exact to twice the places
        square = b.fmul(root, root)
        square_low = b.fma(root, root, b.fneg(square))
        cube = b.fmul(square, root)
        residual = b.fadd(b.fsub(cube, m), b.fma(square_low, root, b.fma(square, root, b.fneg(cube))))
        root = b.fsub(root, b.fdiv(residual, b.fmul(square, _c(b, 3.0))))
    n = b.sub(n, b.select(tiny, b.i32(18), b.i32(0)))
    scaled = b.bitcast(b.add(b.bitcast(root, b.t_i64), b.shl(b.sext(n, b.t_i64), b.i64(52))), b.t_f64)
    plain = b.and_(b.fcmp("olt", magnitude, _c(b, float("inf"))), b.fcmp("one", x, _c(b, 0.0)))
    return b.select(plain, b.copysign(scaled, x), x)


@defined("hypot", "f64", ulp=1.5, arity=2)
def hypot(b: Any, x: Any, y: Any) -> Any:
    """sqrt(x^2 + y^2), both scaled by the power of two next to the larger, so that nothing overflows or is lost."""
    ax, ay = b.fabs(x), b.fabs(y)
    larger = b.fcmp("ogt", ax, ay)
    high, low = b.select(larger, ax, ay), b.select(larger, ay, ax)
    infinity = _c(b, float("inf"))
    # in two steps, since subnormal numbers need more than one factor
    with b.no_contract():
        big, tiny = b.fcmp("ogt", high, _c(b, 2.0**500)), b.fcmp("olt", high, _c(b, 2.0**-450))
        down, up = _c(b, 2.0**-600), _c(b, 2.0**600)
        factor = b.select(big, down, b.select(tiny, up, _c(b, 1.0)))
        back = b.select(big, up, b.select(tiny, down, _c(b, 1.0)))
        p, q = b.fmul(high, factor), b.fmul(low, factor)
        root = unary(b, "llvm.intr.sqrt", b.fma(p, p, b.fmul(q, q)))
        result = b.fmul(root, back)
    infinite = b.or_(b.fcmp("oeq", ax, infinity), b.fcmp("oeq", ay, infinity))
    return b.select(infinite, infinity, result)


def _erf_small(b: Any, x: Any) -> Any:
    with b.no_contract():
        return b.fma(x, polynomial(b, b.fmul(x, x), _ERF), x)


def erfcx_far(b: Any, x: Any) -> Any:
    """e^(x^2) erfc(x) for x >= 1: a polynomial up to 28, the asymptotic series (Abramowitz & Stegun 7.1.23) beyond."""
    with b.no_contract():
        two, end = _c(b, 2.0), _c(b, 28.0)
        capped = b.op("llvm.intr.minnum", (x, end), (b.t_f64,)).result
        near = polynomial(b, b.fdiv(b.fsub(capped, two), b.fadd(capped, two)), _ERFCX)
        inverse = b.fdiv(_c(b, 1.0), x)
        series = polynomial(b, b.fmul(inverse, inverse), (1.0, -0.5, 0.75, -1.875, 6.5625, -29.53125, 162.421875))
        far = b.fmul(b.fmul(inverse, _c(b, 0.5641895835477563)), series)
        return b.select(b.fcmp("ogt", x, end), far, near)


def _erfc_far(b: Any, x: Any) -> Any:
    """erfc x for x >= 1; 0 below the least normal number."""
    with b.no_contract():
        capped = b.op("llvm.intr.minnum", (x, _c(b, 27.5)), (b.t_f64,)).result
        square = b.fmul(capped, capped)
        lost = b.fma(capped, capped, b.fneg(square))
        two = _c(b, 2.0)
        scaled = polynomial(b, b.fdiv(b.fsub(capped, two), b.fadd(capped, two)), _ERFCX)
        power = exp(b, b.fneg(square))
        result = b.fmul(b.fma(power, b.fneg(lost), power), scaled)
        return b.select(b.fcmp("olt", result, _c(b, 2.0**-1022)), _c(b, 0.0), result)


@defined("erf", "f64", ulp=1.5)
def erf(b: Any, x: Any) -> Any:
    magnitude = b.fabs(x)
    with b.no_contract():
        far = b.fsub(_c(b, 1.0), _erfc_far(b, magnitude))
    result = b.select(b.fcmp("olt", magnitude, _c(b, 1.0)), _erf_small(b, magnitude), far)
    return b.select(b.fcmp("uno", x, x), x, b.copysign(result, x))


@defined("erfc", "f64", ulp=12.0)
def erfc(b: Any, x: Any) -> Any:
    magnitude = b.fabs(x)
    right = _erfc_far(b, magnitude)
    with b.no_contract():
        near = b.fsub(_c(b, 1.0), b.copysign(_erf_small(b, magnitude), x))
        left = b.fsub(_c(b, 2.0), right)
    far = b.select(b.fcmp("olt", x, _c(b, 0.0)), left, right)
    # between 1/2 and 1 the difference 1 - erf loses up to three bits
    return b.select(b.fcmp("uno", x, x), x, b.select(b.fcmp("olt", magnitude, _c(b, 1.0)), near, far))


@defined("asinh", "f64", ulp=3.0)
def asinh(b: Any, x: Any) -> Any:
    """log1p(|x| + x^2 / (1 + sqrt(1 + x^2)))."""
    magnitude = b.fabs(x)
    huge = b.fcmp("ogt", magnitude, _c(b, 2.0**500))
    with b.no_contract():
        square = b.fmul(magnitude, magnitude)
        root = unary(b, "llvm.intr.sqrt", b.fadd(square, _c(b, 1.0)))
        argument = b.fadd(magnitude, b.fdiv(square, b.fadd(root, _c(b, 1.0))))
        result = log1p(b, b.select(huge, magnitude, argument))
        result = b.fadd(result, b.select(huge, _c(b, LN2), _c(b, 0.0)))
    return b.copysign(result, x)


@defined("acosh", "f64", ulp=3.0)
def acosh(b: Any, x: Any) -> Any:
    huge = b.fcmp("ogt", x, _c(b, 2.0**500))
    with b.no_contract():
        t = b.fsub(x, _c(b, 1.0))
        root = unary(b, "llvm.intr.sqrt", b.fma(t, t, b.fadd(t, t)))
        result = log1p(b, b.select(huge, t, b.fadd(t, root)))
        result = b.fadd(result, b.select(huge, _c(b, LN2), _c(b, 0.0)))
    return b.select(b.fcmp("olt", x, _c(b, 1.0)), _c(b, float("nan")), result)


@defined("atanh", "f64", ulp=3.0)
def atanh(b: Any, x: Any) -> Any:
    magnitude = b.fabs(x)
    with b.no_contract():
        quotient = b.fdiv(b.fadd(magnitude, magnitude), b.fsub(_c(b, 1.0), magnitude))
        result = b.fmul(log1p(b, quotient), _c(b, 0.5))
    # below this 2x / (1 - x) would lose the last place of subnormal numbers
    return b.select(b.fcmp("olt", magnitude, _c(b, 2.0**-28)), x, b.copysign(result, x))
