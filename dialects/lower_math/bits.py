"""Functions on the bits of integers and floats: popc, clz, ffs, brev, byte_perm; nextafter, ilogb, logb, ldexp, scalbn; roundings to integers."""

from __future__ import annotations

import math
from typing import Any

from tilewright.dialects._mlir import ir
from tilewright.dialects.lower_math.basic import bits_of, unary
from tilewright.dialects.lower_math.registry import defined

_MANTISSA = {"f32": 23, "f64": 52}
_BIAS = {"f32": 127, "f64": 1023}


def _narrow(b: Any, x: Any) -> Any:
    return x if x.type == b.t_i32 else b.trunc(x, b.t_i32)


def _zeros(b: Any, name: str, x: Any) -> Any:
    """ctlz or cttz; of 0 the width."""
    return b.op(f"llvm.intr.{name}", (x,), (x.type,), {"is_zero_poison": ir.BoolAttr.get(False)}).result


@defined("popc", "i32", "i64")
def popc(b: Any, x: Any) -> Any:
    """How many bits are set; i32."""
    return _narrow(b, unary(b, "llvm.intr.ctpop", x))


@defined("clz", "i32", "i64")
def clz(b: Any, x: Any) -> Any:
    """Zeros above the highest bit that is set; i32."""
    return _narrow(b, _zeros(b, "ctlz", x))


@defined("ffs", "i32", "i64")
def ffs(b: Any, x: Any) -> Any:
    """The place of the lowest bit that is set, from 1; 0 where none is; i32."""
    place = b.add(_narrow(b, _zeros(b, "cttz", x)), b.i32(1))
    return b.select(b.icmp("eq", x, b.const(x.type, 0)), b.i32(0), place)


@defined("brev", "i32", "i64")
def brev(b: Any, x: Any) -> Any:
    """The bits in reverse."""
    return unary(b, "llvm.intr.bitreverse", x)


@defined("byte_perm", "i32", arity=3)
def byte_perm(b: Any, x: Any, y: Any, selector: Any) -> Any:
    """Four of the eight bytes of y:x, by the three low bits of the selector's nibbles."""
    both = b.or_(b.zext(x, b.t_i64), b.shl(b.zext(y, b.t_i64), b.i64(32)))
    result = b.i32(0)
    for i in range(4):
        which = b.and_(b.lshr(selector, b.i32(4 * i)), b.i32(7))
        byte = b.and_(b.trunc(b.lshr(both, b.zext(b.shl(which, b.i32(3)), b.t_i64)), b.t_i32), b.i32(255))
        result = b.or_(result, b.shl(byte, b.i32(8 * i)))
    return result


@defined("nextafter", "f32", "f64", arity=2)
def nextafter(b: Any, x: Any, y: Any) -> Any:
    """The next number after x towards y; y where they are equal."""
    word, type = bits_of(b, x)
    one, zero = b.const(type, 1), b.const(x.type, 0.0)
    away = b.icmp("eq", b.fcmp("ogt", y, x), b.fcmp("ogt", x, zero))  # from 0, as to magnitude
    step = b.bitcast(b.select(away, b.add(word, one), b.sub(word, one)), x.type)
    least = b.copysign(b.bitcast(one, x.type), y)
    result = b.select(b.fcmp("oeq", x, zero), least, step)
    result = b.select(b.fcmp("oeq", x, y), y, result)
    return b.select(b.fcmp("uno", x, y), b.const(x.type, math.nan), result)


def _exponent(b: Any, x: Any) -> Any:
    """floor(log2 |x|) as an i32 for finite x other than 0."""
    name = str(x.type)
    mantissa, (word, type) = _MANTISSA[name], bits_of(b, x)
    magnitude = b.and_(word, b.const(type, (1 << (31 if name == "f32" else 63)) - 1))
    field = b.lshr(magnitude, b.const(type, mantissa))
    # a subnormal number's highest bit: the width less its leading zeros
    width = 32 if name == "f32" else 64
    low = b.sub(b.i32(width - mantissa - _BIAS[name]), _narrow(b, _zeros(b, "ctlz", magnitude)))
    normal = b.sub(_narrow(b, field), b.i32(_BIAS[name]))
    return b.select(b.icmp("eq", field, b.const(type, 0)), low, normal)


@defined("ilogb", "f32", "f64")
def ilogb(b: Any, x: Any) -> Any:
    """The exponent as an i32; -2^31 of 0 and NaN, 2^31 - 1 of infinities (one of the values that C leaves open)."""
    infinite = b.fcmp("oeq", b.fabs(x), b.const(x.type, math.inf))
    none = b.or_(b.fcmp("uno", x, x), b.fcmp("oeq", x, b.const(x.type, 0.0)))
    return b.select(none, b.i32(-(2**31)), b.select(infinite, b.i32(2**31 - 1), _exponent(b, x)))


@defined("logb", "f32", "f64")
def logb(b: Any, x: Any) -> Any:
    """The exponent as a float; -infinity of 0, infinity of infinities."""
    infinity = b.const(x.type, math.inf)
    value = b.select(b.fcmp("oeq", x, b.const(x.type, 0.0)), b.fneg(infinity), b.sitofp(_exponent(b, x), x.type))
    value = b.select(b.fcmp("oeq", b.fabs(x), infinity), infinity, value)
    return b.select(b.fcmp("uno", x, x), x, value)


def _ldexp(b: Any, x: Any, n: Any) -> Any:
    """x 2^n rounded once: in f64 by factors of two; of f32 exactly in f64, which rounds at the end."""
    wide = b.t_f64
    value = x if x.type == wide else b.fpext(x, wide)

    def bounded(k: Any, most: int) -> Any:
        low = b.op("llvm.intr.smax", (k, b.i32(-most)), (b.t_i32,)).result
        return b.op("llvm.intr.smin", (low, b.i32(most)), (b.t_i32,)).result

    def times(value: Any, k: Any) -> Any:
        power = b.bitcast(b.shl(b.sext(b.add(k, b.i32(1023)), b.t_i64), b.i64(52)), wide)
        with b.no_contract():
            return b.fmul(value, power)

    if x.type != wide:
        return b.fptrunc(times(value, bounded(n, 600)), x.type)  # exact: 2^600 times any f32 is a normal f64
    # only the last factor may make a subnormal number, so that it rounds once: what is to be subtracted first keeps numbers normal
    n = bounded(n, 2200)
    exponent = _exponent(b, b.select(b.fcmp("one", b.fabs(x), b.const(wide, 0.0)), x, b.const(wide, 1.0)))
    normal = b.icmp("sgt", exponent, b.i32(-1023))
    lifted = b.select(normal, value, times(value, b.i32(54)))
    at = b.select(normal, exponent, b.add(exponent, b.i32(54)))
    n = b.select(normal, n, b.sub(n, b.i32(54)))
    # to an exponent of 0 first, exactly; then by the whole, in two steps upwards and in one rounding step downwards
    unit = times(times(lifted, bounded(b.sub(b.i32(0), at), 1000)), b.sub(b.sub(b.i32(0), at), bounded(b.sub(b.i32(0), at), 1000)))
    total = b.add(n, at)
    first = bounded(total, 1000)
    second = bounded(b.sub(total, first), 1000)
    third = bounded(b.sub(b.sub(total, first), second), 1000)
    return times(times(times(unit, first), second), third)


@defined("ldexp", "f32", "f64", arity=2)
def ldexp(b: Any, x: Any, n: Any) -> Any:
    """x · 2^n, n an i32."""
    return _ldexp(b, x, n)


defined("scalbn", "f32", "f64", arity=2)(ldexp)


@defined("llrint", "f32", "f64")
def llrint(b: Any, x: Any) -> Any:
    """The nearest integer, ties to even, as an i64."""
    return b.fptosi(unary(b, "llvm.intr.rint", x), b.t_i64)


@defined("llround", "f32", "f64")
def llround(b: Any, x: Any) -> Any:
    """The nearest integer, ties away from zero, as an i64."""
    from tilewright.dialects.lower_math.basic import round_away

    return b.fptosi(round_away(b, x), b.t_i64)
