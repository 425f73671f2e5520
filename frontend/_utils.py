"""Small host functions with Triton's names, that kernels may call with constexprs too."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

from tilewright.dialects.errors import ArgumentError
from tilewright.language.const import constexpr_function


@constexpr_function
def cdiv(x: int, y: int) -> int:
    """x / y rounded up; integers. Raises ArgumentError for floats, whose result would be another number."""
    for v in (x, y):
        if isinstance(v, (float, str)) or v is None:
            raise ArgumentError(f"cdiv takes integers; found {v!r} ({type(v).__name__})")
    if isinstance(y, int) and y == 0:
        raise ArgumentError(f"cdiv({x!r}, 0) divides by zero")
    return (x + y - 1) // y


@constexpr_function
def next_power_of_2(n: int) -> int:
    """The smallest power of two that is at least n (1 for n below 2). Raises ArgumentError for what is no integer."""
    if isinstance(n, (str, bytes)) or n is None or (isinstance(n, float) and n % 1 != 0):
        raise ArgumentError(f"next_power_of_2 takes an integer; found {n!r} ({type(n).__name__})")
    return 1 if n <= 1 else 1 << (int(n) - 1).bit_length()


_allocator: Callable[[int, int, Any], Any] | None = None


def set_allocator(allocator: Callable[[int, int, Any], Any] | None) -> None:
    """Set ``allocator(size_bytes, alignment, stream) → array``, asked for a launch's scratch memory in device memory.

    Programs for Triton set one where kernels make tensor descriptors, which there need memory for what the hardware reads of them.
    Here none does: descriptors become pointers, or what the host hands to the kernel with its arguments. So it is kept, and not called.
    """
    global _allocator
    if allocator is not None and not callable(allocator):
        raise ArgumentError(f"an allocator is called; {allocator!r} cannot be")
    _allocator = allocator


def get_allocator() -> Callable[[int, int, Any], Any] | None:
    """The allocator that was set, or None."""
    return _allocator


def find_paths_if(iterable: Any, predicate: Callable[[tuple[int, ...], Any], bool]) -> list[tuple[int, ...]]:
    """Paths of the leaves of nested tuples for which the predicate holds."""
    found: list[tuple[int, ...]] = []

    def visit(path: tuple[int, ...], value: Any) -> None:
        if isinstance(value, (tuple, list)):
            for i, v in enumerate(value):
                visit((*path, i), v)
        elif predicate(path, value):
            found.append(path)

    visit((), iterable)
    return found


def get_iterable_path(iterable: Any, path: tuple[int, ...]) -> Any:
    """The element of nested tuples at a path."""
    for i in path:
        iterable = iterable[i]
    return iterable


def load_file(path: str) -> ModuleType:
    """A user's file as a module, its folder on the path. Raises ArgumentError where it is no Python file."""
    sys.path.insert(0, os.path.dirname(os.path.abspath(path)))
    name = os.path.splitext(os.path.basename(path))[0]
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ArgumentError(f"{path} is no Python file: its name does not end in .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module
