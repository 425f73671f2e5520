"""The table of math functions."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tilewright.dialects.errors import UnsupportedOnTargetError


@dataclass(frozen=True)
class MathFunction:
    """``build(b, *args)`` makes the result of registers of LLVM type ``type``. ``ulp``: largest error, in units in the last
    place of the result (0.5: correctly rounded; 0: exact). predicate: the result is an i1. result: "int" for an i32."""

    name: str
    type: str
    build: Callable[..., Any]
    ulp: float = 0.0
    arity: int = 1
    predicate: bool = False


_table: dict[tuple[str, str], MathFunction] = {}
_MODULES = ("basic", "exponential", "logarithm", "trigonometric", "inverse_trigonometric", "hyperbolic", "special", "double",
            "double_trigonometric", "double_special", "bits", "compositions", "directed", "gamma", "bessel", "bessel_orders", "inverse_error")
_loaded = False


def defined(name: str, *types: str, ulp: float = 0.0, arity: int = 1, predicate: bool = False) -> Callable[[Any], Any]:
    """Register ``build(b, *args)`` as function ``name`` on each of ``types``."""

    def register(build: Any) -> Any:
        for type in types:
            if (name, type) in _table:
                raise ValueError(f"math function {name} is defined twice for {type}")
            _table[name, type] = MathFunction(name, type, build, ulp, arity, predicate)
        return build

    return register


def functions() -> dict[tuple[str, str], MathFunction]:
    """(name, type) → function, all of them."""
    global _loaded
    if not _loaded:
        for module in _MODULES:
            importlib.import_module(f"tilewright.dialects.lower_math.{module}")
        _loaded = True
    return _table


def lookup(name: str, type: str) -> MathFunction:
    """The function for values of MLIR type ``type``: its own, or that of f32 for f16 and bf16.

    Raises UnsupportedOnTargetError naming what there is.
    """
    table = functions()
    found = table.get((name, type))
    if found is None and type in ("f16", "bf16"):
        found = table.get((name, "f32"))
    if found is None:
        types = sorted(t for n, t in table if n == name)
        if types:
            raise UnsupportedOnTargetError(f"math function {name!r} is not there for {type}, only for {', '.join(types)}; cast first")
        raise UnsupportedOnTargetError(f"no math function {name!r}; there are {', '.join(sorted({n for n, _ in table}))}")
    return found
