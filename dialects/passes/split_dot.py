"""Products of f32 tensors out of products of narrower parts: input_precision tf32x3, bf16x3 and bf16x6.

An operand x is cut into x1 + x2 (+ x3), each of the narrow type: x1 the leading bits, x2 those of what is left, and so on. Of the
products of parts the largest three (or six) are kept and added from the smallest to the largest, the accumulator before the
last one: for tf32x3 the error is about that of f32 (Ootomo and Yokota, "Recovering single precision accuracy from Tensor
Cores", 2022; Henry et al., "Leveraging the bfloat16 artificial intelligence datatype", 2019, for bf16). Where a leading
part is infinite the rest is NaN, which is taken as 0 before the last product, so that infinities come out as they should.
"""

from __future__ import annotations

from typing import Any

from tilewright.dialects._mlir import ir
from tilewright.dialects.analysis.structure import Function, Node, type_info

# precision → (parts of an operand, pairs of parts from the smallest product to the largest)
SPLITS: dict[str, tuple[int, tuple[tuple[int, int], ...]]] = {
    "tf32x3": (2, ((1, 0), (0, 1), (0, 0))),
    "bf16x3": (2, ((1, 0), (0, 1), (0, 0))),
    "bf16x6": (3, ((2, 0), (0, 2), (1, 1), (1, 0), (0, 1), (0, 0))),
}
_TF32_MASK = -(1 << 13)  # sign, exponent and ten bits of mantissa of an f32
_UNORDERED = 14  # arith.cmpf predicate: a NaN among the two


class _Maker:
    """Makes elementwise ops of one shape and encoding before a dot."""

    def __init__(self, function: Function, dot: Node, like: Any):
        self.function, self.dot = function, dot
        self.info = type_info(like.type)

    def type(self, element: Any) -> Any:
        return ir.RankedTensorType.get(list(self.info.shape or ()), element, self.info.encoding)

    def op(self, name: str, element: Any, *operands: Any, **attributes: Any) -> Any:
        return self.function.insert_before(self.dot, name, [self.type(element)], operands, attributes).results[0]

    def constant(self, attribute: Any) -> Any:
        value = ir.DenseElementsAttr.get_splat(self.type(attribute.type), attribute)
        return self.function.insert_before(self.dot, "arith.constant", [value.type], [], {"value": value}).results[0]


def _parts(function: Function, dot: Node, value: Any, count: int, tf32: bool) -> list[Any]:
    """``value`` (f32) as ``count`` parts: f32 of which tf32 keeps all bits, or bf16."""
    make = _Maker(function, dot, value)
    f32, i32, bf16 = ir.F32Type.get(), ir.IntegerType.get_signless(32), ir.BF16Type.get()
    parts = []
    for i in range(count):
        last = i == count - 1
        if tf32:
            if last:  # the instruction reads the leading bits alone
                parts.append(value)
                break
            mask = make.constant(ir.IntegerAttr.get(i32, _TF32_MASK))
            part = wide = make.op("tt.bitcast", f32, make.op("arith.andi", i32, make.op("tt.bitcast", i32, value), mask))
        else:
            part = make.op("arith.truncf", bf16, value)
            wide = None if last else make.op("arith.extf", f32, part)
        parts.append(part)
        if not last:
            value = make.op("arith.subf", f32, value, wide)
    return parts


def split_dot(function: Function, dot: Node, precision: str) -> None:
    """Replace ``dot``, whose operands are f32 dot operands of a tf32 or bf16 instruction, by dots of their parts."""
    count, pairs = SPLITS[precision]
    tf32 = precision == "tf32x3"
    parts = [_parts(function, dot, v, count, tf32) for v in dot.operands[:2]]
    f32 = ir.F32Type.get()
    make = _Maker(function, dot, dot.results[0])
    zero = make.constant(ir.FloatAttr.get(f32, 0.0))
    attributes = {"input_precision": ir.StringAttr.get("tf32" if tf32 else "ieee"),
                  "max_num_imprecise_acc": dot.op.attributes["max_num_imprecise_acc"]}
    total = zero
    for i, j in pairs[:-1]:
        total = make.op("tt.dot", f32, parts[0][i], parts[1][j], total, **attributes)
    i1 = ir.IntegerType.get_signless(1)
    nan = make.op("arith.cmpf", i1, total, total, predicate=ir.IntegerAttr.get(ir.IntegerType.get_signless(64), _UNORDERED))
    total = make.op("arith.select", f32, nan, zero, total)
    total = make.op("arith.addf", f32, total, dot.operands[2])
    i, j = pairs[-1]
    total = make.op("tt.dot", f32, parts[0][i], parts[1][j], total, **attributes)
    function.replace_uses(dot.results[0], total)
    function.erase(dot)
