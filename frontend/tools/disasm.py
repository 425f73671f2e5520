"""Disassembly of compiled kernels: ``get_sass``, by the tools of the target whose code it is."""

from __future__ import annotations

from typing import Any


def get_sass(binary: bytes, fun: str | None = None) -> Any:
    """The instructions of a kernel's binary stage (such as ``kernel.asm[…]`` of a launched kernel), of all functions or only ``fun``, as text with
    the scheduling fields before each. Raises an error that says what to install where the vendor's disassembler is missing."""
    from tilewright.testing import _utility

    return _utility("get_sass")(binary, fun)
