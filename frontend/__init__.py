"""Tilewright: kernels in the Triton language, compiled for several vendors from one source.

The names here and the submodules' are Triton's, so ``import tilewright as triton; import tilewright.language as tl`` runs programs written for
it; ``install_as_triton()`` or ``tilewright run`` serve those that say ``import triton``. Modules are loaded when first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from tilewright._version import __version__, tilewright_version

if TYPE_CHECKING:
    from tilewright import backends, compiler, knobs, language, runtime, testing, tools
    from tilewright._utils import cdiv, next_power_of_2, set_allocator
    from tilewright.bundle import load_bundle
    from tilewright.compiler import CompilationError, compile
    from tilewright.compiler.options import OptionNotHonouredWarning
    from tilewright.dialects.errors import OutOfResources, TilewrightError
    from tilewright.dropin import install_as_triton
    from tilewright.language.const import constexpr_function
    from tilewright.language.core import must_use_result
    from tilewright.runtime._async_compile import AsyncCompileMode, FutureKernel
    from tilewright.runtime.autotuner import Autotuner, Config, Heuristics, autotune, heuristics
    from tilewright.runtime.interpreter import InterpreterError
    from tilewright.runtime.jit import JITFunction, KernelInterface, MockTensor, TensorWrapper, jit, reinterpret

    TritonError = TilewrightError

# name → (module, attribute); None: the submodule itself
_LAZY: dict[str, tuple[str, str | None]] = {
    **{name: (name, None) for name in ("backends", "compiler", "knobs", "language", "runtime", "testing", "tools", "dialects", "targets", "dropin", "errors",
                                       "profiler", "_C")},
    **{name: ("_utils", name) for name in ("cdiv", "next_power_of_2", "set_allocator")},
    **{name: ("runtime.jit", name) for name in ("JITFunction", "KernelInterface", "MockTensor", "TensorWrapper", "jit", "reinterpret")},
    **{name: ("runtime.autotuner", name) for name in ("Autotuner", "Config", "Heuristics", "autotune", "heuristics")},
    **{name: ("runtime._async_compile", name) for name in ("AsyncCompileMode", "FutureKernel")},
    "must_use_result": ("language.core", "must_use_result"),
    "constexpr_function": ("language.const", "constexpr_function"),
    "compile": ("compiler", "compile"),
    "CompilationError": ("dialects.errors", "CompilationError"),
    "KernelWarning": ("dialects.errors", "KernelWarning"),
    "OutOfResources": ("dialects.errors", "OutOfResources"),
    "OptionNotHonouredWarning": ("compiler.options", "OptionNotHonouredWarning"),
    "TilewrightError": ("dialects.errors", "TilewrightError"),
    "TritonError": ("dialects.errors", "TilewrightError"),
    "InterpreterError": ("runtime.interpreter", "InterpreterError"),
    "load_bundle": ("bundle", "load_bundle"),
    "install_as_triton": ("dropin", "install_as_triton"),
}

__all__ = [
    "AsyncCompileMode", "Autotuner", "CompilationError", "Config", "FutureKernel", "Heuristics", "InterpreterError", "JITFunction", "KernelInterface", "KernelWarning", "MockTensor",
    "OptionNotHonouredWarning", "OutOfResources", "TensorWrapper", "TilewrightError", "TritonError", "__version__", "autotune", "backends", "cdiv", "compile", "compiler",
    "constexpr_function", "heuristics", "install_as_triton", "jit", "knobs", "language", "load_bundle", "must_use_result", "next_power_of_2", "reinterpret", "runtime",
    "set_allocator", "testing", "tilewright_version", "tools",
]


def __getattr__(name: str) -> Any:
    try:
        module, attribute = _LAZY[name]
    except KeyError:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None
    value = importlib.import_module(f"{__name__}.{module}")
    if attribute is not None:
        value = getattr(value, attribute)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY})
