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


class DeviceMismatchError(ArgumentError):
    """The arrays of a launch lie on several devices, or on another than the current one."""


class ReadOnlyArrayError(ArgumentError):
    """A kernel stores through an argument that may not be written."""


class GridError(ArgumentError, KeyError):
    """A grid function asks for what is no argument of the launch."""

    __str__ = Exception.__str__  # KeyError's would quote it


class GridAttributeError(GridError, AttributeError):
    """A grid function takes an argument of the launch for an attribute, as in ``meta.BLOCK``."""


class HeuristicError(ArgumentError, KeyError):
    """A rule of heuristics asks for what is no argument of the launch."""

    __str__ = Exception.__str__


class KernelCallError(TilewrightError, RuntimeError):
    """A kernel was called like a function on the host."""


class AutotunerError(TilewrightError):
    """autotune was left without a configuration."""


PTXASError = AssemblerError  # Triton's name

__all__ = [
    "ArgumentError", "AssemblerError", "AssemblerNotFoundError", "AutotunerError", "DeviceMismatchError", "DriverNotFoundError", "GridAttributeError", "GridError",
    "HeuristicError", "KernelCallError", "LaunchSignatureError", "OutOfResources", "PTXASError", "ReadOnlyArrayError", "TritonError",
]
