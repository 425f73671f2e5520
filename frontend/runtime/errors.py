"""Errors of launching, under Triton's names too."""

from __future__ import annotations

from tilewright.dialects.errors import (
    ArgumentError,
    AssemblerError,
    AssemblerNotFoundError,
    DriverNotFoundError,
    OutOfResources,
    TilewrightError,
)

TritonError = TilewrightError


class LaunchSignatureError(ArgumentError, TypeError):
    """Arguments that do not fit the kernel's parameters: missing, twice given, or too many."""


class GridError(ArgumentError, KeyError):
    """A grid function asks for what is no argument of the launch."""

    __str__ = Exception.__str__  # KeyError's would quote it


class HeuristicError(ArgumentError, KeyError):
    """A rule of heuristics asks for what is no argument of the launch."""

    __str__ = Exception.__str__


class KernelCallError(TilewrightError, RuntimeError):
    """A kernel was called like a function on the host."""


class AutotunerError(TilewrightError):
    """autotune was left without a configuration."""


PTXASError = AssemblerError  # Triton's name

__all__ = [
    "ArgumentError", "AssemblerError", "AssemblerNotFoundError", "AutotunerError", "DriverNotFoundError", "GridError", "HeuristicError", "KernelCallError",
    "LaunchSignatureError", "OutOfResources", "PTXASError", "TritonError",
]
