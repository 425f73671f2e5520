"""Descriptors become pointers and masks: the IR that is made, what it computes by numpy, and what is left alone."""

import itertools

import numpy as np
import pytest
from evaluate import Evaluator
from kernel_texts import context

from tilewright.dialects._mlir import ir
from tilewright.dialects.analysis.structure import functions
from tilewright.dialects.context import mlir_context
from tilewright.dialects.errors import CompilationError, UnsupportedOnTargetError
from tilewright.dialects.pass_runner import run_passes
from tilewright.dialects.passes import canonicalize_tt, dce_cse, shared_pass
from tilewright.dialects.passes import rewrite_tensor_descriptors as the_pass

P = "!tt.ptr<f32, 1 : i32>"


def desc(block, element="f32"):
    return f"!tt.tensordesc<array<i64: {', '.join(map(str, block))}>, {element}>"


def make(name, base, block, padding="zero", host=False, element="f32"):
    rank = len(block)
    pointer = f"!tt.ptr<{element}, 1 : i32>"
    return (f'{name} = "tt.make_tensor_descriptor"({base}, {", ".join(f"%n{d}" for d in range(rank))}, {", ".join(f"%s{d}" for d in range(rank))}) '
            f'{{padding = "{padding}", operandSegmentSizes = array<i32: 1, {rank}, {rank}>{", tt.host" if host else ""}}} : '
            f'({pointer}, {", ".join(["i32"] * rank + ["i64"] * rank)}) -> {desc(block, element)}')


def load(block, result=None):
    rank = len(block)
    return (f'%v = "tt.descriptor_load"(%d, {", ".join(f"%i{d}" for d in range(rank))}) {{cache = "none", evict = "evict_last"}} : '
            f'({desc(block)}, {", ".join(["i32"] * rank)}) -> tensor<{"x".join(map(str, result or block))}xf32>')


def store(block, shape=None):
    rank = len(block)
    return (f'"tt.descriptor_store"(%e, %v, {", ".join(f"%j{d}" for d in range(rank))}) : '
            f'({desc(block)}, tensor<{"x".join(map(str, shape or block))}xf32>, {", ".join(["i32"] * rank)}) -> ()')


def function(rank, body, more=""):
    args = [f"%p: {P}", f"%q: {P}", *(f"%n{d}: i32" for d in range(rank)), *(f"%s{d}: i64" for d in range(rank)),
            *(f"%i{d}: i32" for d in range(rank)), *(f"%j{d}: i32" for d in range(rank))]
    return f"func.func @k({', '.join(args)}{more}) attributes {{tt.kernel}} {{\n{body}\nreturn\n}}"


def rewritten(text, simplify=False):
    module = ir.Module.parse(text)
    assert module.operation.verify()
    the_pass.run(module, context())
    if simplify:
        for p in (canonicalize_tt, dce_cse):
            p.run(module, context())
    assert module.operation.verify()
    return module


def names_in(module):
    return [n.name for f in functions(module) for n in f.nodes()]


@pytest.mark.parametrize("simplify", [False, True])
@pytest.mark.parametrize("shape, block, result", [((5,), (4,), None), ((5, 7), (2, 4), None), ((3, 5, 7), (1, 2, 4), (2, 4)), ((3, 5, 7), (1, 1, 4), (4,)),
                                                  ((2, 3, 7), (2, 1, 4), None), ((3, 5), (1, 1), None), ((3, 5, 6), (1, 1, 1), (1,))])
def test_what_is_copied(shape, block, result, simplify):
    """A block from anywhere to anywhere, by slices."""
    rank = len(shape)
    strides = [int(np.prod(shape[d + 1:])) + (0 if d == rank - 1 else 2 * int(np.prod(shape[d + 2:]))) for d in range(rank)]
    strides[-1] = 1
    span = sum((n - 1) * s for n, s in zip(shape, strides)) + 1
    body = "\n".join([make("%d", "%p", block, "nan"), make("%e", "%q", block), load(block, result), store(block, result)])
    with mlir_context():
        module = rewritten(function(rank, body), simplify)
        assert not any("descriptor" in n for n in names_in(module))
        (f,) = functions(module)
        rng = np.random.default_rng(0)
        choices = list(itertools.product(*[(0, -1, -b, n - 1, n - b, n) for n, b in zip(shape, block)]))
        for _ in range(25):
            i, j = (choices[k] for k in rng.integers(len(choices), size=2))
            x, y = rng.standard_normal(span), np.full(span, 7.0)
            Evaluator(f, [x, y, *shape, *strides, *i, *j])
            block_values = np.full(block, np.nan)
            expected = np.full(span, 7.0)
            for at in np.ndindex(*block):
                here = [a + b for a, b in zip(at, i)]
                if all(0 <= h < n for h, n in zip(here, shape)):
                    block_values[at] = x[np.dot(here, strides)]
            for at in np.ndindex(*block):
                here = [a + b for a, b in zip(at, j)]
                if all(0 <= h < n for h, n in zip(here, shape)):
                    expected[np.dot(here, strides)] = block_values[at]
            np.testing.assert_array_equal(y, expected, err_msg=f"{i} to {j}")


def test_negative_sizes_are_empty():
    body = "\n".join([make("%d", "%p", (2, 4)), make("%e", "%q", (2, 4)), load((2, 4)), store((2, 4))])
    with mlir_context():
        (f,) = functions(rewritten(function(2, body)))
        for sizes in ((-1, 8), (8, -1), (0, 8)):
            y = np.full(64, 7.0)
            Evaluator(f, [np.ones(64), y, *sizes, 8, 1, 0, 0, 0, 0])
            assert (y == 7.0).all(), sizes


def test_hints_and_one_comparison_a_dim():
    body = "\n".join([make("%d", "%p", (2, 4), "nan"), make("%e", "%q", (2, 4)), load((2, 4)), store((2, 4))])
    with mlir_context():
        module = rewritten(function(2, body), simplify=True)
        text, names = str(module), names_in(module)
    assert 'evict = "evict_last"' in text and names.count("tt.load") == names.count("tt.store") == 1
    assert names.count("arith.cmpi") == 4 and text.count("ult") == 4  # two dims for the load, two for the store


def test_what_the_target_keeps_is_left_alone():
    argument = f", %d: {desc((2, 4))}"
    for kept, more in ((make("%d", "%p", (2, 4), host=True), ""), ("", argument)):
        body = "\n".join([kept, make("%e", "%q", (2, 4)), load((2, 4)), store((2, 4))])
        with mlir_context():
            names = names_in(rewritten(function(2, body, more)))
        assert "tt.descriptor_load" in names and "tt.descriptor_store" not in names and "tt.store" in names
        assert names.count("tt.make_tensor_descriptor") == (1 if kept else 0)


def test_a_descriptor_that_a_branch_chooses_is_refused():
    d = desc((2, 4))
    body = f"""{make("%a", "%p", (2, 4))}
      {make("%b", "%q", (2, 4))}
      %c = arith.cmpi slt, %n0, %n1 : i32
      %d = "scf.if"(%c) ({{
        "scf.yield"(%a) : ({d}) -> ()
      }}, {{
        "scf.yield"(%b) : ({d}) -> ()
      }}) : (i1) -> ({d})
      {load((2, 4))}
      "tt.descriptor_store"(%a, %v, %j0, %j1) : ({d}, tensor<2x4xf32>, i32, i32) -> ()"""
    with mlir_context(), pytest.raises(CompilationError, match="depends on a loop or a branch"):
        rewritten(function(2, body))


@pytest.mark.parametrize("kind, element, expected", [
    ("add", "i32", ["add"]), ("fadd", "f32", ["fadd"]), ("umax", "i64", ["umax"]), ("fmax", "f32", ["max", "umin"]), ("fmin", "f64", ["min", "umax"])])
def test_atomics(kind, element, expected):
    pointer = f"!tt.ptr<{element}, 1 : i32>"
    text = f"""func.func @k(%p: {pointer}, %n0: i32, %s0: i64, %i: i32, %v: tensor<8x{element}>) attributes {{tt.kernel}} {{
      {make("%d", "%p", (8,), element=element)}
      "tt.descriptor_reduce"(%d, %v, %i) {{kind = "{kind}"}} : ({desc((8,), element)}, tensor<8x{element}>, i32) -> ()
      return
    }}"""
    with mlir_context():
        module = rewritten(text)
        (f,) = functions(module)
        found = [n for n in f.nodes() if n.name == "tt.atomic_rmw"]
        assert [n.str_attr("rmw_op") for n in found] == expected
        assert all(n.str_attr("sem") == "relaxed" and n.str_attr("scope") == "gpu" and len(n.operands) == 3 for n in found)


def test_extrema_of_narrow_floats_are_refused_with_the_place():
    text = f"""func.func @k(%p: !tt.ptr<f16, 1 : i32>, %n0: i32, %s0: i64, %i: i32, %v: tensor<8xf16>) attributes {{tt.kernel}} {{
      {make("%d", "%p", (8,), element="f16")}
      "tt.descriptor_reduce"(%d, %v, %i) {{kind = "fmin"}} : ({desc((8,), "f16")}, tensor<8xf16>, i32) -> () loc("kernel.py":12:5)
      return
    }}"""
    with mlir_context(), pytest.raises(UnsupportedOnTargetError, match="kernel.py:12.*atomic_min of f16.*use fp32"):
        run_passes(ir.Module.parse(text), [shared_pass("rewrite_tensor_descriptors")], context())
