"""Roots, rounding, classification, signs: exact or correctly rounded by an LLVM operation or by bits."""

from __future__ import annotations

from typing import Any

from tilewright.dialects.lower_math.registry import defined

_BITS = {"f16": 16, "f32": 32, "f64": 64}


def unary(b: Any, name: str, x: Any) -> Any:
    """An LLVM-dialect op of one operand and a result of its type."""
    return b.op(name, (x,), (x.type,)).result


def bits_of(b: Any, x: Any) -> tuple[Any, Any]:
    """(the bits of x as an integer, its type)."""
    type = b.int_type(_BITS[str(x.type).rpartition("x")[2].rstrip(">")])  # of lanes too
    return b.bitcast(x, type), type


@defined("sqrt", "f32", "f64", ulp=0.5)
def sqrt(b: Any, x: Any) -> Any:
    return unary(b, "llvm.intr.sqrt", x)


@defined("rsqrt", "f32", "f64", ulp=1.5)
def rsqrt(b: Any, x: Any) -> Any:
    return b.fdiv(b.const(x.type, 1.0), unary(b, "llvm.intr.sqrt", x))


@defined("floor", "f16", "f32", "f64")
def floor(b: Any, x: Any) -> Any:
    return unary(b, "llvm.intr.floor", x)


@defined("ceil", "f16", "f32", "f64")
def ceil(b: Any, x: Any) -> Any:
    return unary(b, "llvm.intr.ceil", x)


@defined("trunc", "f16", "f32", "f64")
def trunc(b: Any, x: Any) -> Any:
    return unary(b, "llvm.intr.trunc", x)


@defined("rint", "f16", "f32", "f64")
def rint(b: Any, x: Any) -> Any:
    """To the nearest integer, ties to even."""
    return unary(b, "llvm.intr.rint", x)


defined("nearbyint", "f16", "f32", "f64")(rint)


@defined("round", "f32", "f64")
def round_away(b: Any, x: Any) -> Any:
    """To the nearest integer, ties away from zero: the magnitude truncated, plus one where the rest is at least a half."""
    magnitude = b.fabs(x)
    whole = unary(b, "llvm.intr.trunc", magnitude)
    up = b.fcmp("oge", b.fsub(magnitude, whole), b.const(x.type, 0.5))
    return b.copysign(b.select(up, b.fadd(whole, b.const(x.type, 1.0)), whole), x)


@defined("copysign", "f16", "f32", "f64", arity=2)
def copysign(b: Any, x: Any, y: Any) -> Any:
    return b.copysign(x, y)


defined("fabs", "f16", "f32", "f64")(lambda b, x: b.fabs(x))
defined("abs", "f16", "f32", "f64")(lambda b, x: b.fabs(x))


@defined("fma", "f16", "f32", "f64", ulp=0.5, arity=3)
def fma(b: Any, x: Any, y: Any, z: Any) -> Any:
    return b.fma(x, y, z)


@defined("fdim", "f32", "f64", ulp=0.5, arity=2)
def fdim(b: Any, x: Any, y: Any) -> Any:
    """x - y where positive, else 0; NaN of NaN."""
    difference = b.fsub(x, y)
    return b.select(b.fcmp("ole", x, y), b.const(x.type, 0.0), difference)


defined("fmax", "f16", "f32", "f64", arity=2)(lambda b, x, y: b.op("llvm.intr.maxnum", (x, y), (x.type,)).result)
defined("fmin", "f16", "f32", "f64", arity=2)(lambda b, x, y: b.op("llvm.intr.minnum", (x, y), (x.type,)).result)


@defined("isnan", "f16", "f32", "f64", predicate=True)
def isnan(b: Any, x: Any) -> Any:
    return b.fcmp("uno", x, x)


@defined("isinf", "f16", "f32", "f64", predicate=True)
def isinf(b: Any, x: Any) -> Any:
    return b.fcmp("oeq", b.fabs(x), b.const(x.type, float("inf")))


@defined("isfinite", "f16", "f32", "f64", predicate=True)
def isfinite(b: Any, x: Any) -> Any:
    return b.fcmp("olt", b.fabs(x), b.const(x.type, float("inf")))


defined("finitef", "f32", predicate=True)(isfinite)
defined("isfinited", "f64", predicate=True)(isfinite)


@defined("signbit", "f16", "f32", "f64", predicate=True)
def signbit(b: Any, x: Any) -> Any:
    word, type = bits_of(b, x)
    return b.icmp("slt", word, b.const(type, 0))


@defined("fmod", "f32", "f64", arity=2)
def fmod(b: Any, x: Any, y: Any) -> Any:
    """x - trunc(x / y) * y, exact, with the sign of x: long division in base 2, as many steps as the exponents differ."""
    word, type = bits_of(b, x)
    bits = _BITS[str(x.type)]
    mantissa = {32: 23, 64: 52}[bits]

    def c(value: int) -> Any:
        return b.const(type, value)

    magnitude_mask = (1 << (bits - 1)) - 1
    infinity = magnitude_mask >> mantissa << mantissa
    ax, ay = b.and_(word, c(magnitude_mask)), b.and_(bits_of(b, y)[0], c(magnitude_mask))
    bad = b.or_(b.or_(b.icmp("uge", ax, c(infinity)), b.icmp("ugt", ay, c(infinity))), b.icmp("eq", ay, c(0)))

    def significand(a: Any) -> tuple[Any, Any]:
        """(integer significand, exponent of its last bit + a constant); subnormals are as they are, with exponent 1."""
        exponent = b.lshr(a, c(mantissa))
        hidden = b.icmp("ne", exponent, c(0))
        fraction = b.and_(a, c((1 << mantissa) - 1))
        return (b.or_(fraction, b.select(hidden, c(1 << mantissa), c(0))), b.select(hidden, exponent, c(1)))

    def divide() -> Any:
        mx, ex = significand(ax)
        my, ey = significand(ay)
        # remainder of mx by my first, then one bit of the quotient a step
        header = b.block([type, type])
        b.br(header, [b.urem(mx, my), b.sub(ex, ey)])
        b.set_block(header)
        rest, left = header.arguments
        body = b.block()
        after = b.block(after=body)
        b.cond_br(b.icmp("sgt", left, c(0)), body, after)
        b.set_block(body)
        doubled = b.shl(rest, c(1))
        reduced = b.sub(doubled, my)
        b.br(header, [b.select(b.icmp("ult", doubled, my), doubled, reduced), b.sub(left, c(1))])
        b.set_block(after)
        # rest < my lies at ey's scale: normalise it by the float conversion, which is exact for so few bits
        as_float = b.uitofp(rest, x.type)
        scaled_word = bits_of(b, as_float)[0]
        exponent = b.add(b.lshr(scaled_word, c(mantissa)), b.sub(ey, c({32: 150, 64: 1075}[bits])))
        normal = b.or_(b.shl(exponent, c(mantissa)), b.and_(scaled_word, c((1 << mantissa) - 1)))
        # below the normal range the significand stands for itself, shifted by how far ey is above 1
        subnormal = b.shl(rest, b.sub(ey, c(1)))
        small = b.icmp("slt", exponent, c(1))
        return b.select(b.icmp("eq", rest, c(0)), c(0), b.select(small, subnormal, normal))

    divisible = b.and_(b.icmp("uge", ax, ay), b.xor(bad, b.i1(1)))  # never by zero
    result = b.if_then_else(divisible, divide, lambda: ax)[0]
    signed = b.or_(result, b.and_(word, c(1 << (bits - 1))))
    return b.select(bad, b.const(x.type, float("nan")), b.bitcast(signed, x.type))


defined("remf", "f32", "f64", arity=2)(fmod)
