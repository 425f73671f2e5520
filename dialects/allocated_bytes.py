"""How much shared memory IR text of a user's needs, whose buffers had their places when it was printed."""

from __future__ import annotations

from typing import Any

from tilewright.dialects._mlir import ir
from tilewright.dialects.analysis.liveness import Liveness
from tilewright.dialects.analysis.structure import functions
from tilewright.dialects.passes.allocate_shared_memory import ALLOC, OFFSET, hooks_of, memdesc_bytes, scratch_of
from tilewright.dialects.pipeline import PassContext


def measure(module: Any, ctx: PassContext) -> None:
    """Set ctx.metadata["shared"] to the end of the last buffer, by the ``allocation.offset``s in the module and their sizes."""
    hooks = hooks_of(ctx)
    total = 0
    for function in functions(module):
        for node in Liveness(function).order:
            if OFFSET not in node.op.attributes:
                continue
            size = memdesc_bytes(node.results[0].type) if node.name == ALLOC else scratch_of(node, hooks)
            total = max(total, ir.IntegerAttr(node.op.attributes[OFFSET]).value + size)
    ctx.metadata["shared"] = total
