"""Lowering of amdg's buffer atomics (LLVM AMDGPU user guide, raw buffer intrinsics; ISA manuals, buffer instructions).

The intrinsics have no memory order of their own: fences of the op's scope stand before all of a tile's (release) and after them (acquire), which orders
no less than one with each. Lanes that are masked off, or hold copies of an element, have offsets beyond the buffer, as of loads and stores.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilewright.dialects import encodings
from tilewright.dialects._mlir import ir
from tilewright.dialects.lowering.global_ops import share_old_values
from tilewright.dialects.lowering.registry import Lowering
from tilewright.targets.amd.buffers import atomic_instruction, atomic_scope
from tilewright.targets.amd.lower_buffer_ops import each_access, parts


def lower_buffer_atomic(ctx: Any, op: Any) -> list[Any]:
    b = ctx.b
    *values, ptr, offsets, limit, mask = parts(op)
    kind = "cas" if op.name == "amdg.buffer_atomic_cas" else str(ir.StringAttr(op.attributes["rmw_op"]).value)
    sem, scope = (str(ir.StringAttr(op.attributes[name]).value) for name in ("sem", "scope"))
    instruction = atomic_instruction(ctx.pass_ctx.arch, kind, str(op.results[0].type.element_type))
    assert instruction is not None  # convert_to_buffer_ops asked
    element = ctx.llvm_type(op.results[0].type)
    bits = encodings.storage_bits(element)
    moved = b.int_type(bits) if instruction.bits else element
    type_ = moved if instruction.elements == 1 else b.vec(instruction.elements, moved)
    suffix = str(moved) if instruction.elements == 1 else f"v{instruction.elements}{moved}"
    # (cmpswap's new value comes before what memory is compared with)
    sources = [ctx.get(v) for v in (reversed(values) if kind == "cas" else values)]
    auxiliary = b.i32(atomic_scope(ctx.pass_ctx.arch, scope))
    out: list[Any] = [None] * len(ctx.get(offsets))

    def act(resource: Any, offset: Any, group: list[int], conditions: Any) -> None:
        data = [b.bitcast(b.pack_vector([source[r] for r in group]), type_) for source in sources]
        old = b.call_intrinsic(f"llvm.amdgcn.raw.ptr.buffer.atomic.{instruction.name}.{suffix}", type_, [*data, resource, offset, b.i32(0), auxiliary])
        found = b.bitcast(old, element if len(group) == 1 else b.vec(len(group), element))
        for r, value in zip(group, b.unpack_vector(found, len(group)), strict=True):
            out[r] = value

    if sem in ("release", "acq_rel"):
        ctx.hooks.release(b, scope, ctx.scalar(ptr))
    each_access(ctx, op, offsets, (ptr, offsets, limit, mask), bits, act, ctx.indices.owner(ctx.layout_of(offsets)))
    if sem in ("acquire", "acq_rel"):
        ctx.hooks.acquire(b, scope)
    return [share_old_values(ctx, op, out)]


LOWERINGS: Mapping[str, Lowering] = {"amdg.buffer_atomic_rmw": lower_buffer_atomic, "amdg.buffer_atomic_cas": lower_buffer_atomic}
