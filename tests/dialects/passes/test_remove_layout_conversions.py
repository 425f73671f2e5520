"""remove_layout_conversions: what is left to convert in each kernel, and where."""

import pytest
from kernel_texts import KERNELS, Text, attention, context, masked_add, matmul, ptr, run_passes

from tilewright.dialects import ttg
from tilewright.dialects._mlir import ir
from tilewright.dialects.analysis.layout_cost import conversion_kind
from tilewright.dialects.analysis.structure import functions, type_info
from tilewright.dialects.context import mlir_context
from tilewright.dialects.passes import (
    accelerate_dot,
    coalesce,
    convert_tt_to_ttg,
    remove_layout_conversions,
    verify_layouts,
)

PASSES = (convert_tt_to_ttg, coalesce, accelerate_dot, remove_layout_conversions)


def conversions(f):
    """(loop depth, shape, element, source encoding's class, target's) of each conversion that moves anything."""
    out = []
    for n in f.nodes():
        if n.name == "ttg.convert_layout":
            a, b = type_info(n.operands[0].type), type_info(n.results[0].type)
            if conversion_kind(a.shape, a.encoding, b.encoding) != "none":
                out.append((n.depth, a.shape, str(a.element), type(a.encoding).__name__, type(b.encoding).__name__))
    return out


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("warp_size,num_warps", [(32, 4), (64, 4), (32, 1), (32, 8)])
def test_result_is_valid_and_running_it_again_changes_nothing_for_the_worse(name, warp_size, num_warps):
    with mlir_context():
        ctx = context(warp_size, num_warps)
        module, f = run_passes(KERNELS[name](), ctx, *PASSES)
        once = conversions(f)
        remove_layout_conversions.run(module, ctx)
        module.operation.verify()
        verify_layouts.run(module)
        assert len(conversions(functions(module)[0])) <= len(once)


@pytest.mark.parametrize("name", ["masked_add", "softmax", "layer_norm"])
def test_no_conversion_is_left_in_memory_bound_kernels(name):
    with mlir_context():
        assert conversions(run_passes(KERNELS[name](), context(), *PASSES)[1]) == []


def test_transpose_converts_the_data_once():
    with mlir_context():
        assert conversions(run_passes(KERNELS["transpose_copy"](), context(), *PASSES)[1]) == [
            (0, (64, 64), "f16", "BlockedEncoding", "BlockedEncoding")]


@pytest.mark.parametrize("warp_size", [32, 64])
def test_matmul_loop_converts_operands_only_and_the_epilogue_once(warp_size):
    with mlir_context():
        found = conversions(run_passes(matmul(), context(warp_size), *PASSES)[1])
        assert sorted(c for c in found if len(c[1]) > 1) == [
            (0, (128, 128), "f16", "MmaEncoding", "BlockedEncoding"),
            (1, (32, 128), "f16", "BlockedEncoding", "DotOperandEncoding"), (1, (128, 32), "f16", "BlockedEncoding", "DotOperandEncoding")]
        # the bias, a row
        assert all(c[0] == 0 and c[4] == "SliceEncoding" for c in found if len(c[1]) == 1) and len(found) <= 4


def test_matmul_carries_the_accumulator_in_the_instructions_layout_and_the_pointers_in_the_loads():
    with mlir_context():
        _, f = run_passes(matmul(), context(), *PASSES)
        (loop,) = (n for n in f.nodes() if n.name == "scf.for")
        loads = [n for n in f.nodes() if n.name == "tt.load" and n.depth == 1]
        encodings = [type_info(r.type).encoding for r in loop.results]
        assert isinstance(encodings[0], ttg.MmaEncoding)
        assert encodings[1:] == [type_info(n.results[0].type).encoding for n in loads]


def test_attention_converts_no_softmax_state_in_the_loop():
    with mlir_context():
        _, f = run_passes(attention(), context(), *PASSES)
        inside = sorted((shape, source, target) for depth, shape, _, source, target in conversions(f) if depth == 1)
        assert inside == [((32, 64), "BlockedEncoding", "DotOperandEncoding"),  # V
                          ((64, 32), "BlockedEncoding", "DotOperandEncoding")]  # K
        kinds = [conversion_kind(a.shape, a.encoding, b.encoding) for n in f.nodes() if n.name == "ttg.convert_layout"
                 for a, b in [(type_info(n.operands[0].type), type_info(n.results[0].type))]
                 if isinstance(a.encoding, ttg.MmaEncoding) and n.depth]
        assert kinds == ["none"]  # P is in its threads, in order
        # the queries are brought over once, before the loop, and the output once after it
        assert sorted(c[1:] for c in conversions(f) if c[0] == 0) == [
            ((64, 64), "f16", "BlockedEncoding", "DotOperandEncoding"), ((64, 64), "f16", "MmaEncoding", "BlockedEncoding")]


def test_conversion_happens_before_widening_and_after_narrowing():
    t = Text([("x", ptr("f16"), 16), ("o", ptr("f32"), 16), ("s", "i32", 16)])
    i, j = t.range(64), t.range(64)
    xs = t.bin("arith.addi", t.bin("arith.muli", t.expand(i, 1), t.args[2]), t.expand(j, 0))
    os = t.bin("arith.addi", t.bin("arith.muli", t.expand(j, 0), t.args[2]), t.expand(i, 1))
    t.store(t.addptr(t.args[1], os), t.cast("arith.extf", t.load(t.addptr(t.args[0], xs)), "f32"))
    with mlir_context():
        assert [c[2] for c in conversions(run_passes(str(t), context(), *PASSES)[1])] == ["f16"]


def test_a_carried_value_is_converted_before_the_loop_rather_than_in_it():
    # the accumulator starts from memory: the loop wants it in the instruction's layout
    text = matmul(64, 64, 32, bias=False, out="f32")
    lines = text.splitlines()
    (at,) = (i for i, x in enumerate(lines) if "dense<0.0> : tensor<64x64xf32>" in x)
    name = lines[at].split(" = ")[0]
    lines[at] = (f'%pp = "tt.splat"(%y) : ({ptr("f32")}) -> tensor<64x64x{ptr("f32")}>\n'
                 f'{name} = "tt.load"(%pp) {{cache = "none", evict = "normal", is_volatile = false, '
                 f'operandSegmentSizes = array<i32: 1, 0, 0>}} : (tensor<64x64x{ptr("f32")}>) -> tensor<64x64xf32>')
    with mlir_context():
        found = conversions(run_passes("\n".join(lines), context(), *PASSES)[1])
        assert [c for c in found if c[0] == 1 and c[1] == (64, 64)] == []
        assert (0, (64, 64), "f32", "BlockedEncoding", "MmaEncoding") in found


def test_a_carried_range_wanted_by_rows_and_columns_is_carried_in_both_layouts():
    t = Text([("x", ptr("f16"), 16), ("w", ptr("f16"), 16), ("o", ptr("f32"), 16), ("n", "i32", 16)])
    zero, one, step = (t.const(v, (), "i32") for v in (0, 1, 32))
    i = t.range(32)
    with t.loop(zero, t.args[3], one, [t.const("0.0", (64, 64), "f32"), i]) as (_, (acc, offs), (total, _)):
        rows = t.bin("arith.muli", t.expand(t.range(64), 1), t.const(4096, (), "i32"))
        a = t.load(t.addptr(t.args[0], t.bin("arith.addi", rows, t.expand(offs, 0))))
        down = t.bin("arith.muli", t.expand(offs, 1), t.const(64, (), "i32"))
        b = t.load(t.addptr(t.args[1], t.bin("arith.addi", down, t.expand(t.range(64), 0))))
        t.yield_([t.dot(a, b, acc), t.bin("arith.addi", offs, step)])
    where = t.bin("arith.addi", t.bin("arith.muli", t.expand(t.range(64), 1), t.const(64, (), "i32")), t.expand(t.range(64), 0))
    t.store(t.addptr(t.args[2], where), total)
    with mlir_context():
        _, f = run_passes(str(t), context(), *PASSES)
        (loop,) = (n for n in f.nodes() if n.name == "scf.for")
        assert len(loop.results) == 3 and len({str(r.type) for r in loop.results[1:]}) == 2
        assert [c for c in conversions(f) if c[2] == "i32"] == []


@pytest.mark.parametrize("rounds,converted", [(2, 0), (60, 1)])
def test_offsets_are_repeated_but_long_computations_converted(rounds, converted):
    """Offsets (cheap) and random numbers (dear), both from ranges alone, stored in two layouts."""
    t = Text([("x", ptr("i32"), 16), ("s", "i32", 16)])
    i, j = t.expand(t.range(64), 1), t.expand(t.range(64), 0)
    down = t.bin("arith.addi", t.bin("arith.muli", i, t.args[1]), j)
    across = t.bin("arith.addi", t.bin("arith.muli", j, t.args[1]), i)
    value = down
    for k in range(rounds):
        value = t.bin("arith.xori", t.bin("arith.muli", value, t.const(2 * k + 1, (), "i32")), value)
    for offsets in (down, across):
        t.store(t.addptr(t.args[0], offsets), value)
    with mlir_context():
        assert len(conversions(run_passes(str(t), context(), *PASSES)[1])) == converted


@pytest.mark.parametrize("used", [True, False])
def test_what_goes_to_a_scalar_is_read_in_the_layout_it_has(used):
    """A reduction of a whole row, and tt.unsplat: no layout of their results asks for their operands."""
    t = Text([("x", ptr("f16"), 16), ("o", ptr("f32"), 16)])
    row = t.load(t.addptr(t.args[0], t.range(2048)))  # 8 elements a thread, not the default's 1
    total = t.reduce(t.cast("arith.extf", row, "f32"), 0, "arith.addf")
    if used:
        wide = t.bin("arith.mulf", t.cast("arith.extf", row, "f32"), total)
        t.store(t.addptr(t.args[1], t.range(2048)), wide)
    one = t.op("tt.reshape", [t.splat(total, (1,))], (1, 1), "f32", "allow_reorder = false")
    t.store(t.args[1], t.op("tt.unsplat", [one], (), "f32"))
    with mlir_context():
        _, f = run_passes(str(t), context(), *PASSES)
        assert conversions(f) == []
        (reduce,) = (n for n in f.nodes() if n.name == "tt.reduce")
        (load,) = (n for n in f.nodes() if n.name == "tt.load")
        assert type_info(reduce.operands[0].type).encoding == type_info(load.results[0].type).encoding


def test_row_statistics_are_stored_from_the_layout_they_are_in():
    t = Text([("x", ptr("f32"), 16), ("o", ptr("f32"), 16)])
    i, j = t.range(32), t.range(128)
    xs = t.bin("arith.addi", t.bin("arith.muli", t.expand(i, 1), t.const(128, (), "i32")), t.expand(j, 0))
    t.store(t.addptr(t.args[1], i), t.reduce(t.load(t.addptr(t.args[0], xs)), 1, "arith.addf"))
    with mlir_context():
        assert conversions(run_passes(str(t), context(), *PASSES)[1]) == []


def test_branches_and_while_loops_are_one_layout():
    t = Text([("x", ptr("f32"), 16), ("o", ptr("f32"), 16), ("n", "i32", 1)])
    x, o, n = t.args
    p = t.addptr(x, t.range(1024))
    v = t.load(p)
    zero = t.const(0, (), "i32")
    c = t.cmp(4, n, zero)
    t.lines.append(f'%r = "scf.if"({c.name}) ({{')
    w = t.bin("arith.addf", v, v)
    t.yield_([w])
    t.lines.append("}, {")
    t.yield_([t.const("1.0", (1024,), "f32")])
    t.lines.append(f"}}) : (i1) -> {v.type}")
    t.lines.append(f'%w:2 = "scf.while"(%r, {n.name}) ({{\n^bb0(%a: {v.type}, %k: i32):\n%c = arith.cmpi sgt, %k, {zero.name} : i32\n'
                   f'"scf.condition"(%c, %a, %k) : (i1, {v.type}, i32) -> ()\n}}, {{\n^bb0(%b: {v.type}, %l: i32):\n'
                   f'%d = arith.addf %b, %b : {v.type}\n%one = arith.constant 1 : i32\n%m = arith.subi %l, %one : i32\n'
                   f'"scf.yield"(%d, %m) : ({v.type}, i32) -> ()\n}}) : ({v.type}, i32) -> ({v.type}, i32)')
    t.lines.append(f'%q = "tt.splat"(%o) : ({ptr("f32")}) -> tensor<1024x{ptr("f32")}>')
    r = t.range(1024)
    t.lines.append(f'%s = "tt.addptr"(%q, {r.name}) : (tensor<1024x{ptr("f32")}>, {r.type}) -> tensor<1024x{ptr("f32")}>')
    t.lines.append('"tt.store"(%s, %w#0) {cache = "none", evict = "normal", operandSegmentSizes = array<i32: 1, 1, 0>} : '
                   f'(tensor<1024x{ptr("f32")}>, {v.type}) -> ()')
    with mlir_context():
        assert conversions(run_passes(str(t), context(), *PASSES)[1]) == []


def test_without_this_pass_an_add_converts_all_it_loads_and_stores():
    with mlir_context():
        assert len(conversions(run_passes(masked_add(), context(), *PASSES[:-1])[1])) > 0


def test_a_conversion_used_in_one_branch_only_moves_there():
    text = """module attributes {"ttg.num-warps" = 4 : i32, "ttg.threads-per-warp" = 32 : i32} {
    func.func @k(%c: i1, %p: tensor<128x!tt.ptr<f32, 1 : i32>, #A>, %q: tensor<128x!tt.ptr<f32, 1 : i32>, #B>) {
      %v = "tt.load"(%p) {cache = "none", evict = "normal", is_volatile = false, operandSegmentSizes = array<i32: 1, 0, 0>}
        : (tensor<128x!tt.ptr<f32, 1 : i32>, #A>) -> tensor<128xf32, #A>
      %w = "ttg.convert_layout"(%v) : (tensor<128xf32, #A>) -> tensor<128xf32, #B>
      scf.if %c {
        "tt.store"(%q, %w) {cache = "none", evict = "normal", operandSegmentSizes = array<i32: 1, 1, 0>}
          : (tensor<128x!tt.ptr<f32, 1 : i32>, #B>, tensor<128xf32, #B>) -> ()
      }
      return } }"""
    text = text.replace("#A", "#ttg.blocked<array<i32: 1>, array<i32: 32>, array<i32: 4>, array<i32: 0>>")
    text = text.replace("#B", "#ttg.blocked<array<i32: 2>, array<i32: 32>, array<i32: 4>, array<i32: 0>>")
    with mlir_context():
        module = ir.Module.parse(text)
        remove_layout_conversions.run(module, context())
        module.operation.verify()
        (convert,) = (n for n in functions(module)[0].nodes() if n.name == "ttg.convert_layout")
        assert convert.parent.name == "scf.if"
