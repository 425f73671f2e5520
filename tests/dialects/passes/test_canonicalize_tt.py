"""canonicalize_tt: each rule on a small text, constant folding against numpy."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest

from tilewright.dialects._mlir import ir
from tilewright.dialects.analysis.structure import type_info
from tilewright.dialects.context import mlir_context
from tilewright.dialects.pass_runner import GenericCapabilities, GenericOptions, run_text
from tilewright.dialects.passes import fold_constants, shared_pass
from tilewright.dialects.pipeline import PassContext

PTR = "!tt.ptr<f32, 1 : i32>"
ARGS = f"%p: {PTR}, %n: i32, %c: i1, %x: f32, %t: tensor<8x16xf32>, %row: tensor<1x16xf32>, %col: tensor<8x1xf32>, %v: tensor<8x16xi32>, %m: tensor<8x16xi1>, %q: tensor<8x16x{PTR}>, %l: i64, %h: tensor<16x8xf32>"


def run(body, results="", types="", passes=("canonicalize_tt", "dce_cse")):
    ctx = PassContext(None, "generic", GenericCapabilities(), GenericOptions())
    end = f"return {results} : {types}" if results else "return"
    arrow = f" -> ({types})" if results else ""
    with mlir_context():
        text = run_text(f"module {{ func.func @k({ARGS}){arrow} attributes {{tt.kernel}} {{\n{body}\n{end}\n}} }}",
                        [shared_pass(p) for p in passes], ctx)
    return text[text.index("{", text.index("tt.kernel")) + 1:]


def value_of(body, type_):
    """The text of the constant that ``%r`` folds to."""
    text = run(body, "%r", type_)
    assert "arith.constant" in text and text.count("=") == 1, text
    return text


I = "%a = arith.constant {} : i32\n%b = arith.constant {} : i32\n"


def dense(shape, value):
    return f"arith.constant dense<{value}> : tensor<{shape}>"


@pytest.mark.parametrize("text", [
    "%k = arith.constant 0 : i32\n%r = arith.addi %n, %k : i32", "%k = arith.constant 0 : i32\n%r = arith.addi %k, %n : i32",
    "%k = arith.constant 1 : i32\n%r = arith.muli %n, %k : i32", "%k = arith.constant 1 : i32\n%r = arith.divsi %n, %k : i32",
    "%k = arith.constant -1 : i32\n%r = arith.andi %n, %k : i32", "%k = arith.constant 0 : i32\n%r = arith.shli %n, %k : i32",
    "%r = arith.maxsi %n, %n : i32", "%r = arith.select %c, %n, %n : i32", "%r = arith.andi %n, %n : i32",
    "%k = arith.constant true\n%z = arith.constant 5 : i32\n%r = arith.select %k, %n, %z : i32",
    "%w = arith.extsi %n : i32 to i64\n%r = arith.trunci %w : i64 to i32",
    "%k = arith.constant 3 : i32\n%j = arith.constant 3 : i32\n%z = arith.subi %k, %j : i32\n%r = arith.addi %n, %z : i32",
])
def test_integer_identities(text):
    assert run(text, "%r", "i32").strip() == "return %arg1 : i32\n  }\n}"


@pytest.mark.parametrize("text, same", [
    ("%k = arith.constant 1.0 : f32\n%r = arith.mulf %x, %k : f32", True),
    ("%k = arith.constant -0.0 : f32\n%r = arith.addf %x, %k : f32", True),
    ("%k = arith.constant 0.0 : f32\n%r = arith.addf %x, %k : f32", False),  # -0.0 + 0.0 is 0.0
    ("%k = arith.constant 0.0 : f32\n%r = arith.subf %x, %k : f32", True),
    ("%k = arith.constant -0.0 : f32\n%r = arith.subf %x, %k : f32", False),
    ("%k = arith.constant 0.0 : f32\n%r = arith.mulf %x, %k : f32", False),  # NaN, -0.0
    ("%r = arith.subf %x, %x : f32", False),  # NaN, infinity
    ("%r = arith.divf %x, %x : f32", False),
])
def test_float_identities_hold_for_every_float(text, same):
    assert (run(text, "%r", "f32").strip() == "return %arg3 : f32\n  }\n}") == same


def test_identities_on_tensors():
    assert "arith.addi" not in run(f"%k = {dense('8x16xi32', 0)}\n%r = arith.addi %v, %k : tensor<8x16xi32>", "%r", "tensor<8x16xi32>")
    assert "addptr" not in run(f'%k = {dense("8x16xi32", 0)}\n%r = "tt.addptr"(%q, %k) : (tensor<8x16x{PTR}>, tensor<8x16xi32>) -> tensor<8x16x{PTR}>',
                               "%r", f"tensor<8x16x{PTR}>")


# ------------------------------------------------------------------------------------------------------- folding
def test_folding_of_i1_is_logical():
    assert "true" in value_of("%a = arith.constant true\n%b = arith.constant false\n%r = arith.ori %a, %b : i1", "i1")
    assert "-1 : i32" in value_of("%a = arith.constant true\n%r = arith.extsi %a : i1 to i32", "i32")
    assert " 1 : i32" in value_of("%a = arith.constant true\n%r = arith.extui %a : i1 to i32", "i32")


@pytest.mark.parametrize("bits", [8, 16, 32, 64])
def test_integer_folding_against_numpy(bits):
    rng = random.Random(bits)
    signed, unsigned = np.dtype(f"i{bits // 8}"), np.dtype(f"u{bits // 8}")
    corners = [0, 1, -1, 2, -2, 5, 7, -7, (1 << bits - 1) - 1, -(1 << bits - 1)]
    pairs = [(a, b) for a in corners for b in corners] + [(rng.randrange(-(1 << bits - 1), 1 << bits - 1),
                                                           rng.randrange(-(1 << bits - 1), 1 << bits - 1)) for _ in range(50)]
    np_ops = {"arith.addi": (np.add, signed), "arith.subi": (np.subtract, signed), "arith.muli": (np.multiply, signed),
              "arith.andi": (np.bitwise_and, signed), "arith.ori": (np.bitwise_or, signed), "arith.xori": (np.bitwise_xor, signed),
              "arith.maxsi": (np.maximum, signed), "arith.minsi": (np.minimum, signed), "arith.maxui": (np.maximum, unsigned),
              "arith.minui": (np.minimum, unsigned), "arith.divui": (np.floor_divide, unsigned), "arith.remui": (np.remainder, unsigned),
              "arith.remsi": (np.fmod, signed), "arith.shli": (np.left_shift, signed), "arith.shrsi": (np.right_shift, signed),
              "arith.shrui": (np.right_shift, unsigned)}
    compares = [np.equal, np.not_equal, np.less, np.less_equal, np.greater, np.greater_equal] + [np.less, np.less_equal, np.greater,
                                                                                                  np.greater_equal]
    with mlir_context():
        info = type_info(ir.IntegerType.get_signless(bits))
    for a, b in pairs:
        for name, (f, kind) in np_ops.items():
            got = fold_constants.fold(name, (a, b), info, info, None)
            if name in ("arith.divui", "arith.remui", "arith.remsi") and b == 0:
                assert got is None
                continue
            if name in ("arith.shli", "arith.shrsi", "arith.shrui") and not 0 <= b < bits:
                assert got is None
                continue
            if name == "arith.remsi" and b == -1:
                want = 0  # numpy traps or warns for the smallest number
            else:
                with np.errstate(all="ignore"):
                    want = int(f(np.array(a).astype(kind), np.array(b).astype(kind)).astype(signed))
            assert got == want, (name, a, b)
        got = fold_constants.fold("arith.divsi", (a, b), info, info, None)
        assert got == (None if b == 0 else fold_constants.wrap(int(abs(a) // abs(b)) * (1 if (a < 0) == (b < 0) else -1), bits))
        for predicate, f in enumerate(compares):
            kind = signed if predicate < 6 else unsigned
            assert fold_constants.fold("arith.cmpi", (a, b), info, info, predicate) == int(f(np.array(a).astype(kind), np.array(b).astype(kind)))


def test_float_folding_rounds_to_the_type():
    text = value_of("%a = arith.constant 0.1 : f32\n%b = arith.constant 0.2 : f32\n%r = arith.addf %a, %b : f32", "f32")
    assert f"{np.float32(0.1) + np.float32(0.2):.6e}".replace("e-01", "")[:6] in text
    with mlir_context():
        rng = np.random.default_rng(0)
        for bits, dtype, mlir in ((16, np.float16, ir.F16Type.get()), (32, np.float32, ir.F32Type.get())):
            info = type_info(mlir)
            for a, b in rng.normal(size=(200, 2)).astype(dtype):
                for name, f in (("arith.addf", np.add), ("arith.subf", np.subtract), ("arith.mulf", np.multiply), ("arith.divf", np.divide)):
                    number = fold_constants.fold(name, (float(a), float(b)), info, info, None)
                    assert dtype(fold_constants.constant_attribute(mlir, number).value) == f(a, b), (name, bits)


def test_float_compare_and_extrema_with_nan():
    nan = math.nan
    names = ["false", "oeq", "ogt", "oge", "olt", "ole", "one", "ord", "ueq", "ugt", "uge", "ult", "ule", "une", "uno", "true"]
    for a, b in ((1.0, 2.0), (2.0, 1.0), (1.0, 1.0), (nan, 1.0), (1.0, nan), (nan, nan)):
        unordered = a != a or b != b
        relation = {"eq": a == b, "gt": a > b, "ge": a >= b, "lt": a < b, "le": a <= b, "ne": a < b or a > b}
        for number, name in enumerate(names):
            want = {"false": False, "true": True, "ord": not unordered, "uno": unordered}.get(name)
            if want is None:
                want = (relation[name[1:]] and not unordered) if name[0] == "o" else (relation[name[1:]] or unordered)
            assert fold_constants.compare_float(number, a, b) == want, (name, a, b)
    with mlir_context():
        info = type_info(ir.F32Type.get())
        assert fold_constants.fold("arith.maxnumf", (nan, 2.0), info, info, None) == 2.0
        assert math.isnan(fold_constants.fold("arith.maximumf", (nan, 2.0), info, info, None))
        assert fold_constants.fold("arith.maximumf", (0.0, -0.0), info, info, None) is None


def test_casts():
    assert "3.000000e+00" in value_of("%a = arith.constant 3 : i32\n%r = arith.sitofp %a : i32 to f32", "f32")
    assert "4.294967" in value_of("%a = arith.constant -1 : i32\n%r = arith.uitofp %a : i32 to f32", "f32")
    assert "-3 : i32" in value_of("%a = arith.constant -3.7 : f32\n%r = arith.fptosi %a : f32 to i32", "i32")
    assert "arith.fptosi" in run("%a = arith.constant 3.0e10 : f32\n%r = arith.fptosi %a : f32 to i32", "%r", "i32")  # undefined: kept
    assert "dense<7> : tensor<8x16xi64>" in run(f"%a = {dense('8x16xi32', 7)}\n%r = arith.extsi %a : tensor<8x16xi32> to tensor<8x16xi64>", "%r", "tensor<8x16xi64>")


def test_division_by_zero_stays():
    assert "arith.divsi" in run("%a = arith.constant 1 : i32\n%b = arith.constant 0 : i32\n%r = arith.divsi %a, %b : i32", "%r", "i32")


# ---------------------------------------------------------------------------------------------- splat, broadcast
def test_splat_of_constant_and_shape_ops_on_splats():
    text = run('%k = arith.constant 2.0 : f32\n%s = "tt.splat"(%k) : (f32) -> tensor<8xf32>\n'
               '%e = "tt.expand_dims"(%s) {axis = 0 : i32} : (tensor<8xf32>) -> tensor<1x8xf32>\n'
               '%r = "tt.broadcast"(%e) : (tensor<1x8xf32>) -> tensor<4x8xf32>', "%r", "tensor<4x8xf32>")
    assert "dense<2.000000e+00> : tensor<4x8xf32>" in text and "tt." not in text
    text = run('%s = "tt.splat"(%x) : (f32) -> tensor<8xf32>\n%e = "tt.expand_dims"(%s) {axis = 0 : i32} : (tensor<8xf32>) -> tensor<1x8xf32>\n'
               '%r = "tt.broadcast"(%e) : (tensor<1x8xf32>) -> tensor<4x8xf32>', "%r", "tensor<4x8xf32>")
    assert text.count('"tt.') == 1 and '"tt.splat"(%arg3) : (f32) -> tensor<4x8xf32>' in text


def test_arithmetic_on_splats_becomes_scalar():
    text = run(f'%s = "tt.splat"(%x) : (f32) -> tensor<8x16xf32>\n%k = {dense("8x16xf32", "2.0")}\n'
               "%a = arith.mulf %s, %k : tensor<8x16xf32>\n%r = math.exp %a : tensor<8x16xf32>", "%r", "tensor<8x16xf32>")
    assert "arith.mulf %arg3, %cst : f32" in text and "math.exp %0 : f32" in text and text.count("tt.splat") == 1


def test_pointer_splats_keep_their_offsets():
    text = run(f'%s = "tt.splat"(%p) : ({PTR}) -> tensor<8x16x{PTR}>\n%k = "tt.splat"(%n) : (i32) -> tensor<8x16xi32>\n'
               f'%r = "tt.addptr"(%s, %k) : (tensor<8x16x{PTR}>, tensor<8x16xi32>) -> tensor<8x16x{PTR}>', "%r", f"tensor<8x16x{PTR}>")
    assert f'"tt.addptr"(%arg0, %arg1) : ({PTR}, i32) -> {PTR}' in text and text.count("tt.splat") == 1


def test_broadcast_comes_last():
    text = run(f'%b = "tt.broadcast"(%row) : (tensor<1x16xf32>) -> tensor<8x16xf32>\n%s = "tt.splat"(%x) : (f32) -> tensor<8x16xf32>\n'
               f'%k = {dense("8x16xf32", "0.5")}\n%a = arith.mulf %b, %s : tensor<8x16xf32>\n%d = arith.cmpf olt, %a, %k : tensor<8x16xf32>',
               "%d", "tensor<8x16xi1>")
    assert "arith.mulf %arg5, %0 : tensor<1x16xf32>" in text and "arith.cmpf olt, %1, %cst : tensor<1x16xf32>" in text
    assert '"tt.broadcast"(%2) : (tensor<1x16xi1>) -> tensor<8x16xi1>' in text


def test_broadcasts_of_two_shapes_stay_first():
    text = run('%b = "tt.broadcast"(%row) : (tensor<1x16xf32>) -> tensor<8x16xf32>\n%e = "tt.broadcast"(%col) : (tensor<8x1xf32>) -> tensor<8x16xf32>\n'
               "%r = arith.mulf %b, %e : tensor<8x16xf32>", "%r", "tensor<8x16xf32>")
    assert "arith.mulf %0, %1 : tensor<8x16xf32>" in text


def test_broadcast_keeps_layouts():
    enc = "#ttg.blocked<array<i32: 1, 1>, array<i32: 4, 8>, array<i32: 4, 1>, array<i32: 1, 0>>"
    ctx = PassContext(None, "generic", GenericCapabilities(), GenericOptions())
    text = run_text(f"""module {{ func.func @k(%a: tensor<1x16xf32, {enc}>) -> tensor<8x16xf32, {enc}> {{
      %k = arith.constant dense<2.0> : tensor<8x16xf32, {enc}>
      %b = "tt.broadcast"(%a) : (tensor<1x16xf32, {enc}>) -> tensor<8x16xf32, {enc}>
      %r = arith.mulf %b, %k : tensor<8x16xf32, {enc}>
      return %r : tensor<8x16xf32, {enc}> }} }}""", [shared_pass("canonicalize_tt")], ctx)
    assert "arith.mulf %arg0, %cst_0 : tensor<1x16xf32, #blocked>" in text or "arith.mulf %arg0, %cst : tensor<1x16xf32, #blocked>" in text


def test_trans_of_a_square_tensor_stays():
    text = run('%s = "tt.broadcast"(%row) : (tensor<1x16xf32>) -> tensor<16x16xf32>\n'
               '%r = "tt.trans"(%s) {order = array<i32: 1, 0>} : (tensor<16x16xf32>) -> tensor<16x16xf32>', "%r", "tensor<16x16xf32>")
    assert "tt.trans" in text


# -------------------------------------------------------------------------------------------------------- memory
def load(mask, other=None):
    operands = ", ".join(x for x in ("%q", mask, other) if x)
    types = ", ".join([f"tensor<8x16x{PTR}>", "tensor<8x16xi1>"] + (["tensor<8x16xf32>"] if other else []))
    return (f'%r = "tt.load"({operands}) {{cache = "none", evict = "normal", is_volatile = false, '
            f'operandSegmentSizes = array<i32: 1, 1, {int(bool(other))}>}} : ({types}) -> tensor<8x16xf32>')


def test_masks_that_are_constant():
    text = run(f"%k = {dense('8x16xi1', 'true')}\n" + load("%k", "%t"), "%r", "tensor<8x16xf32>")
    assert '"tt.load"(%arg9) ' in text and "operandSegmentSizes = array<i32: 1, 0, 0>" in text
    text = run(f"%k = {dense('8x16xi1', 'false')}\n" + load("%k", "%t"), "%r", "tensor<8x16xf32>")
    assert "tt.load" not in text and "return %arg4" in text
    text = run(f"%k = {dense('8x16xi1', 'false')}\n" + load("%k"), "%r", "tensor<8x16xf32>")
    assert "tt.load" not in text and "dense<0.000000e+00>" in text
    assert "operandSegmentSizes = array<i32: 1, 1, 1>" in run(load("%m", "%t"), "%r", "tensor<8x16xf32>")


def test_store_with_a_true_mask():
    text = run(f'%k = {dense("8x16xi1", "true")}\n"tt.store"(%q, %t, %k) {{cache = "none", evict = "normal", operandSegmentSizes = '
               f'array<i32: 1, 1, 1>}} : (tensor<8x16x{PTR}>, tensor<8x16xf32>, tensor<8x16xi1>) -> ()')
    assert '"tt.store"(%arg9, %arg4) ' in text and "array<i32: 1, 1, 0>" in text and text.count("tt.store") == 1


# ----------------------------------------------------------------------------------------------------------- dot
DOT = ('%z = arith.constant dense<{}> : tensor<8x8xf32>\n%d = "tt.dot"(%t, %h, %z) {{input_precision = "ieee", max_num_imprecise_acc = 0 : i32}} '
       ': (tensor<8x16xf32>, tensor<16x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>\n%acc = math.exp %d0 : tensor<8x8xf32>\n'
       "%r = arith.addf {} : tensor<8x8xf32>")


@pytest.mark.parametrize("zero, add, fused", [("0.0", "%d, %acc", True), ("0.0", "%acc, %d", True), ("1.0", "%d, %acc", False)])
def test_dot_takes_the_accumulator(zero, add, fused):
    body = '%d0 = "tt.broadcast"(%col) : (tensor<8x1xf32>) -> tensor<8x8xf32>\n' + DOT.format(zero, add)
    text = run(body, "%r", "tensor<8x8xf32>")
    assert ("arith.addf" not in text) == fused and text.count("tt.dot") == 1
    both = run(body, "%r, %d", "tensor<8x8xf32>, tensor<8x8xf32>")
    assert "arith.addf" in both  # the plain product is needed too


# -------------------------------------------------------------------------------------------------- control flow
def test_branches_on_constants_are_inlined():
    text = run("""%k = arith.constant {}
      %r = scf.if %k -> f32 {{
        %a = arith.addf %x, %x : f32
        scf.yield %a : f32
      }} else {{
        %b = arith.mulf %x, %x : f32
        scf.yield %b : f32
      }}""".format("true").replace("{{", "{").replace("}}", "}"), "%r", "f32")
    assert "scf.if" not in text and "arith.addf" in text and "arith.mulf" not in text
    text = run("""%k = arith.constant 1 : i32
      %j = arith.constant 2 : i32
      %c0 = arith.cmpi sgt, %k, %j : i32
      scf.if %c0 { "tt.assume"(%c) : (i1) -> () }""")
    assert "scf.if" not in text and "tt.assume" not in text


def test_loop_carried_values_that_do_not_change():
    text = run("""%i0 = arith.constant 0 : i32
      %i1 = arith.constant 1 : i32
      %zero = arith.constant 0.0 : f32
      %r:2 = scf.for %i = %i0 to %n step %i1 iter_args(%same = %x, %acc = %zero) -> (f32, f32) : i32 {
        %s = arith.addf %acc, %same : f32
        scf.yield %same, %s : f32, f32
      }""", "%r#0, %r#1", "f32, f32")
    assert "iter_args(%arg13 = %cst) -> (f32)" in text and "arith.addf %arg13, %arg3" in text and "return %arg3, %0" in text


LOOP = """%i0 = arith.constant 0 : i32
      %i1 = arith.constant 1 : i32
      %five = arith.constant 5 : i32
      %r = scf.for %i = %i0 to %n step %i1 iter_args(%acc = %n) -> i32 : i32 {{
        {}
        scf.yield %y : i32
      }}"""


def in_loop(text, op):
    """Whether ``op`` stands inside the loop of the text."""
    return op in text[text.index("scf.for"):]


def test_invariants_leave_loops_and_the_rest_stays():
    text = run(LOOP.format("%a = arith.xori %n, %five : i32\n%b = arith.shli %a, %five : i32\n%d = arith.addi %i, %b : i32\n"
                           "%y = arith.muli %d, %acc : i32"), "%r", "i32")
    assert not in_loop(text, "arith.xori") and not in_loop(text, "arith.shli")
    assert in_loop(text, "arith.addi") and in_loop(text, "arith.muli")


def test_loops_may_ask_to_keep_their_invariants():
    body = LOOP.format("%a = arith.xori %n, %five : i32\n%y = arith.muli %a, %acc : i32")
    assert not in_loop(run(body, "%r", "i32"), "arith.xori")
    assert in_loop(run(body.rstrip() + " {tt.disable_licm}", "%r", "i32"), "arith.xori")


def test_divisions_by_what_may_be_zero_stay():
    text = run(LOOP.format("%a = arith.divsi %five, %n : i32\n%b = arith.divsi %n, %five : i32\n%s = arith.addi %a, %b : i32\n%y = arith.addi %s, %acc : i32"), "%r", "i32")
    assert in_loop(text, "arith.divsi %c5_i32, %arg1") and not in_loop(text, "arith.divsi %arg1, %c5_i32")


def test_invariants_leave_nested_loops_all_the_way_but_not_branches():
    text = run(LOOP.format("""%y = scf.for %j = %i0 to %n step %i1 iter_args(%in = %acc) -> i32 : i32 {
          %a = arith.xori %n, %five : i32
          %b = arith.ori %i, %a : i32
          %z = scf.if %c -> i32 {
            %w = arith.shrsi %n, %five : i32
            scf.yield %w : i32
          } else {
            scf.yield %in : i32
          }
          %s = arith.addi %b, %z : i32
          scf.yield %s : i32
        }""").replace("{{", "{"), "%r", "i32")
    outer, inner = text.index("scf.for"), text.rindex("scf.for")
    assert text.index("arith.xori") < outer < text.index("arith.ori") < inner < text.index("arith.shrsi")


def test_loads_do_not_leave_loops():
    text = run(LOOP.format(f'%g = "tt.load"(%p) {{cache = "none", evict = "normal", is_volatile = false, operandSegmentSizes = array<i32: 1, 0, 0>}} '
                           f': ({PTR}) -> f32\n%k = arith.fptosi %g : f32 to i32\n%y = arith.addi %k, %acc : i32'), "%r", "i32")
    assert in_loop(text, "tt.load") and in_loop(text, "arith.fptosi")


@pytest.mark.parametrize("value, folds", [("0.0", True), ("-0.0", False), ("1.0", False)])
def test_a_zero_of_eight_bits_is_known(value, folds):
    """A masked load with ``other=0.0`` is then one that leaves zeros, which an asynchronous copy can do."""
    text = run(f'%k = arith.constant {value} : f32\n%r = "tt.fp_to_fp"(%k) {{rounding = "rtne"}} : (f32) -> f8E4M3FN', "%r", "f8E4M3FN")
    assert ("arith.constant 0.000000e+00 : f8E4M3FN" in text) == folds and ("tt.fp_to_fp" in text) != folds


@pytest.mark.parametrize("imprecise, folds", [(0, True), (32, False)])
def test_a_sum_of_its_own_precision_stays_beside_a_dot_of_less(imprecise, folds):
    text = run(f'''%k = arith.constant dense<0.0> : tensor<8x8xf32>
      %d = "tt.dot"(%t, %h, %k) {{input_precision = "ieee", max_num_imprecise_acc = {imprecise} : i32}} : (tensor<8x16xf32>, tensor<16x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
      %o = "tt.broadcast"(%col) : (tensor<8x1xf32>) -> tensor<8x8xf32>
      %r = arith.addf %d, %o : tensor<8x8xf32>''', "%r", "tensor<8x8xf32>")
    assert ("arith.addf" in text) != folds
