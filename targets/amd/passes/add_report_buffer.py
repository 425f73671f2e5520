"""Before: any kernel. After: one that prints or asserts has a pointer to the buffer of targets/device_reports.py as its last argument, and the
attribute ``amdg.reports``; the launcher gives it. So have the functions that it calls, which are handed it with every call. AMD GPUs have no printf of
their own: ROCm's goes through its device library."""

from __future__ import annotations

from typing import Any

from tilewright.dialects._mlir import ir
from tilewright.dialects.analysis.call_graph import CALL, is_kernel
from tilewright.dialects.analysis.structure import functions

_REPORTS = ("tt.print", "tt.assert")


def run(module: Any, ctx: Any) -> None:
    mirrors = functions(module.operation if hasattr(module, "operation") else module)
    if not any(node.name in _REPORTS for function in mirrors for node in function.nodes()):
        return
    for function in mirrors:
        op = function.root.op
        block = op.regions[0].blocks[0]
        buffer = block.add_argument(ir.Type.parse("!tt.ptr<i32, 1 : i32>"), op.location)
        for node in list(function.nodes()):
            if node.name == CALL:
                _hand_over(node.op, buffer)
        results = ir.FunctionType(ir.TypeAttr(op.attributes["function_type"]).value).results
        op.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get([a.type for a in block.arguments], results))
        if "arg_attrs" in op.attributes:
            given = list(ir.ArrayAttr(op.attributes["arg_attrs"]))
            op.attributes["arg_attrs"] = ir.ArrayAttr.get([*given, ir.DictAttr.get({})])
        if is_kernel(function):
            op.attributes["amdg.reports"] = ir.UnitAttr.get()


def _hand_over(call: Any, buffer: Any) -> None:
    """The call with the buffer as its last argument."""
    made = ir.Operation.create(CALL, results=[r.type for r in call.results], operands=[*call.operands, buffer],
                               attributes={name: call.attributes[name] for name in call.attributes}, loc=call.location, ip=ir.InsertionPoint(call))
    for old, new in zip(call.results, made.results):
        old.replace_all_uses_with(new)
    call.erase()
