"""Aggregates: classes whose instances are values of kernels, made of tensors, constexprs, tuples and other aggregates."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Sequence
from typing import Any

from tilewright.dialects.errors import TypeMismatchError, UnsupportedLanguageConstruct
from tilewright.language.const import constexpr
from tilewright.language.dtypes import dtype
from tilewright.language.values import base_value, current_semantic, tensor
from tilewright.language.values import tuple as tl_tuple


def _is_jit(member: Any) -> bool:
    return hasattr(member, "fn") and (hasattr(member, "parse") or hasattr(member, "run"))


class aggregate_type(dtype):
    """The type of an aggregate: its class and the types of its fields."""

    def __init__(self, cls: type, fields: Sequence[tuple[str, Any]]):
        self.base_cls, self.fields = cls, list(fields)
        self.name = f"{cls.__name__}<{', '.join(str(t) for _, t in self.fields)}>"
        self.primitive_bitwidth = self.int_bitwidth = 0
        self._hash = hash((cls, self.name))

    def mangle(self) -> str:
        return "A" + "_".join([self.base_cls.__name__, *(t.mangle() for _, t in self.fields)]) + "A"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, aggregate_type) and self.base_cls is other.base_cls and self.fields == other.fields

    def __hash__(self) -> int:
        return self._hash


class BoundMethod:
    """A jit method of an aggregate with the instance that it was taken from. The code generator inlines it."""

    def __init__(self, function: Any, instance: Any):
        self.__func__, self.__self__ = function, instance
        self.__name__ = getattr(function, "__name__", "method")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return _call(self.__func__, [self.__self__, *args], kwargs)


def _call(function: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """Call a jit function from Python, in a kernel that is being compiled or interpreted."""
    semantic = current_semantic()
    if semantic.builder.is_interpreter:
        from tilewright.runtime.interpreter import interpreted

        return interpreted(function)(*args, **kwargs)
    return semantic.call_jit(function, args, kwargs)


class _JitMethod:
    """Gives a jit function as a method of the instance that it is read from."""

    def __init__(self, function: Any):
        self.function = function

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self.function if instance is None else BoundMethod(self.function, instance)


class Aggregate(base_value):
    """Base of the classes that ``_aggregate`` makes."""

    __triton_builtin__ = True
    __triton_aggregate__ = True
    _fields_: dict[str, Any] = {}
    _init_: Any = None
    hash_attrs: list[Any] = []
    members: dict[str, Any] = {}

    def __new__(cls, *args: Any, _semantic: Any = None, _generator: Any = None, **kwargs: Any) -> Any:
        instance = object.__new__(cls)
        init = cls._init_
        if _is_jit(init):
            _call(init, [instance, *args], kwargs)
        else:
            parameters = inspect.signature(getattr(init, "fn", init)).parameters
            given = {"_semantic": _semantic, "_generator": _generator}
            init(instance, *args, **{k: v for k, v in given.items() if k in parameters}, **kwargs)
        instance._check()
        return instance

    def __init__(self, *args: Any, **kwargs: Any):
        """``__new__`` has called the user's."""

    def _check(self) -> None:
        for name in self._fields_:
            if name not in self.__dict__:
                raise TypeMismatchError(f"__init__ of {type(self).__name__} does not assign the field {name}")

    @classmethod
    def kind_of(cls, name: str) -> Any:
        """The annotation of a field, resolved where it is a string; None of what is no field."""
        return _resolved(cls, cls._fields_.get(name))

    def __setattr__(self, name: str, value: Any) -> None:
        fields = self._fields_
        if name not in fields:
            raise TypeMismatchError(f"{type(self).__name__} has no field {name!r}; its fields are {', '.join(fields) or 'none'} (the annotations of the class)")
        if name in self.__dict__:
            raise UnsupportedLanguageConstruct(f"the field {name} of {type(self).__name__} has its value; make a new {type(self).__name__} instead")
        kind = self.kind_of(name)
        if isinstance(kind, type):
            value = _as_kind(value, kind)
            if not isinstance(value, kind):
                raise TypeMismatchError(f"the field {name} of {type(self).__name__} is declared {kind.__name__}, and is given "
                                        f"{value!r} of type {type(value).__name__}")
        self.__dict__[name] = value

    @property
    def type(self) -> Any:  # type: ignore[override]
        return aggregate_type(type(self), [(name, self.__dict__[name].type) for name in self._fields_])

    # -- values in pieces
    @property
    def parts(self) -> list[Any]:
        return [self.__dict__[name] for name in self._fields_]

    def with_parts(self, parts: Sequence[Any]) -> Any:
        out = object.__new__(type(self))
        out.__dict__.update(zip(self._fields_, parts))
        return out

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{n}={self.__dict__.get(n)!r}' for n in self._fields_)})"


def _resolved(cls: type, annotation: Any) -> Any:
    """The class that an annotation names, also where annotations are strings; the string where it names none."""
    if not isinstance(annotation, str):
        return annotation
    init = cls._init_  # type: ignore[attr-defined]
    scope = getattr(getattr(init, "fn", init), "__globals__", None) or vars(sys.modules[cls.__module__])
    try:
        return eval(annotation, dict(scope))  # what Python itself does with annotations
    except (NameError, AttributeError, SyntaxError):
        return annotation


def _as_kind(value: Any, kind: type) -> Any:
    """Python's numbers, which interpreted kernels have where compiled ones have constexprs and tensors, as what the field is declared."""
    if kind is constexpr and not isinstance(value, base_value) and type(value) is not constexpr:
        return constexpr(value)
    if kind is tl_tuple and isinstance(value, (tuple, list)):
        return tl_tuple(list(value), getattr(value, "_fields", None))
    if kind is tensor and isinstance(value, (bool, int, float)) and current_semantic().builder.is_interpreter:
        return current_semantic().to_tensor(value)
    return value


def aggregate(cls: type) -> Any:
    """Decorator: make instances of a class values of kernels, with the class's annotations as fields.

    Fields are tensors (``tl.tensor``), ``tl.constexpr``, ``tl.tuple`` or other aggregates. ``__init__`` (a Python function, a
    ``constexpr_function`` or a jit function) assigns each of them once; methods are jit functions, ``constexpr_function``s or Python
    functions that run while compiling. Instances are carried through branches, loops and calls; they do not change, a new one is made
    instead. Operators between them are methods such as ``__add__``. Returns the class. Raises TypeMismatchError for a value of another
    kind than the field's, for a field that is not declared, and where ``__init__`` leaves one out.

    Example::

        @tl.core._aggregate
        class Range:
            low: tl.tensor
            high: tl.tensor

            def __init__(self, low, high):
                self.low = low
                self.high = high

            @triton.jit
            def length(self):
                return self.high - self.low
    """
    members: dict[str, Any] = {}
    for name, member in inspect.getmembers_static(cls) if hasattr(inspect, "getmembers_static") else [(n, inspect.getattr_static(cls, n)) for n in dir(cls)]:
        if name == "__init__" or name in vars(object):
            continue
        if _is_jit(member):
            members[name] = _JitMethod(member)
        elif inspect.isfunction(member) or isinstance(member, (property, staticmethod, classmethod)) or hasattr(member, "__get__") and hasattr(member, "fn"):
            members[name] = member
    for name in ("__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__", "__repr__", "__str__"):
        if name in vars(cls):
            member = vars(cls)[name]
            members[name] = _JitMethod(member) if _is_jit(member) else member
    init = vars(cls).get("__init__") or getattr(cls, "__init__")  # noqa: B009 - the class's own
    functions = {"__init__": init, **{n: m.function if isinstance(m, _JitMethod) else m for n, m in members.items()}}
    names: dict[str, Any] = {}
    for base in reversed(cls.__mro__):
        names.update(base.__dict__.get("__annotations__", {}))
    made = type(cls.__name__, (Aggregate,), {
        **members, "__module__": cls.__module__, "__qualname__": cls.__qualname__, "__doc__": cls.__doc__, "__hash__": object.__hash__,
        "_fields_": names, "_init_": staticmethod(init) if inspect.isfunction(init) else _Plain(init),
        "members": functions, "hash_attrs": list(functions.values())})
    return made


class _Plain:
    """Holds a callable in a class without making it a method."""

    def __init__(self, value: Any):
        self.value = value

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self.value


__all__ = ["Aggregate", "BoundMethod", "aggregate", "aggregate_type"]
