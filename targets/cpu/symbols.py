"""The functions of the C library that compiled kernels may call; the driver hands their addresses to the loader."""

from __future__ import annotations

import ctypes
import ctypes.util
from functools import cache
from typing import Any

_BOTH = ("acos", "acosh", "asin", "asinh", "atan", "atanh", "cbrt", "cos", "cosh", "erf", "erfc", "exp", "exp2", "expm1", "floor",
         "ceil", "lgamma", "log", "log10", "log1p", "log2", "logb", "nearbyint", "rint", "round", "roundeven", "sin", "sinh", "sqrt",
         "tan", "tanh", "tgamma", "trunc", "j0", "j1", "y0", "y1", "atan2", "fmod", "hypot", "nextafter", "remainder", "pow", "fma",
         "fmin", "fmax", "copysign", "ldexp", "ilogb", "exp10", "fdim", "scalbn")
LIBM = frozenset(name + suffix for name in _BOTH for suffix in ("", "f"))
LIBC = frozenset({"memset", "memcpy", "memmove", "printf", "fflush"})
ALLOWED = LIBM | LIBC


@cache
def addresses() -> dict[str, int]:
    """Name → address of those of ALLOWED that this machine's C library has."""
    libraries: list[Any] = [ctypes.CDLL(None)]
    found = ctypes.util.find_library("m")
    if found:
        libraries.append(ctypes.CDLL(found))
    table: dict[str, int] = {}
    for name in ALLOWED:
        for library in reversed(libraries):
            try:
                table[name] = ctypes.cast(getattr(library, name), ctypes.c_void_p).value or 0
                break
            except AttributeError:
                continue
    return table
