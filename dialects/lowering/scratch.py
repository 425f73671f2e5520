"""Shared memory that ops need for themselves: how many bytes, asked by allocation and by lowering alike.

An op with scratch writes it, waits for the others by a barrier of its own, and reads it. It does not wait before it begins
nor after it ends: insert_barriers orders it against other users of the same bytes, as a write and a read at the op's place.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

from tilewright.dialects import encodings
from tilewright.dialects._mlir import ir
from tilewright.dialects.linear_layout import LinearLayout
from tilewright.dialects.lowering.indices import register_constants

Rule = Callable[[Any, Any], int]


def storage_bytes(type: Any) -> int:
    """Bytes of one element of a tensor or scalar type in memory."""
    element = type.element_type if isinstance(type, ir.RankedTensorType) else type
    return encodings.storage_bits(element) // 8


def tensor_bytes(type: Any) -> int:
    """Bytes of all elements of a tensor type, or of a scalar."""
    return storage_bytes(type) * (prod(type.shape) if isinstance(type, ir.RankedTensorType) else 1)


def _convert_layout(op: Any, hooks: Any) -> int:
    from tilewright.dialects.lowering.convert_layout import convert_scratch_bytes

    return convert_scratch_bytes(op, hooks)


def _reduce(op: Any, hooks: Any) -> int:
    from tilewright.dialects.lowering.reduce import scratch_bytes

    return scratch_bytes(op, hooks)


def _scan(op: Any, hooks: Any) -> int:
    from tilewright.dialects.lowering.scan import scratch_bytes

    return scratch_bytes(op, hooks)


def _gather(op: Any, hooks: Any) -> int:
    return tensor_bytes(op.operands[0].type)


def _histogram(op: Any, hooks: Any) -> int:
    return 4 * prod(op.results[0].type.shape)


def _cat(op: Any, hooks: Any) -> int:
    from tilewright.dialects.lowering.shape_ops import cat_in_registers

    layouts = [encodings.layout_of(v.type) for v in (*op.operands, op.results[0])]
    return 0 if cat_in_registers(*layouts) else tensor_bytes(op.results[0].type)


def is_used(value: Any) -> bool:
    return next(iter(value.uses), None) is not None


def _atomic(op: Any, hooks: Any) -> int:
    """The old values, where threads that did not act need them too."""
    type = op.results[0].type
    if not is_used(op.results[0]):
        return 0
    if isinstance(type, ir.RankedTensorType):
        masks = encodings.layout_of(type).free_variable_masks()
        if not masks["lane"] and not masks["warp"]:
            return 0
    return tensor_bytes(type)


RULES: dict[str, Rule] = {
    "ttg.convert_layout": _convert_layout, "tt.reduce": _reduce, "tt.scan": _scan, "tt.gather": _gather,
    "tt.histogram": _histogram, "tt.cat": _cat, "tt.atomic_rmw": _atomic, "tt.atomic_cas": _atomic,
}


def scratch_bytes(op: Any, hooks: Any) -> int:
    """Bytes of shared memory that lowering ``op`` uses for itself; 0 for most ops. ``hooks``: the target's TargetHooks.

    A target adds its own ops with ``RULES[name] = rule``.
    """
    rule = RULES.get(op.name)
    return rule(op, hooks) if rule is not None else 0


# ------------------------------------------------------------------------------------------- through shared memory
def exchange(ctx: Any, op: Any, sources: Sequence[tuple[LinearLayout, list[Any], int]], dst: LinearLayout) -> list[Any]:
    """Write sources (layout, registers, first element) to the op's scratch in row-major order, and read it as ``dst``."""
    b, hooks = ctx.b, ctx.hooks
    base = ctx.scratch(op)
    type = sources[0][1][0].type
    stored = ctx.storage_type(type)
    size = encodings.storage_bits(type) // 8
    for layout, registers, first in sources:
        write(ctx, base, layout, registers, first, stored, size)
    hooks.barrier(b)
    constants = register_constants(dst)
    loaded: dict[int, Any] = {}
    for index, constant in zip(ctx.indices.flat(dst), constants):
        if constant not in loaded:
            loaded[constant] = ctx.from_storage(hooks.load_shared(b, b.gep(base, index, stored), stored, size), type)
    return [loaded[c] for c in constants]


def write(ctx: Any, base: Any, layout: LinearLayout, registers: list[Any], first: int, stored: Any, size: int) -> None:
    """Store a tensor at ``base`` in row-major order, each element by its owner."""
    b = ctx.b
    owner = ctx.indices.owner(layout)
    start = b.gep(base, first, stored)
    index = ctx.indices.flat(layout)
    for r in encodings.unique_registers(layout):
        ctx.hooks.store_shared(b, b.gep(start, index[r], stored), ctx.to_storage(registers[r]), owner, size)
