"""Global memory: loads and stores as wide as the pointers' contiguity, the layout and the mask allow, and atomics.

Registers that repeat an element are loaded once. Where several threads hold an element, one of them (the owner: all its free
lane and warp bits are 0) stores it or does the atomic.
"""

from __future__ import annotations

from typing import Any

from tilewright.dialects import encodings
from tilewright.dialects._mlir import ir
from tilewright.dialects.linear_layout import LinearLayout
from tilewright.dialects.lowering.indices import fields, thread_columns
from tilewright.dialects.lowering.registry import lowers
from tilewright.dialects.lowering.scratch import exchange, is_used


def _string(op: Any, name: str) -> str:
    return str(ir.StringAttr(op.attributes[name]).value)


def vector_groups(layout: LinearLayout, limits: list[int]) -> list[list[int]]:
    """Registers cut into vectors: each list holds consecutive elements along one dim, at most ``limits[dim]`` of them.

    Every element that a thread holds is in exactly one vector; registers that only repeat are in none.
    """
    columns = layout.columns("register")
    threads = thread_columns(layout)
    best: list[int] = []
    for (shift, bits), limit in zip(fields(layout), limits):
        positions: list[int] = []
        while len(positions) < bits and 2 << len(positions) <= limit:
            wanted = 1 << (shift + len(positions))
            if wanted not in columns:
                break
            positions.append(columns.index(wanted))
        while positions:  # nothing else may move the low bits, or vectors would not be aligned
            low = ((1 << len(positions)) - 1) << shift
            if not any(c & low for i, c in enumerate(columns) if i not in positions) and not any(c & low for c in threads):
                break
            positions.pop()
        if len(positions) > len(best):
            best = positions
    offsets = [0]
    for p in best:
        offsets += [o ^ 1 << p for o in offsets]
    mask = sum(1 << p for p in best)
    return [[r ^ o for o in offsets] for r in encodings.unique_registers(layout) if not r & mask]


def vector_limits(ctx: Any, ptr: Any, mask: Any, bits: int) -> list[int]:
    """By dim the most elements of ``bits`` bits that one access may have: contiguity, alignment and the mask's constancy."""
    info = ctx.axis_info.get(ptr)
    limits = [min(c, max(1, d * 8 // bits), max(1, ctx.capabilities.max_vector_bits // bits))
              for c, d in zip(info.contiguity, info.divisibility)]
    if mask is not None and ctx.b.constant_of(ctx.get(mask)[0]) is None:
        limits = [min(a, c) for a, c in zip(limits, ctx.axis_info.get(mask).constancy)]
    return limits


def _groups(ctx: Any, ptr: Any, mask: Any, bits: int) -> list[list[int]]:
    if not isinstance(ptr.type, ir.RankedTensorType):
        return [[0]]
    return vector_groups(ctx.layout_of(ptr), vector_limits(ctx, ptr, mask, bits))


def _predicate(ctx: Any, owner: Any, mask: Any) -> Any:
    """Both conditions, or None for always; a mask that is known to be true asks nothing."""
    if mask is not None and ctx.b.constant_of(mask) in (1, True, -1):
        mask = None
    if owner is None or mask is None:
        return mask if owner is None else owner
    return ctx.b.and_(owner, mask)


def _owner(ctx: Any, type: Any) -> Any:
    """i1: this thread acts for the elements it holds; for a scalar that is thread 0. None: always."""
    if isinstance(type, ir.RankedTensorType):
        return ctx.indices.owner(ctx.layout_of(type))
    return ctx.indices.bits_are_zero(ctx.num_threads - 1)


@lowers("tt.load")
def lower_load(ctx: Any, op: Any) -> list[Any]:
    b, hooks = ctx.b, ctx.hooks
    ptr, mask, other = (*op.operands, None, None)[:3]
    result = op.results[0].type
    element = ctx.llvm_type(result)
    bits = encodings.storage_bits(element)
    pointers = ctx.get(ptr)
    masks = ctx.get(mask) if mask is not None else None
    others = ctx.get(other) if other is not None else None
    cache, evict = _string(op, "cache"), _string(op, "evict")
    volatile = bool(ir.BoolAttr(op.attributes["is_volatile"]).value)
    out: list[Any] = [None] * len(pointers)
    for group in _groups(ctx, ptr, mask, bits):
        first = group[0]
        type = element if len(group) == 1 else b.vec(len(group), element)
        predicate = _predicate(ctx, None, masks[first] if masks else None)
        fallback = b.pack_vector([others[r] for r in group]) if others and predicate is not None else None
        value = hooks.load_global(b, pointers[first], type, predicate, fallback, cache, evict, volatile, bits * len(group) // 8)
        for r, v in zip(group, b.unpack_vector(value, len(group))):
            out[r] = v
    if any(v is None for v in out):
        out = [out[r] for r in encodings.register_owners(ctx.layout_of(ptr))]
    return [out]


@lowers("tt.store")
def lower_store(ctx: Any, op: Any) -> None:
    b, hooks = ctx.b, ctx.hooks
    ptr, value, mask = (*op.operands, None)[:3]
    element = ctx.llvm_type(value.type)
    bits = encodings.storage_bits(element)
    pointers, values = ctx.get(ptr), ctx.get(value)
    masks = ctx.get(mask) if mask is not None else None
    cache, evict = _string(op, "cache"), _string(op, "evict")
    owner = _owner(ctx, ptr.type)
    for group in _groups(ctx, ptr, mask, bits):
        first = group[0]
        predicate = _predicate(ctx, owner, masks[first] if masks else None)
        vector = b.pack_vector([ctx.to_storage(values[r]) for r in group])
        hooks.store_global(b, pointers[first], vector, predicate, cache, evict, bits * len(group) // 8)
    if owner is not None:
        hooks.after_owners(b)


def share_old_values(ctx: Any, op: Any, registers: list[Any]) -> list[Any]:
    """Old values as all threads need them: registers that repeat, and threads that did not act, get the owner's. Then what an atomic acquires holds for
    all of them; where nobody uses its old values, it orders nothing for threads that did not act, which cannot tell when it happened."""
    result = op.results[0]
    acquires = is_used(result) and _string(op, "sem") in ("acquire", "acq_rel")
    if not isinstance(result.type, ir.RankedTensorType):
        if not is_used(result):
            return registers
        b, hooks = ctx.b, ctx.hooks
        base, type = ctx.scratch(op), registers[0].type
        size = encodings.storage_bits(type) // 8
        hooks.store_shared(b, base, registers[0], _owner(ctx, result.type), size)
        hooks.barrier(b)
        if acquires:
            hooks.after_acquire(b, True)
        return [hooks.load_shared(b, base, type, size)]
    if acquires:
        ctx.hooks.after_acquire(ctx.b, False)
    layout = ctx.layout_of(result)
    registers = [registers[r] for r in encodings.register_owners(layout)]
    if ctx.indices.owner(layout) is None or not is_used(result):
        return registers
    return exchange(ctx, op, [(layout, registers, 0)], layout)


def _unique(ctx: Any, type: Any) -> list[int]:
    return encodings.unique_registers(ctx.layout_of(type)) if isinstance(type, ir.RankedTensorType) else [0]


@lowers("tt.atomic_rmw")
def lower_atomic_rmw(ctx: Any, op: Any) -> list[Any]:
    ptr, value, mask = (*op.operands, None)[:3]
    kind, sem, scope = (_string(op, n) for n in ("rmw_op", "sem", "scope"))
    pointers, values = ctx.get(ptr), ctx.get(value)
    masks = ctx.get(mask) if mask is not None else None
    owner = _owner(ctx, ptr.type)
    out: list[Any] = [None] * len(pointers)
    for r in _unique(ctx, ptr.type):
        predicate = _predicate(ctx, owner, masks[r] if masks else None)
        out[r] = ctx.hooks.atomic_rmw(ctx.b, kind, pointers[r], values[r], predicate, sem, scope)
    if owner is not None:
        ctx.hooks.after_owners(ctx.b)
    return [share_old_values(ctx, op, out)]


@lowers("tt.atomic_cas")
def lower_atomic_cas(ctx: Any, op: Any) -> list[Any]:
    pointers, compare, values = ctx.operands(op)
    sem, scope = _string(op, "sem"), _string(op, "scope")
    type = op.operands[0].type
    owner = _owner(ctx, type)
    out: list[Any] = [None] * len(pointers)
    for r in _unique(ctx, type):
        out[r] = ctx.hooks.atomic_cas(ctx.b, pointers[r], compare[r], values[r], owner, sem, scope)
    if owner is not None:
        ctx.hooks.after_owners(ctx.b)
    return [share_old_values(ctx, op, out)]
