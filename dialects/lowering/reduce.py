"""tt.reduce: within a thread, across lanes by shuffles, across warps through shared memory; always the same tree.

The combiner must be associative and commutative (as for every reduction of the language; argmax and argmin break ties by
index). Threads and registers that only repeat an element take no part, so nothing is counted twice.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

from tilewright.dialects import encodings
from tilewright.dialects._mlir import ir
from tilewright.dialects.errors import InternalCompilerError
from tilewright.dialects.linear_layout import LinearLayout
from tilewright.dialects.lowering.control_flow import combiner
from tilewright.dialects.lowering.indices import fields, register_constants, thread_columns
from tilewright.dialects.lowering.registry import lowers
from tilewright.dialects.lowering.scratch import storage_bytes

MAX_BYTES = 16


@dataclass(frozen=True)
class ReducePlan:
    """groups: for each result element of a thread (its row-major number in thread 0) the registers along the axis, in order.
    lane_bits, warp_bits: bits of the thread's number that run along the axis. result_columns: row-major number in the result
    by the thread's bits. idle: bits on which nothing depends (threads that hold copies)."""

    groups: dict[int, tuple[int, ...]]
    lane_bits: tuple[int, ...]
    warp_bits: tuple[int, ...]
    result_columns: tuple[int, ...]
    idle: int
    result_elements: int

    @property
    def warps(self) -> int:
        return 1 << len(self.warp_bits)


@cache
def plan_reduce(layout: LinearLayout, axis: int) -> ReducePlan:
    """How a tensor of this layout is reduced along ``axis``."""
    shift, bits = fields(layout)[axis]
    field = ((1 << bits) - 1) << shift

    def drop(e: int) -> int:
        return e & ((1 << shift) - 1) | e >> (shift + bits) << shift

    masks = layout.free_variable_masks()
    lanes = len(layout.columns("lane"))
    idle = masks["lane"] | masks["warp"] << lanes
    lane_bits: list[int] = []
    warp_bits: list[int] = []
    result_columns: list[int] = []
    for i, c in enumerate(thread_columns(layout)):
        if idle >> i & 1:
            result_columns.append(drop(c & ~field))
            continue
        if c & field and c & ~field:
            raise InternalCompilerError(f"a reduction along dim {axis} of a layout that mixes dims: {layout}; convert it first")
        if c & field:
            (lane_bits if i < lanes else warp_bits).append(i)
        result_columns.append(drop(c & ~field))
    groups: dict[int, list[tuple[int, int]]] = {}
    constants = register_constants(layout)
    for r in encodings.unique_registers(layout):
        groups.setdefault(drop(constants[r] & ~field), []).append((constants[r] & field, r))
    return ReducePlan({k: tuple(r for _, r in sorted(g)) for k, g in sorted(groups.items())}, tuple(lane_bits), tuple(warp_bits),
                      tuple(result_columns), idle, 1 << (layout.total_out_bits - bits))


def _regions(plan: ReducePlan, sizes: list[int]) -> list[int]:
    """Where each operand's partial results begin in scratch, and the end."""
    starts = [0]
    for size in sizes:
        starts.append(starts[-1] + -(-plan.result_elements * plan.warps * size // MAX_BYTES) * MAX_BYTES)
    return starts


def scratch_bytes(op: Any, hooks: Any) -> int:
    """Partial results of every warp, where warps split the axis."""
    layout = encodings.layout_of(op.operands[0].type)
    plan = plan_reduce(layout, int(ir.IntegerAttr(op.attributes["axis"]).value))
    return _regions(plan, [storage_bytes(v.type) for v in op.operands])[-1] if plan.warp_bits else 0


def tree(combine: Any, values: list[list[Any]], per_group: int) -> list[list[Any]]:
    """Each operand's list is groups of ``per_group`` registers (a power of two); neighbours are combined until one is left."""
    while per_group > 1:
        values = combine([v[0::2] for v in values], [v[1::2] for v in values])
        per_group //= 2
    return values


@lowers("tt.reduce")
def lower_reduce(ctx: Any, op: Any) -> list[Any]:
    node = ctx.node
    sources = [ctx.get(v) for v in op.operands]
    layout = ctx.layout_of(op.operands[0])
    plan = plan_reduce(layout, int(ir.IntegerAttr(op.attributes["axis"]).value))
    combine = combiner(ctx, node)
    groups = list(plan.groups.values())
    values = tree(combine, [[s[r] for g in groups for r in g] for s in sources], len(groups[0]))
    for bit in plan.lane_bits:
        values = combine(values, [[ctx.shuffle_xor(x, 1 << bit) for x in v] for v in values])
    if plan.warp_bits:
        values = _across_warps(ctx, op, plan, values, combine)
    by_element = dict(zip(plan.groups, range(len(groups))))
    out = []
    for result, v in zip(op.results, values):
        if not isinstance(result.type, ir.RankedTensorType):
            out.append([v[0]])
            continue
        target = ctx.layout_of(result)
        if thread_columns(target) != plan.result_columns or any(c not in by_element for c in register_constants(target)):
            raise InternalCompilerError(f"tt.reduce: the result's layout {target} is not the source's without the axis")
        out.append([v[by_element[c]] for c in register_constants(target)])
    return out


def _across_warps(ctx: Any, op: Any, plan: ReducePlan, values: list[list[Any]], combine: Any) -> list[list[Any]]:
    """One lane of each warp writes its partial results, [result element][warp]; everybody reads and combines them."""
    b, hooks = ctx.b, ctx.hooks
    base, warps = ctx.scratch(op), plan.warps
    scale = len(plan.warp_bits)
    read_columns = [c << scale for c in plan.result_columns]
    write_columns = [c | 1 << plan.warp_bits.index(i) if i in plan.warp_bits else c for i, c in enumerate(read_columns)]
    writer = ctx.indices.bits_are_zero(plan.idle | sum(1 << i for i in plan.lane_bits))
    sizes = [storage_bytes(v.type) for v in op.operands]
    starts = _regions(plan, sizes)
    elements = [e << scale for e in plan.groups]
    bases = [b.gep(base, start, b.t_i8) for start in starts[:-1]]
    stored = [ctx.storage_type(v[0].type) for v in values]
    places = [ctx.indices.combined(write_columns, e) for e in elements]
    pointers = [[b.gep(bs, p, t) for p in places] for bs, t in zip(bases, stored)]

    def write() -> None:
        for v, ptrs, size in zip(values, pointers, sizes):
            for x, p in zip(v, ptrs):
                hooks.store_shared(b, p, ctx.to_storage(x), None, size)

    if writer is None:
        write()
    else:
        b.if_then(writer, write)
    hooks.barrier(b)
    partial: list[list[Any]] = []
    for v, bs, type, size in zip(values, bases, stored, sizes):
        width = min(warps, MAX_BYTES // size)
        loaded: list[Any] = []
        for e in elements:
            start = b.gep(bs, ctx.indices.combined(read_columns, e), type)
            for w in range(0, warps, width):
                vector = hooks.load_shared(b, b.gep(start, w, type), type if width == 1 else b.vec(width, type), size * width)
                loaded += [ctx.from_storage(x, v[0].type) for x in b.unpack_vector(vector, width)]
        partial.append(loaded)
    return tree(combine, partial, warps)
