"""What dot_scaled becomes, and what its verifier refuses. What it computes is tests/conformance/test_dot_scaled.py's."""

from dataclasses import replace

import pytest
from kernel_texts import context

from tilewright.dialects._mlir import ir
from tilewright.dialects.analysis.structure import functions
from tilewright.dialects.context import mlir_context
from tilewright.dialects.passes import decompose_dot_scaled

TYPES = {"e2m1": "i8", "e4m3": "f8E4M3FN", "e5m2": "f8E5M2", "bf16": "bf16", "fp16": "f16"}


def text(a="e4m3", b="e5m2", a_shape="16x64", b_shape="64x16", a_scale="16x2xi8", b_scale="16x2xi8", c="16x16xf32", a_type=None, pack="true"):
    operands = [f"tensor<{a_shape}x{a_type or TYPES.get(a)}>", f"tensor<{b_shape}x{TYPES[b]}>", f"tensor<{c}>"]
    operands += [f"tensor<{s}>" for s in (a_scale, b_scale) if s]
    names = [f"%v{i}" for i in range(len(operands))]
    segments = f"array<i32: 1, 1, 1, {int(bool(a_scale))}, {int(bool(b_scale))}>"
    return (f"func.func @k({', '.join(f'{n}: {t}' for n, t in zip(names, operands))}) -> tensor<{c}> attributes {{tt.kernel}} {{\n"
            f'%r = "tt.dot_scaled"({", ".join(names)}) {{a_format = "{a}", b_format = "{b}", a_k_pack = {pack}, b_k_pack = true, fast_math = false, '
            f"operandSegmentSizes = {segments}}} : ({', '.join(operands)}) -> tensor<{c}>\nreturn %r : tensor<{c}>\n}}")


def rewritten(**how):
    with mlir_context():
        module = ir.Module.parse(text(**how))
        assert module.operation.verify()
        decompose_dot_scaled.run(module, context())
        assert module.operation.verify()
        (function,) = functions(module)
        (dot,) = [n for n in function.nodes() if n.name == "tt.dot"]
        assert not any(n.name == "tt.dot_scaled" for n in function.nodes())
        return [str(ir.RankedTensorType(v.type).element_type) for v in dot.operands[:2]], [n.name for n in function.nodes()]


@pytest.mark.parametrize("a, b, a_scale, b_scale, types", [
    ("e4m3", "e5m2", "16x2xi8", None, ["bf16", "bf16"]), ("e4m3", "bf16", "16x4xf8E4M3FN", None, ["bf16", "bf16"]), ("bf16", "bf16", None, None, ["bf16", "bf16"]),
    ("fp16", "e4m3", None, "16x2xi8", ["f32", "f32"]), ("fp16", "e4m3", None, None, ["f16", "f16"]), ("fp16", "bf16", None, None, ["f32", "f32"])])
def test_the_type_that_holds_both_operands(a, b, a_scale, b_scale, types):
    found, names = rewritten(a=a, b=b, a_scale=a_scale, b_scale=b_scale)
    assert found == types
    if a == b == "bf16":
        assert "arith.extf" not in names and "arith.truncf" not in names


def test_a_target_may_keep_it():
    with mlir_context():
        module = ir.Module.parse(text())
        ctx = context()
        ctx.capabilities = replace(ctx.capabilities, extra={"why_decomposed": lambda node, ctx: None if node.str_attr("a_format") == "e4m3" else "other"})
        decompose_dot_scaled.run(module, ctx)
        assert "tt.dot_scaled" in str(module)


@pytest.mark.parametrize("how, message", [
    (dict(a="e3m2", a_type="i8"), "a format is one of e2m1, e4m3, e5m2, bf16, fp16"), (dict(a_type="f8E5M2"), "an operand of format e4m3 has elements of f8E4M3FN"),
    (dict(a_scale="16x4xi8"), r"the scales of operand 0 have shape \[16, 2\]"), (dict(b_scale="2x16xi8"), r"the scales of operand 1 have shape \[16, 2\]"),
    (dict(a_scale="16x2xf32"), "scales are of i8 or f8E4M3FN"), (dict(a="e2m1", a_scale=None), "do not fit"), (dict(c="16x32xf32"), "do not fit"), (dict(a="e2m1", a_shape="8x64", pack="true", a_scale=None), "do not fit")])
def test_what_the_verifier_refuses(how, message):
    with mlir_context(), pytest.raises(Exception, match=message):
        ir.Module.parse(text(**how)).operation.verify()
