"""Launching: jit functions, drivers, the cache, the autotuner, the interpreter. Modules are loaded when first used."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from tilewright.runtime.driver import driver

if TYPE_CHECKING:
    from tilewright.runtime._async_compile import AsyncCompileMode, FutureKernel
    from tilewright.runtime.autotuner import Autotuner, Config, Heuristics, autotune, heuristics
    from tilewright.runtime.cache import RedisRemoteCacheBackend, RemoteCacheBackend, triton_key
    from tilewright.runtime.errors import OutOfResources
    from tilewright.runtime.interpreter import InterpretedFunction, InterpreterError
    from tilewright.runtime.jit import JITFunction, KernelInterface, MockTensor, TensorWrapper, reinterpret

_LAZY = {
    **{name: "autotuner" for name in ("Autotuner", "Config", "Heuristics", "autotune", "heuristics")},
    **{name: "jit" for name in ("JITFunction", "KernelInterface", "MockTensor", "TensorWrapper", "reinterpret")},
    **{name: "interpreter" for name in ("InterpretedFunction", "InterpreterError")},
    **{name: "_async_compile" for name in ("AsyncCompileMode", "FutureKernel")},
    **{name: "cache" for name in ("RedisRemoteCacheBackend", "RemoteCacheBackend", "triton_key")},
    **{name: "errors" for name in ("AutotunerError", "OutOfResources", "PTXASError")},
    **{name: "" for name in ("autotuner", "build", "cache", "errors", "interpreter", "jit")},
}

__all__ = [
    "AsyncCompileMode", "Autotuner", "Config", "FutureKernel", "Heuristics", "InterpretedFunction", "InterpreterError", "JITFunction", "KernelInterface", "MockTensor",
    "OutOfResources", "RedisRemoteCacheBackend", "RemoteCacheBackend", "TensorWrapper", "autotune", "driver", "heuristics", "reinterpret", "triton_key",
]


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = importlib.import_module(f"{__name__}.{_LAZY[name] or name}")
    return getattr(module, name) if _LAZY[name] else module
