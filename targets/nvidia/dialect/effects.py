"""What the shared passes and analyses have to know of ttng's ops, which they cannot name."""

from __future__ import annotations

from tilewright.dialects import ttg
from tilewright.dialects.analysis.dots import register_dot
from tilewright.dialects.analysis.structure import Node, register_concurrent, type_info
from tilewright.dialects.encodings import downcast, integer, mma_row
from tilewright.dialects.passes.verify_layouts import register_check

DOT = "ttng.warp_group_dot"
DOT_WAIT = "ttng.warp_group_dot_wait"


def _check_dot(node: Node) -> str | None:
    """The layout rule that a warp_group_dot breaks."""
    c, result = type_info(node.operands[2].type), type_info(node.results[0].type)
    if c.type != result.type:
        return "c and the result have one type"
    if not isinstance(c.encoding, ttg.MmaEncoding) or not mma_row(c.encoding).extra.get("warp_group"):
        return "the accumulator has the layout of a warp-group instruction"
    a = type_info(node.operands[0].type)
    if a.shape is not None:
        e = downcast(a.encoding)
        if not isinstance(e, ttg.DotOperandEncoding) or integer(e.params[0]) or downcast(e.params[1]) != c.encoding:
            return "an A in registers is dot operand 0 of the result's encoding"
    for i in (0, 1):
        t = node.operands[i].type
        if isinstance(t, ttg.MemDescType) and not isinstance(downcast(t.encoding), ttg.PanelSharedEncoding):
            return f"operand {i} lies in panels"
    return None


register_dot(DOT, asynchronous=True)
register_check(DOT, _check_dot)
register_concurrent("ttng.warp_specialize")
