"""``tl.core``: types, values and the primitive functions of the language (those that Triton keeps in its core module).

Every function works on tensors and Python numbers; arguments called constexpr are compile-time values. Shapes are powers of two.
``_semantic`` is passed by the compiler and never by users.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any

from tilewright.dialects.errors import CompileTimeAssertionFailure, TypeMismatchError, UnsupportedLanguageConstruct
from tilewright.language.aggregate import aggregate as _aggregate  # Triton's name  # noqa: F401
from tilewright.language.const import ConstexprFunction, constexpr, constexpr_function, constexpr_type
from tilewright.language.const import unwrap as _unwrap_if_constexpr
from tilewright.language.decorators import builtin, is_builtin, member
from tilewright.language.dtypes import (
    MAX_TENSOR_NUMEL,
    bfloat16,
    block_type,
    dtype,
    float8e4b8,
    float8e4b15,
    float8e4nv,
    float8e5,
    float8e5b16,
    float16,
    float32,
    float64,
    int1,
    int8,
    int16,
    int32,
    int64,
    pi32_t,
    pointer_type,
    str_to_ty,
    tensor_descriptor_type,
    tuple_type,
    uint8,
    uint16,
    uint32,
    uint64,
    void,
)
from tilewright.language.tensor_descriptor import tensor_descriptor
from tilewright.language.values import active_semantic, base_value, current_semantic, tensor
from tilewright.language.values import tuple as tuple  # noqa: A004

TRITON_MAX_TENSOR_NUMEL = MAX_TENSOR_NUMEL
_tensor_member_fn = member
_python_range = range
_python_tuple: Any = type(())
base_type = dtype


class const:  # noqa: N801
    """Annotation of a kernel's pointer parameter: nothing is stored through it. A store or an atomic is an error.

    Example::

        @triton.jit
        def copied(x: tl.const, y):
            tl.store(y, tl.load(x))

        copied(p, out)
    """


CONSTEXPR_0 = constexpr(0)
TRITON_BUILTIN = "__triton_builtin__"  # the attribute that marks a function of the language


def get_int_dtype(bitwidth: int, signed: bool) -> dtype:
    """The integer type of 1, 8, 16, 32 or 64 bits."""
    bitwidth, signed = _unwrap_if_constexpr(bitwidth), _unwrap_if_constexpr(signed)
    return int1 if bitwidth == 1 else dtype(f"{'' if signed else 'u'}int{bitwidth}")


def must_use_result(x: Any, s: Any = True) -> Any:
    """Decorator with a hint for linters; changes nothing."""
    return x if callable(x) else (lambda fn: fn)


class PropagateNan(Enum):
    """What minimum, maximum and clamp do with NaN: ``NONE`` ignores it, ``ALL`` keeps it."""

    NONE = 0
    ALL = 0xFFFF


PROPAGATE_NAN = PropagateNan


# -- the grid ----------------------------------------------------------------------------------------------------------
@builtin
def program_id(axis: Any, _semantic: Any = None) -> tensor:
    """Index of this program along grid dim ``axis`` (constexpr 0, 1 or 2). int32.

    Types: axis constexpr; int32.

    Example::

        row = tl.program_id(0)
        x = tl.load(p + row * 16 + i)
    """
    return _semantic.program_id(axis)


@builtin
def num_programs(axis: Any, _semantic: Any = None) -> tensor:
    """Size of the grid along ``axis`` (constexpr 0, 1 or 2). int32.

    Types: axis constexpr; int32.

    Example::

        for row in tl.range(tl.program_id(0), n, tl.num_programs(0)):
            tl.store(out + row, 1.0)
    """
    return _semantic.num_programs(axis)


# -- making tensors ----------------------------------------------------------------------------------------------------
@builtin
def arange(start: Any, end: Any, _semantic: Any = None) -> tensor:
    """int32 values of the half-open range [start, end), constexprs; the length is a power of two.

    Types: constexpr bounds; int32.

    Example::

        i = tl.arange(0, 16)
        x = tl.load(p + i, mask=i < n)
    """
    return _semantic.arange(start, end)


@builtin
def full(shape: Any, value: Any, dtype: Any, _semantic: Any = None) -> tensor:
    """A tensor of ``shape`` with every element ``value`` (a number or scalar tensor), of ``dtype``.

    Types: any.

    Example::

        acc = tl.full((16, 16), -1.0, tl.float32)
        ones = tl.full([16], 1, tl.int64)
    """
    return _semantic.full(shape, value, dtype)


@builtin
def to_tensor(x: Any, _semantic: Any = None) -> tensor:
    """A number as a scalar tensor; a tensor as it is.

    Types: a number or tensor.

    Example::

        one = tl.to_tensor(1)
        x = x + one
    """
    return _semantic.to_tensor(x)


@member
@builtin
def cast(input: Any, dtype: Any, fp_downcast_rounding: str | None = None, bitcast: bool = False, _semantic: Any = None) -> tensor:
    """``input`` converted to ``dtype``, or its bits read as ``dtype`` with ``bitcast``.

    Floats become integers by dropping the fraction; what lies beyond the integer type's ends becomes that end, and NaN becomes 0, on every
    target (Triton leaves both undefined).

    ``fp_downcast_rounding``: "rtne" (to nearest even, the default) or "rtz" (towards zero), for a narrower float.

    Types: from and to every number type; pointers by their bits.

    Example::

        half = tl.cast(x, tl.float16)
        bits = tl.cast(x, tl.int32, bitcast=True)
    """
    input = _semantic.to_tensor(input)
    return _semantic.bitcast(input, dtype) if bitcast else _semantic.cast(input, dtype, fp_downcast_rounding)


def _to(self: tensor, dtype: Any, fp_downcast_rounding: Any = None, bitcast: Any = False, _semantic: Any = None) -> tensor:
    """See tl.cast."""
    return cast(self, dtype, fp_downcast_rounding, bitcast, _semantic=_semantic)


_to.__triton_builtin__ = True  # type: ignore[attr-defined]
tensor.to = _to  # type: ignore[attr-defined]


# -- shapes ------------------------------------------------------------------------------------------------------------
def _dims(dims: Any) -> Any:
    """``f(x, 2, 4)`` and ``f(x, (2, 4))`` mean the same."""
    if len(dims) == 1:
        first = _unwrap_if_constexpr(dims[0])
        if hasattr(first, "__iter__") and not isinstance(first, tensor):
            return list(first)
    return list(dims)


@builtin
def broadcast(input: Any, other: Any, _semantic: Any = None) -> Any:
    """Both tensors at their common shape.

    Types: any.

    Example::

        row, column = tl.broadcast(i[None, :], i[:, None])
        tl.store(out + row, (row + column).to(tl.float32))
    """
    return tuple(_semantic.broadcast(_semantic.to_tensor(input), _semantic.to_tensor(other)))


@member
@builtin
def broadcast_to(input: Any, *shape: Any, _semantic: Any = None) -> tensor:
    """``input`` with dims of size 1 repeated to ``shape``.

    Types: any.

    Example::

        rows = tl.broadcast_to(x[None, :], (4, 16))
        m = m + tl.broadcast_to(x[:, None], m.shape)
    """
    return _semantic.broadcast_to(_semantic.to_tensor(input), _semantic.shape_of(_dims(shape)))


@member
@builtin
def trans(input: Any, *dims: Any, _semantic: Any = None) -> tensor:
    """Permute dims; without ``dims`` the last two are swapped.

    Types: any.

    Example::

        t = tl.trans(m)
        t = m.trans(1, 0)
    """
    return _semantic.trans(input, *_dims(dims))


@member
@builtin
def permute(input: Any, *dims: Any, _semantic: Any = None) -> tensor:
    """Result dim i is source dim ``dims[i]``.

    Types: any.

    Example::

        cube = tl.reshape(m, (4, 4, 16))
        cube = tl.permute(cube, (2, 0, 1))
    """
    return _semantic.permute(input, _dims(dims))


@member
@builtin
def reshape(input: Any, *shape: Any, can_reorder: bool = False, _semantic: Any = None) -> tensor:
    """The same elements in row-major order under ``shape``; in any order with ``can_reorder``.

    Types: any.

    Example::

        flat = tl.reshape(m, (256,))
        pairs = x.reshape(8, 2)
    """
    return _semantic.reshape(input, _dims(shape), can_reorder)


@member
@builtin
def view(input: Any, *shape: Any, _semantic: Any = None) -> tensor:
    """reshape that may reorder elements; prefer reshape.

    Types: any.

    Example::

        flat = tl.view(m, (256,))
        total = tl.sum(flat, 0)
    """
    return _semantic.reshape(input, _dims(shape), True)


@member
@builtin
def item(input: Any, _semantic: Any = None) -> tensor:
    """The one element of a tensor of one element, as a scalar.

    Types: any.

    Example::

        only = tl.reshape(tl.sum(x, 0, keep_dims=True), (1,)).item()
        tl.store(out, only)
    """
    input = _semantic.to_tensor(input)
    return _semantic.unsplat(input) if input.type.is_block() else input


@member
@builtin
def expand_dims(input: Any, axis: Any, _semantic: Any = None) -> tensor:
    """Dims of size 1 at ``axis``, an int or several; negative ones count in the result.

    Types: any.

    Example::

        column = tl.expand_dims(x, 1)
        same = x[:, None]
    """
    input = _semantic.to_tensor(input)
    axes = _semantic.shape_of(axis)
    rank = len(input.shape) + len(axes)
    wanted = sorted(a % rank if -rank <= a < rank else a for a in axes)
    if len(set(wanted)) != len(wanted):
        raise TypeMismatchError(f"expand_dims takes different axes, not {axes}")
    for a in wanted:
        input = _semantic.expand_dims(input, a) if input.type.is_block() else _semantic.splat(input, [1])
    return input


@builtin
def join(a: Any, b: Any, _semantic: Any = None) -> tensor:
    """Two tensors of one shape along a new last dim of size 2.

    Types: any.

    Example::

        pairs = tl.join(x, y)
        real, imaginary = tl.split(pairs)
    """
    return _semantic.join(a, b)


@member
@builtin
def split(a: Any, _semantic: Any = None) -> Any:
    """The two halves of a last dim of size 2, as a tuple: the inverse of join.

    Types: any.

    Example::

        low, high = tl.split(x.reshape(8, 2))
        tl.store(out + tl.arange(0, 8), low - high)
    """
    return tuple(_semantic.split(a))


@builtin
def cat(input: Any, other: Any, can_reorder: bool = False, dim: int = 0, _semantic: Any = None) -> tensor:
    """Two tensors of one type along ``dim``. With ``can_reorder`` the order of elements is not promised.

    Types: any.

    Example::

        both = tl.cat(x, y)
        rows = tl.cat(m, m, dim=1)
    """
    return _semantic.cat(input, other, can_reorder, dim)


# -- memory ------------------------------------------------------------------------------------------------------------
@builtin
def load(pointer: Any, mask: Any = None, other: Any = None, boundary_check: Any = (), padding_option: Any = "",
         cache_modifier: Any = "", eviction_policy: Any = "", volatile: Any = False, _semantic: Any = None) -> tensor:
    """Read through a pointer or tensor of pointers. Masked-off lanes read nothing and give ``other`` (0 without it).

    ``cache_modifier`` "", ".ca", ".cg", ".cs", ".cv"; ``eviction_policy`` "", "evict_first", "evict_last": hints.
    ``volatile``: every load happens, in order.

    Types: pointers to any type.

    Example::

        x = tl.load(p + i, mask=i < n, other=0.0)
        first = tl.load(p, cache_modifier=".cg")
    """
    return _semantic.load(pointer, mask, other, boundary_check, padding_option, cache_modifier, eviction_policy, volatile)


@member
@builtin
def store(pointer: Any, value: Any, mask: Any = None, boundary_check: Any = (), cache_modifier: Any = "", eviction_policy: Any = "",
          _semantic: Any = None) -> None:
    """Write ``value``, cast to the pointee's type and broadcast, through the pointers where the mask holds.

    Types: pointers to any type.

    Example::

        tl.store(out + i, x * 2, mask=i < n)
        tl.store(out, 1.0)
    """
    return _semantic.store(pointer, value, mask, boundary_check, cache_modifier, eviction_policy)


def _atomic(name: str, what: str) -> Any:
    def fn(pointer: Any, val: Any, mask: Any = None, sem: Any = None, scope: Any = None, _semantic: Any = None) -> tensor:
        return _semantic.atomic_rmw(name, pointer, val, mask, sem, scope)

    fn.__name__ = fn.__qualname__ = f"atomic_{name}"
    value, pointer = ("i", "q + i") if name in ("and", "or", "xor") else ("x", "out + i")
    types = {"add": "16-, 32- and 64-bit types", "xchg": "16-, 32- and 64-bit types"}.get(name, "32- and 64-bit types")
    fn.__doc__ = (f"Atomically {what}; the old value is the result (0 where masked off). ``sem``: relaxed, acquire, release, "
                  f"acq_rel (default); ``scope``: cta, gpu (default), sys.\n\nTypes: {types if value == 'x' else '32- and 64-bit integers'}.\n\n"
                  f"Example::\n\n    tl.atomic_{name}({pointer}, {value}, mask=mask)\n    old = tl.atomic_{name}({pointer}, {value}, sem=\"relaxed\")\n")
    return member(builtin(fn))


atomic_add = _atomic("add", "add ``val`` to memory")
atomic_max = _atomic("max", "store the larger of memory and ``val``")
atomic_min = _atomic("min", "store the smaller of memory and ``val``")
atomic_and = _atomic("and", "store memory & ``val``")
atomic_or = _atomic("or", "store memory | ``val``")
atomic_xor = _atomic("xor", "store memory ^ ``val``")
atomic_xchg = _atomic("xchg", "store ``val``")


@member
@builtin
def atomic_cas(pointer: Any, cmp: Any, val: Any, sem: Any = None, scope: Any = None, _semantic: Any = None) -> tensor:
    """Atomically store ``val`` where memory holds ``cmp``; the old value is the result.

    Types: 16-, 32- and 64-bit integers and floats.

    Example::

        while tl.atomic_cas(q, 0, 1) == 1:
            pass
        old = tl.atomic_xchg(q, 0)
    """
    return _semantic.atomic_cas(pointer, cmp, val, sem, scope)


@builtin
def make_block_ptr(base: Any, shape: Any, strides: Any, offsets: Any, block_shape: Any, order: Any, _semantic: Any = None) -> Any:
    """A window of ``block_shape`` at ``offsets`` (int32) into the array at ``base`` with ``shape`` and ``strides`` in elements.

    Loads and stores take ``boundary_check``, the dims in which the window may leave the array. ``order`` is a hint.

    Types: a scalar pointer; int32 or int64 sizes.

    Example::

        window = tl.make_block_ptr(p, (n, n), (n, 1), (0, 0), (16, 16), (1, 0))
        m = tl.load(window, boundary_check=(0, 1), padding_option="zero")
    """
    return _semantic.make_block_ptr(base, shape, strides, offsets, block_shape, order)


@builtin
def advance(base: Any, offsets: Any, _semantic: Any = None) -> Any:
    """The block pointer moved by ``offsets``, one a dim.

    Types: a block pointer.

    Example::

        window = tl.make_block_ptr(p, (n, n), (n, 1), (0, 0), (16, 16), (1, 0))
        window = tl.advance(window, (0, 16))
    """
    return _semantic.advance(base, offsets)


def _unsupported(name: str, why: str) -> Any:
    def fn(*args: Any, _semantic: Any = None, **kwargs: Any) -> Any:
        raise UnsupportedLanguageConstruct(f"tl.{name} is not supported: {why}")

    fn.__name__ = fn.__qualname__ = name
    fn.__doc__ = f"Not supported: {why}."
    return builtin(fn)


@builtin
def make_tensor_descriptor(base: Any, shape: Any, strides: Any, block_shape: Any, padding_option: Any = "zero",
                           _semantic: Any = None) -> tensor_descriptor:
    """A descriptor of the tensor at ``base`` (a scalar pointer) with ``shape`` and ``strides`` in elements, 1 to 5 dims, the last stride 1.

    It reads and writes blocks of ``block_shape`` (constexprs, powers of two, a row of at least 16 bytes): see tensor_descriptor's load,
    store, gather, scatter and atomics. ``padding_option``: what elements outside the tensor read as, "zero" or "nan" (floats). The base
    and the other strides may have any alignment here; multiples of 16 bytes let targets with bulk copies use them.

    Types: a scalar pointer to any number type; int32 sizes, int64 strides.

    Example::

        d = tl.make_tensor_descriptor(p, [n, n], [n, 1], [16, 16])
        m = d.load([0, 16])
    """
    return _semantic.make_tensor_descriptor(base, shape, strides, block_shape, padding_option)


@builtin
def load_tensor_descriptor(desc: Any, offsets: Any, _semantic: Any = None) -> tensor:
    """``desc.load(offsets)``.

    Types: a tensor descriptor.

    Example::

        d = tl.make_tensor_descriptor(p, [n, n], [n, 1], [16, 16])
        m = tl.load_tensor_descriptor(d, [0, 16])
    """
    return _semantic.descriptor_load(desc, offsets)


@builtin
def store_tensor_descriptor(desc: Any, offsets: Any, value: Any, _semantic: Any = None) -> None:
    """``desc.store(offsets, value)``.

    Types: a tensor descriptor.

    Example::

        d = tl.make_tensor_descriptor(out, [n, n], [n, 1], [16, 16])
        tl.store_tensor_descriptor(d, [0, 0], m)
    """
    _semantic.descriptor_store(desc, offsets, value)


# -- elementwise -------------------------------------------------------------------------------------------------------
@builtin
def where(condition: Any, x: Any, y: Any, _semantic: Any = None) -> tensor:
    """``x`` where the condition holds, else ``y``. Both are computed everywhere; use load's mask to guard memory.

    Types: condition int1; x, y any.

    Example::

        positive = tl.where(x > 0, x, 0.0)
        kept = tl.where(mask[:, None], m, -1.0)
    """
    return _semantic.where(condition, x, y)


def _keeps_nan(propagate_nan: Any) -> bool:
    return propagate_nan == PropagateNan.ALL


@builtin
def minimum(x: Any, y: Any, propagate_nan: Any = PropagateNan.NONE, _semantic: Any = None) -> tensor:
    """Elementwise smaller value; bf16 gives fp32. NaN is ignored unless ``propagate_nan`` is ALL.

    Types: integers and floats.

    Example::

        low = tl.minimum(x, y)
        low = tl.minimum(x, 1.0, propagate_nan=tl.PropagateNan.ALL)
    """
    return _semantic.minimum(x, y, _keeps_nan(propagate_nan))


@builtin
def maximum(x: Any, y: Any, propagate_nan: Any = PropagateNan.NONE, _semantic: Any = None) -> tensor:
    """Elementwise larger value; bf16 gives fp32. NaN is ignored unless ``propagate_nan`` is ALL.

    Types: integers and floats.

    Example::

        relu = tl.maximum(x, 0.0)
        larger = tl.maximum(k, i)
    """
    return _semantic.maximum(x, y, _keeps_nan(propagate_nan))


@builtin
def clamp(x: Any, min: Any, max: Any, propagate_nan: Any = PropagateNan.NONE, _semantic: Any = None) -> tensor:
    """Floats limited to [min, max]. A NaN gives ``min``, or stays NaN where ``propagate_nan`` is ALL.

    Types: fp16, bf16, fp32, fp64.

    Example::

        unit = tl.clamp(x, 0.0, 1.0)
        unit = tl.clamp(x, 0.0, 1.0, propagate_nan=tl.PropagateNan.ALL)
    """
    return _semantic.clamp(x, min, max, _keeps_nan(propagate_nan))


@builtin
def add(x: Any, y: Any, sanitize_overflow: Any = True, _semantic: Any = None) -> tensor:
    """``x + y``.

    Types: integers and floats, pointers.

    Example::

        z = tl.add(x, y)
        z = x + y
    """
    return _semantic.add(x, y)


@builtin
def sub(x: Any, y: Any, sanitize_overflow: Any = True, _semantic: Any = None) -> tensor:
    """``x - y``.

    Types: integers and floats, pointers.

    Example::

        z = tl.sub(x, y)
        z = x - y
    """
    return _semantic.sub(x, y)


@builtin
def mul(x: Any, y: Any, sanitize_overflow: Any = True, _semantic: Any = None) -> tensor:
    """``x * y``.

    Types: integers and floats.

    Example::

        z = tl.mul(x, y)
        z = x * y
    """
    return _semantic.mul(x, y)


# -- linear algebra ----------------------------------------------------------------------------------------------------
@builtin
def dot(input: Any, other: Any, acc: Any = None, input_precision: Any = None, allow_tf32: Any = None, max_num_imprecise_acc: Any = None,
        out_dtype: Any = float32, _semantic: Any = None) -> tensor:
    """Matrix product of [M, K] and [K, N] (or [B, M, K] and [B, K, N]) tensors of one type, plus ``acc``.

    int8 gives int32, fp64 gives fp64, other floats accumulate in fp32 (or fp16 with ``out_dtype``). ``input_precision``
    of fp32 operands: "tf32" (default), "tf32x3", "ieee", "bf16x3", "bf16x6".

    Types: fp8, fp16, bf16, fp32, fp64, int8.

    Example::

        c = tl.dot(a, b)
        c = tl.dot(m, m, acc=c, input_precision="ieee")
    """
    return _semantic.dot(input, other, acc, input_precision, allow_tf32, max_num_imprecise_acc, out_dtype)


@builtin
def dot_scaled(lhs: Any, lhs_scale: Any, lhs_format: Any, rhs: Any, rhs_scale: Any, rhs_format: Any, acc: Any = None, fast_math: Any = False,
               lhs_k_pack: Any = True, rhs_k_pack: Any = True, out_dtype: Any = float32, _semantic: Any = None) -> tensor:
    """Matrix product of tensors in microscaling formats: ``(lhs × lhs_scale) @ (rhs × rhs_scale) + acc``, fp32.

    ``lhs`` is [M, K], ``rhs`` [K, N] (or both with a batch dim in front). Formats: ``"e4m3"`` (float8e4nv, or uint8 of its bits), ``"e5m2"`` (float8e5,
    or uint8), ``"e2m1"`` (uint8 of two numbers, the first in the lower half, along K, or along M or N with ``lhs_k_pack=False`` or ``rhs_k_pack=False``),
    ``"bf16"``, ``"fp16"`` (or uint16). Scales: uint8 tensors of e8m0 (a byte s is 2^(s-127), 255 is NaN), one for 32 numbers along K: [M, K / 32] and
    [N, K / 32]; float8e4nv ones, one for 16, go with e2m1, e4m3 and e5m2; None is 1.

    Each operand times its scale is rounded to bf16 (beside fp16: kept in fp32), which is exact for results from 2^-126 to below 2^128; products are exact and
    added in fp32. ``fast_math`` takes a scale of 255 for infinity. ``out_dtype`` can only be float32.

    Types: the formats above. Errors: TypeMismatchError for another format or element type, ShapeMismatchError for shapes that do not fit.

    Example::

        pairs, scale = tl.full((16, 16), 0x21, tl.uint8), tl.full((16, 1), 127, tl.uint8)
        acc = tl.dot_scaled(pairs, scale, "e2m1", tl.trans(tl.cat(a, a, dim=1)), None, "fp16")
    """
    return _semantic.dot_scaled(lhs, lhs_scale, lhs_format, rhs, rhs_scale, rhs_format, acc, fast_math, lhs_k_pack, rhs_k_pack, out_dtype)


# -- reductions and scans ----------------------------------------------------------------------------------------------
def _inputs(input: Any) -> Any:
    """The tensors of a reduce or scan, and whether a tuple was given."""
    if isinstance(input, tensor) or not hasattr(input, "__iter__"):
        return [input], False
    return list(input), True


@member
@builtin
def reduce(input: Any, axis: Any, combine_fn: Callable[..., Any], keep_dims: bool = False, _semantic: Any = None) -> Any:
    """Reduce a tensor (or a tuple of n tensors of one shape) along ``axis`` (None: over everything).

    ``combine_fn`` is associative and takes 2n scalars: n accumulated values, then n new ones; it returns n.

    Types: any.

    Example::

        @triton.jit
        def larger(a, b):
            return tl.maximum(a, b)

        top = tl.reduce(x, 0, larger)
    """
    values, many = _inputs(input)
    results = _semantic.reduce(values, axis, lambda *args: _semantic.call(combine_fn, *args), bool(keep_dims))
    return tuple(results) if many else results[0]


@member
@builtin
def associative_scan(input: Any, axis: Any, combine_fn: Callable[..., Any], reverse: bool = False, _semantic: Any = None) -> Any:
    """Inclusive scan of a tensor (or tuple of tensors) along ``axis``, from the end with ``reverse``; combiner as in reduce.

    Types: any.

    Example::

        @triton.jit
        def plus(a, b):
            return a + b

        sums = tl.associative_scan(x, 0, plus, reverse=True)
    """
    values, many = _inputs(input)
    results = _semantic.scan(values, axis, lambda *args: _semantic.call(combine_fn, *args), bool(reverse))
    return tuple(results) if many else results[0]


@member
@builtin
def histogram(input: Any, num_bins: Any, mask: Any = None, _semantic: Any = None) -> tensor:
    """How often each of 0 … num_bins-1 occurs in a rank-1 integer tensor, where the mask holds. int32.

    Types: 32- and 64-bit integers; int32.

    Example::

        counts = tl.histogram(k, 16)
        counts = tl.histogram(k, 16, mask=mask)
    """
    return _semantic.histogram(input, num_bins, mask)


@member
@builtin
def gather(src: Any, index: Any, axis: Any, _semantic: Any = None) -> tensor:
    """Elements of ``src`` at ``index`` along ``axis``; the shapes agree in the other dims.

    Types: src any; index integers.

    Example::

        turned = tl.gather(x, 15 - i, 0)
        rows = tl.gather(m, tl.broadcast_to(i[:, None], (16, 16)), 1)
    """
    return _semantic.gather(src, index, axis)


@builtin
def map_elementwise(scalar_fn: Callable[..., Any], *args: Any, pack: int = 1, _semantic: Any = None) -> Any:
    """Call ``scalar_fn`` with the elements of the tensors ``args``, one element of each a call; branches and loops in it run only where
    an element needs them.

    ``args``: tensors or scalars, broadcast to one shape. ``scalar_fn``: a jit function of scalars that only computes (no memory, no
    printing) and returns one scalar or a tuple of several. ``pack`` (constexpr int): how many elements a call works on; it then takes
    ``pack`` scalars of the first tensor, then of the second, …, and returns a tuple of ``pack`` scalars of the first result, then of
    the second, …. Which elements share a call is not specified. Returns a tensor, or a tuple of tensors where ``scalar_fn`` returns a
    tuple. Raises TypeMismatchError where what it returns does not fit ``pack``, UnsupportedLanguageConstruct where it does more than compute.

    Types: any.

    Example::

        @triton.jit
        def step(a, b):
            return a + 1 if a > b else b

        z = tl.map_elementwise(step, x, y)
    """
    results, many = _semantic.map_elementwise(lambda *scalars: _semantic.call(scalar_fn, *scalars), args, pack)
    return tuple(results) if many else results[0]


# -- hints and debugging -----------------------------------------------------------------------------------------------
@builtin
def multiple_of(input: Any, values: Any, _semantic: Any = None) -> tensor:
    """Promise that the first value of every block along dim i is a multiple of ``values[i]``.

    Types: integers, pointers.

    Example::

        start = tl.multiple_of(n * 16, 16)
        x = tl.load(p + start + i, mask=mask)
    """
    return _semantic.hint("multiple_of", input, values)


@builtin
def max_contiguous(input: Any, values: Any, _semantic: Any = None) -> tensor:
    """Promise that ``values[i]`` successive values along dim i are contiguous.

    Types: integers, pointers.

    Example::

        offsets = tl.max_contiguous(tl.multiple_of(n * 16 + i, 16), 16)
        x = tl.load(p + offsets, mask=mask)
    """
    return _semantic.hint("max_contiguous", input, values)


@builtin
def max_constancy(input: Any, values: Any, _semantic: Any = None) -> tensor:
    """Promise that ``values[i]`` successive values along dim i are equal.

    Types: integers, pointers.

    Example::

        group = tl.max_constancy(i // 4, 4)
        scale = tl.load(p + group)
    """
    return _semantic.hint("max_constancy", input, values)


@builtin
def assume(cond: Any, _semantic: Any = None) -> None:
    """Promise that a scalar condition holds.

    Types: scalar int1.

    Example::

        tl.assume(n > 0)
        x = tl.load(p + i % n)
    """
    if isinstance(cond, tensor):
        _semantic.assume(cond)


@builtin
def debug_barrier(_semantic: Any = None) -> None:
    """All threads of the program wait for each other.

    Example::

        tl.store(out + i, x)
        tl.debug_barrier()
    """
    _semantic.debug_barrier()


def _text(values: Sequence[Any]) -> str:
    return " ".join(str(_unwrap_if_constexpr(v)) for v in values)


@builtin
def static_print(*values: Any, sep: str = " ", end: str = "\n", file: Any = None, flush: bool = False, _semantic: Any = None) -> None:
    """Print compile-time values while compiling; of tensors, their type.

    Types: compile-time values.

    Example::

        tl.static_print("block of", x.shape, x.dtype)
        tl.static_print(f"{x.shape[0]} elements")
    """
    print(sep.join(str(_unwrap_if_constexpr(v)) for v in values), end=end, file=file, flush=flush)


@builtin
def static_assert(cond: Any, msg: Any = "", _semantic: Any = None) -> None:
    """Fail the compilation unless a compile-time condition holds.

    Types: compile-time values.

    Example::

        tl.static_assert(x.shape[0] == 16, "blocks of 16")
        tl.static_assert(x.dtype == tl.float32)
    """
    if isinstance(cond, tensor) and not _semantic.builder.is_interpreter:
        raise TypeMismatchError("static_assert takes a compile-time condition, not a run-time tensor; use tl.device_assert")
    if not cond:
        raise CompileTimeAssertionFailure(f"static_assert does not hold{': ' + str(msg) if msg != '' else ''}")


@builtin
def device_print(prefix: Any, *args: Any, hex: bool = False, _semantic: Any = None) -> None:
    """Print ``prefix`` (a string) and tensors from every program at run time.

    Types: any.

    Example::

        tl.device_print("n", n)
        tl.device_print("k", k, hex=True)
    """
    if not isinstance(prefix, str):
        raise TypeMismatchError("device_print takes a string first, then tensors")
    _semantic.device_print(prefix, args, hex)


@builtin
def device_assert(cond: Any, msg: Any = "", mask: Any = None, _semantic: Any = None) -> None:
    """Stop the program at run time where ``cond`` fails; compiled in only with the option debug=True.

    Types: int1.

    Example::

        tl.device_assert(n >= 0, "n is a size")
        tl.device_assert(k >= 0, "negative", mask=mask)
    """
    _semantic.device_assert(cond, str(msg), mask)


# -- escapes -----------------------------------------------------------------------------------------------------------
@builtin
def inline_asm_elementwise(asm: str, constraints: str, args: Any, dtype: Any, is_pure: bool, pack: int, _semantic: Any = None) -> Any:
    """Target assembly on ``pack`` elements at a time. ``dtype``: one type, or several for as many results.

    ``asm`` and ``constraints`` are LLVM's for the target; operands are $0 (the first result), $1, …; values narrower than 32 bits share a register
    where ``pack`` is larger than 1. ``is_pure``: it has no effect but its results. Text that the target's assembler refuses is an error with its
    message; tl.target_info tells targets apart at compile time.

    Types: integers and floats.

    Targets: all but the interpreter, each with its own assembly.

    Example::

        z = tl.inline_asm_elementwise("shl.b32 $0, $1, 3;", "=r,r", [k], dtype=tl.int32, is_pure=True, pack=1)
    """
    many = not isinstance(dtype, base_type)
    results = _semantic.inline_asm(asm, constraints, list(args), [_unwrap_if_constexpr(d) for d in dtype] if many else [dtype], is_pure, pack)
    return tuple(results) if many else results[0]


@builtin
def extern_elementwise(lib_name: str, lib_path: str, args: Any, arg_type_symbol_dict: dict[Any, Any], is_pure: bool, _semantic: Any = None) -> tensor:
    """Call an external function chosen by the argument types: {(types…): (symbol, result type)}.

    Symbols are the portable names of language.extra.libdevice ("tanh"); there are no vendor libraries to link.

    Types: integers and floats.

    Example::

        h = tl.extern_elementwise("", "", [x], {(tl.float32,): ("tanh", tl.float32)}, is_pure=True)
        tl.store(out + i, h)
    """
    values = [_semantic.to_tensor(a) for a in args]
    key = _python_tuple(v.dtype for v in values)
    if key not in arg_type_symbol_dict:
        wanted = "; ".join(", ".join(str(d) for d in k) for k in arg_type_symbol_dict)
        raise TypeMismatchError(f"the external function takes {wanted}, not {', '.join(str(d) for d in key)}")
    symbol, result = arg_type_symbol_dict[key]
    return _semantic.extern(symbol, values, _unwrap_if_constexpr(result), is_pure)



# -- loops -------------------------------------------------------------------------------------------------------------
class range:  # noqa: A001
    """``for i in tl.range(…)``: a run-time loop with hints. In the interpreter it counts like Python's range.

    ``num_stages``: iterations in flight of the loads; ``loop_unroll_factor``: iterations a round (a second loop runs those that are
    left); ``flatten``, ``warp_specialize``, ``disallow_acc_multi_buffer``, ``disable_licm``. They are hints that change no result.

    Types: int32, int64.

    Example::

        for j in tl.range(0, n, 4, num_stages=3):
            x += tl.load(p + j + i)
    """

    def __init__(self, arg1: Any, arg2: Any = None, step: Any = None, num_stages: Any = None, loop_unroll_factor: Any = None,
                 disallow_acc_multi_buffer: Any = False, flatten: Any = False, warp_specialize: Any = False, disable_licm: Any = False,
                 _semantic: Any = None):
        self.start: Any = 0 if arg2 is None else arg1
        self.end: Any = arg1 if arg2 is None else arg2
        self.step = 1 if step is None else step
        self.num_stages, self.loop_unroll_factor = num_stages, loop_unroll_factor
        self.disallow_acc_multi_buffer, self.flatten, self.warp_specialize = disallow_acc_multi_buffer, flatten, warp_specialize
        self.disable_licm = disable_licm

    def __iter__(self) -> Any:
        return iter(_python_range(*(int(_unwrap_if_constexpr(v)) for v in (self.start, self.end, self.step))))

    def __next__(self) -> Any:
        raise TypeMismatchError("tl.range is for `for` loops only")


class static_range(range):
    """``for i in tl.static_range(…)``: unrolled while compiling; its bounds are constexprs.

    Types: constexprs.

    Example::

        for j in tl.static_range(4):
            x += tl.load(p + j * 16 + i)
    """

    def __init__(self, arg1: Any, arg2: Any = None, step: Any = None, _semantic: Any = None):
        super().__init__(arg1, arg2, step)
        for v in (self.start, self.end, self.step):
            v = _unwrap_if_constexpr(v)
            if isinstance(v, tensor) or not hasattr(v, "__index__"):
                raise TypeMismatchError(f"static_range takes compile-time integers (constexpr), not {v!r}; use tl.range for run-time bounds")


class condition:
    """``while tl.condition(test, …)``: a run-time loop with hints.

    Types: scalar int1.

    Example::

        j = n
        while tl.condition(j > 0):
            j -= 1
    """

    def __init__(self, arg1: Any, disable_licm: Any = False, _semantic: Any = None):
        self.condition, self.disable_licm = arg1, disable_licm

    def __bool__(self) -> bool:
        return bool(self.condition)


class slice:  # noqa: A001
    """Kept for Triton's name; kernels write ``x[:, None]``."""

    def __init__(self, start: Any, stop: Any, step: Any):
        self.start, self.stop, self.step = start, stop, step


def extern(fn: Any) -> Any:
    """Decorator of functions that call extern_elementwise: a builtin."""
    return builtin(fn)


def _promote_bfloat16_to_float32(t: tensor, _semantic: Any = None) -> tensor:
    return (_semantic or current_semantic()).promote_bf16(t)


__all__ = [
    "CONSTEXPR_0", "ConstexprFunction", "MAX_TENSOR_NUMEL", "PropagateNan", "PROPAGATE_NAN", "TRITON_MAX_TENSOR_NUMEL", "active_semantic", "add", "advance",
    "arange", "associative_scan", "assume", "atomic_add", "atomic_and", "atomic_cas", "atomic_max", "atomic_min", "atomic_or", "atomic_xchg",
    "atomic_xor", "base_type", "base_value", "bfloat16", "block_type", "broadcast", "broadcast_to", "builtin", "cast", "cat", "clamp", "condition",
    "const", "constexpr", "constexpr_function", "constexpr_type", "current_semantic", "debug_barrier", "device_assert", "device_print", "dot",
    "dot_scaled", "dtype", "expand_dims", "extern", "extern_elementwise", "float16", "float32", "float64", "float8e4b15", "float8e4b8",
    "float8e4nv", "float8e5", "float8e5b16", "full", "gather", "get_int_dtype", "histogram", "inline_asm_elementwise", "int1", "int16", "int32", "int64", "int8",
    "is_builtin", "item", "join", "load", "load_tensor_descriptor", "make_block_ptr", "make_tensor_descriptor", "map_elementwise", "max_constancy",
    "max_contiguous", "maximum", "minimum", "mul", "multiple_of", "num_programs", "permute", "pi32_t", "pointer_type", "program_id", "range",
    "reduce", "reshape", "slice", "split", "static_assert", "static_print", "static_range", "store", "store_tensor_descriptor", "str_to_ty",
    "sub", "tensor", "tensor_descriptor", "tensor_descriptor_type", "to_tensor", "trans", "tuple", "tuple_type", "uint16", "uint32", "uint64", "uint8", "view", "void", "where",
]
