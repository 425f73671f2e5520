"""``tl.core``, third part: elementwise functions, products, reductions and scans."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any

from tilewright.dialects.errors import TypeMismatchError
from tilewright.language.decorators import builtin, member
from tilewright.language.dtypes import float32
from tilewright.language.values import tensor
from tilewright.language.values import tuple as tuple  # noqa: A004


class PropagateNan(Enum):
    """What minimum, maximum and clamp do with NaN: ``NONE`` ignores it, ``ALL`` keeps it."""

    NONE = 0
    ALL = 0xFFFF


PROPAGATE_NAN = PropagateNan


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
    if not isinstance(propagate_nan, PropagateNan):
        raise TypeMismatchError(f"propagate_nan is tl.PropagateNan.NONE or tl.PropagateNan.ALL, not {propagate_nan!r}")
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
    """``x + y``. Integers wrap.

    With the options debug=True and sanitize_overflow=True (the default) a program stops where the exact result of integers of up to 32 bits does not
    fit their type; ``sanitize_overflow`` False lets this one wrap.

    Types: integers and floats, pointers.

    Example::

        z = tl.add(x, y)
        z = x + y
    """
    return _semantic.add(x, y, bool(sanitize_overflow))


@builtin
def sub(x: Any, y: Any, sanitize_overflow: Any = True, _semantic: Any = None) -> tensor:
    """``x - y``. Integers wrap.

    With the options debug=True and sanitize_overflow=True (the default) a program stops where the exact result of integers of up to 32 bits does not
    fit their type; ``sanitize_overflow`` False lets this one wrap.

    Types: integers and floats, pointers.

    Example::

        z = tl.sub(x, y)
        z = x - y
    """
    return _semantic.sub(x, y, bool(sanitize_overflow))


@builtin
def mul(x: Any, y: Any, sanitize_overflow: Any = True, _semantic: Any = None) -> tensor:
    """``x * y``. Integers wrap.

    With the options debug=True and sanitize_overflow=True (the default) a program stops where the exact result of integers of up to 32 bits does not
    fit their type; ``sanitize_overflow`` False lets this one wrap.

    Types: integers and floats.

    Example::

        z = tl.mul(x, y)
        z = x * y
    """
    return _semantic.mul(x, y, bool(sanitize_overflow))


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
    added in fp32. ``fast_math`` takes a scale of 255 for infinity. Instructions that have scales, where a target has them (tiles of e2m1, e4m3 and e5m2 that are multiples of
    16 × 16 × 128 or 32 × 32 × 64, with e8m0 scales) round nothing: beyond that range they give what the exact products do, and 255 is always NaN.
    ``out_dtype`` can only be float32.

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
