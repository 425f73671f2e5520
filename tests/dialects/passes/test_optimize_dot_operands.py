"""optimize_dot_operands: the shape the pipeliner expects, and swizzles without bank conflicts."""

import pytest
from kernel_texts import KERNELS, Text, attention, context, matmul, ptr, run_passes

from tilewright.dialects import ttg
from tilewright.dialects.analysis.layout_rules import transposed
from tilewright.dialects.analysis.structure import type_info
from tilewright.dialects.context import mlir_context
from tilewright.dialects.encodings import blocked_for, ints, to_linear_layout
from tilewright.dialects.passes import (
    accelerate_dot,
    coalesce,
    convert_tt_to_ttg,
    optimize_dot_operands,
    remove_layout_conversions,
)
from tilewright.dialects.passes.optimize_dot_operands import choose_swizzle
from tilewright.dialects.shared_layouts import cost_of
from tilewright.dialects.shared_model import SharedModel
from tilewright.dialects.swizzle import access_vector, bank_conflicts

PASSES = (convert_tt_to_ttg, coalesce, accelerate_dot, remove_layout_conversions, optimize_dot_operands)


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("warp_size", [32, 64])
def test_result_is_valid(name, warp_size):
    with mlir_context():
        run_passes(KERNELS[name](), context(warp_size), *PASSES)


def chain(f, value):
    """Names of the ops from a value up to where a chain of single operands ends."""
    names = []
    node = f.def_node(value)
    while node is not None:
        names.append(node.name)
        if node.name == "tt.load":
            break
        node = f.def_node(node.operands[0])
    return names


@pytest.mark.parametrize("precision", ["tf32", "ieee"])
@pytest.mark.parametrize("element", ["f16", "f32"])
def test_matmul_operands_go_through_shared_memory(element, precision):
    with mlir_context():
        _, f = run_passes(matmul(64, 64, 32, element, out=element, precision=precision), context(), *PASSES)
        (dot,) = (n for n in f.nodes() if n.name == "tt.dot")
        for v in dot.operands[:2]:
            assert chain(f, v) == ["ttg.local_load", "ttg.local_alloc", "tt.load"]
        names = [n.name for n in f.nodes() if n.depth == 1]
        assert "ttg.convert_layout" not in names


def test_fp8_is_stored_narrow_and_widened_after_it_was_read():
    with mlir_context():
        _, f = run_passes(matmul(64, 64, 64, "f8E5M2"), context(), *PASSES)
        (dot,) = (n for n in f.nodes() if n.name == "tt.dot")
        for v in dot.operands[:2]:
            assert chain(f, v) == ["tt.fp_to_fp", "ttg.local_load", "ttg.local_alloc", "tt.load"]
        assert {str(type_info(n.operands[0].type).element) for n in f.nodes() if n.name == "ttg.local_alloc"} == {"f8E5M2"}


def test_trans_becomes_a_view_of_shared_memory():
    t = Text([("q", ptr("f16"), 16), ("k", ptr("f16"), 16), ("o", ptr("f32"), 16)])

    def tile(p, rows, columns):
        i = t.bin("arith.muli", t.expand(t.range(rows), 1), t.const(columns, (), "i32"))
        return t.addptr(p, t.bin("arith.addi", i, t.expand(t.range(columns), 0)))

    q, k = t.load(tile(t.args[0], 64, 32)), t.load(tile(t.args[1], 128, 32))
    kt = t.op("tt.trans", [k], (32, 128), "f16", "order = array<i32: 1, 0>")
    t.store(tile(t.args[2], 64, 128), t.dot(q, kt, t.const("0.0", (64, 128), "f32")))
    with mlir_context():
        _, f = run_passes(str(t), context(), *PASSES)
        (dot,) = (n for n in f.nodes() if n.name == "tt.dot")
        assert chain(f, dot.operands[1]) == ["ttg.local_load", "ttg.memdesc_trans", "ttg.local_alloc", "tt.load"]
        assert "tt.trans" not in [n.name for n in f.nodes()]
        view, = (n for n in f.nodes() if n.name == "ttg.memdesc_trans")
        before, after = view.operands[0].type, view.results[0].type
        assert before.shape == [128, 32] and after.shape == [32, 128]
        # the view maps each offset to the transposed coordinates
        a, b = to_linear_layout((128, 32), before.encoding), to_linear_layout((32, 128), after.encoding)
        assert [tuple(reversed(v)) for v in a.bases["offset"]] == b.bases["offset"]


def test_attention_p_stays_in_registers_and_v_and_k_go_through_shared_memory():
    with mlir_context():
        _, f = run_passes(attention(), context(), *PASSES)
        first, second = (n for n in f.nodes() if n.name == "tt.dot")
        assert chain(f, second.operands[0])[:2] == ["ttg.convert_layout", "arith.truncf"]
        assert chain(f, first.operands[1])[:2] == chain(f, second.operands[1])[:2] == ["ttg.local_load", "ttg.local_alloc"]
        # q is read once, before the loop
        assert f.def_node(first.operands[0]).depth == 0


def test_without_this_pass_operands_are_converted_in_the_loop():
    with mlir_context():
        _, f = run_passes(matmul(), context(), *PASSES[:-1])
        assert [n.name for n in f.nodes() if n.depth == 1].count("ttg.convert_layout") == 2


# (row, bits of an element, k_width)
ROWS = {32: [("test.m16n8k16_f16", 16, 2), ("test.m16n8k8_tf32", 32, 1), ("test.m16n8k32_i8", 8, 4)], 64: [("test.w64_32x32x8_f16", 16, 4)]}


@pytest.mark.parametrize("warp_size,row,bits,k_width", [(w, *r) for w in ROWS for r in ROWS[w]])
@pytest.mark.parametrize("k", [32, 64, 128])
@pytest.mark.parametrize("operand", [0, 1])
@pytest.mark.parametrize("k_major", [True, False])
def test_swizzles_of_matrix_operands_have_no_bank_conflicts(warp_size, row, bits, k_width, k, operand, k_major):
    """By brute force over all threads (dialects/swizzle.py), reads and writes; MN-major 8-bit reads may be byte by byte."""
    with mlir_context():
        shape = (128, k) if operand == 0 else (k, 128)
        k_dim = 1 - operand
        order = [k_dim, 1 - k_dim] if k_major else [1 - k_dim, k_dim]
        vec = 128 // bits
        size = [vec if d == order[0] else 1 for d in (0, 1)]
        written = blocked_for(shape, size, order, 4, warp_size)
        parent = ttg.MmaEncoding.of(row, [2, 2])
        read = ttg.DotOperandEncoding.of(operand, parent, k_width)
        chosen = choose_swizzle(shape, tuple(order), bits, written, read)
        shared = to_linear_layout(shape, ttg.SwizzledSharedEncoding.of(*chosen, order))
        plain = to_linear_layout(shape, ttg.SwizzledSharedEncoding.of(1, 1, 1, order))
        both = [(to_linear_layout(shape, written), True), (to_linear_layout(shape, read), False)]
        conflicts = [bank_conflicts(layout, shared, bits, write=w) for layout, w in both]
        if k_major or bits > 8:
            assert conflicts[1] == 0, (chosen, conflicts)
        if chosen[0] * bits >= 128:  # lanes that read 8 bytes of each row need chunks of 8 bytes, which 16-byte writes straddle
            assert conflicts[0] == 0, (chosen, conflicts)
        assert sum(conflicts) <= sum(bank_conflicts(layout, plain, bits, write=w) for layout, w in both)


@pytest.mark.parametrize("k,expected", [(32, (8, 2, 4)), (64, (8, 1, 8)), (128, (8, 1, 8))])
def test_sixteen_bit_rows_get_the_swizzle_of_eight_rows_of_sixteen_bytes(k, expected):
    with mlir_context():
        written = blocked_for((128, k), [1, 8], [1, 0], 4, 32)
        read = ttg.DotOperandEncoding.of(0, ttg.MmaEncoding.of("test.m16n8k16_f16", [2, 2]), 2)
        assert choose_swizzle((128, k), (1, 0), 16, written, read) == expected


def test_order_of_the_buffer_is_that_of_the_load():
    with mlir_context():
        _, f = run_passes(matmul(w_column_major=True), context(), *PASSES)
        orders = [ints(n.results[0].type.encoding.params[3]) for n in f.nodes() if n.name == "ttg.local_alloc"]
        assert orders == [[1, 0], [0, 1]]


def test_layouts_transpose_there_and_back():
    with mlir_context():
        e = ttg.DotOperandEncoding.of(1, ttg.MmaEncoding.of("test.m16n8k16_f16", [2, 2]), 2)
        there = transposed((32, 128), e, (1, 0))
        back = transposed((128, 32), there, (1, 0))
        assert to_linear_layout((32, 128), back) == to_linear_layout((32, 128), e)


def test_without_async_copies_the_buffer_is_k_fastest_so_that_reads_are_vectors():
    with mlir_context():
        _, f = run_passes(matmul(64, 64, 64), context(64), *PASSES)
        allocs = [n for n in f.nodes() if n.name == "ttg.local_alloc"]
        assert [ints(n.results[0].type.encoding.params[3]) for n in allocs] == [[1, 0], [0, 1]]
        w = allocs[1]
        (load, _), = f.uses(w.results[0])
        shared = to_linear_layout((64, 64), w.results[0].type.encoding)
        read, written = (to_linear_layout((64, 64), type_info(v.type).encoding) for v in (load.results[0], w.operands[0]))
        assert access_vector(read, shared, 2) == 4 and access_vector(written, shared, 2, write=True) == 4
        # with copies it is in the order of the load
        _, f = run_passes(matmul(64, 64, 64), context(32), *PASSES)
        assert [ints(n.results[0].type.encoding.params[3]) for n in f.nodes() if n.name == "ttg.local_alloc"] == [[1, 0], [1, 0]]


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("transposing", [{}, {16: 8, 8: 8}], ids=["plain", "transposing"])
def test_buffers_of_a_memory_of_a_known_kind(name, transposing):
    """Any linear layout may be taken: valid in every kernel, no dearer than the best swizzle, and without conflicts."""
    model = SharedModel(64 if transposing else 32, {16: (1, 2, 20)}, transposing)
    with mlir_context():
        _, f = run_passes(KERNELS[name](), context(64, shared_model=model), *PASSES)
        for node in f.nodes():
            if node.name == "ttg.local_alloc" and node.operands:
                source = type_info(node.operands[0].type)
                memory = node.results[0]
                (user,) = (u for u, _ in f.uses(memory))
                read = user.results[0]
                order = tuple(range(len(source.shape)))
                if user.name == "ttg.memdesc_trans":
                    order = tuple(user.ints_attr("order"))
                    (load,) = (u for u, _ in f.uses(read))
                    read = load.results[0]
                target = transposed(type_info(read.type).shape, type_info(read.type).encoding, tuple(order.index(d) for d in range(len(order))))
                bits = max(8, source.bits)
                found = cost_of(source.shape, source.encoding, target, memory.type.encoding, bits, model)
                for swizzle in ((1, 1, 1), (8, 1, 8), (4, 1, 16)):
                    for dims in ([1, 0], [0, 1]):
                        other = ttg.SwizzledSharedEncoding.of(*swizzle, dims)
                        assert found.total <= cost_of(source.shape, source.encoding, target, other, bits, model).total or swizzle[0] * swizzle[2] > 64
                if bits == 16:
                    assert found.conflicts == 0


def test_buffers_of_targets_that_say_nothing_stay_swizzled():
    with mlir_context():
        _, f = run_passes(matmul(64, 64, 64), context(64), *PASSES)
        allocs = [n for n in f.nodes() if n.name == "ttg.local_alloc"]
        assert allocs and all(isinstance(n.results[0].type.encoding, ttg.SwizzledSharedEncoding) for n in allocs)
