"""erfinv, erfcinv, erfcx, normcdf, normcdfinv: from erf, erfc and Newton's iteration, in f64."""

from __future__ import annotations

import math
from typing import Any

from tilewright.dialects.lower_math.basic import unary
from tilewright.dialects.lower_math.double import exp, log
from tilewright.dialects.lower_math.double_special import erf, erfc, erfcx_far
from tilewright.dialects.lower_math.in_double import c, defined_in_double

_A = 0.147  # of S. Winitzki, "A handy approximation for the error function and its inverse" (2008): 0.2 % off, where Newton begins
_SLOPE = math.sqrt(math.pi) / 2


def _start(b: Any, logarithm: Any) -> Any:
    """|erfinv(x)| nearly, from log(1 - x^2)."""
    with b.no_contract():
        head = b.fma(logarithm, c(b, 0.5), c(b, 2 / (math.pi * _A)))
        inner = b.fsub(b.fmul(head, head), b.fmul(logarithm, c(b, 1 / _A)))
        # head and the root nearly cancel near 0: their difference is (root^2 - head^2) / (root + head)
        root = unary(b, "llvm.intr.sqrt", inner)
        return unary(b, "llvm.intr.sqrt", b.fdiv(b.fmul(logarithm, c(b, -1 / _A)), b.fadd(root, head)))


def _erfinv_of_magnitude(b: Any, x: Any) -> Any:
    """For 0 <= x <= 0.85: Halley's iteration on erf, whose slope is 2 / sqrt(pi) e^(-y^2) and the slope of that -2 y times it."""
    with b.no_contract():
        y = _start(b, log(b, b.fma(b.fneg(x), x, c(b, 1.0))))
        for _ in range(2):
            step = b.fmul(b.fmul(b.fsub(erf(b, y), x), c(b, _SLOPE)), exp(b, b.fmul(y, y)))
            y = b.fsub(y, b.fdiv(step, b.fma(y, step, c(b, 1.0))))
        return b.select(b.fcmp("olt", x, c(b, 1e-8)), b.fmul(x, c(b, _SLOPE)), y)


def _erfcinv_of_small(b: Any, q: Any) -> Any:
    """y of erfc(y) = q for 0 < q <= 0.15: Newton's iteration on log erfc(y) = log erfcx(y) - y^2, nearly a parabola however far out."""
    with b.no_contract():
        wanted = log(b, q)
        y = _start(b, log(b, b.fmul(q, b.fsub(c(b, 2.0), q))))
        for _ in range(3):
            y = b.op("llvm.intr.maxnum", (y, c(b, 1.0)), (b.t_f64,)).result
            scaled = erfcx_far(b, y)
            square = b.fmul(y, y)
            lost = b.fma(y, y, b.fneg(square))
            off = b.fsub(b.fadd(log(b, scaled), b.fsub(b.fneg(wanted), square)), lost)
            y = b.fma(b.fmul(off, c(b, _SLOPE)), scaled, y)
        return y


def _inverse(b: Any, x: Any, q: Any) -> Any:
    """|erfinv| for x in [0, 1] and q = 1 - x, both exact or as good as they are given."""
    central = b.fcmp("ole", x, c(b, 0.85))
    near = _erfinv_of_magnitude(b, b.select(central, x, c(b, 0.5)))
    inside = b.and_(b.fcmp("ogt", q, c(b, 0.0)), b.fcmp("ole", q, c(b, 0.16)))
    far = _erfcinv_of_small(b, b.select(inside, q, c(b, 0.15)))
    return b.select(central, near, b.select(b.fcmp("oeq", q, c(b, 0.0)), c(b, math.inf), far))


@defined_in_double("erfinv", ulp=4.0)
def erfinv(b: Any, x: Any) -> Any:
    magnitude = b.fabs(x)
    with b.no_contract():
        value = b.copysign(_inverse(b, magnitude, b.fsub(c(b, 1.0), magnitude)), x)
    return b.select(b.fcmp("ole", magnitude, c(b, 1.0)), value, c(b, math.nan))


@defined_in_double("erfcinv", ulp=4.0)
def erfcinv(b: Any, q: Any) -> Any:
    with b.no_contract():
        upper = b.fcmp("ogt", q, c(b, 1.0))
        small = b.select(upper, b.fsub(c(b, 2.0), q), q)
        value = _inverse(b, b.fsub(c(b, 1.0), small), small)
        value = b.select(upper, b.fneg(value), value)
    return b.select(b.and_(b.fcmp("oge", q, c(b, 0.0)), b.fcmp("ole", q, c(b, 2.0))), value, c(b, math.nan))


@defined_in_double("normcdfinv", ulp=4.0)
def normcdfinv(b: Any, p: Any) -> Any:
    """-sqrt(2) erfcinv(2 p)."""
    with b.no_contract():
        return b.fmul(erfcinv(b, b.fadd(p, p)), c(b, -math.sqrt(2)))


@defined_in_double("erfcx", ulp=24.0)
def erfcx(b: Any, x: Any) -> Any:
    """e^(x^2) erfc(x): a polynomial from 1 on, the product below, 2 e^(x^2) - erfcx(-x) far to the left."""
    one = c(b, 1.0)
    with b.no_contract():
        right = b.fcmp("oge", x, one)
        far = erfcx_far(b, b.select(right, x, one))
        bounded = b.select(b.fcmp("olt", x, one), b.op("llvm.intr.maxnum", (x, c(b, -27.0)), (b.t_f64,)).result, one)
        square = b.fmul(bounded, bounded)
        lost = b.fma(bounded, bounded, b.fneg(square))
        power = exp(b, square)
        near = b.fmul(b.fma(power, lost, power), erfc(b, bounded))
    result = b.select(right, far, near)
    return b.select(b.fcmp("olt", x, c(b, -26.7)), c(b, math.inf), b.select(b.fcmp("uno", x, x), x, result))


@defined_in_double("normcdf", ulp=12.0)
def normcdf(b: Any, x: Any) -> Any:
    """erfc(-x / sqrt(2)) / 2; erfc falls so fast that the rounding of its argument shows, and comes in by the derivative."""
    with b.no_contract():
        bounded = b.op("llvm.intr.minnum", (b.op("llvm.intr.maxnum", (x, c(b, -60.0)), (b.t_f64,)).result, c(b, 60.0)), (b.t_f64,)).result
        root = c(b, -math.sqrt(0.5))
        z = b.fmul(bounded, root)
        lost = b.fma(bounded, c(b, 4.833646656726457e-17), b.fma(bounded, root, b.fneg(z)))
        slope = b.fmul(exp(b, b.fneg(b.fmul(z, z))), c(b, -2 / math.sqrt(math.pi)))
        value = b.fmul(b.fma(slope, lost, erfc(b, z)), c(b, 0.5))
    return b.select(b.fcmp("uno", x, x), x, value)
