"""``tl.math``: elementary functions, elementwise. Floats; 16-bit ones are computed in fp32 and rounded once."""

from __future__ import annotations

from typing import Any

from tilewright.language.decorators import builtin, member
from tilewright.language.values import tensor


def _unary(name: str, what: str) -> Any:
    def fn(x: Any, _semantic: Any = None) -> tensor:
        return _semantic.unary_math(name, x)

    fn.__name__ = fn.__qualname__ = name
    domain = "x * x + 1" if name in ("log", "log2", "sqrt", "rsqrt") else "x"
    fn.__doc__ = (f"Elementwise {what}; the result has the argument's type.\n\nTypes: fp16, bf16, fp32, fp64.\n\nExample::\n\n"
                  f"    z = tl.{name}({domain})\n    z = tl.math.{name}({domain})\n")
    return member(builtin(fn))


exp = _unary("exp", "exponential")
exp2 = _unary("exp2", "power of two")
log = _unary("log", "natural logarithm")
log2 = _unary("log2", "logarithm to base two")
sin = _unary("sin", "sine (radians)")
cos = _unary("cos", "cosine (radians)")
sqrt = _unary("sqrt", "square root, which may be approximate in the last bit")
rsqrt = _unary("rsqrt", "reciprocal square root")
erf = _unary("erf", "error function")
floor = _unary("floor", "largest integer not above")
ceil = _unary("ceil", "smallest integer not below")


@member
@builtin
def abs(x: Any, _semantic: Any = None) -> tensor:  # noqa: A001
    """Elementwise absolute value of integers or floats.

    Types: integers and floats.

    Example::

        size = tl.abs(x)
        distance = tl.abs(k - i)
    """
    return _semantic.abs(x)


@member
@builtin
def sqrt_rn(x: Any, _semantic: Any = None) -> tensor:
    """Correctly rounded square root of fp32 or fp64.

    Types: fp32, fp64.

    Example::

        root = tl.sqrt_rn(tl.abs(x))
        root = tl.math.sqrt_rn(m * m)
    """
    return _semantic.precise("sqrt_rn", x)


@builtin
def div_rn(x: Any, y: Any, _semantic: Any = None) -> tensor:
    """Correctly rounded quotient of fp32 or fp64.

    Types: fp32, fp64.

    Example::

        z = tl.div_rn(x, y)
        z = tl.math.div_rn(x, y)
    """
    return _semantic.precise("div_rn", x, y)


@builtin
def fdiv(x: Any, y: Any, ieee_rounding: bool = False, _semantic: Any = None) -> tensor:
    """Float quotient in the operands' own type; correctly rounded with ``ieee_rounding``.

    Types: fp16, bf16, fp32, fp64.

    Example::

        z = tl.fdiv(x, y)
        z = tl.fdiv(x, y, ieee_rounding=True)
    """
    return _semantic.fdiv(x, y, ieee_rounding)


@builtin
def fma(x: Any, y: Any, z: Any, _semantic: Any = None) -> tensor:
    """``x * y + z``, rounded once.

    Types: fp16, bf16, fp32, fp64.

    Example::

        z = tl.fma(x, y, y)
        z = tl.math.fma(x, y, y)
    """
    return _semantic.fma(x, y, z)


@builtin
def umulhi(x: Any, y: Any, _semantic: Any = None) -> tensor:
    """High half of the product of 32- or 64-bit integers read as unsigned.

    Types: int32, uint32, int64, uint64.

    Example::

        high = tl.umulhi(k, i)
        low = k * i
    """
    return _semantic.umulhi(x, y)


__all__ = ["abs", "ceil", "cos", "div_rn", "erf", "exp", "exp2", "fdiv", "floor", "fma", "log", "log2", "rsqrt", "sin", "sqrt", "sqrt_rn", "umulhi"]
