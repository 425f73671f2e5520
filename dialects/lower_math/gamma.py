"""lgamma and tgamma. Polynomials: tests/dialects/lower_math/fit_special.py."""

from __future__ import annotations

import math
from typing import Any

from tilewright.dialects.lower_math.basic import unary
from tilewright.dialects.lower_math.double import exp, log
from tilewright.dialects.lower_math.double_special import pow
from tilewright.dialects.lower_math.double_trigonometric import sin
from tilewright.dialects.lower_math.in_double import c, defined_in_double, horner

_LGAMMA_LOW = (0.5772156649015329, -0.12262568426129018, 0.038858566465987766, -0.014393317820478936, 0.0057649380290524105,
               -0.002416192766654552, 0.0010426832536976, -0.00045920266605437406, 0.00020529814276751477, -9.2857684796177e-05,
               4.239344321624773e-05, -1.950337061786409e-05, 9.03064164737708e-06, -4.20465310092658e-06, 1.966944676946687e-06,
               -9.234274131610374e-07, 4.3536411904994314e-07, -2.0740213126757783e-07, 9.840670229506348e-08,
               -4.391901047865009e-08, 2.0913763905798067e-08, -1.4116133699167484e-08, 6.7858519465117855e-09,
               9.822701520832974e-10, -4.930557514992914e-10, -2.8127465798829195e-09, 1.365894516798443e-09,
               8.005792800731021e-10, -3.89897806829389e-10, -2.2839751594356655e-10, 1.1100028765502606e-10)
_LGAMMA_HIGH = (0.42278433509846713, -0.05015865083717696, 0.008241250155288956, -0.0015480240241714193, 0.0003124150727935831,
                -6.587908856091285e-05, 1.4302764410146222e-05, -3.1695890450663465e-06, 7.13096246798071e-07,
                -1.6229515753889597e-07, 3.727430355400773e-08, -8.62390124074862e-09, 2.007378793699793e-09,
                -4.695714230218149e-10, 1.1034065642254622e-10, -2.6122601192847898e-11, 6.182381795388124e-12,
                -1.3909442178901942e-12, 3.3085655025845137e-13, -1.1289793880353997e-13, 2.7018718486332573e-14)
_STIRLING = (0.08331168010429436, -2.1605346910992954e-05, 4.760738262207585e-08, -2.718192092526114e-10, 2.8769125526383285e-12,
             -4.804140294211764e-14, 1.1491819673413438e-15, -3.706682902180455e-17, 1.52677241648853e-18)
_STEPS = 7  # from [2.5, 8) down to [1.5, 2.5), at most


def _stirling_rest(b: Any, x: Any) -> Any:
    """What log gamma has beside (x - 1/2) log x - x + log(2 pi) / 2, for x >= 8."""
    with b.no_contract():
        inverse = b.fdiv(c(b, 1.0), x)
        return b.fmul(horner(b, b.fma(b.fmul(inverse, inverse), c(b, 128.0), c(b, -1.0)), _STIRLING), inverse)


def _lgamma_positive(b: Any, x: Any) -> Any:
    """For x > 0: near 1 and 2 as (x - 1)(x - 2) P, from there by gamma(x + 1) = x gamma(x), beyond 8 by Stirling's formula."""
    one, half = c(b, 1.0), c(b, 0.5)
    with b.no_contract():
        tiny, large = b.fcmp("olt", x, half), b.fcmp("oge", x, c(b, 8.0))
        y = b.select(tiny, b.fadd(x, one), b.select(large, c(b, 2.0), x))
        product = b.select(tiny, x, one)
        for _ in range(_STEPS):
            high = b.fcmp("oge", y, c(b, 2.5))
            y = b.select(high, b.fsub(y, one), y)
            product = b.select(high, b.fmul(product, y), product)
        low = b.fcmp("olt", y, c(b, 1.5))
        from_one, from_two = b.fsub(y, one), b.fsub(y, c(b, 2.0))
        at = b.select(low, from_one, from_two)
        t = b.fadd(at, at)
        shape = b.select(low, horner(b, t, _LGAMMA_LOW), horner(b, t, _LGAMMA_HIGH))
        near = b.fmul(b.fmul(from_one, from_two), shape)
        rest = log(b, product)
        near = b.select(tiny, b.fsub(near, rest), b.fadd(near, rest))
        bounded = b.select(large, x, c(b, 8.0))
        logarithm = log(b, bounded)
        far = b.fma(b.fsub(bounded, half), b.fsub(logarithm, one), b.fadd(c(b, 0.5 * math.log(2 * math.pi) - 0.5), _stirling_rest(b, bounded)))
        far = b.select(b.fcmp("oeq", x, c(b, math.inf)), x, far)
    return b.select(large, far, near)


def _sin_pi(b: Any, x: Any) -> Any:
    """|sin(pi x)| for x >= 0, through the distance to the nearest integer."""
    with b.no_contract():
        rest = b.fsub(x, unary(b, "llvm.intr.rint", x))
        return b.fabs(sin(b, b.fmul(rest, c(b, math.pi))))


@defined_in_double("lgamma", ulp=4.0)
def lgamma(b: Any, x: Any) -> Any:
    """log |gamma(x)|. Stated for x > 0; below, near zeros of the function, the error is absolute (some 1e-15)."""
    zero, infinity = c(b, 0.0), c(b, math.inf)
    magnitude = b.fabs(x)
    positive = _lgamma_positive(b, b.select(b.fcmp("oeq", magnitude, zero), c(b, 1.0), magnitude))
    with b.no_contract():
        # reflection: gamma(-x) gamma(x) = -pi / (x sin(pi x))
        sine = b.fmul(magnitude, _sin_pi(b, b.select(b.fcmp("olt", magnitude, c(b, 2.0**52)), magnitude, zero)))
        negative = b.fsub(log(b, b.fdiv(c(b, math.pi), b.select(b.fcmp("oeq", sine, zero), c(b, 1.0), sine))), positive)
        # close to 0 it is -log |x|
        negative = b.select(b.fcmp("olt", magnitude, c(b, 2.0**-60)), b.fneg(log(b, magnitude)), negative)
    result = b.select(b.fcmp("olt", x, zero), b.select(b.fcmp("oeq", sine, zero), infinity, negative), positive)
    result = b.select(b.or_(b.fcmp("oeq", magnitude, infinity), b.fcmp("oeq", magnitude, zero)), infinity, result)
    return b.select(b.fcmp("uno", x, x), x, result)


def _gamma_near(b: Any, x: Any) -> Any:
    """gamma of x in [1/2, 12): the product down to [3/2, 5/2), times gamma there."""
    one = c(b, 1.0)
    with b.no_contract():
        y, product = x, one
        below = b.fcmp("olt", y, c(b, 1.5))
        divisor = b.select(below, y, one)
        y = b.select(below, b.fadd(y, one), y)
        for _ in range(10):
            high = b.fcmp("oge", y, c(b, 2.5))
            y = b.select(high, b.fsub(y, one), y)
            product = b.select(high, b.fmul(product, y), product)
        at = b.fsub(y, c(b, 2.0))
        logarithm = b.fmul(b.fmul(b.fadd(at, one), at), horner(b, b.fadd(at, at), _LGAMMA_HIGH))
        return b.fdiv(b.fmul(exp(b, logarithm), product), divisor)


@defined_in_double("tgamma", ulp=60.0)
def tgamma(b: Any, x: Any) -> Any:
    """gamma(x): products below 12, Stirling's formula beyond with the power halved, so that it overflows only where gamma does."""
    zero, half, one, infinity = (c(b, v) for v in (0.0, 0.5, 1.0, math.inf))
    magnitude = b.fabs(x)
    with b.no_contract():
        reflected = b.fcmp("olt", x, half)
        # gamma(x) = pi / (sin(pi x) gamma(1 - x))
        y = b.select(reflected, b.fsub(one, x), x)
        far = b.fcmp("oge", y, c(b, 12.0))
        large = b.select(far, b.op("llvm.intr.minnum", (y, c(b, 200.0)), (b.t_f64,)).result, c(b, 12.0))
        root = pow(b, large, b.fma(large, half, c(b, -0.25)))
        scale = b.fmul(exp(b, b.fsub(_stirling_rest(b, large), large)), c(b, math.sqrt(2 * math.pi)))
        above = b.fmul(b.fmul(root, scale), root)
        near = _gamma_near(b, b.select(far, one, y))
        value = b.select(far, above, near)
        bounded = b.select(b.fcmp("olt", magnitude, c(b, 2.0**52)), magnitude, zero)
        rest = b.fsub(bounded, unary(b, "llvm.intr.floor", b.fmul(bounded, half)))  # bounded modulo 2, in two steps
        rest = b.fsub(rest, unary(b, "llvm.intr.floor", b.fmul(bounded, half)))
        sign_negative = b.fcmp("olt", rest, one)
        sine = _sin_pi(b, bounded)
        # one factor at a time: gamma(1 - x) overflows where the quotient is still a number
        quotient = b.fdiv(b.fdiv(b.fdiv(c(b, math.pi), b.select(b.fcmp("oeq", sine, zero), one, sine)), b.select(far, b.fmul(root, scale), near)),
                          b.select(far, root, one))
        quotient = b.select(b.fcmp("olt", y, c(b, 190.0)), quotient, zero)
        negative = b.select(b.and_(b.fcmp("olt", x, zero), sign_negative), b.fneg(quotient), quotient)
        pole = b.fdiv(one, x)
    whole = b.and_(b.fcmp("olt", x, zero), b.fcmp("oeq", sine, zero))
    result = b.select(reflected, b.select(whole, c(b, math.nan), negative), b.select(b.fcmp("ogt", x, c(b, 172.0)), infinity, value))
    result = b.select(b.fcmp("olt", magnitude, c(b, 2.0**-60)), pole, result)
    return b.select(b.fcmp("uno", x, x), x, result)
