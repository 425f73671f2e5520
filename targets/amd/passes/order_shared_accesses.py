"""Write shared buffers early, read them late: fewer barriers, and operands that wait in memory rather than in registers.

Loops whose loads are prefetched through registers (there are no asynchronous copies here) arrive as ::

    %sa = local_alloc %a; … ; %da = local_load %sa; %sb = local_alloc %b; … ; %db = local_load %sb; … ; dot %da, %db

Before: buffers that are initialised where they are allocated, in any order. After: in each block every such local_alloc stands as
early as what it stores allows, and every local_load right before its first use. All buffers of an iteration are then written
between two barriers and read after the second, where their lifetimes overlap: that is done only while their bytes together
are at most half of a work-group's LDS, the rest being left for conversions. What is read once before a loop with two buffers (``double_buffer``) is
read before these are first written, so that they may lie in its place. So it is before a loop with asynchronous copies, where LDS would not hold both.
"""

from __future__ import annotations

from typing import Any

from tilewright.dialects.analysis.aliases import ASYNC_COPY
from tilewright.dialects.analysis.structure import Function, Node, Region, functions, type_info
from tilewright.dialects.passes.allocate_shared_memory import memdesc_bytes
from tilewright.dialects.pipeline import PassContext


def _bytes(alloc: Node) -> int:
    info = type_info(alloc.operands[0].type)
    return info.numel * max(8, info.bits) // 8


def _regions(function: Function) -> list[Region]:
    found = [function.body]
    for node in function.nodes():
        found += node.regions
    return found


def _move(node: Node, before: Node) -> None:
    region = node.region
    assert region is not None
    node.op.move_before(before.op)
    region.ops.remove(node)
    region.ops.insert(region.ops.index(before), node)


def _hoist(function: Function, region: Region, allocs: list[Node]) -> None:
    """Each alloc to right after what makes its operand, or to the block's start; in the order that they have."""
    for alloc in allocs:
        made = function.def_node(alloc.operands[0])
        at = region.ops.index(made) + 1 if made is not None and made.region is region else 0
        while region.ops[at] in allocs and region.ops[at] is not alloc:
            at += 1
        if region.ops[at] is not alloc:
            _move(alloc, region.ops[at])


def _sink(function: Function, region: Region, load: Node, crowded: bool) -> None:
    index = {id(n): i for i, n in enumerate(region.ops)}
    first = len(region.ops)
    for user, _ in function.uses(load.results[0]):
        node: Node | None = user
        while node is not None and node.region is not region:
            node = node.parent
        if node is None:
            return
        first = min(first, index[id(node)])
    first = min([first, *(i for i, n in enumerate(region.ops[:first]) if i > index[id(load)] and _is_stored_to(function, n, crowded))])
    if first < len(region.ops) and first > index[id(load)] + 1:
        _move(load, region.ops[first])


def _is_stored_to(function: Function, node: Node, copied_to: bool) -> bool:
    """An alloc that is written later, stage by stage; ``copied_to``: or by asynchronous copies."""
    return node.name == "ttg.local_alloc" and not node.operands and any(
        u.name == "ttg.local_store" or copied_to and u.name == ASYNC_COPY for view, _ in function.uses(node.results[0]) for r in view.results for u, _ in function.uses(r))


def _is_initialised(function: Function, node: Node) -> bool:
    """An alloc of a tensor that is only read: by local_load, or through a transposed view."""
    def read_only(value: Any) -> bool:
        return all(u.name == "ttg.local_load" or u.name == "ttg.memdesc_trans" and read_only(u.results[0])
                   for u, _ in function.uses(value))

    return node.name == "ttg.local_alloc" and bool(node.operands) and read_only(node.results[0])


def run(module: Any, ctx: PassContext) -> None:
    """See the module's text."""
    for function in functions(module):
        buffers: set[Any] = set()
        for region in _regions(function):
            allocs = [n for n in region.ops if _is_initialised(function, n)]
            if sum(map(_bytes, allocs)) * 2 > ctx.capabilities.max_shared_bytes:
                continue
            for alloc in allocs:
                buffers.add(alloc.results[0])
                buffers.update(u.results[0] for u, _ in function.uses(alloc.results[0]) if u.name == "ttg.memdesc_trans")
            if len(allocs) > 1:
                _hoist(function, region, allocs)
            stages = sum(memdesc_bytes(n.results[0].type) for n in region.ops if n.name == "ttg.local_alloc" and not n.operands)
            crowded = stages + sum(map(_bytes, allocs)) > ctx.capabilities.max_shared_bytes
            for load in [n for n in region.ops if n.name == "ttg.local_load"]:
                if load.operands[0] in buffers:
                    _sink(function, region, load, crowded)
