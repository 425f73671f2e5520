"""Load vectors where they are used, in loops whose tiles leave no registers to hold them before.

Before and after: a specialised kernel of the same values. Kernels often load a step's row sums and the like first, so that they arrive while
products run. Held by every thread that shares their columns, they take columns/4 registers each. Where those do not fit beside the
tiles in use, the load and what only repeats its values move down to the first op that computes with them, past the waits for products.
"""

from __future__ import annotations

from typing import Any

from tilewright.dialects.analysis.structure import Function, Node, functions, position, type_info
from tilewright.dialects.encodings import layout_of
from tilewright.dialects.pipeline import PassContext
from tilewright.targets.nvidia.passes.warp_registers import tiles_in_use
from tilewright.targets.nvidia.passes.warp_rings import DOT

_REPEATING = frozenset(("tt.expand_dims", "tt.broadcast", "ttg.convert_layout", "arith.extf"))
_BESIDES, _MOST = 16, 255  # registers for addresses and counters; of a thread at all
# what may write global memory, or orders accesses of several threads
_ORDERED = ("tt.store", "tt.atomic", "tt.descriptor", "tt.debug_barrier", "tt.extern_elementwise", "tt.elementwise_inline_asm", "tt.print", "tt.assert",
            "ttng.async_tma_", "ttng.cluster", "scf.")


def run(module: Any, ctx: PassContext) -> None:
    """See the module's text."""
    for function in functions(module):
        for op in [n for n in function.nodes() if n.name == "ttng.warp_specialize"]:
            limit = op.int_attr("consumer_registers") or _MOST
            for loop in [n for n in op.walk() if n.name == "scf.for" and any(d.name == DOT for d in n.regions[0].ops)]:
                _loop(function, loop, limit, 32 * ctx.num_warps)


def _loop(function: Function, loop: Node, limit: int, threads: int) -> None:
    """``limit``: registers of a thread."""
    loads = [n for n in loop.regions[0].ops if n.name == "tt.load" and not n.bool_attr("is_volatile") and len(type_info(n.results[0].type).shape or ()) == 1]
    held = sum(1 << len(layout_of(n.results[0].type).columns("register")) for n in loads)
    if tiles_in_use(function, loop) // threads + held + _BESIDES <= limit:
        return
    for load in loads:
        _move(function, load)


def _move(function: Function, load: Node) -> None:
    """Down to its first use, unless what stands between may change what it reads."""
    region = load.region
    assert region is not None
    moved, values = [load], [load.results[0]]
    users: list[Node] = []
    while values:
        for user, _ in function.uses(values.pop()):
            if user.region is not region:
                return
            if user.name in _REPEATING:
                moved.append(user)
                values += user.results
            else:
                users.append(user)
    if not users:
        return
    first = min(users, key=position)
    between = region.ops[position(load) + 1:position(first)]
    if any(n.name.startswith(_ORDERED) for n in between):
        return
    for node in sorted(moved, key=position):
        if position(node) < position(first):
            node.op.move_before(first.op)
            del region.ops[position(node)]
            region.ops.insert(position(first), node)
