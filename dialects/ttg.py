"""The ttg dialect: layouts (tensor encodings) and what only makes sense once there are threads and shared memory.

A tensor's encoding says which thread holds which element; ``dialects.encodings.to_linear_layout(shape, encoding)`` gives
it as a linear map over GF(2). Passes reason about that map, never about the encoding's name.
The module carries ``ttg.num-warps``, ``ttg.threads-per-warp`` and ``ttg.num-ctas`` (i32 attributes).
"""

from collections.abc import Sequence
from typing import Any, Optional

from tilewright.dialects._mlir import ext, ir

Pure = ext.Pure
# IRDL as bound today cannot constrain builtin attributes by class; the names document what is expected.
IntegerAttr = StringAttr = BoolAttr = DenseI32ArrayAttr = Any


def _i32s(values: Sequence[int]) -> Any:
    return ir.DenseI32ArrayAttr.get(list(values))


def _i32(value: int) -> Any:
    return ir.IntegerAttr.get(ir.IntegerType.get_signless(32), value)


class TTG(ext.Dialect, name="ttg"):
    """Tile operations with layouts."""


# --------------------------------------------------------------------------------------------------- encodings
class BlockedEncoding(TTG.Attribute, name="blocked"):
    """Each thread holds a block of ``size_per_thread``; blocks repeat over lanes, then warps, then registers.

    Lists have one entry a dim; ``order`` lists dims from fastest to slowest (``order[0]`` is the contiguous one).
    """

    size_per_thread: Any
    threads_per_warp: Any
    warps_per_cta: Any
    order: Any

    @staticmethod
    def of(size_per_thread: Sequence[int], threads_per_warp: Sequence[int], warps_per_cta: Sequence[int],
           order: Sequence[int]) -> "BlockedEncoding":
        return BlockedEncoding.get(_i32s(size_per_thread), _i32s(threads_per_warp), _i32s(warps_per_cta), _i32s(order))


class SliceEncoding(TTG.Attribute, name="slice"):
    """The layout of ``parent`` with dim ``dim`` removed (what a reduction over it leaves)."""

    dim: Any
    parent: Any

    @staticmethod
    def of(dim: int, parent: Any) -> "SliceEncoding":
        return SliceEncoding.get(_i32(dim), parent)


class LinearEncoding(TTG.Attribute, name="linear"):
    """A layout given by its bases: each of register, lane, warp, block is a flat array<i32> of rank-sized vectors."""

    register: Any
    lane: Any
    warp: Any
    block: Any
    rank: Any

    @staticmethod
    def of(register: Sequence[Sequence[int]], lane: Sequence[Sequence[int]], warp: Sequence[Sequence[int]],
           block: Sequence[Sequence[int]], rank: int) -> "LinearEncoding":
        def flat(bases: Sequence[Sequence[int]]) -> Any:
            return _i32s([x for basis in bases for x in basis])

        return LinearEncoding.get(flat(register), flat(lane), flat(warp), flat(block), _i32(rank))


class MmaEncoding(TTG.Attribute, name="mma"):
    """Accumulator of a matrix instruction: ``instruction`` names a row of the table in ``dialects.matrix_ops``.

    The instruction's tile repeats over ``warps_per_cta`` (one entry a dim, M and N last), then over registers.
    With ``transposed`` the instruction computes ``(B^T A^T)``, so that a thread's registers run along N.
    """

    instruction: Any
    warps_per_cta: Any
    transposed: Any

    @staticmethod
    def of(instruction: str, warps_per_cta: Sequence[int], transposed: bool = False) -> "MmaEncoding":
        return MmaEncoding.get(ir.StringAttr.get(instruction), _i32s(warps_per_cta), ir.BoolAttr.get(transposed))


class DotOperandEncoding(TTG.Attribute, name="dot_op"):
    """Operand ``op_idx`` (0 = A, 1 = B) of a dot whose accumulator has encoding ``parent`` (mma, or blocked for FMA).

    ``k_width``: consecutive k elements a thread holds (0 where the parent is blocked).
    """

    op_idx: Any
    parent: Any
    k_width: Any

    @staticmethod
    def of(op_idx: int, parent: Any, k_width: int = 0) -> "DotOperandEncoding":
        return DotOperandEncoding.get(_i32(op_idx), parent, _i32(k_width))


class SwizzledSharedEncoding(TTG.Attribute, name="swizzled_shared"):
    """Shared memory, dims by ``order``; in row r of the fastest dim the vector index is xor-ed with
    ``(r // per_phase) % max_phase``, vectors having ``vec`` elements. vec = per_phase = max_phase = 1: no swizzle."""

    vec: Any
    per_phase: Any
    max_phase: Any
    order: Any

    @staticmethod
    def of(vec: int, per_phase: int, max_phase: int, order: Sequence[int]) -> "SwizzledSharedEncoding":
        return SwizzledSharedEncoding.get(_i32(vec), _i32(per_phase), _i32(max_phase), _i32s(order))


class PanelSharedEncoding(TTG.Attribute, name="panel_shared"):
    """Shared memory in panels: the fastest dim of ``order`` is cut into panels of ``panel`` elements. A panel holds the rows of
    all slower dims one after another, ``panel`` elements each; panels follow one another. Within row r of a panel the vector
    index (``vec`` elements) is xor-ed with ``(r // per_phase) % max_phase``, rows being numbered over the slower dims by ``order``.

    Bulk copies and matrix units that read shared memory want such panels, a row being 16, 32, 64 or 128 bytes; the pattern of
    the xor repeats within ``alignment`` bytes, and buffers begin (and stages of a buffer follow) at multiples of that.
    """

    panel: Any
    vec: Any
    per_phase: Any
    max_phase: Any
    order: Any

    alignment = 1024

    @staticmethod
    def of(panel: int, vec: int, per_phase: int, max_phase: int, order: Sequence[int]) -> "PanelSharedEncoding":
        return PanelSharedEncoding.get(_i32(panel), _i32(vec), _i32(per_phase), _i32(max_phase), _i32s(order))


class PaddedSharedEncoding(TTG.Attribute, name="padded_shared"):
    """Shared memory, dims by ``order``, with ``padding`` elements inserted after every ``interval`` elements."""

    interval: Any
    padding: Any
    order: Any

    @staticmethod
    def of(interval: int, padding: int, order: Sequence[int]) -> "PaddedSharedEncoding":
        return PaddedSharedEncoding.get(_i32(interval), _i32(padding), _i32s(order))


class LinearSharedEncoding(TTG.Attribute, name="linear_shared"):
    """Shared memory by bases: ``offset`` is a flat array<i32> of rank-sized vectors, which the bits of an element's offset add (xor) to its
    coordinates, lowest bit first. It is a bijection, and fits buffers of exactly one shape."""

    offset: Any
    rank: Any

    @staticmethod
    def of(offset: Sequence[Sequence[int]], rank: int) -> "LinearSharedEncoding":
        return LinearSharedEncoding.get(_i32s([x for basis in offset for x in basis]), _i32(rank))


# ------------------------------------------------------------------------------------------------------- types
class MemDescType(TTG.Type, name="memdesc"):
    """A view of shared memory: shape, element type, shared encoding, and whether it may be written."""

    shape_: Any
    element: Any
    encoding_: Any
    mutable: Any

    @staticmethod
    def of(shape: Sequence[int], element: Any, encoding: Any, mutable: bool = False) -> "MemDescType":
        return MemDescType.get(ir.DenseI64ArrayAttr.get(list(shape)), element, encoding, ir.BoolAttr.get(mutable))

    @property
    def shape(self) -> list[int]:
        return list(ir.DenseI64ArrayAttr(self.params[0]))

    @property
    def element_type(self) -> Any:
        return ir.TypeAttr(self.params[1]).value

    @property
    def encoding(self) -> Any:
        return self.params[2].maybe_downcast() if hasattr(self.params[2], "maybe_downcast") else self.params[2]

    @property
    def is_mutable(self) -> bool:
        return bool(ir.BoolAttr(self.params[3]).value)


class AsyncTokenType(TTG.Type, name="async_token"):
    """What an asynchronous copy gives, so that waits depend on it."""


# --------------------------------------------------------------------------------------------------------- ops
class ConvertLayoutOp(TTG.Operation, name="convert_layout", traits=[Pure]):
    """The same tensor under another encoding."""

    result: ext.Result[Any]
    src: ext.Operand[Any]


class LocalAllocOp(TTG.Operation, name="local_alloc"):
    """Allocate shared memory, filled with ``src`` where given (then the result may be immutable).

    The pass allocate_shared_memory sets the discardable attribute ``allocation.offset`` (i32, bytes).
    """

    result: ext.Result[Any]
    src: Optional[ext.Operand[Any]] = None  # noqa: UP045


class LocalDeallocOp(TTG.Operation, name="local_dealloc"):
    """The buffer is dead from here on; without it, after its last use."""

    src: ext.Operand[Any]


class LocalLoadOp(TTG.Operation, name="local_load"):
    """Read a whole memdesc into registers, after ``token`` where given."""

    result: ext.Result[Any]
    src: ext.Operand[Any]
    token: Optional[ext.Operand[Any]] = None  # noqa: UP045


class LocalStoreOp(TTG.Operation, name="local_store"):
    """Write a tensor into a mutable memdesc of its shape."""

    src: ext.Operand[Any]
    dst: ext.Operand[Any]


class MemDescIndexOp(TTG.Operation, name="memdesc_index", traits=[Pure]):
    """Sub-view at i32 ``index`` of the first dim, which is dropped: one stage of a multi-buffered allocation."""

    result: ext.Result[Any]
    src: ext.Operand[Any]
    index: ext.Operand[Any]


class MemDescSubsliceOp(TTG.Operation, name="memdesc_subslice", traits=[Pure]):
    """Sub-view of the result's shape at constant ``offsets`` (array<i32>)."""

    result: ext.Result[Any]
    offsets: DenseI32ArrayAttr
    src: ext.Operand[Any]


class MemDescTransOp(TTG.Operation, name="memdesc_trans", traits=[Pure]):
    """The view with dims permuted: result dim i is source dim ``order[i]``. Moves nothing."""

    result: ext.Result[Any]
    order: DenseI32ArrayAttr
    src: ext.Operand[Any]


class AsyncCopyGlobalToLocalOp(TTG.Operation, name="async_copy_global_to_local"):
    """Start copying through pointer(s) into a memdesc; masked-off lanes write ``other`` or 0. Result: a token."""

    token: ext.Result[Any]
    cache: StringAttr
    evict: StringAttr
    is_volatile: BoolAttr
    src: ext.Operand[Any]
    dst: ext.Operand[Any]
    mask: Optional[ext.Operand[Any]] = None  # noqa: UP045
    other: Optional[ext.Operand[Any]] = None  # noqa: UP045


class AsyncCommitGroupOp(TTG.Operation, name="async_commit_group"):
    """Close the group of copies begun since the last commit. Result: the group's token."""

    token: ext.Result[Any]
    inputs: Sequence[ext.Operand[Any]]


class AsyncWaitOp(TTG.Operation, name="async_wait"):
    """Wait until at most ``num`` of this thread's groups are in flight. Threads still need a barrier to see others' data."""

    token: ext.Result[Any]
    num: IntegerAttr
    inputs: Sequence[ext.Operand[Any]]


class BarrierOp(TTG.Operation, name="barrier"):
    """All threads of the block wait, and see each other's shared-memory writes."""
