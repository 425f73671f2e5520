"""The pass convert_to_llvm: upstream's conversions from scf, vector, math, arith and func to the LLVM dialect."""

from __future__ import annotations

from typing import Any

from tilewright.dialects._mlir import PassManager, ir
from tilewright.dialects.pipeline import PassContext
from tilewright.targets.cpu.calls import CALLED_SUFFIX

_PIPELINE = ("builtin.module(convert-scf-to-cf,convert-vector-to-llvm,convert-math-to-llvm,convert-arith-to-llvm,"
             "convert-index-to-llvm,convert-cf-to-llvm,convert-func-to-llvm,reconcile-unrealized-casts)")


def run(module: Any, ctx: PassContext) -> None:
    """Before: loops over scalars and vectors. After: LLVM dialect only; functions that the program calls are not inlined."""
    manager = PassManager.parse(_PIPELINE)
    manager.enable_verifier(False)
    manager.run(module.operation)
    for op in module.body.operations:  # the conversion drops this attribute
        if "sym_name" in op.attributes and ir.StringAttr(op.attributes["sym_name"]).value.endswith(CALLED_SUFFIX):
            op.attributes["no_inline"] = ir.UnitAttr.get()
