"""erf, erfc, pow, cbrt, hypot in f32."""

from __future__ import annotations

from typing import Any

from tilewright.dialects.lower_math.basic import unary
from tilewright.dialects.lower_math.exponential import exp, polynomial
from tilewright.dialects.lower_math.registry import defined

_ERF = (0.12837916669221303, -0.37612634187796423, 0.1128370161098005, -0.02685970184057743, 0.00520171512697057,
        -0.0008149796272479737, 8.39775835457073e-05)
_ERF_TAIL = (0.0001640058908519831, -1.129453537278624, -0.6334985455738428, -0.10807009480769666, 0.02494123662493015,
             -0.004076258733020308, 0.0004035982182055629, -1.547655774753732e-05, -4.376631682680423e-07)
_ERFCX = (0.25539567630956506, -0.42718584739404697, 0.24165819447297376, -0.07897858323035134, 0.0037328844077577365,
          0.006997530993287709, -0.0008470777003117963, -0.000982847697030775, 4.385614283648055e-05, 0.0001789499971070628,
          2.2450035272342783e-05, -3.544598600789872e-05)
_SPLIT = 0.921875


def _erf_small(b: Any, x: Any) -> Any:
    with b.no_contract():
        return b.fma(x, polynomial(b, b.fmul(x, x), _ERF), x)


@defined("erf", "f32", ulp=1.5)
def erf(b: Any, x: Any) -> Any:
    """x + x P(x^2), or 1 - e^P(|x|) further out; 1 from 4 on."""
    magnitude = b.fabs(x)
    with b.no_contract():
        capped = b.op("llvm.intr.minnum", (magnitude, b.const(b.t_f32, 4.0)), (b.t_f32,)).result
        tail = b.fsub(b.const(b.t_f32, 1.0), exp(b, polynomial(b, capped, _ERF_TAIL)))
    result = b.select(b.fcmp("olt", magnitude, b.const(b.t_f32, _SPLIT)), _erf_small(b, magnitude), tail)
    return b.select(b.fcmp("uno", x, x), x, b.copysign(result, x))


@defined("erfc", "f32", ulp=9.0)
def erfc(b: Any, x: Any) -> Any:
    """1 - erf x near 0; e^(-x^2) P((x - 2) / (x + 2)) on the right, 2 minus that on the left. Subnormal results are flushed."""
    magnitude = b.fabs(x)
    one, two = b.const(b.t_f32, 1.0), b.const(b.t_f32, 2.0)
    with b.no_contract():
        near = b.fsub(one, b.copysign(_erf_small(b, magnitude), x))
        capped = b.op("llvm.intr.minnum", (magnitude, b.const(b.t_f32, 10.1)), (b.t_f32,)).result
        square = b.fmul(capped, capped)
        lost = b.fma(capped, capped, b.fneg(square))
        scaled = polynomial(b, b.fdiv(b.fsub(capped, two), b.fadd(capped, two)), _ERFCX)
        power = exp(b, b.fneg(square))
        power = b.fma(power, b.fneg(lost), power)
        right = b.fmul(power, scaled)
        right = b.select(b.fcmp("olt", right, b.const(b.t_f32, 2.0**-126)), b.const(b.t_f32, 0.0), right)
        far = b.select(b.fcmp("olt", x, b.const(b.t_f32, 0.0)), b.fsub(two, right), right)
    result = b.select(b.fcmp("olt", magnitude, b.const(b.t_f32, _SPLIT)), near, far)
    return b.select(b.fcmp("uno", x, x), x, result)


@defined("pow", "f32", ulp=1.0, arity=2)
def pow(b: Any, x: Any, y: Any) -> Any:
    """2^(y log2 |x|) in f64, rounded once (subnormal results too); the sign by y's parity. C's special values."""
    from tilewright.dialects.lower_math.double import exp2_inside, log2_of_positive

    zero, one, infinity = (b.const(b.t_f32, v) for v in (0.0, 1.0, float("inf")))
    magnitude = b.fabs(x)
    regular = b.and_(b.fcmp("ogt", magnitude, zero), b.fcmp("olt", magnitude, infinity))
    logarithm = log2_of_positive(b, b.fpext(b.select(regular, magnitude, one), b.t_f64))
    with b.no_contract():
        exponent = b.fmul(b.fpext(y, b.t_f64), logarithm)
    exponent = b.select(b.fcmp("uno", exponent, exponent), b.const(b.t_f64, 0.0), exponent)  # infinite y at |x| = 1
    low, high = b.const(b.t_f64, -200.0), b.const(b.t_f64, 200.0)
    exponent = b.select(b.fcmp("olt", exponent, low), low, exponent)
    exponent = b.select(b.fcmp("ogt", exponent, high), high, exponent)
    result = b.fptrunc(exp2_inside(b, exponent), b.t_f32)
    # |x| is 0 or infinite
    grows = b.xor(b.fcmp("oeq", magnitude, zero), b.fcmp("ogt", y, zero))
    result = b.select(regular, result, b.select(grows, infinity, zero))
    # y an odd integer gives x's sign, y no integer NaN for finite x < 0
    whole = unary(b, "llvm.intr.trunc", y)
    is_integer = b.fcmp("oeq", whole, y)
    with b.no_contract():
        half = b.fmul(y, b.const(b.t_f32, 0.5))
    is_odd = b.and_(is_integer, b.fcmp("one", unary(b, "llvm.intr.trunc", half), half))
    result = b.select(is_odd, b.copysign(result, x), result)
    bad = b.and_(b.and_(b.fcmp("olt", x, zero), regular), b.xor(is_integer, b.i1(1)))
    result = b.select(bad, b.const(b.t_f32, float("nan")), result)
    result = b.select(b.fcmp("uno", x, y), b.const(b.t_f32, float("nan")), result)
    return b.select(b.or_(b.fcmp("oeq", y, zero), b.fcmp("oeq", x, one)), one, result)


@defined("cbrt", "f32", ulp=1.0)
def cbrt(b: Any, x: Any) -> Any:
    """|x| = m 8^n with m in [1/8, 1): a polynomial and two steps of Newton's iteration in f64."""
    magnitude = b.fpext(b.fabs(x), b.t_f64)
    word = b.bitcast(magnitude, b.t_i64)
    exponent = b.sub(b.trunc(b.lshr(word, b.i64(52)), b.t_i32), b.i32(1022))
    # the floor of (exponent + 2) / 3, of non-negative numbers
    n = b.sub(b.udiv(b.add(exponent, b.i32(302)), b.i32(3)), b.i32(100))
    m = b.bitcast(b.sub(word, b.shl(b.zext(b.mul(n, b.i32(3)), b.t_i64), b.i64(52))), b.t_f64)
    root = polynomial(b, m, (0.313648907176498, 1.7967526397646212, -2.680719254370447, 2.453342790709552, -0.884889876016735))
    for _ in range(2):
        quotient = b.fdiv(m, b.fmul(root, root))
        root = b.fma(b.fsub(quotient, root), b.const(b.t_f64, 1 / 3), root)
    scaled = b.bitcast(b.add(b.bitcast(root, b.t_i64), b.shl(b.sext(n, b.t_i64), b.i64(52))), b.t_f64)
    result = b.copysign(b.fptrunc(scaled, b.t_f32), x)
    plain = b.and_(b.fcmp("olt", b.fabs(x), b.const(b.t_f32, float("inf"))), b.fcmp("one", x, b.const(b.t_f32, 0.0)))
    return b.select(plain, result, x)


@defined("hypot", "f32", ulp=0.6, arity=2)
def hypot(b: Any, x: Any, y: Any) -> Any:
    """In f64, where the squares are exact and nothing overflows. Infinite where either is, NaN or not."""
    wide_x, wide_y = b.fpext(x, b.t_f64), b.fpext(y, b.t_f64)
    result = b.fptrunc(unary(b, "llvm.intr.sqrt", b.fma(wide_x, wide_x, b.fmul(wide_y, wide_y))), b.t_f32)
    infinity = b.const(b.t_f32, float("inf"))
    infinite = b.or_(b.fcmp("oeq", b.fabs(x), infinity), b.fcmp("oeq", b.fabs(y), infinity))
    return b.select(infinite, infinity, result)
