"""fp8e4b15 in compiled kernels: MLIR has no such type, so its codes are i8 and conversions are made of other ops (dialects/fp8.py says the rule).

To it: a number 16 times as large has the same code in MLIR's f8E4M3B11FNUZ, whose conversion rounds; signs and NaN are put right afterwards.
From it: shifted left by 7 and by 8 (the sign), a code is the fp16 of the same value.
"""

from __future__ import annotations

from typing import Any

from tilewright.dialects._mlir import ir
from tilewright.dialects.fp8 import FORMATS

_FORMAT = FORMATS["fp8e4b15"]
_UNO = 14


def _shaped(like: Any, element: Any) -> Any:
    return ir.RankedTensorType.get(ir.RankedTensorType(like).shape, element) if isinstance(like, ir.RankedTensorType) else element


def _element(type: Any) -> Any:
    return ir.RankedTensorType(type).element_type if isinstance(type, ir.RankedTensorType) else type


class _Maker:
    """Makes ops of the shape of one value."""

    def __init__(self, builder: Any, like: Any):
        self.builder, self.like = builder, like

    def op(self, name: str, element: Any, *operands: Any, **attributes: Any) -> Any:
        return ir.Operation.create(name, results=[_shaped(self.like, element)], operands=operands, attributes=attributes, loc=self.builder.loc,
                                   ip=self.builder.ip).result

    def constant(self, attribute: Any) -> Any:
        value = ir.DenseElementsAttr.get_splat(_shaped(self.like, attribute.type), attribute) if isinstance(self.like, ir.RankedTensorType) else attribute
        return self.op("arith.constant", attribute.type, value=value)

    def int_(self, type: Any, value: int) -> Any:
        return self.constant(ir.IntegerAttr.get(type, value))


def widened(builder: Any, codes: Any, to: Any, rounding: Any) -> Any:
    """i8 ``codes`` as the MLIR float type ``to`` (a tensor's or a scalar's)."""
    make = _Maker(builder, codes.type)
    i16 = ir.IntegerType.get_signless(16)
    word = make.op("arith.extui", i16, codes)
    size = make.op("arith.shli", i16, make.op("arith.andi", i16, word, make.int_(i16, 0x7F)), make.int_(i16, 7))
    sign = make.op("arith.shli", i16, make.op("arith.andi", i16, word, make.int_(i16, 0x80)), make.int_(i16, 8))
    half = make.op("tt.bitcast", ir.F16Type.get(), make.op("arith.ori", i16, size, sign))
    element = _element(to)
    if isinstance(element, ir.F16Type):
        return half
    if isinstance(element, (ir.F32Type, ir.F64Type)):
        return make.op("arith.extf", element, half)
    if isinstance(element, ir.BF16Type):
        return make.op("arith.truncf", element, make.op("arith.extf", ir.F32Type.get(), half))
    return make.op("tt.fp_to_fp", element, half, rounding=rounding)


def narrowed(builder: Any, value: Any, rounding: Any) -> Any:
    """Floats of any MLIR type as i8 codes."""
    make = _Maker(builder, value.type)
    i8, i64 = ir.IntegerType.get_signless(8), ir.IntegerType.get_signless(64)
    f32, f64 = ir.F32Type.get(), ir.F64Type.get()
    element = _element(value.type)
    if not isinstance(element, (ir.F32Type, ir.F64Type)):
        wide = isinstance(element, (ir.F16Type, ir.BF16Type))
        value = make.op("arith.extf", f32, value) if wide else make.op("tt.fp_to_fp", f32, value, rounding=ir.StringAttr.get("rtne"))
        element = f32
    bits = 64 if element == f64 else 32
    word = ir.IntegerType.get_signless(bits)
    scaled = make.op("arith.mulf", element, value, make.constant(ir.FloatAttr.get(element, 16.0)))
    code = make.op("tt.bitcast", i8, make.op("tt.fp_to_fp", ir.Type.parse("f8E4M3B11FNUZ"), scaled, rounding=rounding))
    size = make.op("arith.minui", i8, make.op("arith.andi", i8, code, make.int_(i8, 0x7F)), make.int_(i8, _FORMAT.largest))
    upper = make.op("arith.shrui", word, make.op("tt.bitcast", word, value), make.int_(word, bits - 8))
    sign = make.op("arith.andi", i8, make.op("arith.trunci", i8, upper), make.int_(i8, -128))
    nan = make.op("arith.cmpf", ir.IntegerType.get_signless(1), value, value, predicate=ir.IntegerAttr.get(i64, _UNO))
    return make.op("arith.select", i8, nan, make.int_(i8, _FORMAT.nan), make.op("arith.ori", i8, size, sign))


def convert(builder: Any, value: Any, to: Any, rounding: str) -> Any:
    """tt.fp_to_fp of ``value`` to the language type ``to``, where one of the two types is fp8e4b15."""
    attribute = builder.attr("tt.fp_to_fp", "rounding", rounding)
    if to.scalar.is_fp8e4b15():
        return narrowed(builder, value, attribute)
    return widened(builder, value, builder.type(to), attribute)


def code_of(value: float) -> int:
    """The code of a constant, as i8 attributes write it."""
    code = _FORMAT.encode(value)
    return code - 256 if code > 127 else code
