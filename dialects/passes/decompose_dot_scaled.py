"""Turn products of microscaled operands into products that every target has.

    %r = tt.dot_scaled %a, %b, %c, %sa {a_format = "e2m1", b_format = "bf16"}   →   %w = bf16(numbers of %a × their scales)
                                                                                     %r = tt.dot %w, %b, %c

Numbers are multiplied by their scales in f32, and rounded to bf16, which holds them all exactly within its range: e2m1, e4m3 and e5m2 have at
most 4 bits and a scale of 4 more at most. Beside fp16 they stay in f32, as tf32 holds all of fp16's bits (dialects/scaled.py), or two parts of bf16
where a target has no instruction for tf32 and f32.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright.dialects import scaled
from tilewright.dialects._mlir import ir
from tilewright.dialects.analysis.structure import Function, Node, functions, type_info
from tilewright.dialects.matrix_ops import lookup
from tilewright.dialects.pipeline import PassContext

_EQ = 0
_LEAST = 0x00400000  # 2^-127 as f32, which the exponent field alone would write as 0
_NAN = 0x7FC00000


def run(module: Any, ctx: PassContext) -> None:
    """Before: tt, without encodings. After: no tt.dot_scaled but those that the target multiplies itself: where its
    ``capabilities.extra["why_decomposed"]``, a function of the op and ``ctx``, gives None instead of a reason."""
    refusal = ctx.capabilities.extra.get("why_decomposed")
    rows = {lookup(name).a_type for name in ctx.capabilities.matrix_ops}
    parts = not rows & {"tf32", "f32"} and "bf16" in rows
    for function in functions(module):
        for node in list(function.nodes()):
            if node.name == "tt.dot_scaled":
                why = refusal(node, ctx) if refusal else f"{ctx.arch} has no matrix instruction for operands with scales"
                if why is not None:
                    rewriter = _Rewriter(function, node, parts)
                    ctx.explain(node.op, scaled.describe(node), f"tl.dot of {rewriter.to}, operands times scales rounded to it", why)
                    rewriter.rewrite()


class _Rewriter:
    """Makes ops before one tt.dot_scaled. ``parts``: the target multiplies bf16, and neither tf32 nor f32, by matrix instructions."""

    def __init__(self, function: Function, node: Node, parts: bool):
        self.function, self.node, self.parts = function, node, parts
        self.i1, self.i8, self.i32 = (ir.IntegerType.get_signless(w) for w in (1, 8, 32))
        self.f32 = ir.F32Type.get()
        present = node.ints_attr("operandSegmentSizes")
        rest = list(node.operands[3:])
        self.scale_of = [rest.pop(0) if present[3 + i] else None for i in range(2)]
        self.formats = [node.str_attr("a_format"), node.str_attr("b_format")]
        self.to = scaled.compute_format(self.formats[0], self.formats[1], any(s is not None for s in self.scale_of))

    # -- ops
    def op(self, name: str, element: Any, shape: Sequence[int], *operands: Any, **attributes: Any) -> Any:
        return self.function.insert_before(self.node, name, [ir.RankedTensorType.get(list(shape), element)], operands, attributes).results[0]

    def on(self, name: str, element: Any, *operands: Any, **attributes: Any) -> Any:
        """An op whose result has the shape of its first operand."""
        return self.op(name, element, type_info(operands[0].type).shape or (), *operands, **attributes)

    def like(self, value: Any, attribute: Any) -> Any:
        type_ = ir.RankedTensorType.get(list(type_info(value.type).shape or ()), attribute.type)
        return self.function.insert_before(self.node, "arith.constant", [type_], [], {"value": ir.DenseElementsAttr.get_splat(type_, attribute)}).results[0]

    def with_number(self, name: str, value: Any, number: int) -> Any:
        element = type_info(value.type).element
        return self.on(name, element, value, self.like(value, ir.IntegerAttr.get(element, number)))

    def trans(self, value: Any, order: Sequence[int]) -> Any:
        info = type_info(value.type)
        shape = info.shape or ()
        return self.op("tt.trans", info.element, [shape[d] for d in order], value, order=ir.DenseI32ArrayAttr.get(list(order)))

    def reshape(self, value: Any, shape: Sequence[int]) -> Any:
        return self.op("tt.reshape", type_info(value.type).element, shape, value, allow_reorder=ir.BoolAttr.get(False))

    # -- numbers
    def unpack(self, packed: Any, dim: int) -> Any:
        """i8 of two codes each as i8 of one, the lower half first along ``dim``."""
        shape = list(type_info(packed.type).shape or ())
        rank = len(shape)
        joined = self.op("tt.join", self.i8, [*shape, 2], self.with_number("arith.andi", packed, 15), self.with_number("arith.shrui", packed, 4))
        shape[dim] *= 2
        dim %= rank
        if dim != rank - 1:
            joined = self.trans(joined, [*range(dim + 1), rank, *range(dim + 1, rank)])
        return self.reshape(joined, shape)

    def of_codes(self, codes: Any) -> Any:
        """e2m1 codes as f32: moved to where f32 has exponent and mantissa, they are right up to a power of two."""
        word = self.on("arith.extui", self.i32, codes)
        size = self.with_number("arith.shli", self.with_number("arith.andi", word, 7), 22)
        sign = self.with_number("arith.shli", self.with_number("arith.andi", word, 8), 28)
        number = self.on("tt.bitcast", self.f32, self.on("arith.ori", self.i32, size, sign))
        return self.on("arith.mulf", self.f32, number, self.like(number, ir.FloatAttr.get(self.f32, 2.0**126)))

    def wide(self, value: Any, format: str, k_pack: bool, k_dim: int) -> Any:
        """The operand's numbers in f32."""
        if format == "e2m1":
            return self.of_codes(self.unpack(value, k_dim if k_pack else -3 - k_dim))
        if format in scaled.NARROW:
            return self.on("tt.fp_to_fp", self.f32, value, rounding=ir.StringAttr.get("rtne"))
        return self.on("arith.extf", self.f32, value)

    def scales(self, scale: Any, k_dim: int, fast_math: bool) -> Any:
        """One f32 scale a number: [M, K], or [K, N] of the second operand."""
        group = scaled.GROUPS[str(type_info(scale.type).element)]
        if group == scaled.GROUPS["i8"]:
            byte = self.on("arith.extui", self.i32, scale)
            bits = self.with_number("arith.maxui", self.with_number("arith.shli", byte, 23), _LEAST)
            if not fast_math:
                nan = self.on("arith.cmpi", self.i1, byte, self.like(byte, ir.IntegerAttr.get(self.i32, 255)),
                              predicate=ir.IntegerAttr.get(ir.IntegerType.get_signless(64), _EQ))
                bits = self.on("arith.select", self.i32, nan, self.like(bits, ir.IntegerAttr.get(self.i32, _NAN)), bits)
            number = self.on("tt.bitcast", self.f32, bits)
        else:
            number = self.on("tt.fp_to_fp", self.f32, scale, rounding=ir.StringAttr.get("rtne"))
        shape = list(type_info(scale.type).shape or ())
        rank = len(shape)
        number = self.op("tt.expand_dims", self.f32, [*shape, 1], number, axis=ir.IntegerAttr.get(self.i32, rank))
        number = self.op("tt.broadcast", self.f32, [*shape, group], number)
        number = self.reshape(number, [*shape[:-1], shape[-1] * group])
        return number if k_dim == -1 else self.trans(number, [*range(rank - 2), rank - 1, rank - 2])

    def precision(self, formats: Sequence[str]) -> str:
        """Under which no bit of f32 operands is lost: tf32 has as many as fp16, bf16 in two parts more. bf16x3 leaves out the product of the second
        parts, which is 0 where only one operand is fp16."""
        return "tf32" if not self.parts else "bf16x6" if list(formats) == ["fp16", "fp16"] else "bf16x3"

    def rewrite(self) -> None:
        node, scales, formats, to = self.node, self.scale_of, self.formats, self.to
        element = ir.Type.parse(to)
        operands = []
        for i in range(2):
            value, format, k_dim = node.operands[i], formats[i], -1 - i
            if scales[i] is None and scaled.FORMATS[format] == to:
                operands.append(value)
                continue
            number = self.wide(value, format, node.bool_attr("ab"[i] + "_k_pack"), k_dim)
            if scales[i] is not None:
                number = self.on("arith.mulf", self.f32, number, self.scales(scales[i], k_dim, node.bool_attr("fast_math")))
            operands.append(number if to == "f32" else self.on("arith.truncf", element, number))
        info = type_info(node.results[0].type)
        result = self.op("tt.dot", info.element, info.shape or (), *operands, node.operands[2], input_precision=ir.StringAttr.get(self.precision(formats)),
                         max_num_imprecise_acc=ir.IntegerAttr.get(self.i32, 0))
        self.function.replace_uses(node.results[0], result)
        self.function.erase(node)
