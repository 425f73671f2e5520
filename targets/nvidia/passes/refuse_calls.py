"""Compile a kernel that calls functions without bulk copies and warp-group products.

Warp specialisation gives loads and products to warps of their own, a persistent kernel runs programs in a loop, and registers of a
warp-group product are in use until it is waited for: each has to see all of the kernel's code in one function. ptxas, too, waits for every
such product around a call.
"""

from __future__ import annotations

from typing import Any

from tilewright.dialects.analysis.call_graph import has_calls
from tilewright.dialects.errors import VariantNeeded
from tilewright.dialects.pipeline import PassContext


def run(module: Any, ctx: PassContext) -> None:
    """Before: tt, of a target with warp-group products. After: the same. Raises VariantNeeded where a function is called."""
    if has_calls(module):
        raise VariantNeeded({"tma": False, "warp_group_dots": False}, "the kernel calls noinline functions, around which neither tiles are "
                            "moved by bulk copies nor dots given to warp groups")
