"""The descriptor type and ops parse and print, and their verifiers say what is wrong."""

import pytest

from tilewright.dialects import tt
from tilewright.dialects._mlir import ir
from tilewright.dialects.context import mlir_context

D = "!tt.tensordesc<array<i64: 16, 32>, f16>"
D3 = "!tt.tensordesc<array<i64: 1, 16, 32>, f16>"
R = "!tt.tensordesc<array<i64: 1, 32>, f16>"
I = "!tt.tensordesc<array<i64: 16>, i32>"
GOOD = f"""
  %d = "tt.make_tensor_descriptor"(%p, %i, %i, %s, %s) {{padding = "nan", operandSegmentSizes = array<i32: 1, 2, 2>}} : (!tt.ptr<f16, 1 : i32>, i32, i32, i64, i64) -> {D}
  %d3 = "tt.make_tensor_descriptor"(%p, %i, %i, %i, %s, %s, %s) {{padding = "zero", operandSegmentSizes = array<i32: 1, 3, 3>}} : (!tt.ptr<f16, 1 : i32>, i32, i32, i32, i64, i64, i64) -> {D3}
  %r = "tt.make_tensor_descriptor"(%p, %i, %i, %s, %s) {{padding = "zero", operandSegmentSizes = array<i32: 1, 2, 2>}} : (!tt.ptr<f16, 1 : i32>, i32, i32, i64, i64) -> {R}
  %n = "tt.make_tensor_descriptor"(%q, %i, %s) {{padding = "zero", operandSegmentSizes = array<i32: 1, 1, 1>}} : (!tt.ptr<i32, 1 : i32>, i32, i64) -> {I}
  %v = "tt.descriptor_load"(%d, %i, %i) {{cache = "none", evict = "normal"}} : ({D}, i32, i32) -> tensor<16x32xf16>
  %w = "tt.descriptor_load"(%d3, %i, %i, %i) {{cache = "none", evict = "normal"}} : ({D3}, i32, i32, i32) -> tensor<16x32xf16>
  "tt.descriptor_store"(%d, %v, %i, %i) : ({D}, tensor<16x32xf16>, i32, i32) -> ()
  "tt.descriptor_reduce"(%d, %v, %i, %i) {{kind = "fadd"}} : ({D}, tensor<16x32xf16>, i32, i32) -> ()
  "tt.descriptor_reduce"(%n, %x, %i) {{kind = "umax"}} : ({I}, tensor<16xi32>, i32) -> ()
  %g = "tt.descriptor_gather"(%r, %x, %i) : ({R}, tensor<16xi32>, i32) -> tensor<16x32xf16>
  "tt.descriptor_scatter"(%r, %g, %x, %i) : ({R}, tensor<16x32xf16>, tensor<16xi32>, i32) -> ()
"""
ARGS = "%p: !tt.ptr<f16, 1 : i32>, %q: !tt.ptr<i32, 1 : i32>, %i: i32, %s: i64, %x: tensor<16xi32>"


def parse(body):
    with mlir_context():
        module = ir.Module.parse(f"func.func @k({ARGS}) {{ {body} return }}")
        assert module.operation.verify()
        return module


def test_ops_parse_and_print():
    module = parse(GOOD)
    with mlir_context():
        ops = {op.name: op for op in module.body.operations[0].regions[0].blocks[0].operations}
        make = ops["tt.make_tensor_descriptor"]
        base, shape, strides = tt.make_descriptor_operands(make)
        assert str(base.type).startswith("!tt.ptr") and [str(v.type) for v in (*shape, *strides)] == ["i32", "i64"]
        desc = tt.TensorDescType(make.results[0].type)
        assert desc.shape == [16] and str(desc.element_type) == "i32" and str(desc.block_type) == "tensor<16xi32>"
        assert tt.TensorDescType.of([16], desc.element_type) == desc and not tt.is_descriptor(base.type)
        assert str(ir.Module.parse(str(module))) == str(module)


P = "!tt.ptr<f16, 1 : i32>"


def make(base, types, result, padding="zero"):
    rank = types.count("i32")
    operands = ["%i" if t == "i32" else "%s" for t in types]
    return (f'"tt.make_tensor_descriptor"({base}, {", ".join(operands)}) {{padding = "{padding}", operandSegmentSizes = array<i32: 1, {rank}, '
            f'{len(types) - rank}>}} : ({P if base == "%p" else "!tt.ptr<i32, 1 : i32>"}, {", ".join(types)}) -> {result}')


def load(desc, type_, indices, result):
    return (f'"tt.descriptor_load"({", ".join([desc, *["%i"] * indices])}) {{cache = "none", evict = "normal"}} : '
            f'({", ".join([type_, *["i32"] * indices])}) -> {result}')


@pytest.mark.parametrize("line, message", [
    (make("%p", ["i32", "i64"], I), "the base must be a pointer to i32, found !tt.ptr<f16"),
    (make("%p", ["i32", "i32", "i64", "i64"], D3), "the shape needs 3 values of i32"),
    (make("%p", ["i32", "i32", "i64", "i64"], "i32"), "gives a !tt.tensordesc"),
    (make("%q", ["i32", "i64"], "!tt.tensordesc<array<i64: 12>, i32>"), "powers of two"),
    (make("%p", ["i32"] * 6 + ["i64"] * 6, "!tt.tensordesc<array<i64: 1, 1, 1, 1, 1, 8>, f16>"), "1 to 5 dims"),
    (make("%q", ["i32", "i64"], I, "nan"), "padding must be"),
    (make("%p", ["i32", "i32", "i64", "i64"], D, "one"), "padding must be"),
    (load("%d", D, 1, "tensor<16x32xf16>"), "descriptor_load: the indices needs 2 values"),
    (load("%d", D, 2, "tensor<16x32xf32>"), "a block .16, 32. of f16"),
    (load("%d3", D3, 3, "tensor<32xf16>"), "without leading dims of size 1"),
    (load("%x", "tensor<16xi32>", 1, "tensor<16xi32>"), "must be a tensor descriptor"),
    (f'"tt.descriptor_store"(%n, %v, %i) : ({I}, tensor<16x32xf16>, i32) -> ()', "is needed, found tensor<16x32xf16>"),
    (f'"tt.descriptor_store"(%n, %x, %s) : ({I}, tensor<16xi32>, i64) -> ()', "descriptor_store: the indices needs 1 values of i32"),
    (f'"tt.descriptor_reduce"(%n, %x, %i) {{kind = "fmax"}} : ({I}, tensor<16xi32>, i32) -> ()', "kinds are"),
    (f'"tt.descriptor_reduce"(%d, %v, %i, %i) {{kind = "add"}} : ({D}, tensor<16x32xf16>, i32, i32) -> ()', "kinds are"),
    (f'"tt.descriptor_scatter"(%d, %v, %x, %i) : ({D}, tensor<16x32xf16>, tensor<16xi32>, i32) -> ()', "must be .1, columns."),
    (f'"tt.descriptor_gather"(%r, %x, %s) : ({R}, tensor<16xi32>, i64) -> tensor<16x32xf16>', "column offset"),
    (f'"tt.descriptor_gather"(%r, %x, %i) : ({R}, tensor<16xi32>, i32) -> tensor<8x32xf16>', "a tensor .16, 32. of f16"),
    (f'"tt.descriptor_gather"(%r, %v, %i) : ({R}, tensor<16x32xf16>, i32) -> tensor<16x32xf16>', "rank-1 tensor of i32"),
])
def test_verifiers(line, message):
    with pytest.raises(Exception, match=message):
        parse(GOOD + ("%bad = " if "->" in line and not line.endswith("()") else "") + line + "\n")
