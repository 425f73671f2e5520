"""The shared pass of this name; a kernel whose stages do not fit LDS is compiled anew with as many as fit.

Before and after: as dialects/passes/allocate_shared_memory.py says. Where LDS does not suffice and a loop has stages to give up, VariantNeeded asks for
``most_stages``, less by as many as the bytes that lack amount to at least, until it fits. Only allocation knows what lives together, so nothing is estimated.
OutOfResources is left for kernels that do not fit with one stage either.

Triton 3.6 raises OutOfResources on AMD too where stages do not fit, but what it makes of a number of stages differs by loop: chained products with four of them
have two buffers, with three or five one fewer than stages. So a configuration tuned there says little of the stages that LDS holds here, and
must run. An autotuner loses nothing: the configuration is as fast as that of fewer stages.
"""

from __future__ import annotations

from typing import Any

from tilewright.dialects.analysis.structure import Function, functions
from tilewright.dialects.errors import OutOfResources, VariantNeeded
from tilewright.dialects.passes import allocate_shared_memory
from tilewright.dialects.passes.pipeline_schedule import ALLOC, loops_with_dots, stages_asked, stages_of
from tilewright.dialects.pipeline import PassContext


def run(module: Any, ctx: PassContext) -> None:
    """See the module's text. Raises VariantNeeded, or OutOfResources of a kernel that has no more than one stage."""
    found = [(function, loops_with_dots(function)) for function in functions(module)]
    stages = max((stages_of(loop, ctx) for _, loops in found for loop in loops), default=1)
    try:
        allocate_shared_memory.run(module, ctx, squeeze=stages == 1)
    except OutOfResources as error:
        if stages > 1:
            lacking, stage = error.required - error.limit, sum(_stage_bytes(function) for function, _ in found)
            fewer = -(-lacking // stage) if stage else 1
            raise VariantNeeded({"most_stages": max(1, stages - fewer)},
                                f"{stages} stages take {error.required} bytes of LDS, and {ctx.arch} has {error.limit}") from None
        if ctx.options.most_stages:
            raise OutOfResources(error.required, error.limit, error.name, f"It does not fit with one stage either: reduce block sizes. {error.hint}") from None
        raise
    for _, loops in found:
        for loop in loops:
            asked, given = stages_asked(loop, ctx), stages_of(loop, ctx)
            if given < asked:
                ctx.explain(loop.op, "loop", f"{given} of the {asked} stages asked for",
                            f"that is what fits {ctx.capabilities.max_shared_bytes // 1024} KB of LDS")


def _stage_bytes(function: Function) -> int:
    """About what one stage less of all loops saves, at most."""
    buffers = (node.results[0].type for node in function.nodes() if node.name == ALLOC and not node.operands)
    return sum(allocate_shared_memory.stage_bytes(type_) for type_ in buffers)
