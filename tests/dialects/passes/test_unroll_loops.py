"""Unrolled loops compute what they computed, in the same order; how many copies of the body there are."""

from __future__ import annotations

import pytest

from tilewright.dialects._mlir import ir
from tilewright.dialects.analysis.structure import functions
from tilewright.dialects.context import mlir_context
from tilewright.dialects.passes import dce_cse, unroll_loops

BITS = 32


def wrapped(x):
    return (x + (1 << BITS - 1)) % (1 << BITS) - (1 << BITS - 1)


def execute(function, *arguments):
    """What the function returns, of i32 and i1 numbers."""
    env = dict(zip(function.body.args, arguments))

    def region(region):
        for node in region.ops[:-1]:
            x = [env[v] for v in node.operands]
            if node.name == "arith.constant":
                out = [node.int_attr("value")]
            elif node.name == "scf.for":
                out = []
                at, carried = x[0], x[3:]
                while at < x[1]:
                    env.update(zip(node.regions[0].args, [at, *carried]))
                    carried = region_(node.regions[0])
                    at += x[2]  # loops count like Python's range
                out = carried
            elif node.name == "arith.select":
                out = [x[1] if x[0] else x[2]]
            elif node.name == "arith.cmpi":
                out = [int({0: x[0] == x[1], 4: x[0] > x[1], 6: x[0] % (1 << BITS) < x[1] % (1 << BITS)}[node.int_attr("predicate")])]
            elif node.name == "arith.andi":
                out = [x[0] & x[1]]
            elif node.name == "arith.divui":
                out = [wrapped((x[0] % (1 << BITS)) // (x[1] % (1 << BITS)))] if x[1] else [None]
            else:
                f = {"arith.addi": lambda a, b: a + b, "arith.subi": lambda a, b: a - b, "arith.muli": lambda a, b: a * b}[node.name]
                out = [wrapped(f(*x))]
            env.update(zip(node.results, out))
        return [env[v] for v in region.ops[-1].operands]

    region_ = region
    return region(function.body)


def text(low, high, step, factor, inner=0):
    body = """
        %u = scf.for %j = %zero to %i step %one iter_args(%v = %x) -> (i32) : i32 {
          %q = arith.muli %v, %three : i32
          %p = arith.addi %q, %j : i32
          scf.yield %p : i32
        } {tt.loop_unroll_factor = INNER : i32}""".replace("INNER", str(inner)) if inner else "%u = arith.muli %x, %three : i32"
    return f"""func.func @f(%lo: i32, %hi: i32, %st: i32) -> (i32, i32) {{
      %zero = arith.constant 0 : i32
      %one = arith.constant 1 : i32
      %three = arith.constant 3 : i32
      %klo = arith.constant {low} : i32
      %khi = arith.constant {high} : i32
      %kst = arith.constant {step} : i32
      %r:2 = scf.for %i = LOW to HIGH step STEP iter_args(%x = %one, %n = %zero) -> (i32, i32) : i32 {{
        {body}
        %w = arith.addi %u, %i : i32
        %m = arith.addi %n, %one : i32
        scf.yield %w, %m : i32, i32
      }} {{tt.loop_unroll_factor = {factor} : i32, tt.num_stages = 3 : i32}}
      return %r#0, %r#1 : i32, i32
    }}"""


BOUNDS = [(0, 10, 1), (0, 12, 1), (3, 3, 1), (5, 2, 1), (-7, 8, 3), (0, 2, 1), (1, 20, 7), (-(1 << 31), (1 << 31) - (1 << 29), 1 << 28),
          (-(1 << 31), 1 << 30, 1 << 30), (-(1 << 31), (1 << 31) - 1, 1 << 28), (0, (1 << 31) - 1, 1 << 28), ((1 << 31) - 10, (1 << 31) - 1, 3),
          (0, (1 << 31) - 1, 1 << 30), (-(1 << 31), (1 << 31) - 1, 1 << 30), (-5, (1 << 31) - 1, (1 << 31) - 1), (0, (1 << 31) - 1, 715827882)]


@pytest.mark.parametrize("known", ["none", "step", "all"])
@pytest.mark.parametrize("inner", [0, 2])
def test_values_stay(known, inner):
    with mlir_context():
        for low, high, step in BOUNDS:
            if inner and abs(high) > 100:
                continue
            for factor in (2, 3, 4, 8):
                names = {"none": ("%lo", "%hi", "%st"), "step": ("%lo", "%hi", "%kst"), "all": ("%klo", "%khi", "%kst")}[known]
                source = text(low, high, step, factor, inner)
                for mark, name in zip(("LOW", "HIGH", "STEP"), names):
                    source = source.replace(mark, name)
                module = ir.Module.parse(source)
                expected = execute(functions(module)[0], low, high, step)
                unroll_loops.run(module, None)
                assert module.operation.verify() and "loop_unroll_factor" not in str(module)
                assert execute(functions(module)[0], low, high, step) == expected, (low, high, step, factor)
                dce_cse.run(module, None)
                assert execute(functions(module)[0], low, high, step) == expected


def loops(low, high, factor, names=("%klo", "%khi", "%kst")):
    """(copies of the body, step, stages) of each loop."""
    with mlir_context():
        source = text(low, high, 1, factor)
        for mark, name in zip(("LOW", "HIGH", "STEP"), names):
            source = source.replace(mark, name)
        module = ir.Module.parse(source)
        unroll_loops.run(module, None)
        (function,) = functions(module)
        out = []
        for node in function.nodes():
            if node.name == "scf.for":
                step = function.def_node(node.operands[2])
                out.append((sum(n.name == "arith.muli" for n in node.walk()), step.int_attr("value"), node.int_attr("tt.num_stages")))
        return out


def test_how_often_the_body_stands():
    assert loops(0, 12, 4) == [(4, 4, 3)]
    assert loops(0, 13, 4) == [(4, 4, 3), (1, 1, 1)]
    assert loops(0, 3, 4) == [(1, 1, 3)]  # as it was
    assert loops(0, 12, 1) == [(1, 1, 3)]
    assert loops(0, 12, 4, ("%lo", "%hi", "%kst")) == [(4, 4, 3), (1, 1, 1)]
