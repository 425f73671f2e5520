"""sinh, cosh, tanh and their inverses in f32."""

from __future__ import annotations

from typing import Any

from tilewright.dialects.lower_math.basic import unary
from tilewright.dialects.lower_math.exponential import exp, half_exp, polynomial
from tilewright.dialects.lower_math.logarithm import log, log1p
from tilewright.dialects.lower_math.registry import defined

_SINH = (0.16666666488692455, 0.008333350598951924, 0.00019836066159117436, 2.817439912218373e-06)
_TANH = (-0.3333333090641425, 0.13333209759876022, -0.053947204145942694, 0.021702967562840333, -0.008182676692239583,
         0.002147540439260701)
_ASINH = (-0.16666666585194417, 0.07499991466056027, -0.04463982149899572, 0.030330328338564003, -0.021895296130243696,
          0.014850808146947338, -0.00659097427611913)
_ATANH = (0.3333333310360973, 0.20000028950045515, 0.14284470726292917, 0.11136800385729528, 0.08800238465286074,
          0.09574125688028418, -0.0014077284875077352, 0.17889724983127997)
LN2 = 0.6931471805599453


def _odd(b: Any, x: Any, coefficients: Any) -> Any:
    """x + x z P(z), z = x^2."""
    with b.no_contract():
        z = b.fmul(x, x)
        return b.fma(b.fmul(x, z), polynomial(b, z, coefficients), x)


def _below(b: Any, x: Any, limit: float) -> Any:
    return b.fcmp("olt", x, b.const(x.type, limit))


@defined("sinh", "f32", ulp=2.0)
def sinh(b: Any, x: Any) -> Any:
    magnitude = b.fabs(x)
    half = half_exp(b, magnitude)
    with b.no_contract():
        large = b.fsub(half, b.fdiv(b.const(b.t_f32, 0.25), half))
    result = b.select(_below(b, magnitude, 1.0), _odd(b, magnitude, _SINH), large)
    return b.select(b.fcmp("uno", x, x), x, b.copysign(result, x))


@defined("cosh", "f32", ulp=2.0)
def cosh(b: Any, x: Any) -> Any:
    half = half_exp(b, b.fabs(x))
    with b.no_contract():
        result = b.fadd(half, b.fdiv(b.const(b.t_f32, 0.25), half))
    return b.select(b.fcmp("uno", x, x), x, result)


@defined("tanh", "f32", ulp=2.0)
def tanh(b: Any, x: Any) -> Any:
    magnitude = b.fabs(x)
    with b.no_contract():
        power = exp(b, b.fadd(magnitude, magnitude))
        one = b.const(b.t_f32, 1.0)
        large = b.fsub(one, b.fdiv(b.const(b.t_f32, 2.0), b.fadd(power, one)))
    result = b.select(_below(b, magnitude, 0.625), _odd(b, magnitude, _TANH), large)
    return b.copysign(result, x)


@defined("asinh", "f32", ulp=3.0)
def asinh(b: Any, x: Any) -> Any:
    magnitude = b.fabs(x)
    huge = b.fcmp("ogt", magnitude, b.const(b.t_f32, 2.0**60))
    with b.no_contract():
        root = unary(b, "llvm.intr.sqrt", b.fma(magnitude, magnitude, b.const(b.t_f32, 1.0)))
        logarithm = log(b, b.select(huge, magnitude, b.fadd(magnitude, root)))
        large = b.fadd(logarithm, b.select(huge, b.const(b.t_f32, LN2), b.const(b.t_f32, 0.0)))
    return b.copysign(b.select(_below(b, magnitude, 0.5), _odd(b, magnitude, _ASINH), large), x)


@defined("acosh", "f32", ulp=2.5)
def acosh(b: Any, x: Any) -> Any:
    """log1p(t + sqrt(2t + t^2)), t = x - 1; NaN below 1."""
    huge = b.fcmp("ogt", x, b.const(b.t_f32, 2.0**60))
    with b.no_contract():
        t = b.fsub(x, b.const(b.t_f32, 1.0))
        root = unary(b, "llvm.intr.sqrt", b.fma(t, t, b.fadd(t, t)))
        result = log1p(b, b.select(huge, t, b.fadd(t, root)))
        result = b.fadd(result, b.select(huge, b.const(b.t_f32, LN2), b.const(b.t_f32, 0.0)))
    return b.select(_below(b, x, 1.0), b.const(b.t_f32, float("nan")), result)


@defined("atanh", "f32", ulp=2.5)
def atanh(b: Any, x: Any) -> Any:
    """log1p(2x / (1 - x)) / 2; infinity at 1, NaN beyond."""
    magnitude = b.fabs(x)
    with b.no_contract():
        quotient = b.fdiv(b.fadd(magnitude, magnitude), b.fsub(b.const(b.t_f32, 1.0), magnitude))
        large = b.fmul(log1p(b, quotient), b.const(b.t_f32, 0.5))
    return b.copysign(b.select(_below(b, magnitude, 0.5), _odd(b, magnitude, _ATANH), large), x)
