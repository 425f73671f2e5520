"""Choose the matrix instruction of every ``tt.dot_scaled`` that was kept (scaled_dots.py), and the layouts that it takes.

Before: tt.dot_scaled whose tensors have blocked layouts. After: an ``#ttg.mma`` accumulator of a row with scales, dot operands of it (bytes of two
numbers for e2m1), and scales in the layout in which the instruction reads them: one byte a lane. Loads of scales that go nowhere else have that layout
from the start, through the views between: bytes straight from memory, as many instructions as reading them from LDS would be, and no barrier.

Scales stored by rows are consecutive bytes along K. Where their load may take two or four at once (what is known of its address and mask says so), the row
of the table is one that deals k in such runs (``…_along_2``, ``…_along_4``): the one with which the scales take the fewest loads.
"""

from __future__ import annotations

from typing import Any

from tilewright.dialects import scaled, ttg
from tilewright.dialects.analysis import layout_rules
from tilewright.dialects.analysis.axis_info import AxisInfoAnalysis
from tilewright.dialects.analysis.call_graph import is_called
from tilewright.dialects.analysis.dots import TT_DOTS
from tilewright.dialects.analysis.structure import Function, Node, functions, type_info
from tilewright.dialects.encodings import native_k_width, to_linear_layout
from tilewright.dialects.lowering.global_ops import vector_groups
from tilewright.dialects.matrix_ops import MatrixOp
from tilewright.dialects.passes.accelerate_dot import chained_dots, mma_encoding
from tilewright.dialects.passes.convert_tt_to_ttg import convert_operand, convert_result
from tilewright.dialects.pipeline import PassContext
from tilewright.targets.amd.scaled_dots import rows_that_fit, scale_encoding

_VIEWS = ("tt.trans", "tt.reshape", "tt.bitcast")


def run(module: Any, ctx: PassContext) -> None:
    """See the module's text."""
    for function in functions(module):
        dots = [n for n in function.nodes() if n.name in TT_DOTS]
        if not any(n.name == "tt.dot_scaled" for n in dots):
            continue
        chain, _ = chained_dots(function, dots)
        axis = AxisInfoAnalysis(module) if is_called(function) else AxisInfoAnalysis(function=function)
        for dot in dots:
            if dot.name == "tt.dot_scaled":
                _rewrite(function, axis, dot, id(dot) in chain, ctx)


def _rewrite(function: Function, axis: AxisInfoAnalysis, dot: Node, in_chain: bool, ctx: PassContext) -> None:
    shape = type_info(dot.results[0].type).shape or ()
    warps = max(1, ctx.num_warps // shape[0]) if len(shape) == 3 else ctx.num_warps

    def occupied(row: MatrixOp) -> int:
        return min(warps, shape[-2] // row.m * (1 if in_chain else shape[-1] // row.n))

    def encoding_of(row: MatrixOp) -> Any:
        return mma_encoding(row, shape, ctx.num_warps, in_chain, ctx)

    first = max(rows_that_fit(dot, ctx), key=occupied)  # the first of those that occupy as many
    rows = [first, *(r for n in (2, 4) for r in rows_that_fit(dot, ctx, n) if (r.m, r.extra["size"]) == (first.m, first.extra["size"]))]
    row = min(rows, key=lambda r: sum(_loads(function, axis, dot, place, e) for place, e in _scales_of(dot, encoding_of(r))))
    encoding = encoding_of(row)
    ctx.explain(dot.op, scaled.describe(dot), f"matrix instruction {row.name}")
    for i in (0, 1):
        convert_operand(function, dot, i, ttg.DotOperandEncoding.of(i, encoding, native_k_width(row)))
    convert_operand(function, dot, 2, encoding)
    convert_result(function, dot, 0, encoding)
    for place, wanted in _scales_of(dot, encoding):
        _scales(function, dot, place, wanted)


def _scales_of(dot: Node, encoding: Any) -> list[tuple[int, Any]]:
    """(operand's number, its layout) of the scales that are given, beside accumulators of ``encoding``."""
    sides = [i for i, given in enumerate(dot.ints_attr("operandSegmentSizes")[3:5]) if given]
    return [(3 + n, scale_encoding(type_info(dot.operands[3 + n].type).shape or (), encoding, i)) for n, i in enumerate(sides)]


def _source(function: Function, dot: Node, place: int, encoding: Any) -> tuple[Node | None, Any]:
    """The load that operand ``place`` comes from, through views, and the layout that follows for it from ``encoding``; None where there is no such
    load, or where it goes elsewhere too."""
    node = function.def_node(dot.operands[place])
    wanted = encoding
    while node is not None and node.name in (*_VIEWS, "ttg.convert_layout") and len(function.uses(node.results[0])) == 1:
        if node.name in _VIEWS:
            found = layout_rules.backward(node, wanted)
            if found is None:
                break
            wanted = found[0]
        node = function.def_node(node.operands[0])
    if node is None or node.name != "tt.load" or node.bool_attr("is_volatile") or len(function.uses(node.results[0])) != 1:
        return None, wanted
    return node, wanted


def _loads(function: Function, axis: AxisInfoAnalysis, dot: Node, place: int, encoding: Any) -> int:
    """Instructions that load operand ``place`` in ``encoding``."""
    node, wanted = _source(function, dot, place, encoding)
    if node is None:
        return 0
    mask = node.operands[1] if len(node.operands) > 1 else None
    shape = type_info(node.results[0].type).shape or ()
    limits = [axis.vector_elements(node.operands[0], d, mask) for d in range(len(shape))]
    return len(vector_groups(to_linear_layout(shape, wanted), limits))


def _scales(function: Function, dot: Node, place: int, encoding: Any) -> None:
    """Operand ``place`` in ``encoding``, and the load that it comes from in what follows from that."""
    node, wanted = _source(function, dot, place, encoding)
    convert_operand(function, dot, place, encoding)
    if node is not None:
        for i in range(len(node.operands)):
            convert_operand(function, node, i, wanted)
        convert_result(function, node, 0, wanted)
