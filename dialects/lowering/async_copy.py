"""Asynchronous copies from global to shared memory, by the target's hook; where it has none, loads and stores."""

from __future__ import annotations

from typing import Any

from tilewright.dialects import encodings
from tilewright.dialects._mlir import ir
from tilewright.dialects.linear_layout import LinearLayout
from tilewright.dialects.lowering.global_ops import _predicate, vector_groups, vector_limits
from tilewright.dialects.lowering.indices import register_constants, thread_columns
from tilewright.dialects.lowering.registry import lowers
from tilewright.dialects.lowering.shared_ops import Addresses, View


def copy_groups(layout: LinearLayout, view: View, limits: list[int]) -> list[list[int]]:
    """Registers cut into vectors that are consecutive both in global memory (``limits`` by dim) and in shared memory."""
    while True:
        groups = vector_groups(layout, limits)
        n = len(groups[0]) if groups else 1
        constants = register_constants(layout)
        low = n - 1
        rest = [view.offset(constants[g[0]]) for g in groups] + [view.offset(c) for c in thread_columns(layout)]
        fits = n <= view.max_vector and not any(c & low for c in (*rest, view.constant)) and all(
            view.offset(constants[r] ^ constants[g[0]]) == i for g in groups for i, r in enumerate(g))
        if fits or n == 1:
            return groups
        limits = [min(limit, n // 2) for limit in limits]


@lowers("ttg.async_copy_global_to_local")
def lower_async_copy(ctx: Any, op: Any) -> list[Any]:
    b, hooks = ctx.b, ctx.hooks
    source, destination, mask, other = (*op.operands, None, None)[:4]
    memory = ctx.get(destination)
    layout = ctx.layout_of(source)
    view = View(memory)
    bits = encodings.storage_bits(memory.element_type)
    groups = copy_groups(layout, view, vector_limits(ctx, source, mask, bits))
    addresses = Addresses(ctx, view, [view.offset(c) for c in thread_columns(layout)])
    constants = register_constants(layout)
    pointers = ctx.get(source)
    masks = ctx.get(mask) if mask is not None else None
    others = ctx.get(other) if other is not None else None
    if others and all(b.constant_of(v) == 0 for v in others):
        others = None
    cache, evict = (ir.StringAttr(op.attributes[n]).value for n in ("cache", "evict"))
    size = bits // 8 * (len(groups[0]) if groups else 1)
    stored = ctx.storage_type(memory.element_type)
    asynchronous = hooks.has_async_copy and size in ctx.capabilities.async_copy_bytes

    def copy(group: list[int]) -> None:
        first, n = group[0], len(group)
        target = addresses.at(view.offset(constants[first]))
        predicate = _predicate(ctx, None, masks[first] if masks else None)
        fallback = b.pack_vector([ctx.to_storage(others[r]) for r in group]) if others and predicate is not None else None
        if not asynchronous:
            # Nothing is in flight then: commit and wait have nothing to do with it, the barrier after them still counts.
            type = stored if n == 1 else b.vec(n, stored)
            value = hooks.load_global(b, pointers[first], type, predicate, fallback, cache, evict, False, size)
            hooks.store_shared(b, target, value, None, size)
        elif fallback is None:
            hooks.async_copy(b, target, pointers[first], size, predicate, cache, evict)
        else:
            b.if_then_else(predicate, lambda: hooks.async_copy(b, target, pointers[first], size, None, cache, evict),
                           lambda: hooks.store_shared(b, target, fallback, None, size))

    def copies() -> None:
        for group in groups:
            copy(group)

    owner = ctx.indices.owner(layout)
    if owner is None:
        copies()
    else:
        # Targets may forget addresses made inside the branch: make them before it.
        for group in groups:
            addresses.at(view.offset(constants[group[0]]))
        b.if_then(owner, copies)
    return [[]]


@lowers("ttg.async_commit_group")
def lower_async_commit(ctx: Any, op: Any) -> list[Any]:
    if ctx.hooks.has_async_copy:
        ctx.hooks.async_commit(ctx.b)
    return [[]]


@lowers("ttg.async_wait")
def lower_async_wait(ctx: Any, op: Any) -> list[Any]:
    if ctx.hooks.has_async_copy:
        ctx.hooks.async_wait(ctx.b, int(ir.IntegerAttr(op.attributes["num"]).value))
    return [[]]
