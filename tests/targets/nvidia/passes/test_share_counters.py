"""Carried integers that are always equal become one; those that only seem so stay."""

from __future__ import annotations

import pytest

from tilewright.dialects._mlir import ir
from tilewright.dialects.analysis.structure import functions
from tilewright.dialects.context import ensure_dialects, mlir_context
from tilewright.targets.nvidia.dialect.ttng import TTNG
from tilewright.targets.nvidia.passes import share_counters

# two counters, of stages modulo a depth, in a loop in a loop; what they give is returned
TEXT = """
func.func public @k(%n: i32) -> (i32, i32) {{
  %c0 = arith.constant 0 : i32
  %c1 = arith.constant 1 : i32
  %c3 = arith.constant 3 : i32
  %c4 = arith.constant 4 : i32
  %r:2 = scf.for %i = %c0 to %n step %c1 iter_args(%a = %c0, %b = {begin}) -> (i32, i32) : i32 {{
    %s:2 = scf.for %j = %c0 to %n step %c1 iter_args(%d = %a, %e = %b) -> (i32, i32) : i32 {{
      %d1 = arith.addi %d, %c1 : i32
      %dw = arith.cmpi eq, %d1, %c3 : i32
      %d2 = arith.select %dw, %c0, %d1 : i32
      %e1 = arith.addi %e, {step} : i32
      %ew = arith.cmpi {predicate}, %e1, {depth} : i32
      %e2 = arith.select %ew, %c0, %e1 : i32
      scf.yield {order} : i32, i32
    }}
    %t = arith.addi %s#1, {last} : i32
    %u = arith.addi %s#0, %c0 : i32
    scf.yield %u, %t : i32, i32
  }}
  return %r#0, %r#1 : i32, i32
}}
"""
SAME = {"begin": "%c0", "step": "%c1", "predicate": "eq", "depth": "%c3", "order": "%d2, %e2", "last": "%c0"}


def shared(**changes: str) -> tuple[bool, bool]:
    """Whether the inner loop's two results, and the outer's, are used as one."""
    with mlir_context():
        ensure_dialects(TTNG)
        module = ir.Module.parse(TEXT.format(**{**SAME, **changes}))
        (function,) = functions(module)
        share_counters._Numbering(function).run()
        module.operation.verify()
        outer, inner = (node for node in functions(module)[0].nodes() if node.name == "scf.for")
        (again,) = functions(module)
        return tuple(not again.uses(loop.results[1]) for loop in (inner, outer))


def test_equal_counters_are_one():
    assert shared() == (True, True)


def test_swapped_counters_are_one():
    """The proof is of the classes, not of one value after another."""
    assert shared(order="%e2, %d2") == (True, True)


@pytest.mark.parametrize("changes", [{"begin": "%c1"}, {"step": "%c3"}, {"predicate": "ne"}, {"depth": "%c4"}, {"last": "%c1"}], ids=str)
def test_counters_that_part_stay(changes):
    """One that parts in the outer loop only is another one in the inner loop too, from the second round on."""
    assert shared(**changes) == (False, False)
