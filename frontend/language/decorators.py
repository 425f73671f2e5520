"""How functions of the language are declared."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

from tilewright.language.const import constexpr
from tilewright.language.values import current_semantic, tensor
from tilewright.language.watch import Watch

F = TypeVar("F", bound=Callable[..., Any])


def _unwrap(value: Any) -> Any:
    return value.value if type(value) is constexpr else value


def builtin(fn: F) -> F:
    """A function of the language: called with constexprs as plain Python values, and with the semantic of its thread.

    Anybody may declare one; it takes ``_semantic`` and builds with it.
    """

    owner = "libdevice" if fn.__module__.endswith(".libdevice") else fn.__qualname__.rpartition(".")[0].rpartition(".")[2]
    told_as = f"{owner}.{fn.__name__}" if owner not in ("", "<locals>") else fn.__name__

    @functools.wraps(fn)
    def wrapper(*args: Any, _semantic: Any = None, **kwargs: Any) -> Any:
        args = tuple([_unwrap(a) for a in args])
        if kwargs:
            kwargs = {k: _unwrap(v) for k, v in kwargs.items()}
        if Watch.observer is not None:
            return Watch.observer(told_as, args, kwargs, lambda: fn(*args, **kwargs, _semantic=_semantic or current_semantic()))
        return fn(*args, **kwargs, _semantic=_semantic or current_semantic())

    wrapper.__triton_builtin__ = True  # type: ignore[attr-defined]
    return wrapper  # type: ignore[return-value]


def member(fn: F) -> F:
    """Make a builtin a method of tensors too."""
    setattr(tensor, fn.__name__, fn)
    return fn


def is_builtin(fn: Any) -> bool:
    return getattr(fn, "__triton_builtin__", False)
