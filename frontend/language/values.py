"""Run-time values (``tensor``), tuples of values, and the thread's current semantic.

Language functions work in two modes: the code generator calls them while compiling, or Python calls them while the
interpreter is active. Either sets ``current_semantic()`` for its thread, and functions that get no ``_semantic`` ask it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from tilewright.dialects.errors import TilewrightError, TypeMismatchError
from tilewright.language.const import constexpr, unwrap
from tilewright.language.dtypes import block_type, dtype, tuple_type
from tilewright.language.watch import Watch

_state = threading.local()


def current_semantic() -> Any:
    """The Semantic of this thread: of the running interpreter or code generator. Raises outside both."""
    semantic = getattr(_state, "semantic", None)
    if semantic is None:
        raise TilewrightError("a tl function was called outside a kernel: put it in a function decorated with @jit and launch that "
                              "(TILEWRIGHT_INTERPRET=1 runs kernels in Python)")
    return semantic


class active_semantic:
    """Context manager: make ``semantic`` this thread's current one."""

    def __init__(self, semantic: Any):
        self.semantic = semantic

    def __enter__(self) -> Any:
        self.before = getattr(_state, "semantic", None)
        _state.semantic = self.semantic
        return self.semantic

    def __exit__(self, *exc: Any) -> None:
        _state.semantic = self.before


class base_value:
    """Base of values that exist at run time. Those made of others say of which, so that loops and branches can carry them."""

    __slots__ = ()
    type: Any

    @property
    def parts(self) -> Sequence[Any]:
        """The values in it, in order."""
        return ()

    def with_parts(self, parts: Sequence[Any]) -> Any:
        """The same with other parts."""
        return self

    def same_form(self, other: Any) -> bool:
        """Whether ``other`` is of the same kind, parts aside."""
        return type(self) is type(other) and len(self.parts) == len(other.parts)


class tensor(base_value):
    """A scalar or tile: an opaque ``handle`` of the builder and its ``type`` (dtype, pointer_type or block_type).

    ``const`` is the Python value where it is known while compiling (constants only), else None; it serves to make splat
    constants directly and means nothing else.
    """

    __slots__ = ("handle", "type", "const")

    def __init__(self, handle: Any, type: Any, const: Any = None):
        self.handle = handle
        self.type = type
        self.const = const

    @property
    def dtype(self) -> Any:
        """The element type."""
        return self.type.scalar

    @property
    def shape(self) -> Any:
        """The block's shape; () for a scalar."""
        return self.type.shape

    @property
    def numel(self) -> int:
        return self.type.numel if self.type.is_block() else 1

    @property
    def T(self) -> tensor:
        """The transpose: the last two dims swapped."""
        return current_semantic().trans(self)

    def __repr__(self) -> str:
        return f"tensor({self.type})"

    __str__ = __repr__

    # -- Python values, in the interpreter only --------------------------------------------------------------------
    def _concrete(self) -> Any:
        if self.numel != 1:
            raise TypeMismatchError(f"a tensor of shape {list(self.shape)} has no single value; reduce it first (tl.max, tl.sum)")
        return current_semantic().builder.concrete(self.handle)

    def __bool__(self) -> bool:
        return bool(self._concrete())

    def __int__(self) -> int:
        return int(self._concrete())

    def __float__(self) -> float:
        return float(self._concrete())

    def __index__(self) -> int:
        if not self.dtype.is_int():
            raise TypeMismatchError(f"an integer is needed, not {self.dtype}")
        return int(self._concrete())

    def __hash__(self) -> int:
        return id(self)

    # -- operators -------------------------------------------------------------------------------------------------
    def __getitem__(self, slices: Any) -> Any:
        return current_semantic().getitem(self, slices)

    def __neg__(self, _semantic: Any = None) -> tensor:
        return (_semantic or current_semantic()).minus(self)

    def __pos__(self, _semantic: Any = None) -> tensor:
        return self

    def __invert__(self, _semantic: Any = None) -> tensor:
        return (_semantic or current_semantic()).invert(self)

    def __abs__(self) -> tensor:
        return current_semantic().abs(self)

    def __iter__(self) -> Iterator[Any]:
        raise TypeMismatchError("a tensor cannot be iterated over; tl.split, tl.gather and reductions take elements out of it")

    def logical_and(self, other: Any, _semantic: Any = None) -> tensor:
        """Elementwise ``and`` of truth values: int1."""
        return (_semantic or current_semantic()).logical_and(self, unwrap(other))

    def logical_or(self, other: Any, _semantic: Any = None) -> tensor:
        """Elementwise ``or`` of truth values: int1."""
        return (_semantic or current_semantic()).logical_or(self, unwrap(other))

    def not_(self, _semantic: Any = None) -> tensor:
        return (_semantic or current_semantic()).not_(self)

    # kernels call them as methods
    logical_and.__triton_builtin__ = logical_or.__triton_builtin__ = True  # type: ignore[attr-defined]

    def __contains__(self, item: Any) -> bool:
        raise TypeMismatchError("`in` does not search tensors; compare and reduce instead")


def _install_operators() -> None:
    def binary(method: str, swap: bool) -> Callable[..., Any]:
        told_as = f"operator {method.strip('_')}"

        def operator(self: tensor, other: Any, _semantic: Any = None) -> Any:
            other = unwrap(other)
            if hasattr(other, "__triton_aggregate__"):  # its own method is asked
                return NotImplemented
            fn = getattr(_semantic or current_semantic(), method)
            if Watch.observer is not None:
                return Watch.observer(told_as, (self, other), {}, lambda: fn(other, self) if swap else fn(self, other))
            return fn(other, self) if swap else fn(self, other)

        return operator

    for name, method in {"add": "add", "sub": "sub", "mul": "mul", "truediv": "truediv", "floordiv": "floordiv", "mod": "mod",
                         "and": "and_", "or": "or_", "xor": "xor_", "lshift": "shl", "rshift": "shr"}.items():
        setattr(tensor, f"__{name}__", binary(method, False))
        setattr(tensor, f"__r{name}__", binary(method, True))
    for name, method in {"lt": "less_than", "le": "less_equal", "gt": "greater_than", "ge": "greater_equal",
                         "eq": "equal", "ne": "not_equal"}.items():
        setattr(tensor, f"__{name}__", binary(method, False))


_install_operators()


class tuple(base_value):  # noqa: A001  (Triton's name)
    """A tuple of values in a kernel. ``fields``: the names of a named tuple."""

    __slots__ = ("values", "fields")

    def __init__(self, values: Sequence[Any], fields: Sequence[str] | None = None):
        self.values = list(values)
        self.fields = list(fields) if fields else None

    @property
    def type(self) -> Any:  # type: ignore[override]
        return tuple_type([v.type if hasattr(v, "type") else None for v in self.values], self.fields)

    @property
    def parts(self) -> Sequence[Any]:
        return self.values

    def with_parts(self, parts: Sequence[Any]) -> Any:
        return tuple(parts, self.fields)

    def __getattr__(self, name: str) -> Any:
        fields = object.__getattribute__(self, "fields")
        if fields and name in fields:
            return self.values[fields.index(name)]
        raise AttributeError(f"a tuple with {'the fields ' + ', '.join(fields) if fields else 'no named fields'} has no {name!r}")

    def __len__(self) -> int:
        return len(self.values)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.values)

    def __getitem__(self, index: Any) -> Any:
        index = unwrap(index)
        if isinstance(index, slice):
            return tuple(self.values[slice(unwrap(index.start), unwrap(index.stop), unwrap(index.step))])
        if not isinstance(index, int):
            raise TypeMismatchError(f"a tuple is indexed by a compile-time integer, not {index}")
        if not -len(self.values) <= index < len(self.values):
            raise TypeMismatchError(f"index {index} is outside a tuple of {len(self.values)} values")
        return self.values[index]

    def __add__(self, other: Any) -> tuple:
        return tuple([*self.values, *other])

    def __radd__(self, other: Any) -> tuple:
        return tuple([*other, *self.values])

    def __mul__(self, count: Any) -> tuple:
        return tuple(self.values * int(unwrap(count)))

    def __eq__(self, other: Any) -> Any:
        return len(self) == len(other) and all(bool(a == b) for a, b in zip(self.values, other))

    def __hash__(self) -> int:
        return hash(len(self.values))

    def __repr__(self) -> str:
        items = [repr(v.value) if type(v) is constexpr else repr(v) for v in self.values]
        return f"({', '.join(items)}{',' if len(items) == 1 else ''})"


def is_tensor(value: Any) -> bool:
    return isinstance(value, tensor)


__all__ = ["active_semantic", "base_value", "block_type", "constexpr", "current_semantic", "dtype", "is_tensor", "tensor", "tuple", "unwrap"]
