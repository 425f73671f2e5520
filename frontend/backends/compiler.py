"""Triton's names: GPUTarget, and the base that its backends have."""

from __future__ import annotations

from tilewright.compiler.compiler import Backend as BaseBackend
from tilewright.targets.protocol import GPUTarget

__all__ = ["BaseBackend", "GPUTarget"]
