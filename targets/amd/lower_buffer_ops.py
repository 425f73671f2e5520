"""Lowering of amdg's buffer operations and scheduling hints (LLVM AMDGPU user guide, intrinsics; CDNA 3 ISA manual, section 9.1).

A masked-off element has an offset beyond the buffer's end, for which the hardware gives 0 or drops the store: no branch, and lanes stay
active. What is constant in an offset is added after that choice, so that LLVM puts it into the instruction.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tilewright.dialects import encodings
from tilewright.dialects._mlir import ir
from tilewright.dialects.analysis.layout_cost import registers
from tilewright.dialects.analysis.structure import type_info
from tilewright.dialects.errors import InternalCompilerError
from tilewright.dialects.lowering.global_ops import vector_groups
from tilewright.dialects.lowering.indices import register_constants
from tilewright.dialects.lowering.registry import Lowering
from tilewright.dialects.lowering.shared_ops import View
from tilewright.targets.amd.buffers import COPY_BYTES, MOST_BYTES, OUTSIDE, READ_FIRST_LANE, flags, streaming, waitcnt

_AT_LEAST_DWORD = 32


def parts(op: Any) -> list[Any]:
    """The op's operands with None for optional ones that are not there."""
    sizes = list(ir.DenseI32ArrayAttr(op.attributes["operandSegmentSizes"]))
    operands = iter(op.operands)
    return [next(operands) if n else None for n in sizes]


def _auxiliary(ctx: Any, op: Any) -> int:
    return streaming(ctx.pass_ctx.arch, op.name == "amdg.buffer_store") if ir.StringAttr(op.attributes["cache"]).value in ("cg", "cs") else 0


def _resource(ctx: Any, op: Any, ptr: Any, limit: Any) -> Any:
    """The buffer's descriptor, of values that are the same in all lanes. Where LLVM may compute one in vector registers all the same (see
    convert_to_buffer_ops.py) it is told, or it would loop over the lanes' descriptors."""
    b = ctx.b
    base = ctx.scalar(ptr)
    records = None if limit is None else ctx.scalar(limit)
    if READ_FIRST_LANE in op.attributes:
        base = b.call_intrinsic("llvm.amdgcn.readfirstlane.p1", b.ptr(1), [base])
        records = None if records is None else b.call_intrinsic("llvm.amdgcn.readfirstlane.i32", b.t_i32, [records])
    records = b.i64(MOST_BYTES) if records is None else b.zext(records, b.t_i64)
    return b.call_intrinsic("llvm.amdgcn.make.buffer.rsrc.p8.p1", b.ptr(8), [base, b.i16(0), records, b.i32(flags(ctx.pass_ctx.arch))])


class _Offsets:
    """Byte offsets of a tile's registers, those of masked-off ones OUTSIDE."""

    def __init__(self, ctx: Any, registers: Sequence[Any], size: int):
        self.ctx, self.registers, self.size = ctx, registers, size
        self._bytes: dict[Any, Any] = {}
        self._chosen: dict[Any, Any] = {}

    def at(self, register: int, masks: Sequence[Any]) -> Any:
        """``masks``: i1 values that must all hold."""
        b = self.ctx.b
        base, constant = _split_constant(b, self.registers[register])
        offset = self._in_bytes(base)
        for mask in masks:
            key = (offset, mask)
            if key not in self._chosen:
                self._chosen[key] = b.select(mask, offset, b.i32(OUTSIDE - (1 << 32)))
            offset = self._chosen[key]
        return b.add(offset, b.i32(constant * self.size)) if constant else offset

    def _in_bytes(self, base: Any) -> Any:
        if base is None:
            return self.ctx.b.i32(0)
        if base not in self._bytes:
            b = self.ctx.b
            self._bytes[base] = base if self.size == 1 else b.shl(base, b.i32(self.size.bit_length() - 1))
        return self._bytes[base]


def _split_constant(b: Any, value: Any) -> tuple[Any, int]:
    """(value without a constant, ≥ 0, that is added to it, the constant). The value is None where it is the constant."""
    number = b.constant_of(value)
    if number is not None:
        return (None, int(number)) if number >= 0 else (value, 0)
    owner = getattr(value.owner, "operation", None) or value.owner
    name = getattr(owner, "name", "")
    if name == "llvm.or" and "isDisjoint" in owner.attributes or name == "llvm.add":
        for i in (0, 1):
            number = b.constant_of(owner.operands[i])
            if number is not None and number >= 0:
                rest, more = _split_constant(b, owner.operands[1 - i])
                return rest, more + int(number)
    return value, 0


def each_access(ctx: Any, op: Any, tile: Any, operands: Sequence[Any], bits: int, act: Callable[[Any, Any, list[int], Any], None], owner: Any) -> None:
    """Call ``act(resource, offset, registers, masks)`` for each access."""
    ptr, offsets, limit, mask = operands
    layout = ctx.layout_of(tile)
    most = max(1, ctx.capabilities.max_vector_bits // bits)
    limits = [min(n, most) for n in ir.DenseI32ArrayAttr(op.attributes["vector"])]
    masks = ctx.get(mask) if mask is not None else None
    resource = _resource(ctx, op, ptr, limit)
    where = _Offsets(ctx, ctx.get(offsets), bits // 8)
    for group in vector_groups(layout, limits):
        conditions = [] if owner is None else [owner]
        if masks is not None and ctx.b.constant_of(masks[group[0]]) not in (1, True, -1):
            conditions.append(masks[group[0]])
        act(resource, where.at(group[0], conditions), group, conditions)


def _access_type(b: Any, element: Any, bits: int, count: int) -> Any:
    """What the instruction moves: whole dwords where it can."""
    total = bits * count
    if total < _AT_LEAST_DWORD:
        return b.int_type(total)
    return b.t_i32 if total == _AT_LEAST_DWORD else b.vec(total // 32, b.t_i32)


def _suffix(total: int) -> str:
    return f"i{total}" if total <= 32 else f"v{total // 32}i32"


def lower_buffer_load(ctx: Any, op: Any) -> list[Any]:
    b = ctx.b
    ptr, offsets, limit, mask, where, other = parts(op)
    whole, others = (ctx.get(v) if v is not None else None for v in (where, other))
    element = ctx.llvm_type(op.results[0].type)
    bits = encodings.storage_bits(element)
    out: list[Any] = [None] * len(ctx.get(offsets))
    auxiliary = b.i32(_auxiliary(ctx, op))

    def load(resource: Any, offset: Any, group: list[int], conditions: Any) -> None:
        n = len(group)
        moved = b.call_intrinsic(f"llvm.amdgcn.raw.ptr.buffer.load.{_suffix(bits * n)}", _access_type(b, element, bits, n),
                                 [resource, offset, b.i32(0), auxiliary])
        if whole is not None and others is not None and b.constant_of(whole[group[0]]) not in (1, True, -1):
            # of a vector at once: its elements have one mask
            moved = b.select(whole[group[0]], moved, b.bitcast(b.pack_vector([others[r] for r in group]), moved.type))
        value = b.bitcast(moved, element if n == 1 else b.vec(n, element))
        for r, v in zip(group, b.unpack_vector(value, n)):
            out[r] = v

    each_access(ctx, op, offsets, (ptr, offsets, limit, mask), bits, load, None)
    if any(v is None for v in out):
        out = [out[r] for r in encodings.register_owners(ctx.layout_of(offsets))]
    return [out]


def lower_buffer_store(ctx: Any, op: Any) -> None:
    b = ctx.b
    value, ptr, offsets, limit, mask = parts(op)
    element = ctx.storage_type(ctx.llvm_type(value.type))
    bits = encodings.storage_bits(element)
    values = ctx.get(value)
    auxiliary = b.i32(_auxiliary(ctx, op))

    def store(resource: Any, offset: Any, group: list[int], conditions: Any) -> None:
        n = len(group)
        vector = b.pack_vector([ctx.to_storage(values[r]) for r in group])
        moved = b.bitcast(vector, _access_type(b, element, bits, n))
        b.call_intrinsic(f"llvm.amdgcn.raw.ptr.buffer.store.{_suffix(bits * n)}", None, [moved, resource, offset, b.i32(0), auxiliary])

    each_access(ctx, op, offsets, (ptr, offsets, limit, mask), bits, store, ctx.indices.owner(ctx.layout_of(offsets)))


def lower_buffer_load_to_local(ctx: Any, op: Any) -> list[Any]:
    """One instruction for each 64 lanes' bytes (``COPY_BYTES``); its address in LDS is the wave's, computed from the wave's number as one value."""
    b = ctx.b
    dst, ptr, offsets, limit, mask = parts(op)
    memory = ctx.get(dst)
    layout = ctx.layout_of(offsets)
    view = View(memory)
    bits = encodings.storage_bits(memory.element_type)
    size = COPY_BYTES[ctx.pass_ctx.arch]
    vector = size * 8 // bits
    lanes = [view.offset(c) for c in layout.columns("lane")]
    constants = register_constants(layout)
    if lanes != [vector << i for i in range(len(lanes))] or ctx.indices.owner(layout) is not None:
        raise InternalCompilerError("a copy to LDS whose lanes are not one after another")
    wave = ctx.once("wave", lambda b: b.call_intrinsic("llvm.amdgcn.readfirstlane.i32", b.t_i32, [ctx.warp_id()]))
    start = view.constant
    part = None
    for i, column in enumerate(layout.columns("warp")):
        bit = b.and_(b.lshr(wave, b.i32(i)), b.i32(1))
        moved = b.mul(bit, b.i32(view.offset(column)))
        part = moved if part is None else b.xor(part, moved)
    auxiliary = b.i32(_auxiliary(ctx, op))

    def copy(resource: Any, offset: Any, group: list[int], conditions: Any) -> None:
        if len(group) != vector:
            raise InternalCompilerError(f"a copy to LDS of {len(group)} elements at once instead of {vector}")
        at = start ^ view.offset(constants[group[0]])
        index = b.i32(at) if part is None else b.xor(part, b.i32(at))
        target = b.gep(memory.base, index, ctx.storage_type(memory.element_type))
        b.call_intrinsic("llvm.amdgcn.raw.ptr.buffer.load.lds", None,
                         [resource, target, b.i32(size), offset, b.i32(0), b.i32(0), auxiliary])

    each_access(ctx, op, offsets, (ptr, offsets, limit, mask), bits, copy, None)
    return [[]]


def _fewest_in_a_group(root: Any, size: int) -> int:
    """Instructions, of ``size`` bytes a lane, of the smallest group of copies to LDS, each wave's, of the kernel ``root``; 0 where there are none."""
    sizes = []
    for node in root.walk():
        if node.name == "ttg.async_commit_group":
            made = {id(n): n for n in root.walk() if n.name == "amdg.buffer_load_to_local" and n.results[0] in node.operands}
            sizes.append(sum(_instructions(n, size) for n in made.values()))
    return min(sizes, default=0)


def _instructions(copy: Any, size: int) -> int:
    offsets, memory = type_info(copy.operands[2].type), copy.operands[0].type
    bits = encodings.storage_bits(memory.element_type)
    return registers(offsets.shape, offsets.encoding) * bits // (8 * size)


def lower_async_wait(ctx: Any, op: Any) -> list[Any]:
    """s_waitcnt counts instructions: those that may be left are the fewest that the groups that may be left have."""
    node = ctx.node
    while node.parent is not None:
        node = node.parent
    fewest = _fewest_in_a_group(node, COPY_BYTES.get(ctx.pass_ctx.arch, 0))
    if fewest:
        left = min(63, fewest * ir.IntegerAttr(op.attributes["num"]).value)
        ctx.b.call_intrinsic("llvm.amdgcn.s.waitcnt", None, [ctx.b.i32(waitcnt(vm=left))])
    return [[]]


def _hint(name: str, *attributes: str) -> Lowering:
    def lower(ctx: Any, op: Any) -> None:
        numbers = [ir.IntegerAttr(op.attributes[a]) for a in attributes]
        ctx.b.call_intrinsic(name, None, [ctx.b.const(n.type, n.value) for n in numbers])

    return lower


def lower_half_barrier(ctx: Any, op: Any) -> None:
    b = ctx.b
    wave = b.call_intrinsic("llvm.amdgcn.readfirstlane.i32", b.t_i32, [ctx.warp_id()])  # a scalar branch: no lane is switched off
    half = b.i32(ctx.pass_ctx.num_warps // 2)
    b.if_then(b.icmp("uge" if ir.BoolAttr(op.attributes["late"]).value else "ult", wave, half), lambda: ctx.hooks.barrier(b))


LOWERINGS: Mapping[str, Lowering] = {
    "amdg.buffer_load_to_local": lower_buffer_load_to_local,
    "ttg.async_wait": lower_async_wait,
    "amdg.buffer_load": lower_buffer_load,
    "amdg.buffer_store": lower_buffer_store,
    "amdg.sched_barrier": _hint("llvm.amdgcn.sched.barrier", "mask"),
    "amdg.sched_group_barrier": _hint("llvm.amdgcn.sched.group.barrier", "mask", "size", "group"),
    "amdg.iglp_opt": _hint("llvm.amdgcn.iglp.opt", "variant"),
    "amdg.half_barrier": lower_half_barrier,
    "amdg.setprio": _hint("llvm.amdgcn.s.setprio", "priority"),
}
