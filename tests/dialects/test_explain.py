"""PassContext.explain: what passes tell is kept once, with the line of the op."""

from tilewright.dialects._mlir import ir
from tilewright.dialects.context import mlir_context
from tilewright.dialects.pipeline import PassContext


def test_choices_are_kept_once_with_their_lines():
    ctx = PassContext(None, "generic", None, None)
    with mlir_context():
        module = ir.Module.parse('module { func.func @f() { return } loc("kernel.py":7:3) }')
        op = next(iter(module.body.operations))
        for place in (op.operation, op.operation, op.location):
            ctx.explain(place, "tl.dot", "by hand", "because")
        ctx.explain(None, "registers", "3 spilled")
    assert ctx.metadata["choices"] == [{"line": 7, "what": "tl.dot", "chosen": "by hand", "why": "because"},
                                       {"line": 0, "what": "registers", "chosen": "3 spilled", "why": ""}]
