"""Let the launch options matrix_instr_nonkdim and kpack decide what accelerate_dot may choose.

Before: ``ctx.capabilities`` lists every row of the architecture. After: only those of the wanted M and N, and ``extra["k_pack"]``.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tilewright.dialects.analysis.structure import functions, type_info
from tilewright.dialects.errors import ArgumentError
from tilewright.dialects.matrix_ops import lookup
from tilewright.dialects.pipeline import PassContext


def run(module: Any, ctx: PassContext) -> None:
    """See the module's text. Raises ArgumentError where a dot is smaller than the instructions asked for."""
    facts, size = ctx.capabilities, ctx.options.matrix_instr_nonkdim
    names = tuple(n for n in facts.matrix_ops if size in (0, lookup(n).m))
    for function in functions(module):
        for node in function.nodes():
            if node.name == "tt.dot" and names:
                m, n = (type_info(node.results[0].type).shape or ())[-2:]
                if min(m, n) < size:
                    raise ArgumentError(f"matrix_instr_nonkdim is {size}, and the kernel has a dot of {m} × {n}; leave it at 0, or "
                                        "make the blocks larger")
    ctx.capabilities = replace(facts, matrix_ops=names, extra={**facts.extra, "k_pack": ctx.options.kpack})
