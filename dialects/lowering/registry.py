"""The shared table of lowerings: op name → function ``(ctx, op) -> list of register lists | None``.

``ctx`` is a ``LoweringContext``, ``op`` an ``ir.Operation``. The function returns one list of per-thread LLVM values (or one
``SharedMemory``) a result, or None for ops without results. A target's own table is laid over this one.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any

Lowering = Callable[[Any, Any], "list[Any] | None"]

_table: dict[str, Lowering] = {}

# Modules whose import fills the table.
_MODULES = ("control_flow", "elementwise", "conversions", "convert_layout", "shape_ops", "global_ops", "shared_ops", "async_copy",
            "reduce", "scan", "gather", "dot", "misc_ops", "inline_asm", "calls")


def lowers(*names: str) -> Callable[[Lowering], Lowering]:
    """Register a function as the shared lowering of the named ops. Raises ValueError where one has a lowering already."""

    def register(function: Lowering) -> Lowering:
        for name in names:
            if name in _table:
                raise ValueError(f"{name} has two lowerings: {_table[name].__qualname__} and {function.__qualname__}")
            _table[name] = function
        return function

    return register


def table(extra: Mapping[str, Lowering] | None = None) -> dict[str, Lowering]:
    """A copy of the shared table, with ``extra`` laid over it."""
    for module in _MODULES:
        importlib.import_module(f"{__package__}.{module}")
    return {**_table, **(extra or {})}
