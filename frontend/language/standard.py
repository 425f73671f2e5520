"""``tl.standard``: functions made of the primitive ones. Triton writes them in the language; here they build the same
operations directly, which compiles faster."""

from __future__ import annotations

from typing import Any

from tilewright.dialects.errors import ShapeMismatchError, TypeMismatchError
from tilewright.language import core
from tilewright.language.core import dtype as _dtype
from tilewright.language.core import float32, float64, int32, int64, uint32
from tilewright.language.decorators import builtin, member
from tilewright.language.values import tensor
from tilewright.language.values import tuple as _tuple


# -- small things ------------------------------------------------------------------------------------------------------
@member
@builtin
def cdiv(x: Any, div: Any, _semantic: Any = None) -> Any:
    """``x / div`` rounded up, of non-negative integers. Of two compile-time integers a compile-time one.

    Types: integers.

    Example::

        blocks = tl.cdiv(n, 16)
        for j in range(blocks):
            x += tl.load(p + j * 16 + i)
    """
    return (x + (div - 1)) // div


@member
@builtin
def sigmoid(x: Any, _semantic: Any = None) -> tensor:
    """``1 / (1 + exp(-x))``. 16-bit floats are computed in fp32 and rounded once.

    Types: fp16, bf16, fp32, fp64.

    Example::

        gate = tl.sigmoid(x)
        silu = x * tl.sigmoid(x)
    """
    s = _semantic
    x = s.to_tensor(x)
    wide = x if x.dtype.is_fp64() else s.cast(x, float32)
    out = s.truediv(1.0, s.add(s.unary_math("exp", s.minus(wide)), 1.0))
    return out if x.dtype.is_int() else s.cast(out, x.dtype)


@member
@builtin
def softmax(x: Any, dim: Any = None, keep_dims: bool = False, ieee_rounding: bool = False, _semantic: Any = None) -> tensor:
    """Softmax along ``dim`` (default 0). 16-bit floats are computed in fp32.

    Types: fp16, bf16, fp32, fp64.

    Example::

        weights = tl.softmax(m, dim=1)
        z = tl.sum(weights * x[None, :], 1)
    """
    s = _semantic
    axis = 0 if dim is None else dim
    out_type = x.dtype
    x = s.cast(x, float32) if not x.dtype.is_fp64() else x
    shifted = s.sub(x, max(x, axis, keep_dims=True, _semantic=s))
    numerator = s.unary_math("exp", shifted)
    denominator = sum(numerator, axis, keep_dims=True, _semantic=s)
    return s.cast(s.fdiv(numerator, denominator, ieee_rounding), out_type)


@member
@builtin
def ravel(x: Any, can_reorder: bool = False, _semantic: Any = None) -> tensor:
    """All elements in row-major order as one dim.

    Types: any.

    Example::

        flat = tl.ravel(m)
        total = tl.sum(flat, 0)
    """
    return _semantic.reshape(x, [x.numel], can_reorder)


@builtin
def zeros(shape: Any, dtype: Any, _semantic: Any = None) -> tensor:
    """A tensor of zeros.

    Types: any.

    Example::

        acc = tl.zeros((16, 16), dtype=tl.float32)
        acc += m
    """
    return _semantic.full(shape, 0, dtype)


@builtin
def zeros_like(input: Any, _semantic: Any = None) -> tensor:
    """Zeros of the shape and type of ``input``.

    Types: any.

    Example::

        acc = tl.zeros_like(x)
        acc += x
    """
    return _semantic.constant(0, input.type)


@builtin
def swizzle2d(i: Any, j: Any, size_i: Any, size_j: Any, size_g: Any, _semantic: Any = None) -> Any:
    """(i, j) of a size_i × size_j row-major grid, renumbered to walk groups of ``size_g`` rows column by column.

    Types: int32, int64.

    Example::

        row, column = tl.swizzle2d(tl.program_id(0), tl.program_id(1), tl.num_programs(0), tl.num_programs(1), 8)
        x = tl.load(p + row * n + column + i)
    """
    s = _semantic
    index = s.add(s.mul(i, size_j), j)
    per_group = s.mul(size_g, size_j) if isinstance(size_j, tensor) or isinstance(size_g, tensor) else size_g * size_j
    group = s.floordiv(index, per_group)
    first = s.mul(group, size_g)
    rows = s.minimum(s.sub(size_i, first), size_g)
    within = s.mod(index, per_group)
    return _tuple([s.add(first, s.mod(within, rows)), s.floordiv(within, rows)])


@builtin
def interleave(a: Any, b: Any, _semantic: Any = None) -> tensor:
    """Elements of ``a`` and ``b`` in turn along the last dim, which doubles.

    Types: any.

    Example::

        z = tl.interleave(x, y)
        tl.store(out + tl.arange(0, 32), z)
    """
    joined = _semantic.join(a, b)
    shape = joined.shape
    return joined if len(shape) == 1 else _semantic.reshape(joined, [*shape[:-2], shape[-2] * 2])


# -- combiners ---------------------------------------------------------------------------------------------------------
@builtin
def _sum_combine(a: Any, b: Any, _semantic: Any = None) -> tensor:
    return _semantic.add(a, b)


@builtin
def _prod_combine(a: Any, b: Any, _semantic: Any = None) -> tensor:
    return _semantic.mul(a, b)


@builtin
def _elementwise_max(a: Any, b: Any, _semantic: Any = None) -> tensor:
    return _semantic.maximum(a, b)


@builtin
def _elementwise_min(a: Any, b: Any, _semantic: Any = None) -> tensor:
    return _semantic.minimum(a, b)


@builtin
def _xor_combine(a: Any, b: Any, _semantic: Any = None) -> tensor:
    return _semantic.xor_(a, b)


@builtin
def _or_combine(a: Any, b: Any, _semantic: Any = None) -> tensor:
    return _semantic.or_(a, b)


def _arg_combine(better: str, tie_break_left: bool) -> Any:
    """(value, index) pairs: the better value; of equal ones the lower index with ``tie_break_left``."""

    def combine(v1: Any, i1: Any, v2: Any, i2: Any, _semantic: Any = None) -> Any:
        s = _semantic
        take_first = getattr(s, better)(v1, v2)
        if tie_break_left:
            take_first = s.or_(take_first, s.and_(s.equal(v1, v2), s.less_than(i1, i2)))
        return _tuple([s.where(take_first, v1, v2), s.where(take_first, i1, i2)])

    return builtin(combine)


_argmax_combine_tie_break_left = _arg_combine("greater_than", True)
_argmax_combine_tie_break_fast = _arg_combine("greater_than", False)
_argmin_combine_tie_break_left = _arg_combine("less_than", True)
_argmin_combine_tie_break_fast = _arg_combine("less_than", False)


# -- reductions --------------------------------------------------------------------------------------------------------
def _pick_sum_dtype(have: _dtype, wanted: Any) -> _dtype:
    """Integers below 32 bits add up in 32."""
    if wanted is not None:
        return wanted
    if have.is_int() and have.int_bitwidth < 32:
        return int32 if have.is_int_signed() else uint32
    return have


@member
@builtin
def sum(input: Any, axis: Any = None, keep_dims: bool = False, dtype: Any = None, _semantic: Any = None) -> tensor:  # noqa: A001
    """Sum along ``axis`` (None: of all). Integers below 32 bits, int1 included, add up in 32; ``dtype`` casts first.

    Types: integers and floats.

    Example::

        total = tl.sum(x)
        rows = tl.sum(m, axis=1, keep_dims=True)
    """
    s = _semantic
    input = s.cast(input, _pick_sum_dtype(input.dtype, dtype))
    if s.checks_overflow(input.type.scalar):
        s.assert_range(s.reduce([s.cast(input, int64)], axis, s.add, False, "sum")[0], input.type.scalar, "add (sum)")
    return s.reduce([input], axis, s.add, bool(keep_dims), "sum")[0]


def _with_indices(s: Any, input: tensor, axis: Any, combine: Any, keep_dims: bool, what: str) -> Any:
    n = len(input.shape)
    if axis is None:
        flat = s.reshape(input, [input.numel])
        index = s.arange(0, input.numel)
        out = s.reduce([flat, index], 0, lambda *a: s.call(combine, *a), False, what)
        return _tuple([s.splat(o, [1] * n) for o in out]) if keep_dims else _tuple(out)
    at = s.axis(input, axis, what)
    index = s.arange(0, input.shape[at])
    for d in range(n):
        if d != at:
            index = s.expand_dims(index, d)
    index = s.broadcast_to(index, input.shape)
    return _tuple(s.reduce([input, index], at, lambda *a: s.call(combine, *a), keep_dims, what))


def _extremum(s: Any, input: Any, axis: Any, return_indices: bool, tie_break_left: bool, keep_dims: bool, what: str) -> Any:
    input = s.promote_bf16(s.to_tensor(input))
    if return_indices:
        combine = {("max", True): _argmax_combine_tie_break_left, ("max", False): _argmax_combine_tie_break_fast,
                   ("min", True): _argmin_combine_tie_break_left, ("min", False): _argmin_combine_tie_break_fast}[what, bool(tie_break_left)]
        return _with_indices(s, input, axis, combine, bool(keep_dims), what)
    scalar = input.dtype
    if scalar.primitive_bitwidth < 32:
        if not scalar.is_floating() and not scalar.is_int():
            raise TypeMismatchError(f"{what} takes numbers, not {scalar}")
        input = s.cast(input, float32 if scalar.is_floating() else int32)
    return s.reduce([input], axis, s.maximum if what == "max" else s.minimum, bool(keep_dims), what)[0]


@member
@builtin
def max(input: Any, axis: Any = None, return_indices: bool = False, return_indices_tie_break_left: bool = True,  # noqa: A001
        keep_dims: bool = False, _semantic: Any = None) -> Any:
    """Largest value along ``axis`` (None: of all), NaN ignored; with ``return_indices`` a tuple (value, int32 index).

    Without indices, types below 32 bits give fp32 or int32. Ties give the lowest index unless tie_break_left is off.

    Types: integers and floats.

    Example::

        top = tl.max(x, axis=0)
        value, index = tl.max(m, 1, return_indices=True)
    """
    return _extremum(_semantic, input, axis, return_indices, return_indices_tie_break_left, keep_dims, "max")


@member
@builtin
def min(input: Any, axis: Any = None, return_indices: bool = False, return_indices_tie_break_left: bool = True,  # noqa: A001
        keep_dims: bool = False, _semantic: Any = None) -> Any:
    """Smallest value along ``axis``; see max.

    Types: integers and floats.

    Example::

        low = tl.min(x, axis=0)
        value, index = tl.min(m, 1, return_indices=True)
    """
    return _extremum(_semantic, input, axis, return_indices, return_indices_tie_break_left, keep_dims, "min")


@member
@builtin
def argmax(input: Any, axis: Any, tie_break_left: bool = True, keep_dims: bool = False, _semantic: Any = None) -> tensor:
    """int32 index of the largest value along ``axis``, the lowest of equal ones.

    Types: integers and floats.

    Example::

        where = tl.argmax(x, axis=0)
        columns = tl.argmax(m, 1, tie_break_left=False)
    """
    return _extremum(_semantic, input, axis, True, tie_break_left, keep_dims, "max")[1]


@member
@builtin
def argmin(input: Any, axis: Any, tie_break_left: bool = True, keep_dims: bool = False, _semantic: Any = None) -> tensor:
    """int32 index of the smallest value along ``axis``, the lowest of equal ones.

    Types: integers and floats.

    Example::

        where = tl.argmin(x, axis=0)
        columns = tl.argmin(m, 1, keep_dims=True)
    """
    return _extremum(_semantic, input, axis, True, tie_break_left, keep_dims, "min")[1]


def _integers(input: tensor, what: str) -> None:
    if not input.dtype.is_int():
        raise TypeMismatchError(f"{what} takes integers, not {input.dtype}")


@member
@builtin
def xor_sum(input: Any, axis: Any = None, keep_dims: bool = False, _semantic: Any = None) -> tensor:
    """Exclusive or of integers along ``axis``.

    Types: integers.

    Example::

        parity = tl.xor_sum(k, 0)
        same = tl.xor_sum(k)
    """
    _integers(input, "xor_sum")
    return _semantic.reduce([input], axis, _semantic.xor_, bool(keep_dims), "xor_sum")[0]


@member
@builtin
def reduce_or(input: Any, axis: Any, keep_dims: bool = False, _semantic: Any = None) -> tensor:
    """Bitwise or of integers along ``axis``.

    Types: integers.

    Example::

        flags = tl.reduce_or(k, 0)
        some = tl.reduce_or(mask, 0)
    """
    _integers(input, "reduce_or")
    return _semantic.reduce([input], axis, _semantic.or_, bool(keep_dims), "reduce_or")[0]


# -- scans -------------------------------------------------------------------------------------------------------------
@member
@builtin
def cumsum(input: Any, axis: Any = 0, reverse: bool = False, dtype: Any = None, _semantic: Any = None) -> tensor:
    """Running sums along ``axis``, from the end with ``reverse``. bf16 gives fp32, small integers 32 bits.

    Types: integers and floats.

    Example::

        sums = tl.cumsum(x, 0)
        left = tl.cumsum(m, axis=1, reverse=True)
    """
    s = _semantic
    input = s.promote_bf16(input)
    input = s.cast(input, _pick_sum_dtype(input.dtype, dtype))
    if s.checks_overflow(input.type.scalar):
        s.assert_range(s.scan([s.cast(input, int64)], axis, s.add, reverse, "cumsum")[0], input.type.scalar, "add (cumsum)")
    return s.scan([input], axis, s.add, reverse, "cumsum")[0]


@member
@builtin
def cumprod(input: Any, axis: Any = 0, reverse: bool = False, _semantic: Any = None) -> tensor:
    """Running products along ``axis``, from the end with ``reverse``. bf16 gives fp32.

    Types: integers and floats.

    Example::

        products = tl.cumprod(x, 0)
        products = tl.cumprod(m, axis=1, reverse=True)
    """
    s = _semantic
    input = s.promote_bf16(input)
    if s.checks_overflow(input.type.scalar):
        # limited to ±2^40 a product keeps being outside of 32 bits until a 0 comes, and its error is far above those
        s.assert_range(s.scan([s.cast(input, float64)], axis, lambda a, b: s.minimum(s.maximum(s.mul(a, b), -(2.0**40)), 2.0**40), reverse, "cumprod")[0],
                       input.type.scalar, "mul (cumprod)")
    return s.scan([input], axis, s.mul, reverse, "cumprod")[0]


# -- order -------------------------------------------------------------------------------------------------------------
def _last_axis(x: tensor, dim: Any, what: str) -> int:
    rank = len(x.shape)
    if rank == 0:
        raise ShapeMismatchError(f"{what} takes a tensor of at least one dim")
    if dim is not None and dim not in (rank - 1, -1):
        raise ShapeMismatchError(f"{what} works along the last dim ({rank - 1}), not {dim}; permute first")
    return rank - 1


def _log2(n: int) -> int:
    return n.bit_length() - 1


def _partner(s: Any, cube: tensor, axis: int) -> tensor:
    """Along an axis of size 2, each element's other one: the xor of both, xored with the element."""
    width = cube.dtype.primitive_bitwidth
    as_int = {1: core.int1, 8: core.int8, 16: core.int16, 32: core.int32, 64: core.int64}[width]
    bits = s.bitcast(cube, as_int)
    both = s.reduce([bits], axis, s.xor_, True, "sort")[0]
    return s.bitcast(s.xor_(bits, s.broadcast_to(both, bits.shape)), cube.dtype)


def _along(s: Any, index: tensor, rank: int, axis: int) -> tensor:
    """A tensor of one dim as one of ``rank`` dims, of size 1 but along ``axis``."""
    for d in range(rank):
        if d != axis:
            index = s.expand_dims(index, d)
    return index


def _pairs(s: Any, x: tensor, axis: int, step: int) -> tensor:
    """``x`` with dim ``axis`` as three: what lies above bit ``step`` of the index, that bit, what lies below. Three dims and not one a
    bit: a target that makes loops of dims has three, however long the dim is."""
    n = x.shape[axis]
    return s.reshape(x, [*x.shape[:axis], n >> (step + 1), 2, 1 << step, *x.shape[axis + 1:]])


def _exchange(s: Any, x: tensor, step: int, descending: Any, run: int | None = None) -> tensor:
    """Order the pairs of elements whose indices along the last dim differ in bit ``step``, downwards where ``descending``, or with
    ``run`` where the index has that bit (above ``step``) set."""
    shape = list(x.shape)
    cube = _pairs(s, x, len(shape) - 1, step)
    rank = len(cube.shape)
    other = _partner(s, cube, rank - 2)
    flip = _along(s, s.arange(0, 2), rank, rank - 2)
    if run is not None:
        order = s.and_(s.shr(s.arange(0, cube.shape[-3]), run - step - 1), 1)
        flip = s.xor_(flip, _along(s, order, rank, rank - 3))
    elif descending:
        flip = s.xor_(flip, 1)
    # the element gives way where it is larger, in the position that wants the smaller, or the other way round
    swap = s.not_equal(s.cast(s.greater_than(cube, other), int32), flip)
    equal = s.equal(cube, other)
    swap = s.and_(swap, s.not_(equal))
    return s.reshape(s.where(swap, other, cube), shape)


def _bitonic(s: Any, x: tensor, k: int | None, descending: bool) -> tensor:
    """Bitonic network over the last dim; with ``k`` only the first k in order are kept."""
    steps = _log2(x.shape[-1])
    keep = steps if k is None else _log2(k)
    for stage in range(1, keep + 1):  # sort runs of 2**stage, up and down in turn
        for step in reversed(range(stage)):
            x = _exchange(s, x, step, descending, stage if stage < steps else None)
    # of two sorted runs of k, one up and one down, the elementwise extremum holds the k best
    for left in reversed(range(keep, steps)):
        combine = s.maximum if descending else s.minimum
        narrow = x.dtype
        pairs = _pairs(s, x, len(x.shape) - 1, keep)
        best = s.reduce([pairs], len(pairs.shape) - 2, lambda a, b, c=combine, t=narrow: s.cast(c(a, b), t), False, "topk")[0]
        x = s.reshape(best, [*x.shape[:-1], x.shape[-1] // 2])
        for step in reversed(range(keep)):
            x = _exchange(s, x, step, descending, keep if left > keep else None)
    return x


@member
@builtin
def sort(x: Any, dim: Any = None, descending: bool = False, _semantic: Any = None) -> tensor:
    """Sorted along the last dim. NaN is not ordered.

    Types: integers and floats.

    Example::

        up = tl.sort(x)
        down = tl.sort(m, dim=1, descending=True)
    """
    _last_axis(x, dim, "sort")
    return _bitonic(_semantic, x, None, bool(descending))


@builtin
def topk(x: Any, k: int, dim: Any = None, descending: bool = True, _semantic: Any = None) -> tensor:
    """The ``k`` (a power of two) largest along the last dim, in descending order; smallest, ascending, with descending off.

    Types: integers and floats.

    Example::

        best = tl.topk(x, 4)
        least = tl.topk(m, 4, dim=1, descending=False)
    """
    _last_axis(x, dim, "topk")
    if k < 1 or k & (k - 1) or k > x.shape[-1]:
        raise ShapeMismatchError(f"topk takes a power of two up to the dim's size {x.shape[-1]} as k, not {k}")
    return _bitonic(_semantic, x, k, bool(descending))


@builtin
def bitonic_merge(x: Any, dim: Any = None, descending: bool = False, _semantic: Any = None) -> tensor:
    """Sorts a bitonic sequence along the last dim (one that rises, then falls, or the other way round).

    Types: integers and floats.

    Example::

        z = tl.bitonic_merge(tl.where(i < 8, i, 15 - i))
        z = tl.bitonic_merge(z, descending=True)
    """
    _last_axis(x, dim, "bitonic_merge")
    for step in reversed(range(_log2(x.shape[-1]))):
        x = _exchange(_semantic, x, step, bool(descending))
    return x


@member
@builtin
def flip(x: Any, dim: Any = None, _semantic: Any = None) -> tensor:
    """Reversed along ``dim`` (default: the last).

    Types: any.

    Example::

        z = tl.flip(x)
        rows = tl.flip(m, 0)
    """
    s = _semantic
    axis = s.axis(x, -1 if dim is None else dim, "flip")
    shape = list(x.shape)
    for step in range(_log2(shape[axis])):  # n - 1 - i: every bit of the index the other way round
        x = s.reshape(_partner(s, _pairs(s, x, axis, step), axis + 1), shape)
    return x


__all__ = [
    "argmax", "argmin", "bitonic_merge", "cdiv", "cumprod", "cumsum", "flip", "interleave", "max", "min", "ravel", "reduce_or", "sigmoid",
    "softmax", "sort", "sum", "swizzle2d", "topk", "xor_sum", "zeros", "zeros_like",
]
