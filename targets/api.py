"""The public names for target plugins: import these, and nothing that is not here or in ``tilewright.dialects``."""

from __future__ import annotations

from tilewright.dialects.errors import (
    ArgumentError,
    AssemblerNotFoundError,
    CompilationError,
    DriverNotFoundError,
    OutOfResources,
    TargetNotFoundError,
    TilewrightError,
    UnsupportedArchError,
    UnsupportedOnTargetError,
)
from tilewright.dialects.lowering.hooks import TargetHooks
from tilewright.dialects.matrix_ops import MatrixOp, OperandBases
from tilewright.dialects.pipeline import Pass, PassContext, Pipeline, Stage
from tilewright.targets.protocol import API_VERSION, Capabilities, Device, Driver, GPUTarget, TargetPlugin

__all__ = [
    "API_VERSION", "ArgumentError", "AssemblerNotFoundError", "Capabilities", "CompilationError", "Device", "Driver",
    "DriverNotFoundError", "GPUTarget", "MatrixOp", "OperandBases", "OutOfResources", "Pass", "PassContext", "Pipeline",
    "Stage", "TargetHooks", "TargetNotFoundError", "TargetPlugin", "TilewrightError", "UnsupportedArchError",
    "UnsupportedOnTargetError",
]
