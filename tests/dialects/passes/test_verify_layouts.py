"""verify_layouts: each rule is seen when it is broken, and the pass that broke it is named."""

import pytest
from kernel_texts import KERNELS, Text, context, ptr, run_passes

from tilewright.dialects import ttg
from tilewright.dialects.analysis.structure import functions, with_encoding
from tilewright.dialects.context import mlir_context
from tilewright.dialects.encodings import default_blocked
from tilewright.dialects.errors import InternalCompilerError
from tilewright.dialects.pass_runner import run_passes as run_as_pipeline
from tilewright.dialects.passes import (
    accelerate_dot,
    coalesce,
    convert_tt_to_ttg,
    optimize_dot_operands,
    remove_layout_conversions,
    verify_layouts,
)
from tilewright.dialects.pipeline import Pass

PASSES = (convert_tt_to_ttg, coalesce, accelerate_dot, remove_layout_conversions, optimize_dot_operands)


def prepared():
    t = Text([("x", ptr("f32"), 16), ("c", "i1", 1)])
    i, j = t.range(16), t.range(32)
    v = t.load(t.addptr(t.args[0], t.bin("arith.addi", t.bin("arith.muli", t.expand(i, 1), t.const(32, (), "i32")), t.expand(j, 0))))
    row = t.reduce(v, 1, "arith.addf")
    back = t.op("tt.trans", [v], (32, 16), "f32", "order = array<i32: 1, 0>")
    whole = t.bin("arith.addf", t.scan(v, 0), t.expand(row, 1))
    t.lines.append('%if = "scf.if"(%c) ({')
    t.yield_([whole])
    t.lines.append("}, {")
    t.yield_([v])
    t.lines.append(f"}}) : (i1) -> {v.type}")
    t.store(t.splat(t.args[0], (32, 16)), back)
    with mlir_context():
        return run_passes(str(t), context(), convert_tt_to_ttg)


OTHER = {1: ([2], [32], [4], [0]), 2: ([2, 1], [8, 4], [4, 1], [1, 0])}


@pytest.mark.parametrize("op,result,rule", [
    ("tt.reduce", 0, "slice of the operand"), ("tt.trans", 0, "no element moved"), ("tt.scan", 0, "one encoding"),
    ("tt.expand_dims", 0, "slice of the result"), ("tt.load", 0, "one encoding"), ("tt.broadcast", 0, "one encoding"),
    ("scf.if", 0, "yielded values and results")])
def test_a_result_with_another_layout_is_seen(op, result, rule):
    with mlir_context():
        module, f = prepared()
        node = next(n for n in f.nodes() if n.name == op)
        value = node.results[result]
        value.set_type(with_encoding(value.type, ttg.BlockedEncoding.of(*OTHER[len(value.type.shape)])))
        with pytest.raises(InternalCompilerError, match=rule):
            verify_layouts.check(node)
            verify_layouts._check_flow(node)


def test_layouts_for_another_number_of_warps_or_without_one_are_seen():
    with mlir_context():
        for encoding, rule in ((default_blocked((16, 32), 2, 32), "2 warps"), (default_blocked((16, 32), 4, 64), "64 lanes"),
                               (None, "no encoding")):
            module, f = prepared()
            value = next(n for n in f.nodes() if n.name == "tt.load").results[0]
            value.set_type(with_encoding(value.type, encoding))
            with pytest.raises(InternalCompilerError, match=rule):
                verify_layouts.run(module)


def test_a_buffer_of_another_shape_is_seen():
    with mlir_context():
        module, f = run_passes(KERNELS["matmul"](), context(), *PASSES)
        node = next(n for n in f.nodes() if n.name == "ttg.local_alloc")
        t = node.results[0].type
        node.results[0].set_type(ttg.MemDescType.of([64, 32], t.element_type, t.encoding))
        with pytest.raises(InternalCompilerError, match="shape and element type of the buffer"):
            verify_layouts.run(module)


def test_the_pass_that_breaks_a_rule_is_named(monkeypatch):
    monkeypatch.setenv("TILEWRIGHT_VERIFY", "1")

    def break_it(module, ctx):
        (f,) = functions(module)
        value = next(n for n in f.nodes() if n.name == "tt.make_range").results[0]
        value.set_type(with_encoding(value.type, ttg.BlockedEncoding.of([1], [32], [2], [0])))

    with mlir_context():
        module, _ = prepared()
        with pytest.raises(InternalCompilerError, match="after careless"):
            run_as_pipeline(module, (Pass("careless", break_it),), context())
