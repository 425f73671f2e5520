"""Python's functions that are part of the language, for the code generator and the interpreter. Nothing here touches IR."""

from __future__ import annotations

import builtins
import itertools
from collections.abc import Sequence
from typing import Any

from tilewright.compiler.rules import ValueRules, is_static, static_value, wrap
from tilewright.dialects.errors import TypeMismatchError
from tilewright.language import core
from tilewright.language import dtypes as t
from tilewright.language.const import constexpr
from tilewright.language.values import tensor
from tilewright.language.values import tuple as tl_tuple


class PythonFunctions(ValueRules):
    """``python_functions``: function of Python's → what kernels call in its place, with the rules first; ``builtin_names``: by name."""

    def _len(self, value: Any) -> Any:
        if isinstance(value, tensor):
            if not value.type.is_block():
                raise TypeMismatchError("a scalar has no length")
            return constexpr(value.shape[0])
        return constexpr(len(value if isinstance(value, tl_tuple) else static_value(value)))

    def _extremum(self, name: str, values: Sequence[Any]) -> Any:
        if len(values) == 1:
            values = self.static_iterable(values[0], name)
        if all(is_static(v) for v in values):
            return wrap(getattr(builtins, name)(static_value(v) for v in values))
        out = values[0]
        for v in values[1:]:
            out = getattr(self.semantic, f"{name}imum")(out, v)
        return out

    def _min(self, *values: Any) -> Any:
        return self._extremum("min", values)

    def _max(self, *values: Any) -> Any:
        return self._extremum("max", values)

    def _abs(self, value: Any) -> Any:
        return wrap(abs(static_value(value))) if is_static(value) else self.semantic.abs(value)

    def _float(self, value: Any = 0.0) -> Any:
        if isinstance(value, tensor):
            return value if value.dtype.is_floating() else self.semantic.cast(value, t.float32)
        return constexpr(float(static_value(value)))

    def _int(self, value: Any = 0) -> Any:
        if isinstance(value, tensor):
            return value if value.dtype.is_int() and not value.dtype.is_bool() else self.semantic.cast(value, t.int32)
        return constexpr(int(static_value(value)))

    def _bool(self, value: Any = False) -> Any:
        return self.semantic.to_bool(value) if isinstance(value, tensor) else constexpr(bool(static_value(value)))

    def _str(self, value: Any = "") -> Any:
        return constexpr(str(static_value(value)) if is_static(value) else str(value))

    def _repr(self, value: Any) -> Any:
        return constexpr(repr(static_value(value)) if is_static(value) else repr(value))

    def _isinstance(self, value: Any, kinds: Any) -> Any:
        kinds = list(kinds.values) if isinstance(kinds, tl_tuple) else [kinds]
        raw = static_value(value) if type(value) is constexpr else value
        for kind in kinds:
            kind = static_value(kind)
            if kind is constexpr and type(value) is constexpr or isinstance(raw, kind) or (kind is tuple and isinstance(raw, tl_tuple)):
                return constexpr(True)
        return constexpr(False)

    def _print(self, *values: Any, **kwargs: Any) -> Any:
        """Python's print is device_print: strings first, then tensors and numbers."""
        strange = sorted(set(kwargs) - {"hex"})
        if strange:
            raise TypeMismatchError(f"print in a kernel is tl.device_print, whose only keyword is hex; found {', '.join(strange)}")
        texts = list(itertools.takewhile(lambda v: isinstance(v, str), (static_value(v) if is_static(v) else v for v in values)))
        self.semantic.device_print(" ".join(texts), values[len(texts):], bool(static_value(kwargs.get("hex", False))))
        return constexpr(None)

    def _getattr(self, value: Any, name: Any, *default: Any) -> Any:
        name = static_value(name)
        try:
            target = value.value if type(value) is constexpr else value
            return wrap(getattr(target, name))
        except AttributeError:
            if default:
                return default[0]
            raise

    def _hasattr(self, value: Any, name: Any) -> Any:
        target = value.value if type(value) is constexpr else value
        return constexpr(hasattr(target, static_value(name)))

    def _tuple(self, value: Any = ()) -> Any:
        return tl_tuple(self.static_iterable(value, "tuple"))

    def _range(self, *args: Any, **kwargs: Any) -> Any:
        if not 1 <= len(args) <= 3:
            raise TypeMismatchError(f"range takes 1 to 3 bounds, not {len(args)}")
        return core.range(*args, **kwargs)

    def _zip(self, *values: Any) -> Any:
        return tl_tuple([tl_tuple(list(items)) for items in zip(*(self.static_iterable(v, "zip") for v in values))])

    def _enumerate(self, value: Any, start: Any = 0) -> Any:
        return tl_tuple([tl_tuple([constexpr(i), v]) for i, v in enumerate(self.static_iterable(value, "enumerate"), static_value(start))])

    def _reversed(self, value: Any) -> Any:
        return tl_tuple(list(reversed(self.static_iterable(value, "reversed"))))

    def _pow(self, base: Any, exponent: Any) -> Any:
        if is_static(base) and is_static(exponent):
            return wrap(static_value(base) ** static_value(exponent))
        from tilewright.language.extra import libdevice

        return libdevice.pow(base, exponent, _semantic=self.semantic)

    def _sum(self, values: Any, start: Any = 0) -> Any:
        out = wrap(start)
        for v in self.static_iterable(values, "sum"):
            out = self.semantic.add(out, v) if isinstance(out, tensor) or isinstance(v, tensor) else wrap(static_value(out) + static_value(v))
        return out

    def _any(self, values: Any) -> Any:
        return constexpr(any(static_value(v) for v in self.static_iterable(values, "any")))

    def _all(self, values: Any) -> Any:
        return constexpr(all(static_value(v) for v in self.static_iterable(values, "all")))

    python_functions: dict[Any, Any] = {len: _len, min: _min, max: _max, abs: _abs, float: _float, int: _int, bool: _bool, str: _str, repr: _repr,
                        isinstance: _isinstance, print: _print, getattr: _getattr, hasattr: _hasattr, tuple: _tuple, list: _tuple,
                        range: _range, zip: _zip, enumerate: _enumerate, reversed: _reversed, pow: _pow, sum: _sum, any: _any, all: _all}
    builtin_names = {f.__name__: f for f in python_functions} | {"slice": slice, "Ellipsis": Ellipsis}


__all__ = ["PythonFunctions"]
