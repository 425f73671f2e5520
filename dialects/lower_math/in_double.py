"""Functions that are computed in f64 for f32 arguments too: rare ones, where one careful formula is worth more than a fast one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilewright.dialects.lower_math.registry import defined


def c(b: Any, value: float) -> Any:
    """An f64 constant."""
    return b.const(b.t_f64, value)


def defined_in_double(*names: str, ulp: float, arity: int = 1, ulp32: float = 0.51) -> Callable[[Any], Any]:
    """Register ``build(b, *f64 values)`` for f64 with ``ulp``, and for f32 through it (``ulp32``: rounded once more at the end)."""

    def register(build: Any) -> Any:
        def narrow(b: Any, *args: Any) -> Any:
            return b.fptrunc(build(b, *(b.fpext(a, b.t_f64) for a in args)), b.t_f32)

        for name in names:
            defined(name, "f64", ulp=ulp, arity=arity)(build)
            defined(name, "f32", ulp=ulp32, arity=arity)(narrow)
        return build

    return register


def horner(b: Any, x: Any, coefficients: tuple[float, ...]) -> Any:
    """c0 + c1 x + … by fused multiply-adds."""
    total = c(b, coefficients[-1])
    for value in reversed(coefficients[:-1]):
        total = b.fma(total, x, c(b, value))
    return total
