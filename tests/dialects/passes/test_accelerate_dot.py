"""accelerate_dot: which row, how many warps each way, and what stays on FMA."""

import numpy as np
import pytest
from evaluate import Evaluator
from kernel_texts import KERNELS, Text, attention, context, matmul, ptr, run_passes

from tilewright.dialects import ttg
from tilewright.dialects._mlir import ir
from tilewright.dialects.analysis.structure import type_info
from tilewright.dialects.context import mlir_context
from tilewright.dialects.encodings import boolean, downcast, integer, ints, string, to_linear_layout
from tilewright.dialects.passes import (
    accelerate_dot,
    coalesce,
    convert_tt_to_ttg,
    optimize_dot_operands,
    remove_layout_conversions,
)
from tilewright.dialects.passes.accelerate_dot import warps_for

PASSES = (convert_tt_to_ttg, coalesce, accelerate_dot)


def dots(text, ctx=None):
    """Each dot's (row or None for FMA, warps, transposed, k_width, element types)."""
    module, f = run_passes(text, ctx or context(), *PASSES)
    found = []
    for n in f.nodes():
        if n.name == "tt.dot":
            a, b, c = (type_info(v.type) for v in n.operands)
            e = c.encoding
            mma = isinstance(e, ttg.MmaEncoding)
            found.append((string(e.params[0]) if mma else None, ints(e.params[1]) if mma else ints(e.params[2]),
                          boolean(e.params[2]) if mma else False, integer(a.encoding.params[2]),
                          (str(a.element), str(b.element), str(c.element))))
    return found


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("warp_size", [32, 64])
def test_result_is_valid(name, warp_size):
    with mlir_context():
        dots(KERNELS[name](), context(warp_size))


@pytest.mark.parametrize("element,acc,row,k_width", [
    ("f16", "f32", "test.m16n8k16_f16", 2), ("bf16", "f32", "test.m16n8k16_bf16", 2), ("i8", "i32", "test.m16n8k32_i8", 4)])
def test_row_by_operand_types(element, acc, row, k_width):
    with mlir_context():
        text = matmul(64, 64, 32, element, acc=acc, out=acc, bias=False)
        assert dots(text) == [(row, [2, 2], False, k_width, (element, element, acc))]


def test_f32_takes_tf32_only_when_allowed():
    with mlir_context():
        text = matmul(64, 64, 32, "f32", out="f32", precision="tf32")
        assert dots(text)[0][0] == "test.m16n8k8_tf32"
        assert dots(text.replace('"tf32"', '"ieee"'))[0][0] is None
        assert dots(text, context(rows=["test.m16n8k16_f16"]))[0][0] is None


def test_fma_accumulator_is_blocked_over_all_threads():
    with mlir_context():
        (fma,) = dots(matmul(64, 64, 32, "f32", out="f32"))
        assert fma[0] is None and fma[3] == 0
        _, f = run_passes(matmul(64, 64, 32, "f32", out="f32"), context(), *PASSES)
        (c,) = (type_info(n.results[0].type) for n in f.nodes() if n.name == "tt.dot")
        size, threads, *_ = (ints(p) for p in c.encoding.params)
        assert size == [4, 4] and threads == [4, 8]
        assert to_linear_layout(c.shape, c.encoding).is_injective()


def test_shapes_that_no_row_divides_stay_on_fma():
    t = Text([("x", ptr("f16"), 16)])
    zero = t.const("0.0", (16, 8), "f16")
    d = t.dot(zero, t.const("0.0", (8, 16), "f16"), t.const("0.0", (16, 16), "f32"))  # k = 8, the row has 16
    t.store(t.splat(t.op("tt.bitcast", t.args[:1], (), ptr("f32")), (16, 16)), d)
    with mlir_context():
        assert dots(str(t))[0][0] is None


def test_large_instruction_only_where_it_occupies_the_warps():
    with mlir_context():
        assert dots(matmul(64, 64, 32), context(64))[0][:3] == ("test.w64_32x32x8_f16", [2, 2], True)


def test_transposed_can_be_declined():
    with mlir_context():
        assert dots(matmul(64, 64, 32), context(64, transposed_accumulators=False))[0][2] is False


def test_attention_has_all_warps_along_m_and_p_stays_in_its_threads():
    with mlir_context():
        for ctx in (context(), context(64, 2)):
            first, second = dots(attention(), ctx)
            assert first[:3] == second[:3] and first[1] == [ctx.num_warps, 1]
            _, f = run_passes(attention(), ctx, *PASSES)
            d1, d2 = (n for n in f.nodes() if n.name == "tt.dot")
            acc, a = type_info(d1.results[0].type), type_info(d2.operands[0].type)
            mapping = to_linear_layout(acc.shape, acc.encoding).invert_and_compose(to_linear_layout(acc.shape, a.encoding))
            assert mapping.is_trivial_over(["lane", "warp"])
            assert downcast(a.encoding.params[1]) == type_info(d2.results[0].type).encoding


def test_fp8_without_a_row_is_converted_to_fp16_with_a_wider_k():
    with mlir_context():
        (dot,) = dots(matmul(64, 64, 64, "f8E5M2"))
        assert dot[0] == "test.m16n8k16_f16" and dot[3] == 4 and dot[4] == ("f16", "f16", "f32")


def test_narrow_accumulator_goes_through_the_rows():
    t = Text([("x", ptr("f16"), 16)])
    a, b = t.const("0.0", (64, 32), "f16"), t.const("0.0", (32, 64), "f16")
    t.store(t.splat(t.args[0], (64, 64)), t.dot(a, b, t.const("1.0", (64, 64), "f16")))
    with mlir_context():
        assert dots(str(t))[0][4] == ("f16", "f16", "f32")
        _, f = run_passes(str(t), context(), *PASSES)
        names = [n.name for n in f.nodes()]
        assert names.count("arith.extf") == 1 and names.count("arith.truncf") == 1
        (store,) = (n for n in f.nodes() if n.name == "tt.store")
        assert type_info(store.operands[1].type).element == ir.F16Type.get()


def test_batched_dot_spreads_the_batch_over_warps():
    t = Text([("x", ptr("f32"), 16)])
    a, b = t.const("0.0", (2, 32, 32), "f16"), t.const("0.0", (2, 32, 32), "f16")
    t.store(t.splat(t.args[0], (2, 32, 32)), t.dot(a, b, t.const("1.0", (2, 32, 32), "f32")))
    with mlir_context():
        row, warps, *_ = dots(str(t))[0]
        assert row == "test.m16n8k16_f16" and warps[0] == 2 and warps[1] * warps[2] == 2


@pytest.mark.parametrize("m,n,warps,expected", [(128, 128, 4, (2, 2)), (128, 128, 8, (4, 2)), (128, 32, 4, (4, 1)), (16, 128, 4, (1, 4)),
                                                (128, 256, 8, (2, 4)), (16, 16, 4, (4, 1))])
def test_warps_share_the_tile_with_the_fewest_operand_reads(m, n, warps, expected):
    assert warps_for(m, n, 16, 16, warps, False) == expected


@pytest.mark.parametrize("precision,count", [("tf32x3", 3), ("bf16x3", 3), ("bf16x6", 6)])
def test_f32_out_of_narrower_parts(precision, count):
    with mlir_context():
        text = matmul(64, 64, 32, "f32", out="f32", precision=precision)
        found = dots(text)
        row, element = ("test.m16n8k8_tf32", "f32") if precision == "tf32x3" else ("test.m16n8k16_bf16", "bf16")
        assert [(d[0], d[4]) for d in found] == [(row, (element, element, "f32"))] * count
        # without rows for the parts one exact dot is left
        assert [d[0] for d in dots(text, context(rows=["test.m16n8k16_f16"]))] == [None]
        _, f = run_passes(text, context(), *PASSES, remove_layout_conversions, optimize_dot_operands)
        inside = [n.name for n in f.nodes() if n.depth]
        assert inside.count("ttg.local_load") == 2 and "ttg.convert_layout" not in inside


class NarrowDots(Evaluator):
    """Dots read f32 operands as tf32 (the leading bits); casts and differences are in f32."""

    def compute(self, node, x):
        f32 = [np.asarray(v).astype(np.float32) if isinstance(v, np.ndarray) and v.dtype.kind == "f" else v for v in x]
        if node.name == "tt.bitcast":
            return [f32[0].view(np.int32)] if x[0].dtype.kind == "f" else [x[0].astype(np.int32).view(np.float32).astype(np.float64)]
        if node.name == "arith.subf":
            return [(f32[0] - f32[1]).astype(np.float64)]
        if node.name == "arith.truncf":
            bits = f32[0].view(np.uint32).astype(np.uint64)
            bits = (bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000
            return [bits.astype(np.uint32).view(np.float32).astype(np.float64)]
        if node.name == "arith.cmpf":
            return [np.isnan(x[0])]
        if node.name == "tt.dot" and str(type_info(node.operands[0].type).element) == "f32":
            cut = [(v.view(np.int32) & -(1 << 13)).view(np.float32).astype(np.float64) for v in f32[:2]]
            return [cut[0] @ cut[1] + x[2]]
        return super().compute(node, x)


@pytest.mark.parametrize("precision,bound", [("tf32x3", 2e-6), ("bf16x3", 3e-5), ("bf16x6", 5e-7)])
def test_parts_add_up_to_f32_precision(precision, bound):
    """Values against float64, with the parts rounded as the instructions read them; single products cancel nothing."""
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((64, 32)).astype(np.float32), rng.standard_normal((32, 64)).astype(np.float32)
    a[3, 5] = np.inf
    t = Text([("x", ptr("f32"), 16), ("y", ptr("f32"), 16), ("o", ptr("f32"), 16)])

    def tile(p, rows, columns):
        i = t.bin("arith.muli", t.expand(t.range(rows), 1), t.const(columns, (), "i32"))
        return t.addptr(p, t.bin("arith.addi", i, t.expand(t.range(columns), 0)))

    acc = t.const("0.5", (64, 64), "f32")
    t.store(tile(t.args[2], 64, 64), t.dot(t.load(tile(t.args[0], 64, 32)), t.load(tile(t.args[1], 32, 64)), acc, precision))
    with mlir_context():
        _, f = run_passes(str(t), context(), *PASSES, remove_layout_conversions, optimize_dot_operands)
        out = np.full(64 * 64, np.nan)
        with np.errstate(invalid="ignore"):
            NarrowDots(f, [a.ravel().astype(np.float64), b.ravel().astype(np.float64), out])
            reference = a.astype(np.float64) @ b.astype(np.float64) + 0.5
    out = out.reshape(64, 64)
    np.testing.assert_array_equal(out[3], reference[3])  # infinities of either sign
    rest = np.arange(64) != 3
    assert np.linalg.norm(out[rest] - reference[rest]) / np.linalg.norm(reference[rest]) < bound


def told(text, ctx):
    with mlir_context():
        run_passes(text, ctx, *PASSES)
    return [(c["what"], c["chosen"], c["why"]) for c in ctx.metadata["choices"] if c["what"].startswith("tl.dot")]


def test_it_says_what_computes_a_dot_and_why_no_instruction_does():
    (what, chosen, why), = told(matmul(64, 64, 32, "f16", bias=False), context())
    assert (what, chosen, why) == ("tl.dot 64×64×32 of f16 and f16", "matrix instruction test.m16n8k16_f16", "")
    fma = "multiply-adds, no matrix instruction"
    assert told(matmul(64, 64, 32, "f16", bias=False), context(rows=[]))[0][1:] == (fma, "test has no matrix instructions")
    _, chosen, why = told(matmul(64, 64, 8, "f16", bias=False), context())[0]
    assert chosen == fma and why == "K is 8, no multiple of what one instruction computes on test: M×N×K of 16×8×16"
    _, chosen, why = told(matmul(64, 64, 32, "bf16", bias=False), context(rows=["test.m16n8k16_f16"]))[0]
    assert chosen == fma and why == "test has no matrix instruction that multiplies bf16 into f32; it has f16→f32"
    what, chosen, why = told(matmul(64, 64, 32, "f8E4M3FN", bias=False), context(rows=["test.m16n8k16_f16"]))[0]
    assert "f8E4M3FN" in what and chosen.endswith("test.m16n8k16_f16")
    assert why == "f8E4M3FN is converted to f16: test has no matrix instruction for f8E4M3FN with these types and sizes"
