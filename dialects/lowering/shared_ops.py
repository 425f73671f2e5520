"""Shared memory: buffers, views, and loads and stores as wide as the layouts allow.

Where an element lies is linear over GF(2) (but for padding): the offset is the xor of a part by the thread and of a constant
by register. What is constant and does not overlap with the thread's bits goes into the pointer's immediate.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import gcd
from typing import Any

from tilewright.dialects import encodings, ttg
from tilewright.dialects.errors import InternalCompilerError, UnsupportedOnTargetError
from tilewright.dialects.linear_layout import LinearLayout
from tilewright.dialects.lowering.context import LoweringContext, SharedMemory
from tilewright.dialects.lowering.indices import register_constants, thread_columns
from tilewright.dialects.lowering.registry import lowers

MAX_BYTES = 16  # of one access


def _select(columns: Sequence[int], bits: int) -> int:
    out, i = 0, 0
    while bits >> i:
        if bits >> i & 1:
            out ^= columns[i]
        i += 1
    return out


class View:
    """Offsets of the elements of a shared-memory view, in elements and before padding.

    columns: for each bit of the row-major element number of the view, what it xors into the offset. constant: the offset of
    the view's first element. ``offset(e)`` leaves the constant out.
    """

    def __init__(self, memory: SharedMemory):
        self.memory = memory
        inverse = memory.layout.pseudo_invert()
        dims = list(zip(memory.layout.out_dims, memory.shape, memory.offsets))
        columns: list[int] = []
        self.constant = 0
        for name, size, start in reversed(dims):
            own = inverse.columns(name)
            columns += own[:size.bit_length() - 1]
            if start % size:
                raise UnsupportedOnTargetError(f"a slice of shared memory begins at {start}, which is no multiple of its size {size}")
            self.constant ^= _select(own, start)
        self.columns = tuple(columns)
        encoding = encodings.downcast(memory.encoding)
        self.interval = self.padding = 0
        if isinstance(encoding, ttg.PaddedSharedEncoding):
            self.interval, self.padding = encodings.integer(encoding.params[0]), encodings.integer(encoding.params[1])

    def offset(self, element: int) -> int:
        return _select(self.columns, element)

    def padded(self, offset: int) -> int:
        return offset + offset // self.interval * self.padding if self.interval else offset

    @property
    def max_vector(self) -> int:
        """Elements that padding leaves together and aligned."""
        return gcd(self.interval, self.padding) if self.padding else 1 << 30


class Addresses:
    """Pointers into a view: ``at(constant)`` points at offset ``(xor of thread_columns by the thread's bits) ^ constant``."""

    def __init__(self, ctx: LoweringContext, view: View, columns: Sequence[int]):
        self.ctx, self.view = ctx, view
        self.columns = tuple(columns)
        self.reach = 0
        for c in self.columns:
            self.reach |= c
        self.type = ctx.storage_type(view.memory.element_type)
        self._pointers: dict[int, Any] = {}

    def at(self, constant: int) -> Any:
        b, view = self.ctx.b, self.view
        constant ^= view.constant
        mixed = constant & self.reach
        pointer = self._pointers.get(mixed)
        if pointer is None:
            part = self.ctx.indices.linear(self.columns)
            pointer = view.memory.base
            if part is not None:
                index = b.xor(part, b.i32(mixed)) if mixed else part
                if view.padding:
                    rows = b.lshr(index, b.i32(view.interval.bit_length() - 1))
                    index = b.add(index, b.mul(rows, b.i32(view.padding)))
                pointer = b.gep(pointer, index, self.type)
            self._pointers[mixed] = pointer
        # Bits outside the thread's reach add to its bits without a carry, across padding intervals too.
        return b.gep(pointer, view.padded(constant ^ mixed), self.type)


@dataclass(frozen=True)
class MatrixLoadPlan:
    """What ``hooks.load_matrix`` and ``hooks.store_matrix`` are offered: a whole local_load, or local_store.

    layout: of the tensor. element_type: LLVM's; element_bits. view: offsets of elements. ``offset(e)`` of a row-major
    element number e is linear over xor, so a hook composes ``layout``'s bases with it to see which elements are consecutive
    in memory. ``address(columns, constant)``: pointer to the element at offset (xor of columns[i] over the bits i of the
    thread's number) ^ constant, both in offset space. A load returns one value of ``element_type`` for each register of
    ``layout``, or None where its instruction does not fit.
    """

    ctx: LoweringContext
    layout: LinearLayout
    view: View
    element_type: Any
    element_bits: int

    def offset(self, element: int) -> int:
        return self.view.offset(element)

    def address(self, columns: Sequence[int], constant: int = 0) -> Any:
        return Addresses(self.ctx, self.view, columns).at(constant)

    @property
    def has_padding(self) -> bool:
        return bool(self.view.padding)


def shared_groups(layout: LinearLayout, view: View, limit: int) -> list[list[int]]:
    """Registers cut into vectors of elements with consecutive offsets, at most ``limit`` each; repeats are left out."""
    columns = [view.offset(c) for c in layout.columns("register")]
    threads = [view.offset(c) for c in thread_columns(layout)]
    limit = min(limit, view.max_vector)
    positions: list[int] = []
    while 2 << len(positions) <= limit and (1 << len(positions)) in columns:
        positions.append(columns.index(1 << len(positions)))
    while positions:
        low = (1 << len(positions)) - 1
        rest = [c for i, c in enumerate(columns) if i not in positions]
        if not any(c & low for c in (*rest, *threads, view.constant)):
            break
        positions.pop()
    offsets = [0]
    for p in positions:
        offsets += [o ^ 1 << p for o in offsets]
    mask = sum(1 << p for p in positions)
    return [[r ^ o for o in offsets] for r in encodings.unique_registers(layout) if not r & mask]


def _bits(ctx: LoweringContext, memory: SharedMemory) -> int:
    return encodings.storage_bits(memory.element_type)


def _check_shape(layout: LinearLayout, memory: SharedMemory, op: Any) -> None:
    sizes = tuple(layout.out_sizes.values())
    if sizes != memory.shape:
        raise InternalCompilerError(f"{op.name}: a tensor of {sizes} and shared memory of {memory.shape}")


def store_registers(ctx: LoweringContext, op: Any, registers: list[Any], layout: LinearLayout, memory: SharedMemory) -> None:
    """Write a tensor into a view, each element by its owner."""
    b, hooks = ctx.b, ctx.hooks
    _check_shape(layout, memory, op)
    view = View(memory)
    bits = _bits(ctx, memory)
    size = bits // 8
    owner = ctx.indices.owner(layout)
    whole = None
    if not encodings.repeats_lanes(layout):
        whole = hooks.store_matrix(b, MatrixLoadPlan(ctx, layout, view, memory.element_type, bits), registers)
    if whole is not None:
        if owner is None:
            whole()
        else:
            b.if_then(owner, whole)
        return
    groups = shared_groups(layout, view, MAX_BYTES // size)
    addresses = Addresses(ctx, view, [view.offset(c) for c in thread_columns(layout)])
    constants = register_constants(layout)
    stored = [ctx.to_storage(r) for r in registers]
    vectors = hooks.pack_bytes(b, stored, groups) if bits == 8 else None
    if vectors is None:
        vectors = [b.pack_vector([stored[r] for r in g]) for g in groups]
    accesses = [(addresses.at(view.offset(constants[g[0]])), v, size * len(g)) for g, v in zip(groups, vectors)]

    def store() -> None:
        for pointer, value, align in accesses:
            hooks.store_shared(b, pointer, value, None, align)

    if owner is None:
        store()
    else:
        b.if_then(owner, store)


def load_registers(ctx: LoweringContext, op: Any, layout: LinearLayout, memory: SharedMemory) -> list[Any]:
    """Read a view as a tensor."""
    b, hooks = ctx.b, ctx.hooks
    _check_shape(layout, memory, op)
    view = View(memory)
    bits = _bits(ctx, memory)
    plan = MatrixLoadPlan(ctx, layout, view, memory.element_type, bits)
    whole = hooks.load_matrix(b, plan)
    if whole is not None:
        return list(whole)
    size = bits // 8
    groups = shared_groups(layout, view, MAX_BYTES // size)
    addresses = Addresses(ctx, view, [view.offset(c) for c in thread_columns(layout)])
    constants = register_constants(layout)
    stored = ctx.storage_type(memory.element_type)
    out: list[Any] = [None] * len(constants)
    for g in groups:
        type = stored if len(g) == 1 else b.vec(len(g), stored)
        vector = hooks.load_shared(b, addresses.at(view.offset(constants[g[0]])), type, size * len(g))
        for r, value in zip(g, b.unpack_vector(vector, len(g))):
            out[r] = ctx.from_storage(value, memory.element_type)
    if any(v is None for v in out):
        out = [out[r] for r in encodings.register_owners(layout)]
    return out


# ------------------------------------------------------------------------------------------------------ buffers
def buffer(ctx: LoweringContext, type: Any, base: Any) -> SharedMemory:
    """A whole buffer of memdesc type ``type`` at ``base``. Leading dims that the encoding does not order (stages) have no
    layout: they can only be indexed away."""
    shape, rank = tuple(type.shape), encodings.shared_rank(type.encoding)
    inner = shape if rank is None else shape[len(shape) - rank:]
    layout = encodings.to_linear_layout(inner, type.encoding)
    return SharedMemory(base, ctx.llvm_type(type.element_type), shape, layout, (0,) * len(shape), type.encoding)


@lowers("ttg.local_alloc")
def lower_local_alloc(ctx: LoweringContext, op: Any) -> list[Any]:
    memory = buffer(ctx, op.results[0].type, ctx.scratch(op))
    if len(op.operands):
        source = op.operands[0]
        store_registers(ctx, op, ctx.get(source), ctx.layout_of(source), memory)
    return [memory]


@lowers("ttg.local_dealloc")
def lower_local_dealloc(ctx: LoweringContext, op: Any) -> None:
    return None


@lowers("ttg.local_store")
def lower_local_store(ctx: LoweringContext, op: Any) -> None:
    source, memory = op.operands
    store_registers(ctx, op, ctx.get(source), ctx.layout_of(source), ctx.get(memory))


@lowers("ttg.local_load")
def lower_local_load(ctx: LoweringContext, op: Any) -> list[Any]:
    return [load_registers(ctx, op, ctx.layout_of(op.results[0]), ctx.get(op.operands[0]))]


# -------------------------------------------------------------------------------------------------------- views
@lowers("ttg.memdesc_index")
def lower_memdesc_index(ctx: LoweringContext, op: Any) -> list[Any]:
    b = ctx.b
    source, index = ctx.get(op.operands[0]), ctx.scalar(op.operands[1])
    type = op.results[0].type
    shape = tuple(type.shape)
    if any(source.offsets):
        raise UnsupportedOnTargetError("indexing a slice of shared memory; index first, then slice")
    # Stages lie one after the other, each a whole buffer of the result's type, padded like allocation does.
    stride = stage_elements(shape, type)
    stored = ctx.storage_type(source.element_type)
    number = b.constant_of(index)
    base = b.gep(source.base, int(number) * stride if number is not None else b.mul(index, b.i32(stride)), stored)
    return [buffer(ctx, type, base)]


def stage_elements(shape: Sequence[int], type: Any) -> int:
    """Elements from one stage of a multi-buffered memdesc to the next, ``type`` being a stage's."""
    from tilewright.dialects.passes.allocate_shared_memory import stage_bytes

    return int(stage_bytes(type)) // (encodings.storage_bits(type.element_type) // 8)


@lowers("ttg.memdesc_subslice")
def lower_memdesc_subslice(ctx: LoweringContext, op: Any) -> list[Any]:
    source = ctx.get(op.operands[0])
    starts = encodings.ints(op.attributes["offsets"])
    offsets = tuple(a + s for a, s in zip(source.offsets, starts, strict=True))
    return [source.with_(shape=tuple(op.results[0].type.shape), offsets=offsets, encoding=op.results[0].type.encoding)]


@lowers("ttg.memdesc_trans")
def lower_memdesc_trans(ctx: LoweringContext, op: Any) -> list[Any]:
    source = ctx.get(op.operands[0])
    order = encodings.ints(op.attributes["order"])
    return [source.with_(shape=tuple(source.shape[i] for i in order), offsets=tuple(source.offsets[i] for i in order),
                         layout=source.layout.permute_tensor_dims(order), encoding=op.results[0].type.encoding)]
