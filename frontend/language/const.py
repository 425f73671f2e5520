"""Values known while compiling. Their arithmetic is Python's: ``-7 // 2 == -4``, where run-time integers truncate."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from typing import Any


def unwrap(value: Any) -> Any:
    """The Python value of a constexpr, or the value itself; tuples and lists are unwrapped inside."""
    kind = type(value)
    if kind is constexpr:
        return value.value
    if kind is tuple or kind is list:
        return kind([unwrap(v) for v in value])
    return value


class constexpr:
    """A compile-time value. As an annotation: an argument or variable that has to be one.

    Operators between constexprs and Python values give constexprs; with a tensor they give tensors.
    """

    __module__ = __name__.rpartition(".")[0] + ".core"  # as in Triton; by this module's name no attribute leads here: ``language.const`` is a class

    __slots__ = ("value",)
    value: Any

    def __init__(self, value: Any):
        _set(self, unwrap(value) if type(value) is constexpr else value)

    def __setattr__(self, name: str, value: Any) -> None:
        try:
            object.__getattribute__(self, "value")
        except AttributeError:  # a copy, or what a pickle gives
            object.__setattr__(self, name, value)
        else:
            object.__setattr__(self, name, value)
            for tell in listeners:
                tell()

    @property
    def type(self) -> Any:
        return constexpr_type(self.value)

    def __repr__(self) -> str:
        return f"constexpr[{self.value}]"

    def __str__(self) -> str:
        return str(self.value)

    def __format__(self, spec: str) -> str:
        return format(self.value, spec)

    def __index__(self) -> int:
        return operator.index(self.value)

    def __int__(self) -> int:
        return int(self.value)

    def __float__(self) -> float:
        return float(self.value)

    def __bool__(self) -> bool:
        return bool(self.value)

    def __hash__(self) -> int:
        return hash(self.value)

    def __len__(self) -> int:
        return len(self.value)

    def __iter__(self) -> Any:
        return iter(self.value)

    def __contains__(self, item: Any) -> bool:
        return unwrap(item) in self.value

    def __getitem__(self, item: Any) -> Any:
        return self.value[unwrap(item)]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.value(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.value, name)

    def __neg__(self) -> constexpr:
        return constexpr(-self.value)

    def __pos__(self) -> constexpr:
        return constexpr(+self.value)

    def __invert__(self) -> constexpr:
        return constexpr(~self.value)

    def __abs__(self) -> constexpr:
        return constexpr(abs(self.value))

    def logical_and(self, other: Any) -> constexpr:
        return constexpr(self.value and unwrap(other))

    def logical_or(self, other: Any) -> constexpr:
        return constexpr(self.value or unwrap(other))

    def not_(self) -> constexpr:
        return constexpr(not self.value)


_set = constexpr.__dict__["value"].__set__


listeners: list[Callable[[], object]] = []  # called when another value is assigned to a constexpr: a kernel may have been compiled with the old one


def _is_runtime(value: Any) -> bool:
    return hasattr(value, "handle")


def _install_operators() -> None:
    def binary(fn: Callable[[Any, Any], Any], swap: bool) -> Callable[[constexpr, Any], Any]:
        def method(self: constexpr, other: Any) -> Any:
            if _is_runtime(other):
                return NotImplemented
            other = unwrap(other)
            return constexpr(fn(other, self.value) if swap else fn(self.value, other))

        return method

    for name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "lshift", "rshift", "and", "or", "xor"):
        fn = getattr(operator, name + "_" if name in ("and", "or") else name)
        setattr(constexpr, f"__{name}__", binary(fn, False))
        setattr(constexpr, f"__r{name}__", binary(fn, True))
    for name in ("lt", "le", "gt", "ge", "eq", "ne"):
        setattr(constexpr, f"__{name}__", binary(getattr(operator, name), False))


_install_operators()


class constexpr_type:
    """The type of a constexpr: its value."""

    def __init__(self, value: Any):
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, constexpr_type) and self.value == other.value

    def __hash__(self) -> int:
        return hash(self.value) if getattr(self.value, "__hash__", None) else 0

    def __repr__(self) -> str:
        return f"constexpr_type[{self.value}]"

    def mangle(self) -> str:
        return repr(self)


class ConstexprFunction:
    """A Python function that runs while compiling: its arguments and result are constexprs. On the host, the function itself."""

    def __init__(self, fn: Callable[..., Any]):
        self.fn = fn
        self.__name__ = getattr(fn, "__name__", "constexpr_function")
        self.__module__ = getattr(fn, "__module__", "")
        self.__doc__ = fn.__doc__

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        kwargs.pop("_semantic", None)
        return self.fn(*(unwrap(a) for a in args), **{k: unwrap(v) for k, v in kwargs.items()})

    @property
    def src(self) -> str:
        """The function's source without its decorators, as torch.compile copies it. Raises OSError where there is none."""
        from inspect import getsource
        from textwrap import dedent

        source = dedent(getsource(self.fn))
        return source[search.start():] if (search := re.search(r"^def\s+\w+\s*\(", source, re.MULTILINE)) else source

    def __get__(self, obj: Any, owner: Any = None) -> Any:
        return self if obj is None else _BoundConstexprFunction(self, obj)


class _BoundConstexprFunction(ConstexprFunction):
    def __init__(self, function: ConstexprFunction, obj: Any):
        super().__init__(lambda *a, **k: function.fn(obj, *a, **k))


def constexpr_function(fn: Callable[..., Any]) -> ConstexprFunction:
    """Decorator: call ``fn`` while compiling, with Python values, also from inside kernels."""
    return ConstexprFunction(fn)
