"""An observer of the language's calls. The conformance suite learns by it which names and types its tests use."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Watch:
    """Who is told of calls of the language: nobody (None), or ``observer(name, args, kwargs, call)``."""

    observer: Callable[..., Any] | None = None


def observe(observer: Callable[..., Any] | None) -> None:
    """Hand every call of a function or operator of the language, compiled or interpreted, to ``observer`` (None, the default: to nobody).

    It stands in the place of the call: it is called as ``observer(name, args, kwargs, call)`` and has to return what ``call()`` returns.
    ``name`` is the function's, with its owner's before it where that is not the language itself: "load", "libdevice.tanh",
    "tensor_descriptor.load", "operator +". Operators are told of in the interpreter alone. There is one observer a process.
    """
    Watch.observer = observer


__all__ = ["Watch", "observe"]
