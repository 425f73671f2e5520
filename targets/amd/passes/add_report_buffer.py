"""Before: any kernel. After: one that prints or asserts has a pointer to the buffer of targets/device_reports.py as its last argument, and the
attribute ``amdg.reports``; the launcher gives it. AMD GPUs have no printf of their own: ROCm's goes through its device library."""

from __future__ import annotations

from typing import Any

from tilewright.dialects._mlir import ir
from tilewright.dialects.analysis.call_graph import is_kernel
from tilewright.dialects.analysis.structure import functions

_REPORTS = ("tt.print", "tt.assert")


def run(module: Any, ctx: Any) -> None:
    mirrors = functions(module.operation if hasattr(module, "operation") else module)
    if not any(node.name in _REPORTS for function in mirrors for node in function.nodes()):
        return
    for function in mirrors:
        if not is_kernel(function):
            continue
        op = function.root.op
        block = op.regions[0].blocks[0]
        block.add_argument(ir.Type.parse("!tt.ptr<i32, 1 : i32>"), op.location)
        types = [a.type for a in block.arguments]
        op.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(types, []))
        if "arg_attrs" in op.attributes:
            given = list(ir.ArrayAttr(op.attributes["arg_attrs"]))
            op.attributes["arg_attrs"] = ir.ArrayAttr.get([*given, ir.DictAttr.get({})])
        op.attributes["amdg.reports"] = ir.UnitAttr.get()
