"""The public names for target plugins: import these, and nothing that is not here or in ``tilewright.dialects``."""

from __future__ import annotations

from typing import Any

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
from tilewright.dialects.passes import shared_pass, tt_passes, ttg_passes
from tilewright.dialects.pipeline import Pass, PassContext, Pipeline, Stage
from tilewright.targets.kernel_arguments import FORMATS as ARGUMENT_FORMATS
from tilewright.targets.kernel_arguments import checked as checked_arguments
from tilewright.targets.kernel_arguments import layout as argument_layout
from tilewright.targets.protocol import (
    API_VERSION,
    Capabilities,
    CommonOptions,
    Device,
    Driver,
    GPUTarget,
    TargetPlugin,
)


def translate_to_llvm_ir(module: Any, ctx: PassContext) -> str:
    """LLVM IR text of a lowered module (dialects.lowering.translate; imported when called, since it needs MLIR)."""
    from tilewright.dialects.lowering.translate import translate_to_llvm_ir as translate

    return translate(module, ctx)


__all__ = [
    "API_VERSION", "ARGUMENT_FORMATS", "ArgumentError", "AssemblerNotFoundError", "Capabilities", "CommonOptions", "CompilationError", "Device", "Driver",
    "DriverNotFoundError", "GPUTarget", "MatrixOp", "OperandBases", "OutOfResources", "Pass", "PassContext", "Pipeline",
    "Stage", "TargetHooks", "TargetNotFoundError", "TargetPlugin", "TilewrightError", "UnsupportedArchError",
    "UnsupportedOnTargetError", "argument_layout", "checked_arguments", "shared_pass", "translate_to_llvm_ir", "tt_passes", "ttg_passes",
]
