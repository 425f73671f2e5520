"""Triton's module of its base error."""

from __future__ import annotations

from tilewright.dialects.errors import TilewrightError

TritonError = TilewrightError

__all__ = ["TritonError"]
