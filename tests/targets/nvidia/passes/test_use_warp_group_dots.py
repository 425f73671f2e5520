"""use_warp_group_dots: which dots become warp-group products, where their operands lie, and that values are kept."""

import pytest
from kernel_texts import attention, matmul
from test_pipeline_loops import matmul_arguments
from warp_group_harness import (
    DOT,
    PASSES,
    after,
    check_values,
    named,
    nvidia_context,
    product,
    product_arguments,
    warp_context,
)

from tilewright.dialects import ttg
from tilewright.dialects._mlir import ir
from tilewright.dialects.analysis.layout_cost import conversion_kind
from tilewright.dialects.analysis.structure import type_info
from tilewright.dialects.encodings import downcast, integer, ints, string
from tilewright.dialects.errors import InternalCompilerError
from tilewright.dialects.passes import verify_layouts


def accumulator(node):
    e = downcast(node.results[0].type.encoding)
    return string(e.params[0]), ints(e.params[1])


def panels(memdesc):
    """(panel, vec, per_phase, max_phase, order) of a memdesc's encoding."""
    e = downcast(memdesc.type.encoding)
    return (*(integer(p) for p in e.params[:4]), ints(e.params[4]))


@pytest.mark.parametrize("m, n, k, warps, element, precision, acc, row, along", [
    (64, 8, 16, 4, "f16", "ieee", "f32", "m64n8k16_f16", [4, 1]),
    (128, 128, 64, 4, "f16", "ieee", "f32", "m64n128k16_f16", [4, 1]),
    (128, 256, 64, 8, "bf16", "ieee", "f32", "m64n256k16_bf16", [8, 1]),
    (64, 256, 64, 8, "f16", "ieee", "f32", "m64n128k16_f16", [4, 2]),
    (64, 512, 64, 4, "f16", "ieee", "f32", "m64n256k16_f16", [4, 1]),
    (128, 64, 64, 16, "f16", "ieee", "f32", "m64n32k16_f16", [8, 2]),
    (64, 64, 64, 4, "f16", "ieee", "f16", "m64n64k16_f16_acc_f16", [4, 1]),
    (64, 64, 32, 4, "f32", "tf32", "f32", "m64n64k8_tf32", [4, 1]),
    (64, 64, 32, 4, "f8E4M3FN", "ieee", "f32", "m64n64k32_f8E4M3FN", [4, 1]),
    (64, 64, 32, 4, "i8", "ieee", "i32", "m64n64k32_i8", [4, 1]),
    # and those that stay
    (32, 64, 32, 4, "f16", "ieee", "f32", None, None),  # too few rows
    (64, 64, 8, 4, "f16", "ieee", "f32", None, None),  # less than one instruction's k
    (64, 4, 32, 4, "f16", "ieee", "f32", None, None),  # too few columns
    (64, 8, 32, 8, "f16", "ieee", "f32", None, None),  # too few for the second warp group
    (64, 64, 32, 2, "f16", "ieee", "f32", None, None),  # half a warp group
    (64, 64, 32, 4, "f32", "ieee", "f32", None, None),  # exact products were asked for
    (64, 64, 32, 4, "f32", "tf32x3", "f32", None, None),
])
def test_rows_and_warp_groups(m, n, k, warps, element, precision, acc, row, along):
    with nvidia_context():
        out = acc if acc != "f32" else "f16"
        text = matmul(m, n, k, element, precision=precision, acc=acc, out=out, bias=False)
        _, f = after(text, PASSES, warp_context(warps))
        dots = named(f, DOT)
        if row is None:
            assert not dots
        else:
            assert [accumulator(d) for d in dots] == [(f"nvidia.wgmma_{row}", along)] and not named(f, "tt.dot")
            assert not dots[0].bool_attr("is_async")
            inside = [x.name for x in f.nodes() if x.depth]
            assert "ttg.convert_layout" not in inside and inside.count("ttg.local_alloc") == 2


@pytest.mark.parametrize("element, n, k, column_major, a, b", [
    ("f16", 128, 64, False, (64, 8, 1, 8, [1, 0]), (64, 8, 1, 8, [1, 0])),
    ("f16", 128, 64, True, (64, 8, 1, 8, [1, 0]), (64, 8, 1, 8, [0, 1])),
    ("f16", 32, 32, False, (32, 8, 2, 4, [1, 0]), (32, 8, 2, 4, [1, 0])),
    ("f16", 16, 16, False, (16, 8, 4, 2, [1, 0]), (16, 8, 4, 2, [1, 0])),
    ("f16", 8, 16, False, (16, 8, 4, 2, [1, 0]), (8, 8, 1, 1, [1, 0])),
    ("f8E5M2", 64, 128, False, (128, 16, 1, 8, [1, 0]), (128, 16, 1, 8, [0, 1])),  # k fastest, whatever the load's order
    ("f8E5M2", 64, 32, True, (32, 16, 4, 2, [1, 0]), (32, 16, 4, 2, [0, 1])),
    ("f32", 64, 32, False, (32, 4, 1, 8, [1, 0]), (32, 4, 1, 8, [0, 1])),
])
def test_panels(element, n, k, column_major, a, b):
    with nvidia_context():
        _, f = after(matmul(64, n, k, element, column_major, precision="tf32"), PASSES, warp_context())
        dot = named(f, DOT)[0]  # fp8: the text asks for a sum a k of 32
        assert panels(dot.operands[0]) == a and panels(dot.operands[1]) == b


def test_a_warp_groups_part_of_n_begins_at_a_panel():
    with nvidia_context():
        _, f = after(matmul(64, 64, 64), PASSES, warp_context(8))  # each of two groups has 32 columns
        assert panels(named(f, DOT)[0].operands[1])[0] == 32


@pytest.mark.parametrize("kind", [
    {}, {"init": "3.0"}, {"trans": (True, False)}, {"trans": (False, True)}, {"trans": (True, True)}, {"cast": ("i8", None)},
    {"cast": (None, "i8")}, {"cast": ("i8", "i8")}, {"cast": ("i8", None), "trans": (True, False)}, {"twice": True},
    {"element": "f8E4M3FN", "imprecise": 1 << 30}, {"element": "f8E4M3FN"}, {"element": "f8E4M3FN", "imprecise": 64, "init": "2.0"},
], ids=str)
def test_values_are_kept(kind):
    m, n, k = 64, 32, 128
    f = check_values(product(m, n, k, **kind), product_arguments(m, n, k), PASSES, warp_context())
    assert named(f, DOT) and not named(f, "tt.dot")


def test_a_known_zero_is_not_read():
    with nvidia_context():
        for init, operands in (("0.0", 4), ("3.0", 3), ("-0.0", 3)):
            _, f = after(product(64, 32, 32, init=init), PASSES, warp_context())
            (dot,) = named(f, DOT)
            assert len(dot.operands) == operands
        _, f = after(product(64, 32, 32), PASSES, warp_context())
        assert f.def_node(named(f, DOT)[0].operands[3]).attr("value").value is False


@pytest.mark.parametrize("imprecise, parts", [(1 << 30, 1), (129, 1), (128, 1), (64, 2), (100, 2), (63, 4), (32, 4), (8, 4), (0, 4)])
def test_imprecise_sums_are_added_in_full_precision(imprecise, parts):
    with nvidia_context():
        text = product(64, 32, 128, "f8E4M3FN", imprecise=imprecise, init="1.0")
        _, f = after(text, PASSES, warp_context())
        assert len(named(f, DOT)) == parts
        assert len(named(f, "arith.addf")) == (0 if imprecise > 128 else parts)


def test_what_came_through_a_transposition_is_stored_as_it_was_loaded():
    with nvidia_context():
        _, f = after(product(64, 64, 64, trans=(True, True)), PASSES, warp_context())
        (dot,) = named(f, DOT)
        for v, order in zip(dot.operands, ([0, 1], [0, 1])):
            view = f.def_node(v)
            assert view.name == "ttg.memdesc_trans" and panels(v)[4] == order
            assert panels(view.operands[0])[4] == [1, 0]
            assert f.def_node(f.def_node(view.operands[0]).operands[0]).name == "tt.load"


def test_a_cast_operand_stays_in_registers_and_its_narrow_data_is_what_is_stored():
    with nvidia_context():
        _, f = after(product(64, 64, 64, cast=("i8", None)), PASSES, warp_context())
        (dot,) = named(f, DOT)
        e = downcast(dot.operands[0].type.encoding)
        assert isinstance(e, ttg.DotOperandEncoding) and integer(e.params[2]) == 2
        assert f.def_node(dot.operands[0]).name == "arith.sitofp"
        (read,) = named(f, "ttg.local_load")
        assert str(read.operands[0].type.element_type) == "i8"


def test_one_buffer_serves_both_dots_of_one_operand():
    with nvidia_context():
        _, f = after(product(64, 64, 64, twice=True), PASSES, warp_context())
        assert len(named(f, DOT)) == 2 and len(named(f, "ttg.local_alloc")) == 2


@pytest.mark.parametrize("m, n, d, warps", [(64, 32, 64, 4), (128, 64, 64, 4), (128, 128, 128, 8)])
def test_attention_keeps_p_in_registers_and_q_outside_the_loop(m, n, d, warps):
    with nvidia_context():
        _, f = after(attention(m, n, d), PASSES, warp_context(warps))
        first, second = named(f, DOT)
        assert accumulator(first)[1] == accumulator(second)[1] == [warps, 1]
        q, k = (f.def_node(v) for v in first.operands[:2])
        assert q.name == k.name == "ttg.local_alloc" and not q.depth and k.depth
        assert len(first.operands) == 4 and len(second.operands) == 3
        p = f.def_node(second.operands[0])
        assert p.name == "ttg.convert_layout" and f.def_node(p.operands[0]).name == "arith.truncf"
        for convert in (x for x in f.nodes() if x.depth and x.name == "ttg.convert_layout"):
            source, target = (type_info(v.type) for v in (convert.operands[0], convert.results[0]))
            if len(source.shape) > 1:  # what one instruction's n or another's makes no difference to
                assert conversion_kind(source.shape, source.encoding, target.encoding) == "none"


def test_a_p_that_warp_groups_share_goes_through_shared_memory():
    """Two warp groups side by side along N hold halves of each row of P."""
    with nvidia_context():
        _, f = after(attention(64, 64, 64), PASSES, warp_context(8))
        second = named(f, DOT)[1]
        assert isinstance(second.operands[0].type, ttg.MemDescType)


def test_matmul_values_are_kept():
    check_values(matmul(64, 64, 32), matmul_arguments(70, 64, 64), PASSES, warp_context())


MMA = '#ttg.mma<"nvidia.wgmma_m64n64k16_f16", array<i32: 4, 1>, false>'
SYNC = '#ttg.mma<"nvidia.mma_m16n8k16_f16", array<i32: 4, 1>, false>'
PANELS = "#ttg.panel_shared<64 : i32, 8 : i32, 1 : i32, 8 : i32, array<i32: 1, 0>>"
SWIZZLED = "#ttg.swizzled_shared<8 : i32, 1 : i32, 8 : i32, array<i32: 1, 0>>"


def checked(a, b=PANELS, c=MMA, result=None):
    """verify_layouts on one product; ``a``: the encoding of A, in shared memory or in registers."""
    where = "!ttg.memdesc<array<i64: 64, 64>, f16, {}, true>"
    left = where.format(a) if "shared" in a else f"tensor<64x64xf16, {a}>"
    acc, out = f"tensor<64x64xf32, {c}>", f"tensor<64x64xf32, {result or c}>"
    with nvidia_context():
        verify_layouts.run(ir.Module.parse(f'''module attributes {{"ttg.num-warps" = 4 : i32, "ttg.threads-per-warp" = 32 : i32}} {{
          func.func @k(%a: {left}, %b: {where.format(b)}, %c: {acc}) {{
            %d = "ttng.warp_group_dot"(%a, %b, %c) {{input_precision = "ieee", max_num_imprecise_acc = 0 : i32, is_async = false}} :
              ({left}, {where.format(b)}, {acc}) -> {out}
            return }} }}'''), None)


def test_rules_of_layouts():
    checked(PANELS)
    checked(f"#ttg.dot_op<0 : i32, {MMA}, 2 : i32>")
    for wrong, message in (({"a": SWIZZLED}, "operand 0 lies in panels"), ({"a": PANELS, "b": SWIZZLED}, "operand 1 lies in panels"),
                           ({"a": PANELS, "c": SYNC}, "layout of a warp-group instruction"),
                           ({"a": f"#ttg.dot_op<1 : i32, {MMA}, 2 : i32>"}, "dot operand 0"), ({"a": MMA}, "dot operand 0"),
                           ({"a": PANELS, "result": SYNC}, "one type")):
        with pytest.raises(InternalCompilerError, match=message):
            checked(**wrong)
