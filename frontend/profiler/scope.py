"""Scopes and states: names under which launches appear in a profile."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any

from tilewright.dialects.errors import ArgumentError
from tilewright.profiler.session import ProfilerError, add_metrics, here, profiling, scope_ids


class scope:
    """``with scope("name", {"metric": 1}): …``, or ``@scope("name")`` over a function: launches inside appear below ``name``; the metrics are added to it."""

    def __init__(self, name: str, metrics: Mapping[str, float] | None = None):
        self.name, self.metrics = name, metrics
        self.id: int | None = None

    def _enter(self) -> None:
        self.id = enter_scope(self.name, metrics=self.metrics)

    def _leave(self) -> None:
        if self.id is not None:
            exit_scope(self.name)

    def __enter__(self) -> scope:
        self._enter()
        return self

    def __exit__(self, *_: Any) -> None:
        self._leave()

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            with type(self)(self.name, self.metrics):  # one of its own: calls may nest
                return function(*args, **kwargs)

        return wrapper


class cpu_timed_scope(scope):
    """A scope whose host time is added to it as ``cpu_time (ns)(exc)``."""

    def __init__(self, name: str, metrics: Mapping[str, float] | None = None):
        if metrics and "cpu_time" in metrics:
            raise ArgumentError("the metric cpu_time is the scope's own; call yours otherwise")
        super().__init__(name, metrics)

    def _enter(self) -> None:
        super()._enter()
        self._begin = time.perf_counter_ns()

    def _leave(self) -> None:
        if self.id is not None:
            add_metrics([n for _, n in here.scopes], {"cpu_time (ns)(exc)": time.perf_counter_ns() - self._begin})
        super()._leave()


def enter_scope(name: str, *, metrics: Mapping[str, float] | None = None) -> int | None:
    """Begin a scope on this thread; its number, or None where nothing is profiled."""
    if not profiling():
        return None
    number = next(scope_ids)
    here.scopes.append((number, name))
    add_metrics([n for _, n in here.scopes], metrics or {})
    return number


def exit_scope(name: str | None = None, *, metrics: Mapping[str, float] | None = None) -> int | None:
    """End this thread's innermost scope, which is called ``name`` where that is given; its number. Raises ProfilerError where it is not."""
    if not here.scopes:
        if not profiling():
            return None
        raise ProfilerError("exit_scope without a scope that was entered on this thread")
    number, innermost = here.scopes[-1]
    if name is not None and name != innermost:
        raise ProfilerError(f"the innermost scope is {innermost!r}, not {name!r}")
    add_metrics([n for _, n in here.scopes], metrics or {})
    here.scopes.pop()
    return number


class state:
    """``with state("name")``: launches inside appear below ``name``, whatever states are around it."""

    def __init__(self, name: str):
        self.name = name

    def __enter__(self) -> state:
        enter_state(self.name)
        return self

    def __exit__(self, *_: Any) -> None:
        exit_state()

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            with state(self.name):
                return function(*args, **kwargs)

        return wrapper


def enter_state(name: str) -> None:
    """Begin a state on this thread."""
    here.states.append(name)


def exit_state() -> None:
    """End this thread's innermost state. Raises ProfilerError where there is none."""
    if not here.states:
        raise ProfilerError("exit_state without a state that was entered on this thread")
    here.states.pop()
