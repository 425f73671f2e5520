"""Elementwise ops on lanes in compute form (see loop_builder): most are the same op on vectors, then rounded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright.dialects._mlir import ir
from tilewright.dialects.errors import UnsupportedOnTargetError
from tilewright.dialects.fp8 import FP8
from tilewright.targets.cpu import functions, portable_math, vector_math
from tilewright.targets.cpu.loop_builder import LoopBuilder

_FUSABLE = ("arith.addf", "arith.subf", "arith.mulf")
_NARROW = ("f16", "bf16", *FP8)


def compute_type(b: LoopBuilder, element: Any) -> Any:
    """What one lane of a tt element type is held as."""
    name = str(element)
    if name in _NARROW:
        return b.f32
    if name.startswith("!tt.ptr"):
        return b.i64
    if name.startswith("f8"):
        raise UnsupportedOnTargetError(f"cpu: no arithmetic or conversion for {name}; there are {', '.join(FP8)}")
    return element


def storage_type(b: LoopBuilder, element: Any) -> Any:
    """What one element of a tt element type is in memory."""
    name = str(element)
    if name in ("f16", "f32", "f64"):
        return element
    if name == "bf16":
        return b.i16
    if name == "i1" or name.startswith("f8"):
        return b.i8
    return b.i64 if name.startswith("!tt.ptr") else element


def _round_bf16(b: LoopBuilder, x: Any) -> Any:
    """f32 lanes rounded to the nearest bf16 (ties to even), NaN kept."""
    bits = b.bitcast(x, b.i32)
    odd = b.op("arith.andi", [b.bin("arith.shrui", bits, b.const(bits.type, 16)), b.const(bits.type, 1)], [bits.type]).result
    up = b.bin("arith.addi", bits, b.bin("arith.addi", odd, b.const(bits.type, 0x7FFF)))
    kept = b.select(b.cmpf("uno", x, x), b.const(bits.type, 0x7FC00000), up)
    return b.bitcast(b.op("arith.andi", [kept, b.const(bits.type, -65536)], [bits.type]).result, b.f32)


def _round_small(b: LoopBuilder, x: Any, mantissa: int, min_exponent: int, largest: float, toward_zero: bool = False) -> Any:
    """f32 lanes rounded to a float of ``mantissa`` bits with exponents from ``min_exponent``: to nearest, ties to even, or toward
    zero. Saturates: what is larger than ``largest``, infinities included, becomes that. NaN stays.

    Adding and taking away 1.5·2^(e + 23 - mantissa) rounds at the right bit.
    """
    bits = b.bitcast(x, b.i32)
    exponent = b.bin("arith.subi", b.op("arith.andi", [b.bin("arith.shrui", bits, b.const(bits.type, 23)), b.const(bits.type, 255)],
                                        [bits.type]).result, b.const(bits.type, 127))
    exponent = b.bin("arith.minsi", b.bin("arith.maxsi", exponent, b.const(bits.type, min_exponent)), b.const(bits.type, 100))
    field = b.bin("arith.addi", exponent, b.const(bits.type, 127 + 23 - mantissa))
    magic = b.bitcast(b.op("arith.ori", [b.bin("arith.shli", field, b.const(bits.type, 23)), b.const(bits.type, 1 << 22)], [bits.type]).result, b.f32)
    rounded = b.op("arith.subf", [b.op("arith.addf", [x, magic], [x.type]).result, magic], [x.type]).result
    size = b.un("math.absf", rounded)
    if toward_zero:
        spacing = b.bitcast(b.bin("arith.shli", b.bin("arith.addi", exponent, b.const(bits.type, 127 - mantissa)), b.const(bits.type, 23)), b.f32)
        lower = b.op("arith.subf", [size, spacing], [x.type]).result
        size = b.select(b.cmpf("ogt", size, b.un("math.absf", x)), lower, size)
    size = b.select(b.cmpf("ogt", size, b.const(x.type, largest)), b.const(x.type, largest), size)
    return b.select(b.cmpf("uno", x, x), x, b.op("math.copysign", [size, x], [x.type]).result)


# mantissa bits, least exponent, largest number
_FORMATS = {"f16": (10, -14, 65504.0)} | {name: (f.mantissa, 1 - f.bias, f.decode(f.largest)) for name, f in FP8.items()}


def _round_fp8(b: LoopBuilder, x: Any, name: str, toward_zero: bool = False) -> Any:
    """f32 lanes rounded to an fp8 format, NaN as the one that ``to_storage`` gives the format's own code, 0 without a sign where there is no -0."""
    rounded = _round_small(b, x, *_FORMATS[name], toward_zero=toward_zero)
    if FP8[name].fnuz:
        rounded = b.op("arith.addf", [rounded, b.const(x.type, 0.0)], [x.type]).result  # -0 + 0 is 0
    nan = b.bitcast(b.const(b.vec(b.lanes(x.type), b.i32), _nan_bits(name, FP8[name].nan)), b.f32)
    return b.select(b.cmpf("uno", x, x), nan, rounded)


def _nan_bits(name: str, code: int) -> int:
    """The f32 NaN that stands for an fp8 NaN's code: quiet, with the code in its last bits, so that copies keep it."""
    return 0x7FC00000 | (code & 0x80) << 24 | code


def round_lanes(b: LoopBuilder, x: Any, element: Any) -> Any:
    """f32 lanes rounded to what a narrow ``element`` type holds; other lanes as they are."""
    name = str(element)
    if name == "bf16":
        return _round_bf16(b, x)
    if name == "f16":
        narrow = b.un("arith.truncf", x, b.vec(b.lanes(x.type), b.f16))
        return b.un("arith.extf", narrow, x.type)
    return _round_fp8(b, x, name) if name in FP8 else x


def to_storage(b: LoopBuilder, x: Any, element: Any) -> Any:
    """Lanes in compute form as they are stored."""
    name, n = str(element), b.lanes(x.type)
    if name == "i1":
        return b.un("arith.extui", x, b.vec(n, b.i8))
    if name == "f16":
        return b.un("arith.truncf", x, b.vec(n, b.f16))
    if name == "bf16":
        return b.un("arith.trunci", b.bin("arith.shrui", b.bitcast(x, b.i32), b.const(b.vec(n, b.i32), 16)), b.vec(n, b.i16))
    return _fp8_code(b, x, name) if name in FP8 else x


def _fp8_code(b: LoopBuilder, x: Any, name: str) -> Any:
    """The i8 codes of f32 lanes that the format has. As an f32 pattern a number's code is right up to a power of two."""
    f, n, word = FP8[name], b.lanes(x.type), b.vec(b.lanes(x.type), b.i32)

    def masked(value: Any, mask: int) -> Any:
        return b.op("arith.andi", [value, b.const(word, mask)], [word]).result

    scaled = b.op("arith.mulf", [b.un("math.absf", x), b.const(x.type, 2.0 ** (f.bias - 127))], [x.type]).result
    code = b.bin("arith.shrui", b.bitcast(scaled, b.i32), b.const(word, 23 - f.mantissa))
    if f.inf is not None:
        code = b.select(b.cmpf("oeq", b.un("math.absf", x), b.const(x.type, float("inf"))), b.const(word, f.inf), code)
    bits = b.bitcast(x, b.i32)
    sign = masked(b.bin("arith.shrui", bits, b.const(word, 24)), 0x80)
    if f.fnuz:
        sign = b.select(b.cmpf("oeq", x, b.const(x.type, 0.0)), b.const(word, 0), sign)
    code = b.op("arith.ori", [code, sign], [word]).result
    kept, nan = masked(bits, 0xFF), b.const(word, f.nan)  # a NaN that no fp8 tile was read as has no code
    is_code = b.cmpi("eq", kept, nan) if f.fnuz else b.cmpi("ugt", masked(bits, 0x7F), b.const(word, max(f.largest, f.inf or 0)))
    code = b.select(b.cmpf("uno", x, x), b.select(is_code, kept, nan) if f.has_nan else nan, code)
    return b.un("arith.trunci", code, b.vec(n, b.i8))


def _fp8_value(b: LoopBuilder, x: Any, name: str) -> Any:
    """i8 codes as f32 lanes; NaN keeps its code (see _nan_bits)."""
    f, n, word = FP8[name], b.lanes(x.type), b.vec(b.lanes(x.type), b.i32)
    code = b.un("arith.extui", x, word)

    def masked(mask: int) -> Any:
        return b.op("arith.andi", [code, b.const(word, mask)], [word]).result

    size, sign = masked(0x7F), b.bin("arith.shli", masked(0x80), b.const(word, 24))
    lanes = b.vec(n, b.f32)
    value = b.bitcast(b.op("arith.mulf", [b.bitcast(b.bin("arith.shli", size, b.const(word, 23 - f.mantissa)), b.f32),
                                          b.const(lanes, 2.0 ** (127 - f.bias))], [lanes]).result, b.i32)
    nan = b.op("arith.ori", [code, b.const(word, 0x7FC00000)], [word]).result
    if f.fnuz:
        value = b.select(b.cmpi("eq", code, b.const(word, 0x80)), nan, value)
    elif f.has_nan:
        value = b.select(b.cmpi("ugt", size, b.const(word, f.largest)), nan, value)
        if f.inf is not None:
            value = b.select(b.cmpi("eq", size, b.const(word, f.inf)), b.const(word, 0x7F800000), value)
    return b.bitcast(b.op("arith.ori", [value, sign], [word]).result, b.f32)


def from_storage(b: LoopBuilder, x: Any, element: Any) -> Any:
    """Stored lanes in compute form."""
    name, n = str(element), b.lanes(x.type)
    if name == "i1":
        return b.cmpi("ne", x, b.const(x.type, 0))
    if name == "f16":
        return b.un("arith.extf", x, b.vec(n, b.f32))
    if name == "bf16":
        wide = b.un("arith.extui", x, b.vec(n, b.i32))
        return b.bitcast(b.bin("arith.shli", wide, b.const(wide.type, 16)), b.f32)
    return _fp8_value(b, x, name) if name in FP8 else x


def _odd_f32(b: LoopBuilder, x: Any) -> Any:
    """f64 lanes to f32 by rounding to odd, so that rounding again to a narrower type rounds once in effect."""
    n = b.lanes(x.type)
    near = b.un("arith.truncf", x, b.vec(n, b.f32))
    back = b.un("arith.extf", near, x.type)
    bits = b.bitcast(near, b.i32)
    too_far = b.cmpf("ogt", b.un("math.absf", back), b.un("math.absf", x))
    toward_zero = b.bin("arith.subi", bits, b.un("arith.extui", too_far, bits.type))
    odd = b.op("arith.ori", [toward_zero, b.const(bits.type, 1)], [bits.type]).result
    return b.bitcast(b.select(b.cmpf("one", back, x), odd, bits), b.f32)


def _rtz(b: LoopBuilder, x: Any, element: Any) -> Any:
    """f32 lanes to a narrow type toward zero. Infinity stays where the type has it and does not saturate (f16, bf16)."""
    name = str(element)
    if name == "bf16":
        bits = b.bitcast(x, b.i32)
        cut = b.bitcast(b.bin("arith.andi", bits, b.const(bits.type, -1 << 16)), b.f32)
        return b.select(b.cmpf("uno", x, x), b.const(x.type, float("nan")), cut)
    if name in FP8:
        return _round_fp8(b, x, name, toward_zero=True)
    rounded = _round_small(b, x, *_FORMATS[name], toward_zero=True)
    return b.select(b.cmpf("oeq", b.un("math.absf", x), b.const(x.type, float("inf"))), x, rounded)


def emit(b: LoopBuilder, op: Any, args: Sequence[Any], n: int, declare: Any) -> Any:
    """Result lanes of an elementwise ``op`` (arith, math, or one of tt's) on operand lanes. Types are read off the op.

    Raises UnsupportedOnTargetError for an op or function that the target does not have.
    """
    name = op.name
    source: Any = element_of(op.operands[0].type) if len(op.operands) else None
    target = element_of(op.results[0].type)
    out = b.vec(n, compute_type(b, target))
    dialect, _, short = name.partition(".")
    if name in _EXTREMA:
        return extremum(b, name, *args)
    if dialect == "math":
        if short == "fma":
            return _fma(b, args, target)
        if short in ("absi", "ctpop", "ctlz", "cttz", "ipowi"):
            return b.op(name, list(args), [out]).result
        result = vector_math.call(b, short, args, declare)
        if result is None:
            raise UnsupportedOnTargetError(f"cpu: no function {short!r}; there are {', '.join(vector_math.function_names())}")
        return round_lanes(b, result, target)
    if name in ("tt.bitcast", "arith.bitcast"):
        return _bitcast(b, args[0], source, target, n)
    if name in ("tt.int_to_ptr", "tt.ptr_to_int"):
        return args[0]
    if name == "tt.fp_to_fp" or short in ("extf", "truncf"):
        return _convert(b, args[0], source, target, op, n)
    if short in ("sitofp", "uitofp"):
        return _int_to_float(b, name, args[0], target, n)
    if short in ("fptosi", "fptoui"):
        return _float_to_int(b, name, args[0], target, n)
    if name == "tt.precise_sqrt":
        return round_lanes(b, b.un("math.sqrt", args[0]), target)
    if name == "tt.precise_divf":
        return b.bin("arith.divf", *args)
    if name == "tt.mulhiui":
        wide = b.vec(n, ir.IntegerType.get_signless(2 * source.width))
        product = b.bin("arith.muli", *(b.un("arith.extui", a, wide) for a in args))
        return b.un("arith.trunci", b.bin("arith.shrui", product, b.const(wide, source.width)), out)
    if name == "tt.clampf":
        names = ("arith.maximumf", "arith.minimumf") if ir.BoolAttr(op.attributes["propagate_nan"]).value else ("arith.maxnumf", "arith.minnumf")
        return extremum(b, names[1], extremum(b, names[0], args[0], args[1]), args[2])
    if name == "tt.extern_elementwise":
        symbol = ir.StringAttr(op.attributes["symbol"]).value
        result = functions.call(b, symbol, args, declare)
        if result is None:
            result = portable_math.call(b, symbol, args, declare)
        if result is None:
            result = vector_math.call(b, symbol, args, declare)
        if result is None:
            known = sorted({*vector_math.function_names(), *functions.NAMES, *portable_math.NAMES})
            raise UnsupportedOnTargetError(f"cpu: no function {symbol!r}; there are {', '.join(known)}")
        return round_lanes(b, result, target) if isinstance(b.element(result.type), (ir.F32Type, ir.F64Type)) else b.cast_int(result, target)
    if dialect != "arith":
        raise UnsupportedOnTargetError(f"cpu: the operation {name!r} is not supported")
    attrs = {a.name: a.attr for a in op.attributes if not a.name.startswith("tt.")} if not hasattr(op.attributes, "items") else {
        k: v for k, v in op.attributes.items() if not k.startswith("tt.")}
    if b.contract and name in _FUSABLE:
        attrs["fastmath"] = b._contract
    if short in ("shli", "shrsi", "shrui"):
        return _shift(b, name, args, out)
    if short in ("divsi", "divui", "remsi", "remui"):
        return _divide(b, name, args, out)
    if name == "arith.select":
        args = [args[0] if b.lanes(args[0].type) == n else b.broadcast(args[0], n), *args[1:]]
        return b.op(name, list(args), [out], attrs).result  # nothing to round, and NaN keeps its bits
    return round_lanes(b, b.op(name, list(args), [out], attrs).result, target)


_EXTREMA = ("arith.maxnumf", "arith.minnumf", "arith.maximumf", "arith.minimumf")


def extremum(b: LoopBuilder, name: str, x: Any, y: Any) -> Any:
    """A maximum or minimum of f32 or f64 lanes with -0 below +0, as GPUs have it and x86's instructions do not."""
    result = b.bin(name, x, y)
    if name in ("arith.maximumf", "arith.minimumf"):
        return result  # whose expansion by LLVM orders zeros
    constants = [b.constant_of(v) for v in (x, y)]
    if any(isinstance(c, float) and c != 0 for c in constants):
        return result
    word = b.vec(b.lanes(x.type), b.i64 if "f64" in str(x.type) else b.i32)
    joined = b.op("arith.andi" if name == "arith.maxnumf" else "arith.ori", [b.bitcast(x, b.element(word)), b.bitcast(y, b.element(word))], [word]).result
    return b.select(b.cmpf("oeq", x, y), b.bitcast(joined, b.element(x.type)), result)


def _fma(b: LoopBuilder, args: Sequence[Any], target: Any) -> Any:
    """One rounding. Of narrow types the product is exact in f64, and its sum rounded to odd there rounds once in effect later
    (Boldo & Melquiond, "Emulation of FMA and correctly rounded sums", 2008)."""
    if str(target) in ("f32", "f64"):
        return b.fma(*args)
    n = b.lanes(args[0].type)
    wide, word = b.vec(n, b.f64), b.vec(n, b.i64)
    x, y, addend = (b.un("arith.extf", a, wide) for a in args)

    def add(left: Any, right: Any) -> Any:
        return b.op("arith.addf", [left, right], [wide]).result

    def sub(left: Any, right: Any) -> Any:
        return b.op("arith.subf", [left, right], [wide]).result

    product = b.op("arith.mulf", [x, y], [wide]).result
    total = add(product, addend)
    virtual = sub(total, product)
    lost = add(sub(product, sub(total, virtual)), sub(addend, virtual))
    zero, one, bits = b.const(wide, 0.0), b.const(word, 1), b.bitcast(total, b.i64)
    step = b.select(b.cmpi("eq", b.cmpf("ogt", lost, zero), b.cmpf("ogt", total, zero)), one, b.const(word, -1))
    even = b.cmpi("eq", b.op("arith.andi", [bits, one], [word]).result, b.const(word, 0))
    inexact = b.cmpf("one", lost, zero)
    odd = b.select(inexact, b.select(even, b.bin("arith.addi", bits, step), bits), bits)
    return round_lanes(b, _odd_f32(b, b.bitcast(odd, b.f64)), target)


def element_of(type: Any) -> Any:
    """Element type of a tensor type, or the scalar type itself."""
    return type.element_type if isinstance(type, ir.RankedTensorType) else type


def _shift(b: LoopBuilder, name: str, args: Sequence[Any], out: Any) -> Any:
    """Shifting by the width or more gives 0, as in the interpreter (LLVM leaves it open)."""
    bits = b.element(out).width
    number = b.constant_of(args[1])
    if isinstance(number, int) and 0 <= number < bits:
        return b.bin(name, *args)
    inside = b.cmpi("ult", args[1], b.const(out, bits))
    return b.select(inside, b.bin(name, args[0], b.select(inside, args[1], b.const(out, 0))), b.const(out, 0))


def _divide(b: LoopBuilder, name: str, args: Sequence[Any], out: Any) -> Any:
    """Integer division that never traps: masked-off lanes may hold anything. By 0 it gives what division by 1 does; the least
    number by -1 wraps."""
    x, y = args
    number = b.constant_of(y)
    if isinstance(number, int) and number not in (0, -1):
        return b.bin(name, x, y)
    one = b.const(out, 1)
    safe = b.select(b.cmpi("eq", y, b.const(out, 0)), one, y)
    if name.endswith("ui"):
        return b.bin(name, x, safe)
    negates = b.cmpi("eq", y, b.const(out, -1))
    result = b.bin(name, x, b.select(negates, one, safe))
    # the remainder by 1 is 0, as that by -1
    return b.select(negates, b.bin("arith.subi", b.const(out, 0), x), result) if name == "arith.divsi" else result


def _convert(b: LoopBuilder, x: Any, source: Any, target: Any, op: Any, n: int) -> Any:
    rounding = ir.StringAttr(op.attributes["rounding"]).value if op.name == "tt.fp_to_fp" else "rtne"
    if str(target) == "f64":
        return x if str(source) == "f64" else b.un("arith.extf", x, b.vec(n, b.f64))
    if str(target) == "f32":
        if str(source) != "f64":
            return x
        near = b.un("arith.truncf", x, b.vec(n, b.f32))
        if rounding != "rtz":
            return near
        too_far = b.cmpf("ogt", b.un("math.absf", b.un("arith.extf", near, x.type)), b.un("math.absf", x))
        return b.bitcast(b.bin("arith.subi", b.bitcast(near, b.i32), b.un("arith.extui", too_far, b.vec(n, b.i32))), b.f32)
    if str(source) == "f64":
        x = _odd_f32(b, x)
    return _rtz(b, x, target) if rounding == "rtz" else round_lanes(b, x, target)


def _float_to_int(b: LoopBuilder, name: str, x: Any, target: Any, n: int) -> Any:
    """Saturating, NaN to 0, as on every target: the instruction alone gives another number out of range, and LLVM takes it for undefined."""
    if b.element(x.type).width < 32:
        x = b.un("arith.extf", x, b.vec(n, b.f32))
    to, width, signed = b.vec(n, target), target.width, name == "arith.fptosi"
    low, high = (-(2.0 ** (width - 1)), 2.0 ** (width - 1)) if signed else (0.0, 2.0**width)
    least, most = (-(1 << width - 1), (1 << width - 1) - 1) if signed else (0, -1)
    below, above = b.cmpf("olt", x, b.const(x.type, low)), b.cmpf("oge", x, b.const(x.type, high))
    inside = b.bin("arith.andi", b.cmpf("oge", x, b.const(x.type, low)), b.cmpf("olt", x, b.const(x.type, high)))
    result = b.un(name, b.select(inside, x, b.const(x.type, 0.0)), to)
    return b.select(below, b.const(to, least), b.select(above, b.const(to, most), result))


def _int_to_float(b: LoopBuilder, name: str, x: Any, target: Any, n: int) -> Any:
    if str(target) in ("f32", "f64"):
        return b.un(name, x, b.vec(n, target))
    width = b.element(x.type).width
    if width <= 16:
        return round_lanes(b, b.un(name, x, b.vec(n, b.f32)), target)
    if width == 64:  # large ones do not fit f64: rounded to odd first, so that they round once
        top = b.bin("arith.shrsi" if name == "arith.sitofp" else "arith.shrui", x, b.const(x.type, 53))
        if name == "arith.sitofp":
            top = b.op("arith.xori", [top, b.bin("arith.shrsi", x, b.const(x.type, 63))], [x.type]).result
        low = b.op("arith.andi", [x, b.const(x.type, 2047)], [x.type]).result
        sticky = b.select(b.cmpi("ne", low, b.const(x.type, 0)), b.const(x.type, 2048), b.const(x.type, 0))
        odd = b.op("arith.ori", [b.bin("arith.subi", x, low), sticky], [x.type]).result
        x = b.select(b.cmpi("ne", top, b.const(x.type, 0)), odd, x)
    return round_lanes(b, _odd_f32(b, b.un(name, x, b.vec(n, b.f64))), target)


def _bitcast(b: LoopBuilder, x: Any, source: Any, target: Any, n: int) -> Any:
    if source == target:
        return x
    stored = to_storage(b, x, source)
    kind = storage_type(b, target)
    if str(source) == "i1" or str(target) == "i1":
        stored = b.cast_int(stored, b.i8)
    return from_storage(b, b.bitcast(stored, kind), target)
