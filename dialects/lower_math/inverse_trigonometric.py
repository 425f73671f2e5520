"""asin, acos, atan, atan2 in f32."""

from __future__ import annotations

from typing import Any

from tilewright.dialects.lower_math.basic import unary
from tilewright.dialects.lower_math.exponential import polynomial
from tilewright.dialects.lower_math.registry import defined

PI, PIO2, PIO4 = 3.141592653589793, 1.5707963267948966, 0.7853981633974483
PIO2_LO, PI_LO = -4.371138828673793e-08, -8.742277657347586e-08  # what f32 pi/2 and pi lack
_ASIN = (0.16666753948696653, 0.07495241077295474, 0.04547717262895308, 0.024147283722599916, 0.042219047344607984)
_ATAN = (-0.3333330186959933, 0.19998638727586424, -0.14265246781623736, 0.10957584846110587, -0.08419488020631792,
         0.058235102225685176, -0.03145630403935406, 0.011064790290010045, -0.001827296398011143)


def _odd(b: Any, x: Any, z: Any, coefficients: Any) -> Any:
    """x + x z P(z)."""
    with b.no_contract():
        return b.fma(b.fmul(x, z), polynomial(b, z, coefficients), x)


def _asin_parts(b: Any, x: Any) -> tuple[Any, Any, Any]:
    """(is |x| <= 1/2, asin |x| there, 2 asin sqrt((1 - |x|) / 2) elsewhere)."""
    magnitude = b.fabs(x)
    small = b.fcmp("ole", magnitude, b.const(b.t_f32, 0.5))
    with b.no_contract():
        half = b.fma(magnitude, b.const(b.t_f32, -0.5), b.const(b.t_f32, 0.5))
        z = b.select(small, b.fmul(magnitude, magnitude), half)
        argument = b.select(small, magnitude, unary(b, "llvm.intr.sqrt", half))
        value = _odd(b, argument, z, _ASIN)
        return small, value, b.fadd(value, value)


@defined("asin", "f32", ulp=2.0)
def asin(b: Any, x: Any) -> Any:
    """NaN beyond 1 by the square root of a negative number."""
    small, near, twice = _asin_parts(b, x)
    with b.no_contract():
        far = b.fadd(b.fsub(b.const(b.t_f32, PIO2), twice), b.const(b.t_f32, PIO2_LO))
    return b.copysign(b.select(small, near, far), x)


@defined("acos", "f32", ulp=2.0)
def acos(b: Any, x: Any) -> Any:
    small, near, twice = _asin_parts(b, x)
    negative = b.fcmp("olt", x, b.const(b.t_f32, 0.0))
    with b.no_contract():
        signed = b.copysign(near, x)
        middle = b.fadd(b.fsub(b.const(b.t_f32, PIO2), signed), b.const(b.t_f32, PIO2_LO))
        reflected = b.fadd(b.fsub(b.const(b.t_f32, PI), twice), b.const(b.t_f32, PI_LO))
    return b.select(small, middle, b.select(negative, reflected, twice))


def atan_of_unit(b: Any, x: Any) -> Any:
    """atan x for 0 <= x <= 1."""
    with b.no_contract():
        return _odd(b, x, b.fmul(x, x), _ATAN)


@defined("atan", "f32", ulp=2.0)
def atan(b: Any, x: Any) -> Any:
    magnitude = b.fabs(x)
    large = b.fcmp("ogt", magnitude, b.const(b.t_f32, 1.0))
    inverse = b.fdiv(b.const(b.t_f32, 1.0), magnitude)
    value = atan_of_unit(b, b.select(large, inverse, magnitude))
    with b.no_contract():
        far = b.fadd(b.fsub(b.const(b.t_f32, PIO2), value), b.const(b.t_f32, PIO2_LO))
    return b.copysign(b.select(large, far, value), x)


@defined("atan2", "f32", ulp=2.5, arity=2)
def atan2(b: Any, y: Any, x: Any) -> Any:
    """The angle of (x, y), with C's signs at zeros and infinities."""
    ax, ay = b.fabs(x), b.fabs(y)
    steep = b.fcmp("ogt", ay, ax)
    low, high = b.select(steep, ax, ay), b.select(steep, ay, ax)
    zero = b.const(b.t_f32, 0.0)
    quotient = b.fdiv(low, high)
    quotient = b.select(b.fcmp("oeq", high, zero), zero, quotient)  # both are 0
    both_infinite = b.fcmp("oeq", low, b.const(b.t_f32, float("inf")))
    quotient = b.select(both_infinite, b.const(b.t_f32, 1.0), quotient)
    angle = atan_of_unit(b, quotient)
    with b.no_contract():
        angle = b.select(steep, b.fadd(b.fsub(b.const(b.t_f32, PIO2), angle), b.const(b.t_f32, PIO2_LO)), angle)
        behind = b.fadd(b.fsub(b.const(b.t_f32, PI), angle), b.const(b.t_f32, PI_LO))
        left = b.icmp("slt", b.bitcast(x, b.t_i32), b.i32(0))
        result = b.copysign(b.select(left, behind, angle), y)
        return b.select(b.fcmp("uno", x, y), b.fadd(x, y), result)
