"""The shared pass of this name; a kernel that lacks shared memory only for its bulk copies is compiled anew without them.

Before and after: as dialects/passes/allocate_shared_memory.py says. Rings, and the buffers that tiles are stored from, live as long as the
kernel, since the producer fills them on its own; what pipeline_loops buffers, and scratch, come on top of what warp_specialize planned
with. Read through pointers, buffers share memory that they need at different times.
"""

from __future__ import annotations

from typing import Any

from tilewright.dialects.errors import OutOfResources, VariantNeeded
from tilewright.dialects.passes import allocate_shared_memory
from tilewright.dialects.pipeline import PassContext


def run(module: Any, ctx: PassContext) -> None:
    """See the module's text. Raises OutOfResources of kernels without bulk copies, VariantNeeded of others."""
    try:
        allocate_shared_memory.run(module, ctx)
    except OutOfResources as error:
        if not (ctx.metadata.get("host") or {}).get("descriptors"):
            raise
        raise VariantNeeded({"tma": False}, f"with bulk copies it is {error}") from None
