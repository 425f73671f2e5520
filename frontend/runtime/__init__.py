"""Launching: jit functions, drivers, the cache, the autotuner, the interpreter."""

from __future__ import annotations

from tilewright.runtime.autotuner import Autotuner, Config, Heuristics, autotune, heuristics
from tilewright.runtime.cache import triton_key
from tilewright.runtime.driver import driver
from tilewright.runtime.errors import OutOfResources
from tilewright.runtime.jit import JITFunction, KernelInterface, MockTensor, TensorWrapper, reinterpret

__all__ = [
    "Autotuner", "Config", "Heuristics", "JITFunction", "KernelInterface", "MockTensor", "OutOfResources", "TensorWrapper", "autotune",
    "driver", "heuristics", "reinterpret", "triton_key",
]


def __getattr__(name: str) -> object:
    if name in ("InterpreterError", "InterpretedFunction"):
        from tilewright.runtime import interpreter

        return getattr(interpreter, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
