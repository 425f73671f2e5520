"""Functions made of others: never-contracted sums and products, norms, roots of them, multiples of pi, the IEEE remainder, and the fast forms,
which here are the usual ones (a target's own come before them: ``hooks.math``)."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tilewright.dialects.lower_math import exponential, hyperbolic, logarithm, special, trigonometric
from tilewright.dialects.lower_math.basic import fmod, unary
from tilewright.dialects.lower_math.double_special import cbrt, hypot
from tilewright.dialects.lower_math.double_trigonometric import cos, sin
from tilewright.dialects.lower_math.in_double import c, defined_in_double
from tilewright.dialects.lower_math.registry import defined


def _apart(method: str) -> Callable[..., Any]:
    def build(b: Any, *args: Any) -> Any:
        with b.no_contract():
            return getattr(b, method)(*args)

    return build


for _name, _method in {"add_rn": "fadd", "sub_rn": "fsub", "mul_rn": "fmul"}.items():
    defined(_name, "f32", "f64", ulp=0.5, arity=2)(_apart(_method))


@defined_in_double("rsqrt_rn", ulp=1.5)
def rsqrt_rn(b: Any, x: Any) -> Any:
    with b.no_contract():
        return b.fdiv(c(b, 1.0), unary(b, "llvm.intr.sqrt", x))


@defined_in_double("rcbrt", ulp=1.5)
def rcbrt(b: Any, x: Any) -> Any:
    with b.no_contract():
        return b.fdiv(c(b, 1.0), cbrt(b, x))


def _norm(b: Any, *args: Any) -> Any:
    length = args[0]
    for other in args[1:]:  # hypot neither overflows nor underflows on the way
        length = hypot(b, length, other)
    return length


def _reciprocal_norm(b: Any, *args: Any) -> Any:
    with b.no_contract():
        return b.fdiv(c(b, 1.0), _norm(b, *args))


for _count in (3, 4):
    defined_in_double(f"norm{_count}d", ulp=4.0, arity=_count)(_norm)
    defined_in_double(f"rnorm{_count}d", ulp=4.5, arity=_count)(_reciprocal_norm)
defined_in_double("rhypot", ulp=2.5, arity=2)(_reciprocal_norm)


def _pi_times(b: Any, x: Any, shift: int) -> Any:
    """sin of pi x + shift pi / 2: x is split exactly into halves and a rest of at most a quarter, so that no zero lies within the rest but 0."""
    with b.no_contract():
        finite = b.fcmp("olt", b.fabs(x), c(b, 2.0**53))  # from there on x is an even integer
        bounded = b.select(finite, x, c(b, 0.0))
        halves = unary(b, "llvm.intr.rint", b.fadd(bounded, bounded))
        rest = b.fma(halves, c(b, -0.5), bounded)
        quadrant = b.add(b.fptosi(halves, b.t_i64), b.i64(shift))
        angle = b.fmul(rest, c(b, math.pi))
    y = b.select(b.icmp("ne", b.and_(quadrant, b.i64(1)), b.i64(0)), cos(b, angle), sin(b, angle))
    y = b.select(b.icmp("ne", b.and_(quadrant, b.i64(2)), b.i64(0)), b.fneg(y), y)
    return b.select(b.fcmp("ueq", b.fabs(x), c(b, math.inf)), c(b, math.nan), y)


defined_in_double("sinpi", ulp=3.0)(lambda b, x: _pi_times(b, x, 0))
defined_in_double("cospi", ulp=3.0)(lambda b, x: _pi_times(b, x, 1))


@defined("remainder", "f32", "f64", arity=2)
def remainder(b: Any, x: Any, y: Any) -> Any:
    """x - n y, n the integer nearest to x / y, ties to even; exact (IEEE 754, 5.3.1)."""
    size = b.fabs(y)
    infinite = b.fcmp("oeq", size, b.const(x.type, math.inf))
    with b.no_contract():
        small = b.fcmp("olt", size, b.const(x.type, {"f32": 2.0**127, "f64": 2.0**1023}[str(x.type)]))  # its double is a number
        # in [0, 2 |y|), with the parity of the quotient kept; from half of the range's end on every |x| is there already
        rest = b.select(small, b.fabs(fmod(b, x, b.fadd(y, y))), b.fabs(x))
        half = b.fmul(size, b.const(x.type, 0.5))
        tiny = b.fcmp("olt", size, b.const(x.type, {"f32": 2.0**-125, "f64": 2.0**-1021}[str(x.type)]))

        def above(value: Any, strict: bool) -> Any:
            """value > |y| / 2, or >=; by doubling where the half would be rounded."""
            predicate = "ogt" if strict else "oge"
            return b.select(tiny, b.fcmp(predicate, b.fadd(value, value), size), b.fcmp(predicate, value, half))

        first = above(rest, True)
        once = b.select(first, b.fsub(rest, size), rest)
        result = b.select(b.and_(first, above(once, False)), b.fsub(once, size), once)
    negative = b.fcmp("olt", b.copysign(b.const(x.type, 1.0), x), b.const(x.type, 0.0))
    result = b.select(b.fcmp("oeq", result, b.const(x.type, 0.0)), b.copysign(result, x), b.select(negative, b.fneg(result), result))
    result = b.select(b.and_(infinite, b.fcmp("olt", b.fabs(x), b.const(x.type, math.inf))), x, result)
    bad = b.or_(b.or_(b.fcmp("uno", x, y), b.fcmp("oeq", b.fabs(x), b.const(x.type, math.inf))), b.fcmp("oeq", y, b.const(x.type, 0.0)))
    return b.select(bad, b.const(x.type, math.nan), result)


_FAST: dict[str, tuple[Callable[..., Any], float]] = {
    "fast_expf": (exponential.exp, 1.0), "fast_exp10f": (exponential.exp10, 1.5), "fast_logf": (logarithm.log, 1.0),
    "fast_log2f": (logarithm.log2, 1.0), "fast_log10f": (logarithm.log10, 1.0), "fast_sinf": (trigonometric.sin, 1.5),
    "fast_cosf": (trigonometric.cos, 1.5), "fast_tanf": (trigonometric.tan, 3.0), "fast_tanhf": (hyperbolic.tanh, 2.0)}
for _name, (_build, _ulp) in _FAST.items():
    defined(_name, "f32", ulp=_ulp)(_build)
defined("fast_powf", "f32", ulp=1.0, arity=2)(special.pow)
defined("fast_dividef", "f32", ulp=0.5, arity=2)(_apart("fdiv"))
