"""Elementwise ops: a table from op name to what makes one register of the result.

``ELEMENTWISE[name](ctx, op)`` looks at the types once and returns a function of one register of each operand. Registers that
repeat (splats, broadcasts) are computed once. bf16 arithmetic is done in f32 and rounded; f16 is native.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tilewright.dialects._mlir import ir
from tilewright.dialects.errors import UnsupportedOnTargetError
from tilewright.dialects.lowering.registry import lowers

Maker = Callable[[Any, Any], Callable[..., Any]]
ELEMENTWISE: dict[str, Maker] = {}

_ICMP = ("eq", "ne", "slt", "sle", "sgt", "sge", "ult", "ule", "ugt", "uge")
_FCMP = ("false", "oeq", "ogt", "oge", "olt", "ole", "one", "ord", "ueq", "ugt", "uge", "ult", "ule", "une", "uno", "true")


def map_registers(fn: Callable[..., Any], operands: Sequence[list[Any]]) -> list[Any]:
    """``fn`` over the registers of the operands (lists of one length, or of length 1, which repeat); equal inputs share."""
    n = max(map(len, operands))
    if n == 1:
        return [fn(*(o[0] for o in operands))]
    lists = [o if len(o) == n else o * n for o in operands]
    made: dict[Any, Any] = {}
    out = []
    if len(lists) == 1:
        for x in lists[0]:
            value = made.get(id(x))
            if value is None:
                value = made[id(x)] = fn(x)
            out.append(value)
        return out
    for args in zip(*lists):
        key = tuple(map(id, args))
        value = made.get(key)
        if value is None:
            value = made[key] = fn(*args)
        out.append(value)
    return out


def elementwise(maker: Maker) -> Callable[[Any, Any], list[Any]]:
    """A lowering from a maker, for a target's own table: ``{"arith.divf": elementwise(lambda ctx, op: my_div)}``."""
    return lambda ctx, op: [map_registers(maker(ctx, op), ctx.operands(op))]


def _register(maker: Maker, *names: str) -> None:
    lowering = elementwise(maker)
    for name in names:
        ELEMENTWISE[name] = maker
        lowers(name)(lowering)


def in_f32(ctx: Any, type: Any, fn: Callable[..., Any]) -> Callable[..., Any]:
    """``fn`` on floats of MLIR type ``type``: bf16 goes through f32 and back."""
    if not isinstance(type, ir.BF16Type):
        return fn
    from tilewright.dialects.lowering.conversions import f32_to_bf16

    b, native = ctx.b, ctx.hooks.native_bf16_conversion
    return lambda *args: f32_to_bf16(b, fn(*(b.fpext(a, b.t_f32) for a in args)), native)


# ------------------------------------------------------------------------------------------------------ integers
def _integer(method: str) -> Maker:
    return lambda ctx, op: getattr(ctx.b, method)


def _wrapping(method: str) -> Maker:
    """add, sub, mul, shl: nsw and nuw where given."""
    def maker(ctx: Any, op: Any) -> Any:
        fn = getattr(ctx.b, method)
        flags = str(op.attributes["overflowFlags"]) if "overflowFlags" in op.attributes else ""
        nsw, nuw = "nsw" in flags, "nuw" in flags
        return (lambda x, y: fn(x, y, nsw=nsw, nuw=nuw)) if nsw or nuw else fn

    return maker


def _intrinsic(name: str) -> Maker:
    """An op of the LLVM dialect with results of its operands' type."""
    return lambda ctx, op: lambda *args: ctx.b.op(name, args, (args[0].type,)).result


for _name, _method in {"divsi": "sdiv", "divui": "udiv", "remsi": "srem", "remui": "urem", "andi": "and_", "ori": "or_",
                       "xori": "xor", "shrsi": "ashr", "shrui": "lshr"}.items():
    _register(_integer(_method), f"arith.{_name}")
for _name, _method in {"addi": "add", "subi": "sub", "muli": "mul", "shli": "shl"}.items():
    _register(_wrapping(_method), f"arith.{_name}")
for _name in ("maxsi", "minsi", "maxui", "minui"):
    _register(_intrinsic(f"llvm.intr.{_name[3]}{_name[:3]}"), f"arith.{_name}")


def _cmpi(ctx: Any, op: Any) -> Any:
    predicate = _ICMP[ir.IntegerAttr(op.attributes["predicate"]).value]
    return lambda x, y: ctx.b.icmp(predicate, x, y)


def _absi(ctx: Any, op: Any) -> Any:
    b = ctx.b

    def fn(x: Any) -> Any:
        return b.select(b.icmp("slt", x, b.const(x.type, 0)), b.sub(b.const(x.type, 0), x), x)

    return fn


def mulhi_unsigned(b: Any, x: Any, y: Any) -> Any:
    """High half of the unsigned product of two i32 or i64, without wider integers than i64."""
    if x.type == b.t_i32:
        product = b.mul(b.zext(x, b.t_i64), b.zext(y, b.t_i64))
        return b.trunc(b.lshr(product, b.i64(32)), b.t_i32)
    low, shift = b.i64(0xFFFFFFFF), b.i64(32)
    xl, xh, yl, yh = b.and_(x, low), b.lshr(x, shift), b.and_(y, low), b.lshr(y, shift)
    middle = b.add(b.mul(xh, yl), b.lshr(b.mul(xl, yl), shift))
    other = b.add(b.mul(xl, yh), b.and_(middle, low))
    return b.add(b.add(b.mul(xh, yh), b.lshr(middle, shift)), b.lshr(other, shift))


_register(_cmpi, "arith.cmpi")
_register(_absi, "math.absi")
_register(lambda ctx, op: lambda x, y: mulhi_unsigned(ctx.b, x, y), "tt.mulhiui")
_register(lambda ctx, op: ctx.b.select, "arith.select")


# -------------------------------------------------------------------------------------------------------- floats
def _float(method: str) -> Maker:
    return lambda ctx, op: in_f32(ctx, ctx.element_type(op.results[0]), getattr(ctx.b, method))


def _float_intrinsic(name: str) -> Maker:
    def maker(ctx: Any, op: Any) -> Any:
        return in_f32(ctx, ctx.element_type(op.results[0]), lambda *args: ctx.b.op(name, args, (args[0].type,)).result)

    return maker


def _fma(ctx: Any, op: Any) -> Any:
    """One rounding. Of bf16 the product is exact in f64, and its sum rounded to odd there rounds once in effect when it is narrowed
    (Boldo & Melquiond, "Emulation of FMA and correctly rounded sums", 2008)."""
    from tilewright.dialects.lowering.conversions import converter

    b, type = ctx.b, ctx.element_type(op.results[0])
    if not isinstance(type, ir.BF16Type):
        return b.fma
    up, down = converter(ctx, type, b.t_f64), converter(ctx, b.t_f64, type)

    def fma(x: Any, y: Any, z: Any) -> Any:
        with b.no_contract():
            product, addend = b.fmul(up(x), up(y)), up(z)
            total = b.fadd(product, addend)
            virtual = b.fsub(total, product)
            lost = b.fadd(b.fsub(product, b.fsub(total, virtual)), b.fsub(addend, virtual))
        zero, bits = b.const(b.t_f64, 0.0), b.bitcast(total, b.t_i64)
        same_side = b.icmp("eq", b.fcmp("ogt", lost, zero), b.fcmp("ogt", total, zero))
        even = b.icmp("eq", b.and_(bits, b.i64(1)), b.i64(0))
        odd = b.select(b.and_(b.fcmp("one", lost, zero), even), b.add(bits, b.select(same_side, b.i64(1), b.i64(-1))), bits)
        return down(b.bitcast(odd, b.t_f64))

    return fma


for _name, _method in {"addf": "fadd", "subf": "fsub", "mulf": "fmul", "divf": "fdiv"}.items():
    _register(_float(_method), f"arith.{_name}")
_register(_float("fdiv"), "tt.precise_divf")
_register(_fma, "math.fma")
for _name, _llvm in {"maxnumf": "maxnum", "minnumf": "minnum", "maximumf": "maximum", "minimumf": "minimum"}.items():
    _register(_float_intrinsic(f"llvm.intr.{_llvm}"), f"arith.{_name}")


def _sign_op(keep: str) -> Maker:
    """negf, absf: by bits where the type is bf16, so that nothing is rounded."""
    def maker(ctx: Any, op: Any) -> Any:
        b = ctx.b
        if isinstance(ctx.element_type(op.results[0]), ir.BF16Type):
            mask = 0x8000 if keep == "neg" else 0x7FFF
            combine = b.xor if keep == "neg" else b.and_
            return lambda x: b.bitcast(combine(b.bitcast(x, b.t_i16), b.i16(mask)), b.t_bf16)
        return b.fneg if keep == "neg" else b.fabs

    return maker


def _cmpf(ctx: Any, op: Any) -> Any:
    b = ctx.b
    predicate = _FCMP[ir.IntegerAttr(op.attributes["predicate"]).value]
    if predicate in ("true", "false"):
        return lambda x, y: b.i1(predicate == "true")
    if isinstance(ctx.element_type(op.operands[0]), ir.BF16Type):
        return lambda x, y: b.fcmp(predicate, b.fpext(x, b.t_f32), b.fpext(y, b.t_f32))
    return lambda x, y: b.fcmp(predicate, x, y)


def _clampf(ctx: Any, op: Any) -> Any:
    propagate = ir.BoolAttr(op.attributes["propagate_nan"]).value
    low, high = ("llvm.intr.maximum", "llvm.intr.minimum") if propagate else ("llvm.intr.maxnum", "llvm.intr.minnum")
    b = ctx.b

    def clamp(x: Any, lo: Any, hi: Any) -> Any:
        return b.op(high, (b.op(low, (x, lo), (x.type,)).result, hi), (x.type,)).result

    return in_f32(ctx, ctx.element_type(op.results[0]), clamp)


_register(_sign_op("neg"), "arith.negf")
_register(_sign_op("abs"), "math.absf")
_register(_cmpf, "arith.cmpf")
_register(_clampf, "tt.clampf")


# --------------------------------------------------------------------------------------------------------- casts
def _cast(method: str) -> Maker:
    def maker(ctx: Any, op: Any) -> Any:
        to = ctx.llvm_type(op.results[0].type)
        fn = getattr(ctx.b, method)
        return lambda x: fn(x, to)

    return maker


def _extui(ctx: Any, op: Any) -> Any:
    to, nneg = ctx.llvm_type(op.results[0].type), "nonNeg" in op.attributes
    return lambda x: ctx.b.zext(x, to, nneg=nneg)


def _int_to_float(method: str) -> Maker:
    def maker(ctx: Any, op: Any) -> Any:
        b, fn = ctx.b, getattr(ctx.b, method)
        type = ctx.element_type(op.results[0])
        bits = ctx.element_type(op.operands[0]).width
        if not isinstance(type, (ir.BF16Type, ir.F16Type)):
            return lambda x: fn(x, type)
        from tilewright.dialects.lowering.conversions import converter

        # Through f64 integers of up to 32 bits are exact; wider ones have at most been rounded far below the 16-bit type's
        # last place, which the rounding to odd in the conversion keeps apart from ties, except for inexact i64.
        wide = b.t_f64 if bits > 24 else b.t_f32
        convert = converter(ctx, wide, type)
        if bits <= 32:
            return lambda x: convert(fn(x, wide))
        return lambda x: convert(_i64_to_f64_odd(b, x, fn, method == "sitofp"))

    return maker


def _i64_to_f64_odd(b: Any, x: Any, fn: Callable[..., Any], signed: bool) -> Any:
    """An i64 as f64 with its low 11 bits or-ed into one, which rounds to odd: exact in f64's 53 bits."""
    low = b.and_(x, b.i64(0x7FF))
    sticky = b.zext(b.icmp("ne", low, b.i64(0)), b.t_i64)
    odd = b.or_(b.and_(x, b.i64(~0x7FF)), b.shl(sticky, b.i64(11)))
    magnitude = b.lshr(b.select(b.icmp("slt", x, b.i64(0)), b.sub(b.i64(0), x), x), b.i64(53)) if signed else b.lshr(x, b.i64(53))
    return b.select(b.icmp("eq", magnitude, b.i64(0)), fn(x, b.t_f64), fn(odd, b.t_f64))


def _float_to_int(method: str) -> Maker:
    """Saturating, NaN to 0: LLVM's plain conversions leave what is out of range undefined, and targets differ there."""

    def maker(ctx: Any, op: Any) -> Any:
        b = ctx.b
        to = ctx.llvm_type(op.results[0].type)
        source = str(ctx.element_type(op.operands[0]))
        wide = b.t_f32 if source in ("f16", "bf16") else None
        source = "f32" if wide is not None else source
        name = ctx.hooks.saturating_casts.get((method, source, str(to))) or f"llvm.{method}.sat.{to}.{source}"

        def convert(x: Any) -> Any:
            return b.call_intrinsic(name, to, [x if wide is None else b.fpext(x, wide)])

        return convert

    return maker


def _index_cast(ctx: Any, op: Any) -> Any:
    b = ctx.b
    to = ctx.llvm_type(op.results[0].type)
    extend = b.zext if op.name.endswith("ui") else b.sext

    def fn(x: Any) -> Any:
        if x.type == to:
            return x
        return b.trunc(x, to) if ir.IntegerType(x.type).width > ir.IntegerType(to).width else extend(x, to)

    return fn


_register(_cast("sext"), "arith.extsi")
_register(_extui, "arith.extui")
_register(_cast("trunc"), "arith.trunci")
_register(_int_to_float("sitofp"), "arith.sitofp")
_register(_int_to_float("uitofp"), "arith.uitofp")
_register(_float_to_int("fptosi"), "arith.fptosi")
_register(_float_to_int("fptoui"), "arith.fptoui")
_register(_index_cast, "arith.index_cast", "arith.index_castui")


def _bitcast(ctx: Any, op: Any) -> Any:
    b, to = ctx.b, ctx.llvm_type(op.results[0].type)
    source = ctx.llvm_type(op.operands[0].type)
    if source == to:  # pointers to other pointees, fp8 and i8
        return lambda x: x
    if str(source).startswith("!llvm.ptr"):
        return lambda x: b.bitcast(b.ptrtoint(x, b.t_i64), to)
    if str(to).startswith("!llvm.ptr"):
        return lambda x: b.inttoptr(b.bitcast(x, b.t_i64), to)
    return lambda x: b.bitcast(x, to)


_register(_bitcast, "arith.bitcast", "tt.bitcast")
_register(_cast("inttoptr"), "tt.int_to_ptr")
_register(_cast("ptrtoint"), "tt.ptr_to_int")


# ----------------------------------------------------------------------------------------------------- constants
@lowers("arith.constant")
def lower_constant(ctx: Any, op: Any) -> list[Any]:
    attr = op.attributes["value"]
    type = op.results[0].type
    count = 1
    if isinstance(type, ir.RankedTensorType):
        if not attr.is_splat:
            raise UnsupportedOnTargetError("a tensor constant must have one value for all elements; compute others from tl.arange")
        attr = attr.get_splat_value()
        count = ctx.layout_of(type).in_size("register")
    number = attr.value if hasattr(attr, "value") else ir.FloatAttr(attr).value
    element = ctx.element_type(type)
    if str(element).startswith("f8"):
        from tilewright.dialects.lowering.conversions import fp8_constant

        number = fp8_constant(element, number)
    llvm_type = ctx.llvm_type(type)
    is_integer = isinstance(llvm_type, ir.IntegerType)
    return [[ctx.b.const(llvm_type, int(number) if is_integer else float(number))] * count]
