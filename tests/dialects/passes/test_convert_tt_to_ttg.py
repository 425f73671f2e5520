"""tt to ttg: every kernel gets layouts that obey the rules, and nothing but converts is added."""

import pytest
from kernel_texts import KERNELS, Text, context, masked_add, ptr, run_passes

from tilewright.dialects import ttg
from tilewright.dialects._mlir import ir
from tilewright.dialects.analysis.structure import functions, type_info
from tilewright.dialects.context import mlir_context
from tilewright.dialects.errors import InternalCompilerError, TilewrightError
from tilewright.dialects.passes import convert_tt_to_ttg, verify_layouts


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("warp_size,num_warps", [(32, 4), (64, 2), (32, 1)])
def test_kernels_get_valid_layouts_and_keep_their_ops(name, warp_size, num_warps):
    with mlir_context():
        before = [n.name for n in functions(ir.Module.parse(KERNELS[name]()))[0].nodes()]
        module, f = run_passes(KERNELS[name](), context(warp_size, num_warps), convert_tt_to_ttg)
        assert [n.name for n in f.nodes() if n.name != "ttg.convert_layout"] == before
        assert int(ir.IntegerAttr(module.operation.attributes["ttg.num-warps"]).value) == num_warps
        assert int(ir.IntegerAttr(module.operation.attributes["ttg.threads-per-warp"]).value) == warp_size
        assert int(ir.IntegerAttr(module.operation.attributes["ttg.num-ctas"]).value) == 1


def test_shape_changing_ops_get_exactly_inferred_layouts():
    t = Text([("x", ptr("f32"), 16)])
    a = t.load(t.addptr(t.args[0], t.range(256)))
    b = t.op("tt.reshape", [a], (16, 16), "f32", "allow_reorder = false")
    c = t.op("tt.trans", [b], (16, 16), "f32", "order = array<i32: 1, 0>")
    j = t.op("tt.join", [c, b], (16, 16, 2), "f32")
    t.lines.append(f'%l, %r = "tt.split"({j.name}) : ({j.type}) -> ({c.type}, {c.type})')
    flat = t.op("tt.reshape", [j], (512,), "f32", "allow_reorder = false")
    cat = t.op("tt.cat", [flat, flat], (1024,), "f32")
    t.store(t.addptr(t.args[0], t.range(1024)), cat)
    with mlir_context():
        _, f = run_passes(str(t), context(), convert_tt_to_ttg)
        by_name = {n.name: n for n in f.nodes()}
        # a row-major tile of 16 x 16 over 128 threads is not one blocked layout of the flat one
        assert isinstance(type_info(by_name["tt.cat"].results[0].type).encoding, ttg.LinearEncoding)
        trans = type_info(by_name["tt.trans"].results[0].type).encoding
        assert isinstance(trans, ttg.BlockedEncoding) and list(ir.DenseI32ArrayAttr(trans.params[3])) == [0, 1]


def test_dot_operands_have_the_accumulator_as_parent():
    with mlir_context():
        _, f = run_passes(KERNELS["matmul"](), context(), convert_tt_to_ttg)
        (dot,) = (n for n in f.nodes() if n.name == "tt.dot")
        a, b, c = (type_info(v.type).encoding for v in dot.operands)
        assert a == ttg.DotOperandEncoding.of(0, c) and b == ttg.DotOperandEncoding.of(1, c)


def test_a_module_with_layouts_is_refused():
    with mlir_context():
        module, _ = run_passes(masked_add(), context(), convert_tt_to_ttg)
        with pytest.raises(TilewrightError, match="has an encoding before"):
            convert_tt_to_ttg.run(module, context())


def test_the_verifier_sees_a_broken_rule():
    with mlir_context():
        module, f = run_passes(KERNELS["attention"](), context(), convert_tt_to_ttg)
        (convert,) = (n for n in f.nodes() if n.name == "ttg.convert_layout"
                      if any(u.name == "tt.dot" and i == 0 for u, i in f.uses(n.results[0]))
                      and type_info(n.results[0].type).shape == (64, 64))
        (dot, _), = f.uses(convert.results[0])
        dot.op.operands[0] = convert.operands[0]
        with pytest.raises(InternalCompilerError, match="operand 0 is dot operand 0"):
            verify_layouts.run(module)
