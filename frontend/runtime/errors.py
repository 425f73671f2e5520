"""Errors of launching, under Triton's names too."""

from __future__ import annotations

from tilewright.dialects.errors import (
    ArgumentError,
    AssemblerNotFoundError,
    DriverNotFoundError,
    OutOfResources,
    TilewrightError,
)

TritonError = TilewrightError


class AssemblerError(TilewrightError):
    """The assembler refused the code it was given."""


class LaunchSignatureError(ArgumentError, TypeError):
    """Arguments that do not fit the kernel's parameters: missing, twice given, or too many."""


class KernelCallError(TilewrightError, RuntimeError):
    """A kernel was called like a function on the host."""


PTXASError = AssemblerError  # Triton's name; raised by no one here, caught by tuners

__all__ = [
    "ArgumentError", "AssemblerError", "AssemblerNotFoundError", "DriverNotFoundError", "KernelCallError", "LaunchSignatureError",
    "OutOfResources", "PTXASError", "TritonError",
]
