"""A profiler of launches, under the names of Triton's Proton.

``start("name")``, work, ``finalize()``: the file name.hatchet then holds, for every scope and kernel, how often it ran and for how long, by the
event timers of the target that ran it. ``viewer.print_tree`` shows it, hatchet and Triton's viewer read it. Nothing inside of kernels is
instrumented or sampled. Launches are slower while a session is active: the host times them one by one.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import wraps
from typing import Any

from tilewright import knobs
from tilewright.profiler import session as _session
from tilewright.profiler.flags import flags
from tilewright.profiler.scope import cpu_timed_scope, enter_scope, enter_state, exit_scope, exit_state, scope, state
from tilewright.profiler.session import ProfilerError

DEFAULT_PROFILE_NAME = "proton"


def start(name: str | None = None, *, context: str = "shadow", data: str = "tree", backend: str | None = None, mode: Any = None,
          hook: str | None = None) -> int | None:
    """Begin a session; its number, or None where TRITON_PROTON_DISABLE=1 or the command line profiles already.

    name: of the file, with its folder and without its ending. context: launches appear below the scopes around them ("shadow") or below the
    Python calls that led to them ("python"). data: counts and sums ("tree"), or every launch with its time ("trace", for chrome://tracing).
    hook="triton": kernels appear as their ``launch_metadata`` names them, with its flops and bytes. Raises ArgumentError for what is not built.
    """
    if knobs.proton.disable or flags.command_line:
        return None
    return _session.begin(DEFAULT_PROFILE_NAME if name is None else name, context, data, backend, mode, hook)


def activate(session: int | None = None) -> None:
    """Record launches in a session (None: in all)."""
    _session.set_active(session, True)


def deactivate(session: int | None = None) -> None:
    """Record no more launches in a session (None: in all), until ``activate``."""
    _session.set_active(session, False)


def finalize(session: int | None = None, output_format: str | None = "") -> list[str]:
    """End a session (None: all) and write its file: "hatchet" (a tree as JSON) or, of data="trace", "chrome_trace". The files' paths."""
    return _session.end(session, output_format or "")


def profile(func: Callable[..., Any] | None = None, *, name: str | None = None, context: str = "shadow", data: str = "tree", backend: str | None = None,
            mode: Any = None, hook: str | None = None) -> Any:
    """Decorator: each call is a session of its own, deactivated at its end; ``finalize`` writes the files."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            number = start(name, context=context, data=data, backend=backend, mode=mode, hook=hook)
            try:
                return function(*args, **kwargs)
            finally:
                if number is not None:
                    deactivate(number)

        return wrapper

    return decorate if func is None else decorate(func)


def __getattr__(name: str) -> Any:
    if name in ("viewer", "proton"):
        return importlib.import_module(f"{__name__}.{name}")
    if name in ("language", "mode", "specs", "context"):
        raise AttributeError(f"module {__name__!r} has no {name!r}: kernels are timed as a whole, and nothing inside of them is instrumented or sampled")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = ["DEFAULT_PROFILE_NAME", "ProfilerError", "activate", "cpu_timed_scope", "deactivate", "enter_scope", "enter_state", "exit_scope", "exit_state",
           "finalize", "profile", "scope", "start", "state"]
