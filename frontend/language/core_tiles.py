"""``tl.core``, first part: the grid, making tensors, and their shapes."""

from __future__ import annotations

from typing import Any

from tilewright.dialects.errors import TypeMismatchError
from tilewright.language.const import unwrap as _unwrap_if_constexpr
from tilewright.language.decorators import builtin, member
from tilewright.language.values import tensor
from tilewright.language.values import tuple as tuple  # noqa: A004


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
