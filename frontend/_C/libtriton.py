"""What Triton's C++ module would have: two functions of settings, and ``ir`` as far as tools read kernels by it; anything else raises RemovedNameError, an ImportError that says what to use."""

from __future__ import annotations

import os
from typing import Any

from tilewright.removed import native


def getenv(name: str, default: Any = None) -> Any:
    """An environment variable."""
    return os.environ.get(name, default)


def get_cache_invalidating_env_vars() -> dict[str, str]:
    """The settings that change code, by their variables' names: those that are set and true."""
    from tilewright import knobs

    found = {}
    for setting in knobs.compilation.settings().values():
        if setting.code and setting.given(knobs.compilation):
            found[setting.variables[1]] = "true" if getattr(knobs.compilation, setting.name) else "false"
    return found


def __getattr__(name: str) -> Any:
    if name == "ir":  # what tools need to read a module that ASTSource.make_ir made
        from types import SimpleNamespace

        from tilewright.compiler import ir_view

        return SimpleNamespace(context=ir_view.Context, load_dialects=ir_view.load_dialects, module=ir_view.ModuleView, operation=ir_view.OpView,
                               block=ir_view.BlockView, region=ir_view.RegionView, value=ir_view.ValueView)
    return native(name)
