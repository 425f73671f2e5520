"""tt.gather and tt.histogram, through shared memory."""

from __future__ import annotations

from typing import Any

from tilewright.dialects import encodings
from tilewright.dialects._mlir import ir
from tilewright.dialects.lowering.indices import fields, register_constants, thread_columns
from tilewright.dialects.lowering.registry import lowers
from tilewright.dialects.lowering.scratch import write


@lowers("tt.gather")
def lower_gather(ctx: Any, op: Any) -> list[Any]:
    """The source goes to scratch in row-major order; every thread reads what its indices say."""
    b, hooks = ctx.b, ctx.hooks
    source, indices = op.operands
    axis = int(ir.IntegerAttr(op.attributes["axis"]).value)
    layout, target = ctx.layout_of(source), ctx.layout_of(indices)
    base = ctx.scratch(op)
    registers = ctx.get(source)
    type = registers[0].type
    stored, size = ctx.storage_type(type), encodings.storage_bits(type) // 8
    write(ctx, base, layout, registers, 0, stored, size)
    hooks.barrier(b)
    moves = [(dst_shift, (1 << dst_bits) - 1, src_shift)
             for d, ((src_shift, _), (dst_shift, dst_bits)) in enumerate(zip(fields(layout), fields(target))) if d != axis]

    def fixed(e: int) -> int:
        """Row-major number in the source of element e of the result, the axis's coordinate being 0."""
        out = 0
        for dst_shift, mask, src_shift in moves:
            out |= (e >> dst_shift & mask) << src_shift
        return out

    columns = [fixed(c) for c in thread_columns(target)]
    shift = fields(layout)[axis][0]
    constants = register_constants(target)
    wanted = ctx.get(indices)
    out: list[Any] = [None] * len(constants)
    for r in encodings.unique_registers(target):
        index = wanted[r]
        bits = ir.IntegerType(index.type).width
        if bits != 32:
            index = b.trunc(index, b.t_i32) if bits > 32 else b.sext(index, b.t_i32)
        place = b.or_(b.shl(index, b.i32(shift)), ctx.indices.combined(columns, fixed(constants[r])))
        out[r] = ctx.from_storage(hooks.load_shared(b, b.gep(base, place, stored), stored, size), type)
    return [[out[r] for r in encodings.register_owners(target)]]


@lowers("tt.histogram")
def lower_histogram(ctx: Any, op: Any) -> list[Any]:
    """Atomic additions in shared memory; values outside the bins count nowhere."""
    b, hooks = ctx.b, ctx.hooks
    source = op.operands[0]
    masks = ctx.get(op.operands[1]) if len(op.operands) > 1 else None
    bins = op.results[0].type.shape[0]
    base = ctx.scratch(op)
    thread = ctx.thread_id()
    for first in range(0, bins, ctx.num_threads):
        place = b.add(thread, b.i32(first)) if first else thread
        inside = None if first + ctx.num_threads <= bins else b.icmp("ult", place, b.i32(bins))
        hooks.store_shared(b, b.gep(base, place, b.t_i32), b.i32(0), inside, 4)
    hooks.barrier(b)
    layout = ctx.layout_of(source)
    owner = ctx.indices.owner(layout)
    values = ctx.get(source)
    for r in encodings.unique_registers(layout):
        value = values[r]
        counts = b.icmp("ult", value, b.const(value.type, bins)) if bins < 1 << (ir.IntegerType(value.type).width - 1) else b.i1(1)
        for condition in (owner, masks[r] if masks else None):
            if condition is not None:
                counts = b.and_(counts, condition)
        pointer = b.gep(base, b.zext(value, b.t_i64) if ir.IntegerType(value.type).width < 64 else value, b.t_i32)
        b.if_then(counts, lambda pointer=pointer: b.atomicrmw("add", pointer, b.i32(1)))
    hooks.barrier(b)
    target = ctx.layout_of(op.results[0])
    type = ctx.llvm_type(op.results[0].type)
    loaded = [hooks.load_shared(b, b.gep(base, place, b.t_i32), b.t_i32, 4) for place in ctx.indices.flat(target)]
    return [loaded if type == b.t_i32 else [b.zext(v, type) for v in loaded]]
