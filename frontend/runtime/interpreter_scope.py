"""A kernel's Python as the interpreter runs it: the names that it may read, and the place of its errors.

The same names are refused as in compiled kernels (compiler/names.py), when they are reached. Python's ``breakpoint`` stays, for debuggers.
"""

from __future__ import annotations

import builtins
import itertools
import types
from collections.abc import Callable
from typing import Any

from tilewright import knobs
from tilewright.compiler import names
from tilewright.dialects.errors import (
    CompilationError,
    NameResolutionError,
    TilewrightError,
    mistake_of,
)
from tilewright.runtime.interpreter_memory import InterpreterError

_MISSING = object()
_FOR_DEBUGGERS = frozenset({"breakpoint", "__import__"})
_OF_DEBUGGERS = frozenset({"__pdb_convenience_variables"})  # which pdb keeps in the frame's globals since Python 3.12


class Scope(dict[str, Any]):
    """The globals of a function that is interpreted: reads of them in kernels are checked, and jit functions among them are interpreted. Frames are
    known as the user's by it. It holds copies, which debuggers look names up in, and serves one launch."""

    def __init__(self, values: dict[str, Any], interpreted: Callable[[Any], Any]):
        super().__init__(values)
        self.interpreted = interpreted
        self.known: dict[str, Any] = {}  # what was read before

    def __getitem__(self, name: str) -> Any:  # for LOAD_GLOBAL: Python asks where globals are no plain dict
        value = self.known.get(name, _MISSING)
        if value is _MISSING:
            value = self.known[name] = self._found(name)
        return value

    def _found(self, name: str) -> Any:
        value = self.get(name, _MISSING)
        if value is not _MISSING:
            return self.interpreted(checked(name, value))
        if hasattr(builtins, name):
            if name in names.BUILTIN_NAMES:
                return getattr(builtins, name)
            if name not in _FOR_DEBUGGERS:
                raise NameResolutionError(f"{name} is not defined: Python's {name} is not part of the language")
        raise KeyError(name)


def checked(name: str, value: Any) -> Any:
    """``value``, where a kernel may read a global of that name and value; else raises."""
    if names.may_be_read(name, value) or knobs.compilation.allow_non_constexpr_globals:
        return value
    if name in _OF_DEBUGGERS or name in _FOR_DEBUGGERS and value is getattr(builtins, name):
        return value
    raise names.refused_global(name, value)


# ---------------------------------------------------------------------------------------------------------------- places
def placed(error: Exception) -> Exception | None:
    """The error to raise in place of one that left a kernel: with the user's line, and of the class that a compiled kernel gives. None:
    raise it as it is (it has its place, or comes from a debugger)."""
    if type(error).__module__ == "bdb" or isinstance(error, CompilationError) and error.file:
        return None
    frames = []
    trace = error.__traceback__
    while trace is not None:
        if isinstance(trace.tb_frame.f_globals, Scope):
            frames.append(trace)
        trace = trace.tb_next
    if not frames:
        return None
    if isinstance(error, TilewrightError) and not isinstance(error, (CompilationError, InterpreterError)):
        return None
    told: Any = error if isinstance(error, TilewrightError) else mistake_of(error)
    if isinstance(error, AssertionError):  # Python's assert, which is device_assert's short form
        told = InterpreterError(f"assert does not hold{': ' + str(error) if str(error) else ''}")
    file, line, column = _place(frames[-1])
    out = told.at(file, line, column)
    out.calls += [(f, n, _line(f, n)) for f, n, _ in map(_place, reversed(frames[:-1]))]
    return out.with_traceback(error.__traceback__)  # type: ignore[no-any-return]


def _place(trace: types.TracebackType) -> tuple[str, int, int]:
    code = trace.tb_frame.f_code
    line, column = trace.tb_lineno, 0
    if hasattr(code, "co_positions"):
        at = next(itertools.islice(code.co_positions(), trace.tb_lasti // 2, None), (None,) * 4)
        line, column = at[0] or line, at[2] or 0
    return code.co_filename, line, column


def _line(file: str, number: int) -> str:
    import linecache

    return linecache.getline(file, number).strip()

