"""The tt dialect: tile-level operations, before any layout is chosen.

Values are scalars (``i32``, ``f32``, ``!tt.ptr<f32, 1 : i32>``) or ranked tensors of them with power-of-two dims.
Elementwise arithmetic is upstream ``arith``/``math`` on scalars and tensors, functions are ``func.func``/``func.return``
(the kernel carries the unit attribute ``tt.kernel``), and control flow is ``scf.if/for/while`` only: every function has
one block. Integers are signless; signed and unsigned meanings are different ops. MLIR's IRDL allows only lower-case
letters, digits and underscores in names, which is where Triton's ``reduce.return`` and ``sizePerThread`` differ from ours.

Hints are discardable attributes: ``tt.divisibility`` (i32) on function arguments; ``tt.divisibility``,
``tt.contiguity`` and ``tt.constancy`` (array<i32>, one entry a dim) on the op that makes a value.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any, Optional

from tilewright.dialects import scaled
from tilewright.dialects._mlir import ext, ir
from tilewright.dialects.tt_types import (  # noqa: F401  (some for those who import tt)
    MAX_VALUES,
    TT,
    PtrType,
    TensorDescType,
    descriptor_type,
    is_descriptor,
    make_descriptor_operands,
    require_block,
    require_ints,
    require_rows,
    segment_sizes,
    several_types,
)

Pure = ext.Pure
# IRDL as bound today cannot constrain builtin attributes by class; the names document what is expected.
IntegerAttr = StringAttr = BoolAttr = DenseI32ArrayAttr = Any
IsTerminator = ir.IsTerminatorTrait

CACHE_MODIFIERS = ("none", "ca", "cg", "cs", "cv", "wb", "wt")
EVICTION_POLICIES = ("normal", "evict_first", "evict_last")
RMW_OPS = ("and", "or", "xor", "add", "fadd", "max", "min", "umax", "umin", "xchg")
MEM_SEMANTICS = ("relaxed", "acquire", "release", "acq_rel")
MEM_SCOPES = ("cta", "gpu", "sys")
DESCRIPTOR_REDUCE_KINDS = ("add", "fadd", "and", "or", "xor", "max", "min", "umax", "umin", "fmax", "fmin")
PADDINGS = ("zero", "nan")
INPUT_PRECISIONS = ("tf32", "tf32x3", "ieee", "bf16x3", "bf16x6")


MAX_MAPPED = 64  # values that a map_elementwise's region returns: its results, each ``pack`` times


class GetProgramIdOp(TT.Operation, name="get_program_id", traits=[Pure]):
    """Index of this program along grid dimension ``axis`` (i32 attr 0..2). Result i32."""

    result: ext.Result[Any]
    axis: IntegerAttr


class GetNumProgramsOp(TT.Operation, name="get_num_programs", traits=[Pure]):
    """Size of the grid along ``axis``. Result i32."""

    result: ext.Result[Any]
    axis: IntegerAttr


class MakeRangeOp(TT.Operation, name="make_range", traits=[Pure]):
    """``[start, end)`` as tensor<(end-start) x i32>."""

    result: ext.Result[Any]
    start: IntegerAttr
    end: IntegerAttr


class SplatOp(TT.Operation, name="splat", traits=[Pure]):
    """Scalar ``src`` to every element of the result tensor."""

    result: ext.Result[Any]
    src: ext.Operand[Any]


class UnsplatOp(TT.Operation, name="unsplat", traits=[Pure]):
    """The one element of a tensor of one element, as a scalar."""

    result: ext.Result[Any]
    src: ext.Operand[Any]


class BroadcastOp(TT.Operation, name="broadcast", traits=[Pure]):
    """Repeat dims of size 1 to the result's shape; ranks are equal."""

    result: ext.Result[Any]
    src: ext.Operand[Any]


class ExpandDimsOp(TT.Operation, name="expand_dims", traits=[Pure]):
    """Insert a dim of size 1 at ``axis`` (i32 attr)."""

    result: ext.Result[Any]
    axis: IntegerAttr
    src: ext.Operand[Any]


class ReshapeOp(TT.Operation, name="reshape", traits=[Pure]):
    """Same elements in row-major order under another shape; with ``allow_reorder`` in any order."""

    result: ext.Result[Any]
    allow_reorder: BoolAttr
    src: ext.Operand[Any]


class TransOp(TT.Operation, name="trans", traits=[Pure]):
    """Permute dims: result dim i is source dim ``order[i]`` (array<i32>)."""

    result: ext.Result[Any]
    order: DenseI32ArrayAttr
    src: ext.Operand[Any]


class JoinOp(TT.Operation, name="join", traits=[Pure]):
    """Stack two equal tensors along a new last dim of size 2."""

    result: ext.Result[Any]
    lhs: ext.Operand[Any]
    rhs: ext.Operand[Any]


class SplitOp(TT.Operation, name="split", traits=[Pure]):
    """Undo join: the two halves of the last dim, which has size 2."""

    out_lhs: ext.Result[Any]
    out_rhs: ext.Result[Any]
    src: ext.Operand[Any]


class CatOp(TT.Operation, name="cat", traits=[Pure]):
    """Concatenate two rank-1 tensors; the order of the elements is not promised."""

    result: ext.Result[Any]
    lhs: ext.Operand[Any]
    rhs: ext.Operand[Any]


class AddPtrOp(TT.Operation, name="addptr", traits=[Pure]):
    """Pointer(s) advanced by integer ``offset`` elements (signed, any width)."""

    result: ext.Result[Any]
    ptr: ext.Operand[Any]
    offset: ext.Operand[Any]


class LoadOp(TT.Operation, name="load"):
    """Read through pointer(s). Masked-off lanes never touch memory and give ``other``, or 0 without it.

    ``cache`` in CACHE_MODIFIERS and ``evict`` in EVICTION_POLICIES (string attrs) are hints; ``is_volatile`` is a meaning.
    Operands: ptr [, mask [, other]]; ``other`` needs ``mask``. Written with operandSegmentSizes.
    """

    result: ext.Result[Any]
    cache: StringAttr
    evict: StringAttr
    is_volatile: BoolAttr
    ptr: ext.Operand[Any]
    mask: Optional[ext.Operand[Any]] = None  # noqa: UP045
    other: Optional[ext.Operand[Any]] = None  # noqa: UP045


class StoreOp(TT.Operation, name="store"):
    """Write ``value`` through pointer(s) where ``mask`` holds."""

    cache: StringAttr
    evict: StringAttr
    ptr: ext.Operand[Any]
    value: ext.Operand[Any]
    mask: Optional[ext.Operand[Any]] = None  # noqa: UP045


class AtomicRMWOp(TT.Operation, name="atomic_rmw"):
    """Atomic read-modify-write; the old value is the result (0 where masked off). ``rmw_op`` in RMW_OPS."""

    result: ext.Result[Any]
    rmw_op: StringAttr
    sem: StringAttr
    scope: StringAttr
    ptr: ext.Operand[Any]
    value: ext.Operand[Any]
    mask: Optional[ext.Operand[Any]] = None  # noqa: UP045


class AtomicCASOp(TT.Operation, name="atomic_cas"):
    """Atomic compare-and-swap; the old value is the result."""

    result: ext.Result[Any]
    sem: StringAttr
    scope: StringAttr
    ptr: ext.Operand[Any]
    cmp: ext.Operand[Any]
    value: ext.Operand[Any]


class DotOp(TT.Operation, name="dot", traits=[Pure]):
    """``a[M,K] @ b[K,N] + c[M,N]`` (or with one batch dim in front of each).

    ``input_precision`` in INPUT_PRECISIONS applies to f32 operands; ``max_num_imprecise_acc`` is for fp8.
    """

    result: ext.Result[Any]
    input_precision: StringAttr
    max_num_imprecise_acc: IntegerAttr
    a: ext.Operand[Any]
    b: ext.Operand[Any]
    c: ext.Operand[Any]


class DotScaledOp(TT.Operation, name="dot_scaled", traits=[Pure]):
    """``(a × a_scale) @ (b × b_scale) + c`` of operands in microscaling formats (dialects/scaled.py: formats, packing, shapes).

    c and the result are f32. Each operand times its scale is rounded to what ``scaled.compute_format`` says, which is exact within bf16's range;
    products are exact, sums f32. A scale that is NaN makes its group NaN, unless ``fast_math``, under which it may be infinite. A target that
    keeps the op (``capabilities.extra["why_decomposed"]``) may leave out the rounding.
    """

    result: ext.Result[Any]
    a_format: StringAttr
    b_format: StringAttr
    a_k_pack: BoolAttr
    b_k_pack: BoolAttr
    fast_math: BoolAttr
    a: ext.Operand[Any]
    b: ext.Operand[Any]
    c: ext.Operand[Any]
    a_scale: Optional[ext.Operand[Any]] = None  # noqa: UP045
    b_scale: Optional[ext.Operand[Any]] = None  # noqa: UP045

    def verify_invariants(self) -> bool:
        scaled.verify(self)
        return True


# ------------------------------------------------------------------------------------------------ tensor descriptors
class MakeTensorDescriptorOp(TT.Operation, name="make_tensor_descriptor", traits=[Pure]):
    """A descriptor of the tensor at ``base`` with ``shape`` (i32, elements) and ``strides`` (i64, elements), outermost dim first.

    One shape and one stride a dim of the block; the last stride is 1, as the program promises. Elements outside ``shape`` (below 0 too)
    read as 0, or as NaN with ``padding`` = "nan" (float elements only), and are not written. Reading or writing through the
    descriptor reads or writes memory as tt.load and tt.store do, in program order. The discardable unit attribute ``tt.host`` marks a
    descriptor that the target keeps (rewrite_tensor_descriptors leaves it alone).
    """

    result: ext.Result[Any]
    padding: StringAttr
    base: ext.Operand[Any]
    shape: Sequence[ext.Operand[Any]]
    strides: Sequence[ext.Operand[Any]]

    def verify_invariants(self) -> bool:
        if not is_descriptor(self.results[0].type):
            raise ValueError(f"make_tensor_descriptor gives a !tt.tensordesc, found {self.results[0].type}")
        desc = TensorDescType(self.results[0].type)
        rank = len(desc.shape)
        if not 1 <= rank <= 5 or any(n < 1 or n & (n - 1) for n in desc.shape):
            raise ValueError(f"make_tensor_descriptor: a block has 1 to 5 dims, powers of two, found {desc.shape}")
        base, shape, strides = make_descriptor_operands(self)
        if not str(base.type).startswith("!tt.ptr") or PtrType(base.type).pointee_type != desc.element_type:
            raise ValueError(f"make_tensor_descriptor: the base must be a pointer to {desc.element_type}, found {base.type}")
        require_ints(shape, 32, rank, "make_tensor_descriptor: the shape")
        require_ints(strides, 64, rank, "make_tensor_descriptor: the strides")
        padding = ir.StringAttr(self.attributes["padding"]).value
        if padding not in PADDINGS or (padding == "nan" and isinstance(desc.element_type, ir.IntegerType)):
            raise ValueError(f'make_tensor_descriptor: padding must be "zero", or "nan" for float elements, found "{padding}" for '
                             f"{desc.element_type}")
        return True


class DescriptorLoadOp(TT.Operation, name="descriptor_load"):
    """Read the block whose first element is at ``indices`` (i32 elements, one a dim, any value; they need not be multiples of anything).

    The result has the block's shape, or it without leading dims of size 1. ``cache`` and ``evict`` are hints as in tt.load.
    """

    result: ext.Result[Any]
    cache: StringAttr
    evict: StringAttr
    desc: ext.Operand[Any]
    indices: Sequence[ext.Operand[Any]]

    def verify_invariants(self) -> bool:
        desc = descriptor_type(self.operands[0], "descriptor_load")
        require_ints(list(self.operands)[1:], 32, len(desc.shape), "descriptor_load: the indices")
        require_block(self.results[0], desc, "descriptor_load")
        return True


class DescriptorStoreOp(TT.Operation, name="descriptor_store"):
    """Write the block ``src`` (of the block's shape, or it without leading dims of size 1) at ``indices``; nothing outside the tensor."""

    desc: ext.Operand[Any]
    src: ext.Operand[Any]
    indices: Sequence[ext.Operand[Any]]

    def verify_invariants(self) -> bool:
        desc = descriptor_type(self.operands[0], "descriptor_store")
        require_ints(list(self.operands)[2:], 32, len(desc.shape), "descriptor_store: the indices")
        require_block(self.operands[1], desc, "descriptor_store")
        return True


class DescriptorReduceOp(TT.Operation, name="descriptor_reduce"):
    """Combine the block ``src`` into memory at ``indices``, atomically an element, relaxed, at gpu scope; old values are not given.

    ``kind`` in DESCRIPTOR_REDUCE_KINDS; fadd, fmax and fmin are of floats (NaN is ignored by fmax and fmin), umax and umin of
    unsigned integers.
    """

    kind: StringAttr
    desc: ext.Operand[Any]
    src: ext.Operand[Any]
    indices: Sequence[ext.Operand[Any]]

    def verify_invariants(self) -> bool:
        desc = descriptor_type(self.operands[0], "descriptor_reduce")
        require_ints(list(self.operands)[2:], 32, len(desc.shape), "descriptor_reduce: the indices")
        require_block(self.operands[1], desc, "descriptor_reduce")
        kind = ir.StringAttr(self.attributes["kind"]).value
        if kind not in DESCRIPTOR_REDUCE_KINDS or kind.startswith("f") == isinstance(desc.element_type, ir.IntegerType):
            raise ValueError(f"descriptor_reduce: {kind!r} of {desc.element_type}; kinds are {', '.join(DESCRIPTOR_REDUCE_KINDS)}")
        return True


class DescriptorGatherOp(TT.Operation, name="descriptor_gather"):
    """Read row ``x_offsets[i]`` of a rank-2 tensor, from column ``y_offset`` on, as row i of the result. The block is [1, columns]."""

    result: ext.Result[Any]
    desc: ext.Operand[Any]
    x_offsets: ext.Operand[Any]
    y_offset: ext.Operand[Any]

    def verify_invariants(self) -> bool:
        require_rows(self, self.results[0], 1, "descriptor_gather")
        return True


class DescriptorScatterOp(TT.Operation, name="descriptor_scatter"):
    """Write row i of ``src`` as row ``x_offsets[i]`` of a rank-2 tensor, from column ``y_offset`` on. The block is [1, columns].

    Which row stays where two have one number is not said."""

    desc: ext.Operand[Any]
    src: ext.Operand[Any]
    x_offsets: ext.Operand[Any]
    y_offset: ext.Operand[Any]

    def verify_invariants(self) -> bool:
        require_rows(self, self.operands[1], 2, "descriptor_scatter")
        return True


@several_types
class ReduceOp(TT.Operation, name="reduce", traits=[Pure]):
    """Reduce ``axis`` of one or more tensors of one shape with an associative combiner.

    ``combine`` is a block with 2n scalar arguments (n accumulators, then n elements) ended by reduce_return of n
    scalars. Results have the axis removed; a rank-1 source gives scalars.
    """

    results_: Sequence[ext.Result[Any]]
    axis: IntegerAttr
    srcs: Sequence[ext.Operand[Any]]
    combine: ext.Region


@several_types
class ReduceReturnOp(TT.Operation, name="reduce_return", traits=[IsTerminator]):
    """Ends a reduce combiner."""

    values: Sequence[ext.Operand[Any]]


@several_types
class ScanOp(TT.Operation, name="scan", traits=[Pure]):
    """Inclusive scan along ``axis`` (from the end with ``reverse``); combiner as in reduce, ended by scan_return."""

    results_: Sequence[ext.Result[Any]]
    axis: IntegerAttr
    reverse: BoolAttr
    srcs: Sequence[ext.Operand[Any]]
    combine: ext.Region


@several_types
class ScanReturnOp(TT.Operation, name="scan_return", traits=[IsTerminator]):
    """Ends a scan combiner."""

    values: Sequence[ext.Operand[Any]]


@several_types
class MapElementwiseOp(TT.Operation, name="map_elementwise", traits=[Pure]):
    """The region, a function of scalars without effects, called for every ``pack`` elements of the operands (tensors of one shape).

    Its arguments are ``pack`` elements of the first operand, then of the second, …; map_elementwise_return hands on as many of each
    result. Which elements are called together is not specified; where they do not divide by ``pack``, one of them is given again."""

    results_: Sequence[ext.Result[Any]]
    pack: IntegerAttr
    srcs: Sequence[ext.Operand[Any]]
    function: ext.Region


@partial(several_types, slots=MAX_MAPPED)
class MapElementwiseReturnOp(TT.Operation, name="map_elementwise_return", traits=[IsTerminator]):
    """Ends the region of a map_elementwise."""

    values: Sequence[ext.Operand[Any]]


class GatherOp(TT.Operation, name="gather", traits=[Pure]):
    """``result[i.., j, ..] = src[i.., indices[i.., j, ..], ..]`` along ``axis``."""

    result: ext.Result[Any]
    axis: IntegerAttr
    src: ext.Operand[Any]
    indices: ext.Operand[Any]


class HistogramOp(TT.Operation, name="histogram", traits=[Pure]):
    """Counts of the values 0..n-1 in a rank-1 integer tensor, where ``mask`` holds; n is the result's size."""

    result: ext.Result[Any]
    src: ext.Operand[Any]
    mask: Optional[ext.Operand[Any]] = None  # noqa: UP045


class BitcastOp(TT.Operation, name="bitcast", traits=[Pure]):
    """Same bits under another type of equal width (ints, floats, pointers to another pointee)."""

    result: ext.Result[Any]
    src: ext.Operand[Any]


class IntToPtrOp(TT.Operation, name="int_to_ptr", traits=[Pure]):
    """i64 address(es) to pointer(s)."""

    result: ext.Result[Any]
    src: ext.Operand[Any]


class PtrToIntOp(TT.Operation, name="ptr_to_int", traits=[Pure]):
    """Pointer(s) to i64 address(es)."""

    result: ext.Result[Any]
    src: ext.Operand[Any]


class FpToFpOp(TT.Operation, name="fp_to_fp", traits=[Pure]):
    """Float conversion where one side is fp8, or ``rounding`` ("rtne" or "rtz") is not arith.truncf's."""

    result: ext.Result[Any]
    rounding: StringAttr
    src: ext.Operand[Any]


class PreciseSqrtOp(TT.Operation, name="precise_sqrt", traits=[Pure]):
    """Correctly rounded square root (f32, f64)."""

    result: ext.Result[Any]
    src: ext.Operand[Any]


class PreciseDivFOp(TT.Operation, name="precise_divf", traits=[Pure]):
    """Correctly rounded division (f32)."""

    result: ext.Result[Any]
    lhs: ext.Operand[Any]
    rhs: ext.Operand[Any]


class MulhiUIOp(TT.Operation, name="mulhiui", traits=[Pure]):
    """High half of the unsigned product (i32, i64)."""

    result: ext.Result[Any]
    lhs: ext.Operand[Any]
    rhs: ext.Operand[Any]


class ClampFOp(TT.Operation, name="clampf", traits=[Pure]):
    """``min(max(x, lo), hi)``; with ``propagate_nan`` a NaN in x stays NaN, else it gives lo."""

    result: ext.Result[Any]
    propagate_nan: BoolAttr
    x: ext.Operand[Any]
    lo: ext.Operand[Any]
    hi: ext.Operand[Any]


@several_types
class ExternElementwiseOp(TT.Operation, name="extern_elementwise"):
    """Call the libdevice function ``symbol`` (its portable name: "tanh", "pow", …) on scalars or tensors."""

    result: ext.Result[Any]
    symbol: StringAttr
    pure: BoolAttr
    srcs: Sequence[ext.Operand[Any]]


@several_types
class ElementwiseInlineAsmOp(TT.Operation, name="elementwise_inline_asm"):
    """Target assembly on ``packed`` elements at a time."""

    results_: Sequence[ext.Result[Any]]
    asm_string: StringAttr
    constraints: StringAttr
    pure: BoolAttr
    packed: IntegerAttr
    srcs: Sequence[ext.Operand[Any]]


class AssumeOp(TT.Operation, name="assume"):
    """The program promises that the i1 scalar ``cond`` holds; the axis analysis reads it."""

    cond: ext.Operand[Any]


@several_types
class PrintOp(TT.Operation, name="print"):
    """Print ``prefix`` and the values from each program, each element once (dialects/prints.py); ``is_signed`` is array<i32>, one a value.

    Values are integers, pointers, f32 or f64, and no floats with ``hex``."""

    prefix: StringAttr
    hex: BoolAttr
    is_signed: DenseI32ArrayAttr
    srcs: Sequence[ext.Operand[Any]]


class AssertOp(TT.Operation, name="assert"):
    """Stop the program with ``message`` where the condition does not hold."""

    message: StringAttr
    cond: ext.Operand[Any]


class DebugBarrierOp(TT.Operation, name="debug_barrier"):
    """All threads of the program wait for each other and see each other's writes."""
