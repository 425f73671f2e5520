"""exp, exp2, exp10, expm1 in f32: x = n ln 2 + r, a polynomial in r, and n added to the exponent.

Results below the least normal number are flushed to 0 in exp, exp2 and exp10, on every target (see docs/math_accuracy.md).
Polynomials by Remez exchange: tests/dialects/lower_math/fit.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright.dialects.lower_math.basic import unary
from tilewright.dialects.lower_math.registry import defined

LOG2E = 1.4426950408889634
LN2_HI, LN2_LO = 0.693145751953125, 1.4286068203094173e-06  # the first has 15 bits, so that n * LN2_HI is exact
_EXP = (0.5000000095007023, 0.16666518898189228, 0.04166620633631739, 0.008368882363353836, 0.0013950458094355194)
_EXP2 = (0.6931472076754913, 0.2402265072881747, 0.0555032517889401, 0.009618097328392325, 0.001340123689167444,
         0.00015445393220689556)


def polynomial(b: Any, x: Any, coefficients: Sequence[float]) -> Any:
    """c0 + c1 x + … by Horner's rule with fused multiply-adds."""
    total = b.const(x.type, coefficients[-1])
    for c in reversed(coefficients[:-1]):
        total = b.fma(total, x, b.const(x.type, c))
    return total


def scale_by_power(b: Any, x: Any, n: Any) -> Any:
    """x * 2^n for an i32 n where x and the result are normal: n is added to x's exponent."""
    return b.bitcast(b.add(b.bitcast(x, b.t_i32), b.shl(n, b.i32(23))), b.t_f32)


def finish(b: Any, x: Any, result: Any, low: float, high: float) -> Any:
    """0 below ``low``, infinity above ``high``, NaN for NaN."""
    result = b.select(b.fcmp("olt", x, b.const(b.t_f32, low)), b.const(b.t_f32, 0.0), result)
    result = b.select(b.fcmp("ogt", x, b.const(b.t_f32, high)), b.const(b.t_f32, float("inf")), result)
    return b.select(b.fcmp("uno", x, x), x, result)


def clamp(b: Any, x: Any, low: float, high: float) -> Any:
    """x within bounds, so that conversions to integers are defined; NaN becomes a bound."""
    x = b.op("llvm.intr.maxnum", (x, b.const(x.type, low)), (x.type,)).result
    return b.op("llvm.intr.minnum", (x, b.const(x.type, high)), (x.type,)).result


def _reduced(b: Any, x: Any) -> tuple[Any, Any]:
    """(n as f32, r) with x = n ln 2 + r, |r| <= ln 2 / 2."""
    n = unary(b, "llvm.intr.rint", _mul(b, x, LOG2E))
    r = b.fma(n, b.const(b.t_f32, -LN2_HI), x)
    return n, b.fma(n, b.const(b.t_f32, -LN2_LO), r)


def _mul(b: Any, x: Any, c: float) -> Any:
    with b.no_contract():
        return b.fmul(x, b.const(x.type, c))


def exp_of_reduced(b: Any, r: Any) -> Any:
    """e^r for |r| <= ln 2 / 2."""
    with b.no_contract():
        r2 = b.fmul(r, r)
        return b.fadd(b.fma(r2, polynomial(b, r, _EXP), r), b.const(b.t_f32, 1.0))


@defined("exp", "f32", ulp=1.0)
def exp(b: Any, x: Any) -> Any:
    n, r = _reduced(b, clamp(b, x, -88.0, 89.0))
    result = scale_by_power(b, exp_of_reduced(b, r), b.fptosi(n, b.t_i32))
    return finish(b, x, result, -87.33654022216797, 88.72283172607422)


@defined("exp2", "f32", ulp=1.0)
def exp2(b: Any, x: Any) -> Any:
    inside = clamp(b, x, -127.0, 128.0)
    n = unary(b, "llvm.intr.rint", inside)
    with b.no_contract():
        r = b.fsub(inside, n)
    result = b.fma(r, polynomial(b, r, _EXP2), b.const(b.t_f32, 1.0))
    result = scale_by_power(b, result, b.fptosi(n, b.t_i32))
    return finish(b, x, result, -126.0, 127.99999237060547)


@defined("exp10", "f32", ulp=1.5)
def exp10(b: Any, x: Any) -> Any:
    """10^x = 2^n 10^r; r log(10) as a sum of two floats."""
    inside = clamp(b, x, -38.5, 39.0)
    n = unary(b, "llvm.intr.rint", _mul(b, inside, 3.321928094887362))
    r = b.fma(n, b.const(b.t_f32, -_LOG10_2_HI), inside)
    r = b.fma(n, b.const(b.t_f32, -_LOG10_2_LO), r)
    product = _mul(b, r, _LN10_HI)
    rest = b.fma(r, b.const(b.t_f32, _LN10_HI), b.fneg(product))
    rest = b.fma(r, b.const(b.t_f32, _LN10_LO), rest)
    power = exp_of_reduced(b, product)
    result = scale_by_power(b, b.fma(power, rest, power), b.fptosi(n, b.t_i32))
    return finish(b, x, result, -37.92977905273437, 38.53183746337891)


_LOG10_2_HI, _LOG10_2_LO = 0.301025390625, 4.605038981195214e-06  # the first has 12 bits
_LN10_HI, _LN10_LO = 2.3025851249694824, -3.1975435632602967e-08


@defined("expm1", "f32", ulp=1.5)
def expm1(b: Any, x: Any) -> Any:
    """e^x - 1 = 2 (2^(n-1) (e^r - 1) + (2^(n-1) - 1/2)); exact to the last places near 0, where n = 0."""
    n, r = _reduced(b, clamp(b, x, -26.0, 89.0))
    with b.no_contract():
        r2 = b.fmul(r, r)
        small = b.fma(r2, polynomial(b, r, _EXP), r)
        half = b.shl(b.add(b.fptosi(n, b.t_i32), b.i32(126)), b.i32(23))
        half = b.bitcast(half, b.t_f32)
        result = b.fma(half, small, b.fsub(half, b.const(b.t_f32, 0.5)))
        result = b.fadd(result, result)
    result = b.select(b.fcmp("ogt", x, b.const(b.t_f32, 88.72283172607422)), b.const(b.t_f32, float("inf")), result)
    same = b.or_(b.fcmp("uno", x, x), b.fcmp("olt", b.fabs(x), b.const(b.t_f32, 2.0**-25)))
    return b.select(same, x, result)


def half_exp(b: Any, x: Any) -> Any:
    """e^x / 2 for 0 <= x, infinity only where that overflows; what sinh and cosh need."""
    n, r = _reduced(b, clamp(b, x, 0.0, 89.415))
    result = scale_by_power(b, exp_of_reduced(b, r), b.sub(b.fptosi(n, b.t_i32), b.i32(1)))
    return b.select(b.fcmp("ogt", x, b.const(b.t_f32, 89.41598629223294)), b.const(b.t_f32, float("inf")), result)
