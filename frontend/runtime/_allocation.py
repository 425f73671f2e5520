"""Scratch memory of kernels, under Triton's module name."""

from __future__ import annotations

from typing import Any

from tilewright._utils import get_allocator, set_allocator
from tilewright.dialects.errors import TilewrightError


class AllocatorError(TilewrightError, RuntimeError):
    """A kernel's scratch memory was asked for, and no allocator is set."""


class NullAllocator:
    """The allocator that is none: raises when it is asked."""

    def __call__(self, size: int, alignment: int, stream: int | None) -> Any:
        raise AllocatorError(f"{size} bytes of scratch memory are asked for; call triton.set_allocator(function (size, alignment, stream) → array) first")


__all__ = ["NullAllocator", "get_allocator", "set_allocator"]
