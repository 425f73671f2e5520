"""The plugin's own op, the pass that finds it, and its lowering."""

from typing import Any

from tilewright.dialects._mlir import ext, ir


class TOY(ext.Dialect, name="toy"):
    """Operations of the toy chip."""


class ReluOp(TOY.Operation, name="relu", traits=[ext.Pure]):
    """``max(x, 0)`` of every element; NaN gives 0."""

    result: ext.Result[Any]
    src: ext.Operand[Any]


def fuse_relu(module: Any, ctx: Any) -> None:
    """Before: ``arith.maxnumf(x, 0)`` on float tensors. After: ``toy.relu(x)``."""
    found: list[Any] = []

    def collect(op: Any) -> Any:
        if op.name == "arith.maxnumf" and isinstance(op.results[0].type, ir.RankedTensorType):
            found.append(op)
        return ir.WalkResult.ADVANCE

    module.operation.walk(collect)
    for op in found:
        zero = op.operands[1].owner
        if getattr(zero, "name", "") != "arith.constant" or "dense<0.0" not in str(zero.attributes["value"]):
            continue
        new = ir.Operation.create("toy.relu", [op.results[0].type], [op.operands[0]], loc=op.location, ip=ir.InsertionPoint(op))
        op.results[0].replace_all_uses_with(new.results[0])
        op.erase()


def lower_relu(ctx: Any, op: Any) -> list[list[Any]]:
    """One compare and select a register."""
    b = ctx.b
    return [[b.select(b.fcmp("ogt", x, b.zero(x.type)), x, b.zero(x.type)) for x in ctx.get(op.operands[0])]]
