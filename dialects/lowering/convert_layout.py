"""Emit layout conversions: the plans of ``convert_plan`` as LLVM-dialect ops, and the lowering of ttg.convert_layout.

``emit_convert`` serves any lowering that needs the registers of one layout in another (reductions, scans, gathers, …).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tilewright.dialects._mlir import ir
from tilewright.dialects.encodings import layout_of, storage_bits
from tilewright.dialects.gf2 import Gf2Solver, combine
from tilewright.dialects.linear_layout import LinearLayout, log2
from tilewright.dialects.lowering.convert_plan import Access, ConvertPlan, ShufflePlan, plan_convert
from tilewright.dialects.lowering.registry import lowers

Value = Any
MOST_SCRATCH = "allocation.most_scratch"  # set by allocate_shared_memory


# ------------------------------------------------------------------------------------------------------ selects
class _Permuted:
    """``get(i)`` is ``fetch(i ^ columns(thread))``, by a level of selects for each independent value of the columns.

    Only what is asked for is emitted, once.
    """

    def __init__(self, b: Any, indices: Any, fetch: Callable[[int], Value], columns: Sequence[int]):
        self.b, self.fetch = b, fetch
        self.levels: list[tuple[int, Value]] = []
        solver = Gf2Solver(columns)
        kept = [c for i, c in enumerate(columns) if not solver.free >> i & 1]
        by_kept = Gf2Solver(kept)
        parts = [by_kept.solve(c) or 0 for c in columns]
        for level, vector in enumerate(kept):
            parity = indices.linear([p >> level & 1 for p in parts])
            self.levels.append((vector, b.icmp("ne", parity, b.i32(0))))
        self.memo: list[dict[int, Value]] = [{} for _ in range(len(kept) + 1)]

    def get(self, index: int) -> Value:
        return self._at(len(self.levels), index)

    def _at(self, level: int, index: int) -> Value:
        found = self.memo[level].get(index)
        if found is None:
            if level == 0:
                found = self.fetch(index)
            else:
                vector, odd = self.levels[level - 1]
                found = self.b.select(odd, self._at(level - 1, index ^ vector), self._at(level - 1, index))
            self.memo[level][index] = found
        return found


# ------------------------------------------------------------------------------------------------- element types
class _Elements:
    """How elements of one LLVM type are kept while they move: i1 as i8, pointers as i64, the rest as it is."""

    def __init__(self, b: Any, type: Any, element_bytes: int):
        self.b, self.type, self.bytes = b, type, element_bytes
        text = str(type)
        self.is_i1, self.is_ptr = text == "i1", text.startswith("!llvm.ptr")
        self.stored = b.t_i8 if self.is_i1 else b.t_i64 if self.is_ptr else type

    def enter(self, v: Value) -> Value:
        if self.is_i1:
            return self.b.zext(v, self.b.t_i8)
        return self.b.ptrtoint(v, self.b.t_i64) if self.is_ptr else v

    def leave(self, v: Value) -> Value:
        if self.is_i1:
            return self.b.trunc(v, self.b.t_i1)
        return self.b.inttoptr(v, self.type) if self.is_ptr else v

    def to_words(self, values: Sequence[Value]) -> list[Value]:
        """Stored elements, together at most 32 bits or one element, as i32 words."""
        b = self.b
        bits = 8 * self.bytes
        integers = [b.bitcast(v, b.int_type(bits)) for v in values]
        if bits >= 64:
            return b.unpack_vector(b.bitcast(integers[0], b.vec(bits // 32, b.t_i32)), bits // 32)
        if len(integers) * bits == 32:
            return [integers[0] if bits == 32 else b.bitcast(b.pack_vector(integers), b.t_i32)]
        whole = integers[0] if len(integers) == 1 else b.bitcast(b.pack_vector(integers), b.int_type(bits * len(integers)))
        return [b.zext(whole, b.t_i32)]

    def from_words(self, words: Sequence[Value], count: int) -> list[Value]:
        b = self.b
        bits = 8 * self.bytes
        if bits >= 64:
            return [b.bitcast(b.bitcast(b.pack_vector(list(words)), b.int_type(bits)), self.stored)]
        whole = words[0] if count * bits == 32 else b.trunc(words[0], b.int_type(bits * count))
        if count == 1:
            return [b.bitcast(whole, self.stored)]
        return [b.bitcast(v, self.stored) for v in b.unpack_vector(b.bitcast(whole, b.vec(count, b.int_type(bits))), count)]


# ---------------------------------------------------------------------------------------------------- emission
def emit_convert(b: Any, hooks: Any, indices: Any, plan: ConvertPlan, values: Sequence[Value],
                 scratch: Callable[[], Value]) -> list[Value]:
    """The destination's registers from the source's (LLVM values of one type, in register order).

    indices: the function's ``Indices``, which give maps of the thread's number. scratch: gives a pointer in shared memory,
    16-byte aligned, to ``plan.scratch_bytes`` bytes; called only where needed. Accesses of other ops to the same scratch
    are separated by the pass insert_barriers.
    """
    if plan.kind == "registers":
        assert plan.registers is not None
        return [values[r] for r in plan.registers]
    elements = _Elements(b, values[0].type, plan.element_bytes)
    if plan.kind == "shuffle":
        assert plan.shuffle is not None
        return _emit_shuffle(b, hooks, indices, plan.shuffle, values, elements)
    return _emit_shared(b, hooks, indices, plan, values, scratch(), elements)


def _emit_shuffle(b: Any, hooks: Any, indices: Any, plan: ShufflePlan, values: Sequence[Value],
                  elements: _Elements) -> list[Value]:
    entered: dict[int, Value] = {}

    def source(r: int) -> Value:
        if r not in entered:
            entered[r] = elements.enter(values[r])
        return entered[r]

    send = _Permuted(b, indices, source, plan.send_thread)
    if hooks.xor_shuffle_is_cheap and plan.lane_identity and plan.keeps_words and any(plan.keep_thread):
        return _emit_exchange(b, hooks, indices, plan, send, elements)
    lane = None if plan.lane_identity else indices.linear(plan.lane_thread)
    received: dict[int, Value] = {}
    for group in plan.packed:
        own = [send.get(combine(plan.send_step, step)) for step in group]
        if plan.moves(group):
            away = combine(plan.lane_step, group[0])
            words = elements.to_words(own)
            if plan.lane_identity:
                words = [hooks.shuffle_xor(b, w, away) for w in words]
            else:
                base = b.i32(0) if lane is None else lane
                where = b.xor(base, b.i32(away)) if away else base
                words = [hooks.shuffle_idx(b, w, where) for w in words]
            own = elements.from_words(words, len(group))
        received.update(zip(group, own))
    kept = _Permuted(b, indices, received.__getitem__, plan.keep_thread)
    left: dict[int, Value] = {}
    for step in dict.fromkeys(plan.unique):
        left[step] = elements.leave(kept.get(step))
    return [left[step] for step in plan.unique]


def _emit_exchange(b: Any, hooks: Any, indices: Any, plan: ShufflePlan, send: _Permuted, elements: _Elements) -> list[Value]:
    """As ``_emit_shuffle``, where lanes are at xor distances and whole words can be chosen from: one select a word, not an element."""
    group_of = {group[0]: group for group in plan.packed}
    words = {first: elements.to_words([send.get(combine(plan.send_step, step)) for step in group]) for first, group in group_of.items()}

    def receive(first: int, number: int) -> Value:
        away = combine(plan.lane_step, first)
        own = words[first][number]
        return hooks.shuffle_xor(b, own, away) if away else own

    left = _emit_alternating(b, hooks, indices, plan, receive, elements)
    if left is None:
        left = {}
        kept = [_Permuted(b, indices, lambda first, i=i: receive(first, i), plan.keep_thread) for i in range(len(words[0]))]  # type: ignore[misc]
        for first, group in group_of.items():
            values = elements.from_words([k.get(first) for k in kept], len(group))
            left.update((step, elements.leave(v)) for step, v in zip(group, values))
    return [left[step] for step in plan.unique]


def _emit_alternating(b: Any, hooks: Any, indices: Any, plan: ShufflePlan, receive: Callable[[int, int], Value],
                      elements: _Elements) -> dict[int, Value] | None:
    """Where elements of 16 bits of two lanes alternate in the result: its words from those of both lanes, without choosing first."""
    choices = [(i, c) for i, c in enumerate(plan.keep_thread) if c]
    if elements.bytes != 2 or len(choices) != 1 or len(plan.packed[0]) != 2 or plan.unique[0] ^ plan.unique[1] != choices[0][1]:
        return None
    bit, odd_step = choices[0]
    odd = b.icmp("ne", indices.linear([int(i == bit) for i in range(len(plan.keep_thread))]), b.i32(0))
    left: dict[int, Value] = {}
    for group in plan.packed:
        if combine(plan.lane_step, group[0]):
            continue  # comes with its partner
        pairs = hooks.interleave_halves(b, receive(group[0], 0), receive(group[0] ^ odd_step, 0), odd)
        if pairs is None:
            return None
        for step, pair in zip(group, pairs):
            left[step], left[step ^ odd_step] = map(elements.leave, elements.from_words([pair], 2))
    return left if len(left) == 1 << len(plan.send_step) else None


class Addresses:
    """Byte addresses ``base + (thread part ^ offset)``: offsets clear of the thread's bits are constant additions."""

    def __init__(self, b: Any, indices: Any, base: Value, columns: Sequence[int], element_bytes: int):
        self.b, self.base, self.scale = b, base, log2(element_bytes)
        self.used = 0
        for c in columns:
            self.used |= c
        self.part = indices.linear([c << self.scale for c in columns])
        self.pointers: dict[int, Value] = {}

    def at(self, offset: int) -> Value:
        """Pointer to element ``offset`` (xor-ed with the thread's own)."""
        b = self.b
        mixed = offset & self.used
        pointer = self.pointers.get(mixed)
        if pointer is None:
            if self.part is None:
                pointer = self.base
            else:
                index = b.xor(self.part, b.i32(mixed << self.scale)) if mixed else self.part
                pointer = b.gep(self.base, index, b.t_i8)
            self.pointers[mixed] = pointer
        plain = (offset ^ mixed) << self.scale
        return b.gep(pointer, plain, b.t_i8)


def _emit_shared(b: Any, hooks: Any, indices: Any, plan: ConvertPlan, values: Sequence[Value], scratch: Value,
                 elements: _Elements) -> list[Value]:
    shared = plan.shared
    assert shared is not None
    size = plan.element_bytes
    owner, turn = indices.bits_are_zero(shared.idle_threads), indices.linear(shared.round_thread) if any(shared.round_thread) else None
    stores_at = Addresses(b, indices, scratch, shared.store_thread, size)
    loads_at = Addresses(b, indices, scratch, shared.load_thread, size)
    result: list[Any] = [None] * plan.num_registers

    def store(accesses: Sequence[tuple[Value, Value, int]]) -> None:
        for pointer, value, align in accesses:
            hooks.store_shared(b, pointer, value, None, align)

    for number, loads in enumerate(shared.loads):
        if number:
            hooks.barrier(b)
        for value, stores in shared.writers(number):
            # addresses and vectors are made outside the branch, where later rounds can use them too
            store_ops = [(stores_at.at(a.offset), b.pack_vector([elements.enter(values[r]) for r in a.registers]),
                          len(a.registers) * size) for a in stores]
            condition = owner
            if turn is not None:
                now = b.icmp("eq", turn, b.i32(value))
                condition = now if owner is None else b.and_(owner, now)
            if condition is None:
                store(store_ops)
            else:
                b.if_then(condition, lambda ops=store_ops: store(ops))
        hooks.barrier(b)
        for access in loads:
            _load(b, hooks, loads_at, access, elements, size, result)
    for register, same in shared.copies:
        result[register] = result[same]
    return result


def _load(b: Any, hooks: Any, addresses: Addresses, access: Access, elements: _Elements, size: int, result: list[Any]) -> None:
    n = len(access.registers)
    type = elements.stored if n == 1 else b.vec(n, elements.stored)
    vector = hooks.load_shared(b, addresses.at(access.offset), type, n * size)
    for register, value in zip(access.registers, b.unpack_vector(vector, n)):
        result[register] = elements.leave(value)


# ----------------------------------------------------------------------------------------- ttg.convert_layout
def plan_between(src: LinearLayout, dst: LinearLayout, element_type: Any) -> ConvertPlan:
    """The plan for elements of an MLIR type; warps and lanes as the layouts have them."""
    return plan_convert(src, dst, storage_bits(element_type), src.in_size("lane"), src.in_size("warp"))


def plan_of(op: Any) -> ConvertPlan:
    """The plan of a ttg.convert_layout op. Its attribute ``allocation.most_scratch`` (i32, bytes) says where it has to do with little."""
    src, dst = layout_of(op.operands[0].type), layout_of(op.results[0].type)
    bits = storage_bits(ir.RankedTensorType(op.operands[0].type).element_type)
    most = ir.IntegerAttr(op.attributes[MOST_SCRATCH]).value if MOST_SCRATCH in op.attributes else None
    return plan_convert(src, dst, bits, src.in_size("lane"), src.in_size("warp"), most_bytes=most)


def convert_scratch_bytes(op: Any, hooks: Any = None) -> int:
    """Bytes of shared memory that lowering a ttg.convert_layout uses; 0 where none."""
    return plan_of(op).scratch_bytes


def convert_registers(ctx: Any, values: Sequence[Value], src: LinearLayout, dst: LinearLayout, element_type: Any,
                      scratch: Callable[[], Value]) -> list[Value]:
    """For other lowerings: registers of layout ``src`` (elements of an MLIR type) as those of ``dst``.

    ``scratch``: pointer to ``plan_between(src, dst, element_type).scratch_bytes`` bytes, asked for only where needed.
    """
    return emit_convert(ctx.b, ctx.hooks, ctx.indices, plan_between(src, dst, element_type), values, scratch)


@lowers("ttg.convert_layout")
def lower_convert_layout(ctx: Any, op: Any) -> list[Any]:
    plan = plan_of(op)
    if ctx.hooks.xor_shuffle_is_cheap and plan.shuffle is not None and not plan.shuffle.lane_identity:
        source, result = op.operands[0].type, op.results[0].type
        src, dst = layout_of(source), layout_of(result)
        bits = storage_bits(ir.RankedTensorType(source).element_type)
        other = plan_convert(src, dst, bits, src.in_size("lane"), src.in_size("warp"), way="exchange")
        assert other.shuffle is not None
        plan = other if other.shuffle.lane_identity else plan
    return [emit_convert(ctx.b, ctx.hooks, ctx.indices, plan, ctx.get(op.operands[0]), lambda: ctx.scratch(op))]
