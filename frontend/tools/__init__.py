"""Tools beside the compiler, under Triton's names."""

from __future__ import annotations

import importlib
from typing import Any


def __getattr__(name: str) -> Any:
    if name in ("compile", "disasm", "mxfp", "ragged_tma", "tensor_descriptor"):
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
