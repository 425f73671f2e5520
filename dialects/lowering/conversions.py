"""Conversions between float types: one table of formats, integer arithmetic where no instruction is certain to exist.

fp8 is i8 in registers; dialects/fp8.py says how it is rounded to.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import cache
from typing import Any

from tilewright.dialects._mlir import ir
from tilewright.dialects.errors import UnsupportedOnTargetError
from tilewright.dialects.fp8 import FP8, Fp8
from tilewright.dialects.lowering.elementwise import map_registers
from tilewright.dialects.lowering.registry import lowers


@cache
def _bits_of(value: float) -> int:
    return int(struct.unpack("<I", struct.pack("<f", value))[0])


def fp8_to_f32(b: Any, x: Any, f: Fp8) -> Any:
    """Exact."""
    word = b.zext(x, b.t_i32)
    magnitude = b.and_(word, b.i32(0x7F))
    # As an f32 pattern the number is right up to a power of two; subnormals come out right through the multiplication.
    shifted = b.shl(magnitude, b.i32(23 - f.mantissa))
    scaled = b.fmul(b.bitcast(shifted, b.t_f32), b.const(b.t_f32, 2.0 ** (127 - f.bias)))
    bits = b.bitcast(scaled, b.t_i32)
    if f.fnuz:
        special = b.icmp("eq", word, b.i32(0x80))
        bits = b.select(special, b.i32(0x7FC00000), bits)
    else:
        special = b.icmp("ugt", magnitude, b.i32(f.largest))
        pattern = b.i32(0x7FC00000)
        if f.inf is not None:
            pattern = b.select(b.icmp("eq", magnitude, b.i32(f.inf)), b.i32(0x7F800000), pattern)
        bits = b.select(special, pattern, bits)
    sign = b.shl(b.and_(word, b.i32(0x80)), b.i32(24))
    if f.fnuz:
        sign = b.select(special, b.i32(0), sign)
    return b.bitcast(b.or_(bits, sign, disjoint=True), b.t_f32)


def f32_to_fp8(b: Any, x: Any, f: Fp8) -> Any:
    """Rounded to nearest even, saturating."""
    bits = b.bitcast(x, b.t_i32)
    magnitude = b.and_(bits, b.i32(0x7FFFFFFF))
    is_nan = b.icmp("ugt", magnitude, b.i32(0x7F800000))
    limit = _bits_of(f.decode(f.largest))
    clamped = b.select(b.icmp("ult", magnitude, b.i32(limit)), magnitude, b.i32(limit))
    drop = 23 - f.mantissa
    odd = b.and_(b.lshr(clamped, b.i32(drop)), b.i32(1))
    rounded = b.lshr(b.add(b.add(clamped, odd), b.i32((1 << (drop - 1)) - 1)), b.i32(drop))
    normal = b.sub(rounded, b.i32((127 - f.bias) << f.mantissa))
    # Below the least normal number the spacing is fixed: adding a number whose last bit has that weight rounds there.
    magic = 2.0 ** (24 - f.bias - f.mantissa)
    with b.no_contract():
        sum_ = b.fadd(b.bitcast(clamped, b.t_f32), b.const(b.t_f32, magic))
    subnormal = b.sub(b.bitcast(sum_, b.t_i32), b.i32(_bits_of(magic)))
    code = b.select(b.icmp("ult", clamped, b.i32((128 - f.bias) << 23)), subnormal, normal)
    sign = b.and_(b.lshr(bits, b.i32(24)), b.i32(0x80))
    if f.fnuz:
        signed = b.select(b.icmp("eq", code, b.i32(0)), code, b.or_(code, sign))
    else:
        signed = b.or_(code, sign)
    return b.trunc(b.select(is_nan, b.i32(f.nan), signed), b.t_i8)


def bf16_word(b: Any, x: Any) -> Any:
    """i32 whose upper half is f32 ``x`` rounded to nearest even. NaN becomes 0x7FC0: keeping its payload would cost another instruction."""
    bits = b.bitcast(x, b.t_i32)
    odd = b.and_(b.lshr(bits, b.i32(16)), b.i32(1))
    rounded = b.add(bits, b.add(odd, b.i32(0x7FFF)))
    return b.select(b.fcmp("uno", x, x), b.i32(0x7FC00000), rounded)


def f32_to_bf16(b: Any, x: Any, native: bool) -> Any:
    """Rounded to nearest even."""
    if native:
        return b.fptrunc(x, b.t_bf16)
    return b.bitcast(b.trunc(b.lshr(bf16_word(b, x), b.i32(16)), b.t_i16), b.t_bf16)


def f64_to_f32_odd(b: Any, x: Any) -> Any:
    """f64 → f32 rounded to odd, so that a further rounding to f16, bf16 or fp8 is as if done at once
    (Boldo & Melquiond, "Emulation of FMA and correctly rounded sums: proved algorithms using rounding to odd", 2008)."""
    near = b.fptrunc(x, b.t_f32)
    back = b.fpext(near, b.t_f64)
    too_large = b.fcmp("ogt", b.fabs(back), b.fabs(x))
    bits = b.bitcast(near, b.t_i32)
    down = b.or_(b.sub(bits, b.zext(too_large, b.t_i32)), b.i32(1))
    return b.bitcast(b.select(b.fcmp("one", back, x), down, bits), b.t_f32)


def _name(type: Any) -> str:
    return str(type)


def converter(ctx: Any, src: Any, dst: Any, rounding: str = "rtne") -> Callable[[Any], Any]:
    """Function from a register of MLIR float type ``src`` to one of ``dst``.

    Any pair of fp8, f16, bf16, f32, f64. rounding: "rtne" or "rtz", for narrowing.
    """
    b = ctx.b
    native_bf16 = ctx.hooks.native_bf16_conversion
    s, d = _name(src), _name(dst)
    width = {"f16": 16, "bf16": 16, "f32": 32, "f64": 64}
    for n in (s, d):
        if n not in FP8 and n not in width:
            raise UnsupportedOnTargetError(f"no conversion from {s} to {d}; there are fp8, fp16, bf16, fp32 and fp64")
    if rounding not in ("rtne", "rtz"):
        raise UnsupportedOnTargetError(f"rounding {rounding!r}; there are rtne and rtz")

    def widen(x: Any) -> Any:
        """To f32, or f64 from f64."""
        if s in FP8:
            return fp8_to_f32(b, x, FP8[s])
        return b.fpext(x, b.t_f32) if width[s] == 16 else x

    def narrow(x: Any) -> Any:
        """From f32 or f64 to d, to nearest."""
        if x.type == b.t_f64:
            if d == "f64":
                return x
            if d == "f32":
                return b.fptrunc(x, b.t_f32)
            x = f64_to_f32_odd(b, x)
        if d == "f64":
            return b.fpext(x, b.t_f64)
        if d == "f32":
            return x
        if d == "f16":
            return b.fptrunc(x, b.t_f16)
        return f32_to_bf16(b, x, native_bf16) if d == "bf16" else f32_to_fp8(b, x, FP8[d])

    if s == d:
        return lambda x: x
    exact = d == "f64" or d == "f32" and s != "f64" or s in FP8 and d in width
    if rounding == "rtne" or exact:
        return lambda x: narrow(widen(x))
    back = converter(ctx, dst, src if s in width and width[s] >= 32 else ir.F32Type.get())
    bits = 8 if d in FP8 else width[d]

    def towards_zero(x: Any) -> Any:
        wide = widen(x)
        near = narrow(wide)
        too_large = b.fcmp("ogt", b.fabs(back(near)), b.fabs(wide))
        word = b.bitcast(near, b.int_type(bits))
        down = b.sub(word, b.zext(too_large, b.int_type(bits)))
        if d in FP8 and FP8[d].fnuz:  # below the least negative number comes 0, whose code has no sign
            down = b.select(b.and_(too_large, b.icmp("eq", down, b.i8(0x80))), b.i8(0), down)
        return b.bitcast(down, near.type)

    return towards_zero


def fp8_constant(type: Any, value: float) -> int:
    """Code of a constant of MLIR fp8 type ``type``."""
    return FP8[str(type)].encode_exact(value)


@lowers("arith.extf", "arith.truncf", "tt.fp_to_fp")
def lower_float_conversion(ctx: Any, op: Any) -> list[Any]:
    rounding = ir.StringAttr(op.attributes["rounding"]).value if op.name == "tt.fp_to_fp" else "rtne"
    convert = converter(ctx, ctx.element_type(op.operands[0]), ctx.element_type(op.results[0]), rounding)
    return [map_registers(convert, ctx.operands(op))]
