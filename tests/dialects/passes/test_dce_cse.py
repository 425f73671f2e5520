"""dce_cse on small texts: what goes, what stays."""

from __future__ import annotations

import pytest

from tilewright.dialects.context import mlir_context
from tilewright.dialects.pass_runner import GenericCapabilities, GenericOptions, run_text
from tilewright.dialects.passes import shared_pass
from tilewright.dialects.pipeline import PassContext

PTR = "!tt.ptr<f32, 1 : i32>"
HEAD = f"""module {{ func.func @k(%p: {PTR}, %q: {PTR}, %n: i32, %c: i1, %x: f32, %t: tensor<8xf32>) attributes {{tt.kernel}} {{
"""
LOAD = f'"tt.load"(%p) {{operandSegmentSizes = array<i32: 1, 0, 0>, cache = "none", evict = "normal", is_volatile = VOL}} : ({PTR}) -> f32'
PLAIN, VOLATILE = LOAD.replace("VOL", "false"), LOAD.replace("VOL", "true")


def store(value):
    return f'"tt.store"(%p, {value}) {{operandSegmentSizes = array<i32: 1, 1, 0>, cache = "none", evict = "normal"}} : ({PTR}, f32) -> ()\n'


def run(body, verify=True):
    ctx = PassContext(None, "generic", GenericCapabilities(), GenericOptions())
    with mlir_context():
        return run_text(HEAD + body + "\nreturn\n}}", [shared_pass("dce_cse")], ctx)


def count(text, name):
    return text.count(f'"{name}"') + text.count(f" {name} ")


def test_unused_chain_goes_and_effects_stay():
    text = run(f"""
      %a = arith.addf %x, %x : f32
      %b = arith.mulf %a, %x : f32
      %l = {PLAIN}
      %v = {VOLATILE}
      %used = arith.subf %x, %x : f32
      {store("%used")}""")
    assert count(text, "arith.addf") == 0 and count(text, "arith.mulf") == 0
    assert text.count("tt.load") == 1 and "is_volatile = true" in text
    assert count(text, "arith.subf") == 1 and count(text, "tt.store") == 1


def test_equal_pure_ops_merge_across_nesting_but_not_out_of_it():
    text = run(f"""
      %a = arith.addf %x, %x : f32
      scf.if %c {{
        %b = arith.addf %x, %x : f32
        %d = arith.mulf %x, %x : f32
        {store("%b")}{store("%d")}
      }} else {{
        %d = arith.mulf %x, %x : f32
        {store("%d")}
      }}
      {store("%a")}""")
    assert count(text, "arith.addf") == 1
    assert count(text, "arith.mulf") == 2  # neither branch dominates the other


def test_loads_and_ops_with_other_attributes_are_not_merged():
    text = run(f"""
      %a = {PLAIN}
      %b = {PLAIN}
      %r = "tt.make_range"() {{start = 0 : i32, end = 8 : i32}} : () -> tensor<8xi32>
      %s = "tt.make_range"() {{start = 8 : i32, end = 16 : i32}} : () -> tensor<8xi32>
      %f = arith.addf %a, %b : f32
      %g = arith.addf %a, %b fastmath<nnan> : f32
      "tt.print"(%r, %s) {{prefix = "", hex = false, is_signed = array<i32: 0, 0>, operandSegmentSizes = array<i32: 1, 1, 0, 0, 0, 0, 0, 0>}} : (tensor<8xi32>, tensor<8xi32>) -> ()
      {store("%f")}{store("%g")}""")
    assert text.count("tt.load") == 2 and text.count("tt.make_range") == 2 and count(text, "arith.addf") == 2


REDUCE = """"tt.reduce"(%t) ({
  ^bb0(%a: f32, %b: f32):
    %s = arith.OP %a, %b : f32
    "tt.reduce_return"(%s) {operandSegmentSizes = ONE} : (f32) -> ()
  }) {axis = 0 : i32, operandSegmentSizes = ONE, resultSegmentSizes = ONE} : (tensor<8xf32>) -> f32
""".replace("ONE", "array<i32: 1, 0, 0, 0, 0, 0, 0, 0>")


def test_reductions_merge_only_with_equal_combiners():
    add, mul = REDUCE.replace("OP", "addf"), REDUCE.replace("OP", "mulf")
    text = run(f"%r1 = {add}%r2 = {add}%r3 = {mul}{store('%r1')}{store('%r2')}{store('%r3')}%dead = {mul}")
    assert text.count('"tt.reduce"') == 2
    assert text.count("tt.store") == 3 and text.count("arith.addf") == 1 and text.count("arith.mulf") == 1


def test_dead_loop_carried_values_go_and_the_rest_keep_their_places():
    text = run(f"""
      %zero = arith.constant 0.0 : f32
      %i0 = arith.constant 0 : i32
      %i1 = arith.constant 1 : i32
      %dead_init = arith.mulf %x, %x : f32
      %r:4 = scf.for %i = %i0 to %n step %i1 iter_args(%d1 = %dead_init, %acc = %zero, %d2 = %zero, %idx = %i0) -> (f32, f32, f32, i32) : i32 {{
        %d1n = arith.divf %d1, %x : f32
        %d2n = arith.subf %d2, %d1n : f32
        %accn = arith.addf %acc, %x : f32
        %idxn = arith.addi %idx, %i1 : i32
        scf.yield %d1n, %accn, %d2n, %idxn : f32, f32, f32, i32
      }}
      %after = arith.divf %r#2, %x : f32
      {store("%r#1")}
      "tt.assume"(%c) : (i1) -> ()""")
    for gone in ("arith.divf", "arith.subf", "arith.mulf", "arith.addi"):
        assert gone not in text
    assert "iter_args(%arg7 = %cst) -> (f32)" in text and "arith.addf" in text and "tt.assume" in text


def test_values_that_a_live_one_needs_through_the_loop_stay():
    text = run(f"""
      %zero = arith.constant 0.0 : f32
      %i0 = arith.constant 0 : i32
      %i1 = arith.constant 1 : i32
      %r:2 = scf.for %i = %i0 to %n step %i1 iter_args(%a = %zero, %b = %x) -> (f32, f32) : i32 {{
        %bn = arith.mulf %b, %x : f32
        scf.yield %b, %bn : f32, f32
      }}
      {store("%r#0")}""")
    assert "arith.mulf" in text and "-> (f32, f32)" in text


def test_dead_branch_results_and_dead_branches():
    text = run(f"""
      %r:2 = scf.if %c -> (f32, f32) {{
        %a = arith.addf %x, %x : f32
        %b = arith.mulf %x, %x : f32
        scf.yield %a, %b : f32, f32
      }} else {{
        %s = arith.subf %x, %x : f32
        scf.yield %x, %s : f32, f32
      }}
      %unused = scf.if %c -> f32 {{
        %a = arith.divf %x, %x : f32
        scf.yield %a : f32
      }} else {{
        scf.yield %x : f32
      }}
      {store("%r#0")}""")
    assert "arith.addf" in text and "-> (f32) {" in text
    for gone in ("arith.mulf", "arith.subf", "arith.divf"):
        assert gone not in text
    assert text.count("scf.if") == 1


def test_nested_loops_and_stores_inside_keep_their_controls():
    text = run(f"""
      %i0 = arith.constant 0 : i32
      %i1 = arith.constant 1 : i32
      %m = arith.addi %n, %n : i32
      %dead = scf.for %i = %i0 to %n step %i1 iter_args(%a = %x) -> (f32) : i32 {{
        %inner = scf.for %j = %i to %m step %i1 iter_args(%b = %a) -> (f32) : i32 {{
          %cond = arith.cmpi slt, %j, %n : i32
          scf.if %cond {{
            {store("%x")}
          }}
          %bn = arith.addf %b, %x : f32
          scf.yield %bn : f32
        }}
        scf.yield %inner : f32
      }}""")
    assert text.count("scf.for") == 2 and "scf.if" in text and "arith.cmpi" in text and "arith.addi" in text
    assert "arith.addf" not in text and "iter_args" not in text


def test_while_keeps_its_condition():
    text = run(f"""
      %i0 = arith.constant 0 : i32
      %i1 = arith.constant 1 : i32
      %r:2 = scf.while (%i = %i0, %f = %x) : (i32, f32) -> (i32, f32) {{
        %cond = arith.cmpi slt, %i, %n : i32
        %unused = arith.divf %f, %x : f32
        scf.condition(%cond) %i, %f : i32, f32
      }} do {{
      ^bb0(%i: i32, %f: f32):
        %next = arith.addi %i, %i1 : i32
        %g = arith.mulf %f, %x : f32
        scf.yield %next, %g : i32, f32
      }}
      {store("%r#1")}""")
    assert "arith.addi" in text and "arith.mulf" in text and "arith.cmpi" in text and "arith.divf" not in text


@pytest.mark.parametrize("effect", [
    '"tt.atomic_rmw"(%p, %x) {operandSegmentSizes = array<i32: 1, 1, 0>, rmw_op = "fadd", sem = "relaxed", scope = "gpu"} : (!tt.ptr<f32, 1 : i32>, f32) -> f32',
    '"tt.extern_elementwise"(%x) {operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0>, symbol = "f", pure = false} : (f32) -> f32',
    '"ttg.barrier"() : () -> ()',
])
def test_effects_without_uses_stay(effect):
    assert effect.split('"')[1] in run(effect)


def test_pure_extern_without_uses_goes():
    assert "extern" not in run('%e = "tt.extern_elementwise"(%x) {operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0>, symbol = "f", pure = true} : (f32) -> f32')
