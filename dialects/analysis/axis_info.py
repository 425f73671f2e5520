"""Axis analysis: what is known of integer and pointer values along each dim of a tensor.

One pass over the ops, then a fixpoint over loops. Per dim d of a tensor (a scalar counts as one dim of size 1):

- ``contiguity[d] = c``: cut dim d into aligned groups of c; within each group the values are x, x+1, x+2, …
  (for pointers in elements of the pointee).
- ``divisibility[d]``: the first value of every such group is a multiple of it (for pointers in bytes). A power of two.
- ``constancy[d] = k``: within aligned groups of k the values are equal.

All are powers of two (dims are), so "shortest run" needs no more care than a gcd. Beside them ``constant``, the value where
every element is the same known integer (i1: 0 or 1), and ``nonneg``, known to be ≥ 0, which truncating division needs.

Assumed, as Triton does: index arithmetic does not overflow, loop steps are positive, and so are the divisors of integer
divisions of values known to be ≥ 0 (they are sizes).
Hints (``tt.divisibility``, ``tt.contiguity``, ``tt.constancy`` on arguments and ops) and ``tt.assume`` are believed.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from math import gcd
from typing import Any

from tilewright.dialects._mlir import ir
from tilewright.dialects.analysis.axis_rules import (
    COMPARE,
    MAX_DIVISIBILITY,
    RULES,
    AxisInfo,
    constant_info,
    fold,
    join,
    power_of_two_divisor,
    unknown,
)
from tilewright.dialects.analysis.call_graph import CALL, callee_of, callers_first, name_of
from tilewright.dialects.analysis.structure import Function, Node, Region, block_region_of, functions, type_info

__all__ = ["MAX_DIVISIBILITY", "AxisInfo", "AxisInfoAnalysis", "join", "power_of_two_divisor", "unknown"]

_LOOP_ROUNDS = 6  # divisibility falls by halving: after this many rounds a loop-carried value is taken as unknown
_HINTS = (("tt.contiguity", 0), ("tt.divisibility", 1), ("tt.constancy", 2))


def _shape_of(value: Any) -> tuple[int, ...]:
    return type_info(value.type).shape or (1,)


class AxisInfoAnalysis:
    """Analyse every function of ``module`` (an ir.Module), or the one function whose mirror is given.

    Of the arguments of a called function is known what holds at all calls of it (where the whole module is analysed), of what a
    call returns nothing.
    """

    def __init__(self, module: Any = None, function: Function | None = None):
        self._info: dict[Any, AxisInfo] = {}
        self._assumed: dict[Any, tuple[int, bool]] = {}  # value -> (divisor, known to be ≥ 0)
        self._passed: dict[str, list[AxisInfo | None]] = {}  # called function → what is known at its calls
        for f in [function] if function is not None else callers_first(functions(module)):
            self._function = f
            self._read_assumptions(f)
            for i, arg in enumerate(f.body.args):
                self._info[arg] = self._argument(f, i, arg)
            self._region(f.body)

    def get(self, value: Any) -> AxisInfo:
        """Info of an integer or pointer value; of others (floats, tokens) that nothing is known."""
        info = self._info.get(value)
        return info if info is not None else unknown(len(_shape_of(value)))

    def copy(self, new: Any, old: Any) -> None:
        """Let ``new`` (the same tensor under another layout) have the info of ``old``."""
        self._info[new] = self.get(old)

    # -- what vectorisation asks
    def vector_elements(self, pointer: Any, dim: int, mask: Any = None) -> int:
        """How many consecutive elements along ``dim`` one access may take: contiguous, aligned to their size, and under
        one mask value."""
        info = self.get(pointer)
        size = max(1, type_info(pointer.type).pointee_bits // 8)
        n = min(info.contiguity[dim], max(1, info.divisibility[dim] // size))
        if mask is not None:
            n = min(n, self.get(mask).constancy[dim] if type_info(mask.type).shape else n)
        return n

    # -- building
    def _argument(self, f: Function, index: int, value: Any) -> AxisInfo:
        rank = len(_shape_of(value))
        passed = self._passed.get(name_of(f))
        info = (passed[index] if passed is not None else None) or unknown(rank)
        if "arg_attrs" in f.root.op.attributes:
            attrs = f.root.op.attributes["arg_attrs"][index]
            for name, slot in _HINTS:
                if name in attrs:
                    entry = attrs[name]
                    values = (int(entry.value),) * rank if isinstance(entry, ir.IntegerAttr) else tuple(entry)
                    info = self._hinted(info, slot, values)
        return self._apply_assumptions(value, info)

    @staticmethod
    def _hinted(info: AxisInfo, slot: int, values: tuple[int, ...]) -> AxisInfo:
        # a hint adds to what was found. Divisibility belongs to the starts of runs: a hint that comes without a
        # contiguity is about the runs that were found.
        found = (info.contiguity, info.divisibility, info.constancy)[slot]
        if len(values) != len(found):
            return info
        merged = tuple(max(f, power_of_two_divisor(v)) for f, v in zip(found, values))
        if slot == 0:
            return info._replace(contiguity=merged)
        return info._replace(divisibility=merged) if slot == 1 else info._replace(constancy=merged)

    def _apply_assumptions(self, value: Any, info: AxisInfo) -> AxisInfo:
        assumed = self._assumed.get(value)
        if assumed is None or info.rank != 1:
            return info
        divisor, nonneg = assumed
        return info._replace(divisibility=(max(info.divisibility[0], divisor),), nonneg=info.nonneg or nonneg)

    def _read_assumptions(self, f: Function) -> None:
        """tt.assume of ``x % c == 0``, ``x >= c``, ``x > c`` (c ≥ 0), and of conjunctions of them."""
        for node in f.nodes():
            if node.name != "tt.assume":
                continue
            todo = [node.operands[0]]
            while todo:
                cond = f.def_node(todo.pop())
                if cond is None:
                    continue
                if cond.name == "arith.andi":
                    todo += cond.operands
                elif cond.name == "arith.cmpi":
                    self._assume_compare(f, cond)

    def _assume_compare(self, f: Function, cond: Node) -> None:
        def known(v: Any) -> int | None:
            n = f.def_node(v)
            if n is not None and n.name == "arith.constant" and isinstance(n.attr("value"), ir.IntegerAttr):
                return int(ir.IntegerAttr(n.attr("value")).value)
            return None

        predicate = int(ir.IntegerAttr(cond.attr("predicate")).value)
        lhs, rhs = cond.operands
        left, right = known(lhs), known(rhs)
        if predicate == 0 and right == 0:
            rem = f.def_node(lhs)
            if rem is not None and rem.name in ("arith.remsi", "arith.remui"):
                by = known(rem.operands[1])
                if by:
                    divisor, nonneg = self._assumed.get(rem.operands[0], (1, False))
                    self._assumed[rem.operands[0]] = (max(divisor, power_of_two_divisor(by)), nonneg)
            return
        value = None
        if right is not None and ((predicate == 4 and right >= -1) or (predicate == 5 and right >= 0)):
            value = lhs
        elif left is not None and ((predicate == 2 and left >= -1) or (predicate == 3 and left >= 0)):
            value = rhs
        if value is not None:
            self._assumed[value] = (self._assumed.get(value, (1, False))[0], True)

    def _region(self, region: Region) -> None:
        info = self._info
        for node in region.ops:
            if node.regions:
                self._region_op(node)
                continue
            if node.name == CALL:
                self._call(node)
            if not node.results:
                continue
            rule = RULES.get(node.name)
            if rule is None:
                for r in node.results:
                    t = type_info(r.type)
                    if t.kind in ("int", "ptr", "index"):
                        info[r] = self._finish(node, r, unknown(len(t.shape or (1,))))
                continue
            result = node.results[0]
            t = type_info(result.type)
            if t.kind not in ("int", "ptr", "index"):
                continue
            shape = t.shape or (1,)
            operands = [info.get(v) or unknown(len(_shape_of(v))) for v in node.operands]
            found = None
            if len(operands) == 2 and operands[0].constant is not None and operands[1].constant is not None:
                a, b = operands[0].constant, operands[1].constant
                value = fold(node.name, a, b, t.bits)
                if value is None and node.name == "arith.cmpi":
                    compare = COMPARE.get(int(ir.IntegerAttr(node.op.attributes["predicate"]).value))
                    value = int(compare(a, b)) if compare else None
                if value is not None:
                    found = constant_info(value, shape)
            info[result] = self._finish(node, result, found or rule(node, operands, shape))

    def _call(self, node: Node) -> None:
        """Loops come here several times, each time knowing less: what is joined in the end is what holds each time."""
        passed = self._passed.setdefault(callee_of(node), [None] * len(node.operands))
        for i, value in enumerate(node.operands):
            passed[i] = join(passed[i], self.get(value))

    def _finish(self, node: Node, value: Any, found: AxisInfo) -> AxisInfo:
        attributes = node.op.attributes
        for name, slot in _HINTS:
            if name in attributes:
                found = self._hinted(found, slot, tuple(ir.DenseI32ArrayAttr(attributes[name])))
        return self._apply_assumptions(value, found) if self._assumed else found

    def _region_op(self, node: Node) -> None:
        if node.name == "scf.for":
            self._for(node)
        elif node.name == "scf.if":
            for region in node.regions:
                self._region(region)
            for i, r in enumerate(node.results):
                merged = None
                for region in node.regions:
                    merged = join(merged, self.get(region.ops[-1].operands[i]))
                self._info[r] = merged or unknown(len(_shape_of(r)))
        elif node.name == "scf.while":
            self._while(node)
        elif block_region_of(node.name) is not None:
            for region in node.regions:
                self._region(region)
        else:  # reductions and scans: integers of which nothing is known
            for r in node.results:
                self._info[r] = unknown(len(_shape_of(r)))

    def _carried(self, args: list[Any], inits: list[Any], body: Callable[[], list[Any]]) -> None:
        """Fixpoint of loop-carried values: start with the first values, weaken by what the body hands on."""
        for arg, init in zip(args, inits):
            self._info[arg] = self.get(init)
        for round_ in count():
            changed = False
            for arg, out in zip(args, body()):
                old = self._info[arg]
                new = join(old, self.get(out))
                assert new is not None
                if new != old:
                    changed = True
                    self._info[arg] = new if round_ < _LOOP_ROUNDS else unknown(old.rank)
            if not changed:
                return

    def _for(self, node: Node) -> None:
        region = node.regions[0]
        lower, step = self.get(node.operands[0]), self.get(node.operands[2])
        self._info[region.args[0]] = AxisInfo((1,), (gcd(lower.divisibility[0], step.divisibility[0]),), (1,), None, lower.nonneg)

        def body() -> list[Any]:
            self._region(region)
            return region.ops[-1].operands

        self._carried(region.args[1:], node.operands[3:], body)
        for i, r in enumerate(node.results):
            self._info[r] = self._info[region.args[i + 1]]

    def _while(self, node: Node) -> None:
        before, after = node.regions

        def body() -> list[Any]:
            self._region(before)
            for arg, v in zip(after.args, before.ops[-1].operands[1:]):
                self._info[arg] = self.get(v)
            self._region(after)
            return after.ops[-1].operands

        self._carried(before.args, node.operands, body)
        for r, v in zip(node.results, before.ops[-1].operands[1:]):
            self._info[r] = self.get(v)
