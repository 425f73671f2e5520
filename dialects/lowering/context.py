"""``LoweringContext``: what the lowering of one function knows, and what a lowering function may ask of it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from tilewright.dialects import encodings, tt
from tilewright.dialects._mlir import ir
from tilewright.dialects.errors import InternalCompilerError, UnsupportedOnTargetError
from tilewright.dialects.linear_layout import LinearLayout
from tilewright.dialects.lowering.builder import LLVMBuilder
from tilewright.dialects.lowering.indices import Indices
from tilewright.dialects.lowering.registry import Lowering

Value = Any
SMEM = "global_smem"


@dataclass(frozen=True)
class SharedMemory:
    """A memdesc while lowering.

    base: ``!llvm.ptr<3>`` to the first element of the buffer. element_type: its LLVM type.
    shape: of the view. layout: of the whole buffer, in dim "offset" (elements, before padding) → the view's dims.
    offsets: where in the buffer the view begins, one int a dim. encoding: the view's, for padding.
    """

    base: Value
    element_type: Any
    shape: tuple[int, ...]
    layout: LinearLayout
    offsets: tuple[int, ...]
    encoding: Any

    def with_(self, **changes: Any) -> SharedMemory:
        return replace(self, **changes)


# of loops: each round, or what follows the loop in its region, reads the thread's number again (``read_anew``)
ROUNDS_READ_ANEW, REST_READS_ANEW = "tt.rounds_read_anew", "tt.rest_reads_anew"
READ_ANEW = "tt.read_anew"  # of tt.get_program_id: no register holds the program's number before


class LoweringContext:
    """One a function. ``b`` is the builder; ``hooks`` the target's; ``options`` the launch options.

    ``get(value)``: the value's per-thread LLVM registers (a list; a scalar has one), or its ``SharedMemory``.
    """

    def __init__(self, pass_ctx: Any, hooks: Any, table: Mapping[str, Lowering], module: Any, func: Any, axis_info: Any = None):
        self.pass_ctx, self.hooks, self.table, self.module, self.func = pass_ctx, hooks, table, module, func
        self.options = pass_ctx.options
        self.capabilities = pass_ctx.capabilities
        self.metadata = pass_ctx.metadata
        self.num_warps = pass_ctx.num_warps
        self.warp_size = hooks.warp_size
        self.num_threads = self.num_warps * self.warp_size
        self.axis_info = axis_info
        self.b = LLVMBuilder(func, module)
        self.b.contract = bool(getattr(self.options, "enable_fp_fusion", True))
        self.values: dict[Value, Any] = {}
        self.indices = Indices(self.b, self.entry, hooks.thread_id)
        self.node: Any = None  # the op being lowered, with its regions
        self.is_called = False  # a function that a kernel calls, not a kernel
        self._types: dict[Any, Any] = {}
        self._once: dict[Any, Value] = {}

    # ------------------------------------------------------------------------------------------------- values
    def get(self, value: Value) -> Any:
        """Registers (list) or ``SharedMemory`` of ``value``."""
        return self.values[value]

    def scalar(self, value: Value) -> Value:
        """The one register of a scalar."""
        return self.values[value][0]

    def set(self, value: Value, lowered: Any) -> None:
        self.values[value] = lowered

    def operands(self, op: Any) -> list[Any]:
        values = self.values
        return [values[v] for v in op.operands]

    # -------------------------------------------------------------------------------------------------- types
    def llvm_type(self, type: Any) -> Any:
        """LLVM type of one element of ``type`` (a scalar or tensor type): fp8 are i8, index is i64, pointers !llvm.ptr<1>."""
        found = self._types.get(type)
        if found is None:
            found = self._types[type] = self._llvm_type(type)
        return found

    def _llvm_type(self, type: Any) -> Any:
        element = type.element_type if isinstance(type, ir.RankedTensorType) else type
        if isinstance(element, tt.PtrType):
            return self.b.ptr(self.hooks.global_address_space)
        if isinstance(element, ir.IndexType):
            return self.b.t_i64
        if isinstance(element, (ir.IntegerType, ir.F16Type, ir.BF16Type, ir.F32Type, ir.F64Type)):
            return element
        if str(element).startswith("f8"):
            return self.b.t_i8
        raise UnsupportedOnTargetError(f"values of type {element} have no LLVM form; use integers, fp8, fp16, bf16, fp32 or fp64")

    def layout_of(self, value_or_type: Any) -> LinearLayout:
        """Layout of a tensor value or type."""
        type = value_or_type.type if isinstance(value_or_type, ir.Value) else value_or_type
        layout = encodings.layout_of(type)
        if layout.has_in("block") and any(layout.columns("block")):
            raise UnsupportedOnTargetError("more than one CTA a program is not lowered yet; set num_ctas=1")
        return layout

    def element_type(self, value_or_type: Any) -> Any:
        """MLIR element type of a tensor, or the scalar's type."""
        type = value_or_type.type if isinstance(value_or_type, ir.Value) else value_or_type
        return type.element_type if isinstance(type, ir.RankedTensorType) else type

    # ------------------------------------------------------------------------------------------------ indices
    @contextlib.contextmanager
    def entry(self) -> Iterator[None]:
        """Build in the entry block, which dominates everything. No new blocks within it."""
        b = self.b
        current = b.current
        if current is b.entry:
            yield
            return
        location, b.loc = b.loc, ir.Location.unknown()
        b.set_block(b.entry)
        try:
            yield
        finally:
            b.set_block(current)
            b.loc = location

    def once(self, key: Any, make: Any) -> Value:
        """A value made once, in the entry block: ``make(b)``."""
        value = self._once.get(key)
        if value is None:
            with self.entry():
                value = self._once[key] = make(self.b)
        return value

    @contextlib.contextmanager
    def read_anew(self) -> Iterator[None]:
        """Within it, what is made once (``once``, ``indices``) stands here, of the thread's number read again: nothing of it lies in
        registers before, and nothing moves out of a loop."""
        b, indices, once, entry = self.b, self.indices, self._once, self.b.entry
        b.entry = b.block()
        body = b.block(after=b.entry)
        b.br(b.entry)
        b.set_block(body)
        self._once = {}
        self.indices = Indices(b, self.entry, self.hooks.thread_id_anew)
        try:
            yield
        finally:
            with self.entry():
                b.br(body)
            b.entry, self.indices, self._once = entry, indices, once

    def thread_id(self) -> Value:
        return self.indices.thread

    def lane_id(self) -> Value:
        thread = self.thread_id()
        return self.once("lane", lambda b: b.and_(thread, b.i32(self.warp_size - 1)))

    def warp_id(self) -> Value:
        thread = self.thread_id()
        return self.once("warp", lambda b: b.lshr(thread, b.i32(self.warp_size.bit_length() - 1)))

    def element_indices(self, layout: LinearLayout) -> list[tuple[Value, ...]]:
        """For each register the coordinates of its element, one i32 a dim."""
        return self.indices.elements(layout)

    # ------------------------------------------------------------------------------------------ shared memory
    def shared_base(self) -> Value:
        """``!llvm.ptr<3>`` to the start of the block's shared memory."""
        if self.is_called:
            found = self.once("shared base", self.hooks.called_shared_base)
            if found is not None:
                return found
        return self.b.address_of(SMEM, self.hooks.shared_address_space)

    def shared_at(self, offset: int) -> Value:
        """Pointer to byte ``offset`` of the block's shared memory."""
        if offset == 0:
            return self.shared_base()
        base = self.shared_base()
        return self.once(("shared", offset), lambda b: b.gep(base, offset, b.t_i8))

    def scratch(self, op: Any) -> Value:
        """Pointer to the scratch that allocation gave ``op`` (``scratch_bytes`` says how much)."""
        if "allocation.offset" not in op.attributes:
            raise InternalCompilerError(f"{op.name} needs scratch, but has no allocation.offset: run allocate_shared_memory first")
        return self.shared_at(ir.IntegerAttr(op.attributes["allocation.offset"]).value)

    def storage_type(self, type: Any) -> Any:
        """LLVM type of an element in memory: i1 is kept as i8."""
        return self.b.t_i8 if type == self.b.t_i1 else type

    def to_storage(self, value: Value) -> Value:
        return self.b.zext(value, self.b.t_i8) if value.type == self.b.t_i1 else value

    def from_storage(self, value: Value, type: Any) -> Value:
        return self.b.trunc(value, self.b.t_i1) if type == self.b.t_i1 else value

    # -------------------------------------------------------------------------------------------------- lanes
    def shuffle_xor(self, value: Value, mask: int) -> Value:
        """``value``, of any register type, of the lane whose number differs by ``mask``."""
        return self._through_words(value, lambda word: self.hooks.shuffle_xor(self.b, word, mask))

    def shuffle_idx(self, value: Value, lane: Value) -> Value:
        """``value``, of any register type, of lane ``lane`` (i32)."""
        return self._through_words(value, lambda word: self.hooks.shuffle_idx(self.b, word, lane))

    def uniform(self, value: Value) -> Value:
        """``value``, a scalar that came through a call, which all threads of the program hold alike: in the target's form for scalars."""
        uniform = self.hooks.uniform
        return value if uniform is None else self._through_words(value, lambda word: uniform(self.b, word))

    def _through_words(self, value: Value, move: Any) -> Value:
        b, type = self.b, value.type
        bits = encodings.element_bits(type)
        if bits == 64:
            if str(type).startswith("!llvm.ptr"):
                return b.inttoptr(self._through_words(b.ptrtoint(value, b.t_i64), move), type)
            word = b.bitcast(value, b.t_i64)
            low, high = b.trunc(word, b.t_i32), b.trunc(b.lshr(word, b.i64(32)), b.t_i32)
            low, high = b.zext(move(low), b.t_i64), b.zext(move(high), b.t_i64)
            return b.bitcast(b.or_(b.shl(high, b.i64(32)), low, disjoint=True), type)
        if bits == 32:
            return b.bitcast(move(b.bitcast(value, b.t_i32)), type)
        narrow = b.int_type(bits)
        return b.bitcast(b.trunc(move(b.zext(b.bitcast(value, narrow), b.t_i32)), narrow), type)

    # ------------------------------------------------------------------------------------------------ lowering
    def lower_ops(self, nodes: Any) -> None:
        """Lower the ops of one region in order, up to and without its terminator."""
        b, table, values = self.b, self.table, self.values
        for at, node in enumerate(nodes):
            op = node.op
            lowering = table.get(node.name)
            if lowering is None:
                raise UnsupportedOnTargetError(f"{node.name} has no lowering for {self.pass_ctx.target.name} {self.pass_ctx.arch}")
            b.loc = op.location
            self.node = node
            results = lowering(self, op)
            if results is not None:
                for value, lowered in zip(node.results, results, strict=True):
                    values[value] = lowered
            if node.regions and REST_READS_ANEW in op.attributes:
                with self.read_anew():
                    self.lower_ops(nodes[at + 1:])
                return


